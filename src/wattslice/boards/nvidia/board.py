"""The NVIDIA board: identity, slices, layouts, sensors and health behind the Board protocol."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Literal

from wattslice.boards.activity import ActivitySource
from wattslice.boards.base import MigPolicy, PowerSource, WorkerPlacement
from wattslice.boards.cpu.cores import fair_share
from wattslice.boards.errors import BoardError, BoardNotFoundError
from wattslice.boards.lease import board_lease
from wattslice.boards.nvidia import holders, nvml
from wattslice.boards.nvidia.activity import GpmActivity
from wattslice.boards.nvidia.identity import lock_key, read_identity
from wattslice.boards.nvidia.mig import planner
from wattslice.boards.nvidia.mig.control import (
    MigController,
)
from wattslice.boards.nvidia.mig.geometry import Geometry
from wattslice.boards.nvidia.mig.journal import Journal
from wattslice.boards.nvidia.mig.parted import PartedFile
from wattslice.boards.nvidia.mig.profiles import ProfileName
from wattslice.boards.nvidia.mig.state import CiState, GiState
from wattslice.boards.nvidia.mig.target import BoardState, Reading, difference, wanted_state
from wattslice.boards.nvidia.nvml_errors import NvmlError, NvmlUnavailableError
from wattslice.boards.nvidia.power import NvmlPowerSource, energy_capability
from wattslice.config.layout import Layout
from wattslice.records.base import Quantity
from wattslice.records.board import (
    BoardIdentity,
    Capabilities,
    Health,
    LayoutPlan,
    LayoutState,
    SliceProfile,
    SliceState,
    Snapshot,
)

MigModeWord = Literal["off", "on", "pending-on", "pending-off", "not-supported"]
_FULL = "full"
# Compute capability from which a format has tensor cores: float8 with 8.9, TF32 and bf16 with 8.0,
# fp16 with 7.0.
_PRECISIONS_8 = ("fp32", "fp32-default", "tf32", "bf16", "fp16")
_PRECISIONS_7 = ("fp32", "fp32-default", "fp16")
_PRECISIONS_OLD = ("fp32", "fp32-default")
# On a simulated board the training computes on the CPU, whose kernels have these.
_PRECISIONS_CPU = ("fp32", "fp32-default", "bf16")


def discover(mig: MigPolicy = "existing") -> list[NvidiaBoard]:
    """All boards that this process may use, in PCI order.

    Raises BoardNotFoundError that says why when this host has no working NVML.
    """
    try:
        nvml.ensure_open()
        return [NvidiaBoard(nvml.uuid(device), mig) for _, device in nvml.devices()]
    except NvmlUnavailableError as error:
        raise BoardNotFoundError(f"no NVIDIA board: {error}") from error
    except NvmlError as error:
        raise BoardError(f"NVML cannot list the boards: {error}") from error


class NvidiaBoard:
    """One NVIDIA GPU, addressed by UUID for as long as the object lives."""

    def __init__(self, uuid: str, mig: MigPolicy = "existing") -> None:
        try:
            nvml.ensure_open()
            self._identity = read_identity(nvml.device_by_uuid(uuid))
        except NvmlError as error:
            raise BoardNotFoundError(f"no board {uuid}: {error}") from error
        self._key = lock_key(self._identity)
        self._control = MigController(self._identity.uuid, mig, Journal(self._key))

    @property
    def identity(self) -> BoardIdentity:
        return self._identity

    @property
    def mig_policy(self) -> MigPolicy:
        return self._control.policy

    def reading(self) -> Reading:
        """Mode, geometry and instances as the driver gives them now."""
        with _as_board_error(self._identity.uuid):
            return self._control.read()

    def geometry(self) -> Geometry:
        return self.reading().geometry

    def capabilities(self) -> Capabilities:
        with _as_board_error(self._identity.uuid):
            reading = self._control.read()
            device = self._control.device()
            memory = nvml.quantity(lambda: nvml.memory(device).total_mib).value
            memory_mib = None if memory is None else int(memory)
            supported = reading.mig_on is not None
            return Capabilities(
                partitioning="mig" if supported else "none",
                precisions=self._precisions(device),
                profiles=(
                    _full_profile(reading.geometry, memory_mib, _sms(device)),
                    *reading.geometry.slice_profiles(),
                ),
                memory_slices_total=max(reading.geometry.axis, 1),
                memory_mib=memory_mib,
                energy=energy_capability(device),
                mig_mode=_mode_word(reading),
            )

    def _precisions(self, device: nvml.Device) -> tuple[str, ...]:
        if self._identity.simulated:
            return _PRECISIONS_CPU
        capability = nvml.compute_capability(device)
        if capability >= (8, 0):
            return (*_PRECISIONS_8, "fp8") if capability >= (8, 9) else _PRECISIONS_8
        return _PRECISIONS_7 if capability >= (7, 0) else _PRECISIONS_OLD

    def plan(self, layout: Layout) -> LayoutPlan:
        with _as_board_error(self._identity.uuid):
            reading = self._control.read()
            plan = self._control.plan(layout, reading)
            if plan is None:
                leaving = tuple(str(gi) for gi in reading.instances)
                return LayoutPlan(
                    layout=str(layout), slices=(self._full_slice(reading),), destroys=leaving
                )
            todo = difference(reading.instances, wanted_state(plan).instances)
            note = "; ".join([*reading.capabilities.notes, *plan.aliases]) or None
            return LayoutPlan(
                layout=str(layout),
                slices=_planned_slices(plan),
                keeps=tuple(map(str, (*todo.keep, *(gi for gi, _ in todo.recut)))),
                creates=tuple(map(str, todo.create)),
                destroys=tuple(map(str, todo.destroy)),
                note=note,
            )

    def parted_layout(self, file: PartedFile, label: str) -> Layout | None:
        """What a mig-parted configuration wants of this board; None: it leaves it alone."""
        with _as_board_error(self._identity.uuid):
            nvml.ensure_open()
            for index, device in nvml.devices():
                if nvml.uuid(device) == self._identity.uuid:
                    return file.layout(label, index, nvml.pci(device).device_id)
        raise BoardNotFoundError(f"board {self._identity.uuid} is no longer listed")

    def slices(self) -> tuple[SliceState, ...]:
        with _as_board_error(self._identity.uuid):
            return self._slices(self._control.read())

    def _slices(self, reading: Reading) -> tuple[SliceState, ...]:
        if not reading.mig_on:
            return (self._full_slice(reading),)
        pairs = [(gi, ci) for gi in reading.instances for ci in gi.compute_instances]
        # The order that a layout has: widest first, then along the axis.
        pairs.sort(key=lambda p: (-p[1].compute_slices, p[0].start or 0, p[1].start or 0))
        return tuple(
            _slice_state(index, _portable(reading.geometry, gi, ci), gi, ci)
            for index, (gi, ci) in enumerate(pairs)
        )

    def _full_slice(self, reading: Reading) -> SliceState:
        device = self._control.device()
        memory = nvml.quantity(lambda: nvml.memory(device).total_mib).value
        return SliceState(
            index=0,
            name=_FULL,
            profile=_FULL,
            uuid=self._identity.uuid,
            sm_count=_sms(device),
            memory_mib=None if memory is None else int(memory),
        )

    def ensure(self, layout: Layout) -> LayoutState:
        """See Board.ensure; what is not allowed or possible raises a BoardError before a change."""
        reading = self._control.ensure(layout)
        with _as_board_error(self._identity.uuid):
            plan = self._control.plan(layout, reading)
            slices = (self._full_slice(reading),) if plan is None else _held_slices(plan, reading)
            return LayoutState(layout=str(layout), slices=slices, mig_mode=_mode_word(reading))

    def snapshot(self) -> Snapshot:
        """The present state, or after a killed change the state from before it.

        `layout` is always what is there now; `state` is what `restore` goes back to.
        """
        with _as_board_error(self._identity.uuid):
            reading = self._control.read()
            state = self._control.snapshot()
            slices = self._slices(reading)
            return Snapshot(
                board_uuid=self._identity.uuid,
                kind="nvidia",
                layout=LayoutState(
                    layout="+".join(s.name for s in slices),
                    slices=slices,
                    mig_mode=_mode_word(reading),
                ),
                state=state.to_json(),
            )

    def restore(self, snapshot: Snapshot) -> None:
        if snapshot.board_uuid != self._identity.uuid:
            raise BoardError(
                f"the snapshot is of board {snapshot.board_uuid}, not of {self._identity.uuid}"
            )
        self._control.restore(BoardState.from_json(snapshot.state))

    def power_source(self) -> PowerSource | None:
        with _as_board_error(self._identity.uuid):
            if energy_capability(self._control.device()).scope is None:
                return None
            return NvmlPowerSource(self._identity.uuid, self._identity.name)

    def activity_source(self, slices: Sequence[SliceState]) -> ActivitySource:
        return GpmActivity(self._identity.uuid, slices)

    def health(self) -> Health:
        """Readings that fail are null with the driver's code; none hides another."""
        with _as_board_error(self._identity.uuid):
            device = self._control.device()
            mask = nvml.quantity(lambda: nvml.event_reasons(device)).value
            return Health(
                temperature_c=nvml.quantity(lambda: nvml.temperature_c(device)),
                power_limit_w=_power_limit(device),
                sm_clock_mhz=nvml.quantity(lambda: nvml.sm_clock_mhz(device)),
                memory_clock_mhz=nvml.quantity(lambda: nvml.memory_clock_mhz(device)),
                event_reasons=() if mask is None else nvml.event_reason_names(int(mask)),
                foreign_processes=self._foreign_processes(device),
            )

    def memory_used(self, slice_: SliceState) -> Quantity:
        uuid = slice_.uuid
        if uuid is None:
            return Quantity.missing("the slice has no UUID")
        return nvml.quantity(lambda: nvml.memory(nvml.any_handle_by_uuid(uuid)).used_mib)

    def _foreign_processes(self, device: nvml.Device) -> tuple[str, ...]:
        own = _family(os.getpid())
        pids: set[int] = set()
        handles: list[nvml.Device | nvml.MigDevice] = [device, *nvml.mig_devices(device)]
        for handle in handles:
            with contextlib.suppress(NvmlError):
                pids.update(nvml.processes(handle))
        return tuple(f"{pid} {holders.process_name(pid)}" for pid in sorted(pids - own))

    def placement(self, slice_: SliceState) -> WorkerPlacement:
        """One process per slice, by UUID: a process sees exactly one MIG device."""
        uuid = slice_.uuid
        if uuid is None:
            raise BoardError(f"slice {slice_.index} ({slice_.profile}) has no UUID: not created?")
        count = len(self.slices())
        cores = sorted(os.sched_getaffinity(0))
        share = fair_share(cores, slice_.index, count)
        if self._identity.simulated:
            return WorkerPlacement(
                device="cpu",
                cores=share,
                threads=len(share),
                env={"CUDA_VISIBLE_DEVICES": ""},  # no real board by accident
                simulated_slice=uuid,
            )
        return WorkerPlacement(
            device="cuda", cores=(), threads=len(share), env={"CUDA_VISIBLE_DEVICES": uuid}
        )

    def lease(self, timeout_s: float | None = None) -> AbstractContextManager[None]:
        return board_lease(self._key, timeout_s)


