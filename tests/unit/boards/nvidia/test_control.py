"""Control of MIG layouts against the simulated driver, with the faults that were reported."""

import json
import os
import time
from pathlib import Path

import pytest
from nvidia_sim import A100, H100, finish, on_simulator, start

from wattslice.boards.errors import (
    BoardBusyError,
    BoardError,
    BoardPermissionError,
    LayoutImpossibleError,
    LayoutMismatchError,
)
from wattslice.boards.nvidia.mig.control import MigController, MigModePendingError
from wattslice.boards.nvidia.mig.journal import Journal
from wattslice.config.layout import Layout

CHANGES = (
    "nvmlDeviceSetMigMode",
    "nvmlDeviceCreateGpuInstance*",
    "nvmlGpuInstanceCreateComputeInstance*",
    "nvmlGpuInstanceDestroy",
    "nvmlComputeInstanceDestroy",
)
INVALID_STATE = 29


def control(sim, policy="managed", board=0, busy_wait_s=0.3, settle_s=0.3):
    uuid = sim.uuid(board)
    return MigController(uuid, policy, Journal(uuid), busy_wait_s=busy_wait_s, settle_s=settle_s)


def layout(text):
    return Layout.parse(text)


def shape(controller):
    """What is on the board, for comparing before and after."""
    reading = controller.read()
    return (reading.mig_on, [(str(gi), gi.ci_slices) for gi in reading.instances])


def forbid_changes(sim):
    for function in CHANGES:
        sim.fault(function, INVALID_STATE)


# --- the plain way -----------------------------------------------------------------------------


@on_simulator()
def test_a_layout_is_made_and_read_back_with_its_places(sim):
    c = control(sim)
    c.ensure(layout("4g+2g+1g"))
    assert shape(c) == (
        True,
        [("4g.40gb@0", (4,)), ("2g.20gb@4", (2,)), ("1g.10gb@6", (1,))],
    )


@on_simulator()
def test_a_layout_that_holds_is_left_alone(sim):
    c = control(sim)
    before = c.ensure(layout("3g+2g+2x1g")).instances
    forbid_changes(sim)
    assert c.ensure(layout("3g+2g+2x1g")).instances == before
    c.restore(c.snapshot())


@on_simulator()
def test_mig_parted_pr_3_instances_that_are_right_stay_even_while_they_compute(sim):
    c = control(sim)
    held = c.ensure(layout("3g+3g")).instances
    staying = next(gi for gi in held if gi.start == 4)
    sim.process(staying.compute_instances[0].uuid, pid=4242)
    found = c.ensure(layout("3g+2g+2x1g")).instances
    assert staying in found


@on_simulator()
def test_restore_brings_back_places_and_parts_of_instances(sim):
    c = control(sim)
    c.ensure(layout("2c.3g+1c.3g+1g+2g"))
    before, snapshot = shape(c), c.snapshot()
    c.ensure(layout("7x1g"))
    c.ensure(layout("full"))
    c.restore(type(snapshot).from_json(json.loads(json.dumps(snapshot.to_json()))))
    assert shape(c) == before
    forbid_changes(sim)
    c.restore(snapshot)


@on_simulator(mig_on=False)
def test_gpu_operator_1309_mode_is_switched_and_put_back(sim):
    c = control(sim)
    snapshot = c.snapshot()
    c.ensure(layout("7x1g"))
    assert shape(c)[0] is True
    c.restore(snapshot)
    assert shape(c) == (False, [])


@on_simulator(f"{A100},{A100},{H100}")
def test_t10_mig_parted_357_only_the_named_board_is_touched(sim):
    others = [control(sim, board=0), control(sim, board=2)]
    before = [shape(c) for c in others]
    control(sim, board=1).ensure(layout("3g+3g"))
    assert [shape(c) for c in others] == before
    control(sim, board=2).ensure(layout("4g+3g"))
    assert shape(control(sim, board=1))[1] == [("3g.40gb@0", (3,)), ("3g.40gb@4", (3,))]


@on_simulator()
def test_a_layout_without_slices_is_mig_on_and_empty(sim):
    c = control(sim)
    c.ensure(layout("3g+3g"))
    c.ensure(Layout(()))
    assert shape(c) == (True, [])


