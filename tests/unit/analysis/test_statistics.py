"""Medians, intervals and means against known distributions and scipy."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats

from wattslice.analysis.statistics import (
    arithmetic_mean,
    bootstrap_interval,
    compare_groups,
    estimate,
    geometric_mean,
    holm,
    paired_ratios,
    range_coverage,
    repeats_needed,
    student_interval,
)


@pytest.mark.parametrize("n", [5, 6, 10, 20])
def test_interval_covers_the_true_median(n: int) -> None:
    rng = np.random.default_rng(7)
    campaigns = 1000
    hits = 0
    for _ in range(campaigns):
        low, high = bootstrap_interval(rng.lognormal(0.0, 0.1, n), resamples=999)
        hits += low <= 1.0 <= high
    # 0.93 to 0.97, and two standard errors of 1,000 campaigns.
    assert 0.93 - 0.016 <= hits / campaigns <= 0.97 + 0.016


@pytest.mark.parametrize("n", [2, 3, 4])
def test_few_repeats_cover_what_the_note_says_and_no_more(n: int) -> None:
    rng = np.random.default_rng(3)
    campaigns = 1000
    hits = 0
    for _ in range(campaigns):
        values = rng.normal(10.0, 1.0, n)
        low, high = bootstrap_interval(values, resamples=999)
        assert (low, high) == (values.min(), values.max())
        hits += low <= 10.0 <= high
    assert hits / campaigns == pytest.approx(range_coverage(n), abs=0.05)
    assert f"{100 * range_coverage(n):g} %" in (estimate(values).note or "")


def test_interval_agrees_with_scipy() -> None:
    values = np.random.default_rng(0).gamma(3.0, size=15)
    reference = scipy.stats.bootstrap(
        (values,), np.median, method="percentile", n_resamples=9999, rng=1
    ).confidence_interval
    low, high = bootstrap_interval(values)
    # The medians of resamples are values (n is odd): both must pick the same or a next one.
    steps = np.sort(values)
    assert abs(np.searchsorted(steps, low) - np.searchsorted(steps, reference.low)) <= 1
    assert abs(np.searchsorted(steps, high) - np.searchsorted(steps, reference.high)) <= 1


def test_interval_is_the_same_every_time_and_in_any_order() -> None:
    values = [3.0, 1.0, 2.0, 5.0, 4.0, 6.5, 7.0]
    assert estimate(values) == estimate(values[::-1])


def test_regression_value() -> None:
    result = estimate([10.0, 11.0, 12.0, 13.0, 14.0])
    assert (result.value, result.low, result.high, result.n) == (12.0, 10.0, 14.0, 5)
    assert result.note is None


def test_one_value_has_no_interval_and_says_so() -> None:
    result = estimate([4.0])
    assert (result.value, result.low, result.high) == (4.0, None, None)
    assert result.reason == "one repeat has no interval"


def test_no_value_has_a_reason() -> None:
    assert estimate([]).value is None
    assert estimate([]).reason == "no measured repeat"


def test_not_a_number_is_refused() -> None:
    with pytest.raises(ValueError, match="finite"):
        estimate([1.0, float("nan"), 2.0])


def test_ratios_are_paired_by_block() -> None:
    top = {(1, "a"): 2.0, (2, "a"): 6.0, (3, "a"): 9.0}
    bottom = {(1, "a"): 1.0, (2, "a"): 2.0, (1, "b"): 5.0}
    assert paired_ratios(top, bottom) == {(1, "a"): 2.0, (2, "a"): 3.0}


def test_pairing_removes_what_disturbs_a_block() -> None:
    block = {k: 1.0 + 0.5 * k for k in range(5)}  # a disturbance that hits both sides
    ratios = paired_ratios({k: 3.0 * v for k, v in block.items()}, block)
    result = estimate(list(ratios.values()))
    assert result.low == pytest.approx(3.0)
    assert result.high == pytest.approx(3.0)


def test_zero_denominator_is_refused() -> None:
    with pytest.raises(ValueError, match="denominator"):
        paired_ratios({1: 1.0}, {1: 0.0})


def test_means() -> None:
    assert geometric_mean([1.0, 4.0]) == pytest.approx(2.0)
    assert geometric_mean([2.0, 3.0, 7.0]) == pytest.approx(scipy.stats.gmean([2.0, 3.0, 7.0]))
    assert arithmetic_mean([1.0, 4.0]) == 2.5
    with pytest.raises(ValueError, match="greater than 0"):
        geometric_mean([1.0, -1.0])


@pytest.mark.parametrize("n", [2, 3, 4, 8])
def test_student_interval_covers_and_agrees_with_scipy(n: int) -> None:
    rng = np.random.default_rng(9)
    hits = 0
    for _ in range(1000):
        low, high = student_interval(rng.lognormal(0.0, 0.1, n), logarithms=True)
        hits += low <= 1.0 <= high
    assert 0.93 <= hits / 1000 <= 0.97
    values = rng.normal(0.0, 1.0, n)
    values[0] = -1.0
    reference = scipy.stats.t.interval(
        0.95, n - 1, loc=values.mean(), scale=scipy.stats.sem(values)
    )
    assert student_interval(values) == pytest.approx(reference)


def test_the_interval_of_a_difference_can_reach_zero() -> None:
    low, high = student_interval([0.1, 0.3])
    assert low < 0 < high
    with pytest.raises(ValueError, match="greater than 0"):
        student_interval([0.0, 1.0], logarithms=True)


def test_repeats_needed() -> None:
    # t(n - 1) s / sqrt(n) < d, looked up by hand for s = 1, d = 1: 2.776 / sqrt 5 = 1.24,
    # 2.571 / sqrt 6 = 1.05, 2.447 / sqrt 7 = 0.92.
    assert repeats_needed(1.0, 1.0, 2) == 7
    assert repeats_needed(1.0, None, 1) == 3
    assert repeats_needed(0.0, 1.0, 5) is None
    assert repeats_needed(1e-6, 1.0, 5) is None


def test_groups_are_compared_as_scipy_does() -> None:
    rng = np.random.default_rng(4)
    a, b = rng.lognormal(0.0, 0.05, 6), rng.lognormal(0.1, 0.1, 9)
    found = compare_groups(a, b)
    reference = scipy.stats.ttest_ind(np.log(b), np.log(a), equal_var=False)
    assert found.p == pytest.approx(reference.pvalue)
    assert found.ratio == pytest.approx(scipy.stats.gmean(b) / scipy.stats.gmean(a))
    assert found.low is not None
    assert found.high is not None
    assert found.low < found.ratio < found.high  # type: ignore[operator]


def test_comparisons_keep_their_level() -> None:
    """Equal groups are called different in 5 % of cases, and intervals hold the true ratio."""
    rng = np.random.default_rng(8)
    alarms = hits = 0
    for _ in range(1000):
        found = compare_groups(rng.lognormal(0.0, 0.05, 4), rng.lognormal(0.2, 0.1, 5))
        assert found.low is not None
        assert found.high is not None
        hits += found.low <= np.exp(0.2) <= found.high
        level = compare_groups(rng.lognormal(0.0, 0.05, 4), rng.lognormal(0.0, 0.05, 4))
        alarms += level.p is not None and level.p < 0.05
    assert 0.93 <= hits / 1000 <= 0.97
    assert 0.03 <= alarms / 1000 <= 0.07


def test_groups_that_cannot_be_compared_say_why() -> None:
    assert compare_groups([], [1.0]).reason == "only one side has a value"
    assert compare_groups([], []).reason == "neither side has a value"
    one = compare_groups([1.0], [2.0, 2.1])
    assert (one.low, one.p) == (None, None)
    assert "one repeat" in (one.reason or "")
    assert compare_groups([1.0, 1.0], [2.0, 2.0]).p == 0.0
    assert compare_groups([1.0, 1.0], [1.0, 1.0]).p == 1.0


def test_holm_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.6, 0.9]) == [1.0, 1.0]
    assert holm([]) == []
