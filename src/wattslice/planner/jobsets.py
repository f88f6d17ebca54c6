"""What it means that a set of jobs runs faster, or on less energy. See docs/job-sets.md.

Two readings of "the same jobs":

Fixed work. Job j has w_j samples to do. On slice s it takes t_js = w_j / r_js seconds, with r_js
its throughput there. Jobs of one slice run one after another, slices run at the same time:

    makespan M     max_s Σ_{j on s} t_js
    energy E       ∫ P dt over [0, M]: the board's energy until the last job ends, idle slices too

Steady rate. Every job runs all the time; none ends. With r_j its throughput in the layout and b_j
alone on the base (`full` or `7g`):

    progress p     Σ_j r_j / b_j           base-seconds of work done per second, 1
    energy ratio   P / Σ_j (r_j / b_j) B_j  B_j = mean power of the base with job j, W

The base does one job after another, so its progress is 1. Steady rate is fixed work with
w_j ∝ r_j, the work for which no slice is ever idle; fixed work with other w_j has slices that wait
for the last job, and is never better by more.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from wattslice.records.base import Record

# Each reading of "x % faster" in which a layout may be compared with a base.
FASTER: dict[str, str] = {
    "time_saved": "1 - M / M_base, fixed work: share of the makespan that is saved",
    "speedup_gain": "M_base / M - 1, fixed work: how much more work per time, make-spans compared",
    "throughput_gain": "p / p_base - 1, steady rate: gain in normalised progress",
    "steady_time_saved": "1 - p_base / p, steady rate: the same gain as a share of time",
    "mean_completion_saved": "1 - mean(C_j) / mean(C_j of the base): mean time until a job ends",
    "own_rate_gain": "geometric mean of r_j / b_j, - 1: what each job notices while it runs",
}


@dataclass(frozen=True, slots=True)
class Schedule:
    """When jobs end: per slice, the jobs in order with their durations, s."""

    slices: tuple[tuple[tuple[str, float], ...], ...]

    @property
    def makespan_s(self) -> float:
        return max((math.fsum(t for _, t in jobs) for jobs in self.slices), default=0.0)

    def completions_s(self) -> dict[str, float]:
        """Time from the start until each job ends, s."""
        ends = {}
        for jobs in self.slices:
            now = 0.0
            for name, duration in jobs:
                now += duration
                ends[name] = now
        return ends

    def shortest_first(self) -> Schedule:
        """The same slices with their jobs in the order that ends jobs earliest on average."""
        return Schedule(tuple(tuple(sorted(jobs, key=lambda job: job[1])) for jobs in self.slices))


def progress(rates: Mapping[str, float], base_rates: Mapping[str, float]) -> float:
    """Σ_j r_j / b_j: normalised progress, 1. Raises ZeroDivisionError for a base that stands."""
    return math.fsum(rate / base_rates[name] for name, rate in rates.items())


class Faster(Record):
    """A layout against a base in every reading of `FASTER`; null where a reading does not apply."""

    base: str
    time_saved: float | None
    speedup_gain: float | None
    throughput_gain: float | None
    steady_time_saved: float | None
    mean_completion_saved: float | None
    own_rate_gain: float | None


def faster(
    base: str,
    *,
    schedule: Schedule | None = None,
    base_schedule: Schedule | None = None,
    rates: Mapping[str, float] | None = None,
    base_rates: Mapping[str, float] | None = None,
) -> Faster:
    """Every reading that the figures allow.

    Schedules give the readings for fixed work, rates those for a steady rate.
    """
    fixed: dict[str, float | None] = dict.fromkeys(
        ("time_saved", "speedup_gain", "mean_completion_saved")
    )
    if schedule is not None and base_schedule is not None:
        ratio = schedule.makespan_s / base_schedule.makespan_s
        ends = schedule.shortest_first().completions_s()
        base_ends = base_schedule.shortest_first().completions_s()
        fixed = {
            "time_saved": 1.0 - ratio,
            "speedup_gain": 1.0 / ratio - 1.0,
            "mean_completion_saved": 1.0 - _mean(ends.values()) / _mean(base_ends.values()),
        }
    steady: dict[str, float | None] = dict.fromkeys(
        ("throughput_gain", "steady_time_saved", "own_rate_gain")
    )
    if rates is not None and base_rates is not None:
        p = progress(rates, base_rates)
        logs = [math.log(rate / base_rates[name]) for name, rate in rates.items()]
        steady = {
            "throughput_gain": p - 1.0,
            "steady_time_saved": 1.0 - 1.0 / p,
            "own_rate_gain": math.exp(_mean(logs)) - 1.0,
        }
    return Faster(base=base, **fixed, **steady)


def _mean(values: Iterable[float]) -> float:
    items = list(values)
    return math.fsum(items) / len(items)
