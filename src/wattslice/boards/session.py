"""The state of a board before a campaign, kept on disk until it has been put back."""

from __future__ import annotations

from pathlib import Path

from wattslice.boards.base import Board
from wattslice.files import write_text
from wattslice.records.board import Snapshot

FILE = "board-before.json"


def begin_session(folder: Path, board: Board) -> None:
    """Save the board's state, unless an earlier campaign that was killed has left an older one.

    The older one is the state that the user had, so it must not be overwritten.
    """
    path = folder / FILE
    if not path.exists():
        write_text(path, board.snapshot().model_dump_json(indent=2) + "\n")


def end_session(folder: Path, board: Board, timeout_s: float = 60.0) -> bool:
    """Put the saved state back and forget it; False where none was saved.

    Raises BoardError where it cannot be put back; the saved state then stays for another try.
    """
    path = folder / FILE
    if not path.exists():
        return False
    snapshot = Snapshot.model_validate_json(path.read_text(encoding="utf-8"))
    with board.lease(timeout_s):
        board.restore(snapshot)
    path.unlink()
    return True
