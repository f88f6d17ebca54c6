"""From the exception that ended a training process to a run's outcome: some failures are data."""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator
from typing import NamedTuple

# Once an allocation has failed, torch's allocator asks NVML for what its message should say; on a
# MIG instance NVML refuses, and an assert hides the out-of-memory error (pytorch/pytorch 112377).
_NVML_ASSERT = r"nvml_success == .* internal assert failed at .*cudacachingallocator"
_MEMORY = re.compile(
    "|".join(
        (
            # torch's caching allocators; the runtime's and the driver's own errors
            r"(cuda|hip|xpu|mps)\S* out of memory",
            r"(cuda|hip)( driver)? error: out of memory",
            r"cudaerrormemoryallocation|cuda_error_out_of_memory",
            _NVML_ASSERT,
            # work space of the libraries
            r"cu(blas|solver|sparse|dnn)_status_alloc_failed|cufft_alloc_failed",
            r"cusparse_status_insufficient_resources",
            # the host
            r"defaultcpuallocator: (can't allocate memory|not enough memory)",
            r"posix_memalign\(.*\) == 0\. 12 vs 0",
            r"std::bad_alloc|cannot allocate memory",
        )
    )
)
_PRECISION = re.compile(
    "|".join(
        (
            r"not implemented for '(half|bfloat16)'",
            r"does not support (bfloat16|bf16|float16|half)",
            r"(bfloat16|bf16|float16|fp16|half) (is|are) not supported",
            r"unsupported autocast",
            r"mkldnn .*bf16 .*needs the cpu support",
            r"does not support precision",
        )
    )
)


class Classified(NamedTuple):
    """A run's outcome with its reason, one line."""

    outcome: str
    reason: str


def classify(error: BaseException) -> Classified:
    """Return (outcome, reason) of an exception that ended a training process.

    Outcomes: `oom`, `unsupported_precision`, or `error:<kind>` with the exception's class in
    kebab-case. Causes and contexts of the exception are looked at too.
    """
    for link in _chain(error):
        if _is_memory(link):
            return Classified("oom", _reason(link))
    for link in _chain(error):
        if _is_precision(link):
            return Classified("unsupported_precision", _reason(link))
    return Classified(f"error:{_kebab(type(error).__name__)}", _reason(error))


def _is_memory(error: BaseException) -> bool:
    if isinstance(error, MemoryError) or _has_class(error, "OutOfMemoryError"):
        return True
    if isinstance(error, OSError) and error.errno == errno.ENOMEM:
        return True
    return _MEMORY.search(_text(error)) is not None


def _is_precision(error: BaseException) -> bool:
    return _has_class(error, "UnsupportedPrecisionError") or (
        _PRECISION.search(_text(error)) is not None
    )


def _has_class(error: BaseException, name: str) -> bool:
    """By name, so that classifying needs no torch: torch.OutOfMemoryError and its namesakes."""
    return any(base.__name__ == name for base in type(error).__mro__)


def _text(error: BaseException) -> str:
    return " ".join(str(error).lower().split())


def _reason(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    name = type(error).__name__
    hint = " (hides an out-of-memory error)" if re.search(_NVML_ASSERT, _text(error)) else ""
    return f"{name}: {lines[0][:500]}{hint}" if lines else name


def _kebab(name: str) -> str:
    split = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "-", name).lower()
    return re.sub(r"[^a-z0-9_-]+", "-", split).strip("-") or "unknown"


def _chain(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    link: BaseException | None = error
    while link is not None and id(link) not in seen:
        seen.add(id(link))
        yield link
        link = link.__cause__ or (None if link.__suppress_context__ else link.__context__)
