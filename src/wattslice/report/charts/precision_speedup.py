"""How much faster is a lower precision than the base precision?"""

from __future__ import annotations

from wattslice.report.charts.base import Drawing, Empty, FigureData, ordered_slots, slot_of
from wattslice.report.charts.ratio_parts import RatioAxes, ratio_grid, ratio_rows


def draw(data: FigureData) -> Drawing | Empty:
    """Ratio of throughputs by workload, one panel per pair of precisions."""
    ratios = [r for r in data.ratios.ratios if r.kind == "precision_speedup"]
    rows = ratio_rows(
        ratios,
        lambda r: f"{r.numerator} over {r.denominator}",
        lambda r: slot_of(r.layout, r.placement, r.workload or ""),
    )
    if not rows:
        why = sorted({r.reason for r in ratios if r.reason})
        return Empty("; ".join(why[:3]) or "no workload was run in two precisions")
    axes = RatioAxes(
        x_title="throughput ratio (1 = no difference)",
        series_title="layout · placement",
        series=ordered_slots(row["series"] for row in rows),
        dataset="speedups",
    )
    return ratio_grid(rows, axes)
