"""Formulas of job sets, by hand-made cases whose answers are known."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wattslice.planner.jobsets import (
    FASTER,
    Faster,
    Schedule,
    faster,
    progress,
)

# Two jobs on two slices at 0.6 of the base's rate each, 100 s of work each on the base.
RATES, BASE = {"a": 0.6, "b": 6.0}, {"a": 1.0, "b": 10.0}
DIVIDED = Schedule(((("a", 100 / 0.6),), (("b", 100 / 0.6),)))
WHOLE = Schedule(((("a", 100.0), ("b", 100.0)),))


def test_the_readings_of_faster_differ_for_the_same_runs() -> None:
    found = faster("full", schedule=DIVIDED, base_schedule=WHOLE, rates=RATES, base_rates=BASE)
    assert set(Faster.model_fields) - {"base"} == set(FASTER)
    assert found.time_saved == pytest.approx(1 - 166.67 / 200, abs=1e-4)
    assert found.speedup_gain == pytest.approx(0.2)
    assert found.throughput_gain == pytest.approx(0.2)
    assert found.steady_time_saved == pytest.approx(1 - 1 / 1.2)
    assert found.mean_completion_saved == pytest.approx(1 - 166.67 / 150, abs=1e-4)
    assert found.own_rate_gain == pytest.approx(-0.4)


def test_jobs_of_a_slice_end_one_after_another() -> None:
    schedule = Schedule(((("a", 10.0),), (("b", 4.0), ("c", 2.0))))
    assert schedule.makespan_s == 10.0
    assert schedule.completions_s() == {"a": 10.0, "b": 4.0, "c": 6.0}


@given(st.dictionaries(st.sampled_from("abcd"), st.tuples(*[st.floats(0.1, 10)] * 2), min_size=1))
def test_a_steady_rate_is_fixed_work_in_proportion_to_the_rates(
    jobs: dict[str, tuple[float, float]],
) -> None:
    rates = {name: rate for name, (rate, _) in jobs.items()}
    base = {name: b for name, (_, b) in jobs.items()}
    window_s = 60.0
    whole = Schedule((tuple((name, rates[name] * window_s / base[name]) for name in jobs),))
    assert whole.makespan_s / window_s == pytest.approx(progress(rates, base))
