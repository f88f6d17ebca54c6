"""`wattslice layout read` and `layout export`: layouts from and to mig-parted files."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from wattslice.boards.errors import BoardError, BoardNotFoundError
from wattslice.boards.nvidia.mig import catalogue, parted
from wattslice.command import answer
from wattslice.config.layout import Layout

OK, NO = 0, 1


def read(args: argparse.Namespace) -> int:
    """Print the layout that a label of a file means on a board, as a campaign writes it."""
    try:
        layout = _wanted(parted.load(Path(args.file)), args.label, args.board)
    except BoardError as error:
        return _answer(args, {"error": str(error)}, str(error), NO)
    if layout is None:
        text = f"{args.label} leaves this board alone"
        return _answer(args, {"layout": None, "reason": text}, text, NO)
    if not layout.slices:
        text = f"{args.label} switches MIG on and makes no instance: there is nothing to train on"
        return _answer(args, {"layout": None, "reason": text}, text, NO)
    return _answer(args, {"layout": str(layout)}, str(layout), OK)


def _wanted(file: parted.PartedFile, label: str, board: str | None) -> Layout | None:
    if board is not None and not board.startswith("GPU-"):
        found = catalogue.find(board)
        return file.layout(label, 0, next(iter(found.pci_device_ids), 0))
    from wattslice.boards.nvidia.board import discover

    boards = discover()
    fitting = [b for b in boards if b.identity.uuid.lower().startswith((board or "").lower())]
    if len(fitting) != 1:
        listed = ", ".join(b.identity.uuid for b in boards) or "none"
        raise BoardNotFoundError(
            f"{len(fitting)} boards of this machine fit; name one with --board, there are: {listed}"
        )
    return fitting[0].parted_layout(file, label)


def export(args: argparse.Namespace) -> int:
    """Print the present state of this machine's boards as a mig-parted file, label `current`."""
    from wattslice.boards.nvidia.board import discover

    try:
        states = [
            (index, board.capabilities().mig_mode == "on", _instances(board.slices()))
            for index, board in enumerate(discover())
        ]
    except BoardError as error:
        print(error, file=sys.stderr)
        return NO
    if not states:
        print("no NVIDIA board: NVML lists none that this process may use", file=sys.stderr)
        return NO
    print(parted.export(states), end="")
    return OK


def _instances(slices: Sequence[object]) -> list[str]:
    names = [str(getattr(slice_, "profile", "")) for slice_ in slices]
    return [name for name in names if name != "full"]


def _answer(args: argparse.Namespace, data: object, text: str, code: int) -> int:
    answer(args, data, text, failed=code != OK)
    return code
