"""The one module that calls NVML (through nvidia-ml-py), with typed errors and units.

Handles are opaque and go stale when instances or modes change: get them anew, by UUID, after each
change, and keep none. Nothing here interprets a failure: every call either returns a value or
raises the NvmlError of its return code.
"""

from __future__ import annotations

import ctypes
import functools
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NewType, TypeVar

import pynvml

from wattslice.boards.nvidia.mig.ids import (
    CiProfileConstant,
    CiProfileId,
    ComputeInstanceId,
    GpuInstanceId,
    ProfileConstant,
    ProfileId,
)
from wattslice.boards.nvidia.nvml_errors import (
    NvmlError,
    NvmlFunctionNotFoundError,
    NvmlGpuLostError,
    NvmlInsufficientSizeError,
    NvmlInvalidArgumentError,
    NvmlNoPermissionError,
    NvmlNotFoundError,
    NvmlNotSupportedError,
    NvmlVersionMismatchError,
    error_for,
)
from wattslice.records.base import Quantity

Device = NewType("Device", object)
MigDevice = NewType("MigDevice", object)
GpuInstance = NewType("GpuInstance", object)
ComputeInstance = NewType("ComputeInstance", object)

T = TypeVar("T")

# Field ids and scopes of nvmlDeviceGetFieldValues (nvml.h, API 13).
FIELD_TOTAL_ENERGY = 83  # mJ since the driver was loaded
FIELD_RESETLESS_MIG = 184
FIELD_POWER_AVERAGE = 185  # mW, mean of one second; not on GA100
FIELD_POWER_INSTANT = 186  # mW
FIELD_POWER_MIN_LIMIT = 187
FIELD_POWER_MAX_LIMIT = 188
FIELD_POWER_DEFAULT_LIMIT = 189
FIELD_POWER_LIMIT = 190
FIELD_ENERGY = 191  # mJ, by scope
FIELD_MIG_QUERY_WITHOUT_MIG = 199
SCOPE_GPU = 0
SCOPE_MODULE = 1
SCOPE_MEMORY = 2

# More constants than nvml.h has today (18), so that later ones are found; the loop stops at the
# library's INVALID_ARGUMENT.
_MAX_PROFILE_CONSTANT = 64
_MAX_CI_PROFILE_CONSTANT = 32
_ENGINE_SHARED = 0  # NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED, the only one
# nvml.h does not say that a call looks at the size of the caller's array, so it is ample: no board
# has a tenth of this many places or instances.
_FIRST_ARRAY = 256
_LAST_ARRAY = 4096

ARCHITECTURES = {
    2: "kepler",
    3: "maxwell",
    4: "pascal",
    5: "volta",
    6: "turing",
    7: "ampere",
    8: "ada",
    9: "hopper",
    10: "blackwell",
}

# Bits of nvmlDeviceGetCurrentClocksEventReasons (nvml.h, API 13).
EVENT_REASONS = {
    0x1: "gpu_idle",
    0x2: "applications_clocks_setting",
    0x4: "sw_power_cap",
    0x8: "hw_slowdown",
    0x10: "sync_boost",
    0x20: "sw_thermal_slowdown",
    0x40: "hw_thermal_slowdown",
    0x80: "hw_power_brake_slowdown",
    0x100: "display_clock_setting",
    0x200: "board_limit",
    0x400: "low_reliability",
}


@dataclass(frozen=True, slots=True)
class Pci:
    bus_id: str  # e.g. 00000000:36:00.0
    device_id: int  # device << 16 | vendor


@dataclass(frozen=True, slots=True)
class MigMode:
    current: bool
    pending: bool

    @property
    def settled(self) -> bool:
        return self.current == self.pending


@dataclass(frozen=True, slots=True)
class GiProfileInfo:
    """A GPU instance profile as the driver describes it."""

    constant: ProfileConstant
    profile_id: ProfileId
    name: str | None  # without "MIG "; None from libraries that do not give it
    compute_slices: int
    max_count: int
    sm_count: int
    memory_mib: int


