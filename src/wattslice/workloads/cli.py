"""`wattslice workloads`: list a config's workloads with their parameter counts."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

DEFAULT_CONFIG = Path("config/config.yaml")


def add_parser(
    subparsers: argparse._SubParsersAction[argparse.ArgumentParser],
) -> argparse.ArgumentParser:
    """Add the command to the program's sub-commands; its `func` takes the arguments."""
    parser = subparsers.add_parser(
        "workloads",
        help="list a config's workloads with parameter counts",
        description="List the workloads of a config: model, task, data, batch and number of "
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
        "--flops", action="store_true", help="count the operations of a sample's forward pass, too"
    )
    parser.add_argument("--json", action="store_true", help="print JSON in place of a table")
    parser.set_defaults(func=run)
    return parser


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
        {name: definition(campaign, name) for name in campaign.workloads}, arguments.flops
    )
    if arguments.json:
        print(json.dumps({"workloads": [entry.model_dump() for entry in entries]}, indent=2))
    else:
        print(table(entries))
    return 1 if any(entry.error for entry in entries) else 0
