"""What do busy slices bring over the same jobs one after another on the base?"""

from __future__ import annotations

from wattslice.analysis.ratios import PRECISIONS, Ratio
from wattslice.report.charts.base import Drawing, Empty, FigureData
from wattslice.report.charts.ratio_parts import RatioAxes, ratio_grid, ratio_rows

METRICS = {
    "mix_progress": "speed (higher is better)",
    "mix_energy": "energy (lower is better)",
}


def draw(data: FigureData) -> Drawing | Empty:
    """Speed and energy of busy layouts over each base, for mixes and for equal jobs."""
    ratios = [r for r in data.ratios.ratios if r.kind in METRICS]

    def panel(ratio: Ratio) -> str:
        return f"over {ratio.denominator} | {METRICS[ratio.kind]}"

    rows = ratio_rows(ratios, panel, lambda r: r.precision, lambda r: f"{r.layout} · {r.placement}")
    if not rows:
        why = sorted({r.reason for r in ratios if r.reason})
        return Empty("; ".join(why[:3]) or "no run has several jobs at once and a base beside it")
    axes = RatioAxes(
        x_title="together / one by one (ratio)",
        series_title="precision",
        series=list(PRECISIONS),
        dataset="mixes",
        y_title="layout · placement",
    )
    without = sum(r.value is None for r in ratios)
    notes = (f"{without} of {len(ratios)} ratios have no value",) if without else ()
    return ratio_grid(rows, axes, notes)