@dataclass(frozen=True, slots=True)
class GiInfo:
    gi_id: GpuInstanceId
    profile_id: ProfileId
    start: int
    size: int


@dataclass(frozen=True, slots=True)
class CiProfileInfo:
    constant: CiProfileConstant
    profile_id: CiProfileId
    compute_slices: int
    max_count: int
    sm_count: int


@dataclass(frozen=True, slots=True)
class CiInfo:
    ci_id: ComputeInstanceId
    profile_id: CiProfileId
    start: int
    size: int


@dataclass(frozen=True, slots=True)
class MigAttributes:
    sm_count: int
    gi_slices: int
    ci_slices: int
    memory_mib: int


@dataclass(frozen=True, slots=True)
class FieldReading:
    """One field of a field-values call: a value, or the code why there is none."""

    field: int
    scope: int
    code: int
    value: float | None

    @property
    def ok(self) -> bool:
        return self.code == 0 and self.value is not None


@dataclass(frozen=True, slots=True)
class Memory:
    total_mib: float
    used_mib: float


def quantity(read: Callable[[], float]) -> Quantity:
    """The value, or null with NVML's code: a metric that fails takes no other with it."""
    try:
        return Quantity.of(float(read()))
    except NvmlError as error:
        return Quantity.missing(error.reason)


def event_reason_names(mask: int) -> tuple[str, ...]:
    """Names of the bits of a clocks event mask; unknown bits are kept as numbers."""
    names = [name for bit, name in EVENT_REASONS.items() if mask & bit]
    unknown = mask & ~sum(EVENT_REASONS)
    return tuple(names + ([f"unknown:{unknown:#x}"] if unknown else []))


def _text(value: str | bytes) -> str:
    # Older nvidia-ml-py returns bytes where newer ones return str.
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def _number(value: Any) -> int:
    # Some calls return a ctypes object, which is true or false but equal to no number.
    return int(getattr(value, "value", value))


def _call(name: str, *arguments: Any, **keywords: Any) -> Any:
    function = getattr(pynvml, name, None)
    if function is None:
        raise NvmlFunctionNotFoundError(13, name)
    try:
        return function(*arguments, **keywords)
    except pynvml.NVMLError as error:
        raise error_for(int(error.value), name) from None


# --- life cycle --------------------------------------------------------------------------------

_lock = threading.Lock()
_owner_pid: int | None = None


def ensure_open() -> None:
    """Initialise NVML once for this process, and again in a forked child.

    NVML is unusable after a fork, so a child starts it anew. It stays open until the process
    ends or `close` is called: repeated initialisation is slow without persistence mode.

    Raises NvmlUnavailableError when this host has no working NVML.
    """
    global _owner_pid  # noqa: PLW0603
    with _lock:
        if _owner_pid == os.getpid():
            return
        _call("nvmlInit")
        _owner_pid = os.getpid()


def close() -> None:
    """Let go of NVML; all handles die. A no-op if this process has not opened it."""
    global _owner_pid  # noqa: PLW0603
    with _lock:
        if _owner_pid == os.getpid():
            _owner_pid = None
            _call("nvmlShutdown")


def is_simulated() -> bool:
    """Whether the loaded library is wattslice's stand-in rather than NVIDIA's."""
    ensure_open()
    library = pynvml.nvmlLib
    try:
        return getattr(library, "wattsim_abi_version", None) is not None
    except AttributeError:  # pragma: no cover - CDLL raises it for a missing symbol
        return False


def driver_version() -> str:
    return _text(_call("nvmlSystemGetDriverVersion"))


def library_version() -> str:
    return _text(_call("nvmlSystemGetNVMLVersion"))


# --- devices -----------------------------------------------------------------------------------


