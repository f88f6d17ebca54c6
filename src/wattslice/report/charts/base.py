"""What the figures share: their data, labels for modelled numbers, empty figures, export."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import altair as alt
import pandas as pd

from wattslice.analysis.frames import read_tables
from wattslice.analysis.ratios import PRECISIONS, RatioTable, read_ratios
from wattslice.analysis.raw import read_run
from wattslice.planner.records import Validation
from wattslice.records.energy import IdleRecord
from wattslice.report import theme
from wattslice.report.figure_list import Figure

Row = dict[str, Any]
MODELLED = "modelled, not measured"
SIMULATED = "simulated"
TRACE_POINTS = 600
# Figures of the data set `cells`, which most charts share; what none of them draws is left out.
SHOWN_FIGURES = (
    "throughput_samples_s",
    "samples_per_j",
    "step_p50_s",
    "step_p95_s",
    "peak_memory_mib",
)
PANEL_WIDTH = 230
COLUMNS = 3
PRECISION_SHAPES = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down")


@dataclass(frozen=True, slots=True)
class FigureData:
    """Everything that the figures are drawn from."""

    tables: dict[str, pd.DataFrame]
    ratios: RatioTable
    traces: list[Row] = field(default_factory=list)
    trace_reason: str | None = None
    validation: Validation | None = None  # predicted against measured, where that was tried

    @property
    def simulated(self) -> bool:
        return bool(self.tables["runs"]["simulated"].fillna(False).any())

    @property
    def modelled(self) -> bool:
        return bool(self.tables["runs"]["modelled"].fillna(False).any())

    def scopes(self) -> list[str]:
        return sorted(set(self.tables["runs"]["energy_scope"].dropna()))


@dataclass(frozen=True, slots=True)
class Empty:
    """A figure without data, and why."""

    reason: str


@dataclass(frozen=True, slots=True)
class Drawing:
    """A chart over the named data set `dataset`, and what to say under its title."""

    chart: Any
    dataset: str
    rows: list[Row]
    notes: tuple[str, ...] = ()
    summary: str = ""  # one sentence with numbers, for those who cannot see the figure
    answers: tuple[str, ...] = ()  # what the figure shows, to stand above it


@dataclass(frozen=True, slots=True)
class BuiltFigure:
    """A figure as a Vega-Lite spec without data and config; `datasets` by name."""

    figure: Figure
    spec: Row
    datasets: dict[str, list[Row]]
    alt: str
    labels: tuple[str, ...]
    empty: str | None = None
    notes: tuple[str, ...] = ()  # what stands below the question, each a sentence without its dot
    answers: tuple[str, ...] = ()

    def standalone(self, mode: theme.Mode = "light") -> Row:
        """The whole spec: with data and the theme of a mode."""
        spec = dict(self.spec)
        if self.datasets:
            spec["datasets"] = self.datasets
        spec["config"] = theme.config(mode)
        return spec


# --- data ------------------------------------------------------------------------------------


def load(tables_dir: Path, analysis_dir: Path, runs_dir: Path) -> FigureData:
    """Read tables, ratios, one example power trace of each layout, and the planner's check."""
    tables = read_tables(Path(tables_dir))
    traces, reason = example_traces(tables["runs"], Path(runs_dir))
    path = Path(analysis_dir) / "validation.json"
    validation = Validation.model_validate_json(path.read_bytes()) if path.is_file() else None
    return FigureData(tables, read_ratios(Path(analysis_dir)), traces, reason, validation)


def plain(value: Any) -> Any:
    """A value for JSON: missing is null, floats keep seven significant digits."""
    if value is None or value is pd.NA:
        return None
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, float):
        return float(f"{value:.7g}") if math.isfinite(value) else None
    return value


def slot_of(layout: str, placement: str, workload: str) -> str:
    """Layout and placement without the workload, e.g. `2x1c · fill`."""
    return f"{layout} · {placement.removeprefix(f'{workload}.')}"


def ordered_slots(slots: Iterable[str]) -> list[str]:
    """Whole board first, then layouts by name; solo before fill before mixes."""
    ranks = {"solo": 0, "fill": 1, "mix": 2}

    def key(slot: str) -> tuple[bool, str, int, str]:
        layout, _, placement = slot.partition(" · ")
        return (layout != "full", layout, ranks.get(placement.split(".")[0], 3), placement)

    return sorted(set(slots), key=key)


