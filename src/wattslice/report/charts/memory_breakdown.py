"""What does the memory of a worker consist of?"""

from __future__ import annotations

from typing import Any

import altair as alt

from wattslice.report.charts.base import (
    PANEL_WIDTH,
    Drawing,
    Empty,
    FigureData,
    Row,
    panel_facet,
    plain,
    precisions_of,
)
from wattslice.report.charts.slice_rows import middle, workers

DEVICE, PROCESS = "device memory", "memory of the process"
PARTS = {
    (PROCESS, "libraries, before the model"): ("rss_base_mib", None),
    (PROCESS, "model, training and data"): ("rss_mib", "rss_base_mib"),
    (DEVICE, "allocated at the peak"): ("cuda_allocated_mib", None),
    (DEVICE, "held by the allocator beyond it"): ("cuda_reserved_mib", "cuda_allocated_mib"),
}
X_TITLE = "memory of a worker (MiB)"


def breakdown_rows(data: FigureData) -> list[Row]:
    """Median parts of the memory of workers, by workload and precision."""
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in workers(data):
        if row["rss_mib"] is not None and row["worker_outcome"] != "oom":
            groups.setdefault((row["workload"], row["precision"]), []).append(row)
    made: list[Row] = []
    for (workload, precision), members in sorted(groups.items()):
        for order, ((panel, part), (whole, less)) in enumerate(PARTS.items()):
            values = [
                row[whole] - (row[less] if less else 0.0)
                for row in members
                if row[whole] is not None and (less is None or row[less] is not None)
            ]
            if values:
                made.append(
                    {
                        "panel": panel,
                        "line": f"{workload} · {precision}",
                        "workload": workload,
                        "precision": precision,
                        "part": part,
                        "order": order,
                        "mib": plain(middle(values)),
                        "n": len(values),
                    }
                )
    return made


def draw(data: FigureData) -> Drawing | Empty:
    """Stacked bars of what was recorded: process and, where there is one, device."""
    rows = breakdown_rows(data)
    if not rows:
        return Empty("no worker recorded the parts of its memory")
    panels = sorted({row["panel"] for row in rows})
    names = sorted({row["workload"] for row in rows})
    have = {row["line"] for row in rows}
    order = [f"{name} · {p}" for name in names for p in precisions_of(rows)]
    parts = [part for _, part in PARTS]
    shown = {row["part"] for row in rows}
    bars = (
        alt.Chart()
        .mark_bar()
        .encode(
            y=alt.Y("line:N", sort=[n for n in order if n in have], title="workload · precision"),
            x=alt.X("mib:Q", title=X_TITLE, stack="zero"),
            color=alt.Color(
                "part:N",
                scale=alt.Scale(domain=parts),
                legend=alt.Legend(
                    title="part", columns=1, labelLimit=260, values=[p for p in parts if p in shown]
                ),
            ),
            order="order:Q",
            tooltip=[
                alt.Tooltip("line:N", title="workload"),
                alt.Tooltip("part:N"),
                alt.Tooltip("mib:Q", title="median (MiB)", format=".4~g"),
                alt.Tooltip("n:Q", title="workers"),
            ],
        )
    )
    chart = bars.properties(width=int(PANEL_WIDTH * 1.45), height=alt.Step(17)).facet(
        facet=panel_facet("panel"),
        columns=min(2, len(panels)),
        data=alt.NamedData(name="breakdown"),
    )
    largest = max(rows, key=lambda row: row["mib"])
    return Drawing(
        chart.resolve_scale(x="independent"),
        "breakdown",
        rows,
        ("Parameters, gradients and activations are not recorded apart",),
        f"The largest part is {largest['mib']:.4g} MiB: {largest['part']} ({largest['line']}).",
    )
