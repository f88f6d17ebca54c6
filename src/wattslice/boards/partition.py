"""The partition stage: a layout is tried once before anything is measured on it."""

from __future__ import annotations

from wattslice.boards.base import Board
from wattslice.config.layout import Layout
from wattslice.records.base import Record
from wattslice.records.board import BoardIdentity, LayoutPlan, LayoutState


class PartitionRecord(Record):
    """partitions/<layout>.json: how a layout came out on the board."""

    schema_version: int = 1
    board: BoardIdentity
    plan: LayoutPlan
    state: LayoutState


def try_layout(board: Board, layout: Layout) -> PartitionRecord:
    """Make a layout, read it back, and put the board back into the state it was in.

    Raises BoardError (LayoutImpossibleError with the reason, BoardPermissionError, …).
    """
    with board.lease():
        before = board.snapshot()
        plan = board.plan(layout)
        try:
            state = board.ensure(layout)
        finally:
            board.restore(before)
    return PartitionRecord(board=board.identity, plan=plan, state=state)
