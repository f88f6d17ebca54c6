"""Tidy tables of a campaign: runs, slices, summary with intervals; equal input, equal bytes.

`runs` has a row per run, `slices` one per worker, `cells` one per run and workload (a mix has
several), `summary` one per layout x placement x workload x precision with the median over repeats
and its bootstrap interval. A null figure has its reason in the column `<figure>_reason`.

No value is dropped for being far from the others. A run that a named quality check rejects (see
`wattslice.analysis.quality`) keeps its figures in `runs` and `slices`, and has none in `cells` and
`summary`: it enters no median, ratio or claim, and the reason names the check. Runs on a simulated
board keep them, as a rehearsal is there to show the whole report and no claim rests on it.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import ValidationError

from wattslice.analysis.attribution import Attribution, Method, SliceUse, attribute
from wattslice.analysis.raw import read_run
from wattslice.analysis.statistics import estimate
from wattslice.config.spec import Assignment, RunSpec
from wattslice.files import replacing, sha256_file
from wattslice.records.board import SliceState
from wattslice.records.metrics import RunMetrics, WorkerMetrics
from wattslice.records.run import MEASURED_OUTCOMES, SM_ACTIVITY, ActivityReading, RunRecord

TABLES = ("runs", "slices", "cells", "summary")
# Figures of a run and workload that the summary gives with an interval, and their units.
FIGURE_UNITS: dict[str, str] = {
    "throughput_samples_s": "samples/s",
    "throughput_tokens_s": "tokens/s",
    "samples_per_j": "samples/J",
    "samples_per_net_j": "samples/J",
    "mean_power_w": "W",
    "idle_w": "W",
    "step_p50_s": "s",
    "step_p95_s": "s",
    "peak_memory_mib": "MiB",
    "data_wait_share": "1",
}
KEY = ("layout", "placement", "workload", "precision")
ENERGY_FIGURES = ("samples_per_j", "samples_per_net_j", "mean_power_w", "idle_w")
# Rules by which energy of slices is estimated, the best that there are readings for first: size x
# activity is nearest to the measured marginal energies, and size alone needs no readings.
ATTRIBUTIONS: tuple[Method, ...] = ("slice-activity", "slice-share", "activity")
# Between the messages of several findings.
WHY_SEPARATOR = " | "
_CSV_FLOAT = "%.9g"


class Expected(NamedTuple):
    """A run that the campaign asks for, and the digests that its record must have."""

    run_id: str
    spec_digest: str
    code_digest: str


class DigestMismatchError(ValueError):
    """A record on disk is not of the run that the campaign asks for."""


@dataclass(frozen=True, slots=True)
class CollectedRun:
    """A run's record with its figures."""

    record: RunRecord
    metrics: RunMetrics
    spec: RunSpec


def read_expected(path: Path) -> list[Expected]:
    """Read the runs of campaign.json, or a JSON list of {run_id, spec_digest, code_digest}."""
    content = json.loads(path.read_text(encoding="utf-8"))
    rows = content["runs"] if isinstance(content, dict) else content
    return [
        Expected(row["run_id"], row["spec_digest"], row["code_digest"])
        if isinstance(row, dict)
        else Expected(*row)
        for row in rows
    ]


def collect(campaign_dir: Path, expected: Sequence[Expected]) -> list[CollectedRun]:
    """Read the expected runs of results/<campaign>, in the order of their ids.

    Raises DigestMismatchError where a record was made of another spec or by other code, or its
    metrics.json of another run.json; RawFileError or FileNotFoundError where a file is missing.
    """
    runs = []
    for want in sorted(expected):
        run_dir = campaign_dir / "runs" / want.run_id
        record = read_run(run_dir)
        if record.run_id != want.run_id:
            raise DigestMismatchError(f"{run_dir}/run.json is the record of {record.run_id}")
        _check_digest(want.run_id, "spec digest", record.spec_digest, want.spec_digest)
        _check_digest(want.run_id, "code digest", record.code_digest, want.code_digest)
        spec = RunSpec.model_validate(record.spec)
        _check_digest(want.run_id, "spec in run.json", spec.digest(), record.spec_digest)
        metrics = _read_metrics(run_dir / "metrics.json")
        run_sha256 = sha256_file(run_dir / "run.json")
        if metrics.run_sha256 != run_sha256:
            raise DigestMismatchError(
                f"{want.run_id}: metrics.json was made of a run.json with sha256 "
                f"{metrics.run_sha256}, the one on disk has {run_sha256}; delete metrics.json so "
                "that it is made again"
            )
        runs.append(CollectedRun(record, metrics, spec))
    return runs


