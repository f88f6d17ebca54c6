"""The figure of memory says how little parameters say of activations."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from fixtures.records import Truth, make_campaign
from wattslice.report.charts.base import Drawing, FigureData, load
from wattslice.report.charts.memory_breakdown import STEP, draw

# Parameters (millions) and MiB of a step at batch 8 of 128 tokens, float32: docs/workloads.md.
STEPS = {
    "albert": (11.7, 44.6, 44.6, 89.2, 1013.0),
    "albert-6": (11.7, 44.6, 44.6, 89.2, 508.0),
    "albert-recomputed": (11.7, 44.6, 44.6, 89.2, 40.0),
    "distilbert": (67.0, 255.0, 255.0, 511.0, 294.0),
}
COLUMNS = tuple(
    f"step_{part}_mib" for part in ("parameters", "gradients", "optimizer", "activations")
)


@pytest.fixture
def data(tmp_path: Path) -> FigureData:
    folder = make_campaign(tmp_path, [Truth()])
    return load(folder / "tables", folder / "analysis", folder / "runs")


def with_steps(data: FigureData, batches: dict[str, int]) -> FigureData:
    (one,) = data.tables["slices"].to_dict("records")
    rows = [
        {
            **one,
            "workload": name,
            "parameters": int(millions * 1e6),
            "batch_size": batches.get(name, 8),
            **dict(zip(COLUMNS, parts, strict=True)),
        }
        for name, (millions, *parts) in STEPS.items()
    ]
    return replace(data, tables={**data.tables, "slices": pd.DataFrame(rows)})


def test_the_step_is_drawn_by_part_and_compared(data: FigureData) -> None:
    drawing = draw(with_steps(data, {}))
    assert isinstance(drawing, Drawing)
    step = {
        (row["workload"], row["part"]): row["mib"] for row in drawing.rows if row["panel"] == STEP
    }
    assert len(step) == 4 * 4
    assert step["albert", "activations saved for backward"] == 1013.0
    assert step["distilbert", "optimizer state"] == 511.0
    assert drawing.answers == (
        "albert has 0.17 times the parameters of distilbert and saves 3.45 times its activations "
        "(1013 and 294 MiB in fp32).",
        "With equal parameters albert saves activations of 1013 MiB in fp32, albert-6 508, "
        "albert-recomputed 40.",
    )


def test_workloads_of_other_batches_are_not_compared(data: FigureData) -> None:
    drawing = draw(with_steps(data, dict(zip(STEPS, range(1, 9), strict=False))))
    assert isinstance(drawing, Drawing)
    assert drawing.answers == ()


def test_without_the_parts_of_a_step_the_peaks_are_shown(data: FigureData) -> None:
    drawing = draw(data)
    assert isinstance(drawing, Drawing)
    assert STEP not in {row["panel"] for row in drawing.rows}
    assert drawing.answers == ()
