"""``python -m wattslice.simulation``: ``run``, ``build`` and ``ctl`` (steer a running one)."""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

from wattslice.simulation import cli
from wattslice.simulation.build import ensure_built
from wattslice.simulation.control import TARGETS, TIME_OPTIONS, WAVEFORMS, Control
from wattslice.simulation.errors import SimulationError, parse_code
from wattslice.simulation.faults import apply_scenario, read_scenario


def _control(args: argparse.Namespace) -> Control:
    return Control.from_environment() if args.state is None else Control.of_state(args.state)


def _activity(args: argparse.Namespace) -> None:
    _control(args).set_activity(args.uuid, args.value, args.pid)


def _process(args: argparse.Namespace) -> None:
    _control(args).set_process(
        args.uuid, pid=args.pid, activity=args.value, memory_mib=args.memory_mib, fake=args.fake
    )


def _remove(args: argparse.Namespace) -> None:
    _control(args).remove_process(args.pid)


def _option(args: argparse.Namespace) -> None:
    value = args.value
    if args.name in TIME_OPTIONS and value:
        value += time.monotonic()
    _control(args).set_option(args.board, args.name, value)


def _fault(args: argparse.Namespace) -> None:
    number = _control(args).add_fault(
        args.function,
        parse_code(int(args.code) if args.code.isdigit() else args.code),
        board=args.board,
        target=args.target,
        from_call=args.from_call,
        to_call=args.to_call,
        delay_ms=args.delay_ms,
    )
    print(number)


def _clear(args: argparse.Namespace) -> None:
    _control(args).clear_faults(args.board)


def _apply(args: argparse.Namespace) -> None:
    apply_scenario(_control(args), read_scenario(args.file))


def _waveform(args: argparse.Namespace) -> None:
    _control(args).set_waveform(
        args.board,
        args.kind,
        low_w=args.low_w,
        high_w=args.high_w,
        period_s=args.period_s,
        duty=args.duty,
    )


def _trace(args: argparse.Namespace) -> None:
    try:
        rows = [line.split(",") for line in args.file.read_text().splitlines() if line.strip()]
        points = [(float(offset), float(power)) for offset, power in rows]
    except (OSError, ValueError) as error:
        raise SimulationError(f"{args.file} is no list of offset_s,power_w: {error}") from error
    _control(args).set_trace(args.board, points)


def _energy(args: argparse.Namespace) -> None:
    energy_j = _control(args).true_energy_j(args.board, args.t0_s, args.t1_s)
    print(json.dumps({"board": args.board, "true_energy_j": energy_j}))


def _reset(args: argparse.Namespace) -> None:
    control = _control(args)
    (control.reboot_board if args.reboot else control.reset_board)(args.board)


def _xid(args: argparse.Namespace) -> None:
    _control(args).post_xid(args.board, args.xid)


def _build(_args: argparse.Namespace) -> None:
    print(ensure_built())


def _add_ctl(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--state", type=Path, help="state file (default: the simulation that this runs on)"
    )
    actions = parser.add_subparsers(required=True, metavar="ACTION")

    p = actions.add_parser("activity", help="how busy a process keeps a board or MIG device")
    p.add_argument("uuid")
    p.add_argument("value", type=float)
    p.add_argument("--pid", type=int, required=True)
    p.set_defaults(func=_activity)

    p = actions.add_parser("process", help="a process on a board or MIG device")
    p.add_argument("uuid")
    p.add_argument("--pid", type=int, required=True)
    p.add_argument("--value", type=float, default=0.0, help="activity 0..1")
    p.add_argument("--memory-mib", type=float, default=256)
    p.add_argument("--fake", action="store_true", help="the process need not exist")
    p.set_defaults(func=_process)

    p = actions.add_parser("remove", help="a process uses no board any more")
    p.add_argument("pid", type=int)
    p.set_defaults(func=_remove)

    _add_scripting(actions)


def _add_scripting(actions: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    p = actions.add_parser("option", help="set a number of a board (times: seconds from now)")
    p.add_argument("name")
    p.add_argument("value", type=float)
    p.add_argument("--board", type=int)
    p.set_defaults(func=_option)

    p = actions.add_parser("fault", help="make calls fail; prints the fault's number")
    p.add_argument("function")
    p.add_argument("code", nargs="?", default="0")
    p.add_argument("--board", type=int)
    p.add_argument("--target", choices=tuple(TARGETS), default="any")
    p.add_argument("--from-call", type=int, default=1)
    p.add_argument("--to-call", type=int, default=0)
    p.add_argument("--delay-ms", type=float, default=0.0)
    p.set_defaults(func=_fault)

    p = actions.add_parser("clear", help="forget faults")
    p.add_argument("--board", type=int)
    p.set_defaults(func=_clear)

    p = actions.add_parser("apply", help="apply a scenario file")
    p.add_argument("file", type=Path)
    p.set_defaults(func=_apply)

    p = actions.add_parser("waveform", help="scripted board power")
    p.add_argument("kind", choices=tuple(WAVEFORMS))
    p.add_argument("--board", type=int, default=0)
    p.add_argument("--low-w", type=float, default=0.0)
    p.add_argument("--high-w", type=float, default=0.0)
    p.add_argument("--period-s", type=float, default=1.0)
    p.add_argument("--duty", type=float, default=0.5)
    p.set_defaults(func=_waveform)

    p = actions.add_parser("trace", help="power steps from a file of offset_s,power_w lines")
    p.add_argument("file", type=Path)
    p.add_argument("--board", type=int, default=0)
    p.set_defaults(func=_trace)

    p = actions.add_parser("energy", help="true energy between two monotonic times")
    p.add_argument("t0_s", type=float)
    p.add_argument("t1_s", type=float)
    p.add_argument("--board", type=int, default=0)
    p.set_defaults(func=_energy)

    p = actions.add_parser("reset", help="GPU reset (or reboot) of a board")
    p.add_argument("--board", type=int, default=0)
    p.add_argument("--reboot", action="store_true")
    p.set_defaults(func=_reset)

    p = actions.add_parser("xid", help="log an Xid error")
    p.add_argument("xid", type=int)
    p.add_argument("--board", type=int, default=0)
    p.set_defaults(func=_xid)


def main(argv: list[str] | None = None) -> int:
    """Runs the command line; 2 when something could not be done."""
    parser = argparse.ArgumentParser(prog="python -m wattslice.simulation", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    cli.add_parser(commands)
    build = commands.add_parser("build", help="build the library; prints its path")
    build.set_defaults(func=_build)
    _add_ctl(commands.add_parser("ctl", help="steer a running simulation"))
    args = parser.parse_args(argv)
    try:
        return int(args.func(args) or 0)
    except SimulationError as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
