"""Energy of a window from samples: what is counted, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unit.measure.traces import (
    Sensor,
    columns,
    constant,
    meter,
    read,
    sampling_times,
    sawtooth,
    step,
)
from wattslice.measure.energy import energy
from wattslice.records.energy import EnergyResult, IdleRecord

A, B = 100.0, 108.0
RNG = np.random.default_rng(7)


def _times(end_s: float = B) -> np.ndarray:
    return sampling_times(A, end_s, np.random.default_rng(7))


def _samples(**changes: Any) -> dict[str, list[Any]]:
    return read(Sensor(constant(300.0), **changes), _times())


def _change(
    samples: dict[str, list[Any]], name: str, at_s: float, end_s: float, value: Any
) -> None:
    for index, t in enumerate(samples["t_s"]):
        if at_s <= t < end_s:
            samples[name][index] = value


def _add(samples: dict[str, list[Any]], at_s: float, end_s: float, joules: float) -> None:
    for index, t in enumerate(samples["t_s"]):
        if at_s <= t < end_s:
            samples["energy_j"][index] += joules


def _idle(idle_w: float | None = 50.0, **changes: Any) -> IdleRecord:
    return IdleRecord(
        **{
            "layout": "7x1g",
            "board_uuid": "GPU-0",
            "idle_w": idle_w,
            "reason": None if idle_w is not None else "other processes",
            "energy": EnergyResult(scope="board", window_s=30.0),
            "code_digest": "c",
            "settings": {},
            "simulated": False,
            "measured_utc": "2026-01-01T00:00:00Z",
        }
        | changes
    )


def test_counter_and_integral_agree_on_constant_power() -> None:
    result = energy(_samples(), A, B, meter(), _idle())
    assert result.gross_j == pytest.approx(2400, rel=1e-3)
    assert result.counter_j == result.gross_j
    assert result.integral_j == pytest.approx(2400)
    assert result.disagreement is not None
    assert result.disagreement < 1e-3
    assert result.net_j == pytest.approx(2000, rel=2e-3)
    assert result.coverage == 1.0
    assert result.period_median_s == pytest.approx(0.1, rel=0.01)
    assert result.method == "nvml-counter"
    assert result.reason is None
    assert result.uncertainty_parts_j["sensor"] == pytest.approx(120, rel=1e-3)


@pytest.mark.parametrize("phase", [0.0, 0.2, 0.4, 0.6, 0.8, 0.99])
def test_the_part_of_a_tick_at_the_windows_ends_is_not_lost(phase: float) -> None:
    # Difference of readings alone: up to 1.25 % of 8 s.
    samples = read(Sensor(constant(300.0), phase=phase, period_s=0.1013), _times())
    assert energy(samples, A, B, meter()).counter_j == pytest.approx(2400, rel=4e-4)


@pytest.mark.parametrize("phase", [0.0, 0.2, 0.4, 0.6, 0.8])
def test_a_change_of_power_within_the_tick_of_a_windows_end_has_its_place(phase: float) -> None:
    # A straight line from 380 W to 100 W over the tick would be up to 3.5 J off: 0.11 %.
    for before_the_end_s in (-0.05, -0.02, 0.0, 0.02, 0.05):
        signal = step(380.0, 100.0, B - before_the_end_s)
        true_j = float(signal(np.array(B)) - signal(np.array(A)))
        result = energy(read(Sensor(signal, phase=phase), _times()), A, B, meter())
        assert result.counter_j == pytest.approx(true_j, rel=4e-4)


def test_without_bursts_a_ticks_width_is_in_the_uncertainty() -> None:
    times = np.arange(98.0, 109.0, 0.1)
    result = energy(read(Sensor(constant(300.0), phase=0.3), times), A, B, meter())
    assert result.counter_j is not None
    error = abs(result.counter_j - 2400)
    assert error <= result.uncertainty_parts_j["edges"] <= 45


def test_counter_restart_is_rejected_and_the_integral_takes_its_place() -> None:
    samples = _samples()
    _add(samples, 104, 200, -1_000_000)
    result = energy(samples, A, B, meter())
    assert result.counter_j is None
    assert "counter-reset" in result.flags
    assert result.gross_j == pytest.approx(2400)
    assert result.method == "nvml-integral"


def test_counter_restart_without_power_is_no_energy_with_the_reason() -> None:
    samples = _samples()
    _add(samples, 104, 200, -1_000_000)
    samples["power_w"] = [None] * len(samples["t_s"])
    result = energy(samples, A, B, meter())
    assert result.gross_j is None
    assert "the energy counter went from" in (result.reason or "")


def test_counter_restart_outside_the_window_is_no_matter() -> None:
    samples = _samples()
    _add(samples, 0, 99, 5000)
    result = energy(samples, A, B, meter())
    assert result.counter_j == pytest.approx(2400, rel=1e-3)


def test_frozen_counter_is_rejected_while_power_flows() -> None:
    samples = _samples()
    frozen = samples["energy_j"][next(i for i, t in enumerate(samples["t_s"]) if t >= 103)]
    _change(samples, "energy_j", 103, 200, frozen)
    result = energy(samples, A, B, meter())
    assert "counter-frozen" in result.flags
    assert result.counter_j is None
    assert result.gross_j == pytest.approx(2400)


def test_a_counter_that_never_moves_is_no_energy() -> None:
    """As perf's energy-psys on machines without the sensor: present, and always 0."""
    samples = columns(_times(), energy_j=np.zeros(_times().size))
    result = energy(samples, A, B, meter(method="rapl-counter", scope="package", description={}))
    assert result.gross_j is None
    assert "stood still" in (result.reason or "")