@on_simulator("h100-sxm5-80gb")
def test_go_nvml_146_the_default_compute_instance_has_all_of_its_instance(sim):
    c = control(sim)
    found = c.ensure(layout("2g+1g.20gb+2x1g")).instances
    sms = {str(gi.profile): gi.compute_instances[0].sm_count for gi in found}
    assert sms == {"2g.20gb": 32, "1g.20gb": 26, "1g.10gb": 16}


# --- names and numbers -------------------------------------------------------------------------


@on_simulator()
def test_t08_go_nvml_60_sparse_indices_hide_no_instance(sim):
    sim.option("sparse_indices", 1)
    c = control(sim)
    assert len(c.ensure(layout("3g+2g+1g")).instances) == 3
    assert all(ci.uuid for gi in c.read().instances for ci in gi.compute_instances)


@pytest.mark.parametrize("mode", [1, 2])
@on_simulator()
def test_dcgm_138_ids_of_instances_do_not_follow_their_places(sim, mode):
    sim.option("gi_id_mode", mode)
    c = control(sim)
    for text in ("3g+2g+1g+1g", "4g+3g", "2g+2g+3g"):
        c.ensure(layout(text))
        c.ensure(layout(text))
        assert len(c.read().instances) == len(layout(text).slices)


@on_simulator()
def test_mig_parted_31_a_driver_that_prints_3g_39gb_is_understood(sim):
    sim.option("name_drift_gb", -1)
    c = control(sim)
    found = c.ensure(layout("3g.40gb+3g")).instances
    assert [str(gi.profile) for gi in found] == ["3g.39gb", "3g.39gb"]


@on_simulator()
def test_a_library_that_knows_the_old_structures_only_is_enough(sim):
    sim.fault("nvmlDeviceGetGpuInstanceProfileInfoV", 25)
    sim.fault("nvmlGpuInstanceGetComputeInstanceProfileInfoV", 13)
    c = control(sim)
    names = [str(p) for p in c.read().geometry.profiles]
    assert "1g.10gb" in names
    assert "1g.10gb+me" in names
    c.ensure(layout("4g+3g"))


@on_simulator(mig_on=False)
def test_a_driver_that_lists_no_profiles_with_mig_off_is_planned_by_the_catalogue(sim):
    sim.fault("nvmlDeviceGetGpuInstanceProfileInfo*", 3)
    c = control(sim)
    reading = c.read()
    assert reading.geometry.source == "catalogue"
    assert "the driver says" in reading.capabilities.notes[0]
    with pytest.raises(LayoutImpossibleError):
        c.ensure(layout("4g+4g"))
    sim.clear_faults()
    c.ensure(layout("4g+3g"))


# --- impossible and not allowed ----------------------------------------------------------------


@on_simulator()
def test_an_impossible_layout_is_refused_before_anything_changes(sim):
    c = control(sim)
    c.ensure(layout("7x1g"))
    forbid_changes(sim)
    with pytest.raises(LayoutImpossibleError, match="9 compute slices"):
        c.ensure(layout("4g+2g+1g+1g+1g"))


@on_simulator()
def test_existing_verifies_without_root_and_changes_nothing(sim):
    control(sim).ensure(layout("4g+3g"))
    sim.option("permission", 0)
    forbid_changes(sim)
    c = control(sim, "existing")
    found = c.ensure(layout("4g+3g")).instances
    assert {str(gi.profile) for gi in found} == {"4g.40gb", "3g.40gb"}
    c.restore(c.snapshot())
    with pytest.raises(LayoutMismatchError) as caught:
        c.ensure(layout("7x1g"))
    assert "-cgi 19:0,19:1,19:2,19:3,19:4,19:5,19:6 -C" in str(caught.value)


@on_simulator()
def test_existing_says_when_somebody_else_changed_the_board(sim):
    existing = control(sim, "existing")
    snapshot = existing.snapshot()
    control(sim).ensure(layout("4g+3g"))
    with pytest.raises(LayoutMismatchError, match="somebody else"):
        existing.restore(snapshot)


@on_simulator()
def test_policy_off_wants_mig_off(sim):
    c = control(sim, "off")
    with pytest.raises(LayoutMismatchError, match="-mig 0"):
        c.ensure(layout("full"))
    with pytest.raises(LayoutMismatchError, match="needs MIG"):
        c.ensure(layout("3g"))


