"""Read everything that this package reads of the real boards, with value or error code.

    python -m wattslice.boards.nvidia.probe --out boards.json

Nothing is changed on any board. The output is meant to be kept: it is what the simulator and the
reading code are compared with on hardware that tests do not have.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from wattslice.boards.errors import BoardError
from wattslice.boards.nvidia import nvml
from wattslice.boards.nvidia.nvml_errors import NvmlError
from wattslice.files import write_json

# All field ids of power, energy, limits, policy and MIG that the driver's header names (API 13).
FIELDS = (74, 75, 83, *range(184, 193), 199, 269, 270, 271)
SCOPES = {"gpu": 0, "module": 1, "memory": 2}
_BOARD: Mapping[str, Callable[[Any], Any]] = {
    "uuid": nvml.uuid,
    "name": nvml.name,
    "pci": nvml.pci,
    "minor_number": nvml.minor_number,
    "architecture": nvml.architecture,
    "compute_capability": nvml.compute_capability,
    "memory": nvml.memory,
    "sm_count": nvml.sm_count,
    "persistence_mode": nvml.persistence_mode,
    "processes": nvml.processes,
    "power_w": nvml.power_w,
    "energy_j": nvml.energy_j,
    "power_limit_w": nvml.power_limit_w,
    "temperature_c": nvml.temperature_c,
    "sm_clock_mhz": nvml.sm_clock_mhz,
    "memory_clock_mhz": nvml.memory_clock_mhz,
    "utilisation": nvml.utilisation,
    "event_reasons": nvml.event_reasons,
    "gpm_supported": nvml.gpm_supported,
    "mig_mode": nvml.mig_mode,
    "gi_profiles": nvml.gi_profiles,
}
_MIG_DEVICE: Mapping[str, Callable[[Any], Any]] = {
    "uuid": nvml.uuid,
    "name": nvml.name,
    "memory": nvml.memory,
    "gpu_instance_id": nvml.mig_gpu_instance_id,
    "compute_instance_id": nvml.mig_compute_instance_id,
    "attributes": nvml.mig_attributes,
    "processes": nvml.processes,
    # What a MIG handle answers when it is asked for power decides nothing, but is worth knowing.
    "power_w": nvml.power_w,
    "energy_j": nvml.energy_j,
}


def probe() -> dict[str, Any]:
    """Boards with every reading as {"value": …} or {"error": code, "reason": …}.

    Raises BoardError where NVML cannot be opened at all.
    """
    try:
        nvml.ensure_open()
    except NvmlError as error:
        raise BoardError(f"NVML cannot be opened: {error}") from error
    return {
        "schema_version": 1,
        "simulated": nvml.is_simulated(),
        "driver": _try(nvml.driver_version),
        "library": _try(nvml.library_version),
        "boards": [_board(device) for _, device in nvml.devices()],
    }


def _board(device: nvml.Device) -> dict[str, Any]:
    found: dict[str, Any] = {key: _try(read, device) for key, read in _BOARD.items()}
    found["fields"] = {
        f"{field}/{scope}": _try(nvml.field_value, device, field, number)
        for field in FIELDS
        for scope, number in SCOPES.items()
    }
    found["profiles"] = _profiles(device)
    try:
        handles = nvml.mig_devices(device)
    except NvmlError as error:
        found["mig_devices"] = {"error": error.code, "reason": error.reason}
    else:
        found["mig_devices"] = [
            {key: _try(read, handle) for key, read in _MIG_DEVICE.items()} for handle in handles
        ]
    return found


def _profiles(device: nvml.Device) -> Any:
    try:
        profiles = nvml.gi_profiles(device)
    except NvmlError as error:
        return {"error": error.code, "reason": error.reason}
    return {
        str(profile.profile_id): {
            "placements": _try(nvml.possible_placements, device, profile.profile_id),
            "remaining": _try(nvml.remaining_capacity, device, profile.profile_id),
        }
        for profile in profiles
    }


def _try(read: Callable[..., Any], *arguments: Any) -> dict[str, Any]:
    try:
        return {"value": _plain(read(*arguments))}
    except NvmlError as error:
        return {"error": error.code, "reason": error.reason}


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: _plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        return [_plain(item) for item in value]
    return value if isinstance(value, (str, int, float, bool, type(None))) else str(value)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Read the boards of this machine; change nothing.")
    parser.add_argument("--out", type=Path, required=True, help="JSON file to write")
    arguments = parser.parse_args(argv)
    try:
        found = probe()
    except BoardError as error:
        print(error, file=sys.stderr)
        return 1
    write_json(arguments.out, found)
    for board in found["boards"]:
        readings = {**board, **board["fields"]}
        failed = sum("error" in r for r in readings.values() if isinstance(r, dict))
        print(
            f"{board['name'].get('value')}: {len(readings)} readings, {failed} with an error code"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
