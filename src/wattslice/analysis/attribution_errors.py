"""How far each rule of attribution is from Shapley shares, in runs whose subsets were measured.

A run has a reference if there are runs on the same board, in the same layout, precision and
repeat, of every subset of its jobs (a workload on a slice of a profile): solo runs are the single
jobs, mixes that leave slices empty the rest, and the idle power is the empty subset. Runs differ
in length, so a subset counts with its mean power over the window of the run in question.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from wattslice.analysis.attribution import (
    MAX_SHAPLEY_SLICES,
    Attribution,
    AttributionError,
    errors_against,
    shapley,
)
from wattslice.analysis.collect import CollectedRun
from wattslice.analysis.shares import ATTRIBUTIONS, EnergyShares, energy_shares
from wattslice.records.run import MEASURED_OUTCOMES

Job = tuple[str, str]  # profile of the slice, workload
# Layout, precision, repeat and board; the busy slices' jobs in order.
Subset = tuple[tuple[str, str, int, str | None], tuple[Job, ...]]


class _Measured(NamedTuple):
    """A run that shows what the board draws with one subset of jobs."""

    run_id: str
    mean_w: float


def attribution_rows(runs: Sequence[CollectedRun]) -> list[dict[str, Any]]:
    """A row per run with several busy slices, slice and rule; without an error it has a reason."""
    usable = [run for run in runs if _usable(run)]
    measured = {
        _subset(run, _jobs(run).values()): _Measured(run.metrics.run_id, mean_w)
        for run in usable
        if (mean_w := run.metrics.mean_power_w.value) is not None
    }
    rows = []
    for run in usable:
        shares = energy_shares(run)
        if len(_jobs(run)) > 1 and shares.by_rule:
            rows += _rows(run, shares, measured)
    return rows


def _usable(run: CollectedRun) -> bool:
    """Whether the energy is that of all its workers, each on a slice, and no check rejects it."""
    metrics, record = run.metrics, run.record
    return (
        record.outcome in MEASURED_OUTCOMES
        and (record.simulated or metrics.quality.reject_reason("run", "energy") is None)
        and all(worker.samples.value is not None for worker in metrics.workers)
        and len(_jobs(run)) == len(metrics.workers)
    )


def _jobs(run: CollectedRun) -> dict[int, Job]:
    """What ran on each busy slice, by its index."""
    return {worker.slice_index: (worker.profile, worker.workload) for worker in run.metrics.workers}


def _subset(run: CollectedRun, jobs: Iterable[Job]) -> Subset:
    metrics = run.metrics
    block = (metrics.layout, metrics.precision, metrics.repeat, metrics.board_uuid)
    return block, tuple(sorted(jobs))


def _reference(
    run: CollectedRun, board_j: float, window_s: float, measured: Mapping[Subset, _Measured]
) -> tuple[Attribution, tuple[str, ...]]:
    """Shapley shares of a run, or why there are none, and the other runs that they rest on."""
    jobs, energy = _jobs(run), run.metrics.energy
    idle_w = None if energy is None else energy.idle_w

    def refuse(reason: str) -> Attribution:
        return Attribution(
            method="shapley", board_j=board_j, idle_j=None, shares_j=None, reason=reason
        )

    if len(jobs) > MAX_SHAPLEY_SLICES:
        return refuse(f"{len(jobs)} busy slices have {2 ** len(jobs)} subsets"), ()
    if idle_w is None:
        return refuse("the idle power of the layout is not known"), ()
    wanted = {
        frozenset(chosen): _subset(run, [jobs[index] for index in chosen])
        for size in range(1, len(jobs))
        for chosen in itertools.combinations(jobs, size)
    }
    had = {subset: measured[subset] for subset in wanted.values() if subset in measured}
    others = tuple(sorted(found.run_id for found in had.values()))
    different = len(set(wanted.values()))
    if len(had) < different:
        return refuse(f"{len(had)} of {different} subsets of its jobs were measured"), others
    subset_j = {chosen: had[subset].mean_w * window_s for chosen, subset in wanted.items()}
    subset_j |= {frozenset(): idle_w * window_s, frozenset(jobs): board_j}
    return shapley(subset_j), others


def _errors(
    run: CollectedRun, reference: Attribution, shares: EnergyShares
) -> dict[str, AttributionError]:
    """Errors of the rules that have shares, by rule; none without a reference."""
    if reference.shares_j is None or run.record.layout_state is None:
        return {}
    # A slice without a worker takes no part; the rules list it with nothing.
    slices = dict.fromkeys((state.index for state in run.record.layout_state.slices), 0.0)
    whole = reference.model_copy(update={"shares_j": slices | reference.shares_j})
    return {error.method: error for error in errors_against(whole, shares.by_rule.values())}


def _rows(
    run: CollectedRun, shares: EnergyShares, measured: Mapping[Subset, _Measured]
) -> list[dict[str, Any]]:
    metrics, energy = run.metrics, run.metrics.energy
    assert energy is not None  # there are no shares without
    assert energy.gross_j is not None
    reference, others = _reference(run, energy.gross_j, energy.window_s, measured)
    errors = _errors(run, reference, shares)
    common = {
        "run_id": metrics.run_id,
        "layout": metrics.layout,
        "placement": metrics.placement,
        "precision": metrics.precision,
        "repeat": metrics.repeat,
        "simulated": metrics.simulated,
        "modelled": energy.modelled,
        "subset_runs": ";".join(others) or None,
    }
    rows = []
    for worker in sorted(metrics.workers, key=lambda worker: worker.slice_index):
        index = worker.slice_index
        for method in ATTRIBUTIONS:
            row = common | {
                "slice_index": index,
                "slice": worker.slice_name,
                "workload": worker.workload,
                "method": method,
                "estimate_j": shares.of(method, index),
                "shapley_j": None if reference.shares_j is None else reference.shares_j[index],
            }
            if method in errors:
                row["error_j"] = errors[method].error_j[index]
                row["relative_error"] = errors[method].relative_error.get(index)
            else:
                row["error_reason"] = reference.reason or shares.by_rule[method].reason
            rows.append(row)
    return rows
