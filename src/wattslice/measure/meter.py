"""The sampler: one thread that reads a board's sensors at absolute deadlines.

The thread opens the source itself (NVML handles do not survive a fork, and a driver that hangs
must hang here and not in the caller), never turns a failed reading into a number, and counts what
went wrong. All times are CLOCK_MONOTONIC seconds.

Besides the regular samples the thread reads the sensors in a short *burst* when it starts and at
every mark. The energy counter of a GPU moves in ticks of about 100 ms, so a window of 8 s that is
cut at arbitrary points of a tick is wrong by up to 1.2 %. A burst that catches one tick with a
resolution of some milliseconds makes that 0.1 % (see `wattslice.measure.energy`).
"""

from __future__ import annotations

import contextlib
import math
import statistics
import threading
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, fields
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from wattslice.boards.base import BoardLostError, PowerSource, Sample

if TYPE_CHECKING:
    from wattslice.records.run import MeterRecord

SAMPLE_FIELDS: tuple[str, ...] = tuple(field.name for field in fields(Sample))

# Resolution of a burst, s. It bounds the error of a tick's time, and so of the energy at a window
# end: 5 ms of 8 s are 0.06 %.
_BURST_SPACING_S = 0.005
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


@dataclass(slots=True)
class _Request:
    """A sample that somebody waits for; the sampler answers it."""

    label: str | None
    done: threading.Event
    sample: Sample | None = None


_STOP = _Request(None, threading.Event())


class _Requests:
    """Requests to the sampler, which waits for them and for its next deadline at the same time.

    A lock with a time-out is the cheapest such wait; a queue's costs an exception per sample.
    """

    def __init__(self) -> None:
        self._waiting: deque[_Request] = deque()
        self._wake = threading.Lock()
        self._wake.acquire()

    def put(self, request: _Request) -> None:
        self._waiting.append(request)
        with contextlib.suppress(RuntimeError):  # it is awake already
            self._wake.release()

    def take(self) -> _Request | None:
        return self._waiting.popleft() if self._waiting else None

    def wait(self, timeout_s: float) -> _Request | None:
        """The next request, or None once `timeout_s` has passed. For the sampler only."""
        while not self._waiting:
            # The lock may be open still from a request that was taken without waiting.
            if timeout_s <= 0 or not self._wake.acquire(timeout=timeout_s):
                return None
        return self.take()


class _Deadlines:
    """Moments `origin + k x period`: absolute, so that delays do not add up."""

    def __init__(self, origin_s: float, period_s: float) -> None:
        self._origin_s = origin_s
        self.period_s = period_s
        self.due_s = origin_s + period_s

    def forgo(self, now_s: float) -> None:
        """Drop the deadlines up to now without counting them as missed."""
        index = int((now_s - self._origin_s) / self.period_s) + 1
        self.due_s = max(self.due_s, self._origin_s + index * self.period_s)


