"""A declared power model as a source of samples. It measures load, not power: label `modelled`."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from wattslice.boards.base import Sample
from wattslice.records.board import EnergyScope

METHOD = "declared-power-model"
PROC_STAT = Path("/proc/stat")


class PowerModelLike(Protocol):
    """The two numbers of the model, and where they come from."""

    @property
    def idle_w(self) -> float: ...
    @property
    def active_w_per_core(self) -> float: ...
    @property
    def source(self) -> str: ...


def busy_ticks(cores: Sequence[int], path: Path = PROC_STAT) -> tuple[int, int]:
    """(busy, all) clock ticks of some cores since boot; idle and I/O wait are not busy."""
    wanted = {f"cpu{core}" for core in cores}
    busy = total = 0
    for line in path.read_text().splitlines():
        name, *fields = line.split()
        if name in wanted:
            ticks = [int(field) for field in fields[:8]]  # guest time is already in user time
            total += sum(ticks)
            busy += sum(ticks) - ticks[3] - ticks[4]
    return busy, total


class PowerModelSource:
    """P = idle_w + active_w_per_core x busy cores, busy cores from the kernel's tick counts."""

    scope: EnergyScope = "modelled"
    method = METHOD

    def __init__(self, model: PowerModelLike, cores: Sequence[int], path: Path = PROC_STAT) -> None:
        self._model = model
        self._cores = tuple(cores)
        self._path = path
        self._last = (0, 0)
        self._load = 0.0

    def describe(self) -> Mapping[str, object]:
        return {
            "idle_w": self._model.idle_w,
            "active_w_per_core": self._model.active_w_per_core,
            "cores": list(self._cores),
            "source": self._model.source,
            "power_field": "modelled",
            "load": f"{self._path}, ticks of 10 ms",
        }

    def open(self) -> None:
        self._last = busy_ticks(self._cores, self._path)

    def read(self) -> Sample:
        before = time.monotonic()
        try:
            busy, total = busy_ticks(self._cores, self._path)
        except (OSError, ValueError) as error:
            after = time.monotonic()
            return Sample((before + after) / 2, after - before, error=f"power_w: {error}")
        elapsed = total - self._last[1]
        if elapsed > 0:  # two reads within one tick: the load of the last tick still holds
            self._load = min(max((busy - self._last[0]) / elapsed, 0.0), 1.0)
            self._last = (busy, total)
        power_w = self._model.idle_w + self._model.active_w_per_core * self._load * len(self._cores)
        after = time.monotonic()
        return Sample((before + after) / 2, after - before, power_w=power_w, utilisation=self._load)

    def close(self) -> None:
        pass
