"""The sampler: reads a board's sensors at absolute deadlines, in threads of its own.

It opens the source itself (NVML handles do not survive a fork, and a driver that hangs must hang
here and not in the caller), never turns a failed reading into a number, and counts what went
wrong. All times are CLOCK_MONOTONIC seconds.

One thread reads at the deadlines and does nothing else: it wakes up ten times a second, for hours,
and its cost is the meter's. Another one answers requests for a sample at a moment, and reads the
sensors in a short *burst* at the start and at every mark. The energy counter of a GPU moves in
ticks of about 100 ms, so a window of 8 s that is cut at arbitrary points of a tick is wrong by up
to 1.2 %. A burst that catches one tick with a resolution of some milliseconds makes that less
than 0.1 % (see `wattslice.measure.counter`).
"""

from __future__ import annotations

import contextlib
import math
import statistics
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, fields
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

from wattslice.boards.base import BoardLostError, PowerSource, Reading, Sample
from wattslice.measure.background import Background

if TYPE_CHECKING:
    from wattslice.records.run import MeterRecord

SAMPLE_FIELDS: tuple[str, ...] = tuple(field.name for field in fields(Sample))

# Resolution of a burst, s. It bounds the error of a tick's time, and so of the energy at a window
# end: 2 ms of 8 s are 0.025 %, and half of that on either side of the tick's middle.
_BURST_SPACING_S = 0.002
# Readings in a burst are spaced at least this many times the duration of one reading, so that
# the driver's lock is free most of the time (a poller that held it slowed its host program down:
# flightlessmango/MangoHud PR 2104).
_BURST_CALL_SHARE = 4.0
# A burst waits this long for a tick: the slowest update period of the sensors known is
# 100-104 ms (arXiv 2312.02741, table of update periods), with a margin.
_BURST_TICK_S = 0.16
# Ticks to catch in the first burst: two give the update period, the third confirms it.
_FIRST_TICKS = 3
# One more burst this long after the start. Three ticks in a row give the period to 2.5 %; a tick
# 12 periods later gives it to 0.4 %, which tells whether the steps beat with the sensor. Much
# later, the number of periods in between would not be certain.
_RECHECK_S = 1.2
# How long a source may yield nothing before start() says so.
_GRACE_S = 1.0
_JOIN_S = 5.0
# So that a meter that reads every 10 s can be stopped sooner than that.
_LONGEST_SLEEP_S = 0.5


@dataclass(slots=True)
class _Request:
    """A sample that somebody waits for; the sampler answers it."""

    label: str | None
    done: threading.Event
    sample: Sample | None = None


_STOP = _Request(None, threading.Event())