@pytest.mark.parametrize("level", [0, 1])
@on_simulator()
def test_no_permission_says_what_to_ask_an_administrator_for(sim, level):
    c = control(sim)
    c.ensure(layout("3g+3g"))
    before = shape(c)
    sim.option("permission", level)
    with pytest.raises(BoardPermissionError, match="Ask an administrator"):
        c.ensure(layout("4g+3g"))
    sim.option("permission", 2)
    assert shape(c) == before


# --- in use ------------------------------------------------------------------------------------


@on_simulator()
def test_a_process_on_an_instance_during_restore_is_named_and_nothing_changes(sim):
    c = control(sim)
    snapshot = c.snapshot()
    found = c.ensure(layout("4g+3g")).instances
    uuid = found[1].compute_instances[0].uuid
    sim.process(uuid, pid=os.getpid(), fake=False)
    before = shape(c)
    with pytest.raises(BoardBusyError, match=rf"{os.getpid()} python.*nothing was changed"):
        c.restore(snapshot)
    assert shape(c) == before
    sim.no_process(os.getpid())
    c.restore(snapshot)
    assert shape(c) == (True, [])


@on_simulator()
def test_dcgm_276_a_client_that_lets_go_late_is_waited_for(sim):
    c = control(sim, busy_wait_s=5)
    c.ensure(layout("4g+3g"))
    sim.fault("nvmlComputeInstanceDestroy", 19, 1, 2)
    sim.fault("nvmlGpuInstanceDestroy", 19, 1, 2)
    c.ensure(layout("7x1g"))
    assert len(c.read().instances) == 7


@on_simulator()
def test_t15_dcgm_95_a_client_without_process_is_a_clear_failure_and_no_endless_wait(sim):
    c = control(sim)
    c.ensure(layout("4g+3g"))
    before = shape(c)
    sim.fault("nvmlComputeInstanceDestroy", 19)
    begin = time.monotonic()
    with pytest.raises(BoardBusyError, match="monitor such as DCGM"):
        c.ensure(layout("7x1g"))
    assert time.monotonic() - begin < 5
    assert shape(c) == before


@on_simulator()
def test_a_process_that_is_just_ending_is_waited_for(sim):
    import threading

    c = control(sim, busy_wait_s=5)
    (gi,) = c.ensure(layout("7g")).instances
    sim.process(gi.compute_instances[0].uuid, pid=4242)
    threading.Timer(0.3, sim.no_process, [4242]).start()
    c.ensure(layout("4g+3g"))


# --- mode --------------------------------------------------------------------------------------


@on_simulator(mig_on=False)
def test_gpu_operator_118_a_mode_that_stays_pending_is_explained_and_taken_back(sim):
    sim.option("mig_switch", 19)
    c = control(sim)
    with pytest.raises(MigModePendingError, match="in use by"):
        c.ensure(layout("4g+3g"))
    mode = c.read().capabilities.mode
    assert (mode.current, mode.settled) == (False, True)


@on_simulator(mig_on=False)
def test_dra_883_a_reset_that_is_not_possible_here_is_not_success(sim):
    sim.option("mig_switch", 16)
    c = control(sim)
    with pytest.raises(MigModePendingError, match="reboot the machine"):
        c.ensure(layout("4g+3g"))
    assert shape(c) == (False, [])


@on_simulator(mig_on=True)
def test_mig_parted_9_switching_off_that_stays_pending_puts_the_instances_back(sim):
    c = control(sim)
    c.ensure(layout("4g+3g"))
    before = shape(c)
    sim.option("mig_switch", 16)
    with pytest.raises(MigModePendingError):
        c.ensure(layout("full"))
    assert shape(c) == before


@on_simulator(mig_on=False)
def test_a_board_without_mig_knows_full_only(sim):
    sim.fault("nvmlDeviceGetMigMode", 3)
    c = control(sim)
    snapshot = c.snapshot()
    c.ensure(layout("full"))
    with pytest.raises(LayoutImpossibleError, match="has no MIG"):
        c.ensure(layout("3g"))
    c.restore(snapshot)


# --- failures on the way -----------------------------------------------------------------------


@on_simulator()
def test_t14_dra_1452_an_instance_whose_compute_instance_fails_is_rolled_back(sim):
    c = control(sim)
    c.ensure(layout("3g+2g"))
    before = shape(c)
    sim.fault("nvmlGpuInstanceCreateComputeInstance", 23, 3, 3)
    with pytest.raises(LayoutMismatchError, match="no room"):
        c.ensure(layout("7x1g"))
    assert shape(c) == before
    assert c._journal.read() is None


