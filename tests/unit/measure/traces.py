"""A power sensor as on an A100, in numpy, sampled as `Meter` does it; its true energy is known.

The sensor wakes up every `period_s`, takes the mean power of the last `window_s`, and shows that
until it wakes up again (arXiv 2312.02741). The counter moves at the same moments.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from wattslice.measure.meter import SAMPLE_FIELDS
from wattslice.records.run import MeterRecord

# Integral of power from 0 to t, J; everything follows from it.
Energy = Callable[[np.ndarray], np.ndarray]


def constant(power_w: float) -> Energy:
    return lambda t: power_w * t


def step(before_w: float, after_w: float, at_s: float) -> Energy:
    return lambda t: before_w * t + (after_w - before_w) * np.clip(t - at_s, 0, None)


def sawtooth(low_w: float, high_w: float, period_s: float, phase: float = 0.0) -> Energy:
    def primitive(x: np.ndarray) -> np.ndarray:
        whole = np.floor(x)
        part = x - whole
        return period_s * (low_w * x + (high_w - low_w) * (whole / 2 + part**2 / 2))

    return lambda t: primitive(t / period_s + phase) - primitive(np.asarray(phase))


def square(low_w: float, high_w: float, period_s: float, phase: float = 0.0) -> Energy:
    def primitive(x: np.ndarray) -> np.ndarray:
        whole = np.floor(x)
        return period_s * (low_w * x + (high_w - low_w) * (whole / 2 + np.minimum(x - whole, 0.5)))

    return lambda t: primitive(t / period_s + phase) - primitive(np.asarray(phase))


@dataclass
class Sensor:
    """Readings of a board whose true energy is `energy`."""

    energy: Energy
    period_s: float = 0.1
    window_s: float = 0.025
    phase: float = 0.0
    gain: float = 1.0
    # `exact`: the counter adds up true power; `sensor`: what the sensor saw; None: there is none.
    counter: Literal["exact", "sensor"] | None = "exact"
    offset_j: float = 1e6
    _seen: dict[str, Any] = field(default_factory=dict)

    def ticks(self, t: np.ndarray) -> np.ndarray:
        return np.floor(t / self.period_s - self.phase)

    def at(self, tick: np.ndarray) -> np.ndarray:
        return (tick + self.phase) * self.period_s

    def power(self, t: np.ndarray) -> np.ndarray:
        end = self.at(self.ticks(t))
        seen_w = (self.energy(end) - self.energy(end - self.window_s)) / self.window_s
        return np.round(self.gain * seen_w, 3)  # NVML gives mW

    def count(self, t: np.ndarray) -> np.ndarray:
        tick = self.ticks(t)
        if self.counter == "exact":
            return np.round(self.offset_j + self.gain * self.energy(self.at(tick)), 3)
        first = tick.min()
        every = np.arange(first, tick.max() + 1)
        total = np.cumsum(self.power(self.at(every) + 1e-9)) * self.period_s
        return np.round(self.offset_j + total[(tick - first).astype(int)], 3)


def sampling_times(
    start_s: float,
    end_s: float,
    rng: np.random.Generator,
    *,
    rate_hz: float = 10.0,
    lead_s: float = 2.0,
) -> np.ndarray:
    """When `Meter` reads: every 1/rate, closely at its start, 1.2 s later and at both marks."""
    begin = start_s - lead_s
    regular = np.arange(begin, end_s + 0.2, 1 / rate_hz)
    regular = regular + rng.exponential(0.0003, regular.size)
    bursts = [np.arange(begin, begin + 0.42, 0.002)]
    bursts += [np.arange(at, at + 0.105, 0.002) for at in (begin + 1.2, start_s, end_s)]
    return np.unique(np.concatenate([regular, *bursts]))


def columns(t: np.ndarray, **values: Any) -> dict[str, list[Any]]:
    """Columns as from `Meter.samples`; what is not given is None throughout."""
    table: dict[str, list[Any]] = {name: [None] * len(t) for name in SAMPLE_FIELDS}
    table |= {"t_s": list(t), "call_s": [2e-5] * len(t)}
    return table | {
        name: [None if x is None or x != x else x for x in value] for name, value in values.items()
    }


def read(sensor: Sensor, t: np.ndarray, *, power: bool = True) -> dict[str, list[Any]]:
    values: dict[str, Any] = {}
    if power:
        values["power_w"] = sensor.power(t)
    if sensor.counter is not None:
        values["energy_j"] = sensor.count(t)
    return columns(t, **values)


def meter(**changes: Any) -> MeterRecord:
    return MeterRecord(
        **{
            "scope": "board",
            "method": "nvml-counter",
            "rate_hz": 10.0,
            "description": {
                "update_period_s": 0.101,
                "sensor_window_s": 0.025,
                "power_limit_w": 400.0,
            },
        }
        | changes
    )
