"""How long a window has to be, so that a part-time power sensor sees all of a repeated step."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING

from wattslice.config.models import WindowConfig
from wattslice.measure.sensor import check_aliasing, sensor_model
from wattslice.measure.trace import Columns, Trace
from wattslice.measure.uncertainty import power_period
from wattslice.records.run import AliasingCheck

if TYPE_CHECKING:
    from wattslice.records.run import MeterRecord

# The steps of the warm-up, which are synchronised one by one, and those of the window differ by
# some parts in a thousand; the beat goes with the difference of step and sensor period.
MARGIN = 1.25


def check_window(
    samples: Columns, meter: MeterRecord, step_s: Iterable[float], config: WindowConfig
) -> AliasingCheck:
    """Compare the workers' warm-up step times (s) with the sensor's period so far.

    Where they beat too slowly for `config.min_s`, the window is lengthened to one beat and a
    margin, if that is not more than `config.max_s`; else it is left as it was asked for, as a
    longer one would cost time and cure nothing.
    """
    asked_s = config.min_s

    def as_asked(reason: str, locked: bool | None) -> AliasingCheck:
        return AliasingCheck(
            asked_s=asked_s, window_s=asked_s, locked=locked, cured=None, reason=reason
        )

    model = sensor_model(meter)
    trace = Trace.of(samples, model)
    if not trace.has_power or meter.scope == "modelled":
        return as_asked("no power sensor is read", None)
    if model.seen >= 0.95:
        return as_asked(f"the power reading of {model.name} leaves no time out", False)
    steps = [step for step in step_s if step > 0]
    if not steps:
        return as_asked("no step time is known", None)
    period = power_period(trace, model)
    found = [alias for step in steps if (alias := check_aliasing(step, asked_s, model, period))]
    locked = [alias for alias in found if alias.locked]
    worst = max(locked, key=lambda alias: alias.needed_s or 0.0, default=None)
    window_s, cured, reason = asked_s, None, None
    if worst is not None:
        needed_s = MARGIN * (worst.needed_s or math.inf)
        cured = needed_s <= config.max_s
        if cured:
            window_s = max(asked_s, needed_s)
            reason = (
                f"lengthened from {asked_s:g} s: a step of {worst.step_s:.4g} s beats with the "
                f"sensor's period of {period.value_s:.4g} s"
            )
        else:
            reason = f"not cured: {worst.suggestion}; at most {config.max_s:g} s are allowed"
    least = worst or min(found, key=lambda alias: alias.cycles, default=None)
    return AliasingCheck(
        period_s=period.value_s,
        period_source="measured" if period.source == "measured" else "nominal",
        step_s=None if least is None else least.step_s,
        asked_s=asked_s,
        window_s=window_s,
        locked=worst is not None,
        cured=cured,
        reason=reason,
    )
