"""Time stamps of step boundaries on CLOCK_MONOTONIC, without stopping the device."""

from __future__ import annotations

import time
from typing import Any, Protocol


class StepClock(Protocol):
    """Marks the end of each step."""

    def synchronise(self) -> float:
        """Wait for the device; the time now, s."""
        ...

    def mark(self) -> None:
        """The step that was just issued ends here."""
        ...

    def collect(self) -> list[float]:
        """Times (s) of the marks since the last `synchronise` that was followed by marks."""
        ...


class HostClock:
    """CPU: work is done when the call returns."""

    def __init__(self) -> None:
        self._marks: list[float] = []

    def synchronise(self) -> float:
        return time.monotonic()

    def mark(self) -> None:
        self._marks.append(time.monotonic())

    def collect(self) -> list[float]:
        marks, self._marks = self._marks, []
        return marks


class CudaClock:
    """CUDA: events in the stream, read out afterwards relative to one synchronised instant.

    The host runs at most two steps ahead, so that the end of the window is seen in time.
    """

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._base_s: float | None = None
        self._base: Any = None
        self._events: list[Any] = []

    def _event(self) -> Any:
        event = self._torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def synchronise(self) -> float:
        self._torch.cuda.synchronize()
        now = time.monotonic()
        if not self._events:
            self._base_s, self._base = now, self._event()
        return now

    def mark(self) -> None:
        self._events.append(self._event())
        if len(self._events) > 2:
            self._events[-3].synchronize()

    def collect(self) -> list[float]:
        self._torch.cuda.synchronize()
        if self._base_s is None:
            return []
        times = [self._base_s + self._base.elapsed_time(event) / 1e3 for event in self._events]
        self._events = []
        self._base_s = None
        return times
