"""How sure a window's energy is: the parts of its uncertainty, at about 95 %."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from wattslice.measure.counter import DEFAULT_COUNTER_PERIOD_S, Part
from wattslice.measure.sensor import (
    NOMINAL_PERIOD_ERROR,
    Aliasing,
    Period,
    SensorModel,
    measured_period,
    worst_aliasing,
)
from wattslice.measure.trace import GAP_PERIODS, Trace

FloatArray = npt.NDArray[np.float64]

# A measured update period that is farther than this from the published one is not believed.
PERIOD_SPREAD = 0.1
# Up to this many places of a step that are seen again and again, anything may lie between them.
FEW_PLACES = 3


@dataclass(frozen=True, slots=True)
class Judged:
    """A window's energy and all that its uncertainty follows from."""

    trace: Trace
    window: tuple[float, float]
    model: SensorModel
    counter: Part
    integral: Part
    gross_j: float
    idle_w: float | None

    @property
    def window_s(self) -> float:
        return self.window[1] - self.window[0]


def power_period(trace: Trace, model: SensorModel) -> Period:
    """The sensor's update period: from power, else from the counter, else what is known of it."""
    if not trace.averaged:
        for values in (trace.power, trace.counter):
            period = measured_period(trace.t, values)
            nominal = model.update_period_s
            # A reading that does not change at each update would give a multiple of the period.
            if period is not None and (
                nominal is None or abs(period.value_s / nominal - 1.0) < PERIOD_SPREAD
            ):
                return period
    nominal = model.update_period_s or DEFAULT_COUNTER_PERIOD_S
    return Period(nominal, nominal * NOMINAL_PERIOD_ERROR, "nominal")


@dataclass(frozen=True, slots=True)
class Uncertainty:
    """Parts in J, to be added in squares; flags; what can be done about them."""

    parts_j: dict[str, float]
    flags: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def uncertainty(case: Judged, step_s: Iterable[float]) -> Uncertainty:
    """What is not known of a window's energy.

    `sensor` the card's tolerance · `edges` the window's two ends · `disagreement` of counter and
    integral · `sampling` what lies between readings · `gaps` time without readings · `beat` and
    `aliasing` a sensor that sees only part of each step.
    """
    parts: dict[str, float] = {}
    flags: list[str] = []
    notes: list[str] = []
    if case.model.tolerance is None:
        flags.append("tolerance-unknown")
    else:
        parts["sensor"] = case.model.tolerance * case.gross_j
    by_counter = case.counter.joules is not None
    if by_counter:
        parts["edges"] = case.counter.edge_j
        if case.integral.joules is not None:
            # Either of the two may be the wrong one; nobody can say which.
            parts["disagreement"] = abs(case.integral.joules - case.gross_j)
    if not case.trace.has_power:
        return Uncertainty(parts, tuple(flags))
    period = power_period(case.trace, case.model)
    values = _values(case, period)
    # The parts that follow from a sensor which does not see all of the time hold for the counter
    # too: it is not documented what it adds up, so it is taken to be fed by the same sensor.
    if not by_counter or case.model.seen < 0.95:
        parts["sampling"] = _sampling(case, period, values)
    if not by_counter:
        parts["edges"] = _integral_edges(case, period)
        parts["gaps"] = _gaps(case, period, values)
    steps = tuple(step_s)
    if case.model.seen < 0.95 and not steps:
        flags.append("aliasing-unchecked")
    alias = worst_aliasing(steps, case.window_s, case.model, period)
    if alias is not None:
        if alias.locked:
            flags.append("aliasing")
            notes.append(alias.suggestion or "")
            parts["aliasing"] = _aliased(case, alias, period, values)
        else:
            parts["beat"] = _beat(case, alias, values)
    parts = {name: part for name, part in parts.items() if part > 0}
    return Uncertainty(parts, tuple(flags), tuple(notes))


def _values(case: Judged, period: Period) -> FloatArray:
    """Power once per update period, so that bursts and stale readings do not count twice."""
    t, p = case.trace.power_points()
    values: FloatArray = np.interp(np.arange(*case.window, period.value_s), t, p)
    return values


def _sampling(case: Judged, period: Period, values: FloatArray) -> float:
    """Two standard errors of a mean of readings that each stand for one period.

    The variance of a reading is half the mean squared difference of neighbours, which leaves
    slow changes out. Where the sensor sees all of the time a tenth of it is kept for the shape
    of the power between two readings.
    """
    unseen = max(1.0 - case.model.seen, 0.1)
    return 2.0 * period.value_s * math.sqrt(float(np.sum(np.diff(values) ** 2)) / 2.0 * unseen)


def _integral_edges(case: Judged, period: Period) -> float:
    """The sensor's lag is known to half a period; that moves both ends of the window."""
    t, p = case.trace.power_points()
    half_s = period.value_s / 2
    return half_s * math.hypot(
        *(
            float(np.ptp(np.interp(moment + np.array([-1.0, 0.0, 1.0]) * period.value_s, t, p)))
            for moment in case.window
        )
    )


def _gaps(case: Judged, period: Period, values: FloatArray) -> float:
    t, _ = case.trace.power_points()
    t = t[(t >= case.window[0] - period.value_s) & (t <= case.window[1] + period.value_s)]
    if t.size < 2:
        return 0.0
    gaps = np.diff(t)
    holes = gaps[gaps > GAP_PERIODS * max(period.value_s, float(np.median(gaps)))]
    return float(values.max() - values.min()) / 2 * float(holes.sum())


def _beat(case: Judged, alias: Aliasing, values: FloatArray) -> float:
    """What is left over of the last beat between step and sensor.

    Of each step as many places are seen as periods fit into it, so what may be wrong is the power
    between two of them. At most half a beat is left over, in all beats of the window.
    """
    spread_w = float(values.max() - values.min())
    return case.window_s * spread_w / (2.0 * alias.places * max(1.0, 2.0 * alias.cycles))


def _aliased(case: Judged, alias: Aliasing, period: Period, values: FloatArray) -> float:
    """What the unseen part of each step may hide.

    Few places of a step seen again and again: power may have been anything between idle and the
    board's limit in the rest. More places: their errors are those of `sampling`, but add up over
    the steps, as each step is sampled alike.
    """
    mean_w = case.gross_j / case.window_s
    floor_w = case.idle_w or 0.0
    ceiling_w = case.model.power_limit_w or max(2 * mean_w, float(values.max()))
    spread_w = max(ceiling_w - mean_w, mean_w - floor_w, 0.0)
    worst = (1.0 - case.model.seen) * case.window_s * spread_w
    if alias.places <= FEW_PLACES:
        return worst
    steps = max(1.0, case.window_s / max(alias.step_s, period.value_s))
    return min(worst, _sampling(case, period, values) * math.sqrt(steps))