def test_a_jump_of_the_counter_is_rejected() -> None:
    samples = _samples()
    _add(samples, 104, 200, 9000)
    result = energy(samples, A, B, meter())
    assert "counter-jump" in result.flags
    assert result.gross_j == pytest.approx(2400)


def test_counter_missing_at_the_start_is_incomplete() -> None:
    samples = _samples()
    _change(samples, "energy_j", 0, 104, None)
    result = energy(samples, A, B, meter())
    assert "counter-incomplete" in result.flags
    assert result.gross_j == pytest.approx(2400)
    assert result.method == "nvml-integral"


def test_zeros_and_glitches_of_power_are_left_out_and_flagged() -> None:
    samples = _samples(counter=None)
    for at_s, value in ((101, 0.0), (102, 0.0), (103, 65535.0), (104, -3.0)):
        _change(samples, "power_w", at_s, at_s + 0.1, value)
    result = energy(samples, A, B, meter())
    assert "power-spikes" in result.flags
    assert result.gross_j == pytest.approx(2400)


def test_power_that_is_always_zero_is_not_an_energy_of_zero() -> None:
    samples = columns(_times(), power_w=np.zeros(_times().size))
    result = energy(samples, A, B, meter())
    assert result.gross_j is None
    assert "not above 0" in (result.reason or "")
    assert "implausible-power" in result.flags


def test_mean_power_above_the_limit_is_refused() -> None:
    samples = read(Sensor(constant(500.0)), _times())
    result = energy(samples, A, B, meter())
    assert result.gross_j is None
    assert "1.1 x the board's limit of 400 W" in (result.reason or "")
    assert energy(samples, A, B, meter(), power_limit_w=700.0).gross_j is not None


def test_no_reading_at_all_gives_the_drivers_words() -> None:
    size = _times().size
    samples = columns(_times())
    samples["error"] = ["power_w: NO_PERMISSION (4); energy_j: NOT_SUPPORTED (3)"] * size
    result = energy(samples, A, B, meter())
    assert result.gross_j is None
    assert result.reason == (
        "no power or energy reading: power_w: NO_PERMISSION (4); energy_j: NOT_SUPPORTED (3)"
    )
    assert result.errors > 80


def test_gaps_lower_the_coverage_and_end_the_integral() -> None:
    samples = _samples(counter=None)
    _change(samples, "power_w", 102, 103, None)
    result = energy(samples, A, B, meter())
    assert result.coverage == pytest.approx(0.875, abs=0.01)
    assert result.period_max_gap_s == pytest.approx(1.1, abs=0.11)
    assert result.gross_j is None
    assert result.reason == "power readings cover 88% of the window"


def test_a_late_first_sample_is_seen_in_the_coverage() -> None:
    """A sampler that starts half a second late has not measured that half second."""
    samples = _samples(counter=None)
    _change(samples, "power_w", 0, 100.5, None)
    result = energy(samples, A, B, meter())
    assert result.coverage == pytest.approx(0.94, abs=0.01)


def test_a_step_of_power_is_where_the_window_says() -> None:
    """The high power before the window must not leak into it."""
    times = sampling_times(A, B, RNG)
    signal = step(380.0, 100.0, 99.9)
    result = energy(read(Sensor(signal), times), A, B, meter())
    assert result.gross_j == pytest.approx(800, rel=0.005)


def test_averaged_power_is_named_as_such() -> None:
    samples = _samples(counter=None)
    samples["power_average_w"], samples["power_w"] = (
        samples["power_w"],
        samples["power_average_w"],
    )
    assert "power-averaged" in energy(samples, A, B, meter()).flags
    plain = meter(description={"power_w_meaning": "mean of 1 s", "update_period_s": 0.1})
    assert "power-averaged" in energy(_samples(counter=None), A, B, plain).flags


def test_a_modelled_figure_says_so_and_claims_no_uncertainty() -> None:
    samples = _samples(counter=None)
    result = energy(samples, A, B, meter(scope="modelled", method="declared-power-model"))
    assert result.modelled
    assert "modelled" in result.flags
    assert result.uncertainty_j is None
    assert result.method == "declared-power-model"


