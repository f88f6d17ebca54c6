"""Figures as files: html, svg, png and pdf, all made offline."""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

import vl_convert as vlc

from wattslice.files import replacing, write_text
from wattslice.report import charts
from wattslice.report.charts.base import BuiltFigure, FigureData, load
from wattslice.report.figure_list import FORMATS, NAMES
from wattslice.report.theme import Mode

VEGA_LITE = "6.4"
PNG_SCALE = 2.0


@lru_cache(maxsize=1)
def javascript() -> str:
    """The Vega libraries as one script that sets `window.vegaEmbed`; comes with the package."""
    bundle: str = vlc.javascript_bundle("window.vegaEmbed = vegaEmbed;", vl_version=VEGA_LITE)
    # The bundle goes into a <script> element, which a literal end tag would close.
    return bundle.replace("</script", "<\\/script")


def svg(figure: BuiltFigure, mode: Mode = "light") -> str:
    """The figure as SVG text."""
    text: str = vlc.vegalite_to_svg(figure.standalone(mode), vl_version=VEGA_LITE)
    return text


def page(figure: BuiltFigure) -> str:
    """The figure alone as an interactive page that loads nothing."""
    spec = json.dumps(figure.standalone(), sort_keys=True).replace("</", "<\\/")
    title = figure.spec["title"]["text"][0].replace("&", "&amp;").replace("<", "&lt;")
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{title}</title></head>\n"
        '<body style="margin:0"><main id="figure" style="overflow-x:auto"></main>\n'
        f"<script>{javascript()}</script>\n"
        f'<script>vegaEmbed("#figure", {spec}, '
        '{renderer: "svg", actions: {export: true, source: false, compiled: false, '
        "editor: false}});</script>\n</body></html>\n"
    )


def save(figure: BuiltFigure, out_dir: Path, formats: Iterable[str]) -> list[Path]:
    """Write a figure as <out_dir>/<name>.<format> for each format."""
    written = []
    for kind in formats:
        path = out_dir / f"{figure.figure.name}.{kind}"
        spec = figure.standalone()
        if kind == "html":
            write_text(path, page(figure))
        elif kind == "svg":
            write_text(path, svg(figure))
        elif kind in ("png", "pdf"):
            content: bytes = (
                vlc.vegalite_to_png(spec, vl_version=VEGA_LITE, scale=PNG_SCALE)
                if kind == "png"
                else vlc.vegalite_to_pdf(spec, vl_version=VEGA_LITE)
            )
            with replacing(path) as temporary:
                temporary.write_bytes(content)
        else:
            raise ValueError(f"figure format {kind!r} is not one of {', '.join(FORMATS)}")
        written.append(path)
    return written


def write_figures(
    tables_dir: Path,
    analysis_dir: Path,
    runs_dir: Path,
    out_dir: Path,
    formats: Iterable[str] = FORMATS,
    *,
    names: Iterable[str] = NAMES,
) -> list[Path]:
    """Write every figure in every format; a figure without data is a file that says why."""
    data: FigureData = load(Path(tables_dir), Path(analysis_dir), Path(runs_dir))
    kinds = list(formats)
    return [path for name in names for path in save(charts.build(name, data), Path(out_dir), kinds)]
