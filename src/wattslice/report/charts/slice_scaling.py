"""How does training scale with the size of a slice?"""

from __future__ import annotations

from typing import Any

import altair as alt

from wattslice.report.charts.base import (
    PANEL_WIDTH,
    Drawing,
    Empty,
    FigureData,
    Row,
    legend_filter,
    panel_facet,
    plain,
    precision_colour,
    value_tooltips,
)
from wattslice.report.charts.slice_rows import block, middle, workers

STATES = ("alone, the rest empty", "all slices busy")
X_TITLE = "size of the slice (share of the whole board)"
Y_TITLE = "throughput (share of the whole board)"


def scaling_rows(data: FigureData) -> list[Row]:
    """Throughput of one slice over that of the whole board, paired by block; medians."""
    rows = workers(data)
    whole: dict[tuple[Any, ...], tuple[float, int]] = {}
    for row in rows:
        rate, units = row["throughput_samples_s"], row["compute_units"]
        if row["layout"] == "full" and row["kind"] == "solo" and rate and units:
            whole[row["workload"], row["precision"], block(row)] = (rate, units)
    groups: dict[tuple[Any, ...], list[float]] = {}
    for row in rows:
        base = whole.get((row["workload"], row["precision"], block(row)))
        if base is None or row["layout"] == "full" or not row["compute_units"]:
            continue
        if row["kind"] not in ("solo", "fill") or row["throughput_samples_s"] is None:
            continue
        state = STATES[0] if row["kind"] == "solo" else STATES[1]
        share = row["compute_units"] / base[1]
        key = (row["workload"], row["precision"], row["slice"], state, share)
        groups.setdefault(key, []).append(row["throughput_samples_s"] / base[0])
    made: list[Row] = [
        {
            "workload": workload,
            "precision": precision,
            "slice": name,
            "state": state,
            "size": plain(share),
            "throughput": plain(middle(values)),
            "low": plain(min(values)),
            "high": plain(max(values)),
            "n": len(values),
        }
        for (workload, precision, name, state, share), values in sorted(groups.items())
    ]
    return made


def draw(data: FigureData) -> Drawing | Empty:
    """One slice over the whole board against its size, with the line of ideal scaling."""
    rows = scaling_rows(data)
    if not rows:
        return Empty("no workload was run both on one slice and on the whole board")
    top = max(1.0, *(row["size"] for row in rows))
    panels = sorted({row["workload"] for row in rows})
    ideal = [
        {"workload": name, "ideal": at, "size": at} for name in panels for at in (0.0, plain(top))
    ]
    pick = legend_filter("precision")
    x = alt.X("size:Q", title=X_TITLE, scale=alt.Scale(domain=[0, top], nice=True))
    line = (
        alt.Chart()
        .transform_filter("isValid(datum.ideal)")
        .mark_line(strokeDash=[4, 3], color="#7f8c99")
        .encode(x=x, y=alt.Y("ideal:Q", title=Y_TITLE))
    )
    base = (
        alt.Chart()
        .transform_filter("isValid(datum.throughput)")
        .encode(
            x=x,
            color=precision_colour(rows),
            opacity=alt.condition(pick, alt.value(1.0), alt.value(0.12)),
        )
    )
    spans = base.mark_rule(strokeWidth=2).encode(y=alt.Y("low:Q", title=Y_TITLE), y2="high:Q")
    marks = base.mark_point(size=55, filled=True).encode(
        y=alt.Y("throughput:Q", title=Y_TITLE),
        shape=alt.Shape(
            "state:N",
            scale=alt.Scale(domain=list(STATES), range=["circle", "triangle-up"]),
            legend=alt.Legend(title="the slice is", columns=1),
        ),
        tooltip=[
            alt.Tooltip("workload:N"),
            alt.Tooltip("slice:N"),
            alt.Tooltip("precision:N"),
            alt.Tooltip("state:N"),
            alt.Tooltip("size:Q", title=X_TITLE, format=".3f"),
            *value_tooltips("throughput", Y_TITLE, ".3f"),
            alt.Tooltip("n:Q", title="slices and repeats"),
        ],
    )
    chart = (
        alt.layer(line, spans, marks)
        .add_params(pick)
        .properties(width=PANEL_WIDTH, height=190)
        .facet(
            facet=panel_facet("workload"),
            columns=min(3, len(panels)),
            data=alt.NamedData(name="scaling"),
        )
    )
    low = min(rows, key=lambda row: row["throughput"] / row["size"])
    high = max(rows, key=lambda row: row["throughput"] / row["size"])
    return Drawing(
        chart.resolve_scale(y="independent"),
        "scaling",
        [*rows, *ideal],
        ("Dashed: throughput in proportion to size. Lines span all slices and repeats",),
        f"Against ideal scaling, a slice gives from {low['throughput'] / low['size']:.2f} times "
        f"({low['workload']}, {low['slice']}) to {high['throughput'] / high['size']:.2f} times "
        f"({high['workload']}, {high['slice']}).",
    )
