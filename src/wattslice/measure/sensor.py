"""What the sensor behind the samples really sees: update period, seen share, lag, tolerance.

Constants come from M. Yang, P. Adamek, W. Armour, "Part-time Power Measurements: nvidia-smi's Lack
of Attention" (SC24, arXiv 2312.02741), who measured over 70 GPUs against external meters, and from
NVIDIA's nvml.h for which call is an average. A source's own description overrides the table.

The power reading of an A100 or H100 is the mean of about 25 ms out of each 100 ms. A training
whose step time is close to a multiple of the update period shows the sensor the same 25 ms of each
step, for ever, and no longer window cures it: that is the aliasing which is checked here.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from wattslice.records.run import MeterRecord

FloatArray = npt.NDArray[np.float64]

YANG = "arXiv 2312.02741"
# Spread of update periods over cards of one kind (A100-PCIe-40GB: 101-104 ms), relative.
NOMINAL_PERIOD_ERROR = 0.04
# Readings closer together than this resolve a tick of the counter, s.
FINE_S = 0.03
# A step this many update periods long is sampled at that many places, and each place again on
# every step; the errors of so many places average out as if they were independent.
LOCK_PERIODS = 10


@dataclass(frozen=True, slots=True)
class SensorModel:
    """What one source's readings mean. None is "not known"."""

    name: str
    power: str = "unknown"  # `instant`, `average` or `modelled`
    update_period_s: float | None = None  # of the power reading
    window_s: float | None = None  # time that one power reading is the mean of
    counter_period_s: float | None = None  # between two ticks of the energy counter
    counter_granularity_j: float = 0.0
    tolerance: float | None = None  # relative, systematic: the same on every run of one card
    power_limit_w: float | None = None
    source: str = ""
    assumed: bool = False  # the constants are of a similar sensor, not of this one

    @property
    def seen(self) -> float:
        """Share of time that the power readings cover, 0..1; 1 where nothing is known of gaps."""
        if self.update_period_s is None or self.window_s is None:
            return 1.0
        return min(1.0, self.window_s / self.update_period_s)

    @property
    def lag_s(self) -> float:
        """Mean age of what a reading shows: half its window, plus half an update period."""
        return ((self.window_s or 0.0) + (self.update_period_s or 0.0)) / 2


# Cards were -8 % to +13 % off an external meter in energy (Yang et al.; -5.8 % on their A100
# laboratory card), mostly by a constant factor. MLPerf asks 5 % of a meter. Ratios on one card are
# far better than this.
_NVML_TOLERANCE = 0.05
# The constants of A100 and H100, which serve for boards of which nothing is published: of the
# sensors known they see the least.
_NVML = SensorModel(
    name="NVML",
    power="instant",
    update_period_s=0.1,
    window_s=0.025,
    counter_period_s=0.1,
    counter_granularity_j=1e-3,  # nvmlDeviceGetTotalEnergyConsumption counts mJ
    tolerance=_NVML_TOLERANCE,
    source=f"{YANG}, A100 and H100",
    assumed=True,
)
# The driver's own average is a mean over 1 s: field 185, and the plain power call on Ampere and
# later boards except GA100 (nvml.h at NVML_FI_DEV_POWER_AVERAGE, nvmlDeviceGetPowerUsage).
AVERAGE_WINDOW_S = 1.0

_KEYS = {
    "update_period_s": "update_period_s",
    "sensor_window_s": "window_s",
    "counter_period_s": "counter_period_s",
    "counter_granularity_j": "counter_granularity_j",
    "tolerance_relative": "tolerance",
    "power_limit_w": "power_limit_w",
}


def sensor_model(meter: MeterRecord, power_limit_w: float | None = None) -> SensorModel:
    """The sensor behind a meter's samples: its kind, with what its description says put over it.

    Keys of the description that are read, all optional: `update_period_s`, `sensor_window_s`,
    `counter_period_s`, `counter_granularity_j`, `tolerance_relative`, `power_limit_w`,
    `power_w_meaning` ("mean of 1 s" marks an average).
    """
    description = meter.description
    model = _base(meter)
    changes: dict[str, Any] = {}
    for key, field in _KEYS.items():
        value = description.get(key)
        if isinstance(value, int | float) and not isinstance(value, bool) and value > 0:
            changes[field] = float(value)
    if "update_period_s" in changes and "window_s" in changes:
        changes |= {"assumed": False, "source": str(description.get("source", model.source))}
    if str(description.get("power_w_meaning", "")).startswith("mean of 1 s"):
        changes |= {"power": "average", "window_s": AVERAGE_WINDOW_S}
    if power_limit_w is not None and meter.scope == "board":
        # A module (GPU, CPU and memory together) may draw more than its GPU's limit.
        changes["power_limit_w"] = power_limit_w
    return replace(model, **changes)


