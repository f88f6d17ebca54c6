"""The traps of nvidia-ml-py, each on a stand-in for the module."""

import ctypes
from types import SimpleNamespace

import pynvml
import pytest
from nvidia_sim import A100, on_simulator

from wattslice.boards.nvidia import nvml, nvml_errors


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (1, nvml_errors.NvmlUninitializedError),
        (2, nvml_errors.NvmlInvalidArgumentError),
        (3, nvml_errors.NvmlNotSupportedError),
        (4, nvml_errors.NvmlNoPermissionError),
        (6, nvml_errors.NvmlNotFoundError),
        (7, nvml_errors.NvmlInsufficientSizeError),
        (9, nvml_errors.NvmlDriverNotLoadedError),
        (12, nvml_errors.NvmlLibraryNotFoundError),
        (13, nvml_errors.NvmlFunctionNotFoundError),
        (15, nvml_errors.NvmlGpuLostError),
        (18, nvml_errors.NvmlDriverMismatchError),
        (19, nvml_errors.NvmlInUseError),
        (23, nvml_errors.NvmlInsufficientResourcesError),
        (25, nvml_errors.NvmlVersionMismatchError),
        (999, nvml_errors.NvmlError),
    ],
)
def test_each_code_is_the_exception_of_its_meaning(code, kind, monkeypatch):
    def fail():
        raise pynvml.NVMLError(code)

    monkeypatch.setattr(pynvml, "nvmlSystemGetDriverVersion", fail)
    with pytest.raises(kind) as caught:
        nvml.driver_version()
    assert type(caught.value) is kind
    assert caught.value.code == code
    assert f"({code})" in str(caught.value)
    hash(caught.value)  # NVMLError itself cannot be hashed


def test_a_code_that_nobody_knows_yet_is_kept(monkeypatch):
    def fail():
        raise pynvml.NVMLError(4711)

    monkeypatch.setattr(pynvml, "nvmlSystemGetDriverVersion", fail)
    with pytest.raises(nvml_errors.NvmlError, match="4711") as caught:
        nvml.driver_version()
    assert caught.value.code == 4711


def test_a_call_that_nvidia_ml_py_does_not_have_is_function_not_found(monkeypatch):
    monkeypatch.delattr(pynvml, "nvmlDeviceGetNumGpuCores")
    monkeypatch.setattr(pynvml, "nvmlDeviceGetCudaComputeCapability", lambda device: (8, 0))
    with pytest.raises(nvml_errors.NvmlFunctionNotFoundError):
        nvml.sm_count(nvml.Device(object()))


def test_the_names_of_codes_are_those_of_the_header():
    prefix = "NVML_ERROR_"
    known = {
        value: name.removeprefix(prefix)
        for name, value in vars(pynvml).items()
        if name.startswith(prefix) and isinstance(value, int)
    }
    for code, name in known.items():
        if code in nvml_errors.CODE_NAMES:
            assert nvml_errors.CODE_NAMES[code] == name


@pytest.mark.parametrize("value", ["GPU-x", b"GPU-x"])
def test_text_may_come_as_bytes(value, monkeypatch):
    monkeypatch.setattr(pynvml, "nvmlDeviceGetUUID", lambda device: value)
    assert nvml.uuid(nvml.Device(object())) == "GPU-x"


@pytest.mark.parametrize(("value", "is_mig"), [(0, False), (1, True)])
def test_a_ctypes_number_is_read_as_a_number(value, is_mig, monkeypatch):
    found = ctypes.c_uint(value)
    assert found != value  # the trap
    monkeypatch.setattr(pynvml, "nvmlDeviceIsMigDeviceHandle", lambda device: found)
    assert nvml.is_mig_handle(nvml.Device(object())) is is_mig


def _field(code, kind, member="uiVal", value=0):
    union = pynvml.c_nvmlValue_t()
    setattr(union, member, value)
    return SimpleNamespace(nvmlReturn=code, valueType=kind, value=union)


@pytest.mark.parametrize(
    ("kind", "member", "value"),
    [
        (0, "dVal", 2.5),
        (1, "uiVal", 4_000_000_000),
        (2, "ulVal", 7),
        (3, "ullVal", 2**40),
        (4, "sllVal", -5),
        (5, "siVal", -6),
        (6, "usVal", 65535),
    ],
)
def test_a_field_is_read_by_its_value_type(kind, member, value, monkeypatch):
    monkeypatch.setattr(
        pynvml, "nvmlDeviceGetFieldValues", lambda device, ids: [_field(0, kind, member, value)]
    )
    assert nvml.field_value(nvml.Device(object()), 186) == value


def test_each_field_has_a_return_code_of_its_own(monkeypatch):
    answers = [_field(0, 1, value=54000), _field(3, 1, value=99), _field(0, 77)]
    monkeypatch.setattr(pynvml, "nvmlDeviceGetFieldValues", lambda device, ids: answers)
    fields = [(186, 0), (185, 0), (83, 0)]
    power, average, later = nvml.field_values(nvml.Device(object()), fields)
    assert (power.ok, power.value) == (True, 54000)
    assert (average.ok, average.value, average.code) == (False, None, 3)
    assert (later.ok, later.code) == (False, 999)  # a value type of a later API


def test_a_value_that_is_missing_has_a_reason_and_is_not_zero():
    def fail():
        raise nvml_errors.error_for(4, "nvmlDeviceGetTemperature")

    missing = nvml.quantity(fail)
    assert missing.value is None
    assert missing.reason == "nvmlDeviceGetTemperature: NO_PERMISSION (4)"
    assert nvml.quantity(lambda: 0).value == 0.0


def test_unknown_bits_of_event_reasons_are_kept():
    assert nvml.event_reason_names(0x4 | 0x8000) == ("sw_power_cap", "unknown:0x8000")
    assert nvml.event_reason_names(0) == ()


@on_simulator(f"{A100},a30")
def test_cuda_python_2862_real_arrays_are_passed_and_grown_if_called_too_short(sim):
    from wattslice.boards.nvidia.mig.ids import ProfileId

    nvml.ensure_open()
    sim.fault("nvmlDeviceGetGpuInstancePossiblePlacements*", 7, 1, 1)
    device = nvml.device_by_uuid(sim.uuid())
    assert len(nvml.possible_placements(device, ProfileId(19))) == 7


@on_simulator(A100)
def test_hami_2830_opening_twice_and_closing_twice_is_harmless(sim):
    nvml.ensure_open()
    nvml.ensure_open()
    nvml.close()
    nvml.close()
    nvml.ensure_open()
    assert nvml.uuid(nvml.device_by_uuid(sim.uuid())) == sim.uuid()


@on_simulator(f"{A100},{A100}")
def test_gpustat_102_a_board_outside_the_containers_allocation_is_skipped(sim):
    nvml.ensure_open()
    sim.fault("nvmlDeviceGetHandleByIndex*", 4, 1, 1)
    assert [nvml.uuid(d) for _, d in nvml.devices()] == [sim.uuid(1)]


@on_simulator(f"{A100},{A100}")
def test_a_lost_board_does_not_hide_the_others(sim):
    from wattslice.boards.nvidia.board import discover

    nvml.ensure_open()
    sim.fault("nvmlDeviceGetHandleByIndex*", 15, 1, 1)
    assert [b.identity.uuid for b in discover()] == [sim.uuid(1)]


@on_simulator(A100)
def test_the_stand_in_is_recognised(sim):
    assert nvml.is_simulated()
