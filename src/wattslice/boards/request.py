"""What a campaign asks of its board, as the preflight gets it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from wattslice.boards.base import Board
from wattslice.boards.discover import board_of
from wattslice.config.layout import Layout
from wattslice.config.models import BoardConfig
from wattslice.records.base import Record


class BoardRequest(Record):
    """The board of a campaign, and what it has to be able to do."""

    board: BoardConfig
    layouts: tuple[str, ...]
    precisions: tuple[str, ...]
    workloads: dict[str, dict[str, Any]]

    def find(self) -> Iterator[tuple[Board, tuple[str, ...]]]:
        """The board (or set of boards) for the layouts of each count of boards.

        Raises BoardNotFoundError naming what is there.
        """
        by_count: dict[int, list[str]] = defaultdict(list)
        for layout in self.layouts:
            by_count[Layout.parse(layout).boards].append(layout)
        for count, layouts in by_count.items():
            yield board_of(self.board, count), tuple(layouts)
