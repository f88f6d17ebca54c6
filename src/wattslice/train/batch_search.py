"""The largest batch that fits: which sizes to try, and what came of each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from wattslice.config.models import BatchSearchConfig
from wattslice.records.run import BatchSearch, BatchTry


@dataclass(frozen=True, slots=True)
class Bounds:
    """Sizes that may be tried: multiples of `unit` from `low` to `high`, samples."""

    low: int
    high: int
    unit: int

    @classmethod
    def of(cls, definition: Mapping[str, Any], config: BatchSearchConfig) -> Bounds:
        """Of a workload; a batch of n micro-batches is a multiple of n."""
        unit = int(definition.get("gradient_accumulation_steps", 1))
        low = -(-config.min // unit) * unit
        return cls(low, max(low, config.max // unit * unit), unit)


def find_largest(
    bounds: Bounds, fits: Callable[[int], BatchTry], time_is_up: Callable[[], bool]
) -> BatchSearch:
    """Double the size until one does not fit, then halve the interval in between.

    Finds the largest that fits, provided that what fits does so at every smaller size too. No try
    is begun once `time_is_up`, but for the first.
    """
    tries: list[BatchTry] = []

    def tried(size: int) -> bool:
        tries.append(fits(size))
        return tries[-1].outcome == "ok"

    def found(largest: int | None, limited_by: Any) -> BatchSearch:
        return BatchSearch(
            unit=bounds.unit,
            min=bounds.low,
            max=bounds.high,
            tries=tuple(tries),
            largest=largest,
            used=bounds.low if largest is None else largest,
            limited_by=limited_by,
        )

    if not tried(bounds.low):
        return found(None, "nothing fits")
    fitting, failing = bounds.low, bounds.high + bounds.unit
    doubling = True
    while failing - fitting > bounds.unit:
        if time_is_up():
            return found(fitting, "time")
        middle = (fitting + failing) // 2 // bounds.unit * bounds.unit
        size = min(2 * fitting, bounds.high) if doubling else middle
        if tried(size):
            fitting = size
        else:
            failing, doubling = size, False
    return found(fitting, "max" if fitting == bounds.high else "memory")


def with_headroom(search: BatchSearch, share: float) -> BatchSearch:
    """The search with a `share` (0..1) of the largest size given up, where memory limits it."""
    if search.limited_by != "memory" or search.largest is None:
        return search
    less = int(search.largest * (1.0 - share)) // search.unit * search.unit
    return search.model_copy(update={"used": max(less, search.min)})
