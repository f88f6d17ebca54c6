"""Energy of a window from a meter's samples: twice, with what is wrong and how sure it is.

The counter (see `counter`) and the integral of power are worked out independently and both kept.
The counter is preferred; the integral takes its place where the counter restarted, froze, jumped,
was not there, or ticks unseen because the driver is slow. The integral is made of trapezoids over
the real time stamps, shifted by the sensor's mean lag and cut at the window's ends by
interpolation.

Nothing here turns a missing reading into 0, and no result is ever negative.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from wattslice.measure.circumstances import circumstances
from wattslice.measure.counter import Part, counter_energy
from wattslice.measure.sensor import FINE_S, SensorModel, sensor_model
from wattslice.measure.trace import Columns, Trace, timing
from wattslice.measure.uncertainty import Judged, uncertainty
from wattslice.records.energy import EnergyResult, IdleRecord

if TYPE_CHECKING:
    from wattslice.records.run import MeterRecord

# A mean power above the board's limit by more than this is not believed. Boards are controlled to
# their limit over times of some 100 ms; the margin is the sensor's own spread.
LIMIT_MARGIN = 1.1
# Below this covered share of the window there is no integral.
MIN_COVERAGE = 0.9
# The meter leaves a driver alone for four times as long as a call took. Where calls are slower
# than this, no two readings are close enough to catch a tick of the counter.
SLOW_CALL_S = FINE_S / 4


def energy(  # noqa: PLR0917  (the order in which its callers think of them)
    samples: Columns,
    window_start_s: float,
    window_end_s: float,
    meter: MeterRecord,
    idle: IdleRecord | None = None,
    simulated: bool = False,
    *,
    step_s: Iterable[float] = (),
    power_limit_w: float | None = None,
) -> EnergyResult:
    """Energy of [window_start_s, window_end_s] (CLOCK_MONOTONIC, s).

    `samples` are columns named as the fields of `Sample`, in any order. `idle` gives the net
    energy; it must be of the same scope. `step_s` are the (median) step times of the run's
    workers: they are needed to see whether the sensor and the steps beat. `power_limit_w` is the
    board's limit, by which impossible readings are known; it is used for the scope `board` only.
    """
    window = (window_start_s, window_end_s)
    window_s = window_end_s - window_start_s
    base: dict[str, Any] = {
        "scope": meter.scope,
        "method": meter.method,
        "modelled": meter.scope == "modelled",
        "simulated": simulated,
        "window_s": window_s,
    }
    if not (math.isfinite(window_s) and window_s > 0):
        return EnergyResult(**base, reason="the window has no length")
    model = sensor_model(meter, power_limit_w)
    trace = Trace.of(samples, model)
    inside = (trace.t >= window_start_s) & (trace.t <= window_end_s)
    base |= circumstances(samples, window)
    base["samples"], base["errors"] = int(inside.sum()), int((trace.failed & inside).sum())
    if not trace.has_values:
        return EnergyResult(**base, reason=_why_nothing(trace, meter))
    base |= timing(trace, window, 1.0 / meter.rate_hz)
    integral = _integral(trace, window, base["coverage"])
    counter = counter_energy(trace, window, model)
    base["integral_j"], base["counter_j"] = integral.joules, counter.joules
    idle_w = idle.idle_w if idle is not None else None
    steps = tuple(step_s)
    if integral.joules is not None and counter.joules:
        base["disagreement"] = abs(integral.joules - counter.joules) / counter.joules
        by_power = Judged(trace, window, model, Part(None), integral, integral.joules, idle_w)
        if _knows_better(by_power, steps, counter):
            counter = Part(None, "calls too slow to catch its ticks", flag="counter-unresolved")
    flags = [part.flag for part in (counter, integral) if part.flag]
    if trace.averaged:
        flags.append("power-averaged")
    if ((trace.spikes >= window_start_s) & (trace.spikes <= window_end_s)).any():
        flags.append("power-spikes")
    gross = counter.joules if counter.joules is not None else integral.joules
    if gross is None:
        reasons = [meter.reason, counter.reason, integral.reason]
        reason = "; ".join(reason for reason in reasons if reason) or _why_nothing(trace, meter)
        return EnergyResult(**base, flags=tuple(flags), reason=reason)
    base["method"] = _method(meter, by_counter=counter.joules is not None)
    base["mean_power_w"] = gross / window_s
    refused = _implausible(gross / window_s, model)
    if refused is not None:
        flags.append("implausible-power")
        return EnergyResult(**base, flags=tuple(flags), reason=refused)
    base["gross_j"] = gross
    if base["modelled"]:
        # A declared model has no uncertainty that could be stated: it is not a measurement.
        flags.append("modelled")
    else:
        case = Judged(trace, window, model, counter, integral, gross, idle_w)
        doubt = uncertainty(case, steps)
        flags += doubt.flags
        base["notes"] = doubt.notes
        base["uncertainty_parts_j"] = doubt.parts_j
        base["uncertainty_j"] = math.hypot(*doubt.parts_j.values())
    net, more = _net(EnergyResult(**base), idle)
    return EnergyResult(**base | net, flags=tuple(dict.fromkeys(flags + more)))


def _why_nothing(trace: Trace, meter: MeterRecord) -> str:
    """The meter's reason, or the commonest error of the samples, in the driver's words."""
    if meter.reason is not None:
        return meter.reason
    if trace.texts:
        text, _ = Counter(trace.texts).most_common(1)[0]
        return f"no power or energy reading: {text}"
    return "no power or energy reading in any sample" if trace.t.size else "there are no samples"


def _integral(trace: Trace, window: tuple[float, float], coverage: float) -> Part:
    if not trace.has_power:
        return Part(None)
    if coverage < MIN_COVERAGE:
        reason = f"power readings cover {coverage:.0%} of the window"
        return Part(None, reason, flag="coverage-insufficient")
    return Part(trace.power_between(*window))


def _knows_better(by_power: Judged, step_s: Iterable[float], counter: Part) -> bool:
    """Whether the integral is surer than a counter whose ticks a slow driver hides."""
    if np.median(by_power.trace.call) < SLOW_CALL_S:
        return False
    parts = uncertainty(by_power, step_s).parts_j
    own = math.hypot(*(part for name, part in parts.items() if name != "sensor"))
    return own < counter.edge_j


def _method(meter: MeterRecord, *, by_counter: bool) -> str | None:
    """The meter's method, with the way that gross_j was had."""
    if meter.method is None or meter.scope == "modelled":
        return meter.method
    stem = meter.method.removesuffix("-counter").removesuffix("-power")
    return f"{stem}-counter" if by_counter else f"{stem}-integral"


