"""Every scripted fault does what the scenario says, and only that."""

from __future__ import annotations

import json
import time

import pynvml as nv
import pytest

from unit.simulation.simulated import client, code, device, field, make, mig_devices
from wattslice.simulation.errors import SimulationError, parse_code
from wattslice.simulation.faults import check_scenario, read_scenario


def test_code_from_call_k_to_m(simulate) -> None:
    def calls():
        dev = device()
        return [code(nv.nvmlDeviceGetTotalEnergyConsumption, dev) for _ in range(7)]

    fault = {
        "function": "nvmlDeviceGetTotalEnergyConsumption",
        "code": "NOT_SUPPORTED",
        "from_call": 3,
        "to_call": 5,
    }
    sim = simulate("a30", scenario={"faults": [fault]})
    assert client(sim, calls) == [0, 0, 3, 3, 3, 0, 0]
    assert client(sim, calls) == [0] * 7  # calls are counted over all processes


def test_calls_are_counted(simulate) -> None:
    def calls():
        dev = device()
        for _ in range(5):
            nv.nvmlDeviceGetPowerUsage(dev)

    sim = simulate("a30")
    fault = sim.control().add_fault("nvmlDeviceGetPower*", delay_ms=0.1)
    client(sim, calls)
    assert sim.control().fault_calls(fault) == 5
    sim.control().clear_faults()
    with pytest.raises(SimulationError, match="NOT_FOUND"):
        sim.control().fault_calls(fault)


def test_code_between_times(simulate) -> None:
    def poll():
        dev = device()
        t0 = time.monotonic()
        rows = []
        while time.monotonic() < t0 + 1.2:
            before = time.monotonic()
            rows.append([before, code(nv.nvmlDeviceGetPowerUsage, dev), time.monotonic()])
            time.sleep(0.01)
        return rows

    fault = {"function": "nvmlDeviceGetPowerUsage", "code": 999, "after_s": 0.6, "until_s": 0.9}
    before = time.monotonic()
    sim = simulate("a30", scenario={"faults": [fault]})
    made = time.monotonic()
    rows = client(sim, poll)
    certain = [c for b, c, a in rows if made + 0.6 < b and a < before + 0.9]
    outside = [c for b, c, a in rows if a < before + 0.6 or b > made + 0.9]
    assert certain
    assert set(certain) == {999}
    assert set(outside) == {0}


def test_wildcard_one_board_one_kind_of_handle(simulate) -> None:
    def look():
        result = []
        for index in (0, 1):
            dev = device(index)
            make(dev, "1g.10gb", 0)
            (mig,) = mig_devices(dev).values()
            result.append([code(nv.nvmlDeviceGetMemoryInfo, d) for d in (dev, mig)])
            result.append([code(nv.nvmlDeviceGetClockInfo, dev, 0)])
        return result

    fault = {"board": 1, "function": "nvmlDeviceGetMemory*", "code": 4, "target": "gpu"}
    sim = simulate("a100-sxm4-80gb", "a100-sxm4-80gb", mig=True, scenario={"faults": [fault]})
    assert client(sim, look) == [[0, 0], [0], [4, 0], [0]]


def test_one_field_value(simulate) -> None:
    def fields():
        dev = device()
        return [[field(dev, f)[0] for f in (83, 186, 191)] for _ in range(2)]

    fault = {"function": "field:186", "code": "NOT_SUPPORTED", "from_call": 2}
    sim = simulate("a30", scenario={"faults": [fault]})
    assert client(sim, fields) == [[0, 0, 0], [0, 3, 0]]


def test_counter_and_power_not_supported(simulate) -> None:
    def read():
        dev = device()
        return [
            code(nv.nvmlDeviceGetTotalEnergyConsumption, dev),
            code(nv.nvmlDeviceGetPowerUsage, dev),
            [field(dev, f)[0] for f in (83, 185, 186)],
        ]

    faults = [
        {"function": name, "code": "NOT_SUPPORTED"}
        for name in (
            "nvmlDeviceGetTotalEnergyConsumption",
            "nvmlDeviceGetPowerUsage",
            "field:83",
            "field:18[56]",
        )
    ]
    assert client(simulate("h100-sxm5-80gb", scenario={"faults": faults}), read) == [3, 3, [3] * 3]


