"""Positive numbers with bounds, combined by interval arithmetic.

Bounds of a result are reached when all errors act together, so they are wider than those of
independent errors: a prediction that is said to be sure is so whatever the errors' dependence.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Range:
    """A value of 0 or more with low <= value <= high."""

    value: float
    low: float
    high: float

    def __post_init__(self) -> None:
        if not 0.0 <= self.low <= self.value <= self.high or not math.isfinite(self.high):
            raise ValueError(f"not 0 <= low <= value <= high < inf: {self}")

    @classmethod
    def of(cls, value: float, low: float | None = None, high: float | None = None) -> Range:
        """Missing bounds are the value; bounds that rounding put past the value give way."""
        low = value if low is None else min(low, value)
        return cls(value, max(low, 0.0), value if high is None else max(high, value))

    def __add__(self, other: Range) -> Range:
        return Range(self.value + other.value, self.low + other.low, self.high + other.high)

    def __mul__(self, other: Range) -> Range:
        return Range(self.value * other.value, self.low * other.low, self.high * other.high)

    def __truediv__(self, other: Range) -> Range:
        """Raises ZeroDivisionError where the divisor may be 0."""
        return Range(self.value / other.value, self.low / other.high, self.high / other.low)

    def times(self, factor: float) -> Range:
        return Range(self.value * factor, self.low * factor, self.high * factor)

    def minus(self, other: Range) -> Range:
        """The difference, not below 0 (a power above idle is not negative)."""
        value = max(self.value - other.value, 0.0)
        return Range.of(value, max(self.low - other.high, 0.0), max(self.high - other.low, 0.0))

    @property
    def exact(self) -> bool:
        return self.low == self.high


ZERO = Range(0.0, 0.0, 0.0)


def total(ranges: Iterable[Range]) -> Range:
    """Sum; bounds with bounds."""
    result = ZERO
    for each in ranges:
        result += each
    return result


def largest(ranges: Iterable[Range]) -> Range:
    """Maximum, of values and of each bound."""
    items = list(ranges)
    if not items:
        return ZERO
    return Range(max(i.value for i in items), max(i.low for i in items), max(i.high for i in items))
