"""How much training does a joule buy?"""

from __future__ import annotations

from wattslice.report.charts.base import Drawing, Empty, FigureData, dot_grid


def draw(data: FigureData) -> Drawing | Empty:
    """Samples over gross energy of the stated scope, samples/J."""
    return dot_grid(data, "samples_per_j", "samples per joule", "samples/J")
