"""How fast does each workload train, by slice layout and precision?"""

from __future__ import annotations

from wattslice.report.charts.base import Drawing, Empty, FigureData, dot_grid


def draw(data: FigureData) -> Drawing | Empty:
    """Throughput of all busy slices together, samples/s."""
    return dot_grid(data, "throughput_samples_s", "throughput", "samples/s")