@on_simulator()
def test_t12_an_instance_without_compute_instance_is_seen_and_completed(sim):
    from wattslice.boards.nvidia import nvml

    c = control(sim)
    c.ensure(layout("4g+3g"))
    gi = nvml.gpu_instances(c.device(), c.read().geometry.profiles[3].profile_id)
    (ci,) = nvml.compute_instances(gi[0], nvml.ci_profiles(gi[0])[-1].profile_id) or (None,)
    nvml.destroy_compute_instance(ci)
    assert any("(without compute instance)" in str(i) for i in c.read().instances)
    assert len(c.ensure(layout("4g+3g")).instances) == 2
    assert all(i.compute_instances for i in c.read().instances)


@on_simulator()
def test_dra_149_an_unknown_orphan_is_part_of_what_restore_puts_back(sim):
    from wattslice.boards.nvidia import nvml
    from wattslice.boards.nvidia.mig.ids import ProfileId

    c = control(sim)
    nvml.create_gpu_instance(c.device(), ProfileId(9), 4, 4)
    snapshot, before = c.snapshot(), shape(c)
    c.ensure(layout("7x1g"))
    c.restore(snapshot)
    assert shape(c) == before == (True, [("3g.40gb@4 (without compute instance)", ())])


@on_simulator()
def test_t09_mig_parted_97_a_layout_that_does_not_read_back_is_not_success(sim):
    c = control(sim)
    sim.fault("nvmlDeviceGetMigDeviceHandleByIndex", 6)
    with pytest.raises(LayoutMismatchError, match="no MIG device"):
        c.ensure(layout("4g+3g"))
    sim.clear_faults()
    assert shape(c) == (True, [])


@on_simulator()
def test_a_rollback_that_fails_too_is_said_and_restore_still_puts_it_right(sim):
    c = control(sim)
    c.ensure(layout("4g+3g"))
    before = shape(c)
    sim.fault("nvmlDeviceCreateGpuInstance*", 999, 3)
    with pytest.raises(BoardError, match="could not be put back"):
        c.ensure(layout("7x1g"))
    assert shape(c) != before
    sim.clear_faults()
    later = control(sim)
    later.restore(later.snapshot())  # the journal knows what was there
    assert shape(later) == before


@on_simulator()
def test_a_lost_board_is_an_error_with_what_to_do(sim):
    c = control(sim)
    c.ensure(layout("4g+3g"))
    sim.fault("nvmlDevice*", 15)
    with pytest.raises(BoardError, match="Xid"):
        c.ensure(layout("7x1g"))


SETTLED = [("2g.20gb@0", (2,)), ("3g.40gb@4", (3,))]


@on_simulator()
def test_without_a_record_of_the_state_nothing_is_changed(sim):
    c = control(sim)
    Path(os.environ["WATTSLICE_LEASE_DIR"]).write_text("not a directory")
    forbid_changes(sim)
    with pytest.raises(BoardPermissionError, match="nothing was changed"):
        c.ensure(layout("4g+3g"))


@on_simulator()
def test_a_record_that_others_may_have_planted_or_from_before_a_reboot_is_void(sim):
    c = control(sim)
    journal = Journal(sim.uuid())
    journal.begin({"mig_on": False, "instances": []})
    assert c.snapshot().mig_on is False
    assert control(sim, "existing").snapshot().mig_on is True
    entry = json.loads(journal.path.read_text())
    for change in ({"boot_id": "another"}, {"original": 3}):
        journal.path.write_text(json.dumps(entry | change))
        assert c.snapshot().mig_on is True
    journal.path.write_text("{")
    assert c.snapshot().mig_on is True


def change_slowly(sim, function, mark):
    """A change of layout that hangs in the second call of a function."""
    c = control(sim)
    c.ensure(layout("3g+2g"))
    sim.fault(function, 0, 2, 2, delay_ms=60000)
    Path(mark).touch()
    c.ensure(layout("4g+2x1g"))


def find_and_repair(sim):
    """What the next process does on the board that the killed one left."""
    sim.clear_faults()
    c = control(sim)
    assert shape(c)[1] != SETTLED
    c.restore(c.snapshot())
    assert shape(c)[1] == SETTLED
    c.ensure(layout("4g+2x1g"))