def devices() -> Iterator[tuple[int, Device]]:
    """All boards with their NVML index (PCI bus order).

    Boards outside the job's or container's allocation are skipped, and so are lost ones, which
    must not hide the others.
    """
    for index in range(int(_call("nvmlDeviceGetCount"))):
        try:
            yield index, Device(_call("nvmlDeviceGetHandleByIndex", index))
        except (NvmlNoPermissionError, NvmlNotFoundError, NvmlGpuLostError):
            continue


def device_by_uuid(uuid: str) -> Device:
    """The board with that UUID; a MIG UUID is refused, since it is not a board."""
    handle = Device(_call("nvmlDeviceGetHandleByUUID", uuid))
    if is_mig_handle(handle):
        raise NvmlInvalidArgumentError(2, f"device_by_uuid({uuid}): a MIG device is not a board")
    return handle


def any_handle_by_uuid(uuid: str) -> Device | MigDevice:
    """The board or MIG device with that UUID, in either form of a MIG UUID."""
    return Device(_call("nvmlDeviceGetHandleByUUID", uuid))


def is_mig_handle(handle: Device | MigDevice) -> bool:
    try:
        return bool(_number(_call("nvmlDeviceIsMigDeviceHandle", handle)))
    except (NvmlFunctionNotFoundError, NvmlNotSupportedError):
        return False


def uuid(handle: Device | MigDevice) -> str:
    return _text(_call("nvmlDeviceGetUUID", handle))


def name(handle: Device | MigDevice) -> str:
    return _text(_call("nvmlDeviceGetName", handle))


def serial(device: Device) -> str:
    return _text(_call("nvmlDeviceGetSerial", device))


def pci(device: Device) -> Pci:
    info = _call("nvmlDeviceGetPciInfo", device)
    return Pci(_text(info.busId), int(info.pciDeviceId))


def minor_number(device: Device) -> int:
    """N of /dev/nvidiaN; changes with the MIG mode on some boards."""
    return int(_call("nvmlDeviceGetMinorNumber", device))


def architecture(device: Device) -> str:
    number = int(_call("nvmlDeviceGetArchitecture", device))
    return ARCHITECTURES.get(number, f"architecture-{number}")


def compute_capability(device: Device) -> tuple[int, int]:
    major, minor = _call("nvmlDeviceGetCudaComputeCapability", device)
    return int(major), int(minor)


def memory(handle: Device | MigDevice) -> Memory:
    """Memory of a board, or of the GPU instance of a MIG device (shared by its CIs)."""
    try:
        info = _call("nvmlDeviceGetMemoryInfo", handle, version=pynvml.nvmlMemory_v2)
    except (NvmlFunctionNotFoundError, NvmlVersionMismatchError, AttributeError):
        info = _call("nvmlDeviceGetMemoryInfo", handle)
    return Memory(int(info.total) / 2**20, int(info.used) / 2**20)


# FP32 cores per SM by compute capability (CUDA C++ Programming Guide, arithmetic throughput).
_CORES_PER_SM = {(7, 0): 64, (7, 5): 64, (8, 0): 64}
_CORES_PER_SM_LATER = 128  # 8.6, 8.9, 9.0, 10.x, 12.x


def sm_count(device: Device) -> int:
    """Streaming multiprocessors of the whole board, MIG off.

    NVML gives attributes of MIG devices only, but counts the board's cores.
    """
    capability = compute_capability(device)
    per_sm = _CORES_PER_SM.get(capability, _CORES_PER_SM_LATER)
    return int(_call("nvmlDeviceGetNumGpuCores", device)) // per_sm


def persistence_mode(device: Device) -> bool:
    return bool(_number(_call("nvmlDeviceGetPersistenceMode", device)))


def processes(handle: Device | MigDevice) -> dict[int, float | None]:
    """Compute and graphics processes: pid -> memory in MiB, None where NVML does not say."""
    found: dict[int, float | None] = {}
    for call in ("nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceGetGraphicsRunningProcesses"):
        try:
            listed = _call(call, handle)
        except (NvmlNotSupportedError, NvmlFunctionNotFoundError):
            continue
        for process in listed:
            used = process.usedGpuMemory
            found[int(process.pid)] = None if used is None else int(used) / 2**20
    return found


