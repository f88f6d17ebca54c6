"""What a campaign asks of its board, as the preflight gets it."""

from __future__ import annotations

from typing import Any

from wattslice.boards.base import Board
from wattslice.boards.discover import board_of
from wattslice.config.models import BoardConfig
from wattslice.records.base import Record


class BoardRequest(Record):
    """The board of a campaign, and what it has to be able to do."""

    board: BoardConfig
    layouts: tuple[str, ...]
    precisions: tuple[str, ...]
    workloads: dict[str, dict[str, Any]]

    def find(self) -> Board:
        """The board. Raises BoardNotFoundError naming what is there."""
        return board_of(self.board)
