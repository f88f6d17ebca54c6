"""Generic resources of SLURM: from a run's slices to what its job asks for, and back.

Profiles call these functions in expressions, so that the names that a site gives to its slices
stand in the profile alone and the rules know nothing of them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from wattslice.config.layout import Layout

# What the SLURM executor plugin lets through: one resource, a type of letters, digits, _ and dots.
GRES = re.compile(r"^[a-zA-Z0-9_]+(:[a-zA-Z0-9_.]+)?(:\d+[TGM]?)?$")
_CORES = re.compile(r"^[1-9]\d*c$")


class GresError(ValueError):
    """A slice has no name on this cluster; the message says where to write it."""


class Wildcards(Protocol):
    """What `ask` reads of a job's wildcards; `placement` is missing where no run is meant."""

    layout: str


@dataclass(frozen=True, slots=True)
class Gres:
    """One generic resource, e.g. gpu:1g.10gb:2."""

    name: str
    type: str | None
    count: int

    def __str__(self) -> str:
        return ":".join(filter(None, (self.name, self.type, str(self.count))))


def ask(wildcards: Wildcards, names: Mapping[str, str | None], *, resource: str = "gpu") -> str:
    """The `gres` of a job: as many slices of its kind as the run keeps busy.

    `names` gives the cluster's type of each slice as the campaign writes it ('1g': '1g.10gb').
    An exact name (1g.10gb) needs no entry; an empty type asks for a device of any type, and None
    for no device at all (`full` of a campaign on CPUs). Without a run (no wildcard `placement`) it
    is all slices of the layout. Slices of several kinds can only be asked for without a type, as
    SLURM's plugin takes one resource per job.

    Raises GresError for a slice without a name.
    """
    kinds = _kinds(wildcards, getattr(wildcards, "placement", None), names)
    if not kinds:
        return ""
    return str(Gres(resource, _common(kinds) or None, sum(kinds.values())))


def all_slices(wildcards: Wildcards) -> int:
    """The `gpu` of a job that takes the whole layout: how many slices it has."""
    return len(Layout.parse(wildcards.layout).slices)


def type_of_all(wildcards: Wildcards, names: Mapping[str, str | None]) -> str:
    """The `gpu_model` beside `all_slices`; empty where the slices are of several kinds.

    Raises GresError for a slice without a name.
    """
    return _common(_kinds(wildcards, None, names)) or ""


def _kinds(
    wildcards: Wildcards, placement: str | None, names: Mapping[str, str | None]
) -> Counter[str]:
    """How many devices of each of the cluster's types a placement takes."""
    busy = busy_slices(Layout.parse(wildcards.layout), placement)
    types = (_type(slice_, names) for slice_ in busy)
    return Counter(type_ for type_ in types if type_ is not None)


def _common(kinds: Counter[str]) -> str | None:
    return next(iter(kinds)) if len(kinds) == 1 else None


def busy_slices(layout: Layout, placement: str | None) -> tuple[str, ...]:
    """The slices that a run keeps busy; None and mixes: all of the layout.

    A mix may leave slices empty on purpose. They belong to it, so that nobody else is there.
    """
    if placement is None or len(layout.slices) == 1:
        return layout.slices
    kind, _, rest = placement.partition(".")[2].partition(".")
    if placement.startswith("mix.") or kind != "solo":
        return layout.slices
    return (rest or layout.slices[0],)


def _type(slice_: str, names: Mapping[str, str | None]) -> str | None:
    """The cluster's type of a slice: '' any, None no device."""
    if slice_ in names:
        return names[slice_]
    if _CORES.match(slice_):
        return None
    if "." in slice_ and "+" not in slice_:
        return slice_
    known = ", ".join(names) or "none"
    raise GresError(
        f"slice {slice_!r} has no name on this cluster: add it to the names in the profile's "
        f"`gres` (known there: {known}); `sinfo -o '%N %G'` lists the cluster's types"
    )


def parse_gres(text: str) -> tuple[Gres, ...]:
    """What sinfo's %G says of a node: 'gpu:3g.40gb:1(S:0),gpu:1g.10gb:2' (counts default to 1)."""
    found = []
    for item in re.split(r",(?![^(]*\))", text):
        parts = re.sub(r"\(.*\)$", "", item.strip()).split(":")
        if parts[0] in ("", "N/A"):
            continue
        counted = len(parts) > 1 and parts[-1].isdigit()
        count = int(parts.pop()) if counted else 1
        found.append(Gres(parts[0], ":".join(parts[1:]) or None, count))
    return tuple(found)


def has(offered: tuple[Gres, ...], wanted: Gres) -> bool:
    """Whether a node's resources cover what a job asks for."""
    fitting = [
        g.count
        for g in offered
        if g.name == wanted.name and (wanted.type is None or wanted.type == g.type)
    ]
    return sum(fitting) >= wanted.count
