"""A finished run in one line, for the person who watches the campaign."""

from __future__ import annotations

from pathlib import Path

from wattslice.analysis.metrics import run_metrics
from wattslice.records.run import RunRecord


def line(record: RunRecord, run_dir: Path) -> str:
    """Outcome, throughput and energy, with the label of energy that was not measured."""
    parts = [record.run_id, record.outcome]
    metrics = run_metrics(run_dir, None)
    if metrics.throughput_samples_s.value is not None:
        units = {worker.sample_unit or "sample" for worker in record.workers}
        unit = units.pop() + "s" if len(units) == 1 else "samples"
        parts.append(f"{metrics.throughput_samples_s.value:.4g} {unit}/s")
    else:
        for worker in metrics.workers:
            if worker.throughput_samples_s.value is not None:
                rate = worker.throughput_samples_s.value
                parts.append(f"{worker.workload}@{worker.slice_name} {rate:.4g}/s")
    if record.reason:
        parts.append(record.reason)
    energy = metrics.energy
    if energy is not None and energy.gross_j is not None:
        label = " (modelled)" if energy.modelled else " (simulated)" if energy.simulated else ""
        parts.append(f"{energy.gross_j:.4g} J in {energy.window_s:.1f} s{label}")
    elif record.reason is None:
        parts.append(f"no energy: {metrics.energy_reason or getattr(energy, 'reason', None)}")
    return "  ".join(parts)