def _check_digest(run_id: str, which: str, found: str, wanted: str) -> None:
    if found == wanted:
        return
    raise DigestMismatchError(
        f"{run_id}: the {which} of the record is {found}, the campaign asks for {wanted}; the "
        f"record is of another version of the campaign: delete the folder runs/{run_id} to repeat "
        "the run, or check out the config and code that made it"
    )


def _read_metrics(path: Path) -> RunMetrics:
    try:
        return RunMetrics.model_validate_json(path.read_bytes())
    except FileNotFoundError as fault:
        raise FileNotFoundError(f"{path} is missing: make the run's metrics first") from fault
    except ValidationError as fault:
        raise ValueError(f"{path} is not a metrics record; delete it: {fault}") from fault


# --- rows ------------------------------------------------------------------------------------


def _labels(run: CollectedRun) -> dict[str, Any]:
    metrics = run.metrics
    return {
        "run_id": metrics.run_id,
        "layout": metrics.layout,
        "placement": metrics.placement,
        "kind": placement_kind(metrics.placement),
        "precision": metrics.precision,
        "repeat": metrics.repeat,
        "outcome": metrics.outcome,
        "reason": metrics.reason,
        "simulated": metrics.simulated,
    }


def placement_kind(placement: str) -> str:
    """`solo`, `fill` or `mix`, of a placement label such as `resnet.solo.1c` or `mix.both`."""
    if placement.startswith("mix."):
        return "mix"
    parts = placement.split(".")
    return parts[1] if len(parts) > 1 else placement


def _rejected(run: CollectedRun, *concerns: str) -> str | None:
    """Why figures of a measured run may not be used by the checks; None where they may."""
    if run.record.simulated or run.record.outcome not in MEASURED_OUTCOMES:
        return None
    return run.metrics.quality.reject_reason(*concerns)


def _modelled(run: CollectedRun) -> bool:
    return run.metrics.energy is not None and run.metrics.energy.modelled


def _energy_labels(run: CollectedRun) -> dict[str, Any]:
    energy = run.metrics.energy
    return {
        "modelled": _modelled(run),
        "energy_scope": None if energy is None else energy.scope,
        "energy_method": None if energy is None else energy.method,
    }


