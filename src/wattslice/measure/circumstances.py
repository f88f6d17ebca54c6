"""Under what circumstances a board worked in a window: clock event reasons and temperature."""

from __future__ import annotations

from typing import Any

import numpy as np

from wattslice.measure.trace import Columns, floats

# Bits of nvmlDeviceGetCurrentClocksEventReasons (nvml.h) that say something of a run's validity.
EVENT_BITS = {
    "sw_power_cap": 0x4,
    "hw_slowdown": 0x8,
    "sync_boost": 0x10,
    "sw_thermal_slowdown": 0x20,
    "hw_thermal_slowdown": 0x40,
    "hw_power_brake_slowdown": 0x80,
}


def circumstances(samples: Columns, window: tuple[float, float]) -> dict[str, Any]:
    """`event_shares`, `temperature_max_c` and `temperature_drift_c` of an energy result."""
    t = floats(samples["t_s"])
    inside = (t >= window[0]) & (t <= window[1])
    reasons = floats(samples["event_reasons"])[inside]
    masks = reasons[np.isfinite(reasons)].astype(np.int64)
    found: dict[str, Any] = {}
    if masks.size:
        shares = {name: float(np.mean((masks & bit) != 0)) for name, bit in EVENT_BITS.items()}
        found["event_shares"] = {name: share for name, share in shares.items() if share > 0}
    temperature = floats(samples["temperature_c"])
    had = inside & np.isfinite(temperature)
    if had.any():
        found["temperature_max_c"] = float(temperature[had].max())
        third = (window[1] - window[0]) / 3
        first, last = had & (t <= window[0] + third), had & (t >= window[1] - third)
        if first.any() and last.any():
            drift = temperature[last].mean() - temperature[first].mean()
            found["temperature_drift_c"] = float(drift)
    return found
