"""Arguments that a real library refuses are refused, with its code."""

from __future__ import annotations

from ctypes import (
    Structure,
    byref,
    c_char,
    c_uint,
    c_ulonglong,
    c_void_p,
    cast,
    create_string_buffer,
    sizeof,
)

import pynvml as nv

from unit.simulation.simulated import (
    client,
    code,
    device,
    gpu_instances,
    make,
    mig_devices,
    placements,
    profiles,
    raw,
)

INVALID, SUPPORT, SIZE = 2, 3, 7
VERSION = 25


def test_calls_before_init_and_after_shutdown(simulate) -> None:
    def uninitialised():
        dev = device()
        nv.nvmlShutdown()
        before = [
            code(nv.nvmlDeviceGetCount),
            code(nv.nvmlDeviceGetName, dev),
            code(nv.nvmlShutdown),
        ]
        nv.nvmlInit()
        nv.nvmlInit()
        nv.nvmlShutdown()
        return [before, code(nv.nvmlDeviceGetName, dev), nv.nvmlErrorString(23)]

    found = client(simulate("a30"), uninitialised)
    assert found == [[1, 1, 1], 0, "Insufficient Resources"]


def test_wrong_arguments(simulate) -> None:
    def wrong():
        dev = device()
        gi, ci = make(dev, "1g.10gb", 0)
        mig = mig_devices(dev)[0]
        n = c_uint(0)
        ref = byref(n)
        buffer = create_string_buffer(96)
        handle = nv.c_nvmlGpuInstance_t()
        handles = (nv.c_nvmlGpuInstance_t * 8)()
        no_such = cast(c_void_p(0x1234), nv.c_nvmlDevice_t)

        def versioned(struct, version, name, *before):
            s = struct()
            s.version = version
            return raw(name, *before, byref(s))

        place = nv.c_nvmlGpuInstancePlacement_t
        at = "nvmlDeviceCreateGpuInstanceWithPlacement"

        def create(start, size, profile=19):
            return raw(at, dev, profile, byref(place(start, size)), byref(handle))

        return {
            # NULL
            "null handle": raw("nvmlDeviceGetName", None, buffer, 96),
            "null name": raw("nvmlDeviceGetName", dev, None, 96),
            "null count": raw("nvmlDeviceGetCount_v2", None),
            "null mode": raw("nvmlDeviceGetMigMode", dev, None, ref),
            "null activation": raw("nvmlDeviceSetMigMode", dev, 1, None),
            "null placement": raw(at, dev, 19, None, byref(handle)),
            "null out": raw("nvmlDeviceCreateGpuInstance", dev, 19, None),
            "null array of instances": raw("nvmlDeviceGetGpuInstances", dev, 19, None, ref),
            "null count of instances": raw("nvmlDeviceGetGpuInstances", dev, 19, handles, None),
            "null cis": raw("nvmlGpuInstanceGetComputeInstances", gi, 0, None, ref),
            "null fields": raw("nvmlDeviceGetFieldValues", dev, 1, None),
            "null uuid": raw("nvmlDeviceGetHandleByUUID", None, byref(handle)),
            "null set": raw("nvmlDeviceRegisterEvents", dev, c_ulonglong(8), None),
            # not handles, or of the wrong kind
            "no handle of ours": raw("nvmlDeviceGetName", no_such, buffer, 96),
            "gi as device": raw("nvmlDeviceGetName", gi, buffer, 96),
            "device as gi": raw("nvmlGpuInstanceDestroy", dev),
            "gi as ci": raw("nvmlComputeInstanceDestroy", gi),
            "ci as gi": raw("nvmlGpuInstanceDestroy", ci),
            "mig as gpu: mode": code(nv.nvmlDeviceGetMigMode, mig),
            "mig as gpu: set mode": code(nv.nvmlDeviceSetMigMode, mig, 0),
            "mig as gpu: create": code(nv.nvmlDeviceCreateGpuInstance, mig, 19),
            "mig as gpu: profiles": code(nv.nvmlDeviceGetGpuInstanceProfileInfo, mig, 0),
            "gpu as mig: gi id": code(nv.nvmlDeviceGetGpuInstanceId, dev),
            "gpu as mig: attributes": code(nv.nvmlDeviceGetAttributes, dev),
            "gpu as mig: parent": code(nv.nvmlDeviceGetDeviceHandleFromMigDeviceHandle, dev),
            # values
            "no board 9": code(nv.nvmlDeviceGetHandleByIndex, 9),
            "mode 2": code(nv.nvmlDeviceSetMigMode, dev, 2),
            "profile constant 18": code(nv.nvmlDeviceGetGpuInstanceProfileInfo, dev, 18),
            "profile id 3": code(nv.nvmlDeviceCreateGpuInstance, dev, 3),
            "capacity of id 3": code(nv.nvmlDeviceGetGpuInstanceRemainingCapacity, dev, 3),
            "placement 7": create(7, 1),
            "placement of the wrong size": create(2, 2),
            "2g at 1": create(1, 2, 14),
            "ci constant 9": code(nv.nvmlGpuInstanceGetComputeInstanceProfileInfo, gi, 9, 0),
            "ci engines 1": code(nv.nvmlGpuInstanceGetComputeInstanceProfileInfo, gi, 0, 1),
            "2c in 1g": code(nv.nvmlGpuInstanceCreateComputeInstance, gi, 1),
            "clock 7": code(nv.nvmlDeviceGetClockInfo, dev, 7),
            "sensor 3": code(nv.nvmlDeviceGetTemperature, dev, 3),
            "limit 99 W": code(nv.nvmlDeviceSetPowerManagementLimit, dev, 99000),
            "limit 401 W": code(nv.nvmlDeviceSetPowerManagementLimit, dev, 401000),
            # what the board lacks
            "8-slice profile": code(nv.nvmlDeviceGetGpuInstanceProfileInfo, dev, 5),
            "3c in 1g": code(nv.nvmlGpuInstanceGetComputeInstanceProfileInfo, gi, 2, 0),
            "utilisation with MIG": code(nv.nvmlDeviceGetUtilizationRates, dev),
            "utilisation of a slice": code(nv.nvmlDeviceGetUtilizationRates, mig),
            "power of a slice": code(nv.nvmlDeviceGetPowerUsage, mig),
            "energy of a slice": code(nv.nvmlDeviceGetTotalEnergyConsumption, mig),
            "fan": code(nv.nvmlDeviceGetFanSpeed, dev),
            "GPM on Ampere": code(nv.nvmlGpmSampleGet, dev, nv.nvmlGpmSampleAlloc()),
            "not simulated at all": code(nv.nvmlDeviceGetNvLinkState, dev, 0),
            # sizes
            "short name": raw("nvmlDeviceGetName", dev, buffer, 5),
            "short uuid": raw("nvmlDeviceGetUUID", mig, buffer, 40),
            # versions
            "memory v3": code(nv.nvmlDeviceGetMemoryInfo, dev, 0x03000028),
            "profile v9": versioned(
                nv.c_nvmlGpuInstanceProfileInfo_v2_t,
                0x09000098,
                "nvmlDeviceGetGpuInstanceProfileInfoV",
                dev,
                0,
            ),
            "ci profile v9": versioned(
                nv.c_nvmlComputeInstanceProfileInfo_v2_t,
                0x09000088,
                "nvmlGpuInstanceGetComputeInstanceProfileInfoV",
                gi,
                0,
                0,
            ),
            "temperature v2": versioned(
                nv.c_nvmlTemperature_v1_t, 0x0200000C, "nvmlDeviceGetTemperatureV", dev
            ),
        }

    found = client(simulate("a100-sxm4-80gb", mig=True), wrong)
    rest = dict(found)
    for name in (
        "8-slice profile",
        "3c in 1g",
        "utilisation with MIG",
        "utilisation of a slice",
        "power of a slice",
        "energy of a slice",
        "fan",
        "GPM on Ampere",
        "not simulated at all",
    ):
        assert rest.pop(name) == SUPPORT, name
    for name in ("short name", "short uuid"):
        assert rest.pop(name) == SIZE, name
    for name in ("memory v3", "profile v9", "ci profile v9", "temperature v2"):
        assert rest.pop(name) == VERSION, name
    assert {name: value for name, value in rest.items() if value != INVALID} == {}


