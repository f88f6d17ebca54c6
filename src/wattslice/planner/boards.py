"""The layouts that a board can have, as far as the measurements know their slices."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache

from wattslice.boards.errors import BoardNotFoundError
from wattslice.boards.nvidia.mig import catalogue
from wattslice.boards.nvidia.mig import planner as mig
from wattslice.boards.nvidia.mig.geometry import Geometry
from wattslice.boards.nvidia.mig.profiles import ProfileNameError
from wattslice.config.layout import Layout
from wattslice.planner.errors import TableError

FULL = "full"


@dataclass(frozen=True, slots=True)
class BoardModel:
    """A board that jobs are planned for."""

    name: str
    layouts: tuple[Layout, ...]  # each maximal for the kinds of slices that are known
    memory_mib: dict[str, float] = field(default_factory=dict)  # by kind of slice
    power_limit_w: float | None = None
    aliases: dict[str, str] = field(default_factory=dict)  # exact name -> the name in `layouts`

    @property
    def most_slices(self) -> int:
        return max(len(layout.slices) for layout in self.layouts)


def mig_board(name: str, kinds: Iterable[str], power_limit_w: float | None = None) -> BoardModel:
    """A board of the catalogue, divided into measured kinds of slices only.

    A layout to which a measured slice could be added is left out: with that slice idle it does
    the same. Raises BoardNotFoundError, TableError where no measured slice is one of the board's.
    """
    board = catalogue.find(name)
    return geometry_board(board.name, board.geometry, kinds, power_limit_w)


def geometry_board(
    name: str, geometry: Geometry, kinds: Iterable[str], power_limit_w: float | None = None
) -> BoardModel:
    """As `mig_board`, for a geometry that was read from a board."""
    names = {kind: _portable(geometry, kind) for kind in kinds}
    known = set(names.values())
    profiles = [p for p in geometry.profiles if geometry.portable_name(p) in known]
    layouts = [Layout.parse(text) for text in mig.layouts(geometry, profiles)] if profiles else []
    if FULL in known:
        layouts.insert(0, Layout((FULL,)))
    if not layouts:
        have = ", ".join(geometry.portable_name(p) for p in geometry.base_profiles())
        raise TableError(
            f"no slice of the table ({', '.join(sorted(known))}) is one of {name}, which has {have}"
        )
    memory = {
        geometry.portable_name(p): float(p.memory_mib)
        for p in geometry.profiles
        if p.memory_mib is not None
    }
    aliases = {kind: other for kind, other in names.items() if kind != other}
    return BoardModel(name, tuple(layouts), memory, power_limit_w, aliases)


def _portable(geometry: Geometry, kind: str) -> str:
    """3g for 3g.40gb, as the board has it; what is no profile of the board stays as it is."""
    try:
        profile, name = mig.resolve_profile(geometry, kind)
    except ProfileNameError:
        return kind
    return kind if name.ci_slices is not None else geometry.portable_name(profile)


def present_board(
    name: str, slices: Iterable[str], power_limit_w: float | None = None
) -> BoardModel:
    """A board whose layout may not be changed."""
    return BoardModel(name, (Layout.parse("+".join(slices)),), {}, power_limit_w)


def cpu_board(cores: int, kinds: Iterable[str], power_limit_w: float | None = None) -> BoardModel:
    """A host CPU, divided into measured numbers of cores."""
    known = set(kinds)
    sizes = sorted(
        (int(k[:-1]) for k in known if k.endswith("c") and k[:-1].isdigit()), reverse=True
    )
    layouts = [Layout(tuple(f"{n}c" for n in parts)) for parts in _partitions(cores, tuple(sizes))]
    if FULL in known:
        layouts.insert(0, Layout((FULL,)))
    if not layouts:
        raise TableError(f"no slice of the table ({', '.join(sorted(known))}) is of a CPU")
    return BoardModel(f"CPU with {cores} cores", tuple(layouts), {}, power_limit_w)


def _partitions(cores: int, sizes: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """Sets of slices to which no measured size can be added, largest slice first."""

    def walk(
        left: int, allowed: tuple[int, ...], chosen: tuple[int, ...]
    ) -> Iterator[tuple[int, ...]]:
        if chosen and left < sizes[-1]:
            yield chosen
            return
        for index, size in enumerate(allowed):
            if size <= left:
                yield from walk(left - size, allowed[index:], (*chosen, size))

    if sizes:
        yield from walk(cores, sizes, ())


@lru_cache(maxsize=64)
def _by_device_name(name: str) -> str | None:
    for key, board in catalogue.boards().items():
        if board.device_name.lower() == name.lower():
            return key
    return None


def board_for(
    name: str | None, kinds: Iterable[str], power_limit_w: float | None = None
) -> BoardModel:
    """The board by its name in the catalogue, by its device name, or `cpu:<cores>`.

    Raises TableError or BoardNotFoundError saying which names there are.
    """
    known = list(kinds)
    if name is None:
        raise TableError("which board? Give --board, e.g. a100-sxm4-80gb or cpu:2")
    if name.startswith("cpu:"):
        if not name[4:].isdigit() or int(name[4:]) < 1:
            raise TableError(f"{name!r}: write cpu:<number of cores>, e.g. cpu:2")
        return cpu_board(int(name[4:]), known, power_limit_w)
    try:
        return mig_board(_by_device_name(name) or name, known, power_limit_w)
    except BoardNotFoundError:
        cores = [int(k[:-1]) for k in known if k.endswith("c") and k[:-1].isdigit()]
        if not cores:
            raise
        raise TableError(
            f"{name!r} is no MIG board and the table has cores; say how many: --board cpu:<cores>"
        ) from None