def precisions_of(rows: Iterable[Row]) -> list[str]:
    have = {row["precision"] for row in rows}
    return [p for p in PRECISIONS if p in have] + sorted(have - set(PRECISIONS))


def figure_rows(data: FigureData) -> list[Row]:
    """The data set `cells`: a `median` row per cell of the summary, a `repeat` row per run."""
    rows = []
    for role, name in (("median", "summary"), ("repeat", "cells")):
        for record in data.tables[name].to_dict("records"):
            row = {key: record[key] for key in ("workload", "layout", "precision")}
            placement = record["placement"]
            row["slot"] = slot_of(record["layout"], placement, record["workload"])
            row["role"] = role
            if role == "median":
                row |= {"n": record["n"], "runs": record["runs"], "outcomes": record["outcomes"]}
            else:
                row |= {"run_id": record["run_id"], "outcome": record["outcome"]}
            row["source"] = record["peak_memory_source"]
            for figure in SHOWN_FIGURES:
                row[figure] = record[figure]
                if role == "median":
                    row[f"{figure}_low"] = record[f"{figure}_low"]
                    row[f"{figure}_high"] = record[f"{figure}_high"]
            rows.append({k: p for k, v in row.items() if (p := plain(v)) is not None})
    return rows


def why_no(data: FigureData, figure: str) -> str:
    """Why no cell has a figure, in the words of the records."""
    summary = data.tables["summary"]
    if summary.empty:
        return "the campaign has no runs"
    reasons = sorted(set(summary[f"{figure}_reason"].dropna()))
    shown = "; ".join(reasons[:3]) + (" …" if len(reasons) > 3 else "")
    return shown or "no run gave this figure"


def example_traces(runs: pd.DataFrame, runs_dir: Path) -> tuple[list[Row], str | None]:
    """The power trace of the first run with power of each layout, filled boards first."""
    rows: list[Row] = []
    reasons: set[str] = set()
    ranks = {"fill": 0, "mix": 1, "solo": 2}
    ordered = sorted(
        runs.to_dict("records"), key=lambda r: (r["layout"], ranks.get(r["kind"], 3), r["run_id"])
    )
    done: set[str] = set()
    for run in ordered:
        if run["layout"] in done:
            continue
        if pd.isna(run["mean_power_w"]):
            reason = run["samples_per_j_reason"]
            reasons.add("no power" if pd.isna(reason) else str(reason))
            continue
        trace = _trace(runs_dir / run["run_id"], run)
        if trace:
            done.add(run["layout"])
            rows += trace
    if rows:
        return rows, None
    return [], "; ".join(sorted(reasons)[:3]) or "no run has power samples"


def _trace(run_dir: Path, run: Mapping[Hashable, Any]) -> list[Row]:
    """The power of a run over time; of several boards that of the first, and the panel says so."""
    from wattslice.measure.raw import read_power

    record = read_run(run_dir)
    path = run_dir / "power.parquet"
    if record.window is None or not path.is_file():
        return []
    panel = f"{run['layout']} | {run['run_id'].split('/', 1)[1]}"
    first = record.boards[0].identity.uuid if record.boards else None
    if first is not None:
        panel += f" | board {first}"
    samples = read_power(path, first)
    zero = record.window.start_s
    rows: list[Row] = []
    for name in ("power_w", "power_average_w"):
        pairs = [
            (t, p) for t, p in zip(samples["t_s"], samples[name], strict=True) if p is not None
        ]
        if not pairs:
            continue
        stride = max(1, math.ceil(len(pairs) / TRACE_POINTS))
        rows = [
            {"panel": panel, "role": "sample", "t_s": plain(t - zero), "power_w": plain(p)}
            for t, p in pairs[::stride]
        ]
        break
    if not rows:
        return []
    end = record.window.end_s - zero
    rows.append({"panel": panel, "role": "window", "t_s": 0.0, "end_s": plain(end)})
    idle = run["idle_w"]
    if first is None and not pd.isna(idle):
        rows.append({"panel": panel, "role": "idle", "power_w": plain(idle)})
    return rows


def read_idle(path: Path) -> IdleRecord:
    return IdleRecord.model_validate_json(path.read_bytes())


# --- parts of charts ---------------------------------------------------------------------------