def _base(meter: MeterRecord) -> SensorModel:
    method = meter.method or ""
    if meter.scope == "modelled":
        return SensorModel("declared power model", "modelled", source="no sensor at all")
    if method.startswith("rapl"):
        return SensorModel("RAPL", counter_period_s=0.001, source="Intel SDM vol. 3, 16.10")
    return _NVML if method.startswith("nvml") else SensorModel(method or "unknown")


@dataclass(frozen=True, slots=True)
class Period:
    """An update period with the half-width of what is known of it, s."""

    value_s: float
    error_s: float
    source: str  # `measured` or `nominal`


def measured_period(t_s: FloatArray, values: FloatArray) -> Period | None:
    """Update period of a reading, from the closely spaced samples of the meter's bursts.

    `t_s` is sorted; NaN marks readings not had. A change between two samples that lie at most
    30 ms apart is a tick known to half their distance. None where there are not two such ticks,
    or where the reading changes on every sample (it is updated faster than it is read).
    """
    good = np.isfinite(values)
    t_s, values = t_s[good], values[good]
    if t_s.size < 3:
        return None
    gap = np.diff(t_s)
    fine = (gap <= FINE_S) & (gap > 0)
    changed = np.diff(values) != 0
    # In a stretch of close samples, every change but the fast ones is one tick.
    if not fine.any() or changed[fine].mean() > 0.5:
        return None
    ticks = np.flatnonzero(fine & changed)
    moments, half_widths = (t_s[ticks] + t_s[ticks + 1]) / 2, gap[ticks] / 2
    period: Period | None = None
    # First within one burst, where no tick can have been missed ...
    for left, right in itertools.pairwise(ticks):
        if fine[left : right + 1].all():
            a, b = (t_s[left] + t_s[left + 1]) / 2, (t_s[right] + t_s[right + 1]) / 2
            error = (gap[left] + gap[right]) / 2
            if period is None or error / (b - a) < period.error_s / period.value_s:
                period = Period(float(b - a), float(error), "measured")
    if period is None:
        return None
    # ... then over longer and longer spans, as long as the count of ticks is beyond doubt.
    origin = int(np.argmin(half_widths))
    for index in np.argsort(np.abs(moments - moments[origin]), kind="stable"):
        span = abs(float(moments[index] - moments[origin]))
        widths = float(half_widths[index] + half_widths[origin])
        count = round(span / period.value_s)
        if count < 1 or count * period.error_s + widths > 0.5 * period.value_s:
            continue
        if widths / count < period.error_s:
            period = Period(span / count, widths / count, "measured")
    return period


@dataclass(frozen=True, slots=True)
class Aliasing:
    """Whether a repeated step and the sensor's period beat too slowly for the window."""

    locked: bool
    step_s: float
    period_s: float
    cycles: float  # beats between step and sensor within the window
    places: float  # different places of a step that the sensor sees, if locked
    suggestion: str | None
    needed_s: float | None = None  # window that would not be locked; infinite: none would


def check_aliasing(
    step_s: float, window_s: float, model: SensorModel, period: Period
) -> Aliasing | None:
    """Compare a step time with the sensor's period; None where the sensor misses nothing.

    With k = the nearest number of periods in a step (or of steps in a period), each repetition
    shifts the sensor against the step by `|step - k x period|`. Over the window these shifts must
    add up to a whole period, or the sensor has seen only part of each step.
    """
    seen_s = model.window_s or period.value_s
    if model.seen >= 0.95 or step_s <= 0 or step_s <= seen_s:
        return None
    t = period.value_s
    if step_s >= t:
        places = float(round(step_s / t))
        drift_s = max(0.0, abs(step_s - places * t) - places * period.error_s)
        cycles = window_s / step_s * drift_s / t
    else:
        count = round(t / step_s)
        places = 1.0
        drift_s = max(0.0, abs(t - count * step_s) - period.error_s)
        cycles = window_s / t * drift_s / step_s
    locked = cycles < 1.0 and places <= LOCK_PERIODS
    suggestion = needed = None
    if locked:
        needed = window_s / cycles if cycles > 0 else math.inf
        longer = (
            f"lengthen the window to {math.ceil(needed)} s"
            if needed <= 3600
            else "no longer window helps"
        )
        suggestion = (
            f"the step time {step_s:.4g} s is within {drift_s / step_s:.2%} of "
            f"a multiple of the sensor's period {t:.4g} s: {longer}, or jitter the steps "
            "(another batch size, or a pause of random length between steps)"
        )
    return Aliasing(locked, step_s, t, cycles, places, suggestion, needed)


def worst_aliasing(
    steps_s: Iterable[float], window_s: float, model: SensorModel, period: Period
) -> Aliasing | None:
    """The check of all step times of a run; the one with the fewest beats."""
    found = [
        alias
        for step_s in steps_s
        if (alias := check_aliasing(step_s, window_s, model, period)) is not None
    ]
    return min(found, key=lambda alias: (not alias.locked, alias.cycles), default=None)