# --- sensors -----------------------------------------------------------------------------------


def power_w(device: Device) -> float:
    """The plain power call: instantaneous on GA100 and older, a mean of 1 s on later boards."""
    return int(_call("nvmlDeviceGetPowerUsage", device)) / 1000.0


def energy_j(device: Device) -> float:
    """Energy since the driver was loaded."""
    return int(_call("nvmlDeviceGetTotalEnergyConsumption", device)) / 1000.0


def power_limit_w(device: Device) -> float:
    """The limit in force: the lowest of what was set and what the system demands."""
    return int(_call("nvmlDeviceGetEnforcedPowerLimit", device)) / 1000.0


def temperature_c(device: Device) -> float:
    return float(_call("nvmlDeviceGetTemperature", device, pynvml.NVML_TEMPERATURE_GPU))


def sm_clock_mhz(device: Device) -> float:
    return float(_call("nvmlDeviceGetClockInfo", device, pynvml.NVML_CLOCK_SM))


def memory_clock_mhz(device: Device) -> float:
    return float(_call("nvmlDeviceGetClockInfo", device, pynvml.NVML_CLOCK_MEM))


def utilisation(device: Device) -> float:
    """0..1, of the whole board; not supported while MIG is on."""
    return int(_call("nvmlDeviceGetUtilizationRates", device).gpu) / 100.0


def event_reasons(device: Device) -> int:
    """Bit mask of why the clocks are what they are; see EVENT_REASONS."""
    try:
        return int(_call("nvmlDeviceGetCurrentClocksEventReasons", device))
    except NvmlFunctionNotFoundError:  # named so up to driver 530
        return int(_call("nvmlDeviceGetCurrentClocksThrottleReasons", device))


# valueType of a field -> member of the union (nvmlValueType_t, API 13).
_VALUE_MEMBERS = {
    0: "dVal",
    1: "uiVal",
    2: "ulVal",
    3: "ullVal",
    4: "sllVal",
    5: "siVal",
    6: "usVal",
}


def _code_and_value(entry: Any) -> tuple[int, float | None]:
    """Of one field's entry: 0 and its value, or the code why there is none."""
    code = int(entry.nvmlReturn)
    member = _VALUE_MEMBERS.get(int(entry.valueType))
    if code == 0 and member is None:
        code = 999  # a type of a later API: a value that cannot be read
    return code, float(getattr(entry.value, str(member))) if code == 0 else None


def field_values(device: Device, fields: Sequence[tuple[int, int]]) -> tuple[FieldReading, ...]:
    """Read (field id, scope id) pairs in one call; each has a return code of its own."""
    entries = _call("nvmlDeviceGetFieldValues", device, list(fields))
    return tuple(
        FieldReading(field, scope, *_code_and_value(entry))
        for (field, scope), entry in zip(fields, entries, strict=True)
    )


class PreparedFields:
    """Some fields of one board, read again and again: the arrays of the call are made once.

    A sampler reads ten times a second for hours; `field_values` costs several times as much.
    """

    def __init__(self, device: Device, fields: Sequence[tuple[int, int]]) -> None:
        entry = pynvml.c_nvmlFieldValue_t
        self._type = entry * len(fields)
        self._array = self._type()
        for item, (field, scope) in zip(self._array, fields, strict=True):
            item.fieldId, item.scopeId = field, scope
        count = ctypes.c_int(len(fields))
        function = pynvml.nvmlLib.nvmlDeviceGetFieldValues
        self._call = functools.partial(function, device, count, self._array)

    def read(self) -> bytes:
        """The fields as the driver wrote them. Raises the NvmlError of the call as a whole."""
        if code := self._call():
            raise error_for(int(code), "nvmlDeviceGetFieldValues")
        return bytes(self._array)

    def values(self, raw: bytes) -> list[tuple[int, float | None]]:
        """Return code and value of each field of a reading."""
        return [_code_and_value(entry) for entry in self._type.from_buffer_copy(raw)]