class Meter(Background):
    """Samples a board's sensors in the background, `rate_hz` times a second.

    With `source=None` (a board without sensors) everything works and no sample is ever had;
    `no_source_reason` says why, and ends up in the record.

        with Meter(board.power_source(), 10) as meter:
            start_s = meter.mark("start")
            ...
            end_s = meter.mark("end")
        meter.samples(), meter.record()
    """

    def __init__(
        self,
        source: PowerSource | None,
        rate_hz: float,
        *,
        no_source_reason: str = "the board has no readable power sensor",
    ) -> None:
        if not rate_hz > 0:
            raise ValueError(f"the sampling rate must be above 0 Hz, not {rate_hz}")
        self._source = source
        self._rate_hz = rate_hz
        self._no_source_reason = no_source_reason
        self._readings: list[Reading] = []
        self._marks: dict[str, float] = {}
        self._requests: SimpleQueue[_Request] = SimpleQueue()
        self._driver = threading.Lock()  # one reading at a time: sources keep state
        self._ready = threading.Event()
        self._thread: threading.Thread | None = None
        self._reason: str | None = None
        self._lost = False  # a reading said that the board is gone
        self._missed = 0
        self._cpu_s: float | None = None
        self._regular_cpu_s = 0.0
        self._start_s: float | None = None
        self._end_s: float | None = None
        self._description: dict[str, object] = {}
        self._scope: Any = None
        self._method: str | None = None
        self._stopping = False
        self._ticks_owed = _FIRST_TICKS

    # -- for the caller -----------------------------------------------------------------------

    def start(self, timeout_s: float = 15.0) -> str | None:
        """Start sampling; return None once a reading was had, else the reason why there is none.

        A source that opens but yields nothing within 1 s is reported too, and goes on being
        sampled: some drivers refuse the first readings. Raises RuntimeError on a second call.
        """
        if self._thread is not None:
            raise RuntimeError("a meter is started once; make a new one for the next measurement")
        if self._source is None:
            self._reason = self._no_source_reason
            return self._reason
        self._thread = threading.Thread(target=self._run, name="wattslice-meter", daemon=True)
        self._thread.start()
        if not self._ready.wait(timeout_s):
            return f"the sensor did not answer within {timeout_s:g} s"
        return self.reason

    def stop(self, timeout_s: float = _JOIN_S) -> None:
        """Take a last sample and end; returns within `timeout_s` even if the driver hangs."""
        if self._thread is None or self._stopping:
            return
        self._stopping = True
        self._requests.put(_STOP)
        self._thread.join(timeout_s)
        if self._thread.is_alive() and self._reason is None:
            # A daemon thread: it cannot keep the process alive, and its samples so far are kept.
            self._reason = f"the sensor hung: the sampler did not end within {timeout_s:g} s"

    def mark(self, label: str, timeout_s: float = 1.0) -> float:
        """Have the sampler take a sample now, under a label; return the time of that sample.

        Call it at the ends of a window. It returns as soon as the sample is taken (typically
        under 1 ms), and the burst that follows runs in the background. Where there is no sample
        to be had, the present time is returned.
        """
        sample = self._request(label, timeout_s)
        moment = time.monotonic() if sample is None else sample.t_s
        self._marks[label] = moment
        return moment

    def sample_now(self, timeout_s: float = 1.0) -> Sample | None:
        """A fresh sample (also kept), or None where none is to be had within `timeout_s`."""
        return self._request(None, timeout_s)

    @property
    def readable(self) -> bool:
        """Whether there are sensors to read at all."""
        return self._source is not None

    @property
    def running(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    @property
    def reason(self) -> str | None:
        """Why there are no samples, or why they ended early; None if all is well."""
        if self._reason is not None:
            return self._reason
        last = self.latest()
        if last is None:
            return "not started" if self._thread is None else "no sample yet"
        if any(_has_value(reading.sample()) for reading in list(self._readings)):
            return None
        return f"no power or energy reading: {last.error or 'no value'}"

    @property
    def marks(self) -> dict[str, float]:
        """Label to time of the marks so far."""
        return dict(self._marks)

    def latest(self) -> Sample | None:
        """The newest sample, without asking the sensors."""
        return self._readings[-1].sample() if self._readings else None

    def latest_temperature(self) -> tuple[float, float] | None:
        """(time in s, °C) of the newest sample that has one: slow sensors are read more rarely."""
        for reading in reversed(self._readings):
            sample = reading.sample()
            if sample.temperature_c is not None:
                return sample.t_s, sample.temperature_c
        return None

    def samples(self) -> dict[str, list[Any]]:
        """The samples so far as columns, named as the fields of `Sample`; None is "not had"."""
        samples = self._all_samples()
        return {name: [getattr(sample, name) for sample in samples] for name in SAMPLE_FIELDS}

    def record(self) -> MeterRecord:
        """How was measured, for run.json."""
        from wattslice.records.run import MeterRecord

        samples = self._all_samples()
        calls = [sample.call_s for sample in samples]
        return MeterRecord(
            scope=self._scope,
            method=self._method,
            description=dict(self._description),
            rate_hz=self._rate_hz,
            samples=len(calls),
            errors=sum(sample.error is not None for sample in samples) + self._lost,
            missed=self._missed,
            call_median_s=statistics.median(calls) if calls else None,
            call_max_s=max(calls) if calls else None,
            cpu_s=self._cpu_s,
            start_s=self._start_s,
            end_s=self._end_s,
            reason=self.reason,
        )

    def _all_samples(self) -> list[Sample]:
        return [reading.sample() for reading in list(self._readings)]

    def _request(self, label: str | None, timeout_s: float) -> Sample | None:
        if not self.running or self._stopping:
            return None
        request = _Request(label, threading.Event())
        self._requests.put(request)
        request.done.wait(timeout_s)
        return request.sample

    # -- in the thread that answers requests --------------------------------------------------

    def _run(self) -> None:
        source = self._source
        assert source is not None
        try:
            with self._ending_with_a_reason(), self._opened(source):
                self._answer_until_stopped(source)
        finally:
            self._cpu_s = time.thread_time() + self._regular_cpu_s
            self._ready.set()
            self._answer_the_rest()

    @contextlib.contextmanager
    def _ending_with_a_reason(self) -> Iterator[None]:
        """Let no error out of a thread: its words must reach the record, whatever it is."""
        try:
            yield
        except BoardLostError as error:
            self._end(f"the board was lost: {error}")
        except Exception as error:
            self._end(f"{type(error).__name__}: {error}")

    def _end(self, reason: str) -> None:
        """Have both threads end; the first reason is the one that counts."""
        self._reason = self._reason or reason
        self._stopping = True
        self._requests.put(_STOP)

    @contextlib.contextmanager
    def _opened(self, source: PowerSource) -> Iterator[None]:
        source.open()
        try:
            self._scope, self._method = source.scope, source.method
            self._description = dict(source.describe())
            yield
        finally:
            # A driver that is gone may refuse to be closed; the samples are what matters.
            with contextlib.suppress(Exception):
                source.close()

    def _answer_until_stopped(self, source: PowerSource) -> None:
        first = self._read(source).sample()
        self._start_s = first.t_s
        regular = threading.Thread(
            target=self._sample_regularly,
            args=(source, first.t_s),
            name="wattslice-meter-regular",
            daemon=True,
        )
        regular.start()
        try:
            self._answer(source, first)
        finally:
            self._stopping = True
            regular.join()

    def _answer(self, source: PowerSource, first: Sample) -> None:
        recheck_s = first.t_s + _RECHECK_S
        request = self._burst(source) if self._see_whether_ready(first) else None
        while True:
            if request is None:
                request = self._next_request(recheck_s)
            if request is None:
                recheck_s = math.inf
                request = self._burst(source)
                continue
            sample = self._read(source).sample()
            if request is _STOP:
                self._end_s = sample.t_s
                # So that the last window has readings on both sides of its end.
                self._burst(source)
                return
            request.sample = sample
            request.done.set()
            request = self._burst(source) if request.label is not None else None

    def _next_request(self, until_s: float) -> _Request | None:
        """The next request, or None if none has come by then."""
        timeout_s = None if math.isinf(until_s) else max(0.0, until_s - time.monotonic())
        with contextlib.suppress(Empty):
            return self._requests.get(timeout=timeout_s)
        return None

    def _burst(self, source: PowerSource) -> _Request | None:
        """Read closely until the counter has moved; None, or the request that ended it early.

        The first burst waits for several ticks, to learn their period. What it is still owed when
        a request cuts it short is left to the next one.
        """
        last = self._readings[-1].sample()
        spacing_s = max(_BURST_SPACING_S, _BURST_CALL_SHARE * last.call_s)
        if last.energy_j is None:
            # No tick to catch: a few readings, so that a lagging sensor covers the window's end.
            spacing_s, ticks = max(spacing_s, _BURST_TICK_S / 4), 1
        else:
            ticks = max(1, self._ticks_owed)
        end_s = time.monotonic() + ticks * _BURST_TICK_S
        due_s = last.t_s
        while ticks > 0:
            due_s = max(due_s + spacing_s, time.monotonic())
            if due_s > end_s:
                break
            request = self._next_request(due_s)
            if request is not None:
                return request
            previous, last = last, self._read(source).sample()
            known = previous.energy_j is not None and last.energy_j is not None
            if known and previous.energy_j != last.energy_j:
                ticks -= 1
                self._ticks_owed -= 1
        return None

    def _answer_the_rest(self) -> None:
        """Nobody may wait for a sampler that has ended."""
        with contextlib.suppress(Empty):
            while True:
                self._requests.get_nowait().done.set()

    # -- in the thread that samples regularly -------------------------------------------------

    def _sample_regularly(self, source: PowerSource, origin_s: float) -> None:
        """Sample at `origin_s` + k periods; a deadline that has passed is not made up for.

        This is where a measurement spends its time: nothing here is done that need not be. To
        sleep costs less than to wait for a lock with a time-out.
        """
        monotonic, sleep, read = time.monotonic, time.sleep, self._read
        period_s = 1.0 / self._rate_hz
        due_s = origin_s + period_s
        ready = self._ready.is_set()
        with self._ending_with_a_reason():
            while not self._stopping:
                now_s = monotonic()
                if now_s < due_s:
                    sleep(min(due_s - now_s, _LONGEST_SLEEP_S))
                    continue
                reading = read(source)
                if not ready:
                    ready = self._see_whether_ready(reading.sample())
                due_s += period_s
                if now_s >= due_s:
                    late = int((now_s - due_s) / period_s) + 1
                    self._missed += late
                    due_s += late * period_s
        self._regular_cpu_s = time.thread_time()

    # -- in either ----------------------------------------------------------------------------

    def _read(self, source: PowerSource) -> Reading:
        try:
            with self._driver:
                reading = source.read()
        except BoardLostError:
            self._lost = True
            raise
        except Exception as error:  # one failed call must not end a measurement
            now = time.monotonic()
            reading = Sample(t_s=now, call_s=0.0, error=f"{type(error).__name__}: {error}")
        self._readings.append(reading)
        return reading

    def _see_whether_ready(self, sample: Sample) -> bool:
        """Let start() return once a value was had, or after some time without one."""
        assert self._start_s is not None
        if _has_value(sample) or sample.t_s > self._start_s + _GRACE_S:
            self._ready.set()
        return self._ready.is_set()


def _has_value(sample: Sample) -> bool:
    """Whether power or energy was had."""
    return any(v is not None for v in (sample.power_w, sample.power_average_w, sample.energy_j))
