"""Access to the simulated library's control functions, and telling it from a real one."""

from __future__ import annotations

import ctypes
from ctypes import POINTER, c_char_p, c_double, c_int, c_uint, c_uint64
from functools import cache
from pathlib import Path

from wattslice.simulation.errors import SimulationError, code_name

#: The library that nvidia-ml-py loads by this name, following LD_LIBRARY_PATH.
NVML_LIBRARY = "libnvidia-ml.so.1"
#: Only the simulated library exports this.
MARKER_SYMBOL = "wattsim_abi_version"
ABI_VERSION = 1
#: Path of the shared state file; the library reads it in nvmlInit.
STATE_VARIABLE = "WATTSIM_STATE"
#: "1" in the environment of everything that runs on simulated boards.
SIMULATED_VARIABLE = "WATTSLICE_SIMULATED"

_SIGNATURES: dict[str, tuple[type, list[object]]] = {
    "wattsim_abi_version": (c_uint, []),
    "wattsim_create": (c_uint, [c_char_p, c_char_p, c_int]),
    "wattsim_open": (c_uint, [c_char_p]),
    "wattsim_close": (c_uint, []),
    "wattsim_board_uuid": (c_uint, [c_uint, c_char_p, c_uint]),
    "wattsim_board_model": (c_uint, [c_uint, c_char_p, c_uint]),
    "wattsim_set_activity": (c_uint, [c_char_p, c_double, c_int]),
    "wattsim_set_process": (c_uint, [c_char_p, c_double, c_int, c_uint64, c_int, c_int]),
    "wattsim_remove_process": (c_uint, [c_int]),
    "wattsim_set_option": (c_uint, [c_int, c_char_p, c_double]),
    "wattsim_get_option": (c_uint, [c_uint, c_char_p, POINTER(c_double)]),
    "wattsim_set_versions": (c_uint, [c_char_p, c_char_p, c_int]),
    "wattsim_add_fault": (
        c_uint,
        [
            c_int,
            c_char_p,
            c_int,
            c_uint,
            c_uint64,
            c_uint64,
            c_double,
            c_double,
            c_double,
            POINTER(c_uint),
        ],
    ),
    "wattsim_clear_faults": (c_uint, [c_int]),
    "wattsim_fault_calls": (c_uint, [c_uint, POINTER(c_uint64)]),
    "wattsim_set_waveform": (c_uint, [c_uint, c_int, c_double, c_double, c_double, c_double]),
    "wattsim_set_trace": (c_uint, [c_uint, c_uint, POINTER(c_double), POINTER(c_double)]),
    "wattsim_true_energy_mj": (c_double, [c_uint, c_double, c_double]),
    "wattsim_true_power_w": (c_double, [c_uint, c_double]),
    "wattsim_created": (c_uint, [POINTER(c_double), POINTER(c_double)]),
    "wattsim_reset_board": (c_uint, [c_uint]),
    "wattsim_reboot_board": (c_uint, [c_uint]),
    "wattsim_post_xid": (c_uint, [c_uint, c_uint]),
    "wattsim_hold_lock": (type(None), [c_int]),
}


def is_simulated() -> bool:
    """Whether the NVML library that this process would load is the simulated one."""
    try:
        library = ctypes.CDLL(NVML_LIBRARY)
    except OSError:
        return False
    return hasattr(library, MARKER_SYMBOL)


@cache
def load(path: Path | str) -> ctypes.CDLL:
    """The simulated library with its control functions declared."""
    try:
        library = ctypes.CDLL(str(path))
    except OSError as error:
        raise SimulationError(f"cannot load {path}: {error}") from error
    if not hasattr(library, MARKER_SYMBOL):
        raise SimulationError(f"{path} is a real NVML library, not the simulated one")
    for name, (result, arguments) in _SIGNATURES.items():
        function = getattr(library, name)
        function.restype = None if result is type(None) else result
        function.argtypes = arguments
    version = library.wattsim_abi_version()
    if version != ABI_VERSION:
        raise SimulationError(
            f"{path} speaks control version {version}, this package {ABI_VERSION}: build it again"
        )
    return library


def check(code: int, what: str) -> None:
    """Raises when a control call did not return 0."""
    if code != 0:
        raise SimulationError(f"{what}: {code_name(code)}", code)
