"""Activity of slices by GPM: what it says, what it refuses, and what shares it makes."""

import contextlib
import time

import pytest
from nvidia_sim import A100, H100, on_simulator

from wattslice.boards.nvidia import activity as module
from wattslice.boards.nvidia import nvml
from wattslice.boards.nvidia.board import NvidiaBoard
from wattslice.config.layout import Layout

H200 = "h200-sxm-141gb"


def made(sim, layout):
    board = NvidiaBoard(sim.uuid(), "managed")
    return board, board.ensure(Layout.parse(layout)).slices


def measured(board, slices, seconds=0.25):
    source = board.activity_source(slices)
    source.begin()
    time.sleep(seconds)
    source.end()
    return {(r.slice_index, r.metric): r for r in source.readings()}


@pytest.mark.parametrize("model", [H100, H200])
def test_two_slices_of_different_activity(model, tmp_path):
    from nvidia_sim import finish, start

    finish(start(_two_slices, tmp_path, model))


def _two_slices(sim):
    from wattslice.analysis.attribution import METHODS, SliceUse, attribute, errors_against, shapley

    board, slices = made(sim, "4g+1g")
    uuids = [s.uuid for s in slices]
    wanted = (0.6, 0.9)

    def work(*busy):
        for index, uuid in enumerate(uuids):
            sim.control.set_activity(uuid, wanted[index] if index in busy else 0.0)

    work(0, 1)
    found = measured(board, slices)
    readings = [found[0, "sm-activity"], found[1, "sm-activity"]]
    assert [r.value for r in readings] == pytest.approx(wanted, abs=0.01)
    assert [r.covers for r in readings] == [f"GPU instance {s.gpu_instance_id}" for s in slices]
    assert all(r.source == "gpm" and r.notes == () and r.end_s - r.start_s > 0.2 for r in readings)
    assert found[0, "tensor-activity"].value == pytest.approx(0.4 * 0.6, abs=0.01)
    whole = found[None, "sm-activity"]
    assert whole.covers == "board"
    expected = sum(a * s.sm_count for a, s in zip(wanted, slices, strict=True)) / 132
    assert whole.value == pytest.approx(expected, abs=0.01)

    subsets = {}
    for chosen in ((), (0,), (1,), (0, 1)):
        work(*chosen)
        time.sleep(0.05)
        subsets[frozenset(chosen)] = 60.0 * sim.control.true_power_w(0, time.monotonic())
    uses = [
        SliceUse(s.index, s.sm_count, True, r.value) for s, r in zip(slices, readings, strict=True)
    ]
    reference = shapley(subsets)
    cheap = [
        attribute(m, reference.board_j, reference.idle_j, uses, activity_source="gpm")
        for m in METHODS
        if m != "shapley"
    ]
    assert all(share.conservation_error < 1e-9 for share in cheap)
    errors = {e.method: e.max_relative_error for e in errors_against(reference, cheap)}
    assert errors["slice-activity"] < 0.2 < errors["activity"]
    assert errors["slice-activity"] < errors["slice-share"]


@on_simulator(A100)
def test_t28_an_a100_has_no_activity_and_says_why(sim):
    board, slices = made(sim, "3g+3g")
    found = measured(board, slices, 0.0)
    assert {index for index, _ in found} == {0, 1}
    for reading in found.values():
        assert reading.value is None
        assert reading.source == "none"
        assert "no GPM" in reading.reason
        assert "before Hopper" in reading.reason
        assert "DCGM is not asked" in reading.reason


@on_simulator(H100)
def test_an_old_driver_without_gpm_is_no_activity_with_its_code(sim):
    board, slices = made(sim, "3g+3g")
    sim.fault("nvmlGpmQueryDeviceSupport", 13)
    found = measured(board, slices, 0.0)
    assert "nvmlGpmQueryDeviceSupport: FUNCTION_NOT_FOUND (13)" in found[0, "sm-activity"].reason


@on_simulator(H100)
def test_samples_too_close_together_give_none(sim):
    board, slices = made(sim, "3g+3g")
    reading = measured(board, slices, 0.0)[0, "sm-activity"]
    assert (reading.value, reading.raw) == (None, None)
    assert "less than 100 ms apart" in reading.reason


