"""The report: one self-contained page that loads nothing, and its tables for a paper."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from markupsafe import Markup

from wattslice.analysis.claims import ClaimResult, ClaimTable, Verdict, read_claim_table
from wattslice.config.models import CampaignConfig
from wattslice.files import write_text
from wattslice.records.run import MEASURED_OUTCOMES
from wattslice.report import charts, theme
from wattslice.report.background import Background, gather
from wattslice.report.charts.base import MODELLED, SIMULATED, BuiltFigure, FigureData, load
from wattslice.report.figures import javascript, svg
from wattslice.report.findings import Topic, findings
from wattslice.report.numbers import with_interval
from wattslice.report.page import asset, fill
from wattslice.report.tables import Table, claim_value, report_tables, write_report_tables

# Above this many rows the static picture of a figure shows medians only; the interactive one all.
STATIC_ROWS = 600
SINGLE_ROLES = ("repeat", "pair")
# A larger picture is left out: the page then prints the interactive drawing in its place.
STATIC_BYTES = 250_000
# From this many rows on a figure is drawn on a canvas, which stays fluid; SVG can be selected.
CANVAS_ROWS = 1500
UNMEASURABLE: Verdict = "not measurable here"
VERDICT_MARKS: dict[str, str] = {
    "reproduced": "✓",
    "partly": "◐",
    "not reproduced": "✗",
    "undecided": "?",
    "not measurable here": "–",
    "rehearsed only": "○",
}


@dataclass(frozen=True, slots=True)
class FigureView:
    """What the template needs of a figure."""

    name: str
    question: str
    caption: str
    alt: str
    labels: tuple[str, ...]
    empty: str | None
    picture: str  # data URI of the static drawing; empty where it would be too large
    notes: tuple[str, ...]
    answers: tuple[str, ...]


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
    drawn = svg(still).encode("utf-8")
    if len(drawn) > STATIC_BYTES:
        return ""
    return f"data:image/svg+xml;base64,{base64.b64encode(drawn).decode('ascii')}"


def _page_spec(figure: BuiltFigure) -> dict[str, Any]:
    """The spec as the page needs it: no schema address; what the page says is not said twice."""
    spec = {key: value for key, value in figure.spec.items() if key != "$schema"}
    spec["title"] = {"text": figure.spec["title"]["text"]}
    spec["description"] = figure.alt
    if any(len(rows) > CANVAS_ROWS for rows in figure.datasets.values()):
        spec["usermeta"] = {"embedOptions": {"renderer": "canvas"}}
    return spec


@dataclass(frozen=True, slots=True)
class ClaimView:
    """What the template needs of a claim."""

    claim: ClaimResult
    mark: str
    value: str
    labels: tuple[str, ...]
    also: tuple[tuple[str, str], ...]


def _claim_view(claim: ClaimResult) -> ClaimView:
    labels = [word for word, on in ((MODELLED, claim.modelled), (SIMULATED, claim.simulated)) if on]
    also = tuple(
        (
            name,
            with_interval(n.value, n.low, n.high, 0.95, n=f"n={n.n}")
            if n.value is not None
            else f"none: {n.reason}",
        )
        for name, n in claim.also.items()
    )
    mark = VERDICT_MARKS[claim.verdict]
    return ClaimView(claim, mark, claim_value(claim), tuple(labels), also)


def _script_json(value: Any) -> Markup:
    """JSON that can stand in a <script> element."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return Markup(text.replace("<", "\\u003c").replace("\u2028", "\\u2028"))


def render(
    data: FigureData,
    background: Background,
    config: CampaignConfig,
    claims: ClaimTable | None = None,
    *,
    pictures: bool = True,
) -> str:
    """The page as text; without `pictures` it has no static drawings, and is made faster."""
    figures = [charts.build(name, data) for name in charts.NAMES]
    drawn = [figure for figure in figures if figure.empty is None]
    datasets: dict[str, Any] = {}
    for figure in drawn:
        datasets |= figure.datasets
    runs = data.tables["runs"]
    tables: dict[str, Table] = report_tables(data, claims)
    views = [_claim_view(claim) for claim in (claims.claims if claims else ())]
    found: list[Topic] = findings(data)
    return fill(
        "report.html.j2",
        title=config.title,
        question=config.question,
        config=config,
        style=asset("report.css"),
        script=asset("report.js"),
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
                "" if figure.empty or not pictures else _picture(figure),
                figure.notes,
                figure.answers,
            )
            for figure in figures
        ],
        topics=found,
        claims=claims,
        judged=[view for view in views if view.claim.verdict != UNMEASURABLE],
        unmeasurable=[view for view in views if view.claim.verdict == UNMEASURABLE],
        verdict_marks=VERDICT_MARKS,
        badges_of_runs=sorted(runs["badge"].value_counts().to_dict().items()),
        tables=tables,
        background=background,
        modelled=data.modelled,
        simulated=data.simulated,
        labels={"modelled": MODELLED, "simulated": SIMULATED},
        runs=len(runs),
        measured=int(runs["outcome"].isin(MEASURED_OUTCOMES).sum()),
        outcomes=sorted(runs["outcome"].value_counts().to_dict().items()),
    )


def write_report(
    campaign_dir: Path, config: CampaignConfig, out: Path, *, pictures: bool = True
) -> Path:
    """Write the page to `out` and the tables, as .tex and .md, into `tables` beside it.

    Needs tables/ and analysis/ of the campaign; uses runs/, idle/ and inventory.json.
    """
    campaign_dir, out = Path(campaign_dir), Path(out)
    analysis = campaign_dir / "analysis"
    data = load(campaign_dir / "tables", analysis, campaign_dir / "runs")
    claims = read_claim_table(analysis) if (analysis / "claims.json").is_file() else None
    background = gather(campaign_dir, config, data)
    write_text(out, render(data, background, config, claims, pictures=pictures))
    write_report_tables(report_tables(data, claims), out.parent / "tables")
    return out
