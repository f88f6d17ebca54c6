"""Numbers as text: significant digits, no exponents, intervals, and a dash for what is missing."""

from __future__ import annotations

import math
import re

import pandas as pd

MISSING = "–"
INTERVAL_FROM = 5  # repeats that carry a 95 % interval of the median


def number(value: object, digits: int = 3) -> str:
    """A number to `digits` significant digits without exponent; `–` for a missing one."""
    if value is None or value is pd.NA or not isinstance(value, int | float):
        return MISSING
    if not math.isfinite(value):
        return MISSING
    if value == 0:
        return "0"
    places = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    return f"{value:.{min(places, 9)}f}"


def interval(low: object, high: object, digits: int = 3) -> str:
    """`low to high`; `–` where there is no interval."""
    if number(low) == MISSING or number(high) == MISSING:
        return MISSING
    return f"{number(low, digits)} to {number(high, digits)}"


def with_interval(
    value: object, low: object, high: object, confidence: float, *, n: str, unit: str = ""
) -> str:
    """`1.42 (95 % interval 1.31 to 1.55, 5 pairs)`; says so where there is no interval.

    Of fewer than five repeats it is their range, which is not an interval of that level: see
    `analysis.statistics.weakness`.
    """
    text = number(value) + unit
    span = interval(low, high)
    if span == MISSING:
        return f"{text} ({n}, no interval)"
    counted = re.match(r"\d+", n)
    few = counted is not None and int(counted[0]) < INTERVAL_FROM
    return f"{text} ({'range' if few else f'{100 * confidence:g} % interval'} {span}, {n})"
