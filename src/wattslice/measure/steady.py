"""When a worker counts as steady, and when a board has cooled down. Pure Python: workers import it.

The rules are the project's: step times vary by less than `cv_max` over `cv_steps` steps, and the
board's temperature drifts by less than `temperature_drift_c` over 30 s; both are capped.
"""

from __future__ import annotations

import math
import statistics
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from wattslice.config.models import CooldownConfig, WarmupConfig

# Span over which a temperature's drift is judged, s.
DRIFT_SPAN_S = 30.0
# Temperatures closer together than this add nothing: the sensors give whole degrees.
_TEMPERATURE_SPACING_S = 1.0
_COOLDOWN_POLL_S = 1.0
# A slope over less than this is the sensor's whole-degree rounding, not a trend.
_COOLDOWN_SPAN_S = 15.0


@dataclass(frozen=True, slots=True)
class WarmupSummary:
    """How a worker came to its steady state; the fields are those of the record `Warmup`."""

    steps: int
    duration_s: float
    steady: bool
    step_time_cv: float | None


class WarmupDetector:
    """Says when the warm-up is over. Feed it every step; a step costs some microseconds.

    while not detector.add_step(duration_s): ...

    Temperatures are optional. Once one was fed, 30 s of them are needed to be steady.
    """

    def __init__(self, config: WarmupConfig) -> None:
        self._min_steps = config.min_steps
        self._cv_steps = config.cv_steps
        self._cv_max = config.cv_max
        self._drift_c = config.temperature_drift_c
        self._max_s = config.max_s
        self._durations: deque[float] = deque(maxlen=config.cv_steps)
        self._temperatures = _Trend(DRIFT_SPAN_S)
        self._steps = 0
        self._duration_s = 0.0
        self._steady = False
        self._capped = False

    def add_step(self, duration_s: float) -> bool:
        """Count a step that took `duration_s`; True once the warm-up is over, either way."""
        if self.done:
            return True
        self._steps += 1
        self._duration_s += duration_s
        self._durations.append(duration_s)
        self._steady = (
            self._steps >= self._min_steps
            and len(self._durations) == self._cv_steps
            and (cv := self.step_time_cv) is not None
            and cv < self._cv_max
            and self.temperature_steady()
        )
        self._capped = not self._steady and self._duration_s >= self._max_s
        return self.done

    def add_temperature(self, t_s: float, temperature_c: float | None) -> None:
        """Note a temperature in °C at a time in s; None (not readable) is ignored."""
        if temperature_c is not None:
            self._temperatures.add(t_s, temperature_c)

    @property
    def done(self) -> bool:
        return self._steady or self._capped

    @property
    def steady(self) -> bool:
        return self._steady

    @property
    def capped(self) -> bool:
        """The cap ended the warm-up before it was steady."""
        return self._capped

    @property
    def step_time_cv(self) -> float | None:
        """Coefficient of variation of the last step times (sample standard deviation / mean)."""
        return coefficient_of_variation(self._durations)

    @property
    def step_s(self) -> float | None:
        """Median of the last step times, s; None before the first step."""
        return statistics.median(self._durations) if self._durations else None

    def summary(self) -> WarmupSummary:
        return WarmupSummary(self._steps, self._duration_s, self._steady, self.step_time_cv)

    def temperature_steady(self) -> bool:
        """No drift over 30 s; True where no temperature was ever fed."""
        if self._temperatures.empty:
            return True
        slope = self._temperatures.slope_per_s()
        return slope is not None and abs(slope) * DRIFT_SPAN_S < self._drift_c


@dataclass(frozen=True, slots=True)
class CooldownSummary:
    """How a rest before a run ended."""

    duration_s: float
    capped: bool
    slope_c_per_min: float | None
    reason: str | None = None


def cool_down(
    temperature_c: Callable[[], float | None],
    config: CooldownConfig,
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> CooldownSummary:
    """Wait until the board cools more slowly than the config's slope, or until the cap.

    A board without a readable temperature does not wait: a fixed pause would claim a knowledge
    that is not there. `clock` and `sleep` are replaced in tests.
    """
    start_s = clock()
    if config.max_s <= 0:
        return CooldownSummary(0.0, False, None, "switched off")
    span_s = min(_COOLDOWN_SPAN_S, config.max_s / 2)
    trend = _Trend(span_s)
    while True:
        temperature = temperature_c()
        now_s = clock()
        if temperature is None:
            return CooldownSummary(now_s - start_s, False, None, "no temperature reading")
        trend.add(now_s, temperature)
        slope = trend.slope_per_s()
        per_minute = None if slope is None else slope * 60.0
        if per_minute is not None and -per_minute < config.slope_c_per_min:
            return CooldownSummary(now_s - start_s, False, per_minute)
        left_s = config.max_s - (now_s - start_s)
        if left_s <= 0:
            return CooldownSummary(now_s - start_s, True, per_minute)
        sleep(min(_COOLDOWN_POLL_S, left_s))


def coefficient_of_variation(values: deque[float] | list[float]) -> float | None:
    """Sample standard deviation over mean; None for fewer than two values or a mean of 0."""
    count = len(values)
    if count < 2:
        return None
    mean = math.fsum(values) / count
    if mean <= 0:
        return None
    variance = math.fsum((value - mean) ** 2 for value in values) / (count - 1)
    return math.sqrt(variance) / mean


class _Trend:
    """Least-squares slope over the last `span_s`; a fit, as whole degrees flicker by one."""

    def __init__(self, span_s: float) -> None:
        self._span_s = span_s
        self._points: deque[tuple[float, float]] = deque()

    @property
    def empty(self) -> bool:
        return not self._points

    def add(self, t_s: float, value: float) -> None:
        points = self._points
        if points and t_s - points[-1][0] < _TEMPERATURE_SPACING_S * 0.5:
            return
        points.append((t_s, value))
        # One point older than the span stays, so that the span is always covered.
        while len(points) > 2 and t_s - points[1][0] >= self._span_s:
            points.popleft()

    def slope_per_s(self) -> float | None:
        points = self._points
        if len(points) < 3 or points[-1][0] - points[0][0] < self._span_s:
            return None
        count = len(points)
        mean_t = math.fsum(t for t, _ in points) / count
        mean_v = math.fsum(v for _, v in points) / count
        spread = math.fsum((t - mean_t) ** 2 for t, _ in points)
        return math.fsum((t - mean_t) * (v - mean_v) for t, v in points) / spread
