"""Find the board, or boards, that a campaign asks for."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from typing import Literal

from wattslice.boards.allocation import allocated, in_job, read_allocation, read_allocations
from wattslice.boards.base import Board, MigPolicy
from wattslice.boards.cpu.board import CpuBoard
from wattslice.boards.cpu.power_model import PowerModelLike
from wattslice.boards.errors import BoardError, BoardNotFoundError
from wattslice.boards.several import BoardSet
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
    boards = _nvidia_boards(kind, mig)
    if boards is None:
        return CpuBoard(power_model)
    if in_job():
        boards = [allocated(boards, read_allocation())]
    if select is None and len(boards) > 1:
        raise BoardNotFoundError(
            f"there are {len(boards)} boards; set `board.select` to one of: {_listed(boards)}"
        )
    return boards[0] if select is None else _selected(boards, select)


def board_of(config: BoardConfig, count: int = 1) -> Board:
    """The board of a campaign's config, or the set of boards for a layout of `count` boards.

    Raises BoardError as `find_board`, and where the config does not list as many boards.
    """
    wanted = _names(config)
    if count == 1:
        return find_board(
            config.kind, wanted[0] if wanted else None, config.mig, config.power_model
        )
    boards = _nvidia_boards(config.kind, config.mig)
    if boards is None:
        return CpuBoard(config.power_model)  # which says that it is one
    if in_job():
        boards = [allocated(boards, allocation) for allocation in read_allocations()]
    if len(wanted) < count:
        raise BoardNotFoundError(
            f"the layout is of {count} boards, and `board.select` lists {len(wanted)}; there are: "
            f"{_listed(boards)}"
        )
    return BoardSet([_selected(boards, name) for name in wanted[:count]])


def selected_boards(config: BoardConfig) -> Board:
    """All boards that a campaign may use, as one."""
    return board_of(config, max(1, len(_names(config))))


def _names(config: BoardConfig) -> tuple[str, ...]:
    return (config.select,) if isinstance(config.select, str) else config.select or ()


def _nvidia_boards(kind: Kind, mig: MigPolicy) -> list[Board] | None:
    """The boards that NVML lists, None for the host's CPU. Raises BoardNotFoundError."""
    if kind == "cpu":
        return None
    boards: list[Board] = []
    reason = ""
    try:
        from wattslice.boards.nvidia.board import discover

        boards = list(discover(mig))
    except BoardError as error:
        reason = str(error)
    if kind == "auto" and (not boards or not _usable(boards[0])):
        return None
    if not boards:
        raise BoardNotFoundError(f"no NVIDIA board: {reason or 'NVML reports none'}")
    return boards


def _listed(boards: Sequence[Board]) -> str:
    return "; ".join(f"{b.identity.uuid} ({b.identity.name})" for b in boards) or "none"


def _selected(boards: Sequence[Board], select: str) -> Board:
    wanted = select.lower()
    fitting = [
        board
        for board in boards
        if board.identity.uuid.lower().startswith(wanted)
        or (board.identity.pci_bus_id or "").lower().endswith(wanted)
    ]
    if len(fitting) != 1:
        found = "no board" if not fitting else f"{len(fitting)} boards"
        raise BoardNotFoundError(
            f"`board.select` {select!r} fits {found}; there are: {_listed(boards)}"
        )
    return fitting[0]


def _usable(board: Board) -> bool:
    """Whether torch can compute on the board (asked in a child process: torch is not ours here)."""
    if board.identity.simulated:
        return True
    test = "import torch, sys; sys.exit(0 if torch.cuda.is_available() else 1)"
    return subprocess.run([sys.executable, "-c", test], check=False).returncode == 0
