"""The grammar of MIG profile names: `1g`, `1g.10gb`, `1g.10gb+me`, `1c.3g.40gb`, `2g.48gb-me`."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from enum import StrEnum

# Drivers write "MIG 1g.10gb"; mig-parted labels and Kubernetes resources write `.me` for `+me`.
_NAME = re.compile(
    r"^(?:MIG\s+)?(?:(?P<ci>[1-9]\d*)c\.)?(?P<gi>[1-9]\d*)g(?:\.(?P<gb>\d+)gb)?"
    r"(?P<attribute>[+.]me\.all|[+.]me|-me|[+.]gfx)?$",
    re.IGNORECASE,
)
# The device name that NVML gives for a MIG device, e.g. "NVIDIA H200 MIG 1c.3g.71gb".
_IN_DEVICE_NAME = re.compile(r"\bMIG[ _](?P<name>\S+)$")


class Attribute(StrEnum):
    """What a profile has beside compute and memory."""

    NONE = ""
    MEDIA = "+me"  # the board's single JPEG and OFA engine, one decoder at least
    MEDIA_ALL = "+me.all"  # every media engine of the board
    NO_MEDIA = "-me"
    GRAPHICS = "+gfx"


class ProfileNameError(ValueError):
    """The text is not the name of a MIG profile."""


@dataclass(frozen=True, slots=True)
class ProfileName:
    """A profile as a name describes it.

    The name is not an identity: the same slice was printed as 3g.40gb and as 3g.39gb by two
    drivers, and 1g.35gb is two of eight memory slices on an H200 but one of eight on a GB300.
    """

    slices: int
    memory_gb: int | None = None  # None in a portable name
    attribute: Attribute = Attribute.NONE
    ci_slices: int | None = None  # None: the compute instance fills the GPU instance

    @classmethod
    def parse(cls, text: str) -> ProfileName:
        """Parse a name in any of the spellings in use. Raises ProfileNameError."""
        match = _NAME.match(text.strip())
        if match is None:
            raise ProfileNameError(
                f"{text!r} is not a MIG profile; valid are e.g. 1g, 1g.10gb, 1g.10gb+me, "
                "1g.24gb+gfx, 1g.24gb-me, 1g.24gb+me.all, 1c.3g.40gb"
            )
        slices = int(match["gi"])
        ci_slices = int(match["ci"]) if match["ci"] else None
        if ci_slices is not None and ci_slices > slices:
            raise ProfileNameError(
                f"{text!r}: a compute instance of {ci_slices} slices does not fit into {slices}g"
            )
        attribute = (match["attribute"] or "").lower()
        if attribute.startswith("."):
            attribute = "+" + attribute[1:]
        return cls(
            slices=slices,
            memory_gb=int(match["gb"]) if match["gb"] else None,
            attribute=Attribute(attribute),
            ci_slices=None if ci_slices == slices else ci_slices,
        )

    @classmethod
    def from_device_name(cls, name: str) -> ProfileName | None:
        """The profile in the name of a MIG device, or None if the name has none."""
        match = _IN_DEVICE_NAME.search(name)
        if match is None:
            return None
        try:
            return cls.parse(match["name"])
        except ProfileNameError:
            return None

    def __str__(self) -> str:
        compute = f"{self.ci_slices}c." if self.ci_slices is not None else ""
        memory = f".{self.memory_gb}gb" if self.memory_gb is not None else ""
        return f"{compute}{self.slices}g{memory}{self.attribute}"

    @property
    def portable(self) -> ProfileName:
        """The name without the memory size: the board's own profile of that many slices."""
        return replace(self, memory_gb=None)

    @property
    def gpu_instance(self) -> ProfileName:
        """The GPU instance that the slice lives in."""
        return replace(self, ci_slices=None)

    @property
    def label(self) -> str:
        """The spelling for labels and resource names, in which `+` is not allowed."""
        return str(self).replace("+", ".")


def name_from_size(
    slices: int, memory_mib: int, board_memory_mib: int, attribute: Attribute = Attribute.NONE
) -> ProfileName:
    """The name of a profile for which the driver gives none (libraries before API 12).

    The gigabytes are the board's gigabytes, rounded up, times the profile's share in eighths,
    rounded up; the rule is the one of NVIDIA/go-nvlib. Sizes in MiB.
    """
    eighths = -(-8 * memory_mib // board_memory_mib)
    board_gib = -(-board_memory_mib // 1024)
    return ProfileName(slices, round(eighths / 8 * board_gib), attribute)
