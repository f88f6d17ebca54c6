"""The tables of a campaign as files: their columns and types; equal rows give equal bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from wattslice.files import replacing

TABLES = ("runs", "slices", "attribution", "cells", "summary")
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
_CSV_FLOAT = "%.9g"

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
        "step_parameters_mib": _REAL,
        "step_gradients_mib": _REAL,
        "step_optimizer_mib": _REAL,
        "step_activations_mib": _REAL,
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
    "attribution": {
        "run_id": _TEXT,
        "layout": _TEXT,
        "placement": _TEXT,
        "precision": _TEXT,
        "repeat": _INT,
        "simulated": _BOOL,
        "modelled": _BOOL,
        "slice_index": _INT,
        "slice": _TEXT,
        "workload": _TEXT,
        "method": _TEXT,
        "estimate_j": _REAL,
        "shapley_j": _REAL,
        "error_j": _REAL,
        "relative_error": _REAL,
        "error_reason": _TEXT,
        "subset_runs": _TEXT,
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


def frame(name: str, rows: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    columns = COLUMNS[name]
    return pd.DataFrame(
        {
            column: pd.array([row.get(column) for row in rows], dtype=kind)  # type: ignore[call-overload]
            for column, kind in columns.items()
        },
        columns=list(columns),
    )


def write_frame(table: pd.DataFrame, stem: Path) -> tuple[Path, Path]:
    """Write <stem>.parquet and <stem>.csv; equal frames give equal bytes."""
    parquet, csv = stem.with_suffix(".parquet"), stem.with_suffix(".csv")
    arrow = pa.Table.from_pandas(table, preserve_index=False).replace_schema_metadata(None)
    with replacing(parquet) as temporary:
        pq.write_table(arrow, temporary, compression="zstd")
    with replacing(csv) as temporary:
        table.to_csv(
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