def test_slow_calls_delay_their_caller_only(simulate) -> None:
    def slow(times):
        dev = device()
        result = []
        for _ in range(times):
            t0 = time.monotonic()
            nv.nvmlDeviceGetPowerUsage(dev)
            t1 = time.monotonic()
            nv.nvmlDeviceGetTemperature(dev, 0)
            result.append([t1 - t0, time.monotonic() - t1])
        return result

    fault = {"function": "nvmlDeviceGetPowerUsage", "delay_ms": 80, "to_call": 2}
    sim = simulate("a30", scenario={"faults": [fault]})
    first, second, third = client(sim, slow, 3)
    assert first[0] > 0.08
    assert second[0] > 0.08
    assert max(third[0], first[1], second[1], third[1]) < 0.05


def test_counter_restarts_at_a_time(simulate) -> None:
    def count():
        dev = device()
        rows = []
        for _ in range(12):
            rows.append(nv.nvmlDeviceGetTotalEnergyConsumption(dev))
            time.sleep(0.1)
        return rows

    scenario = {"options": [{"counter_reset_s": 0.6, "idle_w": 300}]}
    rows = client(simulate("a100-sxm4-80gb", scenario=scenario), count)
    drops = [i for i in range(1, 12) if rows[i] < rows[i - 1]]
    assert len(drops) == 1
    assert rows[0] > 1e8
    assert 0 <= rows[drops[0]] < 100_000
    assert rows[-1] > rows[drops[0]]


def test_counter_freezes_at_a_time_while_power_goes_on(simulate) -> None:
    def count():
        dev = device()
        time.sleep(0.5)
        values = []
        for _ in range(5):
            values.append(nv.nvmlDeviceGetTotalEnergyConsumption(dev))
            time.sleep(0.1)
        return [len(set(values)), nv.nvmlDeviceGetPowerUsage(dev)]

    scenario = {"options": [{"counter_freeze_s": 0.2}]}
    assert client(simulate("a100-sxm4-80gb", scenario=scenario), count) == [1, 50000]


def test_driver_and_library_do_not_match(simulate) -> None:
    def initialise():
        return [code(nv.nvmlInit), code(nv.nvmlDeviceGetCount)]

    scenario = {"faults": [{"function": "nvmlInit*", "code": "LIB_RM_VERSION_MISMATCH"}]}
    assert client(simulate("a30", scenario=scenario), initialise) == [18, 1]


def test_versions_can_be_chosen_and_are_none_of_a_release(simulate) -> None:
    def versions():
        nv.nvmlInit()
        return [
            nv.nvmlSystemGetDriverVersion(),
            nv.nvmlSystemGetNVMLVersion(),
            nv.nvmlSystemGetCudaDriverVersion(),
        ]

    assert client(simulate("a30"), versions) == ["580.999.01", "13.580.999.01", 13000]
    scenario = {"versions": {"driver": "470.999.01", "cuda": 11040}}
    found = client(simulate("a30", scenario=scenario), versions)
    assert found == ["470.999.01", "13.580.999.01", 11040]


def test_lost_board_fails_everywhere_and_sends_its_xid(simulate) -> None:
    def lose():
        events = nv.nvmlEventSetCreate() if not nv.nvmlInit() else None
        one, two = nv.nvmlDeviceGetHandleByIndex(0), nv.nvmlDeviceGetHandleByIndex(1)
        nv.nvmlDeviceRegisterEvents(one, nv.nvmlEventTypeXidCriticalError, events)
        before = code(nv.nvmlDeviceGetPowerUsage, one)
        event = nv.nvmlEventSetWait_v2(events, 2000)
        return [
            before,
            [event.eventType, event.eventData],
            [
                code(f, one)
                for f in (nv.nvmlDeviceGetPowerUsage, nv.nvmlDeviceGetName, nv.nvmlDeviceGetMigMode)
            ],
            code(nv.nvmlDeviceGetPowerUsage, two),
            code(nv.nvmlEventSetWait_v2, events, 20),
        ]

    scenario = {"options": [{"board": 0, "lost_s": 0.8}]}
    found = client(simulate("a30", "a30", scenario=scenario), lose)
    assert found == [0, [8, 79], [15, 15, 15], 0, nv.NVML_ERROR_TIMEOUT]


def test_events_of_mig_changes_and_other_xids(simulate) -> None:
    def listen():
        from wattslice.simulation.control import Control

        dev = device()
        events = nv.nvmlEventSetCreate()
        supported = nv.nvmlDeviceGetSupportedEventTypes(dev)
        nv.nvmlDeviceRegisterEvents(dev, supported, events)
        nv.nvmlDeviceCreateGpuInstance(dev, 19)
        first = nv.nvmlEventSetWait_v2(events, 100).eventType
        Control.from_environment().post_xid(0, 48)
        second = nv.nvmlEventSetWait_v2(events, 100)
        refused = code(nv.nvmlDeviceRegisterEvents, dev, nv.nvmlEventTypeClock, events)
        nv.nvmlEventSetFree(events)
        return [first, second.eventData, refused]

    found = client(simulate("a100-sxm4-80gb", mig=True), listen)
    assert found == [nv.nvmlEventMigConfigChange, 48, nv.NVML_ERROR_NOT_SUPPORTED]


