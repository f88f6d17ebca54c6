"""Several whole boards as the place of one data-parallel run: the layout `4xfull`.

Each board keeps its own lease, state and meter. What a run asks of a board is answered for all of
them: the worst temperature, all foreign processes, the sum of the power limits.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from wattslice.boards.activity import ActivitySource
from wattslice.boards.base import Board, PowerSource, WorkerPlacement
from wattslice.boards.cpu.cores import fair_share
from wattslice.boards.errors import BoardError, LayoutImpossibleError
from wattslice.config.layout import Layout
from wattslice.records.base import Quantity
from wattslice.records.board import (
    BoardIdentity,
    Capabilities,
    Health,
    LayoutPlan,
    LayoutState,
    SliceState,
    Snapshot,
)
from wattslice.records.run import ActivityReading

_WHOLE = Layout(("full",))


def members(board: Board) -> tuple[Board, ...]:
    """The physical boards behind a board: one, or those of a set."""
    return board.members if isinstance(board, BoardSet) else (board,)


def common_health(healths: Sequence[Health]) -> Health:
    """One set of readings for several boards; a reading that one lacks is null, and says whose."""

    def of(name: str, over: Callable[[list[float]], float]) -> Quantity:
        values: list[float] = []
        for number, health in enumerate(healths):
            quantity: Quantity = getattr(health, name)
            if quantity.value is None:
                return Quantity.missing(f"board {number}: {quantity.reason}")
            values.append(quantity.value)
        return Quantity.of(over(values))

    return Health(
        temperature_c=of("temperature_c", max),
        power_limit_w=of("power_limit_w", sum),
        sm_clock_mhz=of("sm_clock_mhz", min),
        memory_clock_mhz=of("memory_clock_mhz", min),
        event_reasons=tuple(dict.fromkeys(r for h in healths for r in h.event_reasons)),
        foreign_processes=tuple(dict.fromkeys(p for h in healths for p in h.foreign_processes)),
    )


class BoardSet:
    """Boards that one run trains on together; the i-th slice of a layout is the i-th board."""

    def __init__(self, boards: Sequence[Board]) -> None:
        """Raises BoardError where a board is named twice: its energy would be counted twice."""
        uuids = [board.identity.uuid for board in boards]
        twice = sorted({uuid for uuid in uuids if uuids.count(uuid) > 1})
        if twice:
            raise BoardError(f"board {', '.join(twice)} is named twice; name each board once")
        self.members = tuple(boards)

    @property
    def identity(self) -> BoardIdentity:
        """All boards in one identity: runs are compared only within the same set of boards."""
        found = [board.identity for board in self.members]
        names = list(dict.fromkeys(identity.name for identity in found))
        return found[0].model_copy(
            update={
                "uuid": "+".join(identity.uuid for identity in found),
                "name": f"{len(found)} x {' / '.join(names)}",
                "simulated": any(identity.simulated for identity in found),
                "pci_bus_id": None,
                "serial": None,
            }
        )

    def capabilities(self) -> Capabilities:
        """What all boards can do. Energy: as the first board without any says."""
        found = [board.capabilities() for board in self.members]
        memories = [c.memory_mib for c in found if c.memory_mib is not None]
        without = [c.energy for c in found if c.energy.scope is None]
        return found[0].model_copy(
            update={
                "partitioning": "none",
                "precisions": tuple(
                    p for p in found[0].precisions if all(p in c.precisions for c in found)
                ),
                "memory_mib": min(memories) if len(memories) == len(found) else None,
                "energy": (without or [found[0].energy])[0],
            }
        )

    def _check(self, layout: Layout) -> None:
        if layout.slices != ("full",) * len(self.members):
            why = f"{len(self.members)} boards are trained on together"
            raise LayoutImpossibleError(str(layout), why, [f"{len(self.members)}xfull"])

    def plan(self, layout: Layout) -> LayoutPlan:
        self._check(layout)
        plans = [board.plan(_WHOLE) for board in self.members]
        return LayoutPlan(
            layout=str(layout),
            slices=_numbered(plan.slices for plan in plans),
            keeps=tuple(instance for plan in plans for instance in plan.keeps),
            destroys=tuple(instance for plan in plans for instance in plan.destroys),
        )

    def slices(self) -> tuple[SliceState, ...]:
        return _numbered(board.slices() for board in self.members)

    def ensure(self, layout: Layout) -> LayoutState:
        self._check(layout)
        states = [board.ensure(_WHOLE) for board in self.members]
        return LayoutState(
            layout=str(layout),
            slices=_numbered(state.slices for state in states),
            mig_mode=states[0].mig_mode,
        )

    def snapshot(self) -> Snapshot:
        found = [board.snapshot() for board in self.members]
        slices = _numbered(snapshot.layout.slices for snapshot in found)
        return Snapshot(
            board_uuid=self.identity.uuid,
            kind=self.identity.kind,
            layout=LayoutState(layout="+".join(s.name for s in slices), slices=slices),
            state={snapshot.board_uuid: snapshot.model_dump(mode="json") for snapshot in found},
        )

    def restore(self, snapshot: Snapshot) -> None:
        for board in self.members:
            own = snapshot.state.get(board.identity.uuid)
            if own is None:
                raise BoardError(f"the snapshot has no board {board.identity.uuid}")
            board.restore(Snapshot.model_validate(own))

    def power_source(self) -> PowerSource | None:
        """None: each member has its own; `wattslice.measure.meters` reads them side by side."""
        return None

    def activity_source(self, slices: Sequence[SliceState]) -> ActivitySource:
        return _Activities(
            [
                board.activity_source([slice_])
                for board, slice_ in zip(self.members, slices, strict=True)
            ]
        )

    def health(self) -> Health:
        return common_health([board.health() for board in self.members])

    def memory_used(self, slice_: SliceState) -> Quantity:
        return self.members[slice_.index].memory_used(slice_)

    def placement(self, slice_: SliceState) -> WorkerPlacement:
        """As the slice's board says, with a share of the host's cores."""
        found = self.members[slice_.index].placement(slice_)
        cores = found.cores or sorted(os.sched_getaffinity(0))
        share = fair_share(cores, slice_.index, len(self.members))
        return replace(found, cores=share if found.cores else (), threads=len(share))

    @contextlib.contextmanager
    def lease(self, timeout_s: float | None = None) -> Iterator[None]:
        """Hold all boards. Always taken in the same order, so that two runs cannot wait in turn."""
        with contextlib.ExitStack() as stack:
            for board in sorted(self.members, key=lambda board: board.identity.uuid):
                stack.enter_context(board.lease(timeout_s))
            yield


class _Activities:
    """Activity of one slice on each board; the slice is the board, so that is not told twice."""

    def __init__(self, sources: Sequence[ActivitySource]) -> None:
        self._sources = sources

    def begin(self) -> None:
        for source in self._sources:
            source.begin()

    def end(self) -> None:
        for source in self._sources:
            source.end()

    def readings(self) -> tuple[ActivityReading, ...]:
        found = [reading for source in self._sources for reading in source.readings()]
        return tuple(reading for reading in found if reading.slice_index is not None)


def _numbered(parts: Iterable[tuple[SliceState, ...]]) -> tuple[SliceState, ...]:
    """The slices of all boards with their places in the common layout."""
    every = (slice_ for slices in parts for slice_ in slices)
    return tuple(s.model_copy(update={"index": index}) for index, s in enumerate(every))
