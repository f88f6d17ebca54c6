"""The sensors of an NVIDIA board, with everything that can be missing or go wrong."""

import time

import pytest
from nvidia_sim import A100, H100, on_simulator

from wattslice.boards.base import BoardLostError
from wattslice.boards.nvidia import nvml
from wattslice.boards.nvidia.power import NvmlPowerSource, energy_capability, sensor_facts


def source(sim, board=0):
    nvml.ensure_open()
    uuid = sim.uuid(board)
    power = NvmlPowerSource(uuid, nvml.name(nvml.device_by_uuid(uuid)))
    power.open()
    return power


@on_simulator(mig_on=False)
def test_one_reading_has_power_energy_and_what_explains_them(sim):
    sample = source(sim).read().sample()
    assert 40 < sample.power_w < 60
    assert sample.energy_j > 0
    assert sample.temperature_c > 20
    assert sample.sm_clock_mhz > 0
    assert sample.memory_clock_mhz > 0
    assert sample.utilisation == 0.0  # a value, not a missing one
    assert sample.event_reasons == 1  # idle
    assert sample.error is None
    assert 0 < sample.call_s < 0.1
    assert abs(sample.t_s - time.monotonic()) < 1


@on_simulator(f"{A100},{H100}")
def test_t42_the_instant_field_is_read_and_what_it_means_is_stated_by_generation(sim):
    a100, h100 = source(sim, 0), source(sim, 1)
    assert a100.read().sample().power_average_w is None
    assert "NOT_SUPPORTED (3)" in a100.describe()["missing"]["power_average_w"]
    assert a100.describe()["power_w"] == "field 186 scope 0"
    assert h100.read().sample().power_average_w > 0
    assert h100.describe()["power_average_w_meaning"] == "mean of 1 s"
    for power in (a100, h100):
        assert power.describe()["update_period_s"] == pytest.approx(0.1, abs=0.002)
        assert "2312.02741" in power.describe()["source"]


@on_simulator()
def test_absent_is_not_zero_with_mig_on(sim):
    sample = source(sim).read().sample()
    assert sample.utilisation is None
    assert sample.error is None  # known to be missing since the start, so no error each time


@on_simulator("gh200-96gb")
def test_t51_s8_a_superchip_without_gpu_scope_is_measured_as_a_module_and_says_so(sim):
    sim.option("gpu_scope", 0)
    power = source(sim)
    assert power.scope == "module"
    assert "module" in power.describe()["covers"]
    sample = power.read().sample()
    assert sample.power_w > 0
    assert sample.energy_j is not None


@on_simulator()
def test_t37_s1_without_counter_power_alone_is_measured_and_named(sim):
    for field in ("field:83", "field:191", "nvmlDeviceGetTotalEnergyConsumption"):
        sim.fault(field, 3)
    power = source(sim)
    assert power.method == "nvml-power"
    sample = power.read().sample()
    assert sample.energy_j is None
    assert sample.power_w > 0
    assert "NOT_SUPPORTED" in power.describe()["missing"]["energy_j"]


@on_simulator()
def test_s2_neither_counter_nor_power_is_no_energy_with_the_reason(sim):
    from wattslice.boards.nvidia.board import NvidiaBoard

    sim.fault("nvmlDeviceGetFieldValues", 3)
    sim.fault("nvmlDeviceGetPowerUsage", 4)
    sim.fault("nvmlDeviceGetTotalEnergyConsumption", 3)
    board = NvidiaBoard(sim.uuid())
    assert board.power_source() is None
    energy = board.capabilities().energy
    assert energy.scope is None
    # No permission and not supported are two reasons, and neither is 0 W.
    assert "NO_PERMISSION (4)" in energy.reason
    assert "NOT_SUPPORTED (3)" in energy.reason


@on_simulator()
def test_a_driver_without_field_values_is_read_by_the_plain_calls(sim):
    sim.fault("nvmlDeviceGetFieldValues", 13)
    power = source(sim)
    sample = power.read().sample()
    assert sample.power_w > 0
    assert sample.energy_j > 0
    assert power.describe()["power_w"] == "nvmlDeviceGetPowerUsage"
    assert "plain power call" in power.describe()["missing"]["power_w"]


@on_simulator()
def test_t43_s4_a_late_error_is_reported_in_its_sample_and_is_no_number(sim):
    power = source(sim)
    sim.fault("field:83", 999)
    sim.fault("nvmlDeviceGetTemperature*", 27)
    sample = power.read().sample()
    assert sample.energy_j is None
    assert sample.power_w > 0
    assert "energy_j: UNKNOWN (999)" in sample.error
    assert "temperature_c: NOT_READY (27)" in sample.error
    sim.clear_faults()
    time.sleep(0.05)
    later = power.read().sample()
    assert later.error is None
    assert later.energy_j > 0


@on_simulator()
def test_a_call_that_fails_as_a_whole_names_all_its_readings(sim):
    power = source(sim)
    sim.fault("nvmlDeviceGetFieldValues", 10)
    sample = power.read().sample()
    assert (sample.power_w, sample.energy_j) == (None, None)
    assert sample.error.count("TIMEOUT (10)") == 2


@pytest.mark.parametrize("code", [15, 16])
def test_lost_codes_are_lost_boards(code):
    from wattslice.boards.nvidia.nvml_errors import NvmlGpuLostError, error_for

    assert isinstance(error_for(code, "call"), NvmlGpuLostError)


