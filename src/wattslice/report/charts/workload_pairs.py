"""What does one model cost against another of the same task, in time and in memory?"""

from __future__ import annotations

from wattslice.analysis.ratios import PRECISIONS
from wattslice.report.charts.base import Drawing, Empty, FigureData, slot_of
from wattslice.report.charts.ratio_parts import RatioAxes, ratio_grid, ratio_rows

METRICS = {"workload_time": "time per sample", "workload_memory": "peak memory"}


def draw(data: FigureData) -> Drawing | Empty:
    """Time per sample and peak memory of one workload over another, e.g. ALBERT, DistilBERT."""
    ratios = [r for r in data.ratios.ratios if r.kind in METRICS]
    rows = ratio_rows(
        ratios,
        lambda r: f"{r.numerator} over {r.denominator} | {METRICS[r.kind]}",
        lambda r: r.precision,
        lambda r: slot_of(r.layout, r.placement, r.workload or ""),
    )
    if not rows:
        why = sorted({r.reason for r in ratios if r.reason})
        return Empty("; ".join(why[:3]) or "no two workloads differ in their model only")
    axes = RatioAxes(
        x_title="ratio (1 = no difference)",
        series_title="precision",
        series=list(PRECISIONS),
        dataset="pairs",
        y_title="layout · placement",
    )
    return ratio_grid(rows, axes)
