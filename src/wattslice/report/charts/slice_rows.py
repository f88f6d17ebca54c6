"""Rows of workers on slices, as several figures need them: medians of what may be used."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from statistics import median
from typing import Any

import pandas as pd

from wattslice.report.charts.base import FigureData

Worker = Mapping[str, Any]
Block = tuple[int, str]


def workers(data: FigureData) -> list[dict[str, Any]]:
    """Rows of the table `slices` with None for what is missing; rejected runs are left out."""
    found = []
    for record in data.tables["slices"].to_dict("records"):
        row = {str(key): None if pd.isna(value) else value for key, value in record.items()}
        if row["badge"] == "rejected" and row["outcome"] != "oom" and not row["simulated"]:
            continue
        found.append(row)
    return found


def block(row: Worker) -> Block:
    """The repeat and board that a row is of."""
    return int(row["repeat"]), str(row["board_uuid"] or "")


def middle(values: Iterable[float]) -> float:
    """Median of values that are there."""
    return float(median(values))
