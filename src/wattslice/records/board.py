"""What a board is, what it can do, and the state it is in."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from wattslice.records.base import Quantity, Record

BoardKind = Literal["cpu", "nvidia"]
EnergyScope = Literal["board", "module", "package", "modelled"]
Partitioning = Literal["cores", "mig", "none"]


class BoardIdentity(Record):
    """Which physical device this is. Boards are addressed by `uuid`, never by index."""

    kind: BoardKind
    uuid: str
    name: str
    simulated: bool
    host: str
    architecture: str | None = None
    pci_bus_id: str | None = None
    serial: str | None = None
    driver_version: str | None = None


class SliceProfile(Record):
    """A kind of slice that the board can offer."""

    name: str = Field(description="exact name, e.g. 1g.10gb, full, 1c")
    portable_name: str = Field(description="name that means the same on every board, e.g. 1g")
    compute_slices: int
    memory_slices: int
    max_count: int
    placements: tuple[tuple[int, int], ...] = Field(
        default=(), description="(start, size) on the memory-slice axis, in memory slices"
    )
    memory_mib: int | None = None
    sm_count: int | None = None
    profile_id: int | None = Field(default=None, description="driver's profile id on this board")


class EnergyCapability(Record):
    """Whether energy can be had, from what, and what it covers; `reason` says why not."""

    scope: EnergyScope | None
    method: str | None
    reason: str | None = None


class Capabilities(Record):
    """What a board can do, as far as a campaign needs to know it."""

    partitioning: Partitioning
    precisions: tuple[str, ...]
    profiles: tuple[SliceProfile, ...]
    memory_slices_total: int = Field(description="length of the placement axis, in memory slices")
    memory_mib: int | None
    energy: EnergyCapability
    mig_mode: Literal["off", "on", "pending-on", "pending-off", "not-supported"] = "not-supported"


class SliceState(Record):
    """One slice that exists on the board now."""

    index: int = Field(description="position in the layout, 0-based")
    name: str = Field(description="name as the campaign writes it, e.g. 1g or 1c")
    profile: str = Field(description="the board's exact name, e.g. 1g.10gb")
    uuid: str | None = None
    gpu_instance_id: int | None = None
    compute_instance_id: int | None = None
    placement: tuple[int, int] | None = Field(default=None, description="(start, size)")
    sm_count: int | None = None
    memory_mib: int | None = None
    cores: tuple[int, ...] = Field(default=(), description="CPU cores that the slice owns")


class LayoutState(Record):
    """A layout that holds on the board, read back from it."""

    layout: str
    slices: tuple[SliceState, ...]
    mig_mode: str | None = None


class Health(Record):
    """Slowly changing readings of a board that a reader needs to judge a run."""

    temperature_c: Quantity
    power_limit_w: Quantity
    sm_clock_mhz: Quantity
    memory_clock_mhz: Quantity
    event_reasons: tuple[str, ...] = ()
    foreign_processes: tuple[str, ...] = Field(
        default=(), description="processes on the board that are not ours: 'pid name'"
    )


class Snapshot(Record):
    """The state of a board that `restore` puts back; `state` is private to the board's kind."""

    board_uuid: str
    kind: BoardKind
    layout: LayoutState
    state: dict[str, object] = Field(default_factory=dict)


class LayoutPlan(Record):
    """How a layout would be made on a board."""

    layout: str
    slices: tuple[SliceState, ...] = Field(description="as they would come out; ids unknown")
    keeps: tuple[str, ...] = Field(default=(), description="existing instances that stay")
    creates: tuple[str, ...] = ()
    destroys: tuple[str, ...] = ()
    note: str | None = None
