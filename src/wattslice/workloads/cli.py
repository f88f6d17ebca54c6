"""`wattslice workloads`: list a config's workloads with their parameter counts."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from wattslice.command import Subparsers, add_command, answer

DEFAULT_CONFIG = Path("config/config.yaml")


def add_parser(subparsers: Subparsers) -> None:
    """Add the command to `wattslice`'s subparsers."""
    parser = add_command(
        subparsers,
        "workloads",
        run,
        summary="list a config's workloads with parameter counts",
        about="List the workloads of a config: model, task, data, batch and number of "
        "parameters, counted without allocating the model.",
        epilog="exit codes: 0 all can be built, 1 some cannot (named), 2 no usable config. "
        "Example: wattslice workloads --config config/config.yaml --json",
    )
    parser.add_argument(
        "--config",
        type=Path,
        nargs="+",
        default=[DEFAULT_CONFIG],
        metavar="FILE",
        help=f"config files, later ones over earlier ones (default: {DEFAULT_CONFIG})",
    )
    parser.add_argument(
        "--flops",
        action="store_true",
        help="count the operations of a sample, too: of its forward pass and of training",
    )
    parser.add_argument(
        "--memory",
        action="store_true",
        help="count the memory that a step keeps, too (float32, no work space: a slice needs more)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Print the catalogue; return the exit code."""
    from wattslice.config.errors import ConfigError
    from wattslice.config.expand import definition
    from wattslice.config.load import load_files
    from wattslice.workloads.catalogue import catalogue, table

    try:
        campaign = load_files(arguments.config)
    except (ConfigError, OSError) as error:
        print(f"wattslice workloads: {error}", file=sys.stderr)
        return 2
    entries = catalogue(
        {name: definition(campaign, name) for name in campaign.workloads},
        flops=arguments.flops,
        memory=arguments.memory,
    )
    answer(arguments, {"workloads": [entry.model_dump() for entry in entries]}, table(entries))
    return 1 if any(entry.error for entry in entries) else 0