def test_short_arrays_tell_the_needed_count(simulate) -> None:
    def lists(pids):
        from wattslice.simulation.control import Control

        dev = device()
        for pid in pids:
            Control.from_environment().set_process(nv.nvmlDeviceGetUUID(dev), pid=pid, fake=True)
        result = []
        for room in (0, 2, 3):
            count = c_uint(room)
            array = (nv.c_nvmlProcessInfo_t * 3)()
            name = "nvmlDeviceGetComputeRunningProcesses_v3"
            result.append([raw(name, dev, byref(count), array), count.value])
        null = c_uint(3)
        result.append(raw("nvmlDeviceGetComputeRunningProcesses_v3", dev, byref(null), None))
        return result

    assert client(simulate("a30"), lists, [11, 12, 13]) == [[SIZE, 3], [SIZE, 3], [0, 3], INVALID]


def test_placements_can_be_counted_without_an_array(simulate) -> None:
    def count():
        n = c_uint(0)
        rc = raw("nvmlDeviceGetGpuInstancePossiblePlacements_v2", device(), 14, None, byref(n))
        return [rc, n.value, placements(device(), 14)]

    # Documented; and independent of the MIG mode.
    assert client(simulate("a100-sxm4-40gb"), count) == [0, 3, [[0, 2], [2, 2], [4, 2]]]


