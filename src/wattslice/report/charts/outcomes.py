"""Which runs gave a measurement, and what became of the others?"""

from __future__ import annotations

from typing import Any

import altair as alt

from wattslice.records.run import MEASURED_OUTCOMES
from wattslice.report.charts.base import (
    PANEL_WIDTH,
    Drawing,
    Empty,
    FigureData,
    Row,
    ordered_slots,
    plain,
    precisions_of,
    slot_of,
    status_colour,
)

STATUS = ("all measured", "some measured", "none measured")


def draw(data: FigureData) -> Drawing | Empty:
    """A cell per layout, placement, precision and workload: measured / all, and the outcome."""
    rows = outcome_rows(data)
    if not rows:
        return Empty("the campaign has no runs")
    slots = ordered_slots(row["slot"] for row in rows)
    order = [f"{slot} · {p}" for slot in slots for p in precisions_of(rows)]
    have = {row["row"] for row in rows}
    order = [name for name in order if name in have]
    gaps = alt.Scale(paddingInner=0.06, paddingOuter=0.03)
    base = alt.Chart().encode(
        y=alt.Y("row:N", sort=order, title="layout · placement · precision", scale=gaps),
        x=alt.X(
            "workload:N",
            title="workload",
            scale=gaps,
            axis=alt.Axis(labelAngle=-30, orient="top"),
        ),
    )
    cells = base.mark_rect(fillOpacity=0.3, strokeWidth=1).encode(
        color=status_colour(STATUS, _statuses(rows), "runs of the cell"),
        tooltip=[
            alt.Tooltip("workload:N"),
            alt.Tooltip("row:N", title="cell"),
            alt.Tooltip("label:N", title="measured / runs"),
            alt.Tooltip("outcomes:N"),
        ],
    )
    text = base.mark_text(baseline="middle", limit=alt.expr("bandwidth('x') - 4")).encode(
        text="label:N"
    )
    chart = alt.layer(cells, text, data=alt.NamedData(name="outcomes")).properties(
        width=PANEL_WIDTH * 2.6, height=alt.Step(24)
    )
    measured = sum(row["n"] for row in rows)
    total = sum(row["runs"] for row in rows)
    return Drawing(
        chart,
        "outcomes",
        rows,
        (),
        f"{measured} of {total} workload runs gave a throughput.",
    )


def _statuses(rows: list[Row]) -> set[Any]:
    return {row["status"] for row in rows}


def outcome_rows(data: FigureData) -> list[Row]:
    rows = []
    for record in data.tables["summary"].to_dict("records"):
        runs, n = int(record["runs"]), int(record["n"])
        outcomes = dict(part.split("=") for part in str(record["outcomes"]).split(";"))
        others = sorted((o for o in outcomes if o not in MEASURED_OUTCOMES), key=str)
        flagged = sorted(o for o in outcomes if o in MEASURED_OUTCOMES and o != "ok")
        label = f"{n}/{runs}" + (f" {(others or flagged)[0]}" if others or flagged else "")
        slot = slot_of(record["layout"], record["placement"], record["workload"])
        row = {
            "workload": record["workload"],
            "slot": slot,
            "precision": record["precision"],
            "row": f"{slot} · {record['precision']}",
            "n": n,
            "runs": runs,
            "status": STATUS[0] if n == runs else STATUS[1] if n else STATUS[2],
            "label": label,
            "outcomes": record["outcomes"],
        }
        rows.append({key: plain(value) for key, value in row.items()})
    return rows