def field_value(device: Device, field: int, scope: int = SCOPE_GPU) -> float:
    """One field. Raises the NvmlError of the field's own return code."""
    reading = field_values(device, [(field, scope)])[0]
    if reading.value is None:
        raise error_for(reading.code, f"field {field} scope {scope}")
    return reading.value


# --- activity (GPM) ----------------------------------------------------------------------------

# Metrics of nvmlGpmMetricsGet, in per cent of the board's or of the GPU instance's own units.
GPM_GRAPHICS_ACTIVITY = 1
GPM_SM_ACTIVITY = 2
GPM_SM_OCCUPANCY = 3
GPM_TENSOR_ACTIVITY = 5
# Two samples closer together than this give no metric (nvml.h at nvmlGpmMetricsGet), s.
GPM_MIN_SPACING_S = 0.1


def gpm_supported(device: Device) -> bool:
    """Whether the board counts activity for NVML: Hopper and later do, and no earlier one."""
    return bool(_call("nvmlGpmQueryDeviceSupport", device).isSupportedDevice)


class GpmSample:
    """The state of a board's or a GPU instance's activity counters at one moment."""

    def __init__(self) -> None:
        self._handle: Any = _call("nvmlGpmSampleAlloc")

    def take(self, device: Device, instance: GpuInstanceId | None) -> None:
        """Read the counters of the whole board, or of one of its GPU instances.

        Raises NvmlNotSupportedError (no GPM, or MIG off), NvmlNotFoundError (no such instance)
        and NvmlNoDataError (the instance has no compute instance).
        """
        if instance is None:
            _call("nvmlGpmSampleGet", device, self._handle)
        else:
            _call("nvmlGpmMigSampleGet", device, int(instance), self._handle)

    def take_of(self, handle: MigDevice) -> None:
        """Read the counters of a MIG device's GPU instance, where the parent may not be asked."""
        _call("nvmlGpmSampleGet", handle, self._handle)

    def until(self, later: GpmSample, metrics: Sequence[int]) -> dict[int, FieldReading]:
        """Metrics (per cent) between this sample and a later one, each with its own code.

        Raises NvmlInvalidArgumentError where the two are of different instances: the counters
        start anew when an id is given to a new instance.
        """
        request = pynvml.c_nvmlGpmMetricsGet_t()
        request.version = pynvml.NVML_GPM_METRICS_GET_VERSION
        request.numMetrics = len(metrics)
        request.sample1, request.sample2 = self._handle, later._handle
        for entry, metric in zip(request.metrics, metrics, strict=False):
            entry.metricId = metric
        _call("nvmlGpmMetricsGet", request)
        found = {}
        for entry in request.metrics[: len(metrics)]:
            code = int(entry.nvmlReturn)
            value = float(entry.value) if code == 0 else None
            found[int(entry.metricId)] = FieldReading(int(entry.metricId), 0, code, value)
        return found

    def free(self) -> None:
        """Let go of the memory. A second call does nothing."""
        if self._handle is not None:
            handle, self._handle = self._handle, None
            _call("nvmlGpmSampleFree", handle)


# --- MIG mode ----------------------------------------------------------------------------------


def mig_mode(device: Device) -> MigMode:
    """Current and pending mode. NvmlNotSupportedError: the board has no MIG."""
    current, pending = _call("nvmlDeviceGetMigMode", device)
    return MigMode(bool(_number(current)), bool(_number(pending)))


def set_mig_mode(device: Device, on: bool) -> int:
    """Ask for a mode; returns the activation status, an NVML code that is 0 when it took effect.

    The return code of the call only says that the wish was recorded. All handles of the board are
    stale afterwards. Needs root.
    """
    return _number(_call("nvmlDeviceSetMigMode", device, 1 if on else 0))


