"""`wattslice measure -- COMMAND`: the energy of any command, by the meter of the pipeline."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, Self

from wattslice.boards.base import Board
from wattslice.boards.errors import BoardError
from wattslice.command import Subparsers, add_command
from wattslice.measure.meter import Meter
from wattslice.records.energy import EnergyResult

# Exit codes besides the command's own, as shells have them.
EXIT_SETUP, EXIT_NOT_RUNNABLE, EXIT_NOT_FOUND = 2, 126, 127
_FORWARDED = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGQUIT)

_EXAMPLES = """\
examples:
  wattslice measure -- python train.py --epochs 1
  wattslice measure --board GPU-1b2c --json -- ./benchmark > result.json
  wattslice measure --out energy.json -- make run

Without --board, the boards that the command may use are measured (CUDA_VISIBLE_DEVICES and what
SLURM gave are obeyed; a MIG device means its whole board, as there is no energy per instance),
or the CPU where there is no GPU. Energy is null with a reason where it cannot be had.

The table goes to stderr. With --json the result is the last line of stdout instead. The exit code
is the command's own (128 + n when signal n ended it); 2 means that nothing was run.
"""


def add_parser(subparsers: Subparsers) -> None:
    """Add the command to `wattslice`'s subparsers."""
    parser = add_command(
        subparsers,
        "measure",
        run,
        summary="measure the energy of a command",
        about="Run a command and print the energy of the boards that it ran on.",
        epilog=_EXAMPLES,
    )
    parser.add_argument(
        "--board",
        action="append",
        metavar="UUID|cpu",
        help="board to measure: a UUID or its unique start, a PCI address, or `cpu`; repeatable",
    )
    parser.add_argument(
        "--rate-hz", type=float, default=10.0, metavar="HZ", help="samples a second (default 10)"
    )
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the JSON to a file too")
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="-- COMMAND …")


def run(arguments: argparse.Namespace) -> int:
    """Measure the command; its exit code, or 128 + n when signal n ended it."""
    command = arguments.command
    if command[:1] == ["--"]:
        command = command[1:]
    if not command:
        return _refuse("no command given (write it after --)")
    if not 0 < arguments.rate_hz <= 100:
        return _refuse(f"--rate-hz {arguments.rate_hz:g}: above 0, up to 100")
    try:
        boards, notes = select_boards(arguments.board, os.environ)
    except BoardError as error:
        return _refuse(str(error))
    meters = [_meter(board, arguments.rate_hz) for board in boards]
    before = [_others(board) for board in boards]
    for meter in meters:
        meter.start()
    try:
        ended = _run_child(command, meters)
    finally:
        for meter in meters:
            meter.stop()
    if isinstance(ended, int):
        return ended
    results = [
        _board_result(board, meter, ended, others)
        for board, meter, others in zip(boards, meters, before, strict=True)
    ]
    report = _report(command, ended, results, notes)
    if arguments.out is not None:
        from wattslice.files import write_json

        write_json(arguments.out, report)
    # The command may have closed its ends of our streams (`| head`); its exit code still counts.
    with contextlib.suppress(BrokenPipeError):
        if arguments.json:
            print(json.dumps(report, allow_nan=False), flush=True)
        else:
            print(_table(report), file=sys.stderr, flush=True)
    return ended.code


def select_boards(
    wanted: Sequence[str] | None, environ: Mapping[str, str]
) -> tuple[list[Board], tuple[str, ...]]:
    """The boards to measure, and what is to be said about the choice.

    Raises BoardError (a name that fits no board or several; a variable that names nothing).
    """
    from wattslice.boards.discover import find_board

    if wanted:
        boards = [
            find_board("cpu", None, "off", None)
            if name == "cpu"
            else find_board("nvidia", name, "existing", None)
            for name in wanted
        ]
        unique = {board.identity.uuid: board for board in boards}
        return list(unique.values()), ()
    try:
        return _visible_boards(environ)
    except _NoGpuError as error:
        note = f"no GPU ({error}); the CPU is measured" if str(error) else ""
        return [find_board("cpu", None, "off", None)], (note,) if note else ()


class _NoGpuError(Exception):
    """There is no GPU that the command may use; the message says why, where that is of note."""


def _visible_boards(environ: Mapping[str, str]) -> tuple[list[Board], tuple[str, ...]]:
    """The boards behind the devices that a process with this environment may use."""
    from wattslice.boards.nvidia.board import NvidiaBoard
    from wattslice.boards.nvidia.nvml_errors import NvmlError, NvmlUnavailableError
    from wattslice.boards.nvidia.resolve import read_present, resolve

    try:
        present = read_present()
    except NvmlUnavailableError as error:
        raise _NoGpuError(str(error)) from error
    except NvmlError as error:
        raise BoardError(f"NVML cannot list the boards: {error}") from error
    found = resolve(environ, present)
    boards = found.boards
    notes = list(found.notes)
    if not boards and found.variable is None:
        # Boards in MIG mode without an instance: no process can use them, but they draw power.
        boards = present
    if not boards:
        raise _NoGpuError(f"{found.variable} hides them all" if found.variable else "")
    for device in found.devices:
        if device.instance is not None:
            notes.append(
                f"{device.entry or device.uuid} is a MIG device ({device.instance.profile}) of "
                f"board {device.board.uuid}: the energy is the whole board's, with "
                f"{len(device.siblings)} sibling instance(s)"
            )
    return [NvidiaBoard(board.uuid) for board in boards], tuple(notes)


@dataclass(frozen=True, slots=True)
class _Ended:
    """How the command ended; times CLOCK_MONOTONIC, s."""

    code: int
    start_s: float
    end_s: float