def test_foreign_process_and_busy_destroy(simulate) -> None:
    def look():
        dev = device()
        listed = [
            [p.pid, p.usedGpuMemory >> 20] for p in nv.nvmlDeviceGetComputeRunningProcesses(dev)
        ]
        return [
            listed,
            nv.nvmlDeviceSetMigMode(dev, 1),
            nv.nvmlDeviceGetMemoryInfo(dev, nv.nvmlMemory_v2).used >> 20,
        ]

    scenario = {"processes": [{"board": 0, "pid": 31337, "memory_mib": 700, "activity": 0.5}]}
    sim = simulate("a100-sxm4-80gb", scenario=scenario)
    assert client(sim, look) == [[[31337, 700]], nv.NVML_ERROR_IN_USE, 700]
    assert sim.control().true_power_w(0, time.monotonic()) > 200


def test_destroy_is_in_use_n_times_without_any_process(simulate) -> None:
    def destroy():
        dev = device()
        gi = nv.nvmlDeviceCreateGpuInstance(dev, 19)
        return [code(nv.nvmlGpuInstanceDestroy, gi) for _ in range(4)]

    fault = {"function": "nvmlGpuInstanceDestroy", "code": "IN_USE", "to_call": 3}
    sim = simulate("a100-sxm4-80gb", mig=True, scenario={"faults": [fault]})
    assert client(sim, destroy) == [19, 19, 19, 0]


def test_power_call_on_a_slice_may_give_the_whole_board(simulate) -> None:
    def powers():
        dev = device()
        make(dev, "1g.10gb", 0)
        (mig,) = mig_devices(dev).values()
        return [nv.nvmlDeviceGetPowerUsage(d) for d in (dev, mig)] + [field(mig, 186)[:2]]

    scenario = {"options": [{"mig_power": 1}]}
    found = client(simulate("a100-sxm4-80gb", mig=True, scenario=scenario), powers)
    assert found == [54000, 54000, [0, 54000]]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([], "JSON object"),
        ({"fault": []}, "did you mean faults"),
        ({"faults": {}}, "is a list"),
        ({"faults": [{"code": 3}]}, "names no function"),
        ({"faults": [{"function": "nvmlInit"}]}, "neither code nor delay_ms"),
        ({"faults": [{"function": "nvmlInit", "code": "IN_USED"}]}, "did you mean IN_USE"),
        ({"faults": [{"function": "x", "code": 3, "boards": 1}]}, "did you mean board"),
        ({"faults": [{"function": "x", "code": 3, "board": -1}]}, "board is a number"),
        ({"faults": [{"function": "x", "code": 3, "to_call": 1.5}]}, "to_call cannot be"),
        ({"faults": [{"function": "x", "code": 3, "target": "gi"}]}, "target is one of"),
        ({"options": [{"idle": 3}]}, "did you mean idle_mig_w or idle_w"),
        ({"options": [{"idle_w": "3"}]}, "is a number"),
        ({"waveforms": [{"kind": "sine"}]}, "kind is one of"),
        ({"versions": {"os": 1}}, "versions has the keys"),
    ],
)
def test_bad_scenarios_are_refused_with_the_place(data, message) -> None:
    with pytest.raises(SimulationError, match=message):
        check_scenario(data)


def test_scenario_file_is_named_in_errors(tmp_path) -> None:
    path = tmp_path / "faults.json"
    with pytest.raises(SimulationError, match=r"cannot read .*faults\.json"):
        read_scenario(path)
    path.write_text("{")
    with pytest.raises(SimulationError, match=r"cannot read .*faults\.json"):
        read_scenario(path)
    path.write_text(json.dumps({"options": [{"idle": 1}]}))
    with pytest.raises(SimulationError, match=r"faults\.json: options\[0\]: unknown option"):
        read_scenario(path)


def test_codes_by_name_and_number() -> None:
    assert [parse_code(c) for c in (19, "IN_USE", "NVML_ERROR_IN_USE", "in_use")] == [19] * 4
    for wrong in ("IN USE", -1, True, None, 1.5):
        with pytest.raises(SimulationError):
            parse_code(wrong)
