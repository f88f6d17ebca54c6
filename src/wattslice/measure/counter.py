"""Energy from a cumulative counter that moves in ticks, and when not to believe it.

The counter's value belongs to the time of its last tick, which lies 0 to 1 period before the
reading. A tick that two close readings enclose (the meter's bursts make such) is known to half
their distance, and the ticks beside it by the period. A window's end lies between two ticks: the
rise from one to the other is shared out by a single change of power, where one explains it, else
as power was. Without power the counter's slope serves.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from wattslice.measure.sensor import (
    NOMINAL_PERIOD_ERROR,
    Period,
    SensorModel,
    measured_period,
)
from wattslice.measure.trace import SPIKE_MARGIN, Trace

FloatArray = npt.NDArray[np.float64]

# Farthest that a tick may lie from a window's end, s: the carried energy is then exact to the
# error of the power (5 %) times this, which is 1 % of a 5 s window at worst.
MAX_BRIDGE_S = 1.0
# Farthest that a counter without power readings is carried beyond its outermost tick, s: some
# readings of a burst, for windows that begin with the meter. The error that it makes is counted.
MAX_OUTSIDE_S = 0.05
# A counter that stands still this long (or for 10 periods) while power flows is frozen.
FROZEN_S = 1.0
# Relative error assumed for power that carries the counter over a part of a tick.
BRIDGE_ERROR = 0.05
# The update period that is assumed of a counter of which nothing is known, s.
DEFAULT_COUNTER_PERIOD_S = 0.1


@dataclass(frozen=True, slots=True)
class Part:
    """Energy by one of the two ways, or why there is none."""

    joules: float | None
    reason: str | None = None
    edge_j: float = 0.0  # uncertainty of the two window ends
    flag: str | None = None


@dataclass(frozen=True, slots=True)
class _Readings:
    """Readings of the counter near a window; `tick` are the times at which it moved."""

    t: FloatArray
    e: FloatArray
    period_s: float
    tick: FloatArray
    half: FloatArray  # half-width of what is known of each tick's time, s
    at_tick: FloatArray  # the counter's value from that tick on

    @classmethod
    def near(cls, trace: Trace, window: tuple[float, float], model: SensorModel) -> _Readings:
        t, e, call = trace.counter_points()
        measured = measured_period(t, e)
        period_s = _longest_period_s(measured, model)
        near = (t >= window[0] - MAX_BRIDGE_S) & (t <= window[1] + MAX_BRIDGE_S)
        t, e, call = t[near], e[near], call[near]
        changed = np.flatnonzero(np.diff(e) > 0) + 1
        high = t[changed]
        low = np.maximum(t[changed - 1], high - period_s)
        tick, half = (low + high) / 2, (high - low) / 2 + call[changed] / 2
        at_tick = e[changed]
        if measured is not None:
            tick, half = _beside_known_ticks(tick, half, measured)
            if tick.size:
                # A window may begin with the meter: the reading before the first tick seen shows
                # what the counter had at the tick before that.
                tick = np.append(tick[0] - measured.value_s, tick)
                half = np.append(half[0] + measured.error_s, half)
                at_tick = np.append(e[changed[0] - 1], at_tick)
        return cls(t, e, period_s, tick, half, at_tick)


def _beside_known_ticks(
    tick: FloatArray, half: FloatArray, period: Period
) -> tuple[FloatArray, FloatArray]:
    """Place the ticks before and after a well-known one a period away from it.

    A burst catches the tick after a window's end; the one before it is as good to have.
    """
    placed, width = tick.copy(), half.copy()
    for known in np.flatnonzero(half < period.value_s / 8):
        error = float(half[known]) + period.error_s
        for other, distance in ((known - 1, -period.value_s), (known + 1, period.value_s)):
            if not 0 <= other < tick.size or width[other] <= error:
                continue
            moment = tick[known] + distance
            # Only where the readings allow it: a longer gap may hide more than one tick.
            if abs(moment - tick[other]) <= half[other] + error:
                placed[other], width[other] = moment, error
    return np.maximum.accumulate(placed), width


def counter_energy(trace: Trace, window: tuple[float, float], model: SensorModel) -> Part:
    """Energy of the window by the counter; `flag` and `reason` where it cannot be had."""
    if not trace.has_counter:
        return Part(None)
    readings = _Readings.near(trace, window, model)
    fault = _fault(readings, window, model, trace)
    if fault is not None:
        return Part(None, fault[1], flag=fault[0])
    start, end = (_value_at(moment, readings, trace) for moment in window)
    if start is None or end is None:
        side = "start" if start is None else "end"
        return Part(
            None,
            f"the energy counter was not read near the window's {side}",
            flag="counter-incomplete",
        )
    joules = end[0] - start[0]
    if joules < 0 or window[1] - window[0] < 2 * readings.period_s:
        return Part(
            None,
            f"the window is too short for a counter that ticks every {readings.period_s:.3g} s",
            flag="counter-unresolved",
        )
    error = math.hypot(start[1], end[1], model.counter_granularity_j * math.sqrt(2))
    return Part(joules, edge_j=error)


def _longest_period_s(measured: Period | None, model: SensorModel) -> float:
    """The longest that the counter's period may be."""
    if measured is not None:
        return measured.value_s + measured.error_s
    nominal = model.counter_period_s or DEFAULT_COUNTER_PERIOD_S
    return nominal * (1.0 + NOMINAL_PERIOD_ERROR)