# --- helpers -----------------------------------------------------------------------------------


@contextlib.contextmanager
def _as_board_error(uuid: str) -> Iterator[None]:
    try:
        yield
    except NvmlUnavailableError as error:
        raise BoardNotFoundError(f"board {uuid}: {error}") from error
    except NvmlError as error:
        raise BoardError(f"board {uuid}: {error}") from error


def _mode_word(reading: Reading) -> MigModeWord:
    mode = reading.capabilities.mode
    if mode is None:
        return "not-supported"
    if mode.settled:
        return "on" if mode.current else "off"
    return "pending-on" if mode.pending else "pending-off"


def _sms(device: nvml.Device) -> int | None:
    """SMs of the whole board with MIG off (a 7g has fewer), from its cores; None if unknown."""
    value = nvml.quantity(lambda: nvml.sm_count(device)).value
    return None if value is None else int(value)


def _full_profile(geometry: Geometry, memory_mib: int | None, sm_count: int | None) -> SliceProfile:
    return SliceProfile(
        name=_FULL,
        portable_name=_FULL,
        compute_slices=max(geometry.compute_slices, 1),
        memory_slices=max(geometry.axis, 1),
        max_count=1,
        memory_mib=memory_mib,
        sm_count=sm_count,
    )


def _portable(geometry: Geometry, gi: GiState, ci: CiState) -> str:
    if gi.profile is None:
        return f"{ci.compute_slices}g"
    name = geometry.portable_name(gi.profile)
    if ci.compute_slices == gi.profile.compute_slices:
        return name
    return str(replace(ProfileName.parse(name), ci_slices=ci.compute_slices))


