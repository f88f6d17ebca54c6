"""Exceptions of real training processes and the outcomes they stand for."""

from __future__ import annotations

import errno

import pytest
import torch

from wattslice.workloads.outcomes import classify
from wattslice.workloads.precision import UnsupportedPrecisionError

# Texts as PyTorch and its libraries print them (several releases each).
OUT_OF_MEMORY = [
    torch.OutOfMemoryError(
        "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 9.50 GiB of "
        "which 1.04 GiB is free."
    ),
    torch.OutOfMemoryError("Allocation on device"),
    RuntimeError(
        "CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 4.75 GiB total capacity)"
    ),
    RuntimeError("CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported"),
    RuntimeError("CUDA driver error: out of memory"),
    RuntimeError("HIP out of memory. Tried to allocate 1.00 GiB."),
    RuntimeError(
        'NVML_SUCCESS == r INTERNAL ASSERT FAILED at "../c10/cuda/CUDACachingAllocator.cpp":830, '
        "please report a bug to PyTorch. "
    ),
    RuntimeError(
        "NVML_SUCCESS == r INTERNAL ASSERT FAILED at "
        '"/pytorch/c10/cuda/CUDACachingAllocator.cpp":1165, please report a bug to PyTorch. '
    ),
    RuntimeError(
        "NVML_SUCCESS == DriverAPI::get()->nvmlInit_v2_() INTERNAL ASSERT FAILED at "
        '"../c10/cuda/CUDACachingAllocator.cpp":963, please report a bug to PyTorch. '
    ),
    RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
    RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"),
    RuntimeError("cusolver error: CUSOLVER_STATUS_ALLOC_FAILED, when calling `cusolverDnCreate`"),
    RuntimeError("cuFFT error: CUFFT_ALLOC_FAILED"),
    RuntimeError(
        "[enforce fail at alloc_cpu.cpp:118] err == 0. DefaultCPUAllocator: can't allocate memory: "
        "you tried to allocate 116813856768 bytes. Error code 12 (Cannot allocate memory)"
    ),
    RuntimeError(
        "[enforce fail at CPUAllocator.cpp:56] posix_memalign(&data, gAlignment, nbytes) == 0. "
        "12 vs 0"
    ),
    RuntimeError(
        "[enforce fail at alloc_cpu.cpp:117] data. DefaultCPUAllocator: not enough memory: you "
        "tried to allocate 31850496000 bytes."
    ),
    RuntimeError("std::bad_alloc"),
    RuntimeError("unable to mmap 4096 bytes from file <x>: Cannot allocate memory (12)"),
    MemoryError(),
    OSError(errno.ENOMEM, "Cannot allocate memory"),
]
UNSUPPORTED = [
    UnsupportedPrecisionError("tf32 needs compute capability 8.0, the device has 7.5"),
    RuntimeError("\"addmm_impl_cpu_\" not implemented for 'Half'"),
    NotImplementedError("\"slow_conv2d_cpu\" not implemented for 'BFloat16'"),
    RuntimeError("Current CUDA Device does not support bfloat16. Please switch dtype to float16."),
    RuntimeError("backend 'cuda' does not support precision 'bf16'"),
    RuntimeError("BFloat16 is not supported on this device"),
]
OTHER = [
    (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), "error:runtime-error"),
    (RuntimeError("CUDA error: an illegal memory access was encountered"), "error:runtime-error"),
    (
        RuntimeError('x == y INTERNAL ASSERT FAILED at "../c10/cuda/CUDACachingAllocator.cpp":1'),
        "error:runtime-error",
    ),
    (ValueError("bad"), "error:value-error"),
    (KeyError("k"), "error:key-error"),
    (OSError(errno.ENOSPC, "No space left on device"), "error:os-error"),
    (KeyboardInterrupt(), "error:keyboard-interrupt"),
    (type("CUDAGraphError", (Exception,), {})("x"), "error:cuda-graph-error"),
]


@pytest.mark.parametrize("error", OUT_OF_MEMORY, ids=str)
def test_every_form_of_out_of_memory(error):
    outcome, reason = classify(error)
    assert outcome == "oom"
    assert reason.startswith(type(error).__name__)
    assert "\n" not in reason


@pytest.mark.parametrize("error", UNSUPPORTED, ids=str)
def test_unsupported_precision(error):
    assert classify(error).outcome == "unsupported_precision"


@pytest.mark.parametrize(("error", "outcome"), OTHER, ids=str)
def test_other_errors_keep_their_kind(error, outcome):
    assert classify(error).outcome == outcome


def test_the_nvml_assert_is_explained():
    assert "out-of-memory" in classify(OUT_OF_MEMORY[6]).reason


def test_a_real_allocation_that_fails():
    with pytest.raises(RuntimeError) as caught:
        torch.empty(2**60)
    assert classify(caught.value).outcome == "oom"


def test_a_cause_is_looked_at():
    try:
        try:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        except RuntimeError as error:
            raise ValueError("the worker failed") from error
    except ValueError as error:
        found = classify(error)
    assert found == ("oom", "OutOfMemoryError: CUDA out of memory.")


def test_outcomes_are_those_that_records_accept():
    from pydantic import TypeAdapter

    from wattslice.records.run import Outcome

    accepted = TypeAdapter(Outcome)
    for error in (*OUT_OF_MEMORY, *UNSUPPORTED, *(error for error, _ in OTHER)):
        accepted.validate_python(classify(error).outcome)