def _fault(
    readings: _Readings, window: tuple[float, float], model: SensorModel, trace: Trace
) -> tuple[str, str] | None:
    """(flag, reason) where the counter's readings of the window cannot be believed."""
    core = slice(
        max(0, int(np.searchsorted(readings.t, window[0], side="right")) - 1),
        int(np.searchsorted(readings.t, window[1], side="left")) + 1,
    )
    t, e = readings.t[core], readings.e[core]
    if t.size < 2:
        return "counter-incomplete", "the energy counter was not read on both sides of the window"
    steps, gaps = np.diff(e), np.diff(t)
    if (steps < 0).any():
        at = int(np.argmax(steps < 0))
        return (
            "counter-reset",
            f"the energy counter went from {e[at]:.6g} J to {e[at + 1]:.6g} J in the window",
        )
    limit_w = model.power_limit_w
    if limit_w is None and trace.has_power:
        limit_w = float(np.nanmax(trace.power))
    if limit_w is not None and limit_w > 0:
        possible = SPIKE_MARGIN * limit_w * (gaps + 2 * readings.period_s)
        if (steps > possible).any():
            at = int(np.argmax(steps > possible))
            return (
                "counter-jump",
                f"the energy counter rose by {steps[at]:.6g} J within {gaps[at]:.3g} s, more than "
                f"{limit_w:.4g} W can explain",
            )
    if trace.has_power and trace.power_between(*window) == 0.0:
        return None  # nothing flows, so nothing need move (a declared model may say so)
    bounds = np.concatenate(([0], np.flatnonzero(steps > 0) + 1, [t.size]))
    still_s = max(float(t[end - 1] - t[begin]) for begin, end in itertools.pairwise(bounds))
    if still_s > max(FROZEN_S, 10 * readings.period_s) or bounds.size == 2:
        return "counter-frozen", f"the energy counter stood still for {still_s:.3g} s"
    return None


def _value_at(moment: float, readings: _Readings, trace: Trace) -> tuple[float, float] | None:
    """The counter as it would read at `moment` if it moved continuously: (J, error in J)."""
    if readings.tick.size == 0:
        return None
    t, _ = trace.power_points()
    if t.size == 0 or np.abs(t - moment).min() > MAX_BRIDGE_S:
        return _carried_by_slope(moment, readings)
    found = [_carried_by_power(moment, readings, trace), _between_ticks(moment, readings, trace)]
    return min((f for f in found if f is not None), key=lambda f: f[1], default=None)


