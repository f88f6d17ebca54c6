"""Who holds a board or an instance: NVML's process list and the open device files.

"In use by another client" with an empty process list is real: monitors hold handles without
computing. Their open files under /dev give them away.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path

from wattslice.boards.nvidia import nvml
from wattslice.boards.nvidia.nvml_errors import NvmlError

# Daemons that were seen holding boards, and what lets them go.
_HINTS = {
    "nv-hostengine": "stop it with `systemctl stop nvidia-dcgm`",
    "dcgm-exporter": "stop the exporter while the board is partitioned",
    "nvidia-persiste": "`nvidia-smi -pm 0` lets it go, `-pm 1` brings it back",  # comm is cut
    "nvsm": "stop it with `systemctl stop nvsm`",
    "Xorg": "stop the display server",
    "gnome-shell": "stop the display server",
    "nvidia-smi": "wait for it to end",
}


@dataclass(frozen=True, slots=True)
class Holder:
    pid: int
    name: str
    how: str  # what shows that it holds something

    def __str__(self) -> str:
        hint = _HINTS.get(self.name)
        text = f"{self.pid} {self.name} ({self.how})"
        return f"{text}: {hint}" if hint else text


def process_name(pid: int, proc: Path = Path("/proc")) -> str:
    """The kernel's short name of a process, or `?` when it is gone or hidden."""
    try:
        return (proc / str(pid) / "comm").read_text().strip() or "?"
    except OSError:
        return "?"


def computing(handle: nvml.Device | nvml.MigDevice, proc: Path = Path("/proc")) -> list[Holder]:
    """Processes that NVML lists on a board or a MIG device; empty where it may not say."""
    try:
        found = nvml.processes(handle)
    except NvmlError:
        return []
    return [Holder(pid, process_name(pid, proc), "computes on it") for pid in sorted(found)]


def open_files(
    minor: int, proc: Path = Path("/proc"), own_pids: frozenset[int] = frozenset()
) -> tuple[list[Holder], int]:
    """Processes with the board's device file or a MIG capability open, and how many were hidden.

    `minor` is N of /dev/nvidiaN. Other users' processes can be seen by root only; they are
    counted as hidden.
    """
    found = []
    hidden = 0
    board = f"/dev/nvidia{minor}"
    for entry in proc.iterdir():
        if not entry.name.isdigit() or int(entry.name) in own_pids:
            continue
        nodes = set()
        try:
            for descriptor in (entry / "fd").iterdir():
                with contextlib.suppress(OSError):
                    target = str(descriptor.readlink())
                    if target == board or target.startswith("/dev/nvidia-caps/"):
                        nodes.add(target)
        except PermissionError:
            hidden += 1
            continue
        except OSError:
            continue  # it has just ended
        if nodes:
            name = process_name(int(entry.name), proc)
            found.append(Holder(int(entry.name), name, "has open " + ", ".join(sorted(nodes))))
    return sorted(found, key=lambda h: h.pid), hidden


def display_module_loaded(proc: Path = Path("/proc")) -> bool:
    """Whether nvidia_drm is loaded, which holds boards without being a process."""
    try:
        modules = (proc / "modules").read_text()
    except OSError:
        return False
    return any(line.split(" ", 1)[0] == "nvidia_drm" for line in modules.splitlines())


def describe(
    device: nvml.Device,
    instances: tuple[nvml.MigDevice, ...] = (),
    *,
    simulated: bool,
    own_pids: frozenset[int] = frozenset(),
    proc: Path = Path("/proc"),
) -> str:
    """Who holds the board (or these MIG devices of it), in words that fit after "held by"."""
    found: dict[int, Holder] = {}
    hidden = 0
    if not simulated:  # a simulated board has no device file; the number would be another's
        with contextlib.suppress(NvmlError):
            listed, hidden = open_files(nvml.minor_number(device), proc, own_pids)
            found.update((h.pid, h) for h in listed)
    handles: tuple[nvml.Device | nvml.MigDevice, ...] = instances
    for handle in handles or (device, *nvml.mig_devices(device)):
        found.update((h.pid, h) for h in computing(handle, proc) if h.pid not in own_pids)
    texts = [str(found[pid]) for pid in sorted(found)]
    if not simulated and display_module_loaded(proc):
        texts.append("the kernel module nvidia_drm, maybe (`modprobe -r nvidia_drm`)")
    if not texts:
        texts.append("a client that no process list shows, e.g. a monitor such as DCGM")
    if hidden:
        texts.append(f"or one of {hidden} processes of other users that only root can inspect")
    return "; ".join(texts)
