"""Exact search over all layouts and assignments of one board.

Steady rate: every way to give each job a slice of its own. Fixed work: depth first over jobs with
lower bounds on makespan and energy; slices of one kind with equal load are not told apart. Both
are exact: what is cut off cannot be better.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from wattslice.config.layout import Layout
from wattslice.planner.errors import PlannerError
from wattslice.planner.predict import Job, Use, throttle
from wattslice.planner.table import Measured, Table

Objective = Literal["throughput", "samples-per-joule", "makespan", "energy"]
STEADY: tuple[Objective, ...] = ("throughput", "samples-per-joule")
FIXED: tuple[Objective, ...] = ("makespan", "energy")
NODE_LIMIT = 3_000_000
_TINY = 1e-12


class SearchTooLargeError(PlannerError):
    """More nodes than an exact search should visit: use the mixed-integer model."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """An assignment on a layout. `costs` are to be minimal, one per objective."""

    layout: Layout
    slices: tuple[int, ...]  # slice of each job, in the order of the jobs
    costs: tuple[float, ...]


class Options:
    """Which measurement a job has on which slice of a layout, or none."""

    def __init__(
        self,
        table: Table,
        jobs: Sequence[Job],
        memory_mib: dict[str, float],
        limit_w: float | None,
    ) -> None:
        self.table, self.jobs, self.limit_w = table, tuple(jobs), limit_w
        self.memory_mib = memory_mib

    def measured(self, job: Job, layout: Layout, index: int) -> Measured | None:
        """None where the job must not run: not measured, out of memory, too slow."""
        return self.on(job, layout.slices[index], neighbours=len(layout.slices) > 1)

    def on(self, job: Job, kind: str, *, neighbours: bool) -> Measured | None:
        found = self.table.measured(job.workload, kind, neighbours=neighbours)
        if found is None or self.why_not_memory(job, kind) is not None:
            return None
        if job.min_rate is not None and found.rate.value < job.min_rate:
            return None
        return found

    def why_not_memory(self, job: Job, kind: str) -> str | None:
        """Why the job's memory is more than the slice has; None where it is not."""
        have = self.memory_mib.get(kind)
        if job.memory_mib is None or have is None or job.memory_mib <= have:
            return None
        return f"needs {job.memory_mib:g} MiB, {kind} has {have:g}"

    def uses(self, layout: Layout, slices: Sequence[int]) -> list[Use]:
        found = []
        for job, index in zip(self.jobs, slices, strict=True):
            measured = self.measured(job, layout, index)
            assert measured is not None
            found.append(Use(job, index, measured))
        return found


def dominated(costs: Sequence[float], others: Sequence[tuple[float, ...]]) -> bool:
    """Whether another is at least as good in all, to rounding."""
    return any(
        all(o <= c * (1 + _TINY) + _TINY for o, c in zip(other, costs, strict=True))
        for other in others
    )


class Front:
    """Candidates of which none is better than another in all objectives; with one: the best."""

    def __init__(self) -> None:
        self.items: list[Candidate] = []

    def hopeless(self, bounds: Sequence[float]) -> bool:
        """Whether nothing with these lower bounds can come in."""
        return dominated(bounds, [item.costs for item in self.items])

    def add(self, new: Candidate) -> None:
        if self.hopeless(new.costs):
            return
        self.items = [item for item in self.items if not dominated(item.costs, [new.costs])]
        self.items.append(new)


# --- steady rate -------------------------------------------------------------------------------


def steady_costs(
    options: Options, layout: Layout, slices: Sequence[int], reference: str
) -> dict[Objective, float] | None:
    """Costs of an assignment by their values; None where a job misses its minimum rate."""
    table = options.table
    uses = options.uses(layout, slices)
    idle = table.idle(str(layout))
    dynamic: float | None = 0.0
    for use in uses:
        own = use.measured.dynamic_w
        dynamic = None if own is None or dynamic is None else dynamic + own.value
    x = 1.0
    if dynamic is not None and idle is not None:
        x = throttle(dynamic, idle.value, options.limit_w)
    progress = 0.0
    for use in uses:
        rate = use.measured.rate.value * x
        if use.job.min_rate is not None and rate < use.job.min_rate:
            return None
        base = table.measured(use.job.workload, reference, neighbours=False)
        assert base is not None
        progress += rate / base.rate.value
    per_joule = math.inf
    if dynamic is not None and idle is not None:
        per_joule = -progress / (idle.value + dynamic * x)
    return {"throughput": -progress, "samples-per-joule": per_joule}


