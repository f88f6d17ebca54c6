"""What jobs on a layout will do, from what each does on each kind of slice.

With r_j the rate of job j on its slice and d_j what it adds to the board's power there:

    steady rate   dynamic power  D = Σ d_j, at most L - idle with L the board's power limit
                  throttle       x = min(1, (L - idle) / D)
                  rates          r_j x;  power  idle + D x
    fixed work    time t_j = w_j / r_j;  slice load = Σ of its jobs' times
                  makespan  M = max(largest load, Σ t_j d_j / (L - idle))
                  energy    E = idle M + Σ t_j d_j

All slices share one power limit. Under it the rate is taken to fall with dynamic power (x), which
is the worst case: dynamic power rises with up to the cube of the clock (P ~ f V²), so the upper
bound of a throttled rate uses x^(1/3). In fixed work the second term of M says the same: joules
above idle cannot be spent faster than the limit lets them. Where slices fall idle one after
another, M may be longer than this by what is lost while few are busy; `timeline` gives that bound.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from wattslice.config.layout import Layout
from wattslice.planner.ranges import ZERO, Range, largest, total
from wattslice.planner.table import Measured, Table


@dataclass(frozen=True, slots=True)
class Job:
    """A job to place. `work` in samples (None: it runs for ever), `min_rate` in samples/s."""

    name: str
    workload: str
    work: float | None = None
    min_rate: float | None = None
    memory_mib: float | None = None  # asked of its slice, beside what was measured


@dataclass(frozen=True, slots=True)
class Use:
    """One job on one slice."""

    job: Job
    slice_index: int
    measured: Measured


@dataclass(frozen=True, slots=True)
class Steady:
    """All jobs at once, for ever."""

    rates: tuple[Range, ...]  # samples/s, in the order of the uses
    shares: tuple[Range, ...]  # of the reference's rate
    progress: Range  # reference-seconds per second
    power_w: Range | None
    progress_per_j: Range | None  # reference-seconds per joule
    throttle: float  # 1: the power limit does not matter


@dataclass(frozen=True, slots=True)
class Fixed:
    """Every job does its work once."""

    makespan_s: Range
    energy_j: Range | None
    loads_s: tuple[Range, ...]  # per slice of the layout
    limited: bool  # by power, not by the slice that takes longest


def throttle(dynamic_w: float, idle_w: float, limit_w: float | None) -> float:
    """x = min(1, (L - idle) / D); 1 without a limit or without power."""
    if limit_w is None or dynamic_w <= 0.0:
        return 1.0
    return min(1.0, max(limit_w - idle_w, 0.0) / dynamic_w)


def steady(
    table: Table,
    layout: Layout,
    uses: Sequence[Use],
    reference: str,
    limit_w: float | None,
    *,
    base: Table | None = None,
) -> Steady:
    """Predict a steady rate; each slice has one job at most. `base`: the reference's own table."""
    dynamic, idle = _dynamic(uses), table.idle(str(layout))
    x = x_low = x_high = 1.0
    if dynamic is not None and idle is not None:
        x = throttle(dynamic.value, idle.value, limit_w)
        x_low = throttle(dynamic.high, idle.high, limit_w)
        x_high = throttle(dynamic.low, idle.low, limit_w) ** (1.0 / 3.0)
    rates = tuple(_scaled(use.measured.rate, x, x_low, x_high) for use in uses)
    parts = []
    for use, rate in zip(uses, rates, strict=True):
        alone = (base or table).measured(use.job.workload, reference, neighbours=False)
        assert alone is not None
        # Under one measurement the ratio is 1 whatever its error.
        same = use.measured is alone and x == 1.0
        parts.append(Range.of(1.0) if same else rate / alone.rate)
    progress = total(parts)
    power = None
    if dynamic is not None and idle is not None:
        drawn = idle + dynamic
        top = math.inf if limit_w is None else limit_w
        power = Range(*(min(value, top) for value in (drawn.value, drawn.low, drawn.high)))
    per_joule = None if power is None else progress / power
    return Steady(rates, tuple(parts), progress, power, per_joule, x)


def sequential_power(
    shares: Sequence[Range], alone: Sequence[Use], idle_w: Range | None
) -> Range | None:
    """W that an undivided board would need for the work of one second, job after job: Σ p_j B_j.

    `shares` are rates over its own, `alone` the jobs on it; None where its power is not known.
    """
    dynamic = [use.measured.dynamic_w for use in alone if use.measured.dynamic_w is not None]
    if idle_w is None or len(dynamic) < len(alone):
        return None
    return total(share * (idle_w + power) for share, power in zip(shares, dynamic, strict=True))


def fixed(table: Table, layout: Layout, uses: Sequence[Use], limit_w: float | None) -> Fixed:
    """Predict fixed work; the jobs of a slice run one after another."""
    loads = [ZERO] * len(layout.slices)
    times = []
    for use in uses:
        assert use.job.work is not None
        duration = Range.of(use.job.work) / use.measured.rate
        times.append(duration)
        loads[use.slice_index] += duration
    makespan, idle = largest(loads), table.idle(str(layout))
    limited, energy = False, None
    if idle is not None and all(use.measured.dynamic_w is not None for use in uses):
        # Energy of a job is measured as such; its time and its power err together.
        joules = total(_energy(use, duration) for use, duration in zip(uses, times, strict=True))
        if limit_w is not None and limit_w > idle.high:
            least = Range(
                joules.value / (limit_w - idle.value),
                joules.low / (limit_w - idle.low),
                joules.high / (limit_w - idle.high),
            )
            limited = least.value > makespan.value
            makespan = largest([makespan, least])
        energy = idle * makespan + joules
    return Fixed(makespan, energy, tuple(loads), limited)


def _energy(use: Use, duration: Range) -> Range:
    assert use.measured.dynamic_w is not None
    return use.measured.dynamic_w * duration


def _dynamic(uses: Sequence[Use]) -> Range | None:
    known = [use.measured.dynamic_w for use in uses if use.measured.dynamic_w is not None]
    return total(known) if len(known) == len(uses) else None


def _scaled(rate: Range, x: float, x_low: float, x_high: float) -> Range:
    return Range.of(rate.value * x, rate.low * min(x, x_low), rate.high * max(x, x_high))


def timeline(table: Table, layout: Layout, uses: Sequence[Use], limit_w: float | None) -> float:
    """Makespan of fixed work, s, followed from job to job with the throttle of each moment.

    Never below `fixed().makespan_s.value`, and the same where the limit is not reached.
    """
    idle = table.idle(str(layout))
    queues: dict[int, list[tuple[float, float]]] = {}
    for use in uses:
        assert use.job.work is not None
        power = use.measured.dynamic_w.value if use.measured.dynamic_w is not None else 0.0
        queues.setdefault(use.slice_index, []).append(
            (use.job.work / use.measured.rate.value, power)
        )
    now = 0.0
    while queues:
        dynamic = math.fsum(queue[0][1] for queue in queues.values())
        x = throttle(dynamic, idle.value, limit_w) if idle is not None else 1.0
        step = min(queue[0][0] for queue in queues.values())
        if x <= 0.0:
            return math.inf
        now += step / x
        for index in list(queues):
            left, power = queues[index][0]
            # A tolerance, so that jobs that end together do not leave a sliver.
            if left - step <= 1e-9 * left:
                queues[index].pop(0)
                if not queues[index]:
                    del queues[index]
            else:
                queues[index][0] = (left - step, power)
    return now
