"""A board as a SLURM job has it: its own slices come first, and energy only where it is alone."""

import os
from dataclasses import replace

import pytest
from nvidia_sim import A100, H100, on_simulator

from wattslice.boards.allocation import (
    AllocationError,
    allocated,
    in_job,
    read_allocation,
    says_exclusive,
)
from wattslice.boards.discover import find_board
from wattslice.boards.nvidia.board import NvidiaBoard, discover
from wattslice.config.layout import Layout

LAYOUT = Layout.parse("3g+2x1g")


def cut(sim, board=0):
    """A board in the layout; UUIDs of its slices, widest first."""
    made = NvidiaBoard(sim.uuid(board), "managed")
    with made.lease():
        made.ensure(LAYOUT)
    return [slice_.uuid for slice_ in made.slices()]


def given(devices, **more):
    return {"SLURM_JOB_ID": "17", "CUDA_VISIBLE_DEVICES": devices, **more}


def shared(job):
    return False


def alone(job):
    return True


def board_of_job(environ, node_is_ours=shared):
    return allocated(discover(), read_allocation(environ, node_is_ours))


@on_simulator()
def test_the_slice_that_the_job_has_comes_first_among_its_equals(sim):
    uuids = cut(sim)
    board = board_of_job(given(uuids[2]))
    state = board.ensure(LAYOUT)
    assert [s.name for s in state.slices] == ["3g", "1g", "1g"]
    assert [s.index for s in state.slices] == [0, 1, 2]
    assert state.slices[1].uuid == uuids[2]
    assert board.placement(state.slices[1]).simulated_slice == uuids[2]


@on_simulator()
def test_a_slice_that_the_job_does_not_have_is_refused(sim):
    uuids = cut(sim)
    board = board_of_job(given(uuids[2]))
    state = board.ensure(LAYOUT)
    with pytest.raises(AllocationError, match=r"needs slice 0 \(3g.40gb.*job 17 has MIG-"):
        board.placement(state.slices[0])


@on_simulator()
def test_energy_of_a_shared_board_is_not_claimed_and_tenants_are_named(sim):
    uuids = cut(sim)
    board = board_of_job(given(uuids[1]))
    assert board.power_source() is None
    assert "shared board: SLURM job 17 has 1 slice(s)" in board.capabilities().energy.reason
    assert "now empty" in board.shared()
    sim.process(uuids[0], 1)
    assert "now with 1 " in board.shared()
    # A tenant of another slice is expected; one of the own slice is not.
    assert board.health().foreign_processes == ()
    sim.process(uuids[1], 2)
    assert [name.split()[0] for name in board.health().foreign_processes] == ["2"]


@on_simulator()
def test_a_job_with_all_slices_or_with_the_node_has_the_energy(sim):
    uuids = cut(sim)
    assert board_of_job(given(",".join(uuids))).power_source() is not None
    assert board_of_job(given(uuids[1]), alone).power_source() is not None


@on_simulator()
def test_a_board_with_slices_that_are_hidden_from_the_job_counts_as_shared(sim):
    uuids = cut(sim)
    # What a device cgroup does: the job sees its own slice alone, and the board looks fuller.
    allocation = read_allocation(given(uuids[1]), shared)
    hidden = allocated(discover(), replace(allocation, siblings=()), lambda board: True)
    assert hidden.power_source() is None
    assert "cannot see" in hidden.capabilities().energy.reason


@on_simulator(f"{A100},{H100}", mig_on=False)
def test_a_whole_board_is_found_by_number_and_has_its_energy(sim):
    environ = given("1", SLURM_JOB_GPUS="1", CUDA_DEVICE_ORDER="PCI_BUS_ID")
    board = board_of_job(environ)
    assert board.identity.uuid == sim.uuid(1)
    assert board.power_source() is not None
    assert board.shared() is None


@on_simulator(f"{A100},{A100}", mig_on=False)
def test_a_board_that_slurm_did_not_give_is_refused(sim):
    with pytest.raises(AllocationError, match="not in the job's allocation"):
        board_of_job(given("1", SLURM_STEP_GPUS="0"))


@on_simulator(f"{A100},{A100}")
def test_devices_of_two_boards_are_refused(sim):
    both = f"{cut(sim, 0)[1]},{cut(sim, 1)[1]}"
    # MIG lets a process use one slice; that a scheduler gave two is seen all the same.
    with pytest.raises(AllocationError, match="devices of 2 boards"):
        board_of_job(given(both))


@on_simulator()
def test_a_job_without_a_device_is_told_to_ask_for_one(sim):
    with pytest.raises(AllocationError, match="was given no GPU"):
        board_of_job({"SLURM_JOB_ID": "17"})
    with pytest.raises(AllocationError, match="was given no GPU"):
        board_of_job(given("NoDevFiles"))


@on_simulator()
def test_a_managed_board_is_put_back_at_the_end_of_each_lease(sim):
    before = cut(sim)
    environ = given(before[1])
    allocation = read_allocation(environ, alone)
    board = allocated(discover("managed"), allocation)
    with board.lease():
        state = board.ensure(Layout.parse("7g"))
        assert board.placement(state.slices[0]).simulated_slice == state.slices[0].uuid
    assert [slice_.uuid for slice_ in NvidiaBoard(sim.uuid()).slices()] == before


@on_simulator(f"{A100},{A100}")
def test_the_board_of_the_job_is_found_without_a_selection(sim):
    cut(sim, 0)
    uuids = cut(sim, 1)
    os.environ.update(given(uuids[1]))
    os.environ["PATH"] = ""  # no scontrol: then the node counts as shared
    assert in_job()
    board = find_board("nvidia", None, "existing")
    assert board.identity.uuid == sim.uuid(1)
    assert board.power_source() is None


def test_exclusive_is_read_from_scontrol():
    assert says_exclusive("JobId=3 JobName=x OverSubscribe=NO Contiguous=0")
    assert not says_exclusive("JobId=3 JobName=x OverSubscribe=OK Contiguous=0")
