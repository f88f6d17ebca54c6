"""Two campaigns side by side: what changed, by how much, and how sure that is.

Two boards, two drivers, or before and after a change: the cells that both have are compared by the
ratio of their geometric means over repeats, B over A, with Welch's t on the logarithms. Repeats of
two campaigns were not run side by side, so they are not paired. As many cells are compared at
once, p-values are adjusted by Holm's method over all of them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import Field

from wattslice.analysis.frames import KEY, read_tables
from wattslice.analysis.ratios import cell_rows
from wattslice.analysis.statistics import compare_groups, geometric_mean, holm
from wattslice.records.base import Record

COMPARE_SCHEMA_VERSION = 1
# Figures that are compared, with their units and whether more is better.
FIGURES: dict[str, tuple[str, bool]] = {
    "throughput_samples_s": ("samples/s", True),
    "samples_per_j": ("samples/J", True),
    "mean_power_w": ("W", False),
    "peak_memory_mib": ("MiB", False),
}
_SETTINGS = ("board", "board_uuid", "git_commit", "environment_digest", "code_digest")


class Change(Record):
    """One figure of one cell in both campaigns."""

    layout: str
    placement: str
    workload: str
    precision: str
    figure: str
    unit: str
    a: float | None = Field(description="geometric mean over repeats in A")
    b: float | None
    ratio: float | None = Field(description="b / a")
    low: float | None
    high: float | None
    p: float | None = Field(description="adjusted by Holm over all changes of the comparison")
    n_a: int
    n_b: int
    verdict: str = Field(description="better, worse, no difference shown, or why it is not known")
    modelled: bool
    simulated: bool


class Comparison(Record):
    """Two campaigns compared."""

    schema_version: int = COMPARE_SCHEMA_VERSION
    a: str
    b: str
    confidence: float
    settings: dict[str, tuple[str, str]] = Field(description="what differs between A and B")
    only_a: tuple[str, ...] = Field(description="cells that B does not have")
    only_b: tuple[str, ...]
    changes: tuple[Change, ...]

    @property
    def significant(self) -> tuple[Change, ...]:
        """Changes that are decided at the level of the comparison."""
        return tuple(change for change in self.changes if change.verdict in ("better", "worse"))


class CompareError(ValueError):
    """A folder that is not a campaign with tables."""


def campaign_rows(folder: Path) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """Cells of a campaign, and its settings. Raises CompareError for a folder without tables."""
    tables = folder / "tables"
    if not (tables / "cells.parquet").is_file():
        raise CompareError(
            f"{folder} has no tables/cells.parquet: give the folder of a campaign, e.g. "
            "results/default, after its tables were made"
        )
    frames = read_tables(tables)
    runs = frames["runs"]
    settings = {
        name: ", ".join(sorted({str(value) for value in runs[name].dropna()})) or "not recorded"
        for name in _SETTINGS
    }
    settings["driver and packages"] = _software(folder, runs["run_id"])
    return cell_rows(frames["cells"]), settings


def _software(folder: Path, run_ids: Any) -> str:
    """Driver and main packages of the first run that tells them."""
    for run_id in run_ids:
        path = folder / "runs" / str(run_id) / "run.json"
        if not path.is_file():
            continue
        record = json.loads(path.read_text(encoding="utf-8"))
        board, environment = record.get("board") or {}, record.get("environment") or {}
        packages = environment.get("packages") or {}
        parts = [f"driver {board['driver_version']}"] if board.get("driver_version") else []
        parts += [f"{n} {packages[n]}" for n in ("torch", "timm", "transformers") if n in packages]
        return ", ".join(parts) or "not recorded"
    return "not recorded"


def compare(a: Path, b: Path, confidence: float = 0.95) -> Comparison:
    """Compare the campaigns in two folders. Raises CompareError."""
    rows_a, settings_a = campaign_rows(a)
    rows_b, settings_b = campaign_rows(b)
    cells_a, cells_b = _cells(rows_a), _cells(rows_b)
    shared = sorted(cells_a.keys() & cells_b.keys())
    drafts: list[dict[str, Any]] = []
    for key in shared:
        for figure, (unit, _) in FIGURES.items():
            sides = [_values(cells[key], figure) for cells in (cells_a, cells_b)]
            if not any(sides):
                continue
            found = compare_groups(sides[0], sides[1], confidence)
            both = [*cells_a[key], *cells_b[key]]
            energy = figure in ("samples_per_j", "mean_power_w")
            drafts.append(
                {
                    **dict(zip(KEY, key, strict=True)),
                    "figure": figure,
                    "unit": unit,
                    "a": geometric_mean(sides[0]) if sides[0] else None,
                    "b": geometric_mean(sides[1]) if sides[1] else None,
                    "ratio": found.ratio,
                    "low": found.low,
                    "high": found.high,
                    "p": found.p,
                    "n_a": found.n_a,
                    "n_b": found.n_b,
                    "verdict": found.reason or "",
                    "modelled": energy and any(row["modelled"] for row in both),
                    "simulated": any(row["simulated"] for row in both),
                }
            )
    return Comparison(
        a=str(a),
        b=str(b),
        confidence=confidence,
        settings={
            name: (settings_a[name], settings_b[name])
            for name in settings_a
            if settings_a[name] != settings_b[name]
        },
        only_a=tuple(" ".join(key) for key in sorted(cells_a.keys() - cells_b.keys())),
        only_b=tuple(" ".join(key) for key in sorted(cells_b.keys() - cells_a.keys())),
        changes=tuple(_changes(drafts, confidence)),
    )


def _cells(rows: list[dict[str, Any]]) -> dict[tuple[str, ...], list[dict[str, Any]]]:
    cells: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for row in rows:
        cells.setdefault(tuple(str(row[name]) for name in KEY), []).append(row)
    return cells


def _values(rows: list[dict[str, Any]], figure: str) -> list[float]:
    return [float(row[figure]) for row in rows if row[figure] is not None and row[figure] > 0]


def _changes(drafts: list[dict[str, Any]], confidence: float) -> list[Change]:
    tested = [draft for draft in drafts if draft["p"] is not None]
    for draft, p in zip(tested, holm([draft["p"] for draft in tested]), strict=True):
        draft["p"] = p
        draft["verdict"] = _verdict(draft, p, confidence)
    return [Change.model_validate(draft) for draft in drafts]


def _verdict(draft: Mapping[str, Any], p: float, confidence: float) -> str:
    if p >= 1.0 - confidence:
        return "no difference shown"
    more_is_better = FIGURES[draft["figure"]][1]
    return "better" if (draft["ratio"] > 1) == more_is_better else "worse"
