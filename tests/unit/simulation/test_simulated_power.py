"""True power and energy against closed forms, and what the sensors make of them."""

from __future__ import annotations

import math
import time
from itertools import pairwise

import pynvml as nv
import pytest

from unit.simulation.simulated import client, clock_shift_s, code, device, field, make, mig_devices
from wattslice.simulation.errors import SimulationError


def test_idle_energy_is_power_times_time(simulate) -> None:
    control = simulate("a100-sxm4-80gb", "a100-sxm4-80gb", mig=False).control()
    now = time.monotonic()
    assert control.true_energy_j(0, now - 100, now) == pytest.approx(5000, abs=1e-6)
    control.set_option(1, "idle_w", 80)
    later = time.monotonic()
    assert control.true_power_w(1, later) == 80
    assert control.true_power_w(0, later) == 50
    with pytest.raises(SimulationError, match="no record"):
        control.true_energy_j(0, now - 4000, now)


def test_waves_integrate_exactly(simulate) -> None:
    control = simulate("a100-sxm4-80gb").control()

    def started(kind, **shape):
        before = time.monotonic()
        control.set_waveform(0, kind, **shape)
        return before, time.monotonic()

    # The start lies between two clock readings, so look from a whole number of periods later.
    started("square", low_w=100, high_w=300, period_s=0.1, duty=0.25)
    t0 = time.monotonic() + 10
    assert control.true_energy_j(0, t0, t0 + 7) == pytest.approx(7 * 150, abs=1e-3)
    assert control.true_energy_j(0, t0, t0 + 7.05) - 7 * 150 == pytest.approx(
        control.true_energy_j(0, t0 + 20, t0 + 20.05), abs=1e-3
    )
    started("sawtooth", low_w=100, high_w=300, period_s=0.5)
    t0 = time.monotonic() + 10
    assert control.true_energy_j(0, t0, t0 + 3) == pytest.approx(3 * 200, abs=1e-3)
    # Riemann sum of the power itself, over a stretch that is no whole number of periods
    n, span = 20000, 0.777
    steps = sum(control.true_power_w(0, t0 + (i + 0.5) * span / n) for i in range(n)) * span / n
    assert control.true_energy_j(0, t0, t0 + span) == pytest.approx(steps, rel=1e-4)
    # A wave above the limit is cut: rising from 300 to 500, above 400 for half of the time
    started("sawtooth", low_w=300, high_w=500, period_s=0.5)
    t0 = time.monotonic() + 10
    assert control.true_energy_j(0, t0, t0 + 3) == pytest.approx(3 * (350 + 400) / 2, abs=1e-3)
    started("square", low_w=300, high_w=500, period_s=0.5, duty=0.5)
    t0 = time.monotonic() + 10
    assert control.true_energy_j(0, t0, t0 + 3) == pytest.approx(3 * 350, abs=1e-3)


def test_trace_and_back_to_activity(simulate) -> None:
    control = simulate("a100-sxm4-80gb").control()
    before = time.monotonic()
    control.set_trace(0, [(0.0, 100.0), (1.0, 350.0), (3.0, 80.0)])
    after = time.monotonic()
    # From the last point on 80 W; before it 100 J + 700 J, whenever exactly it began.
    total = control.true_energy_j(0, before, after + 10)
    slack = (after - before) * 100
    assert total == pytest.approx(100 + 700 + 80 * 7, abs=slack + 0.1)
    assert control.true_power_w(0, after + 2) == 350
    control.set_waveform(0, "none")
    assert control.true_power_w(0, time.monotonic() + 2) == 50
    with pytest.raises(SimulationError):
        control.set_trace(0, [(1.0, 100.0), (0.5, 100.0)])


def test_limit_cuts_a_trace_that_lies_ahead(simulate) -> None:
    def lower():
        nv.nvmlDeviceSetPowerManagementLimit(device(), 200000)

    sim = simulate("a100-sxm4-80gb")
    control = sim.control()
    control.set_trace(0, [(0.0, 100.0), (5.0, 350.0), (10.0, 390.0), (15.0, 90.0)])
    client(sim, lower)
    now = time.monotonic()
    assert [control.true_power_w(0, now + s) for s in (0, 7, 12, 17)] == [100, 200, 200, 90]