def _run_row(run: CollectedRun) -> dict[str, Any]:
    metrics, record, energy = run.metrics, run.record, run.metrics.energy
    steady = [w.warmup_steady for w in metrics.workers]
    quality = metrics.quality
    window_s = metrics.window_s.value
    row = _labels(run) | {
        "badge": quality.badge,
        # In the order of the rejects and then the flags below.
        "quality_why": WHY_SEPARATOR.join(f.message for f in quality.findings) or None,
        "quality_rejects": ";".join(f.check for f in quality.findings if f.severity == "reject"),
        "quality_flags": ";".join(f.check for f in quality.findings if f.severity == "flag"),
        "quality_skipped": ";".join(quality.skipped),
        "workload": metrics.workload,
        "workers": len(metrics.workers),
        "window_s": metrics.window_s.value,
        "samples": metrics.samples.value,
        "throughput_samples_s": metrics.throughput_samples_s.value,
        "throughput_tokens_s": metrics.throughput_tokens_s.value,
        "throughput_reason": metrics.throughput_samples_s.reason,
        "step_p50_s": metrics.step_p50_s.value,
        "step_p95_s": metrics.step_p95_s.value,
    }
    row |= _energy_labels(run) | {
        "gross_j": None if energy is None else energy.gross_j,
        "net_j": None if energy is None else energy.net_j,
        "idle_w": None if energy is None else energy.idle_w,
        "idle_j": None
        if energy is None or energy.idle_w is None or window_s is None
        else energy.idle_w * window_s,
        "mean_power_w": metrics.mean_power_w.value,
        "samples_per_j": metrics.samples_per_j.value,
        "samples_per_j_reason": metrics.samples_per_j.reason,
        "samples_per_net_j": metrics.samples_per_net_j.value,
        "j_per_sample": metrics.j_per_sample.value,
        "energy_uncertainty_j": None if energy is None else energy.uncertainty_j,
        "counter_integral_disagreement": None if energy is None else energy.disagreement,
        "power_samples": None if energy is None else energy.samples,
        "power_coverage": None if energy is None else energy.coverage,
        "energy_flags": None if energy is None else ";".join(energy.flags),
        "warmup_steady": None if not steady or None in steady else all(steady),
        "conservation_ok": None if metrics.conservation is None else metrics.conservation.ok,
        "board": None if record.board is None else record.board.name,
        "board_kind": None if record.board is None else record.board.kind,
        "board_uuid": metrics.board_uuid,
        "host": None if record.board is None else record.board.host,
        "attempt": record.attempt,
        "started_utc": record.started_utc,
        "ended_utc": record.ended_utc,
        "git_commit": _text(record.git.get("commit")),
        "git_dirty": _flag(record.git.get("dirty")),
        "environment_digest": record.environment_digest,
        "spec_digest": record.spec_digest,
        "code_digest": record.code_digest,
    }
    return row


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def _flag(value: object) -> bool | None:
    return None if value is None else bool(value)


def compute_units(state: SliceState) -> tuple[int | None, str | None]:
    """Size of a slice and its unit: SMs, CPU cores, or compute slices by its profile's name."""
    if state.sm_count:
        return state.sm_count, "SM"
    if state.cores:
        return len(state.cores), "core"
    match = re.match(r"(\d+)g\b", state.profile.removeprefix("1c."))
    return (int(match[1]), "compute slice") if match else (None, None)


def _activities(record: RunRecord) -> dict[int, ActivityReading]:
    """SM activity of each slice that was asked for one, by index."""
    return {
        reading.slice_index: reading
        for reading in record.activities
        if reading.slice_index is not None and reading.metric == SM_ACTIVITY
    }


class _Shares(NamedTuple):
    """Estimates of the energy above idle of each busy slice, by every rule that can be had."""

    by_rule: dict[Method, Attribution]
    reason: str | None = None  # why there is none at all
    activity_notes: tuple[str, ...] = ()

    @property
    def chosen(self) -> Attribution | None:
        """By the best rule, whose name goes with the numbers."""
        had = (self.by_rule.get(method) for method in ATTRIBUTIONS)
        return next((found for found in had if found and found.shares_j is not None), None)

    @property
    def note(self) -> str | None:
        chosen, best = self.chosen, self.by_rule.get(ATTRIBUTIONS[0])
        if chosen is None:
            return self.reason or (None if best is None else best.reason)
        fallback = []
        if best is not None and best.reason is not None:
            fallback = [f"no activity data, so by {chosen.method}: {best.reason}"]
        notes = chosen.notes if chosen.method == "slice-share" else self.activity_notes
        return "; ".join(dict.fromkeys([*fallback, *chosen.notes, *notes])) or None

    def of(self, method: Method, index: int) -> float | None:
        """Energy of a slice by a rule, J; None where the rule had no readings."""
        found = self.by_rule.get(method)
        return None if found is None or found.shares_j is None else found.shares_j.get(index)


