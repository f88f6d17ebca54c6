"""Warm-up and cool-down."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import asdict
from itertools import count

import pytest

from wattslice.config.models import CooldownConfig, WarmupConfig
from wattslice.measure.steady import WarmupDetector, cool_down
from wattslice.records.run import Warmup


def _config(**changes: float) -> WarmupConfig:
    return WarmupConfig(**{"min_steps": 5, "cv_steps": 10, "cv_max": 0.02, "max_s": 60.0} | changes)


def test_steady_once_the_last_steps_are_alike() -> None:
    detector = WarmupDetector(_config())
    durations = [3.0, 1.0, 0.5] + [0.1] * 30
    steps = next(i for i, d in enumerate(durations, 1) if detector.add_step(d))
    assert steps == 13  # ten like steps after the three slow ones
    assert detector.steady
    assert not detector.capped
    assert Warmup(**asdict(detector.summary())).steps == 13


def test_restless_steps_end_at_the_cap_and_are_not_called_steady() -> None:
    detector = WarmupDetector(_config(max_s=5.0))
    steps = next(i for i in count(1) if detector.add_step(0.1 if i % 2 else 0.2))
    assert steps == pytest.approx(33, abs=1)
    assert detector.capped
    assert not detector.steady
    assert detector.summary().step_time_cv == pytest.approx(0.35, abs=0.02)


def test_the_least_number_of_steps_is_kept() -> None:
    detector = WarmupDetector(_config(min_steps=25))
    assert next(i for i in count(1) if detector.add_step(0.1)) == 25


def test_a_board_that_still_warms_up_is_not_steady() -> None:
    detector = WarmupDetector(_config(max_s=1000.0))
    done_s = None
    for second in range(200):
        warm = 40 + 20 * (1 - 0.95**second)
        detector.add_temperature(float(second), warm)
        if detector.add_step(1.0):
            done_s = second
            break
    assert done_s is not None
    assert 20 * 0.95 ** (done_s - 30) - 20 * 0.95**done_s < 2.0  # drift over the last 30 s
    assert done_s > 60


def test_a_whole_degree_sensor_that_flickers_is_steady() -> None:
    detector = WarmupDetector(_config())
    for second in range(60):
        detector.add_temperature(float(second), 54.0 + second % 2)
        detector.add_temperature(float(second), None)
        if detector.add_step(1.0):
            break
    assert detector.steady
    assert second >= 30


def test_cool_down_ends_by_slope_by_cap_or_at_once() -> None:
    clock = [0.0]

    def sleep(seconds: float) -> None:
        clock[0] += seconds

    def run(config: CooldownConfig, temperature):  # type: ignore[no-untyped-def]
        clock[0] = 0.0
        return cool_down(lambda: temperature(clock[0]), config, clock=lambda: clock[0], sleep=sleep)

    config = CooldownConfig(slope_c_per_min=2.0, max_s=300.0)
    by_slope = run(config, lambda t: 40 + 30 * 0.97**t)
    assert not by_slope.capped
    assert 60 < by_slope.duration_s < 200
    capped = run(CooldownConfig(max_s=20.0), lambda t: 80 - t)
    assert capped.capped
    assert capped.duration_s == pytest.approx(20.0)
    assert run(config, lambda t: None).reason == "no temperature reading"
    assert run(CooldownConfig(max_s=0), lambda t: 50).reason == "switched off"
    # A board that is cold already does not wait longer than the slope takes to be seen.
    assert run(config, lambda t: 35.0).duration_s <= 16


def test_a_step_costs_little_and_the_module_loads_nothing_heavy() -> None:
    detector = WarmupDetector(_config(cv_steps=20, cv_max=1e-9, max_s=1e9))
    for index in range(100):
        detector.add_step(0.1 + index % 7)
    started = time.process_time()
    for index in range(2000):
        detector.add_step(0.1 + index % 7)
    assert (time.process_time() - started) / 2000 < 2e-4
    code = (
        "import sys, wattslice.measure.steady; "
        "print({'numpy', 'pydantic', 'torch', 'pyarrow'} & set(sys.modules))"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    out = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env=environment,
    )
    assert out.stdout.strip() == "set()"
