"""The report: one self-contained page that loads nothing, and its tables for a paper."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from wattslice.config.models import CampaignConfig
from wattslice.files import write_text
from wattslice.report import charts, theme
from wattslice.report.background import Background, gather
from wattslice.report.charts.base import MODELLED, SIMULATED, BuiltFigure, FigureData, load
from wattslice.report.figures import javascript, svg
from wattslice.report.findings import Topic, findings
from wattslice.report.tables import Table, report_tables, write_report_tables

# Above this many rows the static picture of a figure shows medians only; the interactive one all.
STATIC_ROWS = 3000
SINGLE_ROLES = ("repeat", "pair")


@dataclass(frozen=True, slots=True)
class FigureView:
    """What the template needs of a figure."""

    name: str
    question: str
    caption: str
    alt: str
    labels: tuple[str, ...]
    empty: str | None
    picture: str  # data URI of the static drawing
    notes: tuple[str, ...]


def _picture(figure: BuiltFigure) -> str:
    still = figure
    if any(len(rows) > STATIC_ROWS for rows in figure.datasets.values()):
        still = replace(
            figure,
            datasets={
                name: [row for row in rows if row.get("role") not in SINGLE_ROLES]
                for name, rows in figure.datasets.items()
            },
        )
    content = base64.b64encode(svg(still).encode("utf-8")).decode("ascii")
    return f"data:image/svg+xml;base64,{content}"


def _page_spec(figure: BuiltFigure) -> dict[str, Any]:
    """The spec as the page needs it: no schema address; what the page says is not said twice."""
    spec = {key: value for key, value in figure.spec.items() if key != "$schema"}
    spec["title"] = {"text": figure.spec["title"]["text"]}
    spec["description"] = figure.alt
    return spec


def _script_json(value: Any) -> Markup:
    """JSON that can stand in a <script> element."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return Markup(text.replace("<", "\\u003c").replace("\u2028", "\\u2028"))


def _asset(name: str) -> Markup:
    folder = files("wattslice.report") / "templates"
    return Markup((folder / name).read_text(encoding="utf-8"))


def render(data: FigureData, background: Background, config: CampaignConfig) -> str:
    """The page as text."""
    figures = [charts.build(name, data) for name in charts.NAMES]
    drawn = [figure for figure in figures if figure.empty is None]
    datasets: dict[str, Any] = {}
    for figure in drawn:
        datasets |= figure.datasets
    environment = Environment(
        loader=PackageLoader("wattslice.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    runs = data.tables["runs"]
    tables: dict[str, Table] = report_tables(data)
    found: list[Topic] = findings(data)
    return environment.get_template("report.html.j2").render(
        title=config.title,
        question=config.question,
        config=config,
        style=_asset("report.css"),
        script=_asset("report.js"),
        library=Markup(javascript()) if drawn else None,
        data=_script_json(datasets),
        specs=_script_json({figure.figure.name: _page_spec(figure) for figure in drawn}),
        themes=_script_json({mode: theme.config(mode, background=False) for mode in theme.MODES}),
        figures=[
            FigureView(
                figure.figure.name,
                figure.figure.question,
                figure.figure.caption,
                figure.alt,
                figure.labels,
                figure.empty,
                "" if figure.empty else _picture(figure),
                tuple(figure.spec["title"].get("subtitle", []))[1:] if not figure.empty else (),
            )
            for figure in figures
        ],
        topics=found,
        tables=tables,
        background=background,
        modelled=data.modelled,
        simulated=data.simulated,
        labels={"modelled": MODELLED, "simulated": SIMULATED},
        runs=len(runs),
        measured=int(runs["throughput_samples_s"].notna().sum()),
        outcomes=sorted(runs["outcome"].value_counts().to_dict().items()),
    )


def write_report(campaign_dir: Path, config: CampaignConfig, out: Path) -> Path:
    """Write the page to `out` and the tables, as .tex and .md, into `tables` beside it.

    Needs tables/ and analysis/ of the campaign; uses runs/, idle/ and inventory.json.
    """
    campaign_dir, out = Path(campaign_dir), Path(out)
    data = load(campaign_dir / "tables", campaign_dir / "analysis", campaign_dir / "runs")
    write_text(out, render(data, gather(campaign_dir, config, data), config))
    write_report_tables(report_tables(data), out.parent / "tables")
    return out