def _carried_by_power(
    moment: float, readings: _Readings, trace: Trace
) -> tuple[float, float] | None:
    distance = np.abs(readings.tick - moment)
    best = int(np.argmin(readings.half + BRIDGE_ERROR * distance))
    away_s = float(distance[best])
    if away_s > MAX_BRIDGE_S:
        return None
    a, b = sorted((float(readings.tick[best]), moment))
    carried = trace.power_between(a, b) if b > a else 0.0
    t, p = trace.power_points()
    near = np.append(
        p[(t >= a - readings.period_s) & (t <= b + readings.period_s)], np.interp(moment, t, p)
    )
    error = float(near.max()) * (float(readings.half[best]) + BRIDGE_ERROR * away_s)
    # Power between two readings is not known: it may change anywhere in the carried time.
    error += float(near.max() - near.min()) * min(away_s, readings.period_s) / 2
    sign = 1.0 if moment >= readings.tick[best] else -1.0
    return float(readings.at_tick[best]) + sign * carried, error


def _between_ticks(moment: float, readings: _Readings, trace: Trace) -> tuple[float, float] | None:
    """The rise between the two ticks around a moment, shared out by what power may have done."""
    right = int(np.searchsorted(readings.tick, moment))
    if not 0 < right < readings.tick.size:
        return None
    a, b = (float(tick) for tick in readings.tick[right - 1 : right + 1])
    if not 0 < b - a <= 2 * readings.period_s:
        return None
    before, after = (float(value) for value in readings.at_tick[right - 1 : right + 1])
    share = _share_of_rise(moment, (a, b), after - before, trace)
    t, p = trace.power_points()
    near = np.append(
        p[(t >= a - readings.period_s) & (t <= b + readings.period_s)],
        trace.power_between(a, b) / (b - a),
    )
    half_s = (1 - share) * float(readings.half[right - 1]) + share * float(readings.half[right])
    error = float(near.max()) * half_s
    error += float(near.max() - near.min()) * min(moment - a, b - moment) / 2
    return before + share * (after - before), error


def _share_of_rise(moment: float, ticks: tuple[float, float], rise_j: float, trace: Trace) -> float:
    """Which share (0..1) of the counter's rise between two ticks came before a moment.

    Power is known at the two ticks, and its mean between them is the counter's. Power that
    changes once between two steady values has one moment at which it can have done so. Loads that
    compute in steps change like that; for power that rises slowly the error is no larger than
    that of a straight line, which is taken where no single change gives the rise.
    """
    a, b = ticks
    t, p = trace.power_points()
    at_a, at_b = (float(power) for power in np.interp(ticks, t, p))
    if at_a != at_b and rise_j > 0:
        change = (rise_j / (b - a) - at_b) / (at_a - at_b) * (b - a)
        if 0 <= change <= b - a:
            gone = moment - a
            return (at_a * min(gone, change) + at_b * max(0.0, gone - change)) / rise_j
    total = trace.power_between(a, b)
    return trace.power_between(a, moment) / total if total > 0 else (moment - a) / (b - a)


def _carried_by_slope(moment: float, readings: _Readings) -> tuple[float, float] | None:
    tick, at_tick = readings.tick, readings.at_tick
    if tick.size < 2:
        return None
    outside_s = max(float(tick[0]) - moment, moment - float(tick[-1]), 0.0)
    if outside_s > max(2 * readings.period_s, MAX_OUTSIDE_S):
        return None
    right = min(max(int(np.searchsorted(tick, moment)), 1), tick.size - 1)
    span_s = float(tick[right] - tick[right - 1])
    if not 0 < span_s <= MAX_BRIDGE_S:
        return None
    rate_w = float(at_tick[right] - at_tick[right - 1]) / span_s
    value = float(at_tick[right]) + rate_w * (moment - float(tick[right]))
    return value, rate_w * (outside_s + float(readings.half[right - 1 : right + 1].max()))
