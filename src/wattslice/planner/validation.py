"""The planner against the board: which layouts to run, and how far the predictions were off.

The best layout and some drawn at random are run as mixes; a prediction's error is

    predicted / measured - 1

of each job's throughput, of the progress of all, of the energy over that of the same work in
sequence on the reference, and of the board's mean power. Runs that are predicted from themselves (a
job alone on the whole board) would say nothing and are left out.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from statistics import median

from wattslice.planner.boards import BoardModel
from wattslice.planner.errors import InfeasibleError
from wattslice.planner.plan import check_feasible
from wattslice.planner.predict import Job, Use, sequential_power, steady
from wattslice.planner.ranges import Range
from wattslice.planner.records import Compared, FigureName, Role, Summary, ValidatedRun
from wattslice.planner.search import (
    Candidate,
    Objective,
    Options,
    steady_assignments,
    steady_costs,
)
from wattslice.planner.table import Table
from wattslice.records.base import Quantity
from wattslice.records.metrics import RunMetrics


def choose(
    options: Options,
    board: BoardModel,
    reference: str,
    objective: Objective,
    *,
    count: int,
    seed: int,
) -> list[tuple[Role, Candidate]]:
    """The best plan, and `count` others drawn without regard to how good they are.

    Raises InfeasibleError where no layout of several slices can take the jobs.
    """
    check_feasible(options, board, "steady")
    found: list[Candidate] = []
    for layout in board.layouts:
        if len(layout.slices) < 2:
            continue
        for slices in steady_assignments(options, layout):
            costs = steady_costs(options, layout, slices, reference)
            if costs is not None:
                found.append(Candidate(layout, slices, (costs[objective],)))
    if not found:
        raise InfeasibleError(["no layout of several slices takes all the jobs"])
    found.sort(key=lambda c: (c.costs, str(c.layout), c.slices))
    others = found[1:]
    drawn = random.Random(seed).sample(others, min(count, len(others)))
    return [("best", found[0]), *(("random", candidate) for candidate in drawn)]


def members(candidate: Candidate, jobs: Sequence[Job]) -> tuple[str | None, ...]:
    """The mix that a candidate is: a workload per slice of its layout."""
    mix: list[str | None] = [None] * len(candidate.layout.slices)
    for job, index in zip(jobs, candidate.slices, strict=True):
        mix[index] = job.workload
    return tuple(mix)


def compare(
    table: Table,
    options: Options,
    candidate: Candidate,
    reference: str,
    *,
    role: Role,
    metrics: RunMetrics,
) -> ValidatedRun:
    """Predicted against measured, of one run."""
    layout = candidate.layout
    uses = options.uses(layout, candidate.slices)
    predicted = steady(table, layout, uses, reference, options.limit_w)
    rates = _rates(uses, metrics)
    alone = [_alone(table, use, reference) for use in uses]
    figures = [
        _compared(
            "throughput",
            table.rate_unit,
            rate,
            measured,
            workload=use.job.workload,
            slice=layout.slices[use.slice_index],
        )
        for use, rate, measured in zip(uses, predicted.rates, rates, strict=True)
    ]
    shares = [
        Quantity.missing(rate.reason or "a worker has no throughput")
        if rate.value is None
        else Quantity.of(rate.value / base.measured.rate.value)
        for rate, base in zip(rates, alone, strict=True)
    ]
    progress = _sum(shares)
    figures.append(_compared("progress", "reference-s/s", predicted.progress, progress))
    idle = table.idle(reference)
    before = sequential_power(predicted.shares, alone, idle)
    if predicted.power_w is not None and before is not None:
        done = [Range.of(share.value or 0.0) for share in shares]
        measured = _over(metrics.mean_power_w, progress, sequential_power(done, alone, idle))
        figures.append(_compared("energy_ratio", "1", predicted.power_w / before, measured))
    if predicted.power_w is not None:
        figures.append(_compared("mean_power", "W", predicted.power_w, metrics.mean_power_w))
    return ValidatedRun(
        run_id=metrics.run_id,
        role=role,
        layout=str(layout),
        workloads=tuple(use.job.workload for use in uses),
        outcome=metrics.outcome,
        figures=tuple(figures),
    )


def _rates(uses: Sequence[Use], metrics: RunMetrics) -> list[Quantity]:
    """Measured throughput of each job."""
    workers = {worker.slice_index: worker.throughput_samples_s for worker in metrics.workers}
    missing = Quantity.missing(metrics.reason or "the worker was not recorded")
    return [workers.get(use.slice_index, missing) for use in uses]


def _alone(table: Table, use: Use, reference: str) -> Use:
    measured = table.measured(use.job.workload, reference, neighbours=False)
    assert measured is not None
    return Use(use.job, 0, measured)


def _sum(parts: Sequence[Quantity]) -> Quantity:
    """The sum, if all parts are there."""
    for part in parts:
        if part.value is None:
            return part
    return Quantity.of(sum(part.value or 0.0 for part in parts))


def _over(power_w: Quantity, progress: Quantity, before_w: Range | None) -> Quantity:
    """Mean power over what the reference needs for the work of one second, W."""
    for part in (power_w, progress):
        if part.value is None:
            return part
    if before_w is None or power_w.value is None or before_w.value <= 0.0:
        return Quantity.missing("nothing was done")
    return Quantity.of(power_w.value / before_w.value)


def _compared(
    name: FigureName, unit: str, predicted: Range, measured: Quantity, **labels: str
) -> Compared:
    value = measured.value if measured.value is not None and measured.value > 0 else None
    return Compared(
        name=name,
        unit=unit,
        predicted=predicted.value,
        low=predicted.low,
        high=predicted.high,
        measured=measured.value,
        error=None if value is None else predicted.value / value - 1.0,
        inside=None if value is None else predicted.low <= value <= predicted.high,
        reason=None if value is not None else measured.reason or "nothing was done",
        **labels,
    )


def summarise(runs: Iterable[ValidatedRun]) -> tuple[Summary, ...]:
    """Errors by figure over all runs."""
    errors: dict[str, list[tuple[float, bool]]] = {}
    for run in runs:
        for figure in run.figures:
            if figure.error is not None:
                errors.setdefault(figure.name, []).append((figure.error, bool(figure.inside)))
    return tuple(
        Summary(
            name=name,
            n=len(found),
            median_abs_error=median(abs(error) for error, _ in found),
            largest_abs_error=max(abs(error) for error, _ in found),
            median_error=median(error for error, _ in found),
            inside=sum(inside for _, inside in found),
        )
        for name, found in errors.items()
    )


def best_is_best(runs: Sequence[ValidatedRun], objective: str) -> bool | None:
    """Whether the layout predicted best measured best of those that were run; None if unknown."""
    merits: dict[tuple[str, tuple[str, ...]], list[float]] = {}
    best: tuple[str, tuple[str, ...]] | None = None
    for run in runs:
        have = {figure.name: figure.measured for figure in run.figures}
        progress, power = have.get("progress"), have.get("mean_power")
        if progress is None or (objective == "samples-per-joule" and not power):
            return None
        key = (run.layout, run.workloads)
        merit = progress if objective == "throughput" or power is None else progress / power
        merits.setdefault(key, []).append(merit)
        best = key if run.role == "best" else best
    if best is None or len(merits) < 2:
        return None
    middles = {key: median(values) for key, values in merits.items()}
    return middles[best] == max(middles.values())
