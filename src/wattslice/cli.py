"""The command `wattslice`: what is not a target of the workflow.

Sub-commands live beside the code that they call: each module has `add_parser(subparsers)`.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence

from wattslice import __version__

# Imported in this order; each adds its commands.
COMMANDS = (
    "wattslice.boards.nvidia.cli",
    "wattslice.workloads.cli",
    "wattslice.measure.cli",
    "wattslice.analysis.cli",
    "wattslice.planner.cli",
    "wattslice.simulation.cli",
    "wattslice.provenance.cli",
)


def parser() -> argparse.ArgumentParser:
    """The parser with all commands."""
    top = argparse.ArgumentParser(
        prog="wattslice",
        description="Training throughput and energy of models on GPU and CPU slices.",
        epilog="Campaigns are run with Snakemake: `make run`, or `snakemake --cores all`.",
    )
    top.add_argument("--version", action="version", version=f"wattslice {__version__}")
    commands = top.add_subparsers(title="commands", dest="command", required=True)
    for module in COMMANDS:
        importlib.import_module(module).add_parser(commands)
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; returns its exit code (0 ok, 1 no, 2 wrong usage)."""
    arguments = parser().parse_args(argv)
    try:
        code: int = arguments.func(arguments)
    except BrokenPipeError:  # e.g. `wattslice layouts … | head`
        sys.stderr.close()
        return 0
    return code