def test_power_follows_activity_of_slices(simulate) -> None:
    def run():
        from wattslice.simulation.control import Control

        control = Control.from_environment()
        dev = device()
        for start in range(7):
            make(dev, "1g.10gb", start)
        uuids = [nv.nvmlDeviceGetUUID(m) for m in mig_devices(dev).values()]
        powers = [control.true_power_w(0, time.monotonic())]
        for uuid in uuids:
            control.set_activity(uuid, 1.0)
            powers.append(control.true_power_w(0, time.monotonic()))
        t0 = time.monotonic()
        time.sleep(0.2)
        t1 = time.monotonic()
        energy = control.true_energy_j(0, t0, t1)
        for uuid in uuids:
            control.set_activity(uuid, 0.0)
        powers.append(control.true_power_w(0, time.monotonic()))
        return [powers, energy, t1 - t0]

    powers, energy_j, seconds = client(simulate("a100-sxm4-80gb", mig=True), run)
    idle, peak = 54.0, 420.0

    def model(slices: int) -> float:
        load = slices * 14 / 108
        saturation = (1 - math.exp(-load / 0.2)) / (1 - math.exp(-5))
        return idle + (peak - idle) * (0.85 * load + 0.15 * saturation)

    assert powers[:8] == pytest.approx([min(model(k), 400) for k in range(8)])
    assert powers[8] == idle
    assert energy_j == pytest.approx(powers[7] * seconds, rel=1e-9)
    steps = [b - a for a, b in pairwise(powers[:8])]
    assert steps == sorted(steps, reverse=True)  # the first busy slice costs most
    assert steps[0] > 1.3 * steps[6]


def test_cap_shows_in_power_clocks_and_reasons(simulate) -> None:
    def capped():
        from wattslice.simulation.activity import busy

        dev = device()
        nv.nvmlDeviceSetPowerManagementLimit(dev, 250000)
        idle = [
            nv.nvmlDeviceGetClockInfo(dev, nv.NVML_CLOCK_SM),
            nv.nvmlDeviceGetCurrentClocksEventReasons(dev),
        ]
        with busy(nv.nvmlDeviceGetUUID(dev), 1.0):
            time.sleep(0.25)
            return [
                idle,
                nv.nvmlDeviceGetPowerUsage(dev),
                nv.nvmlDeviceGetClockInfo(dev, nv.NVML_CLOCK_SM),
                nv.nvmlDeviceGetCurrentClocksThrottleReasons(dev),
                nv.nvmlDeviceGetUtilizationRates(dev).gpu,
                field(dev, nv.NVML_FI_DEV_PERF_POLICY_POWER)[1] / 1e9,
                nv.nvmlDeviceGetEnforcedPowerLimit(dev),
            ]

    idle, power_mw, clock, reasons, util, capped_s, limit = client(
        simulate("a100-sxm4-80gb"), capped
    )
    assert idle == [210, 0x1]
    assert power_mw == limit == 250000
    assert 1000 < clock < 1410
    assert reasons == 0x4
    assert util == 100
    assert 0.2 < capped_s < 2


@pytest.mark.parametrize(
    ("board", "plain_window_s", "has_average"),
    [("a100-sxm4-80gb", 0.025, False), ("h100-sxm5-80gb", 1.0, True)],
)
def test_sensors_see_what_the_architecture_lets_them(
    simulate, board, plain_window_s, has_average
) -> None:
    """Every reading equals the true mean over its documented window before its time stamp."""

    def read(plain_window_s):
        from wattslice.simulation.control import Control

        control = Control.from_environment()
        dev = device()
        control.set_waveform(0, "square", low_w=100, high_w=300, period_s=0.13, duty=0.5)
        time.sleep(1.1)
        shift = clock_shift_s()
        rows = []
        for _ in range(12):
            time.sleep(0.047)
            rc, instant_mw, stamp_us = field(dev, nv.NVML_FI_DEV_POWER_INSTANT)
            average = field(dev, nv.NVML_FI_DEV_POWER_AVERAGE)[:2]
            plain_mw = nv.nvmlDeviceGetPowerUsage(dev)
            at = stamp_us / 1e6 - shift

            def mean_mw(window_s, at=at):
                return control.true_energy_j(0, at - window_s, at) / window_s * 1e3

            rows.append(
                [
                    rc,
                    instant_mw - mean_mw(0.025),
                    plain_mw - mean_mw(plain_window_s),
                    average[0],
                    average[1] - mean_mw(1.0),
                    time.monotonic() - at,
                    instant_mw,
                ]
            )
        return rows

    rows = client(simulate(board), read, plain_window_s)
    # The clock shift is known to some microseconds only; 200 W / 25 ms make 1 us 8 mW.
    for rc, instant, plain, average_rc, average, age_s, _ in rows:
        assert rc == 0
        assert abs(instant) < 4000
        # a refresh can fall between the two calls; then the plain reading is of the next window
        assert abs(plain) < 4000 or age_s > 0.09
        if has_average:
            assert average_rc == 0
            assert abs(average) < 4000 or age_s > 0.09
        else:
            assert average_rc == nv.NVML_ERROR_NOT_SUPPORTED
        assert 0 <= age_s < 0.15
    assert len({row[-1] for row in rows}) > 2  # 130 ms against 100 ms: different windows


