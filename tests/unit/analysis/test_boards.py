"""Several boards: never two in one ratio, and what they differ by is in the interval."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fixtures.records import Truth, make_campaign
from wattslice.analysis.boards import estimate_over_boards, fit_boards
from wattslice.analysis.ratios import read_ratios
from wattslice.analysis.statistics import estimate


def test_one_board_is_the_median_over_its_repeats() -> None:
    values = [3.0, 1.0, 2.0]
    assert estimate_over_boards([("a", value) for value in values]) == estimate(values)
    assert estimate_over_boards([]).reason == "no measured repeat"


def test_boards_that_lie_apart_are_pooled_by_board_and_not_by_repeat() -> None:
    found = estimate_over_boards(
        [("a", 1.0), ("a", 1.0), ("a", 1.0), ("a", 1.0), ("b", 1.21)], 0.95
    )
    assert found.value == pytest.approx(1.1, rel=1e-9)  # geometric mean of the two boards
    assert found.n == 5
    assert found.low is not None and found.high is not None
    assert found.low < 0.5 and found.high > 2.0  # two boards: one degree of freedom
    assert "2 boards" in str(found.note) and "14 % apart" in str(found.note)


def test_without_a_difference_between_boards_all_repeats_count() -> None:
    fit = fit_boards([np.array([1.0, 3.0]), np.array([1.0, 2.0, 3.0])])
    assert fit.between == 0
    assert fit.mean == pytest.approx(2.0)
    assert fit.within == pytest.approx(np.sqrt(4 / 3))


def test_values_of_0_are_pooled_as_they_are() -> None:
    assert estimate_over_boards([("a", 0.0), ("b", 2.0)]).value == pytest.approx(1.0)


@pytest.mark.parametrize("boards", [3, 6])
def test_intervals_hold_their_level_where_boards_differ(boards: int) -> None:
    """Unlike those over repeats, which take the repeats of a board for independent ones."""
    rng = np.random.default_rng(boards)
    pooled = naive = 0
    for _ in range(1000):
        effects = rng.normal(0.0, 0.05, boards)
        pairs = [
            (str(board), float(np.exp(effects[board] + rng.normal(0.0, 0.02))))
            for board in range(boards)
            for _ in range(6 if board % 2 else 3)
        ]
        found = estimate_over_boards(pairs)
        assert found.low is not None and found.high is not None
        pooled += found.low < 1.0 < found.high
        values = np.log([value for _, value in pairs])
        half = 1.96 * values.std(ddof=1) / np.sqrt(values.size)
        naive += abs(values.mean()) < half
    assert 0.93 <= pooled / 1000 <= 0.97
    assert naive / 1000 < 0.85


def test_runs_of_two_boards_are_never_in_one_ratio(tmp_path: Path) -> None:
    """Board b takes 1.1 times as long; its bf16 run of the third repeat is on board a."""
    truths = [
        Truth(precision=precision, repeat=repeat, step_s=step_s * slower, board_uuid=board)
        for repeat, own in enumerate(("a", "b", "b"), start=1)
        for precision, step_s in (("fp32", 0.1), ("bf16", 0.05))
        for board in ("a" if (precision, repeat) == ("bf16", 3) else own,)
        for slower in (1.1 if board == "b" else 1.0,)
    ]
    folder = make_campaign(tmp_path, truths)
    (speedup,) = (
        ratio
        for ratio in read_ratios(folder / "analysis").ratios
        if ratio.kind == "precision_speedup" and ratio.numerator == "bf16"
    )
    assert [pair.block for pair in speedup.pairs] == ["rep1 a", "rep2 b"]
    assert [pair.value for pair in speedup.pairs] == pytest.approx([2.0, 2.0])
    assert "2 boards" in str(speedup.note)
    summary = pd.read_parquet(folder / "tables" / "summary.parquet").set_index("precision")
    # Board a has one repeat of fp32 and board b two, which count as one board each.
    assert summary.loc["fp32", "throughput_samples_s"] == pytest.approx(80 / 1.1**0.5)
    assert "random effect" in summary.loc["fp32", "throughput_samples_s_note"]
