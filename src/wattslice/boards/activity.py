"""How busy the slices of a board were: what every source gives, and the one that has nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from wattslice.records.board import SliceState
from wattslice.records.run import SM_ACTIVITY, ActivityReading

# Why DCGM is not asked where a board has no counters of its own. Its profiling counters exclude
# profilers such as Nsight, and the other way round (NVIDIA/DCGM#56, #62), and need root with MIG
# on; so nothing here starts them, and what a host engine gives is not read.
NO_DCGM = "DCGM is not asked: its profiling counters would shut out profilers of other users"


class ActivitySource(Protocol):
    """Activity between two moments. For the launcher's process; workers know nothing of it.

    No call raises: what could not be had is null with the reason, as an estimate is no ground to
    lose a run.
    """

    def begin(self) -> None:
        """All workers are training; a second call starts the interval again."""
        ...

    def end(self) -> None:
        """The workers are training still, and the interval is over."""
        ...

    def readings(self) -> tuple[ActivityReading, ...]:
        """Readings of each slice and of the board in the interval; frees the source."""
        ...


class NoActivity:
    """A board whose activity nobody counts."""

    def __init__(self, slices: Sequence[SliceState], reason: str) -> None:
        self._slices, self._reason = slices, reason

    def begin(self) -> None: ...

    def end(self) -> None: ...

    def readings(self) -> tuple[ActivityReading, ...]:
        return tuple(
            ActivityReading(
                slice_index=slice_.index,
                metric=SM_ACTIVITY,
                value=None,
                reason=self._reason,
                source="none",
            )
            for slice_ in self._slices
        )
