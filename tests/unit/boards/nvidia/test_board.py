"""The NVIDIA board behind the protocol of boards."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from nvidia_sim import A100, H100, on_simulator

from wattslice.boards.errors import BoardBusyError, BoardError, BoardNotFoundError
from wattslice.boards.nvidia.board import NvidiaBoard, discover
from wattslice.boards.nvidia.mig import parted
from wattslice.boards.nvidia.resolve import read_present, resolve
from wattslice.config.layout import Layout
from wattslice.records.board import Snapshot


def layout(text):
    return Layout.parse(text)


# --- identity ----------------------------------------------------------------------------------


@on_simulator(f"{A100},{H100}", mig_on=False)
def test_boards_are_found_with_uuid_and_pci_address(sim):
    boards = discover()
    assert [b.identity.uuid for b in boards] == [sim.uuid(0), sim.uuid(1)]
    identity = boards[0].identity
    assert identity.simulated
    assert identity.architecture == "ampere"
    assert identity.pci_bus_id.endswith(".0")
    assert identity.driver_version


@on_simulator()
def test_an_unknown_board_is_refused(sim):
    with pytest.raises(BoardNotFoundError, match="NOT_FOUND"):
        NvidiaBoard("GPU-00000000-0000-0000-0000-000000000000")


@on_simulator(mig_on=False)
def test_a_serial_that_may_not_be_read_is_left_out(sim):
    sim.fault("nvmlDeviceGetSerial", 3)
    assert NvidiaBoard(sim.uuid()).identity.serial is None


@on_simulator(mig_on=False)
def test_t55_a_driver_upgraded_under_its_library_is_said(sim):
    sim.fault("nvmlInit*", 18)
    with pytest.raises(BoardNotFoundError, match="reload the module or reboot"):
        discover()


def test_t55_no_driver_at_all_is_said():
    code = (
        "from wattslice.boards.nvidia.board import discover\n"
        "from wattslice.boards.errors import BoardNotFoundError\n"
        "try:\n    discover()\n"
        "except BoardNotFoundError as error:\n    print(error)\n"
    )
    env = {**os.environ, "LD_LIBRARY_PATH": "", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True
    )
    if Path("/proc/driver/nvidia/version").exists():
        pytest.skip("this host has a driver")
    assert "no NVIDIA driver is installed here" in done.stdout


# --- capabilities ------------------------------------------------------------------------------


@on_simulator(f"{A100},a30,rtx-pro-6000,h200-sxm-141gb", mig_on=False)
def test_capabilities_come_from_the_driver(sim):
    found = {b.identity.name: b.capabilities() for b in discover()}
    axes = [c.memory_slices_total for c in found.values()]
    assert axes == [8, 4, 12, 8]
    for capabilities in found.values():
        assert capabilities.partitioning == "mig"
        assert capabilities.mig_mode == "off"
        assert capabilities.energy.scope == "board"
        assert capabilities.profiles[0].name == "full"
    a100 = next(iter(found.values()))
    whole = {p.name: p.sm_count for p in a100.profiles}
    assert (whole["full"], whole["7g.80gb"]) == (108, 98)  # MIG itself costs 10 SMs


@on_simulator()
def test_t16_t57_memory_that_may_not_be_read_is_missing_and_not_fatal(sim):
    sim.fault("nvmlDeviceGetMemoryInfo*", 4)
    board = NvidiaBoard(sim.uuid())
    capabilities = board.capabilities()
    assert capabilities.memory_mib is None
    assert any(p.name == "1g.10gb" for p in capabilities.profiles)


@on_simulator()
def test_placements_that_may_not_be_listed_come_from_the_catalogue(sim):
    sim.fault("nvmlDeviceGetGpuInstancePossiblePlacements*", 4)
    reading = NvidiaBoard(sim.uuid()).reading()
    assert reading.geometry.axis == 8
    assert "NO_PERMISSION" in reading.capabilities.notes[0]


# --- layouts -----------------------------------------------------------------------------------


@on_simulator()
def test_slices_come_in_the_order_and_with_the_names_of_the_layout(sim):
    board = NvidiaBoard(sim.uuid(), "managed")
    state = board.ensure(layout("1g+me+2x1g.10gb+4g"))
    assert tuple(s.name for s in state.slices) == layout("1g+me+2x1g.10gb+4g").slices
    assert [s.index for s in state.slices] == [0, 1, 2, 3]
    assert {(s.name, s.profile) for s in state.slices} == {
        ("4g", "4g.40gb"),
        ("1g.10gb", "1g.10gb"),
        ("1g+me", "1g.10gb+me"),
    }
    assert len({s.uuid for s in state.slices}) == 4
    assert state.mig_mode == "on"
    assert {s.uuid for s in board.slices()} == {s.uuid for s in state.slices}


@on_simulator()
def test_a_plan_says_what_stays_comes_and_goes(sim):
    board = NvidiaBoard(sim.uuid(), "managed")
    board.ensure(layout("4g+3g"))
    plan = board.plan(layout("2g+2g+3g"))
    assert plan.keeps == ("3g.40gb@4",)
    assert plan.destroys == ("4g.40gb@0",)
    assert set(plan.creates) == {"2g.20gb@0", "2g.20gb@2"}
    assert [s.placement for s in plan.slices] == [(4, 4), (0, 2), (2, 2)]
    assert board.plan(layout("full")).destroys == ("4g.40gb@0", "3g.40gb@4")


@on_simulator()
def test_gpu_operator_132_mig_on_without_instance_is_a_state_and_no_fault(sim):
    board = NvidiaBoard(sim.uuid())
    assert board.slices() == ()
    assert board.capabilities().mig_mode == "on"
    assert board.snapshot().layout.slices == ()
    assert resolve({}, read_present()).devices == ()


@on_simulator(mig_on=False)
def test_a_snapshot_survives_json_and_is_of_one_board(sim):
    board = NvidiaBoard(sim.uuid(), "managed")
    snapshot = Snapshot.model_validate_json(board.snapshot().model_dump_json())
    board.ensure(layout("7x1g"))
    board.restore(snapshot)
    assert [s.name for s in board.slices()] == ["full"]
    with pytest.raises(BoardError, match="of board GPU-x"):
        board.restore(snapshot.model_copy(update={"board_uuid": "GPU-x"}))
    with pytest.raises(BoardError, match="not the state of an NVIDIA board"):
        board.restore(snapshot.model_copy(update={"state": {"cores": [1]}}))


@on_simulator()
def test_the_resolver_reads_what_the_board_made(sim):
    board = NvidiaBoard(sim.uuid(), "managed")
    slices = board.ensure(layout("4g+2g+1g")).slices
    present = read_present()
    for made in slices:
        for text in (
            made.uuid,
            f"MIG-{sim.uuid()}/{made.gpu_instance_id}/{made.compute_instance_id}",
        ):
            (device,) = resolve({"CUDA_VISIBLE_DEVICES": text}, present).devices
            assert device.instance.uuid == made.uuid
            assert device.instance.profile == made.profile
            assert device.instance.sm_count == made.sm_count
            assert len(device.siblings) == 2


@on_simulator(f"{A100},{A100}")
def test_an_exported_state_brings_the_board_back_through_a_mig_parted_file(sim):
    boards = [NvidiaBoard(sim.uuid(i), "managed") for i in range(2)]
    boards[1].ensure(layout("1c.3g+2c.3g+2g+1g+me+1g"))
    before = [s.profile for s in boards[1].slices()]
    text = parted.export(
        [(i, p.mig_on, [x.profile for x in p.instances]) for i, p in enumerate(read_present())]
    )
    boards[1].ensure(layout("7x1g"))
    file = parted.parse(text)
    for board in boards:
        board.ensure(board.parted_layout(file, "current"))
    assert [s.profile for s in boards[1].slices()] == before
    assert boards[0].slices() == ()


# --- placement of workers ----------------------------------------------------------------------


@on_simulator()
def test_t05_each_worker_of_a_simulated_board_gets_a_slice_and_a_share_of_the_cores(sim):
    board = NvidiaBoard(sim.uuid(), "managed")
    available = sorted(os.sched_getaffinity(0))
    slices = board.ensure(layout("3g+3g")).slices
    placements = [board.placement(s) for s in slices]
    assert [p.simulated_slice for p in placements] == [s.uuid for s in slices]
    assert {p.device for p in placements} == {"cpu"}
    if len(available) >= 2:
        assert not set(placements[0].cores) & set(placements[1].cores)
        assert sorted(c for p in placements for c in p.cores) == available
    with pytest.raises(BoardError, match="no UUID"):
        board.placement(board.plan(layout("7g")).slices[0])


@on_simulator()
def test_a_real_board_is_addressed_by_the_uuid_of_the_slice(sim):
    board = NvidiaBoard(sim.uuid(), "managed")
    (made,) = board.ensure(layout("7g")).slices
    board._identity = board.identity.model_copy(update={"simulated": False})
    placement = board.placement(made)
    assert placement.device == "cuda"
    assert placement.env == {"CUDA_VISIBLE_DEVICES": made.uuid}
    assert placement.simulated_slice is None


@on_simulator()
def test_memory_in_use_is_that_of_the_slice(sim):
    board = NvidiaBoard(sim.uuid(), "managed")
    busy, empty = board.ensure(layout("3g+3g")).slices
    before = [board.memory_used(slice_).value for slice_ in (busy, empty)]
    sim.process(busy.uuid, 4711)
    after = [board.memory_used(slice_).value for slice_ in (busy, empty)]
    assert after == [before[0] + 1024, before[1]]
    gone = busy.model_copy(update={"uuid": "MIG-00000000-0000-0000-0000-000000000000"})
    assert board.memory_used(gone).value is None
    assert board.memory_used(gone).reason


@on_simulator(f"{A100},{H100}")
def test_float8_needs_an_ada_or_later_board(sim):
    has = []
    for number in (0, 1):
        board = NvidiaBoard(sim.uuid(number))
        # On a simulated board the training computes on the CPU.
        assert "fp8" not in board.capabilities().precisions
        board._identity = board.identity.model_copy(update={"simulated": False})
        has.append("fp8" in board.capabilities().precisions)
    assert has == [False, True]


def test_shares_of_cores_are_fair_disjoint_and_never_empty():
    from wattslice.boards.cpu.cores import fair_share

    for count in range(1, 9):
        for cores in ([0], [0, 1], list(range(7)), list(range(16))):
            shares = [fair_share(cores, i, count) for i in range(count)]
            assert all(shares)
            if len(cores) >= count:
                assert sorted(c for s in shares for c in s) == cores
                assert max(map(len, shares)) - min(map(len, shares)) <= 1


# --- health and lease --------------------------------------------------------------------------


@on_simulator()
def test_health_names_foreign_processes_and_not_our_own(sim):
    board = NvidiaBoard(sim.uuid(), "managed")
    (made,) = board.ensure(layout("7g")).slices
    child = subprocess.Popen(["sleep", "30"])
    sim.process(made.uuid, os.getpid(), fake=False)
    sim.process(made.uuid, child.pid, fake=False)
    sim.process(made.uuid, 1, fake=False)
    try:
        assert [p.split()[0] for p in board.health().foreign_processes] == ["1"]
    finally:
        child.kill()
        child.wait()


@on_simulator()
def test_one_reading_that_fails_takes_no_other_with_it(sim):
    sim.fault("nvmlDeviceGetTemperature*", 4)
    sim.fault("nvmlDeviceGetCurrentClocksEventReasons", 3)
    health = NvidiaBoard(sim.uuid()).health()
    assert health.temperature_c.value is None
    assert "NO_PERMISSION (4)" in health.temperature_c.reason
    assert health.event_reasons == ()
    assert health.power_limit_w.value == 400.0


@on_simulator()
def test_event_reasons_are_named(sim):
    sim.option("event_reasons", 0x40 | 0x4)
    reasons = NvidiaBoard(sim.uuid()).health().event_reasons
    assert {"hw_thermal_slowdown", "sw_power_cap"} <= set(reasons)


@on_simulator()
def test_two_campaigns_at_once_on_one_board_the_second_is_told_who_has_it(sim):
    board = NvidiaBoard(sim.uuid())
    with board.lease():
        code = (
            "import sys\nfrom wattslice.boards.errors import BoardBusyError\n"
            "from wattslice.boards.nvidia.board import discover\n"
            "try:\n    discover()[0].lease(0.2).__enter__()\n"
            "except BoardBusyError as error:\n    print(error); sys.exit(7)\n"
        )
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=False
        )
    assert done.returncode == 7, done.stderr
    assert f"process {os.getpid()}" in done.stdout
    with board.lease(0):
        pass


def test_busy_is_a_board_error():
    assert issubclass(BoardBusyError, BoardError)