def _exact(gi: GiState, ci: CiState) -> str:
    if gi.profile is None:
        return f"profile {gi.profile_id}"
    if ci.compute_slices == gi.profile.compute_slices:
        return str(gi.profile)
    return str(replace(gi.profile.name, ci_slices=ci.compute_slices))


def _slice_state(index: int, name: str, gi: GiState, ci: CiState) -> SliceState:
    placement = None if gi.start is None or gi.size is None else (gi.start, gi.size)
    return SliceState(
        index=index,
        name=name,
        profile=_exact(gi, ci),
        uuid=ci.uuid,
        gpu_instance_id=int(gi.gi_id),
        compute_instance_id=int(ci.ci_id),
        placement=placement,
        sm_count=ci.sm_count,
        memory_mib=gi.memory_mib,
    )


def _planned_slices(plan: planner.MigPlan) -> tuple[SliceState, ...]:
    slices = []
    for instance in plan.instances:
        profile = instance.profile
        for part in instance.slices:
            whole = part.ci_slices == profile.compute_slices
            name = profile.name if whole else replace(profile.name, ci_slices=part.ci_slices)
            slices.append(
                SliceState(
                    index=part.index,
                    name=part.name,
                    profile=str(name),
                    placement=(instance.placed.start, profile.memory_slices),
                    sm_count=profile.sm_count if whole else None,
                    memory_mib=profile.memory_mib,
                )
            )
    return tuple(sorted(slices, key=lambda s: s.index))


