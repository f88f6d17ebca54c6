"""Formulas of job sets, by hand-made cases whose answers are known."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wattslice.planner.jobsets import (
    FASTER,
    Faster,
    Schedule,
    energy_j,
    faster,
    implied_power_ratio,
    progress,
    sequential,
    steady_energy_ratio,
)

# Two jobs on two slices at 0.6 of the base's rate each, 100 s of work each on the base.
RATES, BASE = {"a": 0.6, "b": 6.0}, {"a": 1.0, "b": 10.0}
DIVIDED = Schedule(((("a", 100 / 0.6),), (("b", 100 / 0.6),)))
WHOLE = sequential({"a": 100.0, "b": 100.0})


def test_the_readings_of_faster_differ_for_the_same_runs() -> None:
    found = faster("full", schedule=DIVIDED, base_schedule=WHOLE, rates=RATES, base_rates=BASE)
    assert set(Faster.model_fields) - {"base"} == set(FASTER)
    assert found.time_saved == pytest.approx(1 - 166.67 / 200, abs=1e-4)
    assert found.speedup_gain == pytest.approx(0.2)
    assert found.throughput_gain == pytest.approx(0.2)
    assert found.steady_time_saved == pytest.approx(1 - 1 / 1.2)
    assert found.mean_completion_saved == pytest.approx(1 - 166.67 / 150, abs=1e-4)
    assert found.own_rate_gain == pytest.approx(-0.4)


def test_a_base_that_runs_all_at_once_is_compared_job_by_job() -> None:
    found = faster("time slicing", rates=RATES, base_rates={"a": 0.5, "b": 5}, base_together=True)
    assert found.throughput_gain == pytest.approx(0.2)
    assert found.time_saved is None


def test_energy_counts_idle_slices_until_the_last_job_ends() -> None:
    schedule = Schedule(((("a", 10.0),), (("b", 4.0), ("c", 2.0))))
    assert schedule.makespan_s == 10.0
    assert schedule.completions_s() == {"a": 10.0, "b": 4.0, "c": 6.0}
    assert energy_j(schedule, {"a": 1.0, "b": 2.0, "c": 3.0}, idle_w=5.0) == 50 + 10 + 8 + 6
    assert energy_j(sequential({"a": 10.0}), {"a": 0.0}, 5.0, until_s=12.0) == 60.0


@given(
    st.dictionaries(
        st.sampled_from("abcd"),
        st.tuples(*[st.floats(0.1, 10)] * 2, st.floats(50, 300)),
        min_size=1,
    ),
    st.floats(50, 400),
)
def test_a_steady_rate_is_fixed_work_in_proportion_to_the_rates(
    jobs: dict[str, tuple[float, float, float]], power_w: float
) -> None:
    rates = {name: rate for name, (rate, _, _) in jobs.items()}
    base = {name: b for name, (_, b, _) in jobs.items()}
    base_w = {name: w for name, (_, _, w) in jobs.items()}
    window_s = 60.0
    work = {name: rate * window_s for name, rate in rates.items()}
    whole = sequential({name: work[name] / base[name] for name in jobs})
    assert whole.makespan_s / window_s == pytest.approx(progress(rates, base))
    # Idle power is inside the base's mean power here, so it is not counted again.
    base_j = energy_j(whole, base_w, idle_w=0.0)
    ratio = steady_energy_ratio(power_w, rates, base, base_w)
    assert power_w * window_s / base_j == pytest.approx(ratio)


def test_the_two_readings_of_55_percent_faster_imply_different_powers() -> None:
    assert implied_power_ratio(0.42, time_saved=0.55, gain=0) == pytest.approx(1.29, abs=0.005)
    assert implied_power_ratio(0.42, time_saved=None, gain=0.55) == pytest.approx(0.90, abs=0.005)
    assert implied_power_ratio(0.33, time_saved=None, gain=0.09) == pytest.approx(0.73, abs=0.005)
