"""Steps of contenders that take turns, so that whatever else the machine does falls on all."""

from __future__ import annotations

import os
import random
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import NamedTuple

import torch

from wattslice.boards.cpu.board import cpu_name

RESAMPLES = 1000


class Ratio(NamedTuple):
    """A ratio of medians with its bootstrap 95 % interval over rounds."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.4f} [{self.low:.4f}, {self.high:.4f}]"


class Contest:
    """Wall and CPU time of every step of every contender, s."""

    def __init__(self, device: torch.device, warm: int = 5) -> None:
        """`warm`: rounds that do not count."""
        self.warm = warm
        self._cuda = device.type == "cuda"
        self._random = random.Random(0)
        self._begun: dict[str, tuple[float, float]] = {}
        self.wall: dict[str, list[float]] = defaultdict(list)
        self.cpu: dict[str, list[float]] = defaultdict(list)

    def synchronise(self) -> None:
        if self._cuda:
            torch.cuda.synchronize()

    def begin(self, name: str) -> None:
        self.synchronise()
        self._begun[name] = time.perf_counter(), time.process_time()

    def end(self, name: str) -> None:
        """The end of a contender's step; nothing where none was begun."""
        self.synchronise()
        if name in self._begun:
            wall_s, cpu_s = self._begun.pop(name)
            self.cpu[name].append(time.process_time() - cpu_s)
            self.wall[name].append(time.perf_counter() - wall_s)

    def round(self, steps: Mapping[str, Callable[[], object]]) -> None:
        """One step of each, in a new order."""
        for name in self._random.sample(sorted(steps), len(steps)):
            self.begin(name)
            steps[name]()
            self.end(name)

    def run(self, steps: Mapping[str, Callable[[], object]], count: int) -> None:
        """`count` rounds that count, after those that do not."""
        for _ in range(self.warm + count):
            self.round(steps)

    def median_s(self, name: str) -> float:
        return float(statistics.median(self.wall[name][self.warm :]))

    def ratio(self, times: Mapping[str, list[float]], top: str, bottom: str) -> Ratio:
        """Median of `top` over that of `bottom`; rounds are drawn with what was in them."""
        rounds = min(len(times[top]), len(times[bottom]))
        pairs = list(
            zip(times[top][self.warm : rounds], times[bottom][self.warm : rounds], strict=True)
        )

        def of(chosen: list[tuple[float, float]]) -> float:
            above, below = zip(*chosen, strict=True)
            return float(statistics.median(above) / statistics.median(below))

        drawn = sorted(of(self._random.choices(pairs, k=len(pairs))) for _ in range(RESAMPLES))
        return Ratio(of(pairs), drawn[RESAMPLES // 40], drawn[-RESAMPLES // 40 - 1])


def machine(threads: int) -> str:
    """The machine in a line, for the table that is kept."""
    gpu = f", {torch.cuda.get_device_name(0)}" if torch.cuda.is_available() else ""
    load = os.getloadavg()[0]
    return (
        f"{cpu_name()}, {len(os.sched_getaffinity(0))} cores{gpu}; torch {torch.__version__}, "
        f"{threads} thread(s), load {load:.1f}"
    )
