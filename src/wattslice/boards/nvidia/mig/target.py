"""States of a board to be reached, and what separates the present one from them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from wattslice.boards.errors import BoardError
from wattslice.boards.nvidia.mig import planner
from wattslice.boards.nvidia.mig.capabilities import MigCapabilities
from wattslice.boards.nvidia.mig.geometry import Geometry, Placed
from wattslice.boards.nvidia.mig.ids import CiProfileId, ProfileId
from wattslice.boards.nvidia.mig.state import CiState, GiState


@dataclass(frozen=True, slots=True)
class WantedCi:
    """A compute instance to exist; the profile id is known only where one existed before."""

    compute_slices: int
    profile_id: CiProfileId | None = None


@dataclass(frozen=True, slots=True)
class WantedGi:
    """A GPU instance to exist at a place."""

    profile_id: ProfileId
    start: int | None  # None: read without the privilege to list places
    size: int | None
    compute_instances: tuple[WantedCi, ...]
    name: str

    @property
    def shape(self) -> tuple[ProfileId, tuple[int, ...]]:
        """What it is, wherever it is."""
        slices = sorted((c.compute_slices for c in self.compute_instances), reverse=True)
        return (self.profile_id, tuple(slices))

    def __str__(self) -> str:
        return self.name if self.start is None else f"{self.name}@{self.start}"


@dataclass(frozen=True, slots=True)
class BoardState:
    """Mode and instances: what a snapshot keeps and what a change leads to.

    `mig_on` is None on a board without MIG. `instances` hold the places where they are known.
    """

    mig_on: bool | None
    instances: tuple[WantedGi, ...] = ()

    def to_json(self) -> dict[str, object]:
        return {
            "mig_on": self.mig_on,
            "instances": [
                {
                    "profile_id": int(i.profile_id),
                    "start": i.start,
                    "size": i.size,
                    "name": i.name,
                    "compute_instances": [
                        [c.compute_slices, None if c.profile_id is None else int(c.profile_id)]
                        for c in i.compute_instances
                    ],
                }
                for i in self.instances
            ],
        }

    @classmethod
    def from_json(cls, data: dict[str, object]) -> BoardState:
        """Raises BoardError when the data is not of a snapshot."""
        try:
            rows = data["instances"]
            mig_on = data["mig_on"]
            if not isinstance(rows, list) or not (mig_on is None or isinstance(mig_on, bool)):
                raise TypeError("unexpected types")  # noqa: TRY301
            instances = tuple(
                WantedGi(
                    ProfileId(int(row["profile_id"])),
                    None if row["start"] is None else int(row["start"]),
                    None if row["size"] is None else int(row["size"]),
                    tuple(
                        WantedCi(int(n), None if p is None else CiProfileId(int(p)))
                        for n, p in row["compute_instances"]
                    ),
                    str(row["name"]),
                )
                for row in rows
            )
        except (KeyError, TypeError, ValueError) as error:
            raise BoardError(f"not the state of an NVIDIA board: {error!r}") from error
        return cls(mig_on, instances)

    def __str__(self) -> str:
        if not self.mig_on:
            return "MIG off"
        return "MIG on, " + (" ".join(map(str, self.instances)) or "no instances")


@dataclass(frozen=True, slots=True)
class Difference:
    """What has to happen to get from the present instances to the wanted ones."""

    keep: tuple[GiState, ...]
    destroy: tuple[GiState, ...]
    create: tuple[WantedGi, ...]
    recut: tuple[tuple[GiState, WantedGi], ...]  # right GPU instance, wrong compute instances


def difference(present: Sequence[GiState], wanted: Sequence[WantedGi]) -> Difference:
    """Match by (profile id, place); GPU instance ids say nothing about either."""
    missing: dict[tuple[ProfileId, int | None], WantedGi] = {
        (w.profile_id, w.start): w for w in wanted if w.start is not None
    }
    keep, destroy, recut = [], [], []
    for gi in present:
        match = None if gi.profile_id is None else missing.pop((gi.profile_id, gi.start), None)
        if match is None:
            destroy.append(gi)
        elif _same_cis(gi.compute_instances, match.compute_instances):
            keep.append(gi)
        else:
            recut.append((gi, match))
    create = sorted(missing.values(), key=lambda w: (-(w.size or 0), w.start or 0))
    return Difference(tuple(keep), tuple(destroy), tuple(create), tuple(recut))


def _same_cis(present: Sequence[CiState], wanted: Sequence[WantedCi]) -> bool:
    if all(w.profile_id is not None for w in wanted):
        return Counter(c.profile_id for c in present) == Counter(w.profile_id for w in wanted)
    return Counter(c.compute_slices for c in present) == Counter(w.compute_slices for w in wanted)


@dataclass(frozen=True, slots=True)
class Reading:
    """All that one look at the board gives. Handles are not kept: they go stale."""

    capabilities: MigCapabilities
    instances: tuple[GiState, ...]

    @property
    def mig_on(self) -> bool | None:
        mode = self.capabilities.mode
        return None if mode is None else mode.current

    @property
    def geometry(self) -> Geometry:
        return self.capabilities.geometry

    def state(self) -> BoardState:
        """The present state in the form that can be gone back to."""
        return BoardState(
            self.mig_on,
            tuple(
                WantedGi(
                    gi.profile_id,
                    gi.start,
                    gi.size,
                    tuple(WantedCi(c.compute_slices, c.profile_id) for c in gi.compute_instances),
                    str(gi.profile) if gi.profile else f"profile {gi.profile_id}",
                )
                for gi in self.instances
                if gi.profile_id is not None
            ),
        )

    def all_visible(self) -> bool:
        """Whether each compute instance has come up as a MIG device."""
        return all(ci.uuid for gi in self.instances for ci in gi.compute_instances)

    def placed(self) -> tuple[Placed, ...]:
        return tuple(p for gi in self.instances if (p := gi.placed) is not None)


def wanted_state(plan: planner.MigPlan) -> BoardState:
    return BoardState(
        True,
        tuple(
            WantedGi(
                i.profile.profile_id,
                i.placed.start,
                i.profile.memory_slices,
                tuple(WantedCi(n) for n in i.ci_slices),
                str(i.profile),
            )
            for i in plan.instances
        ),
    )