@on_simulator()
def test_a_board_that_is_lost_while_sampling_stops_it(sim):
    power = source(sim)
    power.read()
    sim.fault("nvmlDeviceGetFieldValues", 15)
    with pytest.raises(BoardLostError, match=r"GPU_IS_LOST \(15\)"):
        power.read()


@on_simulator()
def test_a_board_whose_fields_alone_say_that_it_is_lost_is_known_within_a_second(sim):
    from wattslice.boards.nvidia import power as module

    module._SLOW_PERIOD_S = 0.04  # this process is the test's own
    power = source(sim)
    power.read()
    sim.fault("field:186", 15)
    assert "GPU_IS_LOST (15)" in power.read().sample().error
    time.sleep(0.05)
    with pytest.raises(BoardLostError, match=r"power_w: GPU_IS_LOST \(15\)"):
        power.read()


@on_simulator()
def test_a_board_that_is_lost_before_sampling_is_said_when_opening(sim):
    nvml.ensure_open()
    power = NvmlPowerSource(sim.uuid(), "x")
    sim.fault("nvmlDevice*", 15)
    with pytest.raises(BoardLostError):
        power.open()


@on_simulator()
def test_a_source_that_is_not_open_says_so(sim):
    power = source(sim)
    power.close()
    with pytest.raises(BoardLostError, match="not open"):
        power.read()


@on_simulator()
def test_t63_zero_watts_is_a_value(sim):
    sim.option("sensor_gain", 0)
    power = source(sim)
    assert power.scope == "board"
    assert power.read().sample().power_w == 0.0


@on_simulator()
def test_t22_t26_a_mig_handles_power_is_never_asked_for(sim):
    from wattslice.boards.nvidia.board import NvidiaBoard
    from wattslice.config.layout import Layout

    sim.option("mig_power", 1)  # a driver that gives the parent's number
    board = NvidiaBoard(sim.uuid(), "managed")
    slices = board.ensure(Layout.parse("3g+3g")).slices
    assert all(not hasattr(s, "power_w") for s in slices)
    with pytest.raises(nvml.NvmlInvalidArgumentError, match="not a board"):
        nvml.device_by_uuid(slices[0].uuid)


@on_simulator(H100, mig_on=False)
def test_t44_slow_sensors_are_read_once_a_second(sim):
    from wattslice.boards.nvidia import power as module

    assert 0.9 <= module._SLOW_PERIOD_S <= 1.0
    module._SLOW_PERIOD_S = 0.04  # this process is the test's own
    power = source(sim)
    first, second = power.read().sample(), power.read().sample()
    assert first.temperature_c is not None
    assert second.temperature_c is None
    assert second.power_w is not None
    time.sleep(0.05)
    assert power.read().sample().temperature_c is not None


@on_simulator()
def test_the_sampler_can_open_the_source_in_its_own_thread(sim):
    import threading

    power = NvmlPowerSource(sim.uuid(), "x")
    found = []

    def sample():
        power.open()
        found.append(power.read().sample())
        power.close()

    thread = threading.Thread(target=sample)
    thread.start()
    thread.join()
    assert found[0].power_w > 0


@on_simulator()
def test_t56_nvml_works_in_a_forked_child(sim):
    import os

    nvml.ensure_open()
    assert energy_capability(nvml.device_by_uuid(sim.uuid())).scope == "board"
    pid = os.fork()
    if pid == 0:
        try:
            ok = source(sim).read().sample().power_w > 0
        finally:
            os._exit(0 if ok else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_unknown_generations_claim_nothing_about_their_sensor():
    facts = sensor_facts("architecture-11", (13, 0))
    assert facts.update_period_s is None
    assert facts.instant == "not published"


@pytest.mark.parametrize("answer", [0, 1])
def test_t26_a_mig_handles_power_is_recorded_and_never_the_instances(answer, tmp_path):
    from nvidia_sim import finish, start

    finish(start(_t26, tmp_path, A100, True, {"answer": answer}))


def _t26(sim, answer):
    from wattslice.boards.nvidia.board import NvidiaBoard
    from wattslice.config.layout import Layout

    sim.option("mig_power", answer)  # 1: a driver that gives the parent's number
    board = NvidiaBoard(sim.uuid(), "managed")
    assert source(sim).describe()["mig_handle"] == {}
    slices = board.ensure(Layout.parse("3g+3g")).slices
    sim.control.set_activity(slices[0].uuid, 1.0)
    time.sleep(0.25)
    power = board.power_source()
    power.open()
    said = power.describe()["mig_handle"]
    for name in ("power", "energy"):
        if answer:
            assert said[name].endswith("not the instance's, and not used")
        else:
            assert said[name] == "NOT_SUPPORTED (3)"
    assert power.scope == "board"
    # An idle and a busy instance: only the board's own reading is ever taken.
    assert power.read().sample().power_w == pytest.approx(
        sim.control.true_power_w(0, time.monotonic()), rel=0.05
    )


@on_simulator()
def test_t32_processes_on_sibling_instances_are_seen_before_and_after(sim):
    from wattslice.boards.nvidia.board import NvidiaBoard
    from wattslice.config.layout import Layout

    board = NvidiaBoard(sim.uuid(), "managed")
    state = board.ensure(Layout.parse("3g+2g+1g"))
    # The layout's record has every instance, whether it is the run's or not.
    assert [s.profile for s in state.slices] == ["3g.40gb", "2g.20gb", "1g.10gb"]
    assert board.health().foreign_processes == ()
    sim.process(state.slices[1].uuid, 4_000_007)
    assert any(p.startswith("4000007 ") for p in board.health().foreign_processes)
    sim.no_process(4_000_007)
    assert board.health().foreign_processes == ()
