"""Typed errors of boards. Each message says what is wrong and what to do about it."""

from __future__ import annotations

from collections.abc import Sequence


class BoardError(Exception):
    """Something about a board is not as it should be."""


class BoardNotFoundError(BoardError):
    """No board answers to the name, UUID or kind that was asked for."""


class BoardBusyError(BoardError):
    """Another campaign or process holds the board; the message names the holder."""


class BoardPermissionError(BoardError):
    """The operation needs rights that this user lacks; the message says what to ask for."""


class LayoutImpossibleError(BoardError):
    """The layout cannot exist on the board. `nearest` lists layouts that can."""

    def __init__(self, layout: str, reason: str, nearest: Sequence[str] = ()) -> None:
        hint = f"; nearest possible: {', '.join(nearest)}" if nearest else ""
        super().__init__(f"layout {layout!r} cannot exist on this board: {reason}{hint}")
        self.layout = layout
        self.reason = reason
        self.nearest = tuple(nearest)


class LayoutMismatchError(BoardError):
    """What was read back from the board is not the layout that was asked for."""
