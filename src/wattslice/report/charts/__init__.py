"""The figures, one small module each; see `wattslice.report.figure_list` for their names.

Importing this package imports no charting library: `build` does when it is called.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from wattslice.report.figure_list import BY_NAME, FIGURES, FORMATS, NAMES

if TYPE_CHECKING:
    from wattslice.report.charts.base import BuiltFigure, FigureData

__all__ = ["BY_NAME", "FIGURES", "NAMES", "build", "write_figures"]


def build(name: str, data: FigureData) -> BuiltFigure:
    """Build a figure of the list. One without data states why instead of being left out."""
    if name not in BY_NAME:
        raise ValueError(f"no figure is named {name!r}; there are: {', '.join(NAMES)}")
    from wattslice.report.charts.base import finish

    module = import_module(f"wattslice.report.charts.{name}")
    return finish(BY_NAME[name], data, module.draw(data))


def write_figures(
    tables_dir: Path,
    analysis_dir: Path,
    runs_dir: Path,
    out_dir: Path,
    formats: Iterable[str] = FORMATS,
) -> list[Path]:
    """Write every figure as <out_dir>/<name>.<format>; see `wattslice.report.figures`."""
    from wattslice.report import figures

    return figures.write_figures(tables_dir, analysis_dir, runs_dir, out_dir, formats)