def test_profiles_of_all_versions_agree(simulate) -> None:
    def versions():
        dev = device()
        v1 = nv.nvmlDeviceGetGpuInstanceProfileInfo(dev, 2, version=1)
        v2 = nv.nvmlDeviceGetGpuInstanceProfileInfo(dev, 2)
        by_id = nv.nvmlDeviceGetGpuInstanceProfileInfoById(dev, v1.id)

        class V3(Structure):
            _fields_ = [(f"n{i}", c_uint) for i in range(10)]
            _fields_ += [("mib", c_ulonglong), ("name", c_char * 96), ("capabilities", c_uint)]

        v3 = V3()
        v3.n0 = sizeof(V3) | 3 << 24
        rc = raw("nvmlDeviceGetGpuInstanceProfileInfoV", dev, 2, byref(v3))
        return [
            rc,
            [v1.id, v2.id, by_id.id, v3.n1],
            [v1.multiprocessorCount, v2.multiprocessorCount, v3.n4],
            [v1.memorySizeMB, v2.memorySizeMB, v3.mib],
            [v2.name, by_id.name, v3.name.decode()],
        ]

    rc, ids, sms, mib, names = client(simulate("h100-sxm5-80gb"), versions)
    assert rc == 0
    assert set(ids) == {9}
    assert set(sms) == {60}
    assert set(mib) == {40448}
    assert set(names) == {"MIG 3g.40gb"}


def test_mig_calls_with_mig_off(simulate) -> None:
    def off():
        dev = device()
        array, n = (nv.c_nvmlGpuInstance_t * 8)(), c_uint()
        return [
            code(nv.nvmlDeviceCreateGpuInstance, dev, 19),
            code(nv.nvmlDeviceGetGpuInstances, dev, 19, array, byref(n)),
            code(nv.nvmlDeviceGetGpuInstanceRemainingCapacity, dev, 19),
            code(nv.nvmlDeviceGetMigDeviceHandleByIndex, dev, 0),
            code(nv.nvmlDeviceGetGpuInstanceById, dev, 1),
            len(profiles(dev)),
        ]

    assert client(simulate("a100-sxm4-80gb"), off) == [3, 3, 3, 6, 3, 7]


