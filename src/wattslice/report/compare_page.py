"""The page of `wattslice compare`: one file that loads nothing."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from wattslice.analysis.cli import HEAD, table
from wattslice.analysis.compare import Comparison
from wattslice.files import write_text


def write_page(found: Comparison, path: Path) -> None:
    """Write the comparison as html."""
    environment = Environment(
        loader=PackageLoader("wattslice.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    style = (files("wattslice.report") / "templates" / "report.css").read_text(encoding="utf-8")
    write_text(
        path,
        environment.get_template("compare.html.j2").render(
            style=Markup(style), found=found, head=HEAD, rows=table(found.changes)
        ),
    )
