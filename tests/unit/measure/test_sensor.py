"""Sensor constants, update period, aliasing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from unit.measure.traces import Sensor, constant, meter, sampling_times, sawtooth
from wattslice.measure.sensor import (
    Period,
    check_aliasing,
    measured_period,
    sensor_model,
    worst_aliasing,
)


@pytest.mark.parametrize("period_s", [0.1, 0.1013, 0.104, 0.087])
def test_update_period_is_measured_on_the_spot(period_s: float) -> None:
    sensor = Sensor(constant(300.0), period_s=period_s, phase=0.3)
    times = sampling_times(100.0, 108.0, np.random.default_rng(1))
    found = measured_period(times, sensor.count(times))
    assert found is not None
    assert found.source == "measured"
    assert abs(found.value_s - period_s) <= found.error_s
    assert found.error_s < 0.01 * period_s  # enough to tell a beat


def test_update_period_from_power_where_there_is_no_counter() -> None:
    sensor = Sensor(sawtooth(100.0, 300.0, 0.37), period_s=0.1013, phase=0.3)
    times = sampling_times(100.0, 108.0, np.random.default_rng(1))
    found = measured_period(times, sensor.power(times))
    assert found is not None
    assert abs(found.value_s - 0.1013) <= found.error_s


def test_no_period_is_claimed_where_none_can_be_seen() -> None:
    times = np.arange(0, 8, 0.1)
    assert measured_period(times, Sensor(constant(300.0)).count(times)) is None  # no bursts
    bursts = sampling_times(100.0, 108.0, np.random.default_rng(1))
    assert measured_period(bursts, np.full(bursts.size, 5.0)) is None  # nothing moves
    fast = Sensor(constant(90.0), period_s=0.001)
    assert measured_period(bursts, fast.count(bursts)) is None  # faster than it is read
    assert measured_period(bursts[:2], bursts[:2]) is None


def test_description_of_the_source_overrides_the_constants() -> None:
    model = sensor_model(meter())
    assert (model.update_period_s, model.window_s) == (0.101, 0.025)
    assert model.power_limit_w == 400
    assert not model.assumed
    bare = sensor_model(meter(description={}))
    assert bare.assumed
    assert bare.seen == pytest.approx(0.25)
    assert bare.tolerance == 0.05
    assert sensor_model(meter(), power_limit_w=700.0).power_limit_w == 700
    average = sensor_model(meter(description={"power_w_meaning": "mean of 1 s"}))
    assert average.power == "average"
    assert average.seen == 1.0
    rapl = sensor_model(meter(method="rapl-counter", scope="package", description={}))
    assert rapl.tolerance is None
    assert rapl.seen == 1.0


A100 = sensor_model(meter())
PERIOD = Period(0.1, 0.0003, "measured")


@pytest.mark.parametrize(
    ("step_s", "locked"),
    [
        (0.1, True),
        (0.2, True),
        (0.3001, True),
        (0.05, True),  # two steps in a period
        (0.1 / 3, True),
        (0.137, False),
        (0.25, False),
        (0.02, False),  # shorter than what one reading is the mean of
        (2.0, False),  # 20 places of each step are seen
    ],
)
def test_steps_near_a_multiple_of_the_period_are_locked(step_s: float, locked: bool) -> None:
    alias = check_aliasing(step_s, 60.0, A100, PERIOD)
    assert (alias is not None and alias.locked) == locked


def test_a_longer_window_cures_a_slow_beat_and_is_suggested() -> None:
    alias = check_aliasing(0.2015, 8.0, A100, PERIOD)
    assert alias is not None
    assert alias.locked
    assert alias.suggestion is not None
    assert "lengthen the window to" in alias.suggestion
    seconds = float(alias.suggestion.split("lengthen the window to ")[1].split()[0])
    cured = check_aliasing(0.2015, seconds, A100, PERIOD)
    assert cured is not None
    assert not cured.locked
    exact = check_aliasing(0.2, 8.0, A100, PERIOD)
    assert exact is not None
    assert "no longer window helps" in (exact.suggestion or "")
    assert "jitter" in (exact.suggestion or "")


def test_a_sensor_that_sees_all_cannot_be_locked() -> None:
    whole = replace(A100, window_s=0.1)
    assert check_aliasing(0.1, 60.0, whole, PERIOD) is None


def test_the_worst_of_several_workers_counts() -> None:
    alias = worst_aliasing((0.137, 0.1), 60.0, A100, PERIOD)
    assert alias is not None
    assert alias.step_s == 0.1
    assert worst_aliasing((), 60.0, A100, PERIOD) is None
