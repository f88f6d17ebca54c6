"""The host CPU as a board."""

from __future__ import annotations

import os
import platform
import uuid
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from wattslice.boards.activity import ActivitySource, NoActivity
from wattslice.boards.base import PowerSource, WorkerPlacement
from wattslice.boards.cpu import cores as core_sets
from wattslice.boards.cpu import power_model, rapl
from wattslice.boards.cpu.power_model import PowerModelLike
from wattslice.boards.lease import board_lease
from wattslice.config.layout import Layout
from wattslice.records.base import Quantity
from wattslice.records.board import (
    BoardIdentity,
    Capabilities,
    EnergyCapability,
    Health,
    LayoutPlan,
    LayoutState,
    SliceProfile,
    SliceState,
    Snapshot,
)

# What PyTorch's CPU kernels compute in. TF32 is a GPU format; fp16 autocast on CPUs has no
# gradient scaling in the framework.
PRECISIONS = ("fp32", "fp32-default", "bf16")


def cpu_name(path: Path = Path("/proc/cpuinfo")) -> str:
    """The processor's model, or its architecture where the kernel names no model."""
    try:
        for line in path.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _machine_id() -> str:
    for path in (Path("/etc/machine-id"), Path("/var/lib/dbus/machine-id")):
        try:
            if text := path.read_text().strip():
                return text
        except OSError:
            continue
    return platform.node()


def _memory_mib() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20
    except (ValueError, OSError):
        return None


class CpuBoard:
    """All cores that this process may use. A layout needs no set-up: slices are affinity masks."""

    def __init__(
        self,
        model: PowerModelLike | None = None,
        cores: Sequence[int] | None = None,
        powercap: Path = rapl.POWERCAP,
    ) -> None:
        self._cores = tuple(cores) if cores is not None else core_sets.allowed_cores()
        self._model = model
        self._powercap = powercap
        self._layout: LayoutState | None = None
        self._identity = BoardIdentity(
            kind="cpu",
            uuid=f"CPU-{uuid.uuid5(uuid.NAMESPACE_OID, _machine_id() + cpu_name())}",
            name=cpu_name(),
            simulated=False,
            host=platform.node(),
            architecture=platform.machine(),
        )

    @property
    def identity(self) -> BoardIdentity:
        return self._identity

    def energy(self) -> EnergyCapability:
        """RAPL where it can be read; else the declared model; else the reason for neither."""
        measured = rapl.probe(self._powercap)
        if measured.method is not None or self._model is None:
            return measured
        return EnergyCapability(
            scope="modelled",
            method=power_model.METHOD,
            reason=f"modelled, not measured: {measured.reason}",
        )

    def capabilities(self) -> Capabilities:
        count = len(self._cores)
        profiles = [
            SliceProfile(
                name=f"{size}c",
                portable_name=f"{size}c",
                compute_slices=size,
                memory_slices=size,
                max_count=count // size,
                memory_mib=_memory_mib(),
            )
            for size in range(1, count + 1)
        ]
        whole = SliceProfile(
            name="full",
            portable_name="full",
            compute_slices=count,
            memory_slices=count,
            max_count=1,
            memory_mib=_memory_mib(),
        )
        return Capabilities(
            partitioning="cores",
            precisions=PRECISIONS,
            profiles=(*profiles, whole),
            memory_slices_total=count,
            memory_mib=_memory_mib(),
            energy=self.energy(),
        )

    def plan(self, layout: Layout) -> LayoutPlan:
        sets = core_sets.divide(layout, self._cores)
        states = tuple(
            SliceState(
                index=index,
                name=name,
                profile=f"{len(cores)}c",
                cores=cores,
                memory_mib=_memory_mib(),
            )
            for index, (name, cores) in enumerate(zip(layout.slices, sets, strict=True))
        )
        return LayoutPlan(
            layout=str(layout), slices=states, note="core sets: nothing has to be created"
        )

    def slices(self) -> tuple[SliceState, ...]:
        return self._layout.slices if self._layout else ()

    def ensure(self, layout: Layout) -> LayoutState:
        self._layout = LayoutState(layout=str(layout), slices=self.plan(layout).slices)
        return self._layout

    def snapshot(self) -> Snapshot:
        state = self._layout or LayoutState(layout="full", slices=())
        return Snapshot(board_uuid=self._identity.uuid, kind="cpu", layout=state)

    def restore(self, snapshot: Snapshot) -> None:
        self._layout = None  # affinity masks end with their processes; nothing stays behind

    def power_source(self) -> PowerSource | None:
        if rapl.probe(self._powercap).method is not None:
            return rapl.RaplSource(self._powercap)
        if self._model is not None:
            return power_model.PowerModelSource(self._model, self._cores)
        return None

    def activity_source(self, slices: Sequence[SliceState]) -> ActivitySource:
        return NoActivity(slices, "no activity counter of a set of CPU cores is read")

    def health(self) -> Health:
        none = Quantity.missing("no such sensor on a CPU board")
        return Health(
            temperature_c=none, power_limit_w=none, sm_clock_mhz=none, memory_clock_mhz=none
        )

    def memory_used(self, slice_: SliceState) -> Quantity:
        del slice_
        return Quantity.missing("core sets have no memory of their own")

    def placement(self, slice_: SliceState) -> WorkerPlacement:
        return WorkerPlacement(device="cpu", cores=slice_.cores, threads=len(slice_.cores))

    def lease(self, timeout_s: float | None = None) -> AbstractContextManager[None]:
        return board_lease(self._identity.uuid, timeout_s)
