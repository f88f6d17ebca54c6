"""Errors of the simulation, with the NVML codes that it speaks in."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

#: Return codes of NVML by their names without ``NVML_ERROR_`` (values: nvidia-ml-py 13.615.71).
NVML_CODES: dict[str, int] = {
    "SUCCESS": 0,
    "UNINITIALIZED": 1,
    "INVALID_ARGUMENT": 2,
    "NOT_SUPPORTED": 3,
    "NO_PERMISSION": 4,
    "ALREADY_INITIALIZED": 5,
    "NOT_FOUND": 6,
    "INSUFFICIENT_SIZE": 7,
    "INSUFFICIENT_POWER": 8,
    "DRIVER_NOT_LOADED": 9,
    "TIMEOUT": 10,
    "IRQ_ISSUE": 11,
    "LIBRARY_NOT_FOUND": 12,
    "FUNCTION_NOT_FOUND": 13,
    "CORRUPTED_INFOROM": 14,
    "GPU_IS_LOST": 15,
    "RESET_REQUIRED": 16,
    "OPERATING_SYSTEM": 17,
    "LIB_RM_VERSION_MISMATCH": 18,
    "IN_USE": 19,
    "MEMORY": 20,
    "NO_DATA": 21,
    "VGPU_ECC_NOT_SUPPORTED": 22,
    "INSUFFICIENT_RESOURCES": 23,
    "FREQ_NOT_SUPPORTED": 24,
    "ARGUMENT_VERSION_MISMATCH": 25,
    "DEPRECATED": 26,
    "NOT_READY": 27,
    "GPU_NOT_FOUND": 28,
    "INVALID_STATE": 29,
    "RESET_TYPE_NOT_SUPPORTED": 30,
    "UNKNOWN": 999,
}
_NAMES = {value: name for name, value in NVML_CODES.items()}


class SimulationError(Exception):
    """Something about a simulation cannot be done; the text says what and why."""

    def __init__(self, message: str, code: int | None = None) -> None:
        super().__init__(message)
        self.code = code


def code_name(code: int) -> str:
    """``19`` → ``IN_USE``; the number itself when NVML has no name for it."""
    return _NAMES.get(code, str(code))


def parse_code(value: object) -> int:
    """An NVML code given as a number or by name, with or without ``NVML_ERROR_``."""
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    if isinstance(value, str):
        name = value.upper().removeprefix("NVML_").removeprefix("ERROR_")
        if name in NVML_CODES:
            return NVML_CODES[name]
        raise SimulationError(f"unknown NVML code {value!r}{suggestion(name, NVML_CODES)}")
    raise SimulationError(f"an NVML code is a number or a name, not {value!r}")


def suggestion(word: str, known: Iterable[str]) -> str:
    """``"; did you mean …?"`` when something known is near, else the list of what is known."""
    names = sorted(known)
    near = [name for name in names if word and name.startswith(word)][:3]
    near = near or get_close_matches(word, names, n=2)
    if near:
        return "; did you mean " + " or ".join(near) + "?"
    return "; known: " + ", ".join(names)
