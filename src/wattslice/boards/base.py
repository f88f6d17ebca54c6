"""The contract between a board and the rest: identity, slices, layouts, meter, health."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Literal, Protocol

from wattslice.boards.activity import ActivitySource
from wattslice.config.layout import Layout
from wattslice.records.base import Quantity
from wattslice.records.board import (
    BoardIdentity,
    Capabilities,
    EnergyScope,
    Health,
    LayoutPlan,
    LayoutState,
    SliceState,
    Snapshot,
)

MigPolicy = Literal["off", "existing", "managed"]


@dataclass(frozen=True, slots=True)
class Sample:
    """One reading of a board's sensors. A value that was not had is None, and `error` says why."""

    t_s: float  # CLOCK_MONOTONIC, middle of the call
    call_s: float  # time that the reading itself took
    power_w: float | None = None  # instant power
    power_average_w: float | None = None  # the driver's own average
    energy_j: float | None = None  # cumulative counter, unwrapped by the source where it can wrap
    temperature_c: float | None = None
    sm_clock_mhz: float | None = None
    memory_clock_mhz: float | None = None
    utilisation: float | None = None  # 0..1, of the whole board
    event_reasons: int | None = None  # bit mask as the driver gives it
    error: str | None = None  # names of the readings that failed, with the driver's code

    def sample(self) -> Sample:
        """Itself: a source that has nothing to put off reads samples."""
        return self


class Reading(Protocol):
    """What a source has read, as the driver gave it: numbers are made of it when they are wanted.

    The sampler wakes up with cold caches, where each line of Python costs many times what it
    costs in a busy loop. What need not be done there is done after the window.
    """

    def sample(self) -> Sample: ...


class BoardLostError(Exception):
    """The board no longer answers (fallen off the bus, driver gone): sampling must stop."""


class PowerSource(Protocol):
    """A board's sensors, as the sampler reads them. Opened and closed in the sampler's thread."""

    @property
    def scope(self) -> EnergyScope: ...

    @property
    def method(self) -> str:
        """Short name of what is read, e.g. `nvml-counter`, `rapl`, `power-model`."""
        ...

    def describe(self) -> Mapping[str, object]:
        """Constants a reader of the raw samples needs: field ids, ranges, tolerance and source."""
        ...

    def open(self) -> None: ...

    def read(self) -> Reading:
        """Read once. Single failures are reported in the sample; raises BoardLostError."""
        ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class WorkerPlacement:
    """How a training process is put on a slice."""

    device: Literal["cpu", "cuda"]
    cores: tuple[int, ...]  # CPU affinity; empty = leave as it is
    threads: int  # compute threads of the framework
    env: Mapping[str, str] = field(default_factory=dict)  # e.g. CUDA_VISIBLE_DEVICES
    simulated_slice: str | None = None  # UUID whose activity the worker reports to a simulator


class Board(Protocol):
    """A physical device with a power meter and (maybe) slices."""

    @property
    def identity(self) -> BoardIdentity: ...

    def capabilities(self) -> Capabilities: ...

    def plan(self, layout: Layout) -> LayoutPlan:
        """Plan a layout without changing anything.

        Raises LayoutImpossibleError with the reason and the nearest possible layouts.
        """
        ...

    def slices(self) -> tuple[SliceState, ...]:
        """The slices that exist now."""
        ...

    def ensure(self, layout: Layout) -> LayoutState:
        """Make the layout hold and read it back; a no-op when it already holds."""
        ...

    def snapshot(self) -> Snapshot: ...

    def restore(self, snapshot: Snapshot) -> None:
        """Put the board back into the state of the snapshot; a no-op when it already is."""
        ...

    def power_source(self) -> PowerSource | None:
        """The sensors, or None where `capabilities().energy.reason` says why there are none."""
        ...

    def activity_source(self, slices: Sequence[SliceState]) -> ActivitySource:
        """What tells how busy the slices are; it says so itself where the board has no such."""
        ...

    def health(self) -> Health: ...

    def memory_used(self, slice_: SliceState) -> Quantity:
        """Memory in use on a slice now, by all that is on it, MiB, as the driver says."""
        ...

    def placement(self, slice_: SliceState) -> WorkerPlacement: ...

    def lease(self, timeout_s: float | None = None) -> AbstractContextManager[None]:
        """Hold the physical board for this process; the kernel frees it when the process dies.

        Raises BoardBusyError naming the holder when the time-out (s) passes.
        """
        ...
