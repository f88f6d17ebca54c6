"""Which workload fits into the memory of which slice?"""

from __future__ import annotations

from typing import Any

import altair as alt

from wattslice.report.charts.base import (
    Drawing,
    Empty,
    FigureData,
    Row,
    plain,
    precisions_of,
    status_colour,
)
from wattslice.report.charts.slice_rows import middle, workers

STATUS = ("fits", "fits sometimes", "does not fit")


def memory_rows(data: FigureData) -> list[Row]:
    """A row per workload, precision and kind of slice: how often it fitted, with what peak."""
    groups: dict[tuple[str, str, str, int], list[dict[str, Any]]] = {}
    for row in workers(data):
        fits = row["worker_outcome"] == "oom" or row["throughput_samples_s"] is not None
        if fits:  # other outcomes say nothing of memory
            key = (row["workload"], row["precision"], row["slice"], int(row["compute_units"] or 0))
            groups.setdefault(key, []).append(row)
    made: list[Row] = []
    for (workload, precision, name, units), members in sorted(groups.items()):
        failed = sum(row["worker_outcome"] == "oom" for row in members)
        peaks = [row["peak_memory_mib"] for row in members if row["peak_memory_mib"] is not None]
        limits = [r["memory_limit_mib"] for r in members if r["memory_limit_mib"] is not None]
        status = STATUS[0] if not failed else STATUS[2] if failed == len(members) else STATUS[1]
        label = "OOM" if not peaks else f"{middle(peaks) / 1024:.3g} GiB"
        made.append(
            {
                "line": f"{workload} · {precision}",
                "workload": workload,
                "precision": precision,
                "slice": name,
                "units": units,
                "status": status,
                "label": label if failed in (0, len(members)) else f"{label}, {failed} OOM",
                "peak": plain(middle(peaks)) if peaks else None,
                "limit": plain(min(limits)) if limits else None,
                "n": len(members),
                "failed": failed,
            }
        )
    return made


def draw(data: FigureData) -> Drawing | Empty:
    """Workload and precision against the kind of slice: fits with which peak, or does not."""
    rows = memory_rows(data)
    if not rows:
        return Empty("no worker trained, and none ran out of memory")
    slices = [name for _, name in sorted({(row["units"], row["slice"]) for row in rows})]
    slices = list(dict.fromkeys(slices))
    names = sorted({row["workload"] for row in rows})
    order = [f"{name} · {p}" for name in names for p in precisions_of(rows)]
    have = {row["line"] for row in rows}
    gaps = alt.Scale(paddingInner=0.06, paddingOuter=0.03)
    base = alt.Chart(alt.NamedData(name="memory")).encode(
        y=alt.Y(
            "line:N",
            sort=[name for name in order if name in have],
            title="workload · precision",
            scale=gaps,
        ),
        x=alt.X(
            "slice:N",
            sort=slices,
            title="slice",
            scale=gaps,
            axis=alt.Axis(orient="top", labelAngle=0),
        ),
    )
    cells = base.mark_rect(fillOpacity=0.3, strokeWidth=1).encode(
        color=status_colour(
            STATUS, {row["status"] for row in rows}, "in the memory of the slice, it"
        ),
        tooltip=[
            alt.Tooltip("line:N", title="workload"),
            alt.Tooltip("slice:N"),
            alt.Tooltip("status:N"),
            alt.Tooltip("peak:Q", title="peak memory (MiB)", format=".4~g"),
            alt.Tooltip("limit:Q", title="memory of the slice (MiB)", format=".5~g"),
            alt.Tooltip("n:Q", title="workers"),
            alt.Tooltip("failed:Q", title="out of memory"),
        ],
    )
    text = base.mark_text().encode(text="label:N")
    chart = alt.layer(cells, text).properties(width=max(220, 92 * len(slices)), height=alt.Step(22))
    failed = sum(row["status"] != STATUS[0] for row in rows)
    return Drawing(
        chart,
        "memory",
        rows,
        (),
        f"{failed} of {len(rows)} pairs of workload and slice ran out of memory.",
    )
