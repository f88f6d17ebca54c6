"""Which board this is: UUID and PCI address, never an index alone."""

from __future__ import annotations

import contextlib
import hashlib
import os
import socket

from wattslice.boards.nvidia import nvml
from wattslice.boards.nvidia.nvml_errors import NvmlError
from wattslice.records.board import BoardIdentity

# Grace-Hopper and Grace-Blackwell: one module with a CPU, whose sensors may cover the module.
_SUPERCHIPS = ("GH200", "GB200", "GB300")


def read_identity(device: nvml.Device) -> BoardIdentity:
    """Identity of a board; what may not be read is left out, except UUID and name."""
    serial = pci = architecture = driver = None
    with contextlib.suppress(NvmlError):  # needs no privilege, but not every board has one
        serial = nvml.serial(device)
    with contextlib.suppress(NvmlError):
        pci = nvml.pci(device).bus_id
    with contextlib.suppress(NvmlError):
        architecture = nvml.architecture(device)
    with contextlib.suppress(NvmlError):
        driver = nvml.driver_version()
    return BoardIdentity(
        kind="nvidia",
        uuid=nvml.uuid(device),
        name=nvml.name(device),
        simulated=nvml.is_simulated(),
        host=socket.gethostname(),
        architecture=architecture,
        pci_bus_id=pci,
        serial=serial,
        driver_version=driver,
    )


def is_superchip(board_name: str) -> bool:
    """Whether the board shares a module (and maybe its power sensors) with a CPU."""
    return any(chip in board_name for chip in _SUPERCHIPS)


def lock_key(identity: BoardIdentity) -> str:
    """Name of the board for leases and journals on this host.

    Two simulators may show boards of equal UUIDs; their state files tell them apart.
    """
    if not identity.simulated:
        return identity.uuid
    state = os.path.realpath(os.environ.get("WATTSIM_STATE", ""))
    return f"{identity.uuid}-sim-{hashlib.sha256(state.encode()).hexdigest()[:12]}"