def legend_filter(field_name: str) -> Any:
    """Clicking a legend entry keeps that entry and fades the others."""
    return alt.selection_point(name=f"pick_{field_name}", fields=[field_name], bind="legend")


def precision_colour(rows: Sequence[Row]) -> Any:
    """Colour by precision; the whole list is the domain, so that a colour keeps its meaning."""
    return alt.Color(
        "precision:N",
        scale=alt.Scale(domain=list(PRECISIONS)),
        legend=alt.Legend(title="precision", values=precisions_of(rows)),
    )


def precision_shape(rows: Sequence[Row]) -> Any:
    return alt.Shape(
        "precision:N",
        scale=alt.Scale(domain=list(PRECISIONS), range=list(PRECISION_SHAPES)),
        legend=alt.Legend(title="precision", values=precisions_of(rows)),
    )


def status_colour(order: Sequence[str], seen: Collection[str], title: str) -> Any:
    """Colour of a matrix's cells by `status`, best first; the legend names those that occur."""
    return alt.Color(
        "status:O",
        scale=alt.Scale(domain=list(order)),
        legend=alt.Legend(
            symbolOpacity=0.4, title=title, values=[name for name in order if name in seen]
        ),
    )


def value_tooltips(
    name: str, title: str, number: str, low: str = "low", high: str = "high"
) -> list[Any]:
    """A value with its interval, as every tooltip shows them."""
    return [
        alt.Tooltip(f"{name}:Q", title=title, format=number),
        alt.Tooltip(f"{low}:Q", title="interval from", format=number),
        alt.Tooltip(f"{high}:Q", title="to", format=number),
    ]


def dot_grid(
    data: FigureData,
    figure: str,
    title: str,
    unit: str,
    extra_tooltip: Sequence[Any] = (),
) -> Drawing | Empty:
    """Small multiples by workload: slots down, precisions side by side, repeats and intervals."""
    rows = figure_rows(data)
    medians = [row for row in rows if row["role"] == "median" and figure in row]
    if not medians:
        return Empty(why_no(data, figure))
    slots = ordered_slots(row["slot"] for row in medians)
    shown = precisions_of(medians)
    pick = legend_filter("precision")
    base = alt.Chart().encode(
        y=alt.Y("slot:N", sort=slots, title="layout · placement", scale=alt.Scale(domain=slots)),
        yOffset=alt.YOffset("precision:N", scale=alt.Scale(domain=shown)),
        color=precision_colour(medians),
        opacity=alt.condition(pick, alt.value(1.0), alt.value(0.12)),
    )
    x_title = f"{title} ({unit})"
    scale = alt.Scale(zero=True, nice=True)
    number = ".4~g"
    repeats = (
        base.transform_filter(f"datum.role == 'repeat' && isValid(datum['{figure}'])")
        .mark_point(size=14, filled=False, strokeWidth=1)
        .encode(
            x=alt.X(f"{figure}:Q", title=x_title, scale=scale),
            tooltip=[
                alt.Tooltip("run_id:N", title="run"),
                alt.Tooltip("outcome:N", title="outcome"),
                alt.Tooltip(f"{figure}:Q", title=x_title, format=number),
            ],
        )
    )
    intervals = (
        base.transform_filter(f"datum.role == 'median' && isValid(datum['{figure}_low'])")
        .mark_rule(strokeWidth=2)
        .encode(x=alt.X(f"{figure}_low:Q", title=x_title), x2=f"{figure}_high:Q")
    )
    marks = (
        base.transform_filter(f"datum.role == 'median' && isValid(datum['{figure}'])")
        .mark_point(size=55, filled=True)
        .encode(
            x=alt.X(f"{figure}:Q", title=x_title),
            shape=precision_shape(medians),
            tooltip=[
                alt.Tooltip("workload:N"),
                alt.Tooltip("slot:N", title="layout · placement"),
                alt.Tooltip("precision:N"),
                *value_tooltips(figure, x_title, number, f"{figure}_low", f"{figure}_high"),
                alt.Tooltip("n:Q", title="measured runs"),
                alt.Tooltip("outcomes:N"),
                *extra_tooltip,
            ],
        )
    )
    chart = small_multiples(
        alt.layer(repeats, intervals, marks).add_params(pick), "workload", medians, "cells"
    )
    low = min(medians, key=lambda row: row[figure])
    high = max(medians, key=lambda row: row[figure])
    return Drawing(
        chart.resolve_scale(x="independent"),
        "cells",
        rows,
        missing_note(data, figure),
        f"From {_point(low, figure)} to {_point(high, figure)} {unit}.",
    )


