"""Tidy tables of a campaign: runs, slices, summary with intervals; equal input, equal bytes.

`runs` has a row per run, `slices` one per worker, `attribution` one per worker and rule by which
energy is shared out, with its error where that is known, `cells` one per run and workload (a mix
has several), `summary` one per layout x placement x workload x precision with the median over
repeats and its bootstrap interval. A null figure has its reason in the column `<figure>_reason`.

No value is dropped for being far from the others. A run that a named quality check rejects (see
`wattslice.analysis.quality`) keeps its figures in `runs` and `slices`, and has none in `cells` and
`summary`: it enters no median, ratio or claim, and the reason names the check. Runs on a simulated
board keep them, as a rehearsal is there to show the whole report and no claim rests on it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from wattslice.analysis.attribution_errors import attribution_rows
from wattslice.analysis.collect import CollectedRun, collect, read_expected
from wattslice.analysis.frames import TABLES, frame, write_frame
from wattslice.analysis.rows import cell_rows, run_row, worker_row
from wattslice.analysis.shares import energy_shares
from wattslice.analysis.summary import summary_rows


def tables(runs: Sequence[CollectedRun], confidence: float = 0.95) -> dict[str, pd.DataFrame]:
    """The tables of a campaign, rows sorted by run id (and slice, workload), columns fixed."""
    ordered = sorted(runs, key=lambda run: run.record.run_id)
    cells = [row for run in ordered for row in cell_rows(run)]
    rows: dict[str, list[dict[str, Any]]] = {
        "runs": [run_row(run) for run in ordered],
        "slices": [
            worker_row(run, worker, shares)
            for run in ordered
            for shares in (energy_shares(run),)
            for worker in sorted(run.metrics.workers, key=lambda w: w.slice_index)
        ],
        "attribution": attribution_rows(ordered),
        "cells": cells,
        "summary": summary_rows(cells, confidence),
    }
    return {name: frame(name, rows[name]) for name in TABLES}


def write_tables(
    campaign_dir: Path, expected_json: Path, out_dir: Path, confidence: float = 0.95
) -> dict[str, pd.DataFrame]:
    """Write the tables as parquet and csv into `out_dir`.

    `expected_json` lists the campaign's runs with their digests, see `read_expected`.
    """
    runs = collect(Path(campaign_dir), read_expected(Path(expected_json)))
    frames = tables(runs, confidence)
    for name, table in frames.items():
        write_frame(table, Path(out_dir) / name)
    return frames
