"""Other programs on the host that read GPU sensors, by the names of their processes."""

from __future__ import annotations

import os
from pathlib import Path

# A newer dcgm-exporter raised an idle A100 with MIG on from 50 W to 100 W
# (NVIDIA/dcgm-exporter#464). The kernel cuts names to 15 characters.
NAMES = frozenset(
    name[:15]
    for name in (
        "nv-hostengine",
        "dcgm-exporter",
        "dcgmi",
        "nvidia-smi",
        "nvtop",
        "nvitop",
        "gpustat",
        "nvidia_gpu_exporter",
        "nvidia_gpu_prometheus_exporter",
        "all-smi",
        "scaphandre",
        "slurm-job-exporter",
        "ceems_exporter",
    )
)


def running_monitors(proc: Path = Path("/proc")) -> tuple[str, ...]:
    """'pid name' of each, in order of pid; empty where /proc may not be listed."""
    found: list[tuple[int, str]] = []
    try:
        entries = [entry for entry in proc.iterdir() if entry.name.isdigit()]
    except OSError:
        return ()
    for entry in entries:
        try:
            name = (entry / "comm").read_text().strip()
        except OSError:
            continue  # it has ended, or is hidden
        if name in NAMES and int(entry.name) != os.getpid():
            found.append((int(entry.name), name))
    return tuple(f"{pid} {name}" for pid, name in sorted(found))
