"""Running pieces of test code as NVML clients: in processes of their own, on simulated boards.

The dynamic linker decides at process start which libnvidia-ml.so.1 is loaded, so a client is the
source text of a function, run by a fresh interpreter. It uses the real nvidia-ml-py as ``nv``.
"""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pynvml as nv

from wattslice.simulation.session import Simulation

ROOT = Path(__file__).resolve().parents[3]
_PRELUDE = """\
import json, os, signal, sys, threading, time
from ctypes import *
from itertools import pairwise
import pynvml as nv
from unit.simulation.simulated import *
"""


def environment(sim: Simulation) -> dict[str, str]:
    env = sim.environment()
    env["PYTHONPATH"] = f"{ROOT / 'src'}:{ROOT / 'tests'}"
    return env


def _program(function: Callable[..., Any], args: tuple[Any, ...]) -> list[str]:
    source = textwrap.dedent(inspect.getsource(function))
    call = f"print('RESULT', json.dumps({function.__name__}(*json.loads(sys.argv[1]))))"
    return [sys.executable, "-c", f"{_PRELUDE}\n{source}\n{call}", json.dumps(args)]


def client(sim: Simulation, function: Callable[..., Any], *args: Any) -> Any:
    """What ``function(*args)`` returns (through JSON) when it runs as a client of ``sim``."""
    done = subprocess.run(
        _program(function, args), env=environment(sim), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.rpartition("RESULT ")[2])


def start(sim: Simulation, function: Callable[..., Any], *args: Any) -> subprocess.Popen[str]:
    """The same without waiting; the client says ``ready()`` when it is."""
    process = subprocess.Popen(
        _program(function, args), env=environment(sim), stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


# ---- for use inside clients ------------------------------------------------------------------


def ready() -> None:
    print("ready", flush=True)


def device(index: int = 0) -> Any:
    nv.nvmlInit()
    return nv.nvmlDeviceGetHandleByIndex(index)


def code(function: Callable[..., Any], *args: Any) -> int:
    """The NVML code of a call: 0 or that of the exception."""
    try:
        function(*args)
    except nv.NVMLError as error:
        return int(error.value)
    return 0


def raw(name: str, *args: Any) -> int:
    """The bare return code of a library function, around the wrapper."""
    return int(nv._nvmlGetFunctionPointer(name)(*args))


def profiles(dev: Any) -> dict[str, Any]:
    """Profile info by name, without the "MIG " in front."""
    found = {}
    for constant in range(nv.NVML_GPU_INSTANCE_PROFILE_COUNT):
        try:
            info = nv.nvmlDeviceGetGpuInstanceProfileInfo(dev, constant)
        except nv.NVMLError_NotSupported:
            continue
        found[info.name.removeprefix("MIG ")] = info
    return found


def placements(dev: Any, profile_id: int) -> list[tuple[int, int]]:
    count = nv.c_uint(16)
    array = (nv.c_nvmlGpuInstancePlacement_t * 16)()
    nv.nvmlDeviceGetGpuInstancePossiblePlacements(dev, profile_id, array, nv.byref(count))
    return [(array[i].start, array[i].size) for i in range(count.value)]


def create_at(dev: Any, profile_id: int, start: int) -> Any:
    size = placements(dev, profile_id)[0][1]
    place = nv.c_nvmlGpuInstancePlacement_t(start, size)
    return nv.nvmlDeviceCreateGpuInstanceWithPlacement(dev, profile_id, nv.byref(place))


def make(dev: Any, name: str, start: int) -> tuple[Any, Any]:
    """A GPU instance with its full-size compute instance."""
    info = profiles(dev)[name]
    gi = create_at(dev, info.id, start)
    best = None
    for constant in range(nv.NVML_COMPUTE_INSTANCE_PROFILE_COUNT):
        try:
            ci = nv.nvmlGpuInstanceGetComputeInstanceProfileInfo(gi, constant, 0)
        except nv.NVMLError_NotSupported:
            continue
        if ci.sliceCount == info.sliceCount and (best is None or ci.multiprocessorCount > best[0]):
            best = (ci.multiprocessorCount, ci.id)
    assert best is not None
    return gi, nv.nvmlGpuInstanceCreateComputeInstance(gi, best[1])


def mig_devices(dev: Any) -> dict[int, Any]:
    found = {}
    for index in range(nv.nvmlDeviceGetMaxMigDeviceCount(dev)):
        try:
            found[index] = nv.nvmlDeviceGetMigDeviceHandleByIndex(dev, index)
        except nv.NVMLError_NotFound:
            continue
    return found


def gpu_instances(dev: Any) -> list[tuple[str, int, int]]:
    """(profile, start, id) of all GPU instances, found through the parent."""
    found = []
    for name, info in profiles(dev).items():
        count = nv.c_uint()
        array = (nv.c_nvmlGpuInstance_t * info.instanceCount)()
        nv.nvmlDeviceGetGpuInstances(dev, info.id, array, nv.byref(count))
        for i in range(count.value):
            gi = nv.nvmlGpuInstanceGetInfo(array[i])
            found.append((name, gi.placement.start, gi.id))
    return sorted(found)


def field(dev: Any, number: int, scope: int = 0) -> tuple[int, int, int]:
    """(code, value, time stamp in us) of one field value."""
    value = nv.nvmlDeviceGetFieldValues(dev, [(number, scope)])[0]
    result = value.value.ullVal if value.valueType == 3 else value.value.uiVal
    return int(value.nvmlReturn), int(result), int(value.timestamp)


def clock_shift_s() -> float:
    """Real time minus monotonic time, from the tightest of many pairs of readings."""
    pairs = []
    for _ in range(50):
        before, real, after = time.monotonic(), time.time(), time.monotonic()
        pairs.append((after - before, real - (before + after) / 2))
    return min(pairs)[1]
