"""Does a slice train as fast beside busy ones as it does alone?"""

from __future__ import annotations

from typing import Any

import altair as alt

from wattslice.report.charts.base import (
    Drawing,
    Empty,
    FigureData,
    Row,
    legend_filter,
    plain,
    precision_colour,
    precision_shape,
)
from wattslice.report.charts.slice_rows import block, middle, workers

X_TITLE = "predicted: the slice alone (samples/s)"
Y_TITLE = "measured: beside busy slices (samples/s)"


def prediction_rows(data: FigureData) -> list[Row]:
    """Throughput of a worker among others, against that of the same on a lone slice."""
    rows = [row for row in workers(data) if row["throughput_samples_s"]]
    alone: dict[tuple[Any, ...], list[float]] = {}
    busy: dict[tuple[Any, ...], list[float]] = {}
    for row in rows:
        if row["layout"] == "full":
            continue
        key = (row["workload"], row["precision"], row["profile"])
        if row["kind"] == "solo":
            alone.setdefault((*key, block(row)), []).append(row["throughput_samples_s"])
        else:
            busy.setdefault((*key, f"{row['layout']} · {row['placement']}", block(row)), []).append(
                row["throughput_samples_s"]
            )
    groups: dict[tuple[str, ...], list[tuple[float, float]]] = {}
    for (workload, precision, profile, where, own), values in busy.items():
        base = alone.get((workload, precision, profile, own))
        if base:
            pair = (middle(base), middle(values))
            groups.setdefault((workload, precision, profile, where), []).append(pair)
    return [
        {
            "workload": workload,
            "precision": precision,
            "slice": profile,
            "where": where,
            "predicted": plain(middle(p for p, _ in pairs)),
            "measured": plain(middle(m for _, m in pairs)),
            "error": plain(middle(m / p - 1.0 for p, m in pairs)),
            "n": len(pairs),
        }
        for (workload, precision, profile, where), pairs in sorted(groups.items())
    ]


def draw(data: FigureData) -> Drawing | Empty:
    """Measured against predicted throughput of slices, with the line of equality."""
    rows = prediction_rows(data)
    if not rows:
        return Empty("no workload ran on the same kind of slice both alone and beside others")
    ends = [row[name] for row in rows for name in ("predicted", "measured")]
    low, high = plain(min(ends) * 0.9), plain(max(ends) * 1.1)
    pick = legend_filter("precision")
    scale = alt.Scale(type="log", domain=[low, high], nice=False)
    x = alt.X("predicted:Q", title=X_TITLE, scale=scale)
    y = alt.Y("measured:Q", title=Y_TITLE, scale=scale)
    source = alt.NamedData(name="predictions")
    line = (
        alt.Chart(source)
        .transform_filter("datum.role == 'equal'")
        .mark_line(strokeDash=[4, 3], color="#7f8c99")
        .encode(x=x, y=y)
    )
    marks = (
        alt.Chart(source)
        .transform_filter("datum.role == 'median'")
        .mark_point(size=55, filled=True)
        .encode(
            x=x,
            y=y,
            color=precision_colour(rows),
            shape=precision_shape(rows),
            opacity=alt.condition(pick, alt.value(1.0), alt.value(0.12)),
            tooltip=[
                alt.Tooltip("workload:N"),
                alt.Tooltip("slice:N"),
                alt.Tooltip("where:N", title="beside"),
                alt.Tooltip("precision:N"),
                alt.Tooltip("predicted:Q", title=X_TITLE, format=".4~g"),
                alt.Tooltip("measured:Q", title=Y_TITLE, format=".4~g"),
                alt.Tooltip("error:Q", title="measured / predicted - 1", format="+.1%"),
                alt.Tooltip("n:Q", title="pairs"),
            ],
        )
        .add_params(pick)
    )
    equal = [{"role": "equal", "predicted": at, "measured": at} for at in (low, high)]
    worst = max(rows, key=lambda row: abs(row["error"]))
    typical = middle(abs(row["error"]) for row in rows)
    return Drawing(
        alt.layer(line, marks).properties(width=420, height=320),
        "predictions",
        [*({"role": "median", **row} for row in rows), *equal],
        ("Dashed: equal",),
        f"Over {len(rows)} kinds of slice the median deviation is {100 * typical:.2g} %; the "
        f"largest is {100 * worst['error']:+.3g} % ({worst['workload']} on {worst['slice']}, "
        f"{worst['where']}).",
    )
