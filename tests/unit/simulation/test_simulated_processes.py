"""Several processes on the same boards, and processes that are killed."""

from __future__ import annotations

import os
import signal
import threading
import time

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
    ready,
    start,
)
from wattslice.simulation.errors import SimulationError
from wattslice.simulation.session import create, resume


def test_processes_see_each_others_changes(simulate) -> None:
    def watch():
        dev = device()
        gi, ci = make(dev, "1g.10gb", 6)
        ready()
        while len(mig_devices(dev)) == 1:  # until the other process has made its own
            time.sleep(0.01)
        other = gpu_instances(dev)
        while code(nv.nvmlGpuInstanceGetInfo, gi) == 0:  # until it has destroyed ours
            time.sleep(0.01)
        return [other, code(nv.nvmlComputeInstanceGetInfo, ci), gpu_instances(dev)]

    def act():
        dev = device()
        make(dev, "3g.40gb", 0)
        time.sleep(0.1)
        gi = nv.nvmlDeviceGetGpuInstanceById(dev, 13)
        ci = nv.nvmlGpuInstanceGetComputeInstanceById(gi, 0)
        nv.nvmlComputeInstanceDestroy(ci)
        nv.nvmlGpuInstanceDestroy(gi)

    sim = simulate("a100-sxm4-80gb", mig=True)
    watcher = start(sim, watch)
    client(sim, act)
    output, _ = watcher.communicate(timeout=20)
    expected = '[[["1g.10gb", 6, 13], ["3g.40gb", 0, 1]], 2, [["3g.40gb", 0, 1]]]'
    assert output.strip() == f"RESULT {expected}"


def test_parallel_creation_never_overlaps(simulate) -> None:
    def race(seed):
        import random

        random.seed(seed)
        dev = device()
        made = []
        for _ in range(150):
            if made and random.random() < 0.5:
                nv.nvmlGpuInstanceDestroy(made.pop(random.randrange(len(made))))
            else:
                profile_id = random.choice([19, 14, 9, 5, 15])
                try:
                    made.append(nv.nvmlDeviceCreateGpuInstance(dev, profile_id))
                except nv.NVMLError_InsufficientResources:
                    continue
            sizes = {"1g.10gb": 1, "1g.20gb": 2, "2g.20gb": 2, "3g.40gb": 4, "4g.40gb": 4}
            own = [nv.nvmlGpuInstanceGetInfo(g) for g in made]
            cells = [
                c
                for g in own
                for c in range(g.placement.start, g.placement.start + g.placement.size)
            ]
            assert len(cells) == len(set(cells)), own
            assert len(sizes) == 5
        for gi in made:
            nv.nvmlGpuInstanceDestroy(gi)

    sim = simulate("a100-sxm4-80gb", mig=True)
    threads = [threading.Thread(target=client, args=(sim, race, seed)) for seed in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    def left():
        return gpu_instances(device())

    assert client(sim, left) == []


@pytest.mark.parametrize("writing", [False, True])
def test_killed_holder_of_the_lock_stops_nobody_and_leaves_no_half_change(
    simulate, writing
) -> None:
    def hold(writing):
        from wattslice.simulation.library import load

        create_at(device(), 9, 4)
        ready()
        load("libnvidia-ml.so.1").wattsim_hold_lock(int(writing))

    def look():
        return gpu_instances(device())

    sim = simulate("a100-sxm4-80gb", mig=True)
    holder = start(sim, hold, writing)
    time.sleep(0.2)
    threading.Timer(0.4, holder.send_signal, [signal.SIGKILL]).start()
    begun = time.monotonic()
    assert client(sim, look) == [["3g.40gb", 4, 2]]
    assert time.monotonic() - begun > 0.15  # it had to wait for the lock
    assert holder.wait() == -signal.SIGKILL


def test_killed_worker_stops_counting(simulate) -> None:
    def work():
        from wattslice.simulation.activity import set_activity

        dev = device()
        set_activity(nv.nvmlDeviceGetUUID(dev), 1.0)
        ready()
        time.sleep(60)

    def processes():
        return len(nv.nvmlDeviceGetComputeRunningProcesses(device()))

    sim = simulate("a100-sxm4-80gb")
    control = sim.control()
    worker = start(sim, work)
    assert control.true_power_w(0, time.monotonic()) == 400
    assert client(sim, processes) == 1
    worker.kill()
    # Not waited for: a zombie does not count either.
    time.sleep(0.1)
    assert client(sim, processes) == 0
    assert control.true_power_w(0, time.monotonic()) == 50
    worker.wait()


def test_activity_helper_leaves_nothing_behind(simulate) -> None:
    def work():
        from wattslice.simulation.activity import busy

        dev = device()
        uuid = nv.nvmlDeviceGetUUID(dev)
        with busy(uuid, 0.5, memory_mib=100):
            inside = len(nv.nvmlDeviceGetComputeRunningProcesses(dev))
        with busy(uuid), busy(uuid):
            pass  # the inner one has removed the process: the outer one finds nothing to remove
        return [inside, len(nv.nvmlDeviceGetComputeRunningProcesses(dev))]

    assert client(simulate("a30"), work) == [1, 0]


def test_activity_is_checked(simulate) -> None:
    control = simulate("a30").control()
    uuid = control.board_uuid(0)
    for value in (-0.1, 1.1, float("nan")):
        with pytest.raises(SimulationError, match="INVALID_ARGUMENT"):
            control.set_activity(uuid, value)
    with pytest.raises(SimulationError, match="NOT_FOUND"):
        control.set_activity("GPU-no-such", 1.0)
    with pytest.raises(SimulationError, match="NOT_FOUND"):
        control.set_activity(uuid, 1.0, pid=2**22 + 1)  # no such process
    control.set_activity(uuid, 1.0, pid=os.getpid())
    control.remove_process()


def test_library_works_in_a_forked_child(simulate) -> None:
    def fork():
        dev = device()
        pid = os.fork()
        if pid == 0:
            ok = nv.nvmlDeviceGetPowerUsage(dev) == 50000
            os._exit(0 if ok else 1)
        values = {nv.nvmlDeviceGetPowerUsage(dev) for _ in range(100)}
        return [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), list(values)]

    assert client(simulate("a100-sxm4-80gb"), fork) == [0, [50000]]


