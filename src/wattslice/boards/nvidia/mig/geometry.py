"""What can be placed where on a board: profiles and the axis of memory slices they lie on."""

from __future__ import annotations

from dataclasses import dataclass, field

from wattslice.boards.nvidia.mig.ids import ProfileConstant, ProfileId
from wattslice.boards.nvidia.mig.profiles import Attribute, ProfileName
from wattslice.records.board import SliceProfile

# NVML constants (nvml.h, API 13) of profiles that differ in media or graphics engines only.
# Used where the driver gives no name, and to know the double-memory profile.
CONSTANT_ATTRIBUTES = {
    7: Attribute.MEDIA,
    8: Attribute.MEDIA,
    10: Attribute.GRAPHICS,
    11: Attribute.GRAPHICS,
    12: Attribute.GRAPHICS,
    13: Attribute.NO_MEDIA,
    14: Attribute.NO_MEDIA,
    15: Attribute.MEDIA_ALL,
    16: Attribute.MEDIA_ALL,
    17: Attribute.GRAPHICS,
}


@dataclass(frozen=True, slots=True)
class GiProfile:
    """A kind of GPU instance on one board."""

    name: ProfileName
    profile_id: ProfileId
    compute_slices: int
    memory_slices: int  # length on the axis
    starts: tuple[int, ...]
    max_count: int
    constant: ProfileConstant | None = None
    memory_mib: int | None = None
    sm_count: int | None = None
    confidence: str = "driver"

    def __hash__(self) -> int:
        # Enumerations hash profiles a lot, and the id tells those of one board apart.
        return hash(self.profile_id)

    @property
    def attribute(self) -> Attribute:
        return self.name.attribute

    def __str__(self) -> str:
        return str(self.name)


@dataclass(frozen=True, slots=True)
class Placed:
    """One GPU instance at its place."""

    start: int
    profile: GiProfile

    @property
    def end(self) -> int:
        return self.start + self.profile.memory_slices

    def overlaps(self, other: Placed) -> bool:
        return self.start < other.end and other.start < self.end

    def __str__(self) -> str:
        return f"{self.profile}@{self.start}"


@dataclass(frozen=True, slots=True)
class Geometry:
    """The profiles of one board, and where each may lie."""

    board: str
    profiles: tuple[GiProfile, ...]
    source: str = "driver"  # or "catalogue"
    # Filled in after construction from the profiles: the board's own report of what it has.
    axis: int = field(init=False)  # memory slices
    compute_slices: int = field(init=False)

    def __post_init__(self) -> None:
        ends = [s + p.memory_slices for p in self.profiles for s in p.starts]
        object.__setattr__(self, "axis", max(ends, default=0))
        slices = [p.compute_slices for p in self.profiles]
        object.__setattr__(self, "compute_slices", max(slices, default=0))

    def by_id(self, profile_id: ProfileId) -> GiProfile | None:
        return next((p for p in self.profiles if p.profile_id == profile_id), None)

    def base(self, profile: GiProfile) -> bool:
        """Whether the profile is the plain one of its number of compute slices.

        The smallest without attribute is; the double-memory 1g is not.
        """
        if profile.attribute is not Attribute.NONE:
            return False
        return profile.memory_slices == min(
            p.memory_slices
            for p in self.profiles
            if p.compute_slices == profile.compute_slices and p.attribute is Attribute.NONE
        )

    def base_profiles(self) -> tuple[GiProfile, ...]:
        return tuple(p for p in self.profiles if self.base(p))

    def portable_name(self, profile: GiProfile) -> str:
        """The name that means the same on every board, or the exact one where none does."""
        same = [
            p
            for p in self.profiles
            if p.compute_slices == profile.compute_slices and p.attribute is profile.attribute
        ]
        smallest = min(same, key=lambda p: p.memory_slices)
        return str(profile.name.portable if profile is smallest else profile.name)

    def slice_profiles(self) -> tuple[SliceProfile, ...]:
        """The profiles as a record, widest first."""
        ordered = sorted(
            self.profiles, key=lambda p: (-p.compute_slices, p.memory_slices, p.attribute)
        )
        return tuple(
            SliceProfile(
                name=str(p.name),
                portable_name=self.portable_name(p),
                compute_slices=p.compute_slices,
                memory_slices=p.memory_slices,
                max_count=p.max_count,
                placements=tuple((s, p.memory_slices) for s in p.starts),
                memory_mib=p.memory_mib,
                sm_count=p.sm_count,
                profile_id=int(p.profile_id),
            )
            for p in ordered
        )
