"""What board is here, and whether it can do what a campaign asks of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from wattslice.boards.base import Board
from wattslice.boards.errors import LayoutImpossibleError
from wattslice.config.layout import Layout
from wattslice.records.base import Record
from wattslice.records.board import BoardIdentity, Capabilities, Health, SliceState


class Inventory(Record):
    """inventory.json: the board of a campaign."""

    schema_version: int = 1
    identity: BoardIdentity
    capabilities: Capabilities
    slices: tuple[SliceState, ...]
    health: Health
    host: dict[str, object]


def take_inventory(board: Board, host: Mapping[str, object]) -> Inventory:
    return Inventory(
        identity=board.identity,
        capabilities=board.capabilities(),
        slices=board.slices(),
        health=board.health(),
        host=dict(host),
    )


def problems(
    board: Board, layouts: Sequence[str], precisions: Sequence[str], board_key: str = "board"
) -> Iterable[str]:
    """Everything that the campaign asks and the board cannot do, each with what it could do."""
    capabilities = board.capabilities()
    name = f"{board.identity.name} ({board.identity.uuid})"
    for layout in layouts:
        try:
            board.plan(Layout.parse(layout))
        except LayoutImpossibleError as error:
            yield f"config key 'experiments[].layouts': {error} [{board_key}: {name}]"
    for precision in precisions:
        if precision not in capabilities.precisions:
            valid = ", ".join(capabilities.precisions)
            yield (
                f"config key 'experiments[].precisions': value {precision!r} is not one that "
                f"{name} computes in; valid: {valid}"
            )