@pytest.mark.parametrize(
    "function", ["nvmlGpuInstanceCreateComputeInstance", "nvmlGpuInstanceDestroy"]
)
def test_kill_9_between_two_steps_leaves_what_restore_puts_right(function, tmp_path):
    mark = tmp_path / "mark"
    process = start(change_slowly, tmp_path, arguments={"function": function, "mark": str(mark)})
    deadline = time.monotonic() + 20
    while not mark.exists() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)
    time.sleep(0.4)
    running = process.poll() is None
    process.kill()
    output, _ = process.communicate()
    assert running, output
    finish(start(find_and_repair, tmp_path))


LAYOUTS = ("3g+2g", "7x1g", "4g+2g+1g", "2c.3g+1c.3g+3g", "full")


def change_until_killed(sim, mark):
    c = control(sim)
    for step in range(10**6):
        c.ensure(layout(LAYOUTS[step % len(LAYOUTS)]))
        Path(mark).touch()


def repair(sim):
    c = control(sim)
    c.restore(c.snapshot())
    on, instances = shape(c)
    names = sorted(name.split("@")[0] for name, _ in instances)
    complete = {
        (): not on,
        ("2g.20gb", "3g.40gb"): True,
        ("1g.10gb",) * 7: True,
        ("1g.10gb", "2g.20gb", "4g.40gb"): True,
        ("3g.40gb", "3g.40gb"): True,
    }
    assert complete.get(tuple(names)), instances
    assert all(cis for _, cis in instances)
    for text in LAYOUTS:
        c.ensure(layout(text))


def test_kill_9_at_any_time_leaves_what_restore_puts_right(tmp_path):
    import random

    rng = random.Random(7)
    for attempt in range(4):
        mark = tmp_path / f"mark{attempt}"
        process = start(change_until_killed, tmp_path, arguments={"mark": str(mark)})
        deadline = time.monotonic() + 30
        while not mark.exists() and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(rng.uniform(0, 0.2))
        assert process.poll() is None, process.communicate()[0]
        process.kill()
        process.communicate()
        finish(start(repair, tmp_path))


# --- random ------------------------------------------------------------------------------------


@on_simulator(f"{A100},a30,{H100},rtx-pro-6000")
def test_random_sequences_with_random_faults_end_in_the_wanted_or_the_original_state(sim):
    import random

    from wattslice.boards.nvidia.mig import planner

    rng = random.Random(20240607)
    controllers = [control(sim, board=i, busy_wait_s=0.1, settle_s=0.15) for i in range(4)]
    codes = (3, 4, 19, 23, 29, 999)
    outcomes = {"reached": 0, "rolled back": 0}
    for step in range(220):
        c = controllers[step % 4]
        sim.clear_faults()
        sim.option("mig_switch", 0)
        geometry = c.read().geometry
        # Among the profiles some with media or graphics; Layout(()) is a layout too.
        placed = rng.choice(list(planner.placed_sets(geometry, rng.sample(geometry.profiles, 3))))
        wanted = Layout.parse(",".join(str(p.profile) for p in placed)) if placed else Layout(())
        if rng.random() < 0.15:
            wanted = layout("full")
        before = shape(c)
        goal = c.snapshot() if rng.random() < 0.2 else None
        for _ in range(rng.choice((0, 0, 1, 2))):
            first = rng.randint(1, 6)
            sim.fault(rng.choice(CHANGES), rng.choice(codes), first, first + rng.randint(0, 1))
        if rng.random() < 0.1:
            sim.option("mig_switch", rng.choice((16, 19)))
        try:
            if goal is not None:
                c.restore(goal)
            else:
                c.ensure(wanted)
        except BoardError as error:
            if "could not be put back" in str(error):
                # Two faults hit the change and its rollback: restore has to put it right.
                sim.clear_faults()
                sim.option("mig_switch", 0)
                c.restore(c.snapshot())
            sim.clear_faults()
            assert shape(c) == before, (step, str(wanted), str(error))
            outcomes["rolled back"] += 1
            continue
        sim.clear_faults()
        outcomes["reached"] += 1
        on, instances = shape(c)
        if goal is not None:
            assert (on, instances) == before
        elif wanted.slices == ("full",):
            assert (on, instances) == (False, [])
        else:
            assert on
            assert sorted(i[0].split("@")[0] for i in instances) == sorted(wanted.slices)
    assert min(outcomes.values()) > 20, outcomes