def _energy_shares(run: CollectedRun) -> _Shares:
    state, energy = run.record.layout_state, run.metrics.energy
    if state is None or len(state.slices) < 2:
        return _Shares({}, "one slice: the energy of the board is that of the run")
    if energy is None or energy.gross_j is None:
        return _Shares({}, run.metrics.energy_reason or "no energy")
    activities = _activities(run.record)
    busy = {worker.slice_index for worker in run.metrics.workers}
    uses = []
    for own in state.slices:
        units, _ = compute_units(own)
        if units is None:
            return _Shares({}, f"the size of slice {own.index} ({own.profile}) is not known")
        reading = activities.get(own.index)
        activity = None if reading is None else reading.value
        uses.append(SliceUse(own.index, float(units), own.index in busy, activity))
    idle_j = None if energy.idle_w is None else energy.idle_w * energy.window_s
    sources = sorted({f"{r.source} {r.metric}" for r in activities.values()})
    return _Shares(
        {
            method: attribute(
                method, energy.gross_j, idle_j, uses, activity_source=", ".join(sources) or None
            )
            for method in ATTRIBUTIONS
        },
        activity_notes=tuple(note for r in activities.values() for note in r.notes),
    )


def _worker_row(run: CollectedRun, worker: WorkerMetrics, shares: _Shares) -> dict[str, Any]:
    state = run.record.layout_state
    own = next((s for s in state.slices if s.index == worker.slice_index), None) if state else None
    units, unit = compute_units(own) if own is not None else (None, None)
    record = next((w for w in run.record.workers if w.slice.index == worker.slice_index), None)
    memory = None if record is None else record.memory
    chosen = shares.chosen
    share_j = None if chosen is None else shares.of(chosen.method, worker.slice_index)
    activity = _activities(run.record).get(worker.slice_index)
    samples = worker.samples.value
    return _labels(run) | {
        "badge": run.metrics.quality.badge,
        "board_uuid": run.metrics.board_uuid,
        "compute_units": units,
        "compute_unit": unit,
        "memory_limit_mib": None if own is None else own.memory_mib,
        "rss_base_mib": None if memory is None else memory.rss_base_mib,
        "rss_mib": None if memory is None else memory.rss_mib,
        "cuda_allocated_mib": None if memory is None else memory.cuda_allocated_mib,
        "cuda_reserved_mib": None if memory is None else memory.cuda_reserved_mib,
        "energy_estimate_j": share_j,
        "samples_per_j_estimate": samples / share_j if samples and share_j else None,
        "energy_estimate_method": None if share_j is None or chosen is None else chosen.method,
        "energy_estimate_note": shares.note,
        "energy_by_slice_share_j": shares.of("slice-share", worker.slice_index),
        "energy_by_activity_j": shares.of("activity", worker.slice_index),
        "energy_by_slice_activity_j": shares.of("slice-activity", worker.slice_index),
        "activity": None if activity is None else activity.value,
        "activity_reason": "not recorded" if activity is None else activity.reason,
        **_energy_labels(run),
        "slice_index": worker.slice_index,
        "slice": worker.slice_name,
        "profile": worker.profile,
        "workload": worker.workload,
        "worker_outcome": worker.outcome,
        "worker_reason": worker.reason,
        "device": worker.device,
        "threads": worker.threads,
        "batch_size": worker.batch_size,
        "sample_unit": worker.sample_unit,
        "parameters": worker.parameters,
        "warmup_steady": worker.warmup_steady,
        "steps": worker.steps.value,
        "samples": worker.samples.value,
        "throughput_samples_s": worker.throughput_samples_s.value,
        "throughput_tokens_s": worker.throughput_tokens_s.value,
        "throughput_reason": worker.throughput_samples_s.reason,
        "step_p50_s": worker.step_p50_s.value,
        "step_p95_s": worker.step_p95_s.value,
        "data_wait_share": worker.data_wait_share.value,
        "peak_memory_mib": worker.peak_memory_mib.value,
        "peak_memory_source": worker.peak_memory_source,
        "peak_memory_reason": worker.peak_memory_mib.reason,
        "loss_first": worker.loss_first,
        "loss_last": worker.loss_last,
    }


def _definitions(spec: RunSpec) -> dict[str, Assignment]:
    return {assignment.workload: assignment for assignment in spec.assignments}


