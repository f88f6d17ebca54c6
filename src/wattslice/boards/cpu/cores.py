"""Which CPU cores this process may use, and how a layout divides them."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

from wattslice.boards.errors import LayoutImpossibleError
from wattslice.config.layout import Layout

_CPU_ROOT = Path("/sys/devices/system/cpu")
_CORE_SLICE = re.compile(r"^(\d+)c$")


def allowed_cores(root: Path = _CPU_ROOT) -> tuple[int, ...]:
    """Cores in this process's affinity mask, hardware threads of one core apart.

    The first hardware thread of every physical core comes first, so that small slices do not
    share a physical core while others are free.
    """
    allowed = sorted(os.sched_getaffinity(0))

    def is_second_thread(core: int) -> bool:
        path = root / f"cpu{core}" / "topology" / "thread_siblings_list"
        try:
            first = int(re.split(r"[,-]", path.read_text())[0])
        except (OSError, ValueError):
            return False
        return core != first

    return tuple(sorted(allowed, key=lambda core: (is_second_thread(core), core)))


def divide(layout: Layout, cores: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    """Disjoint cores for each slice of a layout, in the layout's order.

    Raises LayoutImpossibleError when the slices are not core counts or need too many cores.
    """
    if layout.boards > 1:
        why = f"it is of {layout.boards} boards, and the host CPU is one"
        raise LayoutImpossibleError(str(layout), why, ["full"])
    sizes: list[int] = []
    for name in layout.slices:
        if name == "full":
            sizes.append(len(cores))
            continue
        match = _CORE_SLICE.match(name)
        if match is None:
            raise LayoutImpossibleError(
                str(layout),
                f"{name!r} is a MIG slice and this board is the host CPU, which is divided by "
                "cores (1c, 2c, …) or taken whole (full)",
                nearest(len(layout.slices), len(cores)),
            )
        sizes.append(int(match[1]))
    if sum(sizes) > len(cores):
        raise LayoutImpossibleError(
            str(layout),
            f"it needs {sum(sizes)} cores and this process may use {len(cores)}",
            nearest(len(layout.slices), len(cores)),
        )
    starts = [sum(sizes[:index]) for index in range(len(sizes))]
    return tuple(
        tuple(cores[start : start + size]) for start, size in zip(starts, sizes, strict=True)
    )


def fair_share(cores: Sequence[int], index: int, count: int) -> tuple[int, ...]:
    """A fair share of the cores, disjoint where there are enough."""
    if count <= 1:
        return tuple(cores)
    if len(cores) < count:
        return (cores[index % len(cores)],)
    size, extra = divmod(len(cores), count)
    begin = index * size + min(index, extra)
    return tuple(cores[begin : begin + size + (index < extra)])


def nearest(slices: int, cores: int) -> tuple[str, ...]:
    """Equal division into as many slices as asked for (or as there are cores), and `full`."""
    count = min(slices, cores)
    even = Layout.parse("+".join([f"{cores // count}c"] * count))
    return tuple(dict.fromkeys([str(even), "full"]))