class Meter:
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
        self._samples: list[Sample] = []
        self._marks: dict[str, float] = {}
        self._requests = _Requests()
        self._deadlines = _Deadlines(0.0, 1.0 / rate_hz)
        self._ready = threading.Event()
        self._thread: threading.Thread | None = None
        self._reason: str | None = None
        self._good = False  # a reading was had
        self._errors = 0
        self._missed = 0
        self._cpu_s: float | None = None
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
        return None if self._good else self.reason

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
        if self._reason is not None or self._good:
            return self._reason
        if self._errors:
            return f"no power or energy reading: {self._samples[-1].error or 'no value'}"
        return "not started" if self._thread is None else "no sample yet"

    @property
    def marks(self) -> dict[str, float]:
        """Label to time of the marks so far."""
        return dict(self._marks)

    def latest(self) -> Sample | None:
        """The newest sample, without asking the sensors."""
        return self._samples[-1] if self._samples else None

    def latest_temperature(self) -> tuple[float, float] | None:
        """(time in s, °C) of the newest sample that has one: slow sensors are read more rarely."""
        for sample in reversed(self._samples):
            if sample.temperature_c is not None:
                return sample.t_s, sample.temperature_c
        return None

    def samples(self) -> dict[str, list[Any]]:
        """The samples so far as columns, named as the fields of `Sample`; None is "not had"."""
        snapshot = list(self._samples)
        return {name: [getattr(sample, name) for sample in snapshot] for name in SAMPLE_FIELDS}

    def record(self) -> MeterRecord:
        """How was measured, for run.json."""
        from wattslice.records.run import MeterRecord

        calls = [sample.call_s for sample in list(self._samples)]
        return MeterRecord(
            scope=self._scope,
            method=self._method,
            description=dict(self._description),
            rate_hz=self._rate_hz,
            samples=len(calls),
            errors=self._errors,
            missed=self._missed,
            call_median_s=statistics.median(calls) if calls else None,
            call_max_s=max(calls) if calls else None,
            cpu_s=self._cpu_s,
            start_s=self._start_s,
            end_s=self._end_s,
            reason=self.reason,
        )

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    # -- in the sampler's thread --------------------------------------------------------------

    def _request(self, label: str | None, timeout_s: float) -> Sample | None:
        if not self.running or self._stopping:
            return None
        request = _Request(label, threading.Event())
        self._requests.put(request)
        request.done.wait(timeout_s)
        return request.sample

    def _run(self) -> None:
        source = self._source
        assert source is not None
        try:
            with self._opened(source):
                self._sample_until_stopped(source)
        except BoardLostError as error:
            self._reason = f"the board was lost: {error}"
        except Exception as error:  # the reason must reach the record, whatever it is
            self._reason = f"{type(error).__name__}: {error}"
        finally:
            self._cpu_s = time.thread_time()
            self._ready.set()
            self._answer_the_rest()

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

    def _sample_until_stopped(self, source: PowerSource) -> None:
        self._read(source)
        self._start_s = self._samples[-1].t_s
        self._deadlines = _Deadlines(self._start_s, 1.0 / self._rate_hz)
        recheck_s = self._start_s + _RECHECK_S
        burst = self._good
        while True:
            if self._good:
                self._ready.set()
            request = None
            if burst:
                request = self._burst(source)
                self._deadlines.forgo(time.monotonic())
            if request is None:
                # Until the first good sample, look after each one whether start() may return.
                until_s = recheck_s if self._ready.is_set() else 0.0
                request = self._sample_regularly(source, until_s)
            if request is None:
                burst = time.monotonic() > recheck_s
                if burst:
                    recheck_s = math.inf
                if time.monotonic() > self._start_s + _GRACE_S:
                    self._ready.set()
                continue
            self._read(source)
            if request is _STOP:
                self._end_s = self._samples[-1].t_s
                # So that the last window has readings on both sides of its end.
                self._burst(source)
                return
            request.sample = self._samples[-1]
            request.done.set()
            burst = request.label is not None

    def _sample_regularly(self, source: PowerSource, until_s: float) -> _Request | None:
        """Sample at the deadlines until a request comes, or, after a sample, `until_s` is past.

        This is where a measurement spends its time: nothing here is done that need not be.
        """
        monotonic, read, wait, deadlines = (
            time.monotonic,
            self._read,
            self._requests.wait,
            self._deadlines,
        )
        period_s, due_s = deadlines.period_s, deadlines.due_s
        while True:
            request = wait(due_s - monotonic())
            if request is not None:
                deadlines.due_s = due_s
                return request
            read(source)
            due_s += period_s
            now = monotonic()
            if now > due_s:
                # Deadlines that have passed are skipped, not made up for in a bunch.
                late = math.ceil((now - due_s) / period_s)
                self._missed += late
                due_s += late * period_s
            if now > until_s:
                deadlines.due_s = due_s
                return None

    def _burst(self, source: PowerSource) -> _Request | None:
        """Read closely until the counter has moved; None, or the request that ended it early.

        The first burst waits for several ticks, to learn their period. What it is still owed when
        a request cuts it short is left to the next one.
        """
        last = self._samples[-1]
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
            request = self._requests.wait(due_s - time.monotonic())
            if request is not None:
                return request
            self._read(source)
            previous, last = last, self._samples[-1]
            known = previous.energy_j is not None and last.energy_j is not None
            if known and previous.energy_j != last.energy_j:
                ticks -= 1
                self._ticks_owed -= 1
        return None

    def _read(self, source: PowerSource) -> None:
        try:
            sample = source.read()
        except BoardLostError:
            self._errors += 1
            raise
        except Exception as error:  # one failed call must not end a measurement
            now = time.monotonic()
            sample = Sample(t_s=now, call_s=0.0, error=f"{type(error).__name__}: {error}")
        self._samples.append(sample)
        if sample.error is not None:
            self._errors += 1
        if not self._good:
            values = (sample.power_w, sample.energy_j, sample.power_average_w)
            self._good = any(value is not None for value in values)

    def _answer_the_rest(self) -> None:
        """Nobody may wait for a sampler that has ended."""
        self._stopping = True
        while (request := self._requests.take()) is not None:
            request.done.set()