def test_net_energy_needs_an_idle_power_of_the_same_kind() -> None:
    samples = _samples()
    unknown = energy(samples, A, B, meter(), _idle(None))
    assert unknown.net_j is None
    assert "other processes" in (unknown.idle_source or "")
    other = _idle(energy=EnergyResult(scope="module", window_s=30.0))
    assert energy(samples, A, B, meter(), other).flags[-1] == "idle-not-comparable"
    assert energy(samples, A, B, meter(), _idle(), simulated=True).net_j is None
    above = energy(samples, A, B, meter(), _idle(310.0))
    assert above.net_j is None
    assert "net-negative" in above.flags
    assert above.gross_j is not None


@pytest.mark.parametrize(("start_s", "end_s"), [(5.0, 5.0), (6.0, 5.0), (0.0, float("nan"))])
def test_a_window_without_length_has_no_energy(start_s: float, end_s: float) -> None:
    result = energy(_samples(), start_s, end_s, meter())
    assert result.reason == "the window has no length"


def test_a_window_far_from_all_samples_has_no_energy() -> None:
    result = energy(_samples(), 500.0, 508.0, meter())
    assert result.gross_j is None
    assert result.reason is not None


def test_clock_events_and_temperature_of_the_window_are_kept() -> None:
    samples = _samples()
    samples["event_reasons"] = [0x1] * len(samples["t_s"])
    _change(samples, "event_reasons", 102, 104, 0x44)
    samples["temperature_c"] = [40 + (t - 100) for t in samples["t_s"]]
    result = energy(samples, A, B, meter())
    assert 0.1 < result.event_shares["sw_power_cap"] < 0.4
    assert result.event_shares["hw_thermal_slowdown"] == result.event_shares["sw_power_cap"]
    assert "hw_slowdown" not in result.event_shares
    assert result.temperature_max_c == pytest.approx(48, abs=0.1)
    assert result.temperature_drift_c == pytest.approx(5.3, abs=1.0)


def test_rapl_with_a_tick_of_a_millisecond() -> None:
    sensor = Sensor(sawtooth(20.0, 90.0, 0.7), period_s=0.001, window_s=0.001)
    samples = read(sensor, _times(), power=False)
    record = meter(method="rapl-counter", scope="package", description={"update_period_s": 0.001})
    result = energy(samples, A, B, record)
    assert result.gross_j == pytest.approx(55 * 8, rel=0.01)
    assert result.integral_j is None
    assert "tolerance-unknown" in result.flags


# -- properties -------------------------------------------------------------------------------

POWERS = st.lists(st.floats(1.0, 395.0), min_size=2, max_size=12)


def _piecewise(powers: list[float]) -> Sensor:
    edges = np.linspace(97.0, 112.0, len(powers) + 1)
    total = np.concatenate(([0.0], np.cumsum(np.diff(edges) * powers)))
    return Sensor(lambda t: np.interp(t, edges, total), phase=0.37)


@settings(max_examples=40, deadline=None)
@given(powers=POWERS, seed=st.integers(0, 2**31))
def test_the_order_of_the_samples_is_no_matter(powers: list[float], seed: int) -> None:
    samples = read(_piecewise(powers), _times())
    order = np.random.default_rng(seed).permutation(len(samples["t_s"]))
    shuffled = {name: [values[i] for i in order] for name, values in samples.items()}
    assert energy(shuffled, A, B, meter()) == energy(samples, A, B, meter())


@settings(max_examples=40, deadline=None)
@given(powers=POWERS, cut_s=st.floats(102.0, 106.0), counter=st.sampled_from(["exact", None]))
def test_adjacent_windows_add_up(powers: list[float], cut_s: float, counter: Any) -> None:
    sensor = _piecewise(powers)
    sensor.counter = counter
    samples = read(sensor, _times())
    whole, left, right = (
        energy(samples, a, b, meter()) for a, b in ((A, B), (A, cut_s), (cut_s, B))
    )
    assert whole.integral_j == pytest.approx(left.integral_j + right.integral_j, rel=1e-9)
    if counter is not None:
        assert whole.counter_j == pytest.approx(left.counter_j + right.counter_j, rel=1e-9)
    assert whole.gross_j == pytest.approx(left.gross_j + right.gross_j, rel=1e-9)


READING = st.one_of(st.none(), st.floats(-1e6, 1e6))


@settings(max_examples=150, deadline=None)
@given(
    readings=st.lists(st.tuples(st.floats(99.0, 109.0), READING, READING), max_size=60),
    start_s=st.floats(99.0, 108.0),
    length_s=st.floats(0.001, 9.0),
)
def test_energy_is_never_negative_and_never_without_a_reason(
    readings: list[tuple[float, float | None, float | None]], start_s: float, length_s: float
) -> None:
    samples = columns(np.array([t for t, _, _ in readings]))
    samples["power_w"] = [p for _, p, _ in readings]
    samples["energy_j"] = [e for _, _, e in readings]
    result = energy(samples, start_s, start_s + length_s, meter(), _idle())
    for value in (result.gross_j, result.net_j, result.counter_j, result.integral_j):
        assert value is None or value >= 0
    assert (result.gross_j is None) == (result.reason is not None)
    if result.gross_j is not None:
        assert result.gross_j > 0
        assert result.uncertainty_j is not None
        assert result.uncertainty_j >= 0