def _meter(board: Board, rate_hz: float) -> Meter:
    reason = board.capabilities().energy.reason
    return Meter(
        board.power_source(),
        rate_hz,
        no_source_reason=reason or "the board has no readable power sensor",
    )


def _others(board: Board) -> tuple[str, ...]:
    """Processes on the board before the command runs; they have their part in its energy."""
    try:
        return board.health().foreign_processes
    except BoardError:
        return ()


def _run_child(command: Sequence[str], meters: Sequence[Meter]) -> _Ended | int:
    with _Signals() as signals:
        for meter in meters:
            meter.mark("start")
        start_s = time.monotonic()
        try:
            child = subprocess.Popen(command)
        except FileNotFoundError:
            print(f"wattslice measure: command not found: {command[0]}", file=sys.stderr)
            return EXIT_NOT_FOUND
        except OSError as error:
            print(f"wattslice measure: cannot run {command[0]}: {error.strerror}", file=sys.stderr)
            return EXIT_NOT_RUNNABLE
        signals.started(child)
        code = child.wait()
        end_s = time.monotonic()
        for meter in meters:
            meter.mark("end")
    return _Ended(128 - code if code < 0 else code, start_s, end_s)


class _Signals:
    """Pass signals on to the command and live on, so that the result is printed afterwards.

    Ctrl-C on a terminal reaches the command by itself, as part of the foreground group; from
    elsewhere (a scheduler, kill) it is passed on. Signals that come before the command has
    started wait for it.
    """

    def __init__(self) -> None:
        self._child: subprocess.Popen[bytes] | None = None
        self._waiting: list[int] = []
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> Self:
        for number in (*_FORWARDED, signal.SIGINT):
            self._previous[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def started(self, child: subprocess.Popen[bytes]) -> None:
        self._child = child
        for number in self._waiting:
            child.send_signal(number)

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        if self._child is None:
            self._waiting.append(number)
        elif number == signal.SIGINT and _in_foreground():
            pass  # the terminal has told the command already
        elif self._child.poll() is None:
            self._child.send_signal(number)


def _in_foreground() -> bool:
    try:
        with open("/dev/tty", "rb") as terminal:  # noqa: PTH123  (a device)
            return os.tcgetpgrp(terminal.fileno()) == os.getpgrp()
    except OSError:
        return False


def _board_result(
    board: Board, meter: Meter, ended: _Ended, others: tuple[str, ...]
) -> dict[str, Any]:
    from wattslice.measure.energy import energy

    identity = board.identity
    limit_w = None
    with contextlib.suppress(BoardError):
        limit_w = board.health().power_limit_w.value
    result = energy(
        meter.samples(),
        ended.start_s,
        ended.end_s,
        meter.record(),
        simulated=identity.simulated,
        power_limit_w=limit_w,
    )
    return {
        "board": identity.model_dump(mode="json"),
        "slices": [slice_.model_dump(mode="json") for slice_ in _slices(board)],
        "other_processes": list(others),
        "energy": result.model_dump(mode="json"),
        "meter": meter.record().model_dump(mode="json"),
    }


def _slices(board: Board) -> Sequence[Any]:
    try:
        return board.slices()
    except BoardError:
        return ()


def _report(
    command: Sequence[str],
    ended: _Ended,
    boards: list[dict[str, Any]],
    notes: tuple[str, ...],
) -> dict[str, Any]:
    gross = [entry["energy"]["gross_j"] for entry in boards]
    complete = all(joules is not None for joules in gross)
    return {
        "schema_version": 1,
        "command": list(command),
        "exit_code": ended.code,
        "duration_s": ended.end_s - ended.start_s,
        "boards": boards,
        # A sum with a part missing would be a wrong number under a right name.
        "total_gross_j": sum(gross) if complete else None,
        "total_reason": None if complete else "not every board gave its energy",
        "simulated": any(entry["board"]["simulated"] for entry in boards),
        "modelled": any(entry["energy"]["modelled"] for entry in boards),
        "notes": list(notes),
    }


def _table(report: Mapping[str, Any]) -> str:
    lines = [f"{'board':28} {'scope':9} {'energy J':>12} {'± J':>8} {'mean W':>8}  method, flags"]
    for entry in report["boards"]:
        result = EnergyResult.model_validate(entry["energy"])
        name = f"{entry['board']['name'][:20]} {entry['board']['uuid'][-6:]}"
        if result.gross_j is None:
            lines.append(f"{name:28} {result.scope or '-':9} {'none':>12}  {result.reason}")
            continue
        labels = [result.method or "-", *result.flags]
        if result.simulated:
            labels.append("SIMULATED")
        spread = "-" if result.uncertainty_j is None else f"{result.uncertainty_j:.1f}"
        lines.append(
            f"{name:28} {result.scope or '-':9} {result.gross_j:12.1f} {spread:>8} "
            f"{result.mean_power_w or 0.0:8.1f}  {', '.join(labels)}"
        )
        if entry["other_processes"]:
            lines.append(f"  also on this board: {', '.join(entry['other_processes'])}")
    if len(report["boards"]) > 1 and report["total_gross_j"] is not None:
        lines.append(f"{'total':28} {'':9} {report['total_gross_j']:12.1f}")
    lines += [f"note: {note}" for note in report["notes"]]
    lines.append(f"{report['duration_s']:.2f} s, exit code {report['exit_code']}")
    return "\n".join(lines)


def _refuse(message: str) -> int:
    print(f"wattslice measure: {message}", file=sys.stderr)
    return EXIT_SETUP