def _cell_rows(run: CollectedRun) -> list[dict[str, Any]]:
    """A row per workload of the run. Energy per sample of a mix is null: its energy is shared."""
    metrics = run.metrics
    no_run, no_energy = _rejected(run, "run"), _rejected(run, "run", "energy")
    rows = []
    for name, assignment in sorted(_definitions(run.spec).items()):
        own = [worker for worker in metrics.workers if worker.workload == name]
        alone = metrics.workload == name
        row = _labels(run) | {
            "workload": name,
            "framework": assignment.definition.get("framework"),
            "model": assignment.definition.get("model"),
            "task": assignment.definition.get("task"),
            "mode": assignment.definition.get("mode"),
            "data": _text(assignment.definition.get("data_name")),
            "batch_size": assignment.definition.get("batch_size"),
            "sequence_length": _of_data(assignment, "sequence_length"),
            "image_size": _of_data(assignment, "image_size"),
            "checkpointing": bool(assignment.definition.get("gradient_checkpointing")),
            "sharing": _sharing(run),
            "layers": _layers(assignment),
            "parameters": next((w.parameters for w in own if w.parameters is not None), None),
            "fits": _fits(run, own),
            "compute_units": _cell_units(own, run),
            "badge": metrics.quality.badge,
            "board": None if run.record.board is None else run.record.board.name,
            "board_kind": None if run.record.board is None else run.record.board.kind,
            "board_uuid": metrics.board_uuid,
            "workers": len(own),
        }
        missing = metrics.throughput_samples_s.reason or "no worker of this workload was recorded"
        values = {
            figure: _added(w_values) if own else (None, missing)
            for figure, w_values in (
                ("throughput_samples_s", [w.throughput_samples_s for w in own]),
                ("throughput_tokens_s", [w.throughput_tokens_s for w in own]),
            )
        }
        shared = (None, "a mix: the energy of the board is not that of one workload")
        for figure in ("samples_per_j", "samples_per_net_j"):
            quantity = getattr(metrics, figure)
            values[figure] = (quantity.value, quantity.reason) if alone or not own else shared
        values["mean_power_w"] = (metrics.mean_power_w.value, metrics.mean_power_w.reason)
        values["idle_w"] = _idle_w(metrics)
        for figure in ("step_p50_s", "step_p95_s"):
            quantity = getattr(metrics, figure)
            values[figure] = (
                (quantity.value, quantity.reason)
                if alone
                else _largest([getattr(w, figure) for w in own], missing)
            )
        for figure in ("peak_memory_mib", "data_wait_share"):
            values[figure] = _largest([getattr(w, figure) for w in own], missing)
        sources = sorted({w.peak_memory_source for w in own if w.peak_memory_source})
        row["peak_memory_source"] = ",".join(sources) or None
        row |= _energy_labels(run)
        for figure in FIGURE_UNITS:
            value, reason = values[figure]
            why = no_energy if figure in ENERGY_FIGURES else no_run
            if why is not None and value is not None:
                value, reason = None, why
            row[figure], row[f"{figure}_reason"] = value, reason
        row["status"] = "rejected" if no_run is not None else metrics.outcome
        rows.append(row)
    return rows


def _idle_w(metrics: RunMetrics) -> tuple[float | None, str | None]:
    energy = metrics.energy
    if energy is None or energy.idle_w is None:
        return None, metrics.energy_reason or "the idle power of the layout is not known"
    return energy.idle_w, None


def _of_data(assignment: Assignment, key: str) -> int | None:
    data = assignment.definition.get("data")
    value = data.get(key) if isinstance(data, Mapping) else None
    return value if isinstance(value, int) else None


def _sharing(run: CollectedRun) -> str:
    """How several workers share the board: a partition each, or a scheme without partitions."""
    sharing = run.record.spec.get("sharing")
    return str(sharing.get("scheme")) if isinstance(sharing, Mapping) else "partition"


def _layers(assignment: Assignment) -> int | None:
    """Number of layers that the definition asks for; None where it leaves that to the library."""
    arguments = assignment.definition.get("model_args")
    if not isinstance(arguments, Mapping):
        return None
    for key in ("num_hidden_layers", "n_layers", "n_layer", "depth"):
        value = arguments.get(key)
        if isinstance(value, int):
            return value
    return None


