"""What a run was computed with: packages, interpreter, kernel, host, git commit, SLURM ids."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
import sys
from pathlib import Path

from wattslice.files import canonical_json, sha256_text

_SLURM_KEYS = ("SLURM_JOB_ID", "SLURM_JOB_PARTITION", "SLURMD_NODENAME", "SLURM_STEP_GPUS")


def packages() -> dict[str, str]:
    """Installed distributions and their versions."""
    found = {
        str(dist.metadata["Name"]).lower().replace("_", "-"): dist.version
        for dist in importlib.metadata.distributions()
        if dist.metadata["Name"]
    }
    return dict(sorted(found.items()))


def environment() -> dict[str, object]:
    """The software that can change a measurement."""
    return {
        "packages": packages(),
        "python": platform.python_version(),
        "implementation": platform.python_implementation(),
        "kernel": platform.release(),
        "system": platform.system(),
        "machine": platform.machine(),
        "libc": " ".join(platform.libc_ver()),
    }


def digest(value: dict[str, object]) -> str:
    return sha256_text(canonical_json(value))


def host() -> dict[str, object]:
    """The machine, as far as a reader needs it."""
    return {
        "name": platform.node(),
        "cpus": os.cpu_count(),
        "memory_mib": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20,
        "load_average_1min": os.getloadavg()[0],
        "executable": sys.executable,
    }


def slurm() -> dict[str, str]:
    return {key: os.environ[key] for key in _SLURM_KEYS if key in os.environ}


def git(folder: Path) -> dict[str, object]:
    """Commit and whether tracked files differ from it; nulls with a reason outside a repository."""

    def call(*arguments: str) -> str:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments], capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    try:
        commit = call("rev-parse", "HEAD")
        dirty = bool(call("status", "--porcelain", "--untracked-files=no"))
    except (OSError, subprocess.CalledProcessError) as error:
        reason = getattr(error, "stderr", None) or str(error)
        return {"commit": None, "dirty": None, "reason": str(reason).strip().splitlines()[0]}
    return {"commit": commit, "dirty": dirty}
