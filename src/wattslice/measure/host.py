"""How much of the workers' own CPU cores other processes took in a window.

A core's busy time (/proc/stat, ticks of 10 ms) less the CPU time of the run's own workers on it
(/proc/PID/stat: all threads, and children that have ended) is time that somebody else had, or the
kernel's interrupts, or the hypervisor's (steal). The launcher and the meter count as others: they
take about 0.5 % of one core.

This matters most on CPU boards. OpenMP threads wait for each other by spinning, so a core that is
taken away from one thread for a while stops all of them.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from wattslice.records.base import Quantity

# Fields of a cpuN line of /proc/stat (proc(5)): user nice system idle iowait irq softirq steal.
# The guest fields that follow are contained in user and nice.
_BUSY = (0, 1, 2, 5, 6, 7)
# Fields of /proc/PID/stat after the name: utime, stime, and both of the children that have ended.
_OWN = slice(11, 15)
# Ticks are counted where they fall, so that a short window's share is mostly rounding.
MIN_SPAN_S = 0.5


@dataclass(frozen=True, slots=True)
class HostWorker:
    """A process of the run and the cores that it may use."""

    pid: int
    cores: frozenset[int]


@dataclass(frozen=True, slots=True)
class _Reading:
    t_s: float
    busy: Mapping[int, int]  # ticks by core
    own: Mapping[int, int]  # ticks by pid; a process that is gone has none


class HostLoad:
    """CPU time of cores and workers at two moments. No call raises; reasons are in the result."""

    def __init__(self, workers: Mapping[int, HostWorker], proc: Path = Path("/proc")) -> None:
        self._workers = dict(workers)  # by slice index
        self._proc = proc
        self._first: _Reading | None = None
        self._last: _Reading | None = None
        self._why_not: str | None = None

    def begin(self) -> None:
        """The window opens; a second call starts it again."""
        self._first, self._last = self._read(), None

    def end(self) -> None:
        self._last = self._read()

    def foreign(self) -> dict[int, Quantity]:
        """Share (0..1) of each worker's cores that others took, by slice index."""
        return {index: self._share(worker) for index, worker in self._workers.items()}

    def _share(self, worker: HostWorker) -> Quantity:
        first, last = self._first, self._last
        if first is None or last is None:
            return Quantity.missing(self._why_not or "the window was not held to its end")
        span_s = last.t_s - first.t_s
        if span_s < MIN_SPAN_S:
            return Quantity.missing(f"{span_s:.2f} s are too short for the kernel's ticks")
        if not worker.cores or not worker.cores <= first.busy.keys() & last.busy.keys():
            return Quantity.missing("/proc/stat does not list the worker's cores")
        # Workers that share their cores (in turns, or a GPU's workers, which are not pinned) are
        # judged together: they are no strangers to each other.
        sharing = [other for other in self._workers.values() if other.cores & worker.cores]
        if any(other.cores != worker.cores for other in sharing):
            return Quantity.missing("workers share some of their cores, so the rest is not known")
        own = 0
        for other in sharing:
            if other.pid not in first.own or other.pid not in last.own:
                return Quantity.missing(f"the CPU time of process {other.pid} is not readable")
            own += last.own[other.pid] - first.own[other.pid]
        busy = sum(last.busy[core] - first.busy[core] for core in worker.cores)
        available = span_s * os.sysconf("SC_CLK_TCK") * len(worker.cores)
        return Quantity.of(min(max((busy - own) / available, 0.0), 1.0))

    def _read(self) -> _Reading | None:
        try:
            busy = self._busy()
        except (OSError, ValueError, IndexError) as error:
            self._why_not = f"/proc/stat is not readable: {error}"
            return None
        own = {}
        for worker in self._workers.values():
            ticks = self._own(worker.pid)
            if ticks is not None:
                own[worker.pid] = ticks
        return _Reading(time.monotonic(), busy, own)

    def _busy(self) -> dict[int, int]:
        found = {}
        for line in (self._proc / "stat").read_text().splitlines():
            name, *fields = line.split()
            if name.startswith("cpu") and name != "cpu":
                found[int(name[3:])] = sum(int(fields[i]) for i in _BUSY if i < len(fields))
        return found

    def _own(self, pid: int) -> int | None:
        try:
            # The name in parentheses may hold anything, so count from its end.
            fields = (self._proc / str(pid) / "stat").read_text().rpartition(")")[2].split()
            return sum(map(int, fields[_OWN]))
        except (OSError, ValueError):
            return None


def host_workers(found: Iterable[tuple[int, int, Iterable[int]]]) -> dict[int, HostWorker]:
    """Workers from (slice index, pid, cores)."""
    return {index: HostWorker(pid, frozenset(cores)) for index, pid, cores in found}
