"""The page of `wattslice compare`: one file that loads nothing."""

from __future__ import annotations

from pathlib import Path

from wattslice.analysis.cli import HEAD, table
from wattslice.analysis.compare import Comparison
from wattslice.files import write_text
from wattslice.report.page import asset, fill


def write_page(found: Comparison, path: Path) -> None:
    """Write the comparison as html."""
    page = fill(
        "compare.html.j2",
        style=asset("report.css"),
        found=found,
        head=HEAD,
        rows=table(found.changes),
    )
    write_text(path, page)
