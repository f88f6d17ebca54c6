"""`wattslice compare A B`: two campaigns side by side."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from wattslice.command import Subparsers, add_command

if TYPE_CHECKING:
    from wattslice.analysis.compare import Change, Comparison

EXIT_DIFFERENT, EXIT_USAGE = 1, 2
_EXAMPLES = """\
examples:
  wattslice compare results/before results/after
  wattslice compare results/a100 results/h200 --html compare.html
  wattslice compare results/before results/after --json --check > compare.json

Cells (layout, placement, workload, precision) that both campaigns have are compared by the ratio
of their means over repeats, B over A, with Welch's t on the logarithms; p-values are adjusted by
Holm's method. Exit codes: 0 compared; 1 nothing to compare, or with --check some figure is worse;
2 a folder that is not a campaign.
"""


def add_parser(subparsers: Subparsers) -> None:
    """Add the command to `wattslice`'s subparsers."""
    parser = add_command(
        subparsers,
        "compare",
        run,
        summary="compare two campaigns",
        about="Compare two campaigns, with the significance of every difference.",
        epilog=_EXAMPLES,
    )
    parser.add_argument("a", type=Path, metavar="A", help="folder of a campaign, e.g. results/a")
    parser.add_argument("b", type=Path, metavar="B", help="folder of the other campaign")
    parser.add_argument(
        "--confidence", type=float, default=0.95, metavar="LEVEL", help="0.5 to 1 (default 0.95)"
    )
    parser.add_argument("--html", type=Path, metavar="FILE", help="write a page that loads nothing")
    parser.add_argument("--check", action="store_true", help="exit with 1 if something is worse")


def run(arguments: argparse.Namespace) -> int:
    """Compare; the exit code is as the help says."""
    from wattslice.analysis.compare import CompareError, compare

    if not 0.5 < arguments.confidence < 1:
        print(f"--confidence {arguments.confidence:g}: above 0.5, below 1", file=sys.stderr)
        return EXIT_USAGE
    try:
        found = compare(arguments.a, arguments.b, arguments.confidence)
    except CompareError as error:
        print(error, file=sys.stderr)
        return EXIT_USAGE
    if arguments.html is not None:
        from wattslice.report.compare_page import write_page

        write_page(found, arguments.html)
    if arguments.json:
        print(json.dumps(found.model_dump(mode="json"), indent=2, sort_keys=True))
    else:
        print(text(found))
    if not found.changes:
        print("the campaigns have no cell in common", file=sys.stderr)
        return EXIT_DIFFERENT
    worse = any(change.verdict == "worse" for change in found.changes)
    return EXIT_DIFFERENT if arguments.check and worse else 0


HEAD = ("workload", "layout · placement", "precision", "figure", "A", "B", "B/A", "p", "verdict")


def table(changes: Sequence[Change]) -> list[tuple[str, ...]]:
    """The changes as text cells, those that are decided first."""
    order = {"worse": 0, "better": 1}
    ranked = sorted(changes, key=lambda change: order.get(change.verdict, 2))
    return [
        (
            change.workload,
            f"{change.layout} · {change.placement.removeprefix(change.workload + '.')}",
            change.precision,
            f"{change.figure} ({change.unit})",
            _number(change.a) + f" (n={change.n_a})",
            _number(change.b) + f" (n={change.n_b})",
            _ratio(change),
            "–" if change.p is None else f"{change.p:.3g}",
            change.verdict + _labels(change),
        )
        for change in ranked
    ]


def _labels(change: Change) -> str:
    names = [
        name
        for name, on in (
            ("modelled, not measured", change.modelled),
            ("simulated", change.simulated),
        )
        if on
    ]
    return f" ({'; '.join(names)})" if names else ""


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.4g}"


def _ratio(change: Change) -> str:
    if change.ratio is None:
        return "–"
    span = "" if change.low is None else f" ({change.low:.3f} to {change.high:.3f})"
    return f"{change.ratio:.3f}{span}"


def text(found: Comparison) -> str:
    """The comparison for a terminal."""
    rows = [HEAD, *table(found.changes)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(HEAD))]
    lines = [f"A = {found.a}", f"B = {found.b}"]
    lines += [f"{name}: {a} -> {b}" for name, (a, b) in found.settings.items()]
    lines.append("")
    lines += [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
    for which, cells in (("A", found.only_a), ("B", found.only_b)):
        if cells:
            lines.append(f"only in {which}: {len(cells)} cells, e.g. {cells[0]}")
    decided = len(found.significant)
    lines += [
        "",
        f"{decided} of {len(found.changes)} figures differ at {100 * found.confidence:g} %, "
        "adjusted for their number (Holm). Intervals are not adjusted.",
    ]
    return "\n".join(lines)
