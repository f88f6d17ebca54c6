"""From a layout to placements on a board's axis of memory slices, or to the reason why not."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from wattslice.boards.errors import LayoutImpossibleError
from wattslice.boards.nvidia.mig.geometry import Geometry, GiProfile, Placed
from wattslice.boards.nvidia.mig.profiles import Attribute, ProfileName, ProfileNameError
from wattslice.config.layout import Layout

_NEAREST = 3  # how many possible layouts an error offers
# Printed names drift by a gigabyte between drivers (3g.40gb was 3g.39gb); a larger difference
# is another profile.
_NAME_TOLERANCE_GB = 1


@dataclass(frozen=True, slots=True)
class PlannedSlice:
    """A compute instance of the layout: one MIG device for one process."""

    index: int  # position in the layout
    name: str  # as the layout writes it
    ci_slices: int


@dataclass(frozen=True, slots=True)
class PlannedInstance:
    """A GPU instance to exist, with its compute instances."""

    placed: Placed
    slices: tuple[PlannedSlice, ...]

    @property
    def profile(self) -> GiProfile:
        return self.placed.profile

    @property
    def ci_slices(self) -> tuple[int, ...]:
        """Compute slices of the compute instances, largest first."""
        return tuple(sorted((s.ci_slices for s in self.slices), reverse=True))


@dataclass(frozen=True, slots=True)
class MigPlan:
    """A layout with a place for each instance; instances in the order of the axis."""

    layout: Layout
    instances: tuple[PlannedInstance, ...]
    aliases: tuple[str, ...] = ()  # names taken for others, e.g. "3g.39gb is 3g.40gb here"

    def creation_order(self) -> tuple[PlannedInstance, ...]:
        """Largest first: an order that fits even where a driver ignores placements."""
        return tuple(
            sorted(self.instances, key=lambda i: (-i.profile.memory_slices, i.placed.start))
        )


# --- rules -------------------------------------------------------------------------------------


def _media_conflict(counts: Counter[Attribute]) -> str | None:
    """Media engines exist once: what the engine totals of A100, A30, H100, RTX PRO 6000 imply."""
    if counts[Attribute.MEDIA] > 1:
        return "the board's media engines can be given to one +me instance only"
    if counts[Attribute.MEDIA_ALL]:
        others = sum(n for a, n in counts.items() if a is not Attribute.NO_MEDIA)
        if others > 1:
            return "+me.all takes every media engine, so all others must be -me"
    return None


def violation(geometry: Geometry, placed: Sequence[Placed]) -> str | None:
    """Why these instances cannot exist together, or None if they can."""
    ordered = sorted(placed, key=lambda p: p.start)
    for item in ordered:
        if item.start not in item.profile.starts:
            starts = ", ".join(map(str, item.profile.starts))
            return f"{item.profile} can start at memory slice {starts} only, not at {item.start}"
    for left, right in itertools.pairwise(ordered):
        if left.overlaps(right):
            return f"{left} and {right} overlap"
    return _count_violation(geometry, [p.profile for p in ordered])


def _count_violation(geometry: Geometry, profiles: Sequence[GiProfile]) -> str | None:
    for profile, count in Counter(profiles).items():
        if count > profile.max_count:
            return f"at most {profile.max_count} x {profile} fit, not {count}"
    compute = sum(p.compute_slices for p in profiles)
    if compute > geometry.compute_slices:
        return f"it needs {compute} compute slices, the board has {geometry.compute_slices}"
    memory = sum(p.memory_slices for p in profiles)
    if memory > geometry.axis:
        return f"it needs {memory} memory slices, the board has {geometry.axis}"
    return _media_conflict(Counter(p.attribute for p in profiles))


# --- enumeration -------------------------------------------------------------------------------


def _may_join(geometry: Geometry, chosen: Sequence[Placed], profile: GiProfile) -> bool:
    """Whether one more of a profile breaks no rule of counts; the same rules, step by step."""
    same = sum(p.profile.profile_id == profile.profile_id for p in chosen)
    if same >= profile.max_count:
        return False
    compute = sum(p.profile.compute_slices for p in chosen) + profile.compute_slices
    if compute > geometry.compute_slices:
        return False
    attributes = Counter(p.profile.attribute for p in chosen)
    attributes[profile.attribute] += 1
    return _media_conflict(attributes) is None


def placed_sets(
    geometry: Geometry, profiles: Iterable[GiProfile] | None = None
) -> Iterator[tuple[Placed, ...]]:
    """Every set of instances that can exist on the board, the empty one included."""
    allowed = tuple(geometry.profiles if profiles is None else profiles)

    def walk(start: int, chosen: tuple[Placed, ...]) -> Iterator[tuple[Placed, ...]]:
        yield chosen
        joining = [p for p in allowed if _may_join(geometry, chosen, p)]
        for at in range(start, geometry.axis):
            for profile in joining:
                if at in profile.starts:
                    yield from walk(at + profile.memory_slices, (*chosen, Placed(at, profile)))

    yield from walk(0, ())


def additions(
    geometry: Geometry, placed: Sequence[Placed], profiles: Iterable[GiProfile] | None = None
) -> tuple[Placed, ...]:
    """Every single instance that could be added to these."""
    allowed = tuple(geometry.profiles if profiles is None else profiles)
    return tuple(
        new
        for profile in allowed
        if _may_join(geometry, placed, profile)
        for new in (Placed(start, profile) for start in profile.starts)
        if not any(new.overlaps(p) for p in placed)
    )


def maximal_sets(
    geometry: Geometry, profiles: Iterable[GiProfile] | None = None
) -> tuple[tuple[Placed, ...], ...]:
    """The sets to which no instance of the profiles can be added."""
    allowed = tuple(geometry.profiles if profiles is None else profiles)
    return tuple(s for s in placed_sets(geometry, allowed) if not additions(geometry, s, allowed))


def multiset_name(geometry: Geometry, placed: Sequence[Placed]) -> str:
    """The layout that the instances make, e.g. 4g+2g+1g."""
    names = [geometry.portable_name(p.profile) for p in placed]
    return str(Layout.parse("+".join(names))) if names else ""


def layouts(
    geometry: Geometry, profiles: Iterable[GiProfile] | None = None
) -> dict[str, tuple[tuple[Placed, ...], ...]]:
    """All maximal layouts by name, each with every way to place it."""
    found: dict[str, list[tuple[Placed, ...]]] = {}
    for placed in maximal_sets(geometry, profiles):
        found.setdefault(multiset_name(geometry, placed), []).append(placed)
    order = sorted(found, key=lambda name: [-p.compute_slices for p in _profiles(found[name][0])])
    return {name: tuple(found[name]) for name in order}


def _profiles(placed: Sequence[Placed]) -> list[GiProfile]:
    return sorted((p.profile for p in placed), key=lambda p: -p.compute_slices)


# --- names -------------------------------------------------------------------------------------


def resolve_profile(geometry: Geometry, text: str) -> tuple[GiProfile, ProfileName]:
    """The board's profile that a slice name means, and the name as parsed.

    A portable name means the plain profile; an exact one is taken by its name or, where a driver
    prints it a gigabyte off, by its geometry. Raises ProfileNameError with what there is.
    """
    name = ProfileName.parse(text)
    same_kind = [
        p
        for p in geometry.profiles
        if p.compute_slices == name.slices and p.attribute is name.attribute
    ]
    if name.memory_gb is None:
        if same_kind:
            return min(same_kind, key=lambda p: p.memory_slices), name
    else:
        exact = [p for p in same_kind if p.name.memory_gb == name.memory_gb]
        if exact:
            return exact[0], name
        near = [
            p
            for p in same_kind
            if p.name.memory_gb is not None
            and abs(p.name.memory_gb - name.memory_gb) <= _NAME_TOLERANCE_GB
        ]
        if len(near) == 1:
            return near[0], name
    offered = ", ".join(str(p) for p in same_kind) or ", ".join(map(str, geometry.profiles))
    raise ProfileNameError(f"{geometry.board} has no profile {text}; it has {offered}")


# --- planning ----------------------------------------------------------------------------------


def plan(geometry: Geometry, layout: Layout, present: Sequence[Placed] = ()) -> MigPlan:
    """Place a layout, keeping as many present instances where they are as can be.

    Raises LayoutImpossibleError with the reason and the nearest layouts that can exist.
    """
    wanted, aliases = _wanted(geometry, layout)
    profiles = [profile for profile, _ in wanted]
    reason = _count_violation(geometry, profiles)
    best = None if reason else _best_placement(geometry, profiles, present)
    if best is None:
        raise LayoutImpossibleError(
            str(layout),
            reason or _placement_reason(geometry, profiles),
            nearest(geometry, profiles),
        )
    # Instances of one profile are equal, so the order of the axis decides which slice gets which.
    free = sorted(best, key=lambda p: p.start)
    instances = []
    for profile, slices in wanted:
        placed = next(p for p in free if p.profile == profile)
        free.remove(placed)
        instances.append(PlannedInstance(placed, slices))
    instances.sort(key=lambda i: i.placed.start)
    return MigPlan(layout, tuple(instances), aliases)


def _wanted(
    geometry: Geometry, layout: Layout
) -> tuple[list[tuple[GiProfile, tuple[PlannedSlice, ...]]], tuple[str, ...]]:
    """GPU instances of a layout; partial compute instances share an instance where they fit."""
    whole: list[tuple[GiProfile, tuple[PlannedSlice, ...]]] = []
    shared: list[tuple[GiProfile, list[PlannedSlice]]] = []
    aliases = []
    for index, text in enumerate(layout.slices):
        try:
            profile, name = resolve_profile(geometry, text)
        except ProfileNameError as error:
            raise LayoutImpossibleError(
                str(layout), str(error), _nearest_by_size(geometry, layout)
            ) from None
        if name.memory_gb not in (None, profile.name.memory_gb):
            aliases.append(f"{text} is {profile} on this board")
        if name.ci_slices is None:
            whole.append((profile, (PlannedSlice(index, text, profile.compute_slices),)))
        else:
            shared.append((profile, [PlannedSlice(index, text, name.ci_slices)]))
    # First fit, widest first, which is optimal for the few sizes there are.
    packed: list[tuple[GiProfile, list[PlannedSlice]]] = []
    for profile, (part,) in sorted(shared, key=lambda item: -item[1][0].ci_slices):
        for other, slices in packed:
            used = sum(s.ci_slices for s in slices)
            if other == profile and used + part.ci_slices <= profile.compute_slices:
                slices.append(part)
                break
        else:
            packed.append((profile, [part]))
    wanted = whole + [(profile, tuple(slices)) for profile, slices in packed]
    return wanted, tuple(dict.fromkeys(aliases))


def _placements(geometry: Geometry, profiles: Sequence[GiProfile]) -> Iterator[tuple[Placed, ...]]:
    """Every way to place exactly these profiles; equal profiles are not told apart."""

    def walk(
        at: int, left: Counter[GiProfile], chosen: tuple[Placed, ...]
    ) -> Iterator[tuple[Placed, ...]]:
        if not left:
            yield chosen
            return
        if at >= geometry.axis or at + _memory(left) > geometry.axis:
            return
        for profile in left:
            if at in profile.starts:
                rest = left - Counter([profile])
                yield from walk(at + profile.memory_slices, rest, (*chosen, Placed(at, profile)))
        yield from walk(at + 1, left, chosen)

    yield from walk(0, Counter(profiles), ())


def _memory(left: Counter[GiProfile]) -> int:
    return sum(p.memory_slices * n for p, n in left.items())


def _best_placement(
    geometry: Geometry, profiles: Sequence[GiProfile], present: Sequence[Placed]
) -> tuple[Placed, ...] | None:
    existing = {(p.start, p.profile.profile_id) for p in present}

    def merit(placed: tuple[Placed, ...]) -> tuple[int, int, list[int]]:
        kept = sum((p.start, p.profile.profile_id) in existing for p in placed)
        # Room left for others: a lone 3g at 4 leaves place for a 4g, at 0 it does not.
        room = sum(p.profile.compute_slices for p in additions(geometry, placed))
        return kept, room, [-p.start for p in sorted(placed, key=_by_size)]

    return max(_placements(geometry, profiles), key=merit, default=None)


def _by_size(placed: Placed) -> tuple[int, int]:
    return (-placed.profile.memory_slices, placed.start)


def _placement_reason(geometry: Geometry, profiles: Sequence[GiProfile]) -> str:
    """What to say of instances that fit by their counts, yet have no places together."""
    widest = sorted(set(profiles), key=lambda p: -p.memory_slices)
    where = "; ".join(
        f"{p} starts at {', '.join(map(str, p.starts))} and takes {p.memory_slices}" for p in widest
    )
    return f"the places do not fit together on {geometry.axis} memory slices ({where})"


def nearest(geometry: Geometry, profiles: Sequence[GiProfile]) -> tuple[str, ...]:
    """Layouts that can exist and are most like the profiles, the most alike first."""
    kinds = tuple(dict.fromkeys([*geometry.base_profiles(), *profiles]))
    sizes = sorted((p.compute_slices for p in profiles), reverse=True)
    memory = sum(p.memory_slices for p in profiles)
    wanted = Counter(profiles)
    ranked: dict[str, tuple[int, int, int, str]] = {}
    for placed in placed_sets(geometry, kinds):
        if not placed:
            continue
        have = [p.profile for p in placed]
        name = multiset_name(geometry, placed)
        foreign = sum((Counter(have) - wanted).values())
        room = abs(sum(p.memory_slices for p in have) - memory)
        ranked[name] = (_distance(sizes, have), foreign, room, name)
    return tuple(sorted(ranked, key=ranked.__getitem__)[:_NEAREST])


def _nearest_by_size(geometry: Geometry, layout: Layout) -> tuple[str, ...]:
    """Nearest layouts for one with a name that the board does not have."""
    base = {p.compute_slices: p for p in geometry.base_profiles()}
    stand_ins = []
    for text in layout.slices:
        try:
            slices = ProfileName.parse(text).slices
        except ProfileNameError:
            continue
        stand_ins.append(base.get(slices) or base[min(base, key=lambda n: abs(n - slices))])
    if not stand_ins:
        return ()
    possible = _best_placement(geometry, stand_ins, ())
    if possible and _count_violation(geometry, stand_ins) is None:
        return (multiset_name(geometry, possible),)
    return nearest(geometry, stand_ins)


def _distance(sizes: Sequence[int], profiles: Sequence[GiProfile]) -> int:
    """Compute slices to add or take away, slice by slice, widest against widest."""
    have = sorted((p.compute_slices for p in profiles), reverse=True)
    length = max(len(have), len(sizes))
    left = [*sizes, *[0] * (length - len(sizes))]
    right = [*have, *[0] * (length - len(have))]
    return sum(abs(a - b) for a, b in zip(left, right, strict=True))


# --- fragmentation -----------------------------------------------------------------------------


def what_to_remove(
    geometry: Geometry, present: Sequence[Placed], profile: GiProfile
) -> tuple[Placed, ...] | None:
    """The fewest present instances whose removal makes room for the profile; None if none can."""
    options: list[tuple[Placed, ...]] = []
    for start in profile.starts:
        new = Placed(start, profile)
        blocking = tuple(p for p in present if p.overlaps(new))
        rest = [p for p in present if p not in blocking]
        # Beyond its place a profile may need what others hold: media engines, compute slices.
        for count in range(len(rest) + 1):
            more = next(
                (
                    gone
                    for gone in itertools.combinations(rest, count)
                    if violation(geometry, [*(p for p in rest if p not in gone), new]) is None
                ),
                None,
            )
            if more is not None:
                options.append(blocking + more)
                break
    return min(
        options, key=lambda b: (len(b), sum(p.profile.compute_slices for p in b)), default=None
    )
