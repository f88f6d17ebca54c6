"""The instances that exist on a board now, read back from it."""

from __future__ import annotations

from dataclasses import dataclass

from wattslice.boards.nvidia import nvml
from wattslice.boards.nvidia.mig.geometry import Geometry, GiProfile, Placed
from wattslice.boards.nvidia.mig.ids import (
    CiProfileId,
    ComputeInstanceId,
    GpuInstanceId,
    ProfileId,
)
from wattslice.boards.nvidia.mig.profiles import Attribute, ProfileName
from wattslice.boards.nvidia.nvml_errors import NvmlError, NvmlNoPermissionError


@dataclass(frozen=True, slots=True)
class CiState:
    """A compute instance; `uuid` is that of its MIG device."""

    ci_id: ComputeInstanceId
    compute_slices: int
    profile_id: CiProfileId | None = None  # None where it may not be read
    sm_count: int | None = None
    start: int | None = None
    uuid: str | None = None


@dataclass(frozen=True, slots=True)
class GiState:
    """A GPU instance. Without privilege its place is unknown, and it shows only by its CIs."""

    gi_id: GpuInstanceId
    profile: GiProfile | None  # None: not among the profiles that the driver lists
    profile_id: ProfileId | None
    start: int | None
    size: int | None
    compute_instances: tuple[CiState, ...]
    memory_mib: int | None = None

    @property
    def placed(self) -> Placed | None:
        if self.profile is None or self.start is None:
            return None
        return Placed(self.start, self.profile)

    @property
    def ci_slices(self) -> tuple[int, ...]:
        return tuple(sorted((c.compute_slices for c in self.compute_instances), reverse=True))

    def __str__(self) -> str:
        name = str(self.profile) if self.profile else f"profile {self.profile_id}"
        place = "" if self.start is None else f"@{self.start}"
        state = "" if self.compute_instances else " (without compute instance)"
        return f"{name}{place}{state}"


def read_instances(device: nvml.Device, geometry: Geometry) -> tuple[GiState, ...]:
    """The instances of a board in MIG mode, by place.

    GPU instances are listed through the board, since one without compute instance shows nowhere
    else. A user who may not list them sees the MIG devices only.
    """
    uuids = _uuids(device)
    try:
        found = _through_board(device, geometry, uuids)
    except NvmlNoPermissionError:
        found = _through_devices(device, geometry)
    return tuple(sorted(found, key=lambda g: (g.start is None, g.start or 0, g.gi_id)))


def _uuids(device: nvml.Device) -> dict[tuple[GpuInstanceId, ComputeInstanceId], str]:
    uuids = {}
    for handle in nvml.mig_devices(device):
        key = (nvml.mig_gpu_instance_id(handle), nvml.mig_compute_instance_id(handle))
        uuids[key] = nvml.uuid(handle)
    return uuids


def _through_board(
    device: nvml.Device,
    geometry: Geometry,
    uuids: dict[tuple[GpuInstanceId, ComputeInstanceId], str],
) -> list[GiState]:
    found: dict[GpuInstanceId, GiState] = {}
    for profile in geometry.profiles:
        for handle in nvml.gpu_instances(device, profile.profile_id):
            info = nvml.gi_info(handle)
            found[info.gi_id] = GiState(
                gi_id=info.gi_id,
                profile=geometry.by_id(info.profile_id),
                profile_id=info.profile_id,
                start=info.start,
                size=info.size,
                compute_instances=_compute_instances(handle, info.gi_id, uuids),
                memory_mib=profile.memory_mib,
            )
    return list(found.values())


def _compute_instances(
    instance: nvml.GpuInstance,
    gi_id: GpuInstanceId,
    uuids: dict[tuple[GpuInstanceId, ComputeInstanceId], str],
) -> tuple[CiState, ...]:
    found = {}
    for profile in nvml.ci_profiles(instance):
        for handle in nvml.compute_instances(instance, profile.profile_id):
            info = nvml.ci_info(handle)
            found[info.ci_id] = CiState(
                ci_id=info.ci_id,
                compute_slices=profile.compute_slices,
                profile_id=info.profile_id,
                sm_count=profile.sm_count,
                start=info.start,
                uuid=uuids.get((gi_id, info.ci_id)),
            )
    return tuple(sorted(found.values(), key=lambda c: (c.start or 0, c.ci_id)))


def _through_devices(device: nvml.Device, geometry: Geometry) -> list[GiState]:
    parts: dict[GpuInstanceId, list[CiState]] = {}
    names: dict[GpuInstanceId, GiProfile | None] = {}
    memory: dict[GpuInstanceId, int | None] = {}
    for handle in nvml.mig_devices(device):
        gi_id = nvml.mig_gpu_instance_id(handle)
        attributes = nvml.mig_attributes(handle)
        parts.setdefault(gi_id, []).append(
            CiState(
                ci_id=nvml.mig_compute_instance_id(handle),
                compute_slices=attributes.ci_slices,
                sm_count=attributes.sm_count,
                uuid=nvml.uuid(handle),
            )
        )
        names[gi_id] = profile_of(handle, geometry)
        memory[gi_id] = attributes.memory_mib
    return [
        GiState(
            gi_id=gi_id,
            profile=names[gi_id],
            profile_id=None if (p := names[gi_id]) is None else p.profile_id,
            start=None,
            size=None,
            compute_instances=tuple(sorted(cis, key=lambda c: c.ci_id)),
            memory_mib=memory[gi_id],
        )
        for gi_id, cis in parts.items()
    ]


def profile_of(handle: nvml.MigDevice, geometry: Geometry) -> GiProfile | None:
    """The profile of a MIG device, from its name or else from its slices and memory."""
    try:
        named = ProfileName.from_device_name(nvml.name(handle))
    except NvmlError:
        named = None
    attributes = nvml.mig_attributes(handle)
    attribute = named.attribute if named else Attribute.NONE
    kind = [
        p
        for p in geometry.profiles
        if p.compute_slices == attributes.gi_slices and p.attribute is attribute
    ]
    if named is not None:
        exact = [p for p in kind if p.name.memory_gb == named.memory_gb]
        if exact:
            return exact[0]
    # The MIG device reports its instance's memory, which may be a little less than the profile's.
    with_memory = [p for p in kind if p.memory_mib is not None]
    return min(
        with_memory,
        key=lambda p: abs((p.memory_mib or 0) - attributes.memory_mib),
        default=kind[0] if kind else None,
    )