def test_sensor_that_sees_a_quarter_is_fooled_by_a_10_hz_load(simulate) -> None:
    def alias():
        from wattslice.simulation.control import Control

        dev = device()
        control = Control.from_environment()
        control.set_waveform(0, "square", low_w=100, high_w=300, period_s=0.1, duty=0.5)
        time.sleep(0.25)
        readings, ends = [], []
        for _ in range(8):
            time.sleep(0.1)
            readings.append(nv.nvmlDeviceGetPowerUsage(dev) / 1e3)
        t1 = time.monotonic()
        ends = control.true_energy_j(0, t1 - 0.5, t1) / 0.5
        return [readings, ends]

    readings, truth_w = client(simulate("a100-sxm4-80gb"), alias)
    assert truth_w == pytest.approx(200, abs=1e-3)
    assert max(readings) - min(readings) < 1e-3  # always the same part of the wave
    assert 100 <= readings[0] <= 300


def test_step_reaches_the_average_field_after_a_second(simulate) -> None:
    def step():
        from wattslice.simulation.control import Control

        dev = device()
        Control.from_environment().set_waveform(0, "constant", low_w=570)
        begun = time.monotonic()
        rows = []
        for wait in (0.3, 0.3, 0.6):
            time.sleep(wait)
            instant = field(dev, nv.NVML_FI_DEV_POWER_INSTANT)[1] / 1e3
            plain = nv.nvmlDeviceGetPowerUsage(dev) / 1e3
            rows.append([time.monotonic() - begun, instant, plain])
        return rows

    for elapsed_s, instant_w, plain_w in client(simulate("h100-sxm5-80gb"), step):
        assert instant_w == 570
        low, high = (70 + 500 * min(1, max(0, elapsed_s - d)) for d in (0.13, 0.0))
        assert low - 1 <= plain_w <= high + 1


def test_counter_counts_true_energy_in_steps(simulate) -> None:
    def count(period_s):
        from wattslice.simulation.control import Control

        control = Control.from_environment()
        dev = device()
        control.set_waveform(0, "constant", low_w=300)
        time.sleep(0.15)
        t0, first = time.monotonic(), nv.nvmlDeviceGetTotalEnergyConsumption(dev)
        values = []
        while time.monotonic() < t0 + 0.55:
            values.append(nv.nvmlDeviceGetTotalEnergyConsumption(dev))
            time.sleep(0.004)
        t1, last = time.monotonic(), nv.nvmlDeviceGetTotalEnergyConsumption(dev)
        steps = {b - a for a, b in pairwise(values) if b != a}
        truth = control.true_energy_j(0, t0, t1)
        agree = field(dev, 83)[1] - field(dev, 191)[1]
        return [(last - first) / 1e3, truth, sorted(steps), agree]

    for period_ms in (100, 20):
        scenario = {"options": [{"counter_period_ms": period_ms}]}
        counted, truth, steps, agree = client(
            simulate("a100-sxm4-80gb", scenario=scenario), count, period_ms / 1e3
        )
        tick_j = 300 * period_ms / 1e3
        assert abs(counted - truth) <= tick_j + 0.01
        assert agree in (0, -tick_j * 1e3)
        multiples = [step / (tick_j * 1e3) for step in steps]
        assert all(abs(m - round(m)) < 1e-3 for m in multiples)
        assert round(multiples[0]) == 1