def _cell_units(own: Sequence[WorkerMetrics], run: CollectedRun) -> int | None:
    """Size of the slices that a workload has in a run, together; see `compute_units`."""
    state = run.record.layout_state
    if state is None or not own:
        return None
    indices = {worker.slice_index for worker in own}
    sizes = [compute_units(s)[0] for s in state.slices if s.index in indices]
    return None if None in sizes else sum(size for size in sizes if size is not None)


def _fits(run: CollectedRun, own: Sequence[WorkerMetrics]) -> float | None:
    """1: trained; 0: did not fit into the memory of its slice; None: neither is known."""
    # A run may count without a worker that was lost (measure.allow_partial): ask the workers first.
    if any(worker.outcome == "oom" for worker in own):
        return 0.0
    if run.record.outcome in MEASURED_OUTCOMES:
        return 1.0 if all(worker.samples.value is not None for worker in own) else None
    if own:
        return None
    return 0.0 if run.record.outcome == "oom" else None


def _added(quantities: Iterable[Any]) -> tuple[float | None, str | None]:
    total = 0.0
    for quantity in quantities:
        if quantity.value is None:
            return None, quantity.reason
        total += quantity.value
    return total, None


def _largest(quantities: Sequence[Any], missing: str) -> tuple[float | None, str | None]:
    values = [quantity.value for quantity in quantities if quantity.value is not None]
    if values:
        return max(values), None
    return None, next((q.reason for q in quantities if q.reason), missing)


def _summary_rows(cells: Sequence[Mapping[str, Any]], confidence: float) -> list[dict[str, Any]]:
    groups: dict[tuple[str, ...], list[Mapping[str, Any]]] = {}
    for cell in cells:
        groups.setdefault(tuple(cell[key] for key in KEY), []).append(cell)
    rows = []
    for key, members in sorted(groups.items()):
        row: dict[str, Any] = dict(zip(KEY, key, strict=True))
        first = members[0]
        counts = Counter(member["status"] for member in members)
        measured = [m for m in members if m["throughput_samples_s"] is not None]
        row |= {
            "kind": first["kind"],
            "framework": first["framework"],
            "model": first["model"],
            "task": first["task"],
            "mode": first["mode"],
            "runs": len(members),
            "n": len(measured),
            "outcomes": ";".join(f"{name}={counts[name]}" for name in sorted(counts)),
            "simulated": any(m["simulated"] for m in members),
            "modelled": any(m["modelled"] for m in members),
            "energy_scope": _joined(m["energy_scope"] for m in members),
            "energy_method": _joined(m["energy_method"] for m in members),
            "peak_memory_source": _joined(m["peak_memory_source"] for m in members),
        }
        for figure in FIGURE_UNITS:
            row |= _summary_figure(figure, members, confidence)
        rows.append(row)
    return rows


def _summary_figure(
    figure: str, members: Sequence[Mapping[str, Any]], confidence: float
) -> dict[str, Any]:
    values = [member[figure] for member in members if member[figure] is not None]
    result = estimate(values, confidence)
    reason = None
    if not values:
        reasons = sorted({str(m[f"{figure}_reason"]) for m in members if m[f"{figure}_reason"]})
        reason = "; ".join(reasons) or result.reason
    return {
        figure: result.value,
        f"{figure}_low": result.low,
        f"{figure}_high": result.high,
        f"{figure}_n": result.n,
        f"{figure}_reason": reason,
        f"{figure}_note": result.reason if values else None or result.note,
    }


def _joined(values: Iterable[str | None]) -> str | None:
    return ",".join(sorted({value for value in values if value is not None})) or None


# --- tables ----------------------------------------------------------------------------------

