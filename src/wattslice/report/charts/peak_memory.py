"""How much memory does a worker need?"""

from __future__ import annotations

from dataclasses import replace

import altair as alt

from wattslice.report.charts.base import Drawing, Empty, FigureData, dot_grid

SOURCES = {
    "rss": "resident set of the process (holds libraries and data too)",
    "cuda-allocated": "peak of the framework's allocator on the device",
}


def draw(data: FigureData) -> Drawing | Empty:
    """Peak memory of the largest worker, MiB, with its source."""
    drawing = dot_grid(
        data,
        "peak_memory_mib",
        "peak memory of a worker",
        "MiB",
        [alt.Tooltip("source:N", title="source")],
    )
    if isinstance(drawing, Empty):
        return drawing
    sources = sorted({s for row in drawing.rows for s in str(row.get("source", "")).split(",")})
    notes = tuple(f"Source {s}: {SOURCES[s]}" for s in sources if s in SOURCES)
    return replace(drawing, notes=notes + drawing.notes)
