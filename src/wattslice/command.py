"""What the commands share: the shape of their parsers, and how an answer is printed."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from typing import Any, TypeAlias

Subparsers: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"


def add_command(
    subparsers: Subparsers,
    name: str,
    func: Callable[[argparse.Namespace], int],
    *,
    summary: str,
    epilog: str,
    about: str | None = None,
    with_json: bool = True,
) -> argparse.ArgumentParser:
    """Add a command that `func` runs. `about` stands in its help, else the summary does."""
    parser = subparsers.add_parser(
        name,
        help=summary,
        description=about or summary,
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    if with_json:
        parser.add_argument("--json", action="store_true", help="print JSON on stdout")
    parser.set_defaults(func=func)
    return parser


def print_json(value: Any) -> None:
    """Print a value as readable JSON; what JSON lacks is written as text."""
    print(json.dumps(value, indent=2, default=str))


def answer(arguments: argparse.Namespace, data: Any, text: str, *, failed: bool = False) -> None:
    """Print `data` with --json, else `text`: on stderr where the command failed."""
    if arguments.json:
        print_json(data)
    else:
        print(text, file=sys.stderr if failed else sys.stdout)
