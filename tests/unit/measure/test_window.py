"""A window is lengthened where steps and sensor beat, and only where that helps."""

from __future__ import annotations

import pytest

from wattslice.config.models import WindowConfig
from wattslice.measure.energy import energy
from wattslice.measure.window import check_window
from wattslice.records.run import MeterRecord

PERIOD_S = 0.1
A100 = {"update_period_s": PERIOD_S, "sensor_window_s": 0.025, "power_w_meaning": "instant"}


def _meter(**description: object) -> MeterRecord:
    return MeterRecord(
        scope="board", method="nvml-power", description={**A100, **description}, rate_hz=10
    )


def _samples(duration_s: float) -> dict[str, list[object]]:
    """Readings every 5 ms of a value that moves every 100 ms, so that its period is known well."""
    count = int(duration_s / 0.005)
    t_s = [0.0025 + 0.005 * index for index in range(count)]
    none = [None] * count
    return {
        "t_s": list(t_s),
        "call_s": [0.0] * count,
        "power_w": [200.0 + int(t / PERIOD_S) % 7 for t in t_s],
        **dict.fromkeys(("power_average_w", "energy_j", "temperature_c", "event_reasons"), none),
        "error": list(none),
    }


def _window(min_s: float = 10.0, max_s: float = 600.0) -> WindowConfig:
    return WindowConfig(min_s=min_s, max_s=max_s)


def test_steps_that_beat_slowly_lengthen_the_window_until_energy_has_no_flag() -> None:
    step_s = 0.1004  # goes round the sensor's 100 ms once in 25 s
    found = check_window(_samples(4.0), _meter(), [0.137, step_s], _window())
    assert found.locked
    assert found.cured
    assert found.lengthened
    assert found.period_source == "measured"
    assert found.period_s == pytest.approx(PERIOD_S, rel=1e-3)
    assert found.step_s == step_s
    assert 25 < found.window_s < 60
    assert "lengthened from 10 s" in (found.reason or "")
    samples = _samples(found.window_s + 5)
    for window_s, flagged in ((10.0, True), (found.window_s, False)):
        result = energy(samples, 1.0, 1.0 + window_s, _meter(), step_s=[step_s])
        assert ("aliasing" in result.flags) == flagged


@pytest.mark.parametrize(("step_s", "max_s"), [(0.1004, 20.0), (PERIOD_S, 600.0)])
def test_a_beat_that_no_allowed_window_cures_leaves_it_as_asked_and_stays_flagged(
    step_s: float, max_s: float
) -> None:
    found = check_window(_samples(4.0), _meter(), [step_s], _window(max_s=max_s))
    assert found.locked
    assert found.cured is False
    assert not found.lengthened
    assert "not cured" in (found.reason or "")
    result = energy(_samples(15), 1.0, 11.0, _meter(), step_s=[step_s])
    assert "aliasing" in result.flags


def test_steps_that_do_not_beat_change_nothing() -> None:
    found = check_window(_samples(4.0), _meter(), [0.137], _window())
    assert (found.locked, found.cured, found.window_s) == (False, None, 10.0)


@pytest.mark.parametrize(
    ("meter", "steps", "reason"),
    [
        (_meter(), [], "no step time"),
        (_meter(sensor_window_s=0.1), [0.1], "leaves no time out"),
        (MeterRecord(scope="modelled", method="power-model", rate_hz=10), [0.1], "no power sensor"),
    ],
)
def test_what_cannot_beat_or_is_not_known_has_its_reason(
    meter: MeterRecord, steps: list[float], reason: str
) -> None:
    found = check_window(_samples(4.0), meter, steps, _window())
    assert not found.locked
    assert not found.lengthened
    assert reason in (found.reason or "")


def test_without_any_sample_nothing_is_known() -> None:
    empty: dict[str, list[object]] = {name: [] for name in _samples(1.0)}
    found = check_window(empty, _meter(), [0.1], _window())
    assert found.locked is None
    assert found.reason == "no power sensor is read"
