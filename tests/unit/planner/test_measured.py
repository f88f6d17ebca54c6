"""Measured gains against each named baseline, and predicted against measured."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from wattslice.planner.boards import board_for
from wattslice.planner.errors import InfeasibleError
from wattslice.planner.gains import mix_gains, split_placement
from wattslice.planner.predict import Job
from wattslice.planner.ranges import Range
from wattslice.planner.search import Options
from wattslice.planner.table import Cell, Measured, Table
from wattslice.planner.validation import best_is_best, choose, compare, members, summarise
from wattslice.records.base import Quantity


def _rows(
    layout: str, placement: str, power: float | None, rates: dict[str, float], **more: Any
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    run_id = f"{layout}/{placement}/fp32/rep{more.get('repeat', 1)}"
    run = {
        "run_id": run_id,
        "layout": layout,
        "placement": placement,
        "precision": "fp32",
        "repeat": 1,
        "board_uuid": "GPU-1",
        "outcome": "ok",
        "badge": "good",
        "simulated": False,
        "modelled": False,
        "mean_power_w": power,
        **more,
    }
    slices = [
        {"run_id": run_id, "workload": name.split("#")[0], "throughput_samples_s": rate}
        for name, rate in rates.items()
    ]
    return run, slices


def _gains(*rows: tuple[dict[str, Any], list[dict[str, Any]]]) -> dict[str, Any]:
    table = mix_gains([run for run, _ in rows], [s for _, own in rows for s in own], 0.95)
    return {gain.base: gain for gain in table.gains}


FULL = [
    _rows("full", "a.solo", 300.0, {"a": 10.0}),
    _rows("full", "b.solo", 200.0, {"b": 100.0}),
]
MIX = _rows("4g+3g", "mix.pair", 320.0, {"a": 6.0, "b": 70.0})


def test_each_baseline_has_its_own_gain() -> None:
    gains = _gains(
        *FULL,
        MIX,
        _rows("7g", "a.solo", 290.0, {"a": 9.0}),
        _rows("7g", "b.solo", 195.0, {"b": 95.0}),
        _rows("full", "mix.pair.time-slice", 310.0, {"a": 5.0, "b": 50.0}),
        _rows("full", "mix.pair.mps-60-40", 330.0, {"a": 7.0, "b": 50.0}),
    )
    assert set(gains) == {
        "sequential on full",
        "sequential on 7g",
        "time-slice on full",
        "mps-60-40 on full",
    }
    assert gains["sequential on full"].throughput_gain == pytest.approx(0.3)
    assert gains["sequential on full"].energy_saved == pytest.approx(1 - 320 / (180 + 140))
    assert gains["sequential on 7g"].throughput_gain == pytest.approx(6 / 9 + 70 / 95 - 1)
    assert gains["time-slice on full"].throughput_gain == pytest.approx(0.3)
    assert gains["time-slice on full"].energy_saved == pytest.approx(1 - (320 / 1.3) / 310)
    assert gains["mps-60-40 on full"].throughput_gain == pytest.approx(1.3 / 1.2 - 1)
    assert gains["mps-60-40 on full"].base_runs == ("full/mix.pair.mps-60-40/fp32/rep1",)


def test_a_baseline_that_failed_or_lacks_a_job_gives_a_reason_and_no_number() -> None:
    gains = _gains(
        FULL[0],
        MIX,
        _rows("full", "mix.pair.mps", None, {}, outcome="unsupported_layout"),
    )
    assert set(gains) == {"sequential on full"}
    assert gains["sequential on full"].throughput_gain is None
    assert gains["sequential on full"].reason == "b was not run alone on full"


def test_only_blocks_with_both_sides_count_and_rejected_runs_do_not() -> None:
    second = [
        _rows("4g+3g", "mix.pair", None, {"a": 60.0, "b": 700.0}, repeat=2),
        _rows("4g+3g", "mix.pair", 320.0, {"a": 9.0, "b": 9.0}, repeat=3, badge="rejected"),
    ]
    gain = _gains(*FULL, MIX, *second)["sequential on full"]
    assert gain.blocks == 1
    assert gain.throughput_gain == pytest.approx(0.3)


@pytest.mark.parametrize(
    ("placement", "found"),
    [
        ("mix.pair", ("pair", "partition")),
        ("mix.pair.time-slice", ("pair", "time-slice")),
        ("mix.pair.mps-50-50", ("pair", "mps-50-50")),
        ("mix.list.1of2", None),
        ("a.solo", None),
        ("a.fill", None),
    ],
)
def test_schemes_are_read_from_labels(placement: str, found: object) -> None:
    assert split_placement(placement) == found


# --- validation --------------------------------------------------------------------------------


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