def test_threads_share_one_process(simulate) -> None:
    def many():
        dev = device()
        results = []

        def poll():
            for _ in range(300):
                nv.nvmlDeviceGetPowerUsage(dev)
                nv.nvmlDeviceGetTotalEnergyConsumption(dev)
            results.append(1)

        threads = [threading.Thread(target=poll) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return len(results)

    assert client(simulate("a30"), many) == 4


def test_calls_are_quick(simulate) -> None:
    def timing():
        dev = device()
        t0 = time.monotonic()
        for _ in range(2000):
            nv.nvmlDeviceGetPowerUsage(dev)
        return (time.monotonic() - t0) / 2000

    assert client(simulate("a30"), timing) < 1e-3


def test_state_file_is_not_overwritten_and_is_checked(simulate, tmp_path) -> None:
    path = tmp_path / "state"
    create(["a30"], path)
    with pytest.raises(SimulationError, match="exists"):
        create(["a30"], path)
    assert resume(path).boards == ("a30",)
    other = tmp_path / "other"
    other.write_bytes(b"not a state file" * 10)
    with pytest.raises(SimulationError, match="LIB_RM_VERSION_MISMATCH"):
        resume(other)
    with pytest.raises(SimulationError, match="did you mean a30"):
        create(["a3O"], tmp_path / "third")
    with pytest.raises(SimulationError, match="1 to 16"):
        create(["a30"] * 17, tmp_path / "fourth")
    assert len(simulate(*["a30"] * 16).boards) == 16


def test_without_a_state_file_there_is_no_driver(simulate) -> None:
    def initialise():
        os.environ.pop("WATTSIM_STATE")
        # The library reads the C environment, which os.environ has changed.
        return code(nv.nvmlInit)

    assert client(simulate("a30"), initialise) == nv.NVML_ERROR_DRIVER_NOT_LOADED
