"""Ratios with their intervals, their pairs and a line at 1."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import altair as alt

from wattslice.analysis.ratios import Ratio
from wattslice.report.charts.base import (
    COLUMNS,
    PRECISION_SHAPES,
    Drawing,
    Row,
    legend_filter,
    ordered_slots,
    plain,
    small_multiples,
    value_tooltips,
)


@dataclass(frozen=True, slots=True)
class RatioAxes:
    """Titles and series of a chart of ratios."""

    x_title: str
    series_title: str
    series: list[str]
    dataset: str
    y_title: str = "workload"
    none: float = 1.0  # where there is no difference
    number: str = ".3f"
    panel_lines: bool = False  # panels in pairs, each with lines and a scale of its own


def ratio_rows(
    ratios: Sequence[Ratio],
    panel: Callable[[Ratio], str],
    series: Callable[[Ratio], str],
    line: Callable[[Ratio], str | None] = lambda ratio: ratio.workload,
) -> list[Row]:
    """A `median` row per ratio that has a value, and a `pair` row per block of it.

    `line` names the line of the panel that a ratio stands on.
    """
    rows: list[Row] = []
    for ratio in ratios:
        if ratio.value is None:
            continue
        labels = {
            "panel": panel(ratio),
            "line": line(ratio),
            "series": series(ratio),
        }
        row = labels | {
            "role": "median",
            "ratio": ratio.value,
            "low": ratio.ci_low,
            "high": ratio.ci_high,
            "n": ratio.n_pairs,
            "note": ratio.note or ratio.reason,
            "name": ratio.name,
        }
        rows.append({k: p for k, v in row.items() if (p := plain(v)) is not None})
        rows += [
            labels
            | {
                "role": "pair",
                "ratio": plain(pair.value),
                "block": pair.block,
                "runs": f"{pair.numerator_run} / {pair.denominator_run}",
            }
            for pair in ratio.pairs
        ]
    return rows


def ratio_grid(
    rows: list[Row],
    axes: RatioAxes,
    notes: tuple[str, ...] = (),
    answers: tuple[str, ...] = (),
) -> Drawing:
    """Panels of ratios: workloads down, series side by side."""
    have = {row["series"] for row in rows}
    shown = [name for name in axes.series if name in have]
    lines = ordered_slots(row["line"] for row in rows)
    shapes = [PRECISION_SHAPES[i % len(PRECISION_SHAPES)] for i in range(len(axes.series))]
    across = 1 if axes.panel_lines else COLUMNS  # names of baselines are long
    legend = alt.Legend(title=axes.series_title, values=shown, columns=across)
    pick = legend_filter("series")
    x_title = axes.x_title
    base = alt.Chart().encode(
        y=alt.Y("line:N", sort=lines, title=axes.y_title),
        yOffset=alt.YOffset("series:N", scale=alt.Scale(domain=shown)),
        color=alt.Color("series:N", scale=alt.Scale(domain=axes.series), legend=legend),
        opacity=alt.condition(pick, alt.value(1.0), alt.value(0.12)),
    )
    scale = alt.Scale(zero=False, nice=False, padding=8)
    pairs = (
        base.transform_filter("datum.role == 'pair'")
        .mark_point(size=14, filled=False, strokeWidth=1)
        .encode(
            x=alt.X("ratio:Q", title=x_title, scale=scale),
            tooltip=[
                alt.Tooltip("block:N", title="block"),
                alt.Tooltip("runs:N", title="runs"),
                alt.Tooltip("ratio:Q", title=axes.x_title, format=axes.number),
            ],
        )
    )
    intervals = (
        base.transform_filter("datum.role == 'median' && isValid(datum.low)")
        .mark_rule(strokeWidth=2)
        .encode(x=alt.X("low:Q", title=x_title), x2="high:Q")
    )
    marks = (
        base.transform_filter("datum.role == 'median'")
        .mark_point(size=55, filled=True)
        .encode(
            x=alt.X("ratio:Q", title=x_title),
            shape=alt.Shape(
                "series:N",
                scale=alt.Scale(domain=axes.series, range=shapes),
                legend=legend,
            ),
            tooltip=[
                alt.Tooltip("line:N", title=axes.y_title),
                alt.Tooltip("series:N", title=axes.series_title),
                *value_tooltips("ratio", axes.x_title, axes.number),
                alt.Tooltip("n:Q", title="pairs"),
                alt.Tooltip("note:N"),
            ],
        )
    )
    line = alt.Chart().mark_rule(strokeDash=[4, 3]).encode(x=alt.XDatum(axes.none, title=x_title))
    chart = small_multiples(
        alt.layer(line, pairs, intervals, marks).add_params(pick),
        "panel",
        rows,
        axes.dataset,
        2 if axes.panel_lines else COLUMNS,
    )
    chart = (
        chart.resolve_scale(x="independent", y="independent")
        if axes.panel_lines
        else chart.resolve_axis(x="independent")
    )
    medians = [row for row in rows if row["role"] == "median"]
    low = min(medians, key=lambda row: row["ratio"])
    high = max(medians, key=lambda row: row["ratio"])
    summary = (
        f"From {low['ratio']:.2f} ({low['line']}, {low['panel']}, {low['series']}) to "
        f"{high['ratio']:.2f} ({high['line']}, {high['panel']}, {high['series']})."
    )
    return Drawing(chart, axes.dataset, rows, notes, "" if answers else summary, answers)
