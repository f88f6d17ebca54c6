"""The sampler's behaviour in time, with sources that fail in all ways."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from itertools import pairwise

import pytest

from wattslice.boards.base import BoardLostError, Sample
from wattslice.measure.energy import energy
from wattslice.measure.meter import SAMPLE_FIELDS, Meter


class Source:
    """A board at 300 W whose counter ticks every 100 ms."""

    scope = "board"
    method = "nvml-counter"

    def __init__(self) -> None:
        self.opened_in: str | None = None
        self.closed_in: str | None = None
        self.reads = 0

    def describe(self) -> Mapping[str, object]:
        return {"update_period_s": 0.1, "sensor_window_s": 0.025}

    def open(self) -> None:
        self.opened_in = threading.current_thread().name

    def close(self) -> None:
        self.closed_in = threading.current_thread().name

    def read(self) -> Sample:
        self.reads += 1
        now = time.monotonic()
        return Sample(now, 1e-5, power_w=300.0, energy_j=300.0 * (now // 0.1) * 0.1)


class Failing(Source):
    """Fails with `error` on readings `first` to `last` (counted from 1)."""

    def __init__(self, error: Exception, first: int = 1, last: int = 10**9) -> None:
        super().__init__()
        self.error, self.first, self.last = error, first, last

    def read(self) -> Sample:
        sample = super().read()
        if self.first <= self.reads <= self.last:
            raise self.error
        return sample


def test_source_is_opened_and_closed_in_the_samplers_thread() -> None:
    source = Source()
    with Meter(source, 10) as meter:
        assert source.opened_in == "wattslice-meter"
    assert source.closed_in == "wattslice-meter"
    assert not meter.running


def test_start_returns_after_the_first_good_sample() -> None:
    meter = Meter(Source(), 1)
    assert meter.start() is None
    assert meter.latest() is not None
    meter.stop()


def test_samples_lie_on_absolute_deadlines_and_not_in_pairs() -> None:
    with Meter(Source(), 50) as meter:
        time.sleep(1.5)
    times = meter.samples()["t_s"]
    origin = meter.record().start_s
    # Between the burst of the start and the one 1.2 s later.
    regular = [t for t in times if origin + 0.55 < t < origin + 1.15]
    assert 25 <= len(regular) <= 33
    late = [((t - origin) * 50) % 1.0 / 50 for t in regular]
    assert sorted(late)[len(late) // 2] < 0.004  # the deadlines do not drift away
    gaps = sorted(b - a for a, b in pairwise(regular))
    assert gaps[1] > 0.005  # no pairs of samples


def test_marks_are_samples_at_the_moment_asked_for_and_bursts_catch_a_tick() -> None:
    with Meter(Source(), 2) as meter:
        time.sleep(0.6)
        before = time.monotonic()
        moment = meter.mark("start")
        assert before <= moment <= time.monotonic() < before + 0.2
        time.sleep(0.4)
    samples = meter.samples()
    after = [t for t in samples["t_s"] if moment <= t <= moment + 0.2]
    assert len(after) >= 2
    ticks = [
        b - a
        for (a, e), (b, f) in pairwise(zip(samples["t_s"], samples["energy_j"], strict=True))
        if moment <= a <= moment + 0.2 and e != f
    ]
    assert min(ticks) < 0.03
    assert meter.marks == {"start": moment}


def test_a_stop_right_after_a_mark_still_catches_the_tick_behind_it() -> None:
    with Meter(Source(), 20) as meter:
        time.sleep(0.6)
        end = meter.mark("end")
    samples = meter.samples()
    after = [(t, e) for t, e in zip(samples["t_s"], samples["energy_j"], strict=True) if t >= end]
    ticks = [b - a for (a, e), (b, f) in pairwise(after) if e != f]
    assert len(ticks) == 1
    assert ticks[0] < 0.03


def test_a_stalled_source_misses_deadlines_and_does_not_make_up_for_them() -> None:
    class Slow(Source):
        stall = False

        def read(self) -> Sample:
            if self.stall:
                self.stall = False
                time.sleep(0.5)
            return super().read()

    source = Slow()
    with Meter(source, 50) as meter:
        time.sleep(0.6)
        source.stall = True
        time.sleep(0.6)
    record = meter.record()
    assert 20 <= record.missed <= 27
    assert record.call_max_s is not None


def test_single_errors_are_counted_and_never_become_zero() -> None:
    with Meter(Failing(OSError("busy"), first=5, last=9), 50) as meter:
        time.sleep(0.4)
    samples, record = meter.samples(), meter.record()
    assert record.errors == 5
    assert record.reason is None
    assert samples["power_w"].count(None) == 5
    assert 0.0 not in samples["power_w"]
    assert {error for error in samples["error"] if error} == {"OSError: busy"}


def test_a_lost_board_ends_the_sampling_with_the_reason() -> None:
    meter = Meter(Failing(BoardLostError("fell off the bus"), first=8), 100)
    meter.start()
    time.sleep(0.4)
    assert not meter.running
    started = time.monotonic()
    meter.mark("end")  # nobody answers any more, and nobody waits
    meter.stop()
    assert time.monotonic() - started < 0.2
    assert meter.record().reason == "the board was lost: fell off the bus"
    assert meter.record().samples == 7


def test_a_source_that_cannot_be_opened_gives_its_reason_at_once() -> None:
    class Closed(Source):
        def open(self) -> None:
            raise PermissionError("NVML: no permission")

    meter = Meter(Closed(), 10)
    assert meter.start() == "PermissionError: NVML: no permission"
    meter.stop()
    assert meter.record().samples == 0
    result = energy(meter.samples(), 0.0, 8.0, meter.record())
    assert result.gross_j is None
    assert result.reason == "PermissionError: NVML: no permission"


def test_a_source_without_readings_says_so_within_a_second_or_so() -> None:
    started = time.monotonic()
    meter = Meter(Failing(OSError("NotSupported (3)")), 20)
    reason = meter.start()
    assert time.monotonic() - started < 2.0
    assert reason == "no power or energy reading: OSError: NotSupported (3)"
    assert meter.running  # a driver may come to its senses
    meter.stop()


def test_a_driver_that_hangs_does_not_hang_its_user() -> None:
    class Hanging(Source):
        release = threading.Event()

        def read(self) -> Sample:
            if self.reads >= 3:
                self.release.wait(20)
            return super().read()

    source = Hanging()
    meter = Meter(source, 50)
    meter.start()
    time.sleep(0.1)
    started = time.monotonic()
    assert meter.sample_now(timeout_s=0.1) is None
    meter.stop(timeout_s=0.2)
    assert time.monotonic() - started < 1.0
    assert "hung" in (meter.record().reason or "")
    source.release.set()


def test_a_board_without_sensors_has_the_boards_own_reason() -> None:
    meter = Meter(None, 10, no_source_reason="no RAPL package domain")
    assert meter.start() == "no RAPL package domain"
    meter.mark("start")
    meter.stop()
    assert meter.record().reason == "no RAPL package domain"
    assert meter.samples() == {name: [] for name in SAMPLE_FIELDS}


def test_a_meter_is_started_once() -> None:
    with Meter(Source(), 10) as meter, pytest.raises(RuntimeError, match="once"):
        meter.start()
    with pytest.raises(ValueError, match="above 0"):
        Meter(Source(), 0)


def test_the_meter_states_its_own_cost() -> None:
    with Meter(Source(), 10) as meter:
        time.sleep(0.5)
        assert meter.record().cpu_s is None  # known once the thread has ended
    record = meter.record()
    assert record.cpu_s is not None
    assert 0 < record.cpu_s < 0.2
    assert record.call_median_s == 1e-5