# --- GPU instances -----------------------------------------------------------------------------


def gi_profiles(device: Device) -> tuple[GiProfileInfo, ...]:
    """All GPU instance profiles of the board. NvmlNotSupportedError if it can say none now."""
    found = []
    unsupported: NvmlError | None = None
    for constant in range(_MAX_PROFILE_CONSTANT):
        try:
            info, text = _gi_profile(device, constant)
        except NvmlInvalidArgumentError:
            break  # past the last constant that this library knows
        except NvmlNotSupportedError as error:
            unsupported = error
            continue
        found.append(
            GiProfileInfo(
                constant=ProfileConstant(constant),
                profile_id=ProfileId(int(info.id)),
                name=text,
                compute_slices=int(info.sliceCount),
                max_count=int(info.instanceCount),
                sm_count=int(info.multiprocessorCount),
                memory_mib=int(info.memorySizeMB),
            )
        )
    if not found and unsupported is not None:
        raise unsupported
    return tuple(found)


def _gi_profile(device: Device, constant: int) -> tuple[Any, str | None]:
    call = "nvmlDeviceGetGpuInstanceProfileInfo"
    try:
        info = _call(call, device, constant, version=2)
    except (NvmlFunctionNotFoundError, NvmlVersionMismatchError):
        return _call(call, device, constant, version=1), None
    return info, _profile_name(info)


def _profile_name(info: Any) -> str | None:
    return _text(info.name).removeprefix("MIG ").strip() or None


def possible_placements(device: Device, profile_id: ProfileId) -> tuple[tuple[int, int], ...]:
    """All legal (start, size) of a profile, free or not. Needs privilege on most drivers."""

    def ask(array: Any, count: Any) -> Any:
        return _call("nvmlDeviceGetGpuInstancePossiblePlacements", device, profile_id, array, count)

    placements = _array(pynvml.c_nvmlGpuInstancePlacement_t, ask)
    return tuple((int(p.start), int(p.size)) for p in placements)


def _array(kind: Any, ask: Callable[[Any, Any], Any]) -> list[Any]:
    """Fill a caller-allocated array; real boards refuse NULL and too short ones."""
    size = _FIRST_ARRAY
    while True:
        array = (kind * size)()
        count = ctypes.c_uint(size)
        try:
            ask(array, ctypes.byref(count))
        except NvmlInsufficientSizeError:
            if size >= _LAST_ARRAY:
                raise
            size *= 4
            continue
        return list(array[: min(count.value, size)])


def remaining_capacity(device: Device, profile_id: ProfileId) -> int:
    """How many more instances of the profile fit now."""
    return int(_call("nvmlDeviceGetGpuInstanceRemainingCapacity", device, profile_id))


def gpu_instances(device: Device, profile_id: ProfileId) -> tuple[GpuInstance, ...]:
    """Instances of a profile. Needs privilege."""

    def ask(array: Any, count: Any) -> Any:
        return _call("nvmlDeviceGetGpuInstances", device, profile_id, array, count)

    return tuple(GpuInstance(handle) for handle in _array(pynvml.c_nvmlGpuInstance_t, ask))


def gi_info(instance: GpuInstance) -> GiInfo:
    info = _call("nvmlGpuInstanceGetInfo", instance)
    return GiInfo(
        GpuInstanceId(int(info.id)),
        ProfileId(int(info.profileId)),
        int(info.placement.start),
        int(info.placement.size),
    )


def create_gpu_instance(
    device: Device, profile_id: ProfileId, start: int, size: int
) -> GpuInstance:
    """Create an instance at a place."""
    placement = pynvml.c_nvmlGpuInstancePlacement_t(start=start, size=size)
    # A bare structure would be passed by value: NVML wants a pointer.
    return GpuInstance(
        _call(
            "nvmlDeviceCreateGpuInstanceWithPlacement",
            device,
            profile_id,
            ctypes.byref(placement),
        )
    )


