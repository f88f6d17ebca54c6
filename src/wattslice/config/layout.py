"""The grammar of layouts: `full`, `2x1c`, `4g+2g+1g`, `1g+me+3g`, `2x3g.40gb`, `4xfull`."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

_COUNT = re.compile(r"^(\d+)x(.+)$")
# `+` also starts an attribute (1g+me), so a join is a plus before a digit or before `full`.
_JOIN = re.compile(r"\s*(?:,|\+(?=\s*\d)|\+(?=full\b))\s*")
_SLICE = re.compile(
    r"^(?:full|(?P<cores>[1-9]\d*)c|(?:(?P<ci>[1-9]\d*)c\.)?(?P<gi>[1-9]\d*)g(?:\.\d+gb)?"
    r"(?:[+.](?:me(?:\.all)?|gfx)|-me)?)$"
)
SLICE_SYNTAX = (
    "full, <n>c (CPU cores), <n>g (a MIG compute-slice count), an exact MIG name such as 1g.10gb "
    "or 1c.3g.40gb, each with an optional +me, +me.all, +gfx or -me"
)


class LayoutSyntaxError(ValueError):
    """The text is not a layout."""


def slice_size(name: str) -> tuple[int, int]:
    """Sort key of a slice: (compute slices or cores, GiB in the name); `full` is the largest."""
    match = _SLICE.match(name)
    if match is None:
        raise LayoutSyntaxError(f"{name!r} is not a slice; valid: {SLICE_SYNTAX}")
    if name == "full":
        return (10**6, 0)
    units = int(match["cores"] or match["gi"])
    memory = re.search(r"\.(\d+)gb", name)
    return (units, int(memory[1]) if memory else 0)


@dataclass(frozen=True, slots=True)
class Layout:
    """The slices that exist on a board at one time, largest first.

    `4xfull` is the exception: four whole boards.
    """

    slices: tuple[str, ...]

    @property
    def boards(self) -> int:
        """How many boards the layout is of."""
        return max(1, self.slices.count("full"))

    @classmethod
    def parse(cls, text: str) -> Layout:
        """Parse a layout.

        Raises LayoutSyntaxError that names the part and what would be valid.
        """
        if not text.strip():
            raise LayoutSyntaxError("a layout is empty; write e.g. full, 2x1c or 4g+2g+1g")
        slices: list[str] = []
        for part in _JOIN.split(text.strip()):
            counted = _COUNT.match(part)
            count, name = (int(counted[1]), counted[2]) if counted else (1, part)
            if count < 1:
                raise LayoutSyntaxError(f"{part!r}: the count before x must be at least 1")
            if count > 256:
                raise LayoutSyntaxError(f"{part!r}: no board has {count} slices")
            name = name.replace(".me", "+me", 1) if name.endswith((".me", ".me.all")) else name
            slice_size(name)
            slices.extend([name] * count)
        if "full" in slices and set(slices) != {"full"}:
            raise LayoutSyntaxError(
                f"{text!r}: full is a whole board and stands alone, or with its like (4xfull)"
            )
        slices.sort(key=lambda name: (*slice_size(name), name), reverse=True)
        return cls(tuple(slices))

    def __str__(self) -> str:
        counts = Counter(self.slices)
        return "+".join(f"{n}x{name}" if n > 1 else name for name, n in counts.items())
