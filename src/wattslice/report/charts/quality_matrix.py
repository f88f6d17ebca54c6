"""Which checks did the runs of each cell fail?"""

from __future__ import annotations

from collections import Counter
from typing import Any

import altair as alt
import pandas as pd

from wattslice.report.charts.base import (
    Drawing,
    Empty,
    FigureData,
    Row,
    ordered_slots,
    plain,
    precisions_of,
    status_colour,
)

STATUS = ("passed", "flagged", "rejected")
MOST_LINES = 40


def _names(value: Any) -> list[str]:
    return [] if pd.isna(value) else [name for name in str(value).split(";") if name]


def matrix_rows(data: FigureData) -> list[Row]:
    """Runs per line and check, with how many of them the check flags or rejects.

    A line is a layout, kind of placement and precision; where these are too many, a layout.
    """
    runs = data.tables["runs"].to_dict("records")
    by_slot = {f"{r['layout']} · {r['kind']} · {r['precision']}" for r in runs}
    found: Counter[tuple[str, str, str]] = Counter()
    totals: Counter[str] = Counter()
    precisions: dict[str, str] = {}
    slots: dict[str, str] = {}
    for run in runs:
        slot = f"{run['layout']} · {run['kind']}"
        line = f"{slot} · {run['precision']}" if len(by_slot) <= MOST_LINES else str(run["layout"])
        precisions[line], slots[line] = str(run["precision"]), slot
        totals[line] += 1
        for status, column in (("flagged", "quality_flags"), ("rejected", "quality_rejects")):
            found.update((line, check, status) for check in _names(run[column]))
    checks = sorted({check for _, check, _ in found})
    rows = []
    for line in totals:
        for check in checks:
            flagged, rejected = (found[line, check, status] for status in STATUS[1:])
            bad = flagged + rejected
            rows.append(
                {
                    "line": line,
                    "slot": slots[line],
                    "precision": precisions[line],
                    "check": check,
                    "status": STATUS[2] if rejected else STATUS[1] if flagged else STATUS[0],
                    "bad": bad,
                    "runs": totals[line],
                    "label": f"{bad}/{totals[line]}" if bad else "",
                }
            )
    return [{key: plain(value) for key, value in row.items()} for row in rows]


def draw(data: FigureData) -> Drawing | Empty:
    """Checks against lines of runs; a cell says how many runs failed the check."""
    if data.tables["runs"].empty:
        return Empty("the campaign has no runs")
    rows = matrix_rows(data)
    if not rows:
        runs = len(data.tables["runs"])
        return Empty(f"none of the {runs} runs failed a check")
    slots = ordered_slots(row["slot"] for row in rows)
    order = list(
        dict.fromkeys(
            row["line"]
            for slot in slots
            for precision in precisions_of(rows)
            for row in rows
            if (row["slot"], row["precision"]) == (slot, precision)
        )
    )
    gaps = alt.Scale(paddingInner=0.06, paddingOuter=0.03)
    base = alt.Chart(alt.NamedData(name="quality")).encode(
        y=alt.Y("line:N", sort=order, title="layout · placement · precision", scale=gaps),
        x=alt.X(
            "check:N",
            title="check",
            scale=gaps,
            axis=alt.Axis(labelAngle=-40, orient="top", labelLimit=130),
        ),
    )
    cells = base.mark_rect(fillOpacity=0.3, strokeWidth=1).encode(
        color=status_colour(STATUS, {row["status"] for row in rows}, "worst of the cell"),
        tooltip=[
            alt.Tooltip("line:N", title="runs of"),
            alt.Tooltip("check:N"),
            alt.Tooltip("status:N"),
            alt.Tooltip("bad:Q", title="runs that failed it"),
            alt.Tooltip("runs:Q", title="runs"),
        ],
    )
    text = base.mark_text().encode(text="label:N")
    checks = len({row["check"] for row in rows})
    chart = alt.layer(cells, text).properties(width=max(200, 56 * checks), height=alt.Step(19))
    badges = Counter(data.tables["runs"]["badge"])
    return Drawing(
        chart,
        "quality",
        rows,
        ("Checks that no run failed are left out",),
        f"Of {len(data.tables['runs'])} runs "
        + ", ".join(f"{count} are {badge}" for badge, count in sorted(badges.items()))
        + ".",
    )
