"""What does splitting the board bring, when all slices are busy?"""

from __future__ import annotations

from wattslice.analysis.ratios import PRECISIONS, Ratio
from wattslice.report.charts.base import Drawing, Empty, FigureData
from wattslice.report.charts.ratio_parts import RatioAxes, ratio_grid, ratio_rows

METRICS = {
    "partition_throughput": "throughput (higher is better)",
    "partition_energy_per_sample": "energy per sample (lower is better)",
}


def draw(data: FigureData) -> Drawing | Empty:
    """Filled slices over the board as one: aggregate throughput and energy per sample."""
    ratios = [r for r in data.ratios.ratios if r.kind in METRICS]

    def panel(ratio: Ratio) -> str:
        return f"{ratio.layout} over {ratio.denominator} | {METRICS[ratio.kind]}"

    rows = ratio_rows(ratios, panel, lambda r: r.precision)
    if not rows:
        why = sorted({r.reason for r in ratios if r.reason})
        return Empty(
            "; ".join(why[:3]) or "no workload was run both on the whole board and on all slices"
        )
    axes = RatioAxes(
        x_title="all slices / board as one (ratio)",
        series_title="precision",
        series=list(PRECISIONS),
        dataset="partition",
    )
    without = sum(r.value is None for r in ratios)
    notes = (f"{without} of {len(ratios)} ratios have no value",) if without else ()
    return ratio_grid(rows, axes, notes)
