"""Known boards, for planning without one at hand. What a present driver says always wins."""

from __future__ import annotations

import csv
import difflib
import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from importlib import resources

from wattslice.boards.errors import BoardNotFoundError
from wattslice.boards.nvidia.mig.geometry import Geometry, GiProfile
from wattslice.boards.nvidia.mig.ids import ProfileConstant, ProfileId
from wattslice.boards.nvidia.mig.profiles import ProfileName

_DATA = "wattslice.boards.nvidia.data"

# Boards that are known to have MIG, but whose profile ids and placements are not published.
UNPLANNABLE = ("rtx-pro-5000-48gb", "rtx-pro-4500-32gb", "thor")


@dataclass(frozen=True, slots=True)
class CatalogueBoard:
    """A board of the table; `confidence` says how well its figures are known."""

    name: str
    device_name: str
    architecture: str
    pci_device_ids: tuple[int, ...]  # as NVML gives it: device id << 16 | vendor id
    sm_count: int | None  # of the whole board, MIG off
    geometry: Geometry

    @property
    def confidence(self) -> tuple[str, ...]:
        return tuple(sorted({p.confidence for p in self.geometry.profiles}))


def _rows(name: str) -> Iterator[dict[str, str]]:
    text = (resources.files(_DATA) / name).read_text(encoding="utf-8")
    return iter(csv.DictReader(text.splitlines()))


@functools.cache
def boards() -> dict[str, CatalogueBoard]:
    """All boards of the table by name."""
    families: dict[str, list[GiProfile]] = {}
    for row in _rows("mig-profiles.csv"):
        families.setdefault(row["family"], []).append(
            GiProfile(
                name=ProfileName.parse(row["profile"]),
                constant=ProfileConstant(int(row["constant"])),
                profile_id=ProfileId(int(row["profile_id"])),
                compute_slices=int(row["compute_slices"]),
                memory_slices=int(row["memory_slices"]),
                starts=tuple(int(start) for start in row["starts"].split()),
                max_count=int(row["max_count"]),
                memory_mib=int(row["memory_mib"]) if row["memory_mib"] else None,
                sm_count=int(row["sm_count"]) if row["sm_count"] else None,
                confidence=row["confidence"],
            )
        )
    found = {}
    for row in _rows("boards.csv"):
        profiles = families[row["family"]]
        if row["slice_sms_differ"] == "1":  # the family's SM counts are those of a larger board
            profiles = [_without_sms(p) for p in profiles]
        found[row["board"]] = CatalogueBoard(
            name=row["board"],
            device_name=row["device_name"],
            architecture=row["architecture"],
            pci_device_ids=tuple(int(i, 16) for i in row["pci_device_ids"].split()),
            sm_count=int(row["sm_count"]) if row["sm_count"] else None,
            geometry=Geometry(row["board"], tuple(profiles), source="catalogue"),
        )
    return found


def _without_sms(profile: GiProfile) -> GiProfile:
    return replace(profile, sm_count=None)


def find(name: str) -> CatalogueBoard:
    """The board of that name; case, spaces and underscores do not matter.

    Raises BoardNotFoundError with the names that are meant most likely.
    """
    key = re.sub(r"[\s_]+", "-", name.strip().lower()).removeprefix("nvidia-")
    if key in boards():
        return boards()[key]
    if key in UNPLANNABLE:
        raise BoardNotFoundError(
            f"{name}: no placements are published for this board; plan on a machine that has one"
        )
    # A prefix may do where it leaves no doubt, e.g. h200-nvl or a30.
    by_prefix = [b for b in boards() if b.startswith(key + "-")] if key else []
    if len(by_prefix) == 1:
        return boards()[by_prefix[0]]
    near = by_prefix or difflib.get_close_matches(key, boards(), n=3, cutoff=0.4)
    meant = f"did you mean {' or '.join(near)}? " if near else ""
    raise BoardNotFoundError(
        f"no board {name!r} in the catalogue; {meant}known: {', '.join(boards())}"
    )


def by_pci_device_id(pci_device_id: int) -> CatalogueBoard | None:
    """The board with that PCI device id (device << 16 | vendor), or None."""
    return next((b for b in boards().values() if pci_device_id in b.pci_device_ids), None)


def starts_for(
    profile_id: ProfileId, compute_slices: int, max_count: int, whole_slices: int
) -> tuple[tuple[int, ...], int] | None:
    """(starts, size) that every known board agrees on for such a profile, or None.

    Used where the driver refuses to list placements to an unprivileged user. `whole_slices` is
    the number of compute slices of the board's widest profile, which tells the families apart.
    """
    known = {
        (p.starts, p.memory_slices)
        for board in boards().values()
        if board.geometry.compute_slices == whole_slices
        for p in board.geometry.profiles
        if (p.profile_id, p.compute_slices, p.max_count) == (profile_id, compute_slices, max_count)
    }
    return known.pop() if len(known) == 1 else None
