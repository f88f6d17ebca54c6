"""Rows of the tables `runs`, `slices` and `cells` of a run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from wattslice.analysis.collect import CollectedRun
from wattslice.analysis.frames import ENERGY_FIGURES, FIGURE_UNITS
from wattslice.analysis.shares import EnergyShares, activities_of, compute_units
from wattslice.config.spec import Assignment, RunSpec
from wattslice.records.metrics import RunMetrics, WorkerMetrics
from wattslice.records.run import MEASURED_OUTCOMES, MemoryBreakdown

# Between the messages of several findings.
WHY_SEPARATOR = " | "


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


def run_row(run: CollectedRun) -> dict[str, Any]:
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


def _step_memory(breakdown: MemoryBreakdown | None) -> dict[str, float | None]:
    """What one step keeps, MiB; buffers, which are small, with the parameters."""
    if breakdown is None:
        return {}
    return {
        "step_parameters_mib": breakdown.parameters_mib + breakdown.buffers_mib,
        "step_gradients_mib": breakdown.gradients_mib,
        "step_optimizer_mib": breakdown.optimizer_mib,
        "step_activations_mib": breakdown.activations_mib,
    }


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def _flag(value: object) -> bool | None:
    return None if value is None else bool(value)


def worker_row(run: CollectedRun, worker: WorkerMetrics, shares: EnergyShares) -> dict[str, Any]:
    state = run.record.layout_state
    own = next((s for s in state.slices if s.index == worker.slice_index), None) if state else None
    units, unit = compute_units(own) if own is not None else (None, None)
    record = next((w for w in run.record.workers if w.slice.index == worker.slice_index), None)
    memory = None if record is None else record.memory
    chosen = shares.chosen
    share_j = None if chosen is None else shares.of(chosen.method, worker.slice_index)
    activity = activities_of(run.record).get(worker.slice_index)
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
        **_step_memory(None if record is None else record.memory_breakdown),
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


def cell_rows(run: CollectedRun) -> list[dict[str, Any]]:
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
            "batch_size": _batch_size(assignment, own),
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


def _batch_size(assignment: Assignment, own: Sequence[WorkerMetrics]) -> int | None:
    """As the config has it; of `auto` what the workers used, if that was the same for all."""
    asked = assignment.definition.get("batch_size")
    if isinstance(asked, int):
        return asked
    used = {worker.batch_size for worker in own}
    return used.pop() if len(used) == 1 else None


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
