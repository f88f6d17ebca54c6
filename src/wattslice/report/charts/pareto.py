"""Which layouts and precisions are worth a choice: none is both faster and more frugal?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import altair as alt

from wattslice.report.charts.base import (
    PANEL_WIDTH,
    Drawing,
    Empty,
    FigureData,
    Row,
    legend_filter,
    missing_note,
    panel_facet,
    plain,
    precision_colour,
    precision_shape,
    slot_of,
    value_tooltips,
    why_no,
)

X_TITLE = "throughput (samples/s)"
Y_TITLE = "energy per sample (J)"


def pareto_rows(data: FigureData) -> list[Row]:
    """Medians of throughput and energy per sample; `front`: nothing is better in both."""
    rows: list[Row] = []
    for record in data.tables["summary"].to_dict("records"):
        rate, per_j = plain(record["throughput_samples_s"]), plain(record["samples_per_j"])
        if rate and per_j:
            rows.append(
                {
                    "workload": record["workload"],
                    "slot": slot_of(record["layout"], record["placement"], record["workload"]),
                    "precision": record["precision"],
                    "rate": rate,
                    "energy": plain(1.0 / per_j),
                    "low": _inverse(record, "samples_per_j_high"),
                    "high": _inverse(record, "samples_per_j_low"),
                    "n": int(record["n"]),
                }
            )
    for row in rows:
        row["front"] = not any(
            other["workload"] == row["workload"]
            and other["rate"] >= row["rate"]
            and other["energy"] <= row["energy"]
            and (other["rate"], other["energy"]) != (row["rate"], row["energy"])
            for other in rows
        )
    return rows


def _inverse(record: Mapping[Any, Any], name: str) -> float | None:
    value = plain(record[name])
    return None if not value else plain(1.0 / value)


def draw(data: FigureData) -> Drawing | Empty:
    """Energy per sample against throughput; a line joins the choices that none beats."""
    rows = pareto_rows(data)
    if not rows:
        return Empty(why_no(data, "samples_per_j"))
    panels = sorted({row["workload"] for row in rows})
    pick = legend_filter("precision")
    x = alt.X("rate:Q", title=X_TITLE, scale=alt.Scale(zero=True, nice=True))
    y = alt.Y("energy:Q", title=Y_TITLE, scale=alt.Scale(zero=True, nice=True))
    front = (
        alt.Chart()
        .transform_filter("datum.front")
        .mark_line(strokeDash=[4, 3], color="#7f8c99")
        .encode(x=x, y=y, order="rate:Q")
    )
    base = alt.Chart().encode(
        x=x,
        color=precision_colour(rows),
        opacity=alt.condition(pick, alt.value(1.0), alt.value(0.12)),
    )
    spans = (
        base.transform_filter("isValid(datum.low)")
        .mark_rule(strokeWidth=1.5)
        .encode(y=alt.Y("low:Q", title=Y_TITLE), y2="high:Q")
    )
    marks = base.mark_point(filled=True).encode(
        y=y,
        shape=precision_shape(rows),
        size=alt.Size(
            "front:N",
            scale=alt.Scale(domain=[False, True], range=[28, 75]),
            legend=None,
        ),
        tooltip=[
            alt.Tooltip("workload:N"),
            alt.Tooltip("slot:N", title="layout · placement"),
            alt.Tooltip("precision:N"),
            alt.Tooltip("rate:Q", title=X_TITLE, format=".4~g"),
            *value_tooltips("energy", Y_TITLE, ".4~g"),
            alt.Tooltip("front:N", title="nothing is better in both"),
            alt.Tooltip("n:Q", title="measured runs"),
        ],
    )
    chart = (
        alt.layer(front, spans, marks)
        .add_params(pick)
        .properties(width=PANEL_WIDTH, height=170)
        .facet(
            facet=panel_facet("workload"),
            columns=min(3, len(panels)),
            data=alt.NamedData(name="pareto"),
        )
    )
    best = [row for row in rows if row["front"]]
    named = "; ".join(
        f"{row['workload']}: {row['slot']} in {row['precision']}, {row['rate']:.3g} samples/s at "
        f"{row['energy']:.3g} J"
        for row in best[:4]
    )
    return Drawing(
        chart.resolve_scale(x="independent", y="independent"),
        "pareto",
        rows,
        ("Large marks, joined: nothing is better in both", *missing_note(data, "samples_per_j")),
        f"{len(best)} of {len(rows)} cells are beaten in both by none ({named}).",
    )