def _point(row: Row, figure: str) -> str:
    return f"{row[figure]:.3g} ({row['workload']}, {row['slot']}, {row['precision']})"


def missing_note(data: FigureData, figure: str) -> tuple[str, ...]:
    summary = data.tables["summary"]
    missing = int(summary[figure].isna().sum())
    if not missing:
        return ()
    return (f"{missing} of {len(summary)} cells have no value; see Outcomes for why",)


def panel_facet(by: str, order: Sequence[str] | None = None) -> Any:
    """A panel per value of a field; ` | ` in the value starts a new line of its heading."""
    header = alt.Header(labelExpr="split(datum.label, ' | ')", labelLimit=PANEL_WIDTH + 20)
    sort = alt.Undefined if order is None else list(order)
    return alt.Facet(f"{by}:N", title=None, header=header, sort=sort)


def small_multiples(
    layer: Any, by: str, rows: Sequence[Row], dataset: str, columns: int = COLUMNS
) -> Any:
    """Facets by a field, in columns that a page may reduce; rows are 13 px per mark."""
    panels = sorted({row[by] for row in rows if by in row})
    chart = layer.properties(width=PANEL_WIDTH, height=alt.Step(13)).facet(
        facet=panel_facet(by),
        columns=max(1, min(columns, len(panels))),
        data=alt.NamedData(name=dataset),
    )
    # A panel without a mark would only take room.
    return chart.transform_filter(alt.FieldOneOfPredicate(field=by, oneOf=panels))


# --- finishing ---------------------------------------------------------------------------------


def energy_labels(figure: Figure, data: FigureData) -> tuple[str, ...]:
    """What must be said about the numbers of a figure: modelled, simulated."""
    labels = []
    if figure.energy and data.modelled:
        labels.append(MODELLED)
    if data.simulated:
        labels.append(SIMULATED)
    return tuple(labels)


def finish(figure: Figure, data: FigureData, drawing: Drawing | Empty) -> BuiltFigure:
    """Give a drawing its title, labels and stable names."""
    labels = energy_labels(figure, data)
    title = figure.title + (f" ({'; '.join(labels)})" if labels else "")
    if isinstance(drawing, Empty):
        reason = f"no data because {drawing.reason}"
        chart = (
            alt.Chart(alt.InlineData([{}]))
            .mark_text(align="left", x=4, y=16, lineHeight=16)
            .encode(text=alt.value(_lines(reason)))
            .properties(width=PANEL_WIDTH * 2, height=14 + 16 * len(_lines(reason)))
        )
        spec = _dict(chart, [title], [figure.question])
        return BuiltFigure(figure, spec, {}, f"{title}: {reason}", labels, reason)
    notes = drawing.notes
    if figure.energy:
        notes = ("Energy scope: " + (", ".join(data.scopes()) or "none"), *notes)
    spec = _dict(drawing.chart, [title], [figure.question, *notes])
    spec["data"] = {"name": drawing.dataset}
    summary = drawing.summary or " ".join(drawing.answers)
    alt_text = f"{title}. {figure.question} {summary}".strip()
    datasets = {drawing.dataset: drawing.rows}
    return BuiltFigure(
        figure, spec, datasets, alt_text, labels, notes=notes, answers=drawing.answers
    )


def _lines(text: str, width: int = 80) -> list[str]:
    import textwrap

    return textwrap.wrap(text, width)[:6]


def _dict(chart: Any, title: Sequence[str], subtitle: Sequence[str]) -> Row:
    chart = chart.properties(
        title=alt.TitleParams(text=list(title), subtitle=[s for t in subtitle for s in _lines(t)])
    )
    spec: Row = chart.to_dict(validate=True)
    spec.pop("config", None)
    # The library numbers views over the life of the process; number them from 1 in each figure.
    text = json.dumps(spec)
    names = {name: f"view_{i}" for i, name in enumerate(dict.fromkeys(_VIEW.findall(text)), 1)}
    renamed: Row = json.loads(_VIEW.sub(lambda match: f"{names[match[0]]}", text))
    return renamed


_VIEW = re.compile(r"view_\d+")