@on_simulator(H100)
def test_t28_one_instance_without_data_takes_no_other_with_it(sim):
    board, slices = made(sim, "3g+3g")
    sim.control.set_activity(slices[1].uuid, 0.5)
    sim.fault("nvmlGpmMigSampleGet", 21, first=1, last=1)  # an instance without a CI
    found = measured(board, slices)
    assert found[0, "sm-activity"].value is None
    assert found[0, "sm-activity"].reason == "nvmlGpmMigSampleGet: NO_DATA (21)"
    assert found[1, "sm-activity"].value == pytest.approx(0.5, abs=0.01)


@on_simulator(H100)
def test_an_instance_without_compute_instance_has_no_data(sim):
    made(sim, "3g")
    device = nvml.device_by_uuid(sim.uuid())
    profile = next(p for p in nvml.gi_profiles(device) if p.compute_slices == 1)
    for start in range(7):
        with contextlib.suppress(nvml.NvmlError):
            nvml.create_gpu_instance(device, profile.profile_id, start, 1)
            break
    (empty,) = nvml.gpu_instances(device, profile.profile_id)
    sample = nvml.GpmSample()
    with pytest.raises(nvml.NvmlError, match="NO_DATA"):
        sample.take(device, nvml.gi_info(empty).gi_id)
    sample.free()
    sample.free()


@on_simulator(H100)
def test_the_mig_device_is_asked_where_the_parent_may_not_be(sim):
    board, slices = made(sim, "3g+3g")
    sim.control.set_activity(slices[0].uuid, 0.7)
    sim.fault("nvmlGpmMigSampleGet", 4)
    assert measured(board, slices)[0, "sm-activity"].value == pytest.approx(0.7, abs=0.01)


@on_simulator(H100)
def test_a_window_that_starts_again_is_the_later_one(sim):
    board, slices = made(sim, "3g+3g")
    source = board.activity_source(slices)
    sim.control.set_activity(slices[0].uuid, 1.0)
    source.begin()
    time.sleep(0.2)
    sim.control.set_activity(slices[0].uuid, 0.2)
    source.begin()
    time.sleep(0.2)
    source.end()
    found = {(r.slice_index, r.metric): r for r in source.readings()}
    assert found[0, "sm-activity"].value == pytest.approx(0.2, abs=0.01)


@on_simulator(H100)
def test_slices_that_share_an_instance_have_no_value_of_their_own(sim):
    board, slices = made(sim, "1c.3g+1c.3g+1c.3g")
    assert len({s.gpu_instance_id for s in slices}) == 1
    sim.control.set_activity(slices[0].uuid, 0.9)
    reading = measured(board, slices)[1, "sm-activity"]
    assert reading.value is None
    assert reading.raw > 0
    assert "which slices 0, 1, 2 share" in reading.reason


@on_simulator(H100, mig_on=False)
def test_a_board_without_mig_is_one_slice(sim):
    board = NvidiaBoard(sim.uuid())
    sim.control.set_activity(sim.uuid(), 0.4)
    assert measured(board, board.slices())[0, "sm-activity"].value == pytest.approx(0.4, abs=0.01)


def _unit(activity_percent, index=0, sms=60, instance=1):
    from wattslice.records.board import SliceState

    slices = []
    if instance is not None:
        slices = [SliceState(index=index, name="3g", profile="3g.40gb", sm_count=sms)]
    value = nvml.FieldReading(nvml.GPM_SM_ACTIVITY, 0, 0, activity_percent)
    unit = module._Unit(instance, None, f"GPU instance {instance}", slices)
    unit.values = {nvml.GPM_SM_ACTIVITY: value}
    return unit


@pytest.mark.parametrize(
    ("percent", "value"),
    [(0.0, 0.0), (99.0, 0.99), (101.0, 1.0), (233.0, None), (-1.0, None), (float("nan"), None)],
)
def test_more_than_all_is_cut_or_refused(percent, value):
    unit = _unit(percent)
    found = module._reading(unit, nvml.GPM_SM_ACTIVITY, "sm-activity", unit.slices[0])
    assert found.value == value
    if value is None:
        assert "wrong size" in found.reason
    elif percent > 100:
        assert found.raw == pytest.approx(1.01)
        assert found.notes == ("1.010, cut to 1",)


def test_instances_are_added_up_by_their_size():
    units = [_unit(90.0), _unit(30.0, 1, sms=32)]
    assert module._by_instances(units, 132) == pytest.approx((0.9 * 60 + 0.3 * 32) / 132)
    assert module._by_instances(units, None) is None  # not known is not wrong
    units[1].values = {}
    assert module._by_instances(units, 132) is None