def test_sensor_errors_are_gain_and_offset(simulate) -> None:
    def read():
        dev = device()
        e0 = nv.nvmlDeviceGetTotalEnergyConsumption(dev)
        time.sleep(1.0)
        e1 = nv.nvmlDeviceGetTotalEnergyConsumption(dev)
        return [nv.nvmlDeviceGetPowerUsage(dev), e1 - e0]

    scenario = {
        "options": [{"sensor_gain": 0.9, "sensor_offset_w": 5, "idle_w": 200, "counter_gain": 0.5}]
    }
    power_mw, counted_mj = client(simulate("a100-sxm4-80gb", scenario=scenario), read)
    assert power_mw == 185000
    assert counted_mj == pytest.approx(185000 / 2, rel=0.12)  # a period of 100 ms in 1 s


def test_module_meter_answers_for_the_module(simulate) -> None:
    def scopes():
        dev = device()
        return [
            [field(dev, 186, scope)[:2] for scope in (0, 1, 2)],
            field(dev, 191, 1)[0],
            nv.nvmlDeviceGetC2cModeInfoV(dev).isC2cEnabled,
            nv.nvmlDeviceGetPowerUsage(dev),
        ]

    found = client(simulate("gh200-96gb"), scopes)
    assert found == [[[3, 0], [0, 180000], [3, 0]], 0, 1, 180000]
    assert client(simulate("h200-sxm-141gb"), scopes)[0] == [[0, 75000], [3, 0], [3, 0]]


def test_power_samples_are_a_ring_of_past_readings(simulate) -> None:
    def samples():
        dev = device()
        kind, all_of_them = nv.nvmlDeviceGetSamples(dev, nv.NVML_TOTAL_POWER_SAMPLES, 0)
        stamps = [s.timeStamp for s in all_of_them]
        newer = nv.nvmlDeviceGetSamples(dev, 0, stamps[-11])[1]
        return [
            kind,
            len(stamps),
            {b - a for a, b in pairwise(stamps)} == {100000},
            all_of_them[-1].sampleValue.uiVal,
            len(newer) in (10, 11, 12),
            code(nv.nvmlDeviceGetSamples, dev, nv.NVML_GPU_UTILIZATION_SAMPLES, 0),
        ]

    found = client(simulate("a100-sxm4-80gb", mig=True), samples)
    assert found == [1, 120, True, 54000, True, nv.NVML_ERROR_NOT_SUPPORTED]


def test_temperature_approaches_with_its_time_constant(simulate) -> None:
    def heat():
        from wattslice.simulation.control import Control

        dev = device()
        first = nv.nvmlDeviceGetTemperature(dev, 0)
        Control.from_environment().set_waveform(0, "constant", low_w=400)
        time.sleep(0.5)
        return [first, nv.nvmlDeviceGetTemperature(dev, 0), nv.nvmlDeviceGetTemperatureV(dev, 0)]

    scenario = {"options": [{"heat_tau_s": 0.5, "ambient_c": 30, "heat_c_per_w": 0.1}]}
    first, middle, versioned = client(simulate("a100-sxm4-80gb", scenario=scenario), heat)
    # Made at idle with the model's own heat resistance, then 0.1 K/W towards 70 degrees
    assert 33 <= first <= 36
    assert 50 <= middle <= 66
    assert abs(versioned - middle) <= 1