def steady_assignments(options: Options, layout: Layout) -> Iterator[tuple[int, ...]]:
    """Every way to give each job a slice; equal jobs and equal slices are not told apart."""
    jobs, slices = options.jobs, layout.slices
    if len(jobs) > len(slices):
        return
    keys = [(j.workload, j.min_rate, j.memory_mib) for j in jobs]

    def walk(at: int, free: frozenset[int], chosen: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        if at == len(jobs):
            yield chosen
            return
        twin = keys[:at].index(keys[at]) if keys[at] in keys[:at] else None
        last = max((chosen[i] for i in range(at) if keys[i] == keys[at]), default=-1)
        seen: set[str] = set()
        for index in sorted(free):
            kind = slices[index]
            # Slices are sorted by kind, so equal jobs may take them in ascending order.
            if kind in seen or (twin is not None and index < last):
                continue
            seen.add(kind)
            if options.measured(jobs[at], layout, index) is not None:
                yield from walk(at + 1, free - {index}, (*chosen, index))

    yield from walk(0, frozenset(range(len(slices))), ())


def search_steady(
    options: Options, layout: Layout, reference: str, objectives: Sequence[Objective]
) -> list[Candidate]:
    """The best assignments on one layout."""
    front = Front()
    for slices in steady_assignments(options, layout):
        costs = steady_costs(options, layout, slices, reference)
        if costs is not None:
            wanted = tuple(costs[objective] for objective in objectives)
            if all(math.isfinite(cost) for cost in wanted):
                front.add(Candidate(layout, slices, wanted))
    return front.items


# --- fixed work --------------------------------------------------------------------------------


@dataclass(slots=True)
class _Slots:
    """Times and joules above idle of each job on each slice of a layout; inf where impossible."""

    times: list[list[float]]
    joules: list[list[float]]
    idle_w: float | None
    headroom_w: float  # power limit above idle, inf without

    @classmethod
    def of(cls, options: Options, layout: Layout) -> _Slots:
        idle = options.table.idle(str(layout))
        times, joules = [], []
        for job in options.jobs:
            assert job.work is not None
            row_t, row_j = [], []
            for index in range(len(layout.slices)):
                found = options.measured(job, layout, index)
                t = math.inf if found is None else job.work / found.rate.value
                power = None if found is None else found.dynamic_w
                row_t.append(t)
                row_j.append(math.inf if power is None else t * power.value)
            times.append(row_t)
            joules.append(row_j)
        limit = options.limit_w
        headroom = math.inf
        if limit is not None and idle is not None:
            headroom = max(limit - idle.value, 0.0)
        return cls(times, joules, None if idle is None else idle.value, headroom)

    def costs(
        self, load: float, joules: float, objectives: Sequence[Objective]
    ) -> tuple[float, ...]:
        """Makespan and energy of a largest load and the joules above idle."""
        makespan = load
        if math.isfinite(self.headroom_w) and math.isfinite(joules):
            least = joules / self.headroom_w if self.headroom_w > 0 else math.inf
            makespan = max(load, least if joules > 0 else 0.0)
        energy = math.inf if self.idle_w is None else self.idle_w * makespan + joules
        values = {"makespan": makespan, "energy": energy}
        return tuple(values[objective] for objective in objectives)


def search_fixed(
    options: Options,
    layout: Layout,
    objectives: Sequence[Objective],
    deadline_s: float | None = None,
    node_limit: int = NODE_LIMIT,
) -> list[Candidate]:
    """The best assignments on one layout. Raises SearchTooLargeError beyond `node_limit` nodes."""
    slots = _Slots.of(options, layout)
    count, width = len(options.jobs), len(layout.slices)
    if any(math.isinf(min(row)) for row in slots.times):
        return []
    # Long jobs first: bounds then bite early.
    order = sorted(range(count), key=lambda job: -min(slots.times[job]))
    rest_t, rest_j = [0.0] * (count + 1), [0.0] * (count + 1)
    for depth in range(count - 1, -1, -1):
        job = order[depth]
        rest_t[depth] = rest_t[depth + 1] + min(slots.times[job])
        rest_j[depth] = rest_j[depth + 1] + min(slots.joules[job])
    front = Front()
    chosen = [0] * count
    visited = 0

    def bounds(depth: int, loads: Sequence[float], joules: float) -> tuple[float, ...]:
        load = max(*loads, (math.fsum(loads) + rest_t[depth]) / width)
        return slots.costs(load, joules + rest_j[depth], objectives)

    late = _late(slots, deadline_s)

    def walk(depth: int, loads: list[float], joules: float) -> None:
        nonlocal visited
        visited += 1
        if visited > node_limit:
            raise SearchTooLargeError(f"{count} jobs on {layout}: more than {node_limit} nodes")
        if depth == count:
            costs = slots.costs(max(loads), joules, objectives)
            if all(math.isfinite(cost) for cost in costs):
                front.add(Candidate(layout, tuple(chosen), costs))
            return
        job = order[depth]
        tried: set[tuple[str, float]] = set()
        for index in sorted(range(width), key=lambda i: loads[i] + slots.times[job][i]):
            key = (layout.slices[index], loads[index])
            if key in tried or math.isinf(slots.times[job][index]):
                continue
            tried.add(key)
            before = loads[index]
            loads[index] = before + slots.times[job][index]
            more = joules + slots.joules[job][index]
            if not late(loads, more) and not front.hopeless(bounds(depth + 1, loads, more)):
                chosen[job] = index
                walk(depth + 1, loads, more)
            loads[index] = before

    walk(0, [0.0] * width, 0.0)
    return front.items


def _late(slots: _Slots, deadline_s: float | None) -> Callable[[Sequence[float], float], bool]:
    def late(loads: Sequence[float], joules: float) -> bool:
        if deadline_s is None:
            return False
        (makespan,) = slots.costs(max(loads), joules, ("makespan",))
        return makespan > deadline_s * (1 + _TINY)

    return late
