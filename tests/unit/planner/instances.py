"""Random small planning problems, and their optimum by trying everything."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hypothesis import strategies as st

from wattslice.config.layout import Layout
from wattslice.planner.boards import BoardModel, mig_board
from wattslice.planner.predict import Job
from wattslice.planner.ranges import Range
from wattslice.planner.search import Options
from wattslice.planner.table import Cell, Measured, Table

KINDS = {
    "a30": ("full", "4g", "2g", "1g"),
    "a100-sxm4-80gb": ("full", "7g", "4g", "3g", "2g", "1g"),
}


@dataclass(frozen=True)
class Instance:
    table: Table
    board: BoardModel
    jobs: list[Job]
    limit_w: float | None
    deadline_s: float | None

    @property
    def options(self) -> Options:
        return Options(self.table, self.jobs, self.board.memory_mib, self.limit_w)


@st.composite
def instances(draw: st.DrawFn, board: str = "a30", most_jobs: int = 4) -> Instance:
    number = st.floats(0.1, 10.0)
    workloads = ["a", "b"]
    cells: dict[tuple[str, str], Cell] = {}
    for workload in workloads:
        for kind in KINDS[board]:
            state = draw(st.sampled_from(["ok", "ok", "ok", "oom", "unknown"]))
            if kind == "full":
                state = "ok"
            if state == "unknown":
                continue
            cell = cells.setdefault((workload, kind), Cell())
            if state == "oom":
                cell.failed = "oom"
                continue
            cell.alone = Measured(Range.of(draw(number)), Range.of(draw(number) * 20))
            if draw(st.booleans()):
                cell.among = Measured(Range.of(draw(number)), Range.of(draw(number) * 20))
    idle = draw(number) * 10
    table = Table("fp32", cells, {"": Range.of(idle)})
    if draw(st.booleans()):
        table.idle_w["full"] = Range.of(draw(number) * 10)
    jobs = [
        Job(
            f"job{index}",
            draw(st.sampled_from(workloads)),
            work=draw(number) * 10,
            min_rate=draw(st.none() | number),
            memory_mib=draw(st.none() | st.sampled_from([4000.0, 8000.0, 15000.0])),
        )
        for index in range(draw(st.integers(1, most_jobs)))
    ]
    limit = draw(st.none() | st.floats(110.0, 400.0))
    deadline = draw(st.none() | st.floats(5.0, 500.0))
    kinds = {kind for (_, kind), cell in cells.items() if cell.failed is None}
    return Instance(table, mig_board(board, kinds), jobs, limit, deadline)


def rate_and_power(
    instance: Instance, job: Job, layout: Layout, index: int
) -> tuple[float, float] | None:
    """By the rules of the documentation, written down anew."""
    kind = layout.slices[index]
    cell = instance.table.cells.get((job.workload, kind))
    if cell is None or cell.failed:
        return None
    order = (cell.among, cell.alone) if len(layout.slices) > 1 else (cell.alone, cell.among)
    known = next(m for m in order if m is not None)
    if job.min_rate is not None and known.rate.value < job.min_rate:
        return None
    memory = instance.board.memory_mib.get(kind)
    if job.memory_mib is not None and memory is not None and job.memory_mib > memory:
        return None
    assert known.dynamic_w is not None
    return known.rate.value, known.dynamic_w.value


def everything(instance: Instance) -> Iterator[tuple[Layout, tuple[int, ...]]]:
    for layout in instance.board.layouts:
        for slices in itertools.product(range(len(layout.slices)), repeat=len(instance.jobs)):
            yield layout, slices


def brute_steady(instance: Instance, goal: str) -> float | None:
    """Largest progress, or progress per joule."""
    best: float | None = None
    base = {w: instance.table.cells[w, "full"] for w in ("a", "b")}
    for layout, slices in everything(instance):
        if len(set(slices)) < len(slices):
            continue
        known = [
            rate_and_power(instance, job, layout, index)
            for job, index in zip(instance.jobs, slices, strict=True)
        ]
        if any(each is None for each in known):
            continue
        pairs = [each for each in known if each is not None]
        idle = instance.table.idle_w.get(str(layout), instance.table.idle_w[""]).value
        dynamic = sum(d for _, d in pairs)
        x = 1.0
        if instance.limit_w is not None and idle + dynamic > instance.limit_w:
            x = max(instance.limit_w - idle, 0.0) / dynamic
        progress = 0.0
        for job, (rate, _) in zip(instance.jobs, pairs, strict=True):
            if job.min_rate is not None and rate * x < job.min_rate:
                break
            alone = base[job.workload].alone
            assert alone is not None
            progress += rate * x / alone.rate.value
        else:
            value = progress if goal == "throughput" else progress / (idle + dynamic * x)
            best = value if best is None else max(best, value)
    return best


def fixed_values(
    instance: Instance, layout: Layout, slices: Sequence[int]
) -> tuple[float, float] | None:
    """(makespan, energy) of an assignment; None where it is impossible or late."""
    loads = [0.0] * len(layout.slices)
    joules = 0.0
    for job, index in zip(instance.jobs, slices, strict=True):
        known = rate_and_power(instance, job, layout, index)
        if known is None:
            return None
        assert job.work is not None
        loads[index] += job.work / known[0]
        joules += job.work / known[0] * known[1]
    idle = instance.table.idle_w.get(str(layout), instance.table.idle_w[""]).value
    makespan = max(loads)
    if instance.limit_w is not None:
        if instance.limit_w <= idle:
            return None
        makespan = max(makespan, joules / (instance.limit_w - idle))
    if instance.deadline_s is not None and makespan > instance.deadline_s:
        return None
    return makespan, idle * makespan + joules


def brute_fixed(instance: Instance) -> list[tuple[float, float]]:
    """Every possible (makespan, energy)."""
    found = [fixed_values(instance, *each) for each in everything(instance)]
    return [each for each in found if each is not None]


def close(left: float, right: float) -> bool:
    return math.isclose(left, right, rel_tol=1e-9, abs_tol=1e-12)