def _implausible(mean_w: float, model: SensorModel) -> str | None:
    if mean_w <= 0 and model.power != "modelled":
        return f"the mean power, {mean_w:.4g} W, is not above 0: the sensor measures nothing"
    limit_w = model.power_limit_w
    if limit_w is not None and mean_w > LIMIT_MARGIN * limit_w:
        return (
            f"the mean power, {mean_w:.4g} W, is above {LIMIT_MARGIN} x the board's limit of "
            f"{limit_w:.4g} W"
        )
    return None


def _net(result: EnergyResult, idle: IdleRecord | None) -> tuple[dict[str, Any], list[str]]:
    """Net energy, where an idle power of the same kind is known."""
    if idle is None or result.gross_j is None:
        return {}, []
    source = f"idle of layout {idle.layout}, {idle.measured_utc}"
    if idle.idle_w is None:
        return {"idle_source": f"{source}: {idle.reason or 'none'}"}, ["idle-unknown"]
    found = {"idle_w": idle.idle_w, "idle_source": source}
    if idle.energy.scope != result.scope or idle.simulated != result.simulated:
        return found, ["idle-not-comparable"]
    net = result.gross_j - idle.idle_w * result.window_s
    if net < 0:
        return found, ["net-negative"]
    return found | {"net_j": net}, []