_TEXT, _REAL, _INT, _BOOL = "string", "Float64", "Int64", "boolean"
_LABELS = {
    "run_id": _TEXT,
    "layout": _TEXT,
    "placement": _TEXT,
    "kind": _TEXT,
    "precision": _TEXT,
    "repeat": _INT,
    "outcome": _TEXT,
    "reason": _TEXT,
    "simulated": _BOOL,
}
_ENERGY = {"modelled": _BOOL, "energy_scope": _TEXT, "energy_method": _TEXT}
COLUMNS: dict[str, dict[str, str]] = {
    "runs": {
        **_LABELS,
        "badge": _TEXT,
        "quality_why": _TEXT,
        "quality_rejects": _TEXT,
        "quality_flags": _TEXT,
        "quality_skipped": _TEXT,
        "workload": _TEXT,
        "workers": _INT,
        "window_s": _REAL,
        "samples": _REAL,
        "throughput_samples_s": _REAL,
        "throughput_tokens_s": _REAL,
        "throughput_reason": _TEXT,
        "step_p50_s": _REAL,
        "step_p95_s": _REAL,
        **_ENERGY,
        "gross_j": _REAL,
        "net_j": _REAL,
        "idle_w": _REAL,
        "idle_j": _REAL,
        "mean_power_w": _REAL,
        "samples_per_j": _REAL,
        "samples_per_j_reason": _TEXT,
        "samples_per_net_j": _REAL,
        "j_per_sample": _REAL,
        "energy_uncertainty_j": _REAL,
        "counter_integral_disagreement": _REAL,
        "power_samples": _INT,
        "power_coverage": _REAL,
        "energy_flags": _TEXT,
        "warmup_steady": _BOOL,
        "conservation_ok": _BOOL,
        "board": _TEXT,
        "board_kind": _TEXT,
        "board_uuid": _TEXT,
        "host": _TEXT,
        "attempt": _INT,
        "started_utc": _TEXT,
        "ended_utc": _TEXT,
        "git_commit": _TEXT,
        "git_dirty": _BOOL,
        "environment_digest": _TEXT,
        "spec_digest": _TEXT,
        "code_digest": _TEXT,
    },
    "slices": {
        **_LABELS,
        "slice_index": _INT,
        "slice": _TEXT,
        "profile": _TEXT,
        "workload": _TEXT,
        "worker_outcome": _TEXT,
        "worker_reason": _TEXT,
        "device": _TEXT,
        "threads": _INT,
        "batch_size": _INT,
        "sample_unit": _TEXT,
        "parameters": _INT,
        "warmup_steady": _BOOL,
        "steps": _REAL,
        "samples": _REAL,
        "throughput_samples_s": _REAL,
        "throughput_tokens_s": _REAL,
        "throughput_reason": _TEXT,
        "step_p50_s": _REAL,
        "step_p95_s": _REAL,
        "data_wait_share": _REAL,
        "peak_memory_mib": _REAL,
        "peak_memory_source": _TEXT,
        "peak_memory_reason": _TEXT,
        "loss_first": _REAL,
        "loss_last": _REAL,
        "badge": _TEXT,
        "board_uuid": _TEXT,
        "compute_units": _INT,
        "compute_unit": _TEXT,
        "memory_limit_mib": _INT,
        "rss_base_mib": _REAL,
        "rss_mib": _REAL,
        "cuda_allocated_mib": _REAL,
        "cuda_reserved_mib": _REAL,
        **_ENERGY,
        "energy_estimate_j": _REAL,
        "samples_per_j_estimate": _REAL,
        "energy_estimate_method": _TEXT,
        "energy_estimate_note": _TEXT,
        "energy_by_slice_share_j": _REAL,
        "energy_by_activity_j": _REAL,
        "energy_by_slice_activity_j": _REAL,
        "activity": _REAL,
        "activity_reason": _TEXT,
    },
    "cells": {
        **_LABELS,
        "status": _TEXT,
        "badge": _TEXT,
        "workload": _TEXT,
        "framework": _TEXT,
        "model": _TEXT,
        "task": _TEXT,
        "mode": _TEXT,
        "data": _TEXT,
        "batch_size": _INT,
        "sequence_length": _INT,
        "image_size": _INT,
        "checkpointing": _BOOL,
        "sharing": _TEXT,
        "layers": _INT,
        "parameters": _INT,
        "fits": _REAL,
        "compute_units": _INT,
        "board": _TEXT,
        "board_kind": _TEXT,
        "board_uuid": _TEXT,
        "workers": _INT,
        **_ENERGY,
        "peak_memory_source": _TEXT,
        **{
            name: kind
            for figure in FIGURE_UNITS
            for name, kind in ((figure, _REAL), (f"{figure}_reason", _TEXT))
        },
    },
    "summary": {
        **dict.fromkeys(KEY, _TEXT),
        "kind": _TEXT,
        "framework": _TEXT,
        "model": _TEXT,
        "task": _TEXT,
        "mode": _TEXT,
        "runs": _INT,
        "n": _INT,
        "outcomes": _TEXT,
        "simulated": _BOOL,
        **_ENERGY,
        "peak_memory_source": _TEXT,
        **{
            name: kind
            for figure in FIGURE_UNITS
            for name, kind in (
                (figure, _REAL),
                (f"{figure}_low", _REAL),
                (f"{figure}_high", _REAL),
                (f"{figure}_n", _INT),
                (f"{figure}_reason", _TEXT),
                (f"{figure}_note", _TEXT),
            )
        },
    },
}


