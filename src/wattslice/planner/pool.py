"""Boards of one or of several kinds with their jobs, as arrays for the mixed-integer models."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.optimize import milp

from wattslice.config.layout import Layout
from wattslice.planner.errors import InfeasibleError
from wattslice.planner.search import Options

FloatArray = npt.NDArray[np.float64]
INFEASIBLE = 2  # status of scipy.optimize.milp


@dataclass(frozen=True, slots=True)
class Group:
    """Equal boards: how many, their layouts, and what each job does on their slices."""

    options: Options
    layouts: tuple[Layout, ...]
    boards: int


def quiet_milp(*arguments: Any, **named: Any) -> Any:
    """`milp` without the lines that HiGHS 1.x prints to file descriptor 1 itself now and then."""
    sys.stdout.flush()
    try:
        kept = os.dup(1)
    except OSError:  # no standard output at all
        return milp(*arguments, **named)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 1)
        return milp(*arguments, **named)
    finally:
        os.dup2(kept, 1)
        os.close(kept)
        os.close(nowhere)


class Pool:
    """Times and joules of jobs, or of a sample of jobs without end, on classes of slices.

    Impossible pairs are inf in `t`.
    A class is a kind of slice of one group, with or without neighbours; a row is a layout of one
    group.
    """

    def __init__(self, groups: Sequence[Group]) -> None:
        self.groups = tuple(groups)
        self.jobs = self.groups[0].options.jobs
        self.rows = [(g, layout) for g, group in enumerate(groups) for layout in group.layouts]
        classes: dict[tuple[int, str, bool], int] = {}
        for g, layout in self.rows:
            for kind in layout.slices:
                classes.setdefault((g, kind, len(layout.slices) > 1), len(classes))
        self.classes = classes
        self.group_of_class = np.array([g for g, _, _ in classes])
        self.n = np.zeros((len(self.rows), len(classes)))
        for row in range(len(self.rows)):
            for column in self.columns(row):
                self.n[row, column] += 1
        # Which rows are of which group, to count its boards.
        self.of_group = np.array(
            [[g == i for g, _ in self.rows] for i in range(len(groups))], float
        )
        self.boards = np.array([group.boards for group in groups], float)
        self._measure()
        if np.isinf(self.t).all(axis=1).any():
            pairs = zip(self.jobs, self.t, strict=True)
            names = [job.name for job, times in pairs if np.isinf(times).all()]
            raise InfeasibleError([f"{', '.join(names[:5])}: runs on no slice"])

    def columns(self, row: int) -> list[int]:
        """The class of each slice of a layout."""
        g, layout = self.rows[row]
        return [self.classes[g, kind, len(layout.slices) > 1] for kind in layout.slices]

    def _measure(self) -> None:
        self.t = np.full((len(self.jobs), len(self.classes)), np.inf)
        self.e = np.zeros_like(self.t)
        dark = set()  # groups where the power of some job or layout is not known
        for (g, kind, neighbours), column in self.classes.items():
            for row, job in enumerate(self.jobs):
                found = self.groups[g].options.on(job, kind, neighbours=neighbours)
                if found is None:
                    continue
                self.t[row, column] = (job.work or 1.0) / found.rate.value
                if found.dynamic_w is None:
                    dark.add(g)
                else:
                    self.e[row, column] = self.t[row, column] * found.dynamic_w.value
        idle = [self.groups[g].options.table.idle(str(layout)) for g, layout in self.rows]
        dark |= {g for (g, _), power in zip(self.rows, idle, strict=True) if power is None}
        self.powered = not dark
        self.idle = np.array([0.0 if power is None else power.value for power in idle])
        limits = [group.options.limit_w for group in self.groups]
        # Groups whose power limit can be applied, and the W above idle that it leaves, by row.
        self.limited = tuple(g for g, w in enumerate(limits) if w is not None and g not in dark)
        tops = [limits[g] if g in self.limited else None for g, _ in self.rows]
        top_w = np.array([np.inf if top is None else top for top in tops])
        self.headroom: FloatArray = np.maximum(top_w - self.idle, 0.0)
