"""What did the power meter see in a run?"""

from __future__ import annotations

import altair as alt

from wattslice.report.charts.base import PANEL_WIDTH, Drawing, Empty, FigureData, panel_facet

X_TITLE = "time since the window began (s)"
Y_TITLE = "power (W)"


def draw(data: FigureData) -> Drawing | Empty:
    """Power samples of one run of each layout, with the window and the idle power."""
    rows = data.traces
    if not rows:
        return Empty(data.trace_reason or "no run has power samples")
    base = alt.Chart()
    window = (
        base.transform_filter("datum.role == 'window'")
        .mark_rect(opacity=0.12, color="#7f8c99")
        .encode(x=alt.X("t_s:Q", title=X_TITLE), x2="end_s:Q")
    )
    idle = (
        base.transform_filter("datum.role == 'idle'")
        .mark_rule(strokeDash=[5, 4])
        .encode(
            y=alt.Y("power_w:Q", title=Y_TITLE),
            tooltip=[alt.Tooltip("power_w:Q", title="idle power (W)", format=".4~g")],
        )
    )
    line = (
        base.transform_filter("datum.role == 'sample'")
        .mark_line(interpolate="linear")
        .encode(
            x=alt.X("t_s:Q", title=X_TITLE, scale=alt.Scale(nice=False)),
            y=alt.Y("power_w:Q", title=Y_TITLE, scale=alt.Scale(zero=True)),
            color=alt.Color("role:N", scale=alt.Scale(domain=["sample"]), legend=None),
            tooltip=[
                alt.Tooltip("t_s:Q", title=X_TITLE, format=".2f"),
                alt.Tooltip("power_w:Q", title=Y_TITLE, format=".4~g"),
            ],
        )
    )
    panels = sorted({row["panel"] for row in rows})
    chart = (
        alt.layer(window, idle, line)
        .properties(width=int(PANEL_WIDTH * 1.45), height=150)
        .facet(
            facet=panel_facet("panel"),
            columns=min(2, len(panels)),
            data=alt.NamedData(name="traces"),
        )
        .resolve_scale(x="independent")
    )
    powers = [row["power_w"] for row in rows if row["role"] == "sample"]
    return Drawing(
        chart,
        "traces",
        rows,
        (),
        f"{len(panels)} traces; samples from {min(powers):.3g} W to {max(powers):.3g} W.",
    )
