"""Find the board that a campaign asks for."""

from __future__ import annotations

import subprocess
import sys
from typing import Literal

from wattslice.boards.allocation import allocated, in_job, read_allocation
from wattslice.boards.base import Board, MigPolicy
from wattslice.boards.cpu.board import CpuBoard
from wattslice.boards.cpu.power_model import PowerModelLike
from wattslice.boards.errors import BoardError, BoardNotFoundError
from wattslice.config.models import BoardConfig

Kind = Literal["auto", "cpu", "nvidia"]


def find_board(
    kind: Kind,
    select: str | None,
    mig: MigPolicy,
    power_model: PowerModelLike | None = None,
) -> Board:
    """The one board that fits; in a SLURM job the one that the job has, with its part of it.

    Raises BoardNotFoundError with what is there when none, or more than one, fits, and
    AllocationError when the job's devices are not those of one board.
    """
    if kind == "cpu":
        return CpuBoard(power_model)
    boards: list[Board] = []
    reason = ""
    try:
        from wattslice.boards.nvidia.board import discover

        boards = list(discover(mig))
    except BoardError as error:
        reason = str(error)
    if kind == "auto" and (not boards or not _usable(boards[0])):
        return CpuBoard(power_model)
    if not boards:
        raise BoardNotFoundError(f"no NVIDIA board: {reason or 'NVML reports none'}")
    if in_job():
        boards = [allocated(boards, read_allocation())]
    return _select(boards, select)


def board_of(config: BoardConfig) -> Board:
    """The board of a campaign's config. Raises BoardNotFoundError with what is there."""
    return find_board(config.kind, config.select, config.mig, config.power_model)


def _select(boards: list[Board], select: str | None) -> Board:
    listed = "; ".join(f"{b.identity.uuid} ({b.identity.name})" for b in boards)
    if select is None:
        if len(boards) > 1:
            raise BoardNotFoundError(
                f"there are {len(boards)} boards; set `board.select` to one of: {listed}"
            )
        return boards[0]
    wanted = select.lower()
    fitting = [
        board
        for board in boards
        if board.identity.uuid.lower().startswith(wanted)
        or (board.identity.pci_bus_id or "").lower().endswith(wanted)
    ]
    if len(fitting) != 1:
        found = "no board" if not fitting else f"{len(fitting)} boards"
        raise BoardNotFoundError(f"`board.select` {select!r} fits {found}; there are: {listed}")
    return fitting[0]


def _usable(board: Board) -> bool:
    """Whether torch can compute on the board (asked in a child process: torch is not ours here)."""
    if board.identity.simulated:
        return True
    test = "import torch, sys; sys.exit(0 if torch.cuda.is_available() else 1)"
    return subprocess.run([sys.executable, "-c", test], check=False).returncode == 0
