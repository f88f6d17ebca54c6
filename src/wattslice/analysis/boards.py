"""Estimates over several boards: the board as a random effect.

Boards of one model differ by a few per cent, and that difference is in all repeats of a board: ten
repeats on two boards say little more of a third board than one on each. With one board an estimate
is the median over its repeats. With more, values are of the model

    log x_ij = mu + b_i + e_ij        (plain x_ij where a value is not above 0)

with boards i and repeats j; the variances of b and e come from the analysis of variance of the
unbalanced one-way layout (Searle, Casella and McCulloch, Variance Components, 1992, ch. 3), and
exp(mu) has the interval of Hartung and Knapp (Stat. Med. 20, 2001): Student's t over the boards.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import scipy.stats

from wattslice.analysis.statistics import Estimate, FloatArray, estimate


def estimate_over_boards(values: Iterable[tuple[str, float]], confidence: float = 0.95) -> Estimate:
    """The estimate of (board, value) pairs, one per repeat; n counts the values.

    With several boards the note says how many there are, and how far they lie apart.
    """
    by_board: dict[str, list[float]] = {}
    for board, value in values:
        by_board.setdefault(board, []).append(value)
    if len(by_board) < 2:
        return estimate(next(iter(by_board.values()), []), confidence)
    groups = [np.asarray(found, dtype=np.float64) for found in by_board.values()]
    positive = all((group > 0).all() for group in groups)
    fit = fit_boards([np.log(group) for group in groups] if positive else groups)
    half = fit.error * float(scipy.stats.t.ppf(0.5 + confidence / 2, len(groups) - 1))
    value, low, high = fit.mean, fit.mean - half, fit.mean + half
    if positive:
        value, low, high = (float(np.exp(x)) for x in (value, low, high))
        apart = f"{100 * np.expm1(fit.between):.2g} %"
    else:
        apart = f"{fit.between:.3g}"
    note = (
        f"{len(groups)} boards, pooled with the board as a random effect: they lie {apart} apart "
        "(standard deviation), and the interval is Student's t over boards"
    )
    return Estimate(value, low, high, sum(group.size for group in groups), note=note)


@dataclass(frozen=True, slots=True)
class BoardFit:
    """The one-way random-effects model of some values."""

    mean: float
    error: float  # standard error of the mean
    between: float  # standard deviation of boards
    within: float  # standard deviation of repeats on one board


def fit_boards(groups: list[FloatArray]) -> BoardFit:
    """Fit the model to the values of two boards or more."""
    sizes = np.array([group.size for group in groups], dtype=np.float64)
    means = np.array([group.mean() for group in groups])
    total, boards = sizes.sum(), len(groups)
    squares = sum(float(((group - group.mean()) ** 2).sum()) for group in groups)
    within = squares / (total - boards) if total > boards else 0.0
    grand = (sizes * means).sum() / total
    mean_square = float((sizes * (means - grand) ** 2).sum() / (boards - 1))
    size = float((total - (sizes**2).sum() / total) / (boards - 1))
    between = max(0.0, (mean_square - within) / size)
    spread = between + within / sizes
    weights = 1.0 / spread if spread.min() > 0 else np.ones(boards)
    weights /= weights.sum()
    mean = float((weights * means).sum())
    error = float(np.sqrt((weights * (means - mean) ** 2).sum() / (boards - 1)))
    return BoardFit(mean, error, float(np.sqrt(between)), float(np.sqrt(within)))
