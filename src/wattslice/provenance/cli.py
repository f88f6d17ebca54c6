"""Commands `trace`, `verify` and `archive`.

Exit codes: 0 everything holds, 1 something does not (named), 2 wrong usage or no such thing.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from wattslice.command import Subparsers, add_command, answer

if TYPE_CHECKING:
    from wattslice.provenance.tree import Node

HOLDS, FAILS, USAGE = 0, 1, 2
_EXIT_CODES = "exit codes: 0 everything holds, 1 something does not (it is named), 2 wrong usage"

_TRACE = """\
examples:
  wattslice trace results/default/tables/summary.csv#0
  wattslice trace 'results/default/tables/runs.parquet?workload=resnet&precision=fp32'
  wattslice trace 'results/default/analysis/ratios.json?kind=partition_throughput'
  wattslice trace results/default/figures/throughput.svg
  wattslice trace results/default/report/index.html#1.42
  wattslice trace results/default/runs/full/resnet.fill/fp32/rep1 --json
"""
_VERIFY = """\
examples:
  wattslice verify results/default
  wattslice verify results/default --digests-only
  wattslice verify reproduced/results/default --against default
"""
_ARCHIVE = """\
examples:
  wattslice archive results/default -o default.tar.gz
  wattslice archive results/default --derived -o default-derived.tar.gz
"""


def add_parser(subparsers: Subparsers) -> None:
    """Add the commands to `wattslice`'s subparsers."""
    trace = add_command(
        subparsers,
        "trace",
        _trace,
        summary="walk from a number back to config, code, environment, board and raw samples",
        about="Walk from a table row, an entry of the analysis, a figure, a number of the report "
        "or a run back to config, code, environment, board and raw samples; make it again from the "
        "raw samples and compare; say whether each digest still holds.",
        epilog=f"{_TRACE}\n{_EXIT_CODES}",
    )
    trace.add_argument("target", metavar="PATH[#ENTRY|?COLUMN=VALUE&…]", help="what to trace")

    verify = add_command(
        subparsers,
        "verify",
        _verify,
        summary="check every digest of a campaign, and make its results again",
        about="Check the sha256 of every file of a campaign (or of an unpacked archive) and every "
        "digest in its records, then make metrics, tables, ratios, figures and report again from "
        "the raw samples and compare.",
        epilog=f"{_VERIFY}\n{_EXIT_CODES}",
    )
    verify.add_argument("campaign", type=Path, metavar="CAMPAIGN", help="e.g. results/default")
    how = verify.add_mutually_exclusive_group()
    how.add_argument(
        "--digests-only", action="store_true", help="do not make the results again: seconds"
    )
    how.add_argument(
        "--against",
        type=Path,
        metavar="OTHER",
        help="compare tables, analysis, figures and report with those of another folder instead",
    )

    archive = add_command(
        subparsers,
        "archive",
        _archive,
        summary="pack a campaign so that others can make its results again",
        about="Pack a finished campaign with a manifest, its code, and a script that makes its "
        "results again without a GPU.",
        epilog=f"{_ARCHIVE}\n{_EXIT_CODES}",
    )
    archive.add_argument("campaign", type=Path, metavar="CAMPAIGN", help="e.g. results/default")
    kind = archive.add_mutually_exclusive_group()
    kind.add_argument(
        "--raw",
        dest="kind",
        action="store_const",
        const="raw",
        default="raw",
        help="with raw samples (default): results can be made again from it",
    )
    kind.add_argument(
        "--derived",
        dest="kind",
        action="store_const",
        const="derived",
        help="without raw samples: to read and to verify",
    )
    archive.add_argument(
        "-o", "--out", type=Path, required=True, metavar="FILE", help="archive to write, .tar.gz"
    )


def _trace(arguments: argparse.Namespace) -> int:
    from wattslice.provenance.chain import NotACampaignError
    from wattslice.provenance.trace import trace

    try:
        node = trace(arguments.target)
    except (NotACampaignError, OSError) as error:
        return _usage(arguments, error)
    return _show(arguments, node)


def _verify(arguments: argparse.Namespace) -> int:
    from wattslice.provenance.chain import NotACampaignError
    from wattslice.provenance.verify import compare, verify

    try:
        if arguments.against is not None:
            node = compare(arguments.campaign, arguments.against)
        else:
            node = verify(arguments.campaign, again=not arguments.digests_only)
    except (NotACampaignError, OSError) as error:
        return _usage(arguments, error)
    return _show(arguments, node)


def _archive(arguments: argparse.Namespace) -> int:
    from wattslice.provenance.archive import SUFFIXES, ArchiveError, pack

    if not arguments.out.name.endswith(SUFFIXES):
        return _usage(arguments, f"{arguments.out} does not end in {' or '.join(SUFFIXES)}")
    if not arguments.campaign.is_dir():
        return _usage(arguments, f"{arguments.campaign} is no folder of a campaign")
    try:
        manifest = pack(arguments.campaign, arguments.out, arguments.kind)
    except ArchiveError as error:
        answer(arguments, {"error": str(error)}, f"not packed:\n{error}", failed=True)
        return FAILS
    facts = {
        "archive": str(arguments.out),
        "kind": manifest.kind,
        "campaign": manifest.campaign,
        "files": len(manifest.files),
        "bytes": arguments.out.stat().st_size,
    }
    size = facts["bytes"] / 1e6
    text = f"{arguments.out}: {len(manifest.files)} files, {size:.1f} MB ({manifest.kind})"
    answer(arguments, facts, text)
    return HOLDS


def _show(arguments: argparse.Namespace, node: Node) -> int:
    from wattslice.provenance.tree import render

    failures = list(node.failures())
    lines = [f"does not hold: {failure.label}: {failure.text}" for failure in failures]
    last = f"{len(failures)} statements do not hold" if failures else "everything holds"
    answer(arguments, node.as_json(), "\n".join([render(node), "", *lines, last]))
    return FAILS if failures else HOLDS


def _usage(arguments: argparse.Namespace, error: object) -> int:
    text = f"wattslice {arguments.command}: {error}"
    answer(arguments, {"error": str(error)}, text, failed=True)
    return USAGE
