"""What a present board can be partitioned into, read from its driver."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from wattslice.boards.nvidia import nvml
from wattslice.boards.nvidia.mig import catalogue
from wattslice.boards.nvidia.mig.geometry import CONSTANT_ATTRIBUTES, Geometry, GiProfile
from wattslice.boards.nvidia.mig.ids import ProfileId
from wattslice.boards.nvidia.mig.profiles import (
    Attribute,
    ProfileName,
    ProfileNameError,
    name_from_size,
)
from wattslice.boards.nvidia.nvml_errors import (
    NvmlError,
    NvmlNoPermissionError,
    NvmlNotSupportedError,
)


@dataclass(frozen=True, slots=True)
class MigCapabilities:
    """MIG on one board; `mode` is None on a board without MIG."""

    mode: nvml.MigMode | None
    geometry: Geometry
    remaining: Mapping[ProfileId, int] = field(default_factory=dict)  # what fits now, by profile
    notes: tuple[str, ...] = ()  # what could not be read, and what was taken instead


def read_capabilities(device: nvml.Device) -> MigCapabilities:
    """Read mode, profiles, placements and capacity; the catalogue fills what may not be read.

    Needs no privilege. Raises NvmlError only where the board as a whole does not answer.
    """
    label = nvml.name(device)
    try:
        mode = nvml.mig_mode(device)
    except NvmlNotSupportedError:
        return MigCapabilities(None, Geometry(label, ()))
    notes: list[str] = []
    try:
        infos = nvml.gi_profiles(device)
    except (NvmlNotSupportedError, NvmlNoPermissionError) as error:
        return _from_catalogue(device, label, mode, error)
    board_mib = _board_memory_mib(device, infos)
    whole = max((i.compute_slices for i in infos), default=0)
    profiles = []
    for info in infos:
        where = _placements(device, info, whole, notes)
        if where is None:
            continue
        starts, size = where
        profiles.append(
            GiProfile(
                name=_name(info, board_mib),
                profile_id=info.profile_id,
                compute_slices=info.compute_slices,
                memory_slices=size,
                starts=starts,
                max_count=info.max_count,
                constant=info.constant,
                memory_mib=info.memory_mib,
                sm_count=info.sm_count,
            )
        )
    remaining = _remaining(device, profiles) if mode.current else {}
    geometry = Geometry(label, tuple(profiles))
    return MigCapabilities(mode, geometry, remaining, tuple(dict.fromkeys(notes)))


def _from_catalogue(
    device: nvml.Device, label: str, mode: nvml.MigMode, error: NvmlError
) -> MigCapabilities:
    """Older drivers list profiles only while MIG is on."""
    known = catalogue.by_pci_device_id(nvml.pci(device).device_id)
    if known is None:
        note = f"profiles cannot be read ({error.reason}) and the board is not in the catalogue"
        return MigCapabilities(mode, Geometry(label, ()), notes=(note,))
    note = f"profiles are the catalogue's for {known.name}: the driver says {error.reason}"
    geometry = Geometry(label, known.geometry.profiles, source="catalogue")
    return MigCapabilities(mode, geometry, notes=(note,))


def _board_memory_mib(device: nvml.Device, infos: tuple[nvml.GiProfileInfo, ...]) -> int:
    try:
        return int(nvml.memory(device).total_mib)
    except NvmlError:  # inside a container the whole board's memory may not be read
        return max((i.memory_mib for i in infos), default=1)


def _name(info: nvml.GiProfileInfo, board_mib: int) -> ProfileName:
    if info.name is not None:
        try:
            return ProfileName.parse(info.name)
        except ProfileNameError:
            pass  # a grammar of a later driver: fall back to the numbers
    attribute = CONSTANT_ATTRIBUTES.get(int(info.constant), Attribute.NONE)
    return name_from_size(info.compute_slices, info.memory_mib, board_mib, attribute)


def _placements(
    device: nvml.Device, info: nvml.GiProfileInfo, whole: int, notes: list[str]
) -> tuple[tuple[int, ...], int] | None:
    try:
        found = nvml.possible_placements(device, info.profile_id)
    except (NvmlNoPermissionError, NvmlNotSupportedError) as error:
        known = catalogue.starts_for(info.profile_id, info.compute_slices, info.max_count, whole)
        source = "the catalogue's" if known else "unknown, so some profiles are left out"
        notes.append(f"placements are {source}: the driver says {error.reason}")
        return known
    if not found:
        return None
    return tuple(sorted(start for start, _ in found)), found[0][1]


def _remaining(device: nvml.Device, profiles: list[GiProfile]) -> dict[ProfileId, int]:
    remaining = {}
    for profile in profiles:
        try:
            remaining[profile.profile_id] = nvml.remaining_capacity(device, profile.profile_id)
        except NvmlError:
            continue
    return remaining
