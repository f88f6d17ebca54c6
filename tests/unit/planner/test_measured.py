"""Predicted against measured: what is run, how it is compared."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from wattslice.planner.boards import board_for
from wattslice.planner.errors import InfeasibleError
from wattslice.planner.predict import Job
from wattslice.planner.ranges import Range
from wattslice.planner.search import Options
from wattslice.planner.table import Cell, Measured, Table
from wattslice.planner.validation import best_is_best, choose, compare, members, summarise
from wattslice.records.base import Quantity


def _table() -> Table:
    def cell(rate: float) -> Cell:
        return Cell(alone=Measured(Range.of(rate, 0.9 * rate, 1.1 * rate), Range.of(rate)))

    rates = {"full": 10.0, "3g": 6.0, "2g": 5.0, "1g": 3.0}
    cells = {(w, kind): cell(rate) for w in ("a", "b") for kind, rate in rates.items()}
    return Table("fp32", cells, {"": Range.of(50.0)})


def _metrics(rates: dict[int, float | None], power_w: float | None) -> Any:
    def quantity(value: float | None) -> Quantity:
        return Quantity.missing("lost") if value is None else Quantity.of(value)

    return SimpleNamespace(
        run_id="r",
        outcome="ok",
        reason=None,
        mean_power_w=quantity(power_w),
        workers=[
            SimpleNamespace(slice_index=i, throughput_samples_s=quantity(rate))
            for i, rate in rates.items()
        ],
    )


def test_the_best_and_random_others_are_chosen_and_compared() -> None:
    table = _table()
    jobs = [Job("a#1", "a"), Job("b#1", "b")]
    options = Options(table, jobs, {}, None)
    board = board_for("a100-sxm4-80gb", table.slices)
    chosen = choose(options, board, "full", "throughput", count=3, seed=1)
    assert [role for role, _ in chosen] == ["best", "random", "random", "random"]
    assert len({(str(c.layout), c.slices) for _, c in chosen}) == 4
    assert chosen == choose(options, board, "full", "throughput", count=3, seed=1)
    _, best = chosen[0]
    assert str(best.layout) == "2x3g"
    assert members(best, jobs) == ("a", "b")
    run = compare(
        table, options, best, "full", role="best", metrics=_metrics({0: 5.0, 1: 6.2}, 60.0)
    )
    by_name = {(figure.name, figure.workload): figure for figure in run.figures}
    assert by_name["throughput", "a"].error == pytest.approx(0.2)
    assert by_name["throughput", "a"].inside is False
    assert by_name["throughput", "b"].inside is True
    assert by_name["progress", None].measured == pytest.approx(1.12)
    assert by_name["mean_power", None].error == pytest.approx(62 / 60 - 1)
    # Each job adds 10 W to 50 W on the whole board, so a share of it costs 60 W.
    assert by_name["energy_ratio", None].predicted == pytest.approx(62 / (1.2 * 60))
    assert by_name["energy_ratio", None].measured == pytest.approx(60 / (1.12 * 60))
    other = compare(table, options, chosen[1][1], "full", role="random", metrics=_metrics({}, None))
    assert {figure.error for figure in other.figures} == {None}
    assert all(figure.reason for figure in other.figures)
    summary = {each.name: each for each in summarise([run, other])}
    assert summary["throughput"].n == 2
    assert summary["throughput"].largest_abs_error == pytest.approx(0.2)
    assert best_is_best([run, other], "throughput") is None


def test_whether_the_best_was_best_is_judged_by_medians() -> None:
    def run(role: str, layout: str, progress: float, power: float) -> Any:
        figures = [
            SimpleNamespace(name="progress", measured=progress),
            SimpleNamespace(name="mean_power", measured=power),
        ]
        return SimpleNamespace(role=role, layout=layout, workloads=("a",), figures=figures)

    runs = [run("best", "2x3g", 1.2, 100), run("random", "7x1g", 1.1, 80)]
    assert best_is_best(runs, "throughput") is True
    assert best_is_best(runs, "samples-per-joule") is False
    assert best_is_best(runs[:1], "throughput") is None


def test_jobs_that_need_the_whole_board_cannot_be_validated() -> None:
    table = _table()
    for kind in ("3g", "2g", "1g"):
        table.cells["a", kind].failed = "oom"
    options = Options(table, [Job("a#1", "a")], {}, None)
    with pytest.raises(InfeasibleError, match="no layout of several slices"):
        choose(
            options,
            board_for("a100-sxm4-80gb", table.slices),
            "full",
            "throughput",
            count=1,
            seed=0,
        )
