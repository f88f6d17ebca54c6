"""``wattslice simulate``: run any command on simulated boards."""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wattslice.command import Subparsers, add_command
from wattslice.simulation.boards import catalogue
from wattslice.simulation.control import Control
from wattslice.simulation.errors import SimulationError
from wattslice.simulation.faults import read_scenario
from wattslice.simulation.session import Simulation, create, resume

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

#: Exit codes besides the command's own: usage or set-up error; command not found, not runnable.
EXIT_SETUP, EXIT_NOT_RUNNABLE, EXIT_NOT_FOUND = 2, 126, 127
#: Signals that are passed on to the command.
_FORWARDED = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGQUIT)

_EXAMPLES = """\
examples:
  wattslice simulate --board a100-sxm4-80gb --count 2 -- gpustat
  wattslice simulate --board h100-sxm5-80gb --mig on --energy-out true.json -- python train.py

Everything that runs on simulated boards has WATTSLICE_SIMULATED=1 in its environment. The exit
code is the command's own; 2 means that the simulation could not be set up.
"""


def add_parser(subparsers: Subparsers) -> None:
    """Adds the command to ``wattslice``'s subparsers."""
    parser = add_command(
        subparsers,
        "simulate",
        run,
        summary="run a command on simulated GPU boards",
        about="Runs a command on simulated GPU boards (a stand-in for NVML).",
        epilog=_EXAMPLES,
        with_json=False,
    )
    add_arguments(parser)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``simulate``."""
    parser.add_argument(
        "--board", action="append", metavar="MODEL", help="board model; may be given again"
    )
    parser.add_argument("--count", type=int, default=1, help="boards of each model (default 1)")
    parser.add_argument("--mig", choices=("on", "off"), default="off", help="MIG mode at first")
    parser.add_argument(
        "--faults", type=Path, metavar="FILE", help="scenario file (simulator/README.md)"
    )
    parser.add_argument(
        "--state",
        type=Path,
        metavar="FILE",
        help="keep the boards in this file; if it exists, go on with them",
    )
    parser.add_argument(
        "--energy-out", type=Path, metavar="FILE", help="write each board's true energy (JSON)"
    )
    parser.add_argument("--list", action="store_true", help="list the board models and stop")
    parser.add_argument("--json", action="store_true", help="with --list: as JSON")
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="-- COMMAND …")


def run(args: argparse.Namespace) -> int:
    """Runs the command; its exit code, or 128 + n when signal n ended it."""
    try:
        if args.list:
            return _list_models(as_json=args.json)
        command = _command(args.command)
        with _boards(args) as simulation:
            return _run_on(simulation, command, args.energy_out)
    except SimulationError as error:
        print(f"wattslice simulate: {error}", file=sys.stderr)
        return EXIT_SETUP


def _command(rest: list[str]) -> list[str]:
    command = rest[1:] if rest[:1] == ["--"] else rest
    if not command:
        raise SimulationError("no command given (write it after --)")
    return command


def _list_models(*, as_json: bool) -> int:
    models = catalogue().values()
    if as_json:
        print(json.dumps([vars(model) for model in models], indent=2))
    else:
        for m in models:
            print(
                f"{m.model:16} {m.name:46} {m.sm_count:4} SM {m.memory_mib:7} MiB "
                f"{m.min_limit_w:.0f}-{m.max_limit_w:.0f} W  {m.confidence}"
            )
    return 0


@contextmanager
def _boards(args: argparse.Namespace) -> Iterator[Simulation]:
    scenario = None if args.faults is None else read_scenario(args.faults)
    if args.state is not None and args.state.exists():
        if args.board:
            raise SimulationError(f"{args.state} exists with its boards: leave out --board")
        yield resume(args.state, scenario)
        return
    if not args.board:
        raise SimulationError("no --board given (--list shows the models)")
    if args.count < 1:
        raise SimulationError(f"--count {args.count}: at least 1")
    boards = [model for model in args.board for _ in range(args.count)]
    if args.state is not None:
        yield create(boards, args.state, mig=args.mig == "on", scenario=scenario)
        return
    with tempfile.TemporaryDirectory(prefix="wattslice-simulation-") as folder:
        yield create(boards, Path(folder) / "state", mig=args.mig == "on", scenario=scenario)


@contextmanager
def _signals_to(child: subprocess.Popen[bytes]) -> Iterator[None]:
    """Passes signals on; an interrupt from the terminal reaches the command by itself."""

    def forward(number: int, _frame: FrameType | None) -> None:
        if child.poll() is None:
            child.send_signal(number)

    old = {number: signal.signal(number, forward) for number in _FORWARDED}
    old[signal.SIGINT] = signal.signal(signal.SIGINT, signal.SIG_IGN if os.isatty(0) else forward)
    try:
        yield
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)


def _run_on(simulation: Simulation, command: list[str], energy_out: Path | None) -> int:
    started_s = time.monotonic()
    try:
        child = subprocess.Popen(command, env=simulation.environment())
    except FileNotFoundError:
        print(f"wattslice simulate: command not found: {command[0]}", file=sys.stderr)
        return EXIT_NOT_FOUND
    except OSError as error:
        print(f"wattslice simulate: cannot run {command[0]}: {error.strerror}", file=sys.stderr)
        return EXIT_NOT_RUNNABLE
    with _signals_to(child):
        code = child.wait()
    ended_s = time.monotonic()
    if energy_out is not None:
        report = true_energy_report(simulation, started_s, ended_s)
        energy_out.write_text(json.dumps(report, indent=2) + "\n")
    return 128 - code if code < 0 else code


def true_energy_report(simulation: Simulation, t0_s: float, t1_s: float) -> dict[str, Any]:
    """True energy of every board between two monotonic times, as ``--energy-out`` writes it."""
    control: Control = simulation.control()
    return {
        "simulated": True,
        "t0_monotonic_s": t0_s,
        "t1_monotonic_s": t1_s,
        "boards": [
            {
                "board": number,
                "model": model,
                "uuid": control.board_uuid(number),
                "true_energy_j": control.true_energy_j(number, t0_s, t1_s),
            }
            for number, model in enumerate(simulation.boards)
        ],
    }
