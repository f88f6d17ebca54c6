"""NVML's return codes as exceptions: one class per meaning, unknown codes kept as they are."""

from __future__ import annotations

# Names of nvmlReturn_t (nvml.h, API 13).
CODE_NAMES = {
    0: "SUCCESS",
    1: "UNINITIALIZED",
    2: "INVALID_ARGUMENT",
    3: "NOT_SUPPORTED",
    4: "NO_PERMISSION",
    5: "ALREADY_INITIALIZED",
    6: "NOT_FOUND",
    7: "INSUFFICIENT_SIZE",
    8: "INSUFFICIENT_POWER",
    9: "DRIVER_NOT_LOADED",
    10: "TIMEOUT",
    11: "IRQ_ISSUE",
    12: "LIBRARY_NOT_FOUND",
    13: "FUNCTION_NOT_FOUND",
    14: "CORRUPTED_INFOROM",
    15: "GPU_IS_LOST",
    16: "RESET_REQUIRED",
    17: "OPERATING_SYSTEM",
    18: "LIB_RM_VERSION_MISMATCH",
    19: "IN_USE",
    20: "MEMORY",
    21: "NO_DATA",
    22: "VGPU_ECC_NOT_SUPPORTED",
    23: "INSUFFICIENT_RESOURCES",
    24: "FREQ_NOT_SUPPORTED",
    25: "ARGUMENT_VERSION_MISMATCH",
    26: "DEPRECATED",
    27: "NOT_READY",
    28: "GPU_NOT_FOUND",
    29: "INVALID_STATE",
    30: "RESET_TYPE_NOT_SUPPORTED",
    999: "UNKNOWN",
}


def code_text(code: int) -> str:
    """A code as messages show it, e.g. `NOT_SUPPORTED (3)`."""
    return f"{CODE_NAMES.get(code, 'unlisted code')} ({code})"


class NvmlError(Exception):
    """An NVML call failed. `code` is NVML's number, `call` the name of the call."""

    hint = ""

    def __init__(self, code: int, call: str) -> None:
        text = f"{call}: {code_text(code)}"
        super().__init__(f"{text}; {self.hint}" if self.hint else text)
        self.code = code
        self.call = call

    @property
    def reason(self) -> str:
        """Short text for a value that is missing because of this error."""
        return f"{self.call}: {code_text(self.code)}"


class NvmlNotSupportedError(NvmlError):
    """The board, its mode or the driver does not have it: not a value of 0."""


class NvmlNoPermissionError(NvmlError):
    """It exists, but not for this user or container."""

    hint = "not for this user; in a container NVIDIA_MIG_MONITOR_DEVICES=all shows the whole board"


class NvmlNotFoundError(NvmlError):
    """No such device, instance or index."""


class NvmlInUseError(NvmlError):
    """A client holds the board or the instance."""


class NvmlInsufficientResourcesError(NvmlError):
    """No free place for the instance: full or fragmented."""


class NvmlInvalidArgumentError(NvmlError):
    """NVML does not know the argument."""


class NvmlInsufficientSizeError(NvmlError):
    """The buffer was too small."""


class NvmlVersionMismatchError(NvmlError):
    """The library does not know this version of a structure."""


class NvmlFunctionNotFoundError(NvmlError):
    """The library, or nvidia-ml-py, is too old for the call."""


class NvmlUninitializedError(NvmlError):
    """NVML is not initialised in this process."""


class NvmlNoDataError(NvmlError):
    """There is no reading yet."""


class NvmlGpuLostError(NvmlError):
    """The board has fallen off the bus or needs a reset; nothing more can be read from it."""

    hint = "see the kernel log for an Xid message; the board needs a reset or the host a reboot"


class NvmlUnavailableError(NvmlError):
    """NVML as a whole cannot be used on this host."""


class NvmlLibraryNotFoundError(NvmlUnavailableError):
    hint = "libnvidia-ml.so.1 is not on the loader's path: no NVIDIA driver is installed here"


class NvmlDriverNotLoadedError(NvmlUnavailableError):
    hint = "the NVIDIA kernel module is not loaded"


class NvmlDriverMismatchError(NvmlUnavailableError):
    hint = (
        "the driver's library was upgraded, but the old kernel module is still loaded; an "
        "administrator must reload the module or reboot"
    )


_CLASSES: dict[int, type[NvmlError]] = {
    1: NvmlUninitializedError,
    2: NvmlInvalidArgumentError,
    3: NvmlNotSupportedError,
    4: NvmlNoPermissionError,
    6: NvmlNotFoundError,
    7: NvmlInsufficientSizeError,
    9: NvmlDriverNotLoadedError,
    12: NvmlLibraryNotFoundError,
    13: NvmlFunctionNotFoundError,
    15: NvmlGpuLostError,
    16: NvmlGpuLostError,
    18: NvmlDriverMismatchError,
    19: NvmlInUseError,
    21: NvmlNoDataError,
    23: NvmlInsufficientResourcesError,
    25: NvmlVersionMismatchError,
    27: NvmlNoDataError,
    28: NvmlNotFoundError,
}


def error_for(code: int, call: str) -> NvmlError:
    """The exception of a return code; a code not listed gives a plain NvmlError that keeps it."""
    return _CLASSES.get(code, NvmlError)(code, call)
