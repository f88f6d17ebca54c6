"""How long does a training step take, and how much longer the slow ones?"""

from __future__ import annotations

import altair as alt

from wattslice.report.charts.base import (
    Drawing,
    Empty,
    FigureData,
    figure_rows,
    legend_filter,
    missing_note,
    ordered_slots,
    precision_colour,
    precision_shape,
    precisions_of,
    small_multiples,
    value_tooltips,
    why_no,
)

UNIT = "step time (s)"


def draw(data: FigureData) -> Drawing | Empty:
    """Median and 95th percentile of step durations, s."""
    rows = figure_rows(data)
    medians = [row for row in rows if row["role"] == "median" and "step_p50_s" in row]
    if not medians:
        return Empty(why_no(data, "step_p50_s"))
    slots = ordered_slots(row["slot"] for row in medians)
    pick = legend_filter("precision")
    base = (
        alt.Chart()
        .transform_filter("datum.role == 'median' && isValid(datum.step_p50_s)")
        .encode(
            y=alt.Y(
                "slot:N", sort=slots, title="layout · placement", scale=alt.Scale(domain=slots)
            ),
            yOffset=alt.YOffset("precision:N", scale=alt.Scale(domain=precisions_of(medians))),
            color=precision_colour(medians),
            opacity=alt.condition(pick, alt.value(1.0), alt.value(0.12)),
        )
    )
    tooltip = [
        alt.Tooltip("workload:N"),
        alt.Tooltip("slot:N", title="layout · placement"),
        alt.Tooltip("precision:N"),
        *value_tooltips("step_p50_s", "median (s)", ".4~g", "step_p50_s_low", "step_p50_s_high"),
        alt.Tooltip("step_p95_s:Q", title="95th percentile (s)", format=".4~g"),
        alt.Tooltip("n:Q", title="measured runs"),
    ]
    x = alt.X("step_p50_s:Q", title=UNIT, scale=alt.Scale(zero=True, nice=True))
    line = base.mark_rule(strokeWidth=1.5).encode(x=x, x2="step_p95_s:Q")
    slow = base.mark_tick(thickness=2, size=9).encode(x=alt.X("step_p95_s:Q", title=UNIT))
    mark = base.mark_point(size=50, filled=True).encode(
        x=x, shape=precision_shape(medians), tooltip=tooltip
    )
    chart = small_multiples(
        alt.layer(line, slow, mark).add_params(pick), "workload", medians, "cells"
    )
    longest = max(medians, key=lambda row: row["step_p50_s"])
    shortest = min(medians, key=lambda row: row["step_p50_s"])
    return Drawing(
        chart.resolve_scale(x="independent"),
        "cells",
        rows,
        missing_note(data, "step_p50_s"),
        f"Median steps take from {shortest['step_p50_s']:.3g} s ({shortest['workload']}) to "
        f"{longest['step_p50_s']:.3g} s ({longest['workload']}).",
    )
