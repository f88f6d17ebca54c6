"""What a run was computed with: packages, interpreter, kernel, host, git commit, SLURM ids."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from wattslice.files import canonical_json, sha256_text

_SLURM_KEYS = ("SLURM_JOB_ID", "SLURM_JOB_PARTITION", "SLURMD_NODENAME", "SLURM_STEP_GPUS")
# Settings by which threads, memory, CUDA and PyTorch are steered, and with them a measurement.
_VARIABLES = (
    "CUBLAS_",
    "CUDA_",
    "CUDNN_",
    "GOMP_",
    "KMP_",
    "MALLOC_",
    "MKL_",
    "NVIDIA_",
    "OMP_",
    "OPENBLAS_",
    "PYTORCH_",
    "TORCH_",
)
_DEVICE_CHOICE = "_VISIBLE_DEVICES"
# e.g. NVIDIA_API_KEY: records are published.
_SECRET = re.compile(r"KEY|TOKEN|SECRET|PASS|CREDENTIAL|AUTH|COOKIE", re.IGNORECASE)
_LINK_WITH_LOGIN = re.compile(r"://[^/\s]*@")
_CPU_FIELDS = {"model name": "model", "microcode": "microcode", "cpu MHz": "mhz_at_start"}
_SYSFS_CPU = Path("/sys/devices/system/cpu")


def packages() -> dict[str, str]:
    """Installed distributions and their versions."""
    return {name: dist.version for name, dist in _distributions().items()}


def _distributions() -> dict[str, importlib.metadata.Distribution]:
    found = {
        str(dist.metadata["Name"]).lower().replace("_", "-"): dist
        for dist in importlib.metadata.distributions()
        if dist.metadata["Name"]
    }
    return dict(sorted(found.items()))


def origins() -> dict[str, str]:
    """Where packages came from: the installer, or the address of one that came from no index.

    A folder of this machine is named without its path, which would say nothing elsewhere.
    """
    return {name: _origin(dist) for name, dist in _distributions().items()}


def _origin(dist: importlib.metadata.Distribution) -> str:
    text = dist.read_text("direct_url.json")
    if text is None:
        installer = (dist.read_text("INSTALLER") or "").strip()
        return installer or "unknown"
    direct = json.loads(text)
    url = str(direct.get("url", ""))
    if url.startswith("file:"):
        editable = direct.get("dir_info", {}).get("editable", False)
        return "local folder, editable" if editable else "local file"
    commit = direct.get("vcs_info", {}).get("commit_id")
    return f"{url}@{commit}" if commit else url


def variables(environ: Mapping[str, str] = os.environ, *, devices: bool = False) -> dict[str, str]:
    """Environment variables that steer the numerical libraries; what may be secret is withheld.

    `devices`: also which ones a process may see (CUDA_VISIBLE_DEVICES). They are no software.
    """
    return {
        name: "(withheld)" if _SECRET.search(name) or _LINK_WITH_LOGIN.search(value) else value
        for name, value in sorted(environ.items())
        if name.startswith(_VARIABLES) and (devices or not name.endswith(_DEVICE_CHOICE))
    }


def environment() -> dict[str, object]:
    """The software that can change a measurement."""
    return {
        "packages": packages(),
        "origins": origins(),
        "variables": variables(),
        "python": platform.python_version(),
        "python_build": " ".join([*platform.python_build(), platform.python_compiler()]),
        "implementation": platform.python_implementation(),
        "kernel": platform.release(),
        "system": platform.system(),
        "machine": platform.machine(),
        "libc": " ".join(platform.libc_ver()),
    }


def digest(value: dict[str, object]) -> str:
    return sha256_text(canonical_json(value))


def container(
    environ: Mapping[str, str] | None = None, root: Path = Path("/")
) -> dict[str, object]:
    """The container image that this process runs in; `kind` is null, with a reason, outside one.

    The recipes of this project name their image in WATTSLICE_IMAGE.
    """
    environ = os.environ if environ is None else environ
    image = environ.get("WATTSLICE_IMAGE")
    for name in ("APPTAINER_CONTAINER", "SINGULARITY_CONTAINER"):
        if path := environ.get(name):
            return {"kind": "apptainer", "image": image, "file": Path(path).name}
    podman = root / "run" / ".containerenv"
    if podman.is_file():
        facts = dict(line.split("=", 1) for line in podman.read_text().splitlines() if "=" in line)
        named = {key: facts.get(key, "").strip('"') or None for key in ("image", "imageid")}
        return {"kind": "podman", "image": image or named["image"], "id": named["imageid"]}
    if (root / ".dockerenv").exists():
        return {"kind": "docker", "image": image}
    if image:
        return {"kind": "unknown", "image": image}
    return {"kind": None, "reason": "no sign of a container"}


def cpu(cpuinfo: Path = Path("/proc/cpuinfo"), sysfs: Path = _SYSFS_CPU) -> dict[str, object]:
    """The processor and the settings of its clock; null where the system does not say."""
    found: dict[str, object] = dict.fromkeys(_CPU_FIELDS.values())
    for line in _text(cpuinfo).splitlines():
        key, _, value = line.partition(":")
        name = _CPU_FIELDS.get(key.strip())
        if name is not None and found[name] is None:
            found[name] = float(value) if name.startswith("mhz") else value.strip()
    frequency = sysfs / "cpu0" / "cpufreq"
    for name, path in (
        ("driver", frequency / "scaling_driver"),
        ("governor", frequency / "scaling_governor"),
        ("min_khz", frequency / "scaling_min_freq"),
        ("max_khz", frequency / "scaling_max_freq"),
        ("smt", sysfs / "smt" / "active"),
        ("boost", sysfs / "cpufreq" / "boost"),
    ):
        text = _text(path)
        found[name] = int(text) if text.isdigit() else text or None
    return found


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def host() -> dict[str, object]:
    """The machine, as far as a reader needs it."""
    return {
        "name": platform.node(),
        "cpus": os.cpu_count(),
        "cpu": cpu(),
        "memory_mib": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20,
        "load_average_1min": os.getloadavg()[0],
        "executable": sys.executable,
    }


def slurm() -> dict[str, str]:
    return {key: os.environ[key] for key in _SLURM_KEYS if key in os.environ}


def run_git(folder: Path, *arguments: str) -> str:
    """Standard output of a git command.

    Raises OSError where there is no git, CalledProcessError where the command fails.
    """
    done = subprocess.run(
        ["git", "-C", str(folder), *arguments], capture_output=True, text=True, check=True
    )
    return done.stdout


def git(folder: Path) -> dict[str, object]:
    """Commit and whether tracked files differ from it; nulls with a reason outside a repository."""
    try:
        commit = run_git(folder, "rev-parse", "HEAD").strip()
        dirty = bool(run_git(folder, "status", "--porcelain", "--untracked-files=no").strip())
    except (OSError, subprocess.CalledProcessError) as error:
        reason = getattr(error, "stderr", None) or str(error)
        return {"commit": None, "dirty": None, "reason": str(reason).strip().splitlines()[0]}
    return {"commit": commit, "dirty": dirty}