def _frame(name: str, rows: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    columns = COLUMNS[name]
    return pd.DataFrame(
        {
            column: pd.array([row.get(column) for row in rows], dtype=kind)  # type: ignore[call-overload]
            for column, kind in columns.items()
        },
        columns=list(columns),
    )


def tables(runs: Sequence[CollectedRun], confidence: float = 0.95) -> dict[str, pd.DataFrame]:
    """The tables of a campaign, rows sorted by run id (and slice, workload), columns fixed."""
    ordered = sorted(runs, key=lambda run: run.record.run_id)
    cells = [row for run in ordered for row in _cell_rows(run)]
    rows: dict[str, list[dict[str, Any]]] = {
        "runs": [_run_row(run) for run in ordered],
        "slices": [
            _worker_row(run, worker, shares)
            for run in ordered
            for shares in (_energy_shares(run),)
            for worker in sorted(run.metrics.workers, key=lambda w: w.slice_index)
        ],
        "cells": cells,
        "summary": _summary_rows(cells, confidence),
    }
    return {name: _frame(name, rows[name]) for name in TABLES}


def write_frame(frame: pd.DataFrame, stem: Path) -> tuple[Path, Path]:
    """Write <stem>.parquet and <stem>.csv; equal frames give equal bytes."""
    parquet, csv = stem.with_suffix(".parquet"), stem.with_suffix(".csv")
    table = pa.Table.from_pandas(frame, preserve_index=False).replace_schema_metadata(None)
    with replacing(parquet) as temporary:
        pq.write_table(table, temporary, compression="zstd")
    with replacing(csv) as temporary:
        frame.to_csv(
            temporary, index=False, float_format=_CSV_FLOAT, lineterminator="\n", encoding="utf-8"
        )
    return parquet, csv


def read_tables(tables_dir: Path) -> dict[str, pd.DataFrame]:
    """Read the tables that `write_tables` wrote, with the types of `COLUMNS`."""
    frames = {}
    for name in TABLES:
        path = tables_dir / f"{name}.parquet"
        frame = pq.read_table(path, partitioning=None).to_pandas()
        frames[name] = frame.astype(COLUMNS[name])
    return frames


def write_tables(
    campaign_dir: Path, expected_json: Path, out_dir: Path, confidence: float = 0.95
) -> dict[str, pd.DataFrame]:
    """Write runs, slices, cells and summary as parquet and csv into `out_dir`.

    `expected_json` lists the campaign's runs with their digests, see `read_expected`.
    """
    runs = collect(Path(campaign_dir), read_expected(Path(expected_json)))
    frames = tables(runs, confidence)
    for name, frame in frames.items():
        write_frame(frame, Path(out_dir) / name)
    return frames
