"""Samples in order of time, cleaned of impossible readings; how well they cover a window."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from wattslice.measure.sensor import AVERAGE_WINDOW_S, SensorModel

FloatArray = npt.NDArray[np.float64]
Columns = Mapping[str, Sequence[Any] | npt.NDArray[Any]]

# A single reading (mean of 25 ms) may pass the board's limit; twice the limit is a glitch.
SPIKE_MARGIN = 2.0
# A gap longer than this many sampling periods is a hole in the coverage.
GAP_PERIODS = 3.0


@dataclass(frozen=True, slots=True)
class Trace:
    """Samples in order of time; NaN is "not had"."""

    t: FloatArray
    call: FloatArray
    power: FloatArray  # the chosen power reading, implausible values taken out
    counter: FloatArray
    failed: npt.NDArray[np.bool_]
    texts: tuple[str, ...]
    lag_s: float
    averaged: bool
    spikes: FloatArray  # times of readings that were taken out

    @property
    def has_power(self) -> bool:
        return bool(np.isfinite(self.power).any())

    @property
    def has_counter(self) -> bool:
        return bool(np.isfinite(self.counter).any())

    @property
    def has_values(self) -> bool:
        return self.has_power or self.has_counter

    def power_points(self) -> tuple[FloatArray, FloatArray]:
        """Times (of what was seen, not of the reading) and values of power."""
        good = np.isfinite(self.power)
        return self.t[good] - self.lag_s, self.power[good]

    def counter_points(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        good = np.isfinite(self.counter)
        return self.t[good], self.counter[good], self.call[good]

    def power_between(self, start_s: float, end_s: float) -> float:
        """Integral (J) of the line through the power readings; the end values go on beyond it."""
        t, p = self.power_points()
        inner = (t > start_s) & (t < end_s)
        times = np.concatenate(([start_s], t[inner], [end_s]))
        values = np.interp(times, t, p)
        return float(np.sum(np.diff(times) * (values[1:] + values[:-1]) / 2))

    @classmethod
    def of(cls, samples: Columns, model: SensorModel) -> Trace:
        t = floats(samples["t_s"])
        call = np.nan_to_num(floats(samples["call_s"]))
        instant, average = floats(samples["power_w"]), floats(samples["power_average_w"])
        counter = floats(samples["energy_j"])
        errors = list(samples["error"])
        # Equal time stamps are ordered by what they hold, so that the order given is no matter.
        order = np.lexsort((average, instant, counter, t))
        averaged = not np.isfinite(instant).any() and bool(np.isfinite(average).any())
        power = (average if averaged else instant)[order]
        lag_s = model.lag_s
        if averaged:
            lag_s = (AVERAGE_WINDOW_S + (model.update_period_s or 0.0)) / 2
        t = t[order]
        bad = _implausible_readings(power, model.power_limit_w)
        power = np.where(bad, np.nan, power)
        counter = counter[order]
        counter = np.where(counter < 0, np.nan, counter)
        return cls(
            t=t,
            call=call[order],
            power=power,
            counter=counter,
            failed=np.array([errors[i] is not None for i in order], dtype=np.bool_),
            texts=tuple(str(text) for text in errors if text is not None),
            lag_s=lag_s,
            averaged=averaged or model.power == "average",
            spikes=t[bad],
        )


def floats(values: Sequence[Any] | npt.NDArray[Any]) -> FloatArray:
    return np.array([np.nan if value is None else value for value in values], dtype=np.float64)


def _implausible_readings(power: FloatArray, limit_w: float | None) -> npt.NDArray[np.bool_]:
    """Negative readings, readings far above the limit, and lone zeros between readings above 0.

    Drivers that are polled too fast give zeros (ml-energy/zeus PR 186). A board that reads 0 W
    throughout is left alone: that is judged as a whole.
    """
    bad = power < 0
    if limit_w is not None:
        bad |= power > SPIKE_MARGIN * limit_w
    positive = np.flatnonzero(power > 0)
    if positive.size:
        zeros = power == 0
        zeros[: positive[0]] = False
        zeros[positive[-1] :] = False
        bad |= zeros
    return bad


def timing(trace: Trace, window: tuple[float, float], nominal_s: float) -> dict[str, float | None]:
    """Coverage of the window by readings, their typical distance and their largest gap.

    The typical distance is the median weighted by time, so that bursts do not count as much as
    their number of samples.
    """
    start_s, end_s = window
    good = np.isfinite(trace.power) if trace.has_power else np.isfinite(trace.counter)
    t = trace.t[good]
    before, after = t[t <= start_s], t[t >= end_s]
    inner = t[(t > start_s) & (t < end_s)]
    left = before[-1] if before.size else None
    right = after[0] if after.size else None
    points = np.concatenate(
        ([left] if left is not None else [], inner, [right] if right is not None else [])
    )
    if points.size == 0:
        gaps = np.array([end_s - start_s])
        return {"coverage": 0.0, "period_median_s": None, "period_max_gap_s": float(gaps[0])}
    distances = np.diff(points)
    uncovered = 0.0
    for a, b in itertools.pairwise(points):
        if b - a > GAP_PERIODS * nominal_s:
            # Half a period on each side of the hole is spoken for by the reading there.
            low, high = max(a + nominal_s / 2, start_s), min(b - nominal_s / 2, end_s)
            uncovered += max(0.0, high - low)
    lead = points[0] - start_s if left is None else 0.0
    tail = end_s - points[-1] if right is None else 0.0
    uncovered += max(0.0, lead - nominal_s / 2) + max(0.0, tail - nominal_s / 2)
    every = np.concatenate((distances, [lead, tail]))
    return {
        "coverage": float(max(0.0, 1.0 - uncovered / (end_s - start_s))),
        "period_median_s": _weighted_median(distances) if distances.size else None,
        "period_max_gap_s": float(every.max()),
    }


def _weighted_median(values: FloatArray) -> float:
    ordered = np.sort(values)
    total = np.cumsum(ordered)
    return float(ordered[int(np.searchsorted(total, total[-1] / 2))])