def destroy_gpu_instance(instance: GpuInstance) -> None:
    _call("nvmlGpuInstanceDestroy", instance)


# --- compute instances -------------------------------------------------------------------------


def ci_profiles(instance: GpuInstance) -> tuple[CiProfileInfo, ...]:
    """Compute instance profiles of a GPU instance; they can be had from an existing one only."""
    found = []
    call = "nvmlGpuInstanceGetComputeInstanceProfileInfo"
    for constant in range(_MAX_CI_PROFILE_CONSTANT):
        try:
            try:
                info = _call(call, instance, constant, _ENGINE_SHARED, version=2)
            except (NvmlFunctionNotFoundError, NvmlVersionMismatchError):
                info = _call(call, instance, constant, _ENGINE_SHARED, version=1)
        except NvmlInvalidArgumentError:
            break
        except NvmlNotSupportedError:
            continue
        found.append(
            CiProfileInfo(
                CiProfileConstant(constant),
                CiProfileId(int(info.id)),
                int(info.sliceCount),
                int(info.instanceCount),
                int(info.multiprocessorCount),
            )
        )
    return tuple(found)


def compute_instances(
    instance: GpuInstance, profile_id: CiProfileId
) -> tuple[ComputeInstance, ...]:
    def ask(array: Any, count: Any) -> Any:
        return _call("nvmlGpuInstanceGetComputeInstances", instance, profile_id, array, count)

    return tuple(ComputeInstance(handle) for handle in _array(pynvml.c_nvmlComputeInstance_t, ask))


def ci_info(instance: ComputeInstance) -> CiInfo:
    info = _call("nvmlComputeInstanceGetInfo", instance)
    return CiInfo(
        ComputeInstanceId(int(info.id)),
        CiProfileId(int(info.profileId)),
        int(info.placement.start),
        int(info.placement.size),
    )


def create_compute_instance(instance: GpuInstance, profile_id: CiProfileId) -> ComputeInstance:
    return ComputeInstance(_call("nvmlGpuInstanceCreateComputeInstance", instance, profile_id))


def destroy_compute_instance(instance: ComputeInstance) -> None:
    _call("nvmlComputeInstanceDestroy", instance)


# --- MIG devices -------------------------------------------------------------------------------


def mig_devices(device: Device) -> tuple[MigDevice, ...]:
    """The MIG devices of a board, one per compute instance.

    The maximum is no count and the indices have holes: all are tried.
    """
    try:
        slots = int(_call("nvmlDeviceGetMaxMigDeviceCount", device))
    except NvmlNotSupportedError:
        return ()
    found = []
    for index in range(slots):
        try:
            found.append(MigDevice(_call("nvmlDeviceGetMigDeviceHandleByIndex", device, index)))
        except (NvmlNotFoundError, NvmlInvalidArgumentError):
            continue
        except NvmlNotSupportedError:
            return ()  # MIG is off
    return tuple(found)


def mig_parent(handle: MigDevice | Device) -> Device:
    return Device(_call("nvmlDeviceGetDeviceHandleFromMigDeviceHandle", handle))


def mig_gpu_instance_id(handle: MigDevice) -> GpuInstanceId:
    return GpuInstanceId(int(_call("nvmlDeviceGetGpuInstanceId", handle)))


def mig_compute_instance_id(handle: MigDevice) -> ComputeInstanceId:
    return ComputeInstanceId(int(_call("nvmlDeviceGetComputeInstanceId", handle)))


def mig_attributes(handle: MigDevice) -> MigAttributes:
    info = _call("nvmlDeviceGetAttributes", handle)
    return MigAttributes(
        int(info.multiprocessorCount),
        int(info.gpuInstanceSliceCount),
        int(info.computeInstanceSliceCount),
        int(info.memorySizeMB),
    )