def test_gpm_gives_the_activity_of_one_instance(simulate) -> None:
    def gpm():
        from wattslice.simulation.control import Control

        control = Control.from_environment()
        dev = device()
        make(dev, "3g.40gb", 0)
        make(dev, "3g.40gb", 4)
        one, other = mig_devices(dev).values()
        control.set_activity(nv.nvmlDeviceGetUUID(one), 0.8)

        def take():
            result = []
            for get in (
                lambda s: nv.nvmlGpmMigSampleGet(dev, 1, s),
                lambda s: nv.nvmlGpmMigSampleGet(dev, 2, s),
                lambda s: nv.nvmlGpmSampleGet(one, s),
                lambda s: nv.nvmlGpmSampleGet(dev, s),
            ):
                sample = nv.nvmlGpmSampleAlloc()
                get(sample)
                result.append(sample)
            return result

        first = take()
        time.sleep(0.2)
        second = take()
        values = []
        for a, b in zip(first, second, strict=True):
            request = nv.c_nvmlGpmMetricsGet_t()
            request.version = nv.NVML_GPM_METRICS_GET_VERSION
            request.numMetrics = 2
            request.sample1, request.sample2 = a, b
            request.metrics[0].metricId = nv.NVML_GPM_METRIC_SM_UTIL
            request.metrics[1].metricId = nv.NVML_GPM_METRIC_FP64_UTIL
            nv.nvmlGpmMetricsGet(request)
            values.append([request.metrics[0].value, request.metrics[1].nvmlReturn])
        missing = code(nv.nvmlGpmMigSampleGet, dev, 9, nv.nvmlGpmSampleAlloc())
        support = nv.nvmlGpmQueryDeviceSupport(dev).isSupportedDevice
        return [values, missing, support, nv.nvmlDeviceGetGpuInstanceId(other)]

    values, missing, support, _ = client(simulate("h100-sxm5-80gb", mig=True), gpm)
    assert [row[1] for row in values] == [nv.NVML_ERROR_NOT_SUPPORTED] * 4
    board = 100 * 0.8 * 60 / 132
    assert [row[0] for row in values] == pytest.approx([80, 0, 80, board], abs=0.01)
    assert missing == nv.NVML_ERROR_NOT_FOUND
    assert support == 1


def test_true_energy_is_additive_and_the_integral_of_true_power(simulate) -> None:
    """Whatever the sequence of activities, limits and scripts was."""

    def wander(seed):
        import random

        from wattslice.simulation.control import Control

        chance = random.Random(seed)
        control = Control.from_environment()
        dev = device()
        uuid = nv.nvmlDeviceGetUUID(dev)
        t0 = time.monotonic()
        for _ in range(40):
            kind = chance.choice(["activity", "limit", "square", "sawtooth", "none", "trace"])
            low = chance.uniform(60, 300)
            high = low + chance.uniform(0, 250)
            if kind == "activity":
                control.set_activity(uuid, chance.random())
            elif kind == "limit":
                nv.nvmlDeviceSetPowerManagementLimit(dev, chance.randrange(100000, 400000))
            elif kind == "trace":
                control.set_trace(0, [(0.002 * i, chance.uniform(60, 500)) for i in range(9)])
            elif kind == "none":
                control.set_waveform(0, "none")
            else:
                period = chance.uniform(0.001, 0.02)
                control.set_waveform(0, kind, low_w=low, high_w=high, period_s=period)
            time.sleep(chance.uniform(0, 0.02))
        t1 = time.monotonic()
        cuts = sorted([t0, t1, *(chance.uniform(t0, t1) for _ in range(50))])
        parts = sum(control.true_energy_j(0, a, b) for a, b in pairwise(cuts))
        whole = control.true_energy_j(0, t0, t1)
        n = 15000
        steps = [control.true_power_w(0, t0 + (i + 0.5) * (t1 - t0) / n) for i in range(n)]
        return [whole, parts, sum(steps) * (t1 - t0) / n, max(steps)]

    for seed in range(3):
        whole, parts, riemann, highest = client(simulate("a100-sxm4-80gb"), wander, seed)
        assert parts == pytest.approx(whole, abs=1e-6)
        assert riemann == pytest.approx(whole, rel=4e-3)
        assert highest <= 400


def test_long_runs_forget_old_power_but_not_the_counter(simulate) -> None:
    def long_run():
        from wattslice.simulation.control import Control
        from wattslice.simulation.errors import SimulationError

        control = Control.from_environment()
        dev = device()
        uuid = nv.nvmlDeviceGetUUID(dev)
        begun = time.monotonic()
        first = nv.nvmlDeviceGetTotalEnergyConsumption(dev)
        for i in range(70000):
            control.set_activity(uuid, i % 2)
        recent = time.monotonic()
        try:
            control.true_energy_j(0, begun, recent)
            forgotten = False
        except SimulationError:
            forgotten = True
        time.sleep(0.2)
        now = time.monotonic()
        return [
            forgotten,
            control.true_energy_j(0, recent, now) / (now - recent),
            (nv.nvmlDeviceGetTotalEnergyConsumption(dev) - first) / 1e3 / (now - begun),
        ]

    forgotten, recent_w, counted_w = client(simulate("a100-sxm4-80gb"), long_run)
    assert forgotten
    assert recent_w == pytest.approx(400)  # ended with activity 1
    assert 50 < counted_w < 400