def _held_slices(plan: planner.MigPlan, reading: Reading) -> tuple[SliceState, ...]:
    """The slices of a layout that holds, each with the instance that it is."""
    free = [(gi, ci) for gi in reading.instances for ci in gi.compute_instances]
    slices = []
    for instance in plan.instances:
        for part in instance.slices:
            # Without privilege places are unknown; then any instance of the shape is as good.
            fitting = [
                (gi, ci)
                for gi, ci in free
                if gi.profile_id == instance.profile.profile_id
                and ci.compute_slices == part.ci_slices
            ]
            here = [p for p in fitting if p[0].start == instance.placed.start] or fitting
            free.remove(here[0])
            slices.append(_slice_state(part.index, part.name, *here[0]))
    return tuple(sorted(slices, key=lambda s: s.index))


def _power_limit(device: nvml.Device) -> Quantity:
    limit = nvml.quantity(lambda: nvml.power_limit_w(device))
    if limit.value is not None:
        return limit
    field = nvml.quantity(lambda: nvml.field_value(device, nvml.FIELD_POWER_LIMIT) / 1000.0)
    return field if field.value is not None else limit


def _family(pid: int, proc: Path = Path("/proc")) -> frozenset[int]:
    """A process and all its descendants."""
    parents: dict[int, int] = {}
    for entry in proc.iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError, ValueError, IndexError):
                # The name in parentheses may hold anything, so count from its end.
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                parents[int(entry.name)] = int(fields[1])
    family = {pid}
    grown = True
    while grown:
        children = {p for p, parent in parents.items() if parent in family} - family
        family |= children
        grown = bool(children)
    return frozenset(family)
