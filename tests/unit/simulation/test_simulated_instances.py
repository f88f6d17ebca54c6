"""MIG on simulated boards: what fits, what is made, what becomes of it."""

from __future__ import annotations

import pynvml as nv
import pytest

from unit.simulation.simulated import (
    client,
    code,
    create_at,
    device,
    gpu_instances,
    make,
    mig_devices,
    placements,
    profiles,
)

BASE7 = ["1g", "2g", "3g", "4g", "7g"]


@pytest.mark.parametrize(
    ("board", "wanted", "all_sets", "maximal", "multisets"),
    [
        # Oracle counts: enumerations of the published placement tables.
        ("a100-sxm4-80gb", ["1g.10gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb"], 298, 19, 14),
        (
            "h100-sxm5-80gb",
            ["1g.10gb", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb"],
            723,
            78,
            38,
        ),
        (
            "h200-sxm-141gb",
            ["1g.18gb", "1g.18gb+me", "1g.35gb", "2g.35gb", "3g.71gb", "4g.71gb", "7g.141gb"],
            2319,
            239,
            64,
        ),
        ("a30", ["1g.6gb", "2g.12gb", "4g.24gb"], None, 5, 4),
        ("a30", ["1g.6gb", "1g.6gb+me", "2g.12gb", "2g.12gb+me", "4g.24gb"], None, 17, 8),
        ("rtx-pro-6000", ["1g.24gb", "2g.48gb", "4g.96gb"], None, 5, 4),
    ],
)
def test_layouts_that_the_library_accepts(
    simulate, board, wanted, all_sets, maximal, multisets
) -> None:
    def enumerate_layouts(names):
        dev = device()
        info = profiles(dev)
        slots = [(n, info[n].id, s) for n in names for s, _ in placements(dev, info[n].id)]
        sizes = {n: placements(dev, info[n].id)[0][1] for n in names}

        def try_make(slot):
            place = nv.c_nvmlGpuInstancePlacement_t(slot[2], sizes[slot[0]])
            handle = nv.c_nvmlGpuInstance_t()
            make_gi = nv._nvmlGetFunctionPointer("nvmlDeviceCreateGpuInstanceWithPlacement")
            ok = make_gi(dev, slot[1], nv.byref(place), nv.byref(handle)) == 0
            return handle if ok else None

        total, maximal = 0, []

        def visit(first, chosen):
            nonlocal total
            total += 1
            fits_any = False
            for i, slot in enumerate(slots):
                handle = try_make(slot)
                if handle is None:
                    continue
                fits_any = True
                if i >= first:
                    visit(i + 1, [*chosen, slot])
                nv.nvmlGpuInstanceDestroy(handle)
            if not fits_any:
                maximal.append(chosen)

        visit(0, [])
        kinds = {tuple(sorted(name for name, _, _ in layout)) for layout in maximal}
        return [total, len(maximal), len(kinds)]

    sim = simulate(board, mig=True)
    found = client(sim, enumerate_layouts, wanted)
    assert found[1:] == [maximal, multisets]
    if all_sets is not None:
        assert found[0] == all_sets


def test_driver_chooses_the_captured_places_and_ids(simulate) -> None:
    def sequences():
        dev = device()
        result = []
        for ids in ([19, 14, 5], [14, 19, 19, 19, 19, 19], [9, 19, 14, 19], [19, 19, 14, 9]):
            made, places = [], []
            for profile_id in ids:
                try:
                    made.append(nv.nvmlDeviceCreateGpuInstance(dev, profile_id))
                except nv.NVMLError as error:
                    places.append(error.value)
                    continue
                gi = nv.nvmlGpuInstanceGetInfo(made[-1])
                places.append([gi.placement.start, gi.id])
            for gi in made:
                nv.nvmlGpuInstanceDestroy(gi)
            result.append(places)
        return result

    first, second, third, fourth = client(simulate("a100-sxm4-80gb", mig=True), sequences)
    assert first == [[6, 13], [4, 5], [0, 1]]
    assert [start for start, _ in second] == [4, 6, 0, 1, 2, 3]
    assert third == [[4, 2], [0, 7], [2, 4], [1, 8]]
    assert fourth[3] == nv.NVML_ERROR_INSUFFICIENT_RESOURCES


def test_instance_ids_need_not_follow_placement(simulate) -> None:
    """A second board of one node was seen to number its halves the other way round."""

    def ids():
        dev = device()
        for name, place in (("1g.10gb", 2), ("2g.20gb", 0), ("3g.40gb", 4)):
            make(dev, name, place)
        return gpu_instances(dev)

    tree = client(simulate("h100-sxm5-80gb", mig=True), ids)
    assert tree == [["1g.10gb", 2, 9], ["2g.20gb", 0, 3], ["3g.40gb", 4, 2]]
    swapped = simulate(
        "h100-sxm5-80gb", mig=True, scenario={"options": [{"board": 0, "gi_id_mode": 1}]}
    )
    assert client(swapped, ids) == [["1g.10gb", 2, 13], ["2g.20gb", 0, 5], ["3g.40gb", 4, 1]]


def test_remaining_capacity_is_what_can_be_made(simulate) -> None:
    def compare():
        dev = device()
        differences = []
        for before in ([], [("1g.24gb", 3)], [("2g.48gb", 6)], [("1g.24gb+me.all", 0)]):
            held = [create_at(dev, profiles(dev)[n].id, s) for n, s in before]
            for name, info in profiles(dev).items():
                told = nv.nvmlDeviceGetGpuInstanceRemainingCapacity(dev, info.id)
                made = []
                for start, _ in placements(dev, info.id):
                    try:
                        made.append(create_at(dev, info.id, start))
                    except nv.NVMLError_InsufficientResources:
                        continue
                if len(made) != told:
                    differences.append([before, name, told, len(made)])
                for gi in made:
                    nv.nvmlGpuInstanceDestroy(gi)
            for gi in held:
                nv.nvmlGpuInstanceDestroy(gi)
        return differences

    assert client(simulate("rtx-pro-6000", mig=True), compare) == []


def test_compute_instance_profiles(simulate) -> None:
    def listed(names):
        dev = device()
        result = {}
        for name in names:
            gi = nv.nvmlDeviceCreateGpuInstance(dev, profiles(dev)[name].id)
            rows = []
            for constant in range(nv.NVML_COMPUTE_INSTANCE_PROFILE_COUNT):
                try:
                    ci = nv.nvmlGpuInstanceGetComputeInstanceProfileInfo(gi, constant, 0)
                except nv.NVMLError_NotSupported:
                    continue
                left = nv.nvmlGpuInstanceGetComputeInstanceRemainingCapacity(gi, ci.id)
                rows.append([ci.name, ci.id, ci.instanceCount, ci.multiprocessorCount, left])
            result[name] = rows
            nv.nvmlGpuInstanceDestroy(gi)
        return result

    names = ["1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb"]
    h100 = client(simulate("h100-sxm5-80gb", mig=True), listed, names)
    assert h100["1g.20gb"] == [["MIG 1g.20gb", 7, 1, 26, 1]]
    assert [row[:4] for row in h100["2g.20gb"]] == [
        ["MIG 1c.2g.20gb", 0, 2, 16],
        ["MIG 2g.20gb", 1, 1, 32],
        ["MIG 1c.2g.20gb", 7, 1, 26],
    ]
    assert [row[1:4] for row in h100["3g.40gb"]] == [[0, 3, 16], [1, 1, 32], [2, 1, 60]]
    assert [row[1:3] for row in h100["4g.40gb"]] == [[0, 4], [1, 2], [3, 1]]
    assert [row[1:3] for row in h100["7g.80gb"]] == [[0, 7], [1, 3], [2, 2], [3, 1], [4, 1]]
    a100 = client(simulate("a100-sxm4-80gb", mig=True), listed, ["1g.20gb", "2g.20gb"])
    assert [row[1:4] for row in a100["1g.20gb"]] == [[0, 1, 14]]
    assert [row[1:4] for row in a100["2g.20gb"]] == [[0, 2, 14], [1, 1, 28]]


def test_mig_device_is_a_compute_instance_and_a_gpu_instance_alone_is_none(simulate) -> None:
    def life():
        dev = device()
        gi = create_at(dev, 9, 4)
        alone = len(mig_devices(dev))
        for _ in range(3):
            nv.nvmlGpuInstanceCreateComputeInstance(gi, 0)
        full = code(nv.nvmlGpuInstanceCreateComputeInstance, gi, 0)
        rows = []
        for index, mig in mig_devices(dev).items():
            a = nv.nvmlDeviceGetAttributes(mig)
            parent = nv.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(mig)
            rows.append(
                [
                    index,
                    nv.nvmlDeviceGetName(mig),
                    nv.nvmlDeviceGetGpuInstanceId(mig),
                    nv.nvmlDeviceGetComputeInstanceId(mig),
                    a.multiprocessorCount,
                    a.memorySizeMB,
                    nv.nvmlDeviceGetMemoryInfo(mig).total >> 20,
                    nv.nvmlDeviceGetUUID(parent) == nv.nvmlDeviceGetUUID(dev),
                    nv.nvmlDeviceIsMigDeviceHandle(mig).value,
                ]
            )
        in_use = code(nv.nvmlGpuInstanceDestroy, gi)
        return [alone, full, rows, in_use, nv.nvmlDeviceGetMaxMigDeviceCount(dev)]

    alone, full, rows, in_use, most = client(simulate("a100-sxm4-80gb", mig=True), life)
    assert alone == 0
    assert full == nv.NVML_ERROR_INSUFFICIENT_RESOURCES
    name = "NVIDIA A100-SXM4-80GB MIG 1c.3g.40gb"
    assert rows == [[i, name, 2, i, 14, 40192, 40192, True, 1] for i in range(3)]
    assert in_use == nv.NVML_ERROR_IN_USE
    assert most == 7  # not the number of devices


def test_uuids_come_again_for_the_same_shape_and_differ_between_boards(simulate) -> None:
    def uuids():
        result = []
        for index in (0, 1):
            dev = device(index)
            gi, ci = make(dev, "3g.40gb", 4)
            first = nv.nvmlDeviceGetUUID(mig_devices(dev)[0])
            nv.nvmlComputeInstanceDestroy(ci)
            nv.nvmlGpuInstanceDestroy(gi)
            other_gi, other_ci = make(dev, "3g.40gb", 0)
            other = nv.nvmlDeviceGetUUID(mig_devices(dev)[0])
            nv.nvmlComputeInstanceDestroy(other_ci)
            nv.nvmlGpuInstanceDestroy(other_gi)
            make(dev, "3g.40gb", 4)
            again = nv.nvmlDeviceGetUUID(mig_devices(dev)[0])
            parent = nv.nvmlDeviceGetUUID(dev)
            forms = [again, f"MIG-{parent}/2/0", parent]
            named = [nv.nvmlDeviceGetUUID(nv.nvmlDeviceGetHandleByUUID(f)) for f in forms]
            wrong = [parent[:12], again[:12], f"MIG-{parent}/2/1", f"MIG-{parent}/9/0", "", "0"]
            refused = [code(nv.nvmlDeviceGetHandleByUUID, w) for w in wrong]
            malformed = code(nv.nvmlDeviceGetHandleByUUID, f"MIG-{parent}/x")
            result.append(
                [first, other, again, named == [again, again, parent], refused, malformed]
            )
        return result

    one, two = client(simulate("a100-sxm4-80gb", "a100-sxm4-80gb", mig=True), uuids)
    for first, other, again, named, refused, malformed in (one, two):
        assert first == again != other
        assert named
        assert set(refused) == {nv.NVML_ERROR_NOT_FOUND}  # abbreviated ones too
        assert malformed == nv.NVML_ERROR_INVALID_ARGUMENT
        assert first.startswith("MIG-")
        assert len(first) == len("MIG-") + 36
    assert one[0] != two[0]


def test_indices_may_have_holes(simulate) -> None:
    def holes():
        dev = device()
        make(dev, "2g.20gb", 4)
        make(dev, "1g.10gb", 1)
        got = list(mig_devices(dev))
        missing = code(nv.nvmlDeviceGetMigDeviceHandleByIndex, dev, 0)
        return [got, missing, code(nv.nvmlDeviceGetMigDeviceHandleByIndex, dev, 7)]

    scenario = {"options": [{"board": "all", "sparse_indices": 1}]}
    sim = simulate("a100-sxm4-80gb", mig=True, scenario=scenario)
    assert client(sim, holes) == [
        [1, 4],
        nv.NVML_ERROR_NOT_FOUND,
        nv.NVML_ERROR_INVALID_ARGUMENT,
    ]


def test_dense_indices_have_holes_after_destroying(simulate) -> None:
    def destroy_first():
        dev = device()
        gi, ci = make(dev, "1g.10gb", 0)
        make(dev, "1g.10gb", 1)
        before = list(mig_devices(dev))
        nv.nvmlComputeInstanceDestroy(ci)
        nv.nvmlGpuInstanceDestroy(gi)
        return [before, list(mig_devices(dev))]

    assert client(simulate("a100-sxm4-80gb", mig=True), destroy_first) == [[0, 1], [1]]


def test_handles_to_what_is_destroyed_are_dead(simulate) -> None:
    def stale():
        dev = device()
        gi, ci = make(dev, "2g.20gb", 0)
        mig = mig_devices(dev)[0]
        uuid = nv.nvmlDeviceGetUUID(mig)
        nv.nvmlComputeInstanceDestroy(ci)
        after_ci = [
            code(nv.nvmlComputeInstanceDestroy, ci),
            code(nv.nvmlComputeInstanceGetInfo, ci),
            code(nv.nvmlDeviceGetName, mig),
            code(nv.nvmlDeviceGetHandleByUUID, uuid),
            code(nv.nvmlGpuInstanceGetInfo, gi),
        ]
        nv.nvmlGpuInstanceDestroy(gi)
        again, _ = make(dev, "2g.20gb", 0)  # same shape, same place: still not the old handle
        return [
            after_ci,
            code(nv.nvmlGpuInstanceGetInfo, gi),
            code(nv.nvmlGpuInstanceGetInfo, again),
            code(nv.nvmlDeviceGetName, mig),
        ]

    dead, missing = nv.NVML_ERROR_INVALID_ARGUMENT, nv.NVML_ERROR_NOT_FOUND
    assert client(simulate("a100-sxm4-80gb", mig=True), stale) == [
        [dead, dead, dead, missing, 0],
        dead,
        0,
        dead,
    ]


def test_partial_creation_leaves_an_instance_that_only_the_parent_lists(simulate) -> None:
    def partial():
        dev = device()
        gi = create_at(dev, 9, 0)
        failed = code(nv.nvmlGpuInstanceCreateComputeInstance, gi, 2)
        state = [len(mig_devices(dev)), gpu_instances(dev)]
        retried = code(nv.nvmlGpuInstanceCreateComputeInstance, gi, 2)
        return [failed, state, retried, len(mig_devices(dev))]

    fault = {"function": "nvmlGpuInstanceCreateComputeInstance*", "code": 23, "to_call": 1}
    sim = simulate("a100-sxm4-80gb", mig=True, scenario={"faults": [fault]})
    assert client(sim, partial) == [23, [0, [["3g.40gb", 0, 1]]], 0, 1]


def test_process_keeps_its_instance(simulate) -> None:
    def hold(pid):
        from wattslice.simulation.control import Control

        dev = device()
        gi, ci = make(dev, "3g.40gb", 0)
        mig = mig_devices(dev)[0]
        control = Control.from_environment()
        control.set_process(nv.nvmlDeviceGetUUID(mig), pid=pid, memory_mib=100, fake=True)
        listed = [
            [p.pid, p.usedGpuMemory >> 20, p.gpuInstanceId, p.computeInstanceId]
            for p in nv.nvmlDeviceGetComputeRunningProcesses(mig)
        ]
        held = [code(nv.nvmlComputeInstanceDestroy, ci), code(nv.nvmlGpuInstanceDestroy, gi)]
        on_parent = len(nv.nvmlDeviceGetComputeRunningProcesses(dev))
        switched = nv.nvmlDeviceSetMigMode(dev, 0), nv.nvmlDeviceGetMigMode(dev)
        nv.nvmlDeviceSetMigMode(dev, 1)
        control.remove_process(pid)
        freed = [code(nv.nvmlComputeInstanceDestroy, ci), code(nv.nvmlGpuInstanceDestroy, gi)]
        return [listed, held, on_parent, switched, freed]

    listed, held, on_parent, switched, freed = client(
        simulate("a100-sxm4-80gb", mig=True), hold, 4242
    )
    assert listed == [[4242, 100, 1, 0]]
    assert held == [nv.NVML_ERROR_IN_USE] * 2
    assert on_parent == 1
    assert switched == [nv.NVML_ERROR_IN_USE, [1, 0]]  # returned 0, only pending
    assert freed == [0, 0]


@pytest.mark.parametrize(
    ("board", "option", "instances", "status", "modes"),
    [
        ("a100-sxm4-80gb", 0, False, 0, [1, 1]),
        ("a100-sxm4-80gb", 16, False, nv.NVML_ERROR_RESET_REQUIRED, [0, 1]),
        ("a100-sxm4-80gb", 19, False, nv.NVML_ERROR_IN_USE, [0, 1]),
        ("h100-sxm5-80gb", 0, False, 0, [1, 1]),
    ],
)
def test_mode_switch_reports_activation_apart(
    simulate, board, option, instances, status, modes
) -> None:
    def switch():
        dev = device()
        return [nv.nvmlDeviceSetMigMode(dev, 1), nv.nvmlDeviceGetMigMode(dev)]

    sim = simulate(board, scenario={"options": [{"mig_switch": option}]})
    assert client(sim, switch) == [status, modes]
    sim.control().reset_board(0)
    sim.control().set_option(0, "mig_switch", 0)
    assert client(sim, switch) == [0, [1, 1]]


def test_switching_off_sweeps_instances_away_only_where_there_is_a_reset(simulate) -> None:
    def switch_off():
        dev = device()
        make(dev, "1g.10gb", 0)
        status = nv.nvmlDeviceSetMigMode(dev, 0)
        return [status, nv.nvmlDeviceGetMigMode(dev)]

    assert client(simulate("a100-sxm4-80gb", mig=True), switch_off) == [0, [0, 0]]
    assert client(simulate("h100-sxm5-80gb", mig=True), switch_off) == [
        nv.NVML_ERROR_IN_USE,
        [1, 0],
    ]


def test_reboot_keeps_the_mode_on_ampere_only_and_no_instances(simulate) -> None:
    def build():
        for index in (0, 1):
            make(device(index), "1g.10gb", 0)

    def look():
        return [[nv.nvmlDeviceGetMigMode(device(i)), len(mig_devices(device(i)))] for i in (0, 1)]

    sim = simulate("a100-sxm4-80gb", "h100-sxm5-80gb", mig=True)
    client(sim, build)
    for board in (0, 1):
        sim.control().reboot_board(board)
    assert client(sim, look) == [[[1, 1], 0], [[0, 0], 0]]


def test_names_may_drift(simulate) -> None:
    def names():
        return sorted(profiles(device()))

    scenario = {"options": [{"name_drift_gb": -1}]}
    drifted = client(simulate("a100-sxm4-80gb", mig=True, scenario=scenario), names)
    assert "3g.39gb" in drifted
    assert "4g.39gb" in drifted
    assert "1g.10gb" in drifted
