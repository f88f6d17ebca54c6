"""Does the stated uncertainty cover the true error? With the A100's sensor, offline."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

import numpy as np
import pytest

from unit.measure.traces import (
    Energy,
    Sensor,
    meter,
    read,
    sampling_times,
    sawtooth,
    square,
    step,
)
from wattslice.measure.energy import energy

WINDOWS = 200
A, B = 100.0, 108.0
Case = tuple[Energy, tuple[float, ...]]  # signal, step times that the run knows


def _step(rng: np.random.Generator) -> Case:
    before_w, after_w = rng.uniform(60, 380, 2)
    return step(before_w, after_w, rng.uniform(A, B)), ()


def _sawtooth(rng: np.random.Generator) -> Case:
    period_s = rng.uniform(0.3, 3.0)
    return sawtooth(100.0, 300.0, period_s, rng.uniform()), (period_s,)


def _ten_hertz(rng: np.random.Generator) -> Case:
    return square(100.0, 300.0, 0.1, rng.uniform()), (0.1,)


def _training_steps(rng: np.random.Generator) -> Case:
    period_s = rng.uniform(0.03, 1.5)
    return square(100.0, 300.0, period_s, rng.uniform()), (period_s,)


# What nobody knows is put to the test three ways: a counter of true power, a counter that adds up
# what the sensor sees, and no counter.
@pytest.mark.parametrize("counter", ["exact", "sensor", None])
@pytest.mark.parametrize("signal", [_step, _sawtooth, _ten_hertz, _training_steps])
def test_uncertainty_covers_the_error_in_95_of_100_windows(
    signal: Callable[[np.random.Generator], Case],
    counter: Literal["exact", "sensor"] | None,
    capsys: pytest.CaptureFixture[str],
) -> None:
    rng = np.random.default_rng([ord(c) for c in f"{signal.__name__}{counter}"])
    covered, covered_apart, errors, stated = 0, 0, [], []
    for index in range(WINDOWS):
        truth, steps_s = signal(rng)
        true_j = float(truth(np.array(B)) - truth(np.array(A)))
        # Cards differ in their period, and each has its own constant error.
        period_s = 0.1 if index % 2 else rng.uniform(0.1, 0.104)
        phase, times = rng.uniform(), sampling_times(A, B, rng)
        gain = rng.uniform(0.95, 1.05)
        sensor = Sensor(truth, period_s, phase=phase, gain=gain, counter=counter)
        result = energy(read(sensor, times), A, B, meter(), step_s=steps_s)
        assert result.gross_j is not None
        assert result.uncertainty_j is not None
        errors.append((result.gross_j - true_j) / true_j)
        stated.append(result.uncertainty_j / true_j)
        covered += abs(result.gross_j - true_j) <= result.uncertainty_j
        # The same without the card's constant error, which would hide the rest.
        parts = {k: v for k, v in result.uncertainty_parts_j.items() if k != "sensor"}
        apart = math.sqrt(math.fsum(part**2 for part in parts.values()))
        covered_apart += abs(result.gross_j / gain - true_j) <= apart
    with capsys.disabled():
        print(
            f"\n{signal.__name__[1:]:15} counter {counter!s:7} error max "
            f"{np.abs(errors).max():6.2%}, stated ± median {np.median(stated):6.2%}; "
            f"covered {covered / WINDOWS:.1%}, without the card's own error "
            f"{covered_apart / WINDOWS:.1%}",
            end="",
        )
    assert covered / WINDOWS >= 0.95
    assert covered_apart / WINDOWS >= 0.95


@pytest.mark.parametrize("lead_s", [2.0, 0.001])
@pytest.mark.parametrize("shape", [square, sawtooth])
def test_a_windows_ends_leave_little_error_wherever_they_lie(
    shape: Callable[[float, float, float, float], Energy], lead_s: float
) -> None:
    """The counter adds up true power here, so all that is wrong comes from the two ends."""
    rng = np.random.default_rng(11)
    errors = []
    for _ in range(100):
        end_s = A + rng.uniform(6.0, 10.0)
        truth = shape(100.0, 380.0, rng.uniform(0.15, 3.0), rng.uniform())
        true_j = float(truth(np.array(end_s)) - truth(np.array(A)))
        samples = read(
            Sensor(truth, phase=rng.uniform()), sampling_times(A, end_s, rng, lead_s=lead_s)
        )
        found = energy(samples, A, end_s, meter()).counter_j
        assert found is not None
        errors.append(abs(found - true_j) / true_j)
    # A difference of two readings is 0.4 % off in the middle, and up to 2 %.
    assert np.median(errors) <= 2e-4
    assert max(errors) <= 5e-3


def test_steps_in_beat_with_the_sensor_are_flagged_and_no_others() -> None:
    """40 % of a 0.1 s step at high power: the sensor sees one place of it for ever."""
    times = sampling_times(A, B, np.random.default_rng(3))
    locked = energy(
        read(Sensor(square(100.0, 300.0, 0.1), counter=None), times), A, B, meter(), step_s=(0.1,)
    )
    assert "aliasing" in locked.flags
    assert "jitter the steps" in locked.notes[0]
    assert locked.uncertainty_j is not None
    assert locked.uncertainty_j > 0.5 * 8 * 200  # half of the time may have been 300 or 100 W
    free = energy(
        read(Sensor(square(100.0, 300.0, 0.13), counter=None), times),
        A,
        B,
        meter(),
        step_s=(0.13,),
    )
    assert "aliasing" not in free.flags
    assert free.gross_j == pytest.approx(1600, rel=0.02)
    unknown = energy(read(Sensor(square(100.0, 300.0, 0.13)), times), A, B, meter())
    assert "aliasing-unchecked" in unknown.flags