def test_not_privileged(simulate) -> None:
    """Level 0 is a user in a container without the monitor capability, 1 one who has it."""

    def attempts():
        dev = device()
        array, n = (nv.c_nvmlGpuInstance_t * 8)(), c_uint()
        (mig,) = mig_devices(dev).values()
        return {
            "mode": code(nv.nvmlDeviceSetMigMode, dev, 0),
            "create": code(nv.nvmlDeviceCreateGpuInstance, dev, 19),
            "limit": code(nv.nvmlDeviceSetPowerManagementLimit, dev, 300000),
            "list": code(nv.nvmlDeviceGetGpuInstances, dev, 9, array, byref(n)),
            "memory": code(nv.nvmlDeviceGetMemoryInfo, dev),
            "processes": code(nv.nvmlDeviceGetComputeRunningProcesses, dev),
            "own memory": code(nv.nvmlDeviceGetMemoryInfo, mig),
            "own name": code(nv.nvmlDeviceGetName, mig),
            "read mode": code(nv.nvmlDeviceGetMigMode, dev),
            "power": code(nv.nvmlDeviceGetPowerUsage, dev),
        }

    def prepare():
        make(device(), "3g.40gb", 0)
        return gpu_instances(device())

    sim = simulate("a100-sxm4-80gb", mig=True)
    assert client(sim, prepare) == [["3g.40gb", 0, 1]]
    sim.control().set_option(0, "permission", 0)
    refused = {name for name, value in client(sim, attempts).items() if value == 4}
    assert refused == {"mode", "create", "limit", "list", "memory", "processes"}
    sim.control().set_option(0, "permission", 1)
    refused = {name for name, value in client(sim, attempts).items() if value == 4}
    assert refused == {"mode", "create", "limit"}


def test_identity_in_all_forms(simulate) -> None:
    def identity():
        rows = []
        for index in range(nv.nvmlDeviceGetCount() if not nv.nvmlInit() else 0):
            dev = nv.nvmlDeviceGetHandleByIndex(index)
            pci = nv.nvmlDeviceGetPciInfo(dev)
            again = [
                nv.nvmlDeviceGetHandleByPciBusId(pci.busId),
                nv.nvmlDeviceGetHandleByPciBusId(pci.busIdLegacy),
                nv.nvmlDeviceGetHandleByUUID(nv.nvmlDeviceGetUUID(dev)),
                nv.nvmlDeviceGetHandleBySerial(nv.nvmlDeviceGetSerial(dev)),
            ]
            rows.append(
                [
                    nv.nvmlDeviceGetName(dev),
                    f"{pci.pciDeviceId:08X}",
                    nv.nvmlDeviceGetArchitecture(dev),
                    nv.nvmlDeviceGetCudaComputeCapability(dev),
                    nv.nvmlDeviceGetMemoryInfo(dev, nv.nvmlMemory_v2).total >> 20,
                    nv.nvmlDeviceGetPowerManagementLimitConstraints(dev),
                    [nv.nvmlDeviceGetIndex(d) for d in again] == [index] * 4,
                ]
            )
        return [rows, code(nv.nvmlDeviceGetHandleByPciBusId, "0000:99:00.0")]

    sim = simulate("a30", "a100-sxm4-80gb", "h200-sxm-141gb", "b200-180gb")
    rows, unknown = client(sim, identity)
    assert rows == [
        ["NVIDIA A30", "20B710DE", 7, [8, 0], 24576, [100000, 165000], True],
        ["NVIDIA A100-SXM4-80GB", "20B210DE", 7, [8, 0], 81920, [100000, 400000], True],
        ["NVIDIA H200", "233510DE", 9, [9, 0], 143771, [200000, 700000], True],
        ["NVIDIA B200", "290110DE", 10, [10, 0], 183359, [200000, 1000000], True],
    ]
    assert unknown == nv.NVML_ERROR_NOT_FOUND
