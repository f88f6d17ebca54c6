"""Sharing a board's energy among its slices."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wattslice.analysis.attribution import (
    CONSERVATION_LIMIT,
    Method,
    SliceUse,
    attribute,
    errors_against,
    shapley,
)

CHEAP: tuple[Method, ...] = ("slice-share", "activity", "slice-activity")


def test_rules_on_a_worked_example() -> None:
    """4g busy at 0.5 and 1g at 1.0 on a board with 900 J, of which 400 J are idle."""
    slices = [SliceUse(0, 4, activity=0.5), SliceUse(1, 1, activity=1.0)]
    shares = {m: attribute(m, 900.0, 400.0, slices).shares_j for m in CHEAP}
    assert shares["slice-share"] == pytest.approx({0: 400, 1: 100})
    assert shares["activity"] == pytest.approx({0: 500 / 3, 1: 1000 / 3})
    assert shares["slice-activity"] == pytest.approx({0: 1000 / 3, 1: 500 / 3})


def test_a_slice_without_a_worker_gets_nothing_and_idle_stays_with_the_board() -> None:
    slices = [SliceUse(0, 3, activity=1.0), SliceUse(1, 3, busy=False)]
    for method in CHEAP:
        result = attribute(method, 900.0, 400.0, slices)
        assert result.shares_j == {0: 500.0, 1: 0.0}
        assert result.idle_j == 400.0


def test_every_result_is_labelled_an_estimate_by_its_method() -> None:
    result = attribute(
        "activity", 9.0, 4.0, [SliceUse(0, 1, activity=1.0)], activity_source="GPM metric 2"
    )
    content = result.model_dump()
    assert content["estimate"] is True
    assert content["method"] == "activity"
    assert content["activity_source"] == "GPM metric 2"
    share = attribute("slice-share", 9.0, 4.0, [SliceUse(0, 1)], activity_source="GPM")
    assert share.activity_source is None  # it did not use any


def test_no_activity_is_a_refusal_and_not_another_rule() -> None:
    slices = [SliceUse(0, 1, activity=0.3), SliceUse(1, 1)]
    result = attribute("activity", 900.0, 400.0, slices)
    assert result.shares_j is None
    assert result.reason == "no activity reading of slice 1; slice-share needs none"
    assert attribute("slice-share", 900.0, 400.0, slices).shares_j is not None


def test_activity_above_1_is_cut_and_noted() -> None:
    slices = [SliceUse(0, 1, activity=2.0), SliceUse(1, 1, activity=1.0)]
    result = attribute("activity", 900.0, 400.0, slices)
    assert result.shares_j == {0: 250.0, 1: 250.0}
    assert "cut to 0..1" in result.notes[0]


def test_unknown_idle_power_is_shared_out_and_noted() -> None:
    result = attribute("slice-share", 900.0, None, [SliceUse(0, 1), SliceUse(1, 2)])
    assert result.shares_j == pytest.approx({0: 300.0, 1: 600.0})
    assert "idle power is not known" in result.notes[0]


@pytest.mark.parametrize(
    ("board_j", "idle_j", "slices", "reason"),
    [
        (math.nan, None, [SliceUse(0, 1)], "is not a number"),
        (-1.0, None, [SliceUse(0, 1)], "is not a number"),
        (100.0, 200.0, [SliceUse(0, 1)], "is not within"),
        (100.0, 20.0, [SliceUse(0, 1, busy=False)], "no slice was busy"),
        (100.0, 20.0, [SliceUse(0, 0)], "has no size"),
        (100.0, 20.0, [SliceUse(0, 1, activity=0.0)], "no slice was active"),
    ],
)
def test_what_cannot_be_shared_out_is_refused(
    board_j: float, idle_j: float | None, slices: list[SliceUse], reason: str
) -> None:
    result = attribute("activity", board_j, idle_j, slices)
    assert result.shares_j is None
    assert reason in (result.reason or "")


USES = st.lists(
    st.tuples(st.integers(1, 7), st.booleans(), st.floats(0.01, 1.0)), min_size=1, max_size=7
)


@given(
    uses=USES,
    board_j=st.floats(1e-3, 1e9),
    idle_share=st.one_of(st.none(), st.floats(0.0, 1.0)),
    method=st.sampled_from(CHEAP),
)
def test_shares_and_idle_are_the_board_and_none_is_negative(
    uses: list[tuple[int, bool, float]],
    board_j: float,
    idle_share: float | None,
    method: Method,
) -> None:
    slices = [SliceUse(i, n, busy, a) for i, (n, busy, a) in enumerate(uses)]
    idle_j = None if idle_share is None else idle_share * board_j
    result = attribute(method, board_j, idle_j, slices)
    if not any(use.busy for use in slices):
        assert result.reason is not None
        return
    assert result.shares_j is not None
    assert all(share >= 0 for share in result.shares_j.values())
    assert result.conservation_error is not None
    assert result.conservation_error < CONSERVATION_LIMIT


# -- Shapley ----------------------------------------------------------------------------------


def _subsets(count: int, energy: dict[frozenset[int], float]) -> dict[frozenset[int], float]:
    return {
        frozenset(s): energy[frozenset(s)]
        for size in range(count + 1)
        for s in itertools.combinations(range(count), size)
    }


def test_shapley_of_two_slices_by_hand() -> None:
    """Alone 150 and 130 above an idle of 100, together 160: the whole board wakes up once."""
    energy = {
        frozenset(): 100.0,
        frozenset({0}): 150.0,
        frozenset({1}): 130.0,
        frozenset({0, 1}): 160.0,
    }
    result = shapley(energy)
    assert result.shares_j == pytest.approx({0: (50 + 30) / 2, 1: (30 + 10) / 2})
    assert result.idle_j == 100.0


@given(weights=st.lists(st.floats(0.0, 1e3), min_size=1, max_size=5), idle_j=st.floats(0, 1e3))
def test_shapley_of_independent_slices_is_what_each_adds(
    weights: list[float], idle_j: float
) -> None:
    energy = {
        frozenset(s): idle_j + math.fsum(weights[i] for i in s)
        for size in range(len(weights) + 1)
        for s in itertools.combinations(range(len(weights)), size)
    }
    result = shapley(energy)
    assert result.shares_j is not None
    for index, weight in enumerate(weights):
        assert result.shares_j[index] == pytest.approx(weight, abs=1e-9 * (1 + idle_j + 1e3))


@given(st.data(), st.integers(1, 4))
def test_shapley_shares_and_idle_are_the_board_and_like_slices_share_alike(
    data: st.DataObject, count: int
) -> None:
    by_size = [data.draw(st.floats(0, 1e4)) for _ in range(count + 1)]
    energy = {
        frozenset(s): by_size[size]
        for size in range(count + 1)
        for s in itertools.combinations(range(count), size)
    }
    result = shapley(_subsets(count, energy))
    assert result.shares_j is not None
    total = math.fsum(result.shares_j.values()) + by_size[0]
    assert total == pytest.approx(by_size[count], abs=1e-6)
    shares = list(result.shares_j.values())
    assert max(shares) - min(shares) < 1e-6


def test_shapley_refuses_what_was_not_measured() -> None:
    missing = shapley({frozenset(): 10.0, frozenset({0, 1}): 30.0, frozenset({0}): 20.0})
    assert missing.shares_j is None
    assert missing.reason == "subsets not measured: {1}"
    assert "no subset" in (shapley({frozenset(): 10.0}).reason or "")
    assert "no subset" in (shapley({}).reason or "")
    bad = shapley({frozenset(): 10.0, frozenset({0}): math.nan})
    assert "not a number" in (bad.reason or "")
    with pytest.raises(ValueError, match="call shapley"):
        attribute("shapley", 1.0, None, [SliceUse(0, 1)])


def test_a_slice_that_saves_energy_is_noted_and_not_hidden() -> None:
    energy = {
        frozenset(): 100.0,
        frozenset({0}): 150.0,
        frozenset({1}): 101.0,
        frozenset({0, 1}): 140.0,
    }
    result = shapley(energy)
    assert result.shares_j is not None
    assert result.shares_j[1] < 0
    assert result.notes == ("slices 1 saved energy for the others",)


def test_errors_of_the_cheap_rules_against_shapley() -> None:
    reference = shapley(
        {
            frozenset(): 400.0,
            frozenset({0}): 800.0,
            frozenset({1}): 600.0,
            frozenset({0, 1}): 900.0,
        }
    )
    assert reference.shares_j == pytest.approx({0: 350.0, 1: 150.0})
    slices = [SliceUse(0, 4, activity=1.0), SliceUse(1, 1, activity=1.0)]
    cheap = [attribute(method, 900.0, 400.0, slices) for method in CHEAP]
    refused = attribute("activity", 900.0, 400.0, [SliceUse(0, 4), SliceUse(1, 1)])
    errors = {error.method: error for error in errors_against(reference, [*cheap, refused])}
    assert set(errors) == set(CHEAP)
    assert errors["slice-share"].error_j == pytest.approx({0: 50.0, 1: -50.0})
    assert errors["slice-share"].max_relative_error == pytest.approx(1 / 3)
    assert errors["slice-share"].misplaced_share == pytest.approx(0.1)
    assert errors["activity"].error_j == pytest.approx({0: -100.0, 1: 100.0})


def test_errors_are_taken_for_one_window_and_the_same_slices_only() -> None:
    reference = shapley({frozenset(): 400.0, frozenset({0}): 900.0})
    with pytest.raises(ValueError, match="not the same window"):
        errors_against(reference, [attribute("slice-share", 800.0, 400.0, [SliceUse(0, 1)])])
    with pytest.raises(ValueError, match="slices"):
        errors_against(reference, [attribute("slice-share", 900.0, 400.0, [SliceUse(1, 1)])])
    with pytest.raises(ValueError, match="no shares"):
        errors_against(shapley({}), [])
