"""CUDA_VISIBLE_DEVICES and its relatives, in all the forms that crashed other programs."""

import pytest

from wattslice.boards.nvidia.mig.ids import ComputeInstanceId, GpuInstanceId
from wattslice.boards.nvidia.resolve import (
    Instance,
    Present,
    ResolveError,
    against_allocation,
    resolve,
)

A = "GPU-aaaa1111-0000-0000-0000-000000000000"
B = "GPU-aaaa2222-0000-0000-0000-000000000000"
C = "GPU-cccc3333-0000-0000-0000-000000000000"
M1 = "MIG-11111111-0000-5000-8000-000000000000"
M2 = "MIG-11112222-0000-5000-8000-000000000000"


def _instance(uuid, gi, ci=0, profile="3g.40gb"):
    return Instance(uuid, GpuInstanceId(gi), ComputeInstanceId(ci), profile, 42, 40192)


PRESENT = (
    Present(A, "NVIDIA A100", minor=0),
    Present(B, "NVIDIA A100", minor=1),
    Present(
        C,
        "NVIDIA A100",
        mig_on=True,
        minor=2,
        instances=(_instance(M1, 1), _instance(M2, 2)),
    ),
)

TABLE = [
    ("0", [A]),
    ("1", [B]),
    ("1,0", [B, A]),
    (" 0 , 1 ", [A, B]),
    ("0,1,2", [A, B, M1]),
    ("2", [M1]),
    ("0,7,1", [A]),  # the list ends at the first invalid entry
    ("0,-1,1", [A]),
    ("0,GPU-aaaa2222", [A]),  # kinds are not mixed
    ("1gpu2,0x", [B, A]),  # numbers are read as strtoul reads them
    ("", []),
    ("-1", []),
    ("NoDevFiles", []),
    (A, [A]),
    (f"{B},{A}", [B, A]),
    ("GPU-aaaa1", [A]),
    ("GPU-cc", [M1]),
    (f"{A},0", [A]),
    (f"{A},GPU-nope,{B}", [A]),
    (M1, [M1]),
    ("MIG-11112", [M2]),
    (f"{M2},{M1}", [M2, M1]),
    (f"MIG-{C}/2/0", [M2]),
    (f"MIG-{C}/1/0", [M1]),
]


@pytest.mark.parametrize(("text", "uuids"), TABLE)
def test_t02_t03_all_forms_of_visible_devices(text, uuids):
    found = resolve({"CUDA_VISIBLE_DEVICES": text}, PRESENT)
    assert [v.uuid for v in found.devices] == uuids


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("5", "is no device number here"),
        ("GPU-aaaa", "fits 2 devices"),
        ("GPU-ffff", "fits no device"),
        ("MIG-1111", "fits 2 devices"),
        (f"MIG-{A}/1/0", "fits no device"),
        (f"MIG-{C}/3/0", "fits no device"),
        ("0,0", "named twice"),
        (f"{A},{A}", "named twice"),
        ("banana", "is no device number here"),
    ],
)
def test_t04_an_entry_that_fits_nothing_is_an_error_and_never_zero_energy(text, why):
    with pytest.raises(ResolveError, match=why) as caught:
        resolve({"CUDA_VISIBLE_DEVICES": text}, PRESENT)
    assert A in str(caught.value)  # the message says what there is


def test_t01_t22_a_mig_device_leads_to_its_board_once():
    found = resolve({"CUDA_VISIBLE_DEVICES": f"{M1},{M2}"}, PRESENT)
    assert [b.uuid for b in found.boards] == [C]


def test_t19_t32_a_slice_tells_its_profile_size_and_siblings():
    (device,) = resolve({"CUDA_VISIBLE_DEVICES": M1}, PRESENT).devices
    assert device.instance.profile == "3g.40gb"
    assert (device.instance.sm_count, device.instance.memory_mib) == (42, 40192)
    assert [s.uuid for s in device.siblings] == [M2]


def test_nothing_set_means_all_boards_and_first_instances():
    found = resolve({}, PRESENT)
    assert [v.uuid for v in found.devices] == [A, B, M1]
    assert found.variable is None


def test_a_board_in_mig_mode_without_instance_gives_no_device():
    empty = (Present(C, "NVIDIA A100", mig_on=True),)
    assert resolve({}, empty).devices == ()
    with pytest.raises(ResolveError, match="no instance"):
        resolve({"CUDA_VISIBLE_DEVICES": "0"}, empty)


def test_numbers_of_different_boards_need_the_pci_order():
    mixed = (Present(A, "NVIDIA A100", minor=0), Present(B, "NVIDIA H100", minor=1))
    with pytest.raises(ResolveError, match="CUDA_DEVICE_ORDER=PCI_BUS_ID"):
        resolve({"CUDA_VISIBLE_DEVICES": "1"}, mixed)
    ordered = {"CUDA_VISIBLE_DEVICES": "1", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    assert [v.uuid for v in resolve(ordered, mixed).devices] == [B]
    assert [v.uuid for v in resolve({"CUDA_VISIBLE_DEVICES": B}, mixed).devices] == [B]


@pytest.mark.parametrize(
    ("environ", "uuids"),
    [
        ({"SLURM_JOB_GPUS": "1"}, [B]),
        ({"SLURM_STEP_GPUS": "0", "SLURM_JOB_GPUS": "0,1"}, [A]),
        ({"GPU_DEVICE_ORDINAL": "0", "SLURM_JOB_GPUS": "1"}, [A]),
        ({"CUDA_VISIBLE_DEVICES": B, "SLURM_JOB_GPUS": "0"}, [B]),
        ({"SLURM_JOB_GPUS": "4,5,6"}, [A, B, M1]),  # its cgroup shows three boards of many
        ({"NVIDIA_VISIBLE_DEVICES": "all"}, [A, B, M1]),
        ({"NVIDIA_VISIBLE_DEVICES": "void"}, []),
        ({"NVIDIA_VISIBLE_DEVICES": A}, [A]),
        ({"NVIDIA_VISIBLE_DEVICES": "3"}, [A, B, M1]),
    ],
)
def test_t52_schedulers_and_containers_restrict_the_boards(environ, uuids):
    assert [v.uuid for v in resolve(environ, PRESENT).devices] == uuids


def test_t21_a_device_outside_the_slurm_allocation_is_named_before_training():
    ok = {"SLURM_JOB_GPUS": "1", "CUDA_VISIBLE_DEVICES": "1"}
    assert against_allocation(ok, PRESENT) == ()
    wrong = {"SLURM_JOB_GPUS": "1", "CUDA_VISIBLE_DEVICES": A}
    (text,) = against_allocation(wrong, PRESENT)
    assert A in text
    assert "SLURM_JOB_GPUS=1" in text
    assert against_allocation({"CUDA_VISIBLE_DEVICES": A}, PRESENT) == ()
