"""A real SLURM cluster on the loopback, with a simulated board in every node."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from wattslice.simulation.session import create
from workflow.conftest import TINY, Clone, make_clone

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
CANNOT = 77  # how up.sh says that this machine cannot have a cluster
LAYOUT = "3g+2x1g"
# The job's board is the second one of n2: a job must find its own. Simulated boards of the same
# model and number are the same board, so this also gives the two nodes different ones.
BOARDS = {
    "n1": ["a100-sxm4-80gb"],
    "n2": ["h100-sxm5-80gb", "a100-sxm4-80gb"],
    "n3": ["a100-sxm4-80gb"],
}
_CUT = f"""
import json
from wattslice.boards.nvidia.board import discover
from wattslice.config.layout import Layout
board = discover("managed")[-1]
with board.lease():
    board.ensure(Layout.parse("{LAYOUT}"))
print(json.dumps([board.identity.uuid, *(s.uuid for s in board.slices())]))
"""


@dataclass(frozen=True)
class Cluster:
    """The cluster that runs now."""

    folder: Path
    python: Path  # an environment with the SLURM plugin, beside the project's own
    boards: dict[str, str]  # UUID of each node's board
    slices: dict[str, list[str]]  # UUIDs of each node's slices, in the order of its gres

    def ask(self, *command: str) -> str:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    def jobs(self, rule: str, folder: Path) -> dict[int, dict[str, str]]:
        """All jobs of a rule in a working directory, by id, as scontrol shows them."""
        found = {}
        for line in self.ask("scontrol", "show", "job", "-o", "-d").splitlines():
            fields = dict(re.findall(r"(\S+?)=(.*?)\s*(?=\s\S+?=|$)", line))
            if fields.get("Comment", "").startswith(f"rule_{rule}_") and (
                Path(fields["WorkDir"]) == folder
            ):
                found[int(fields["JobId"])] = fields
        return found


@dataclass(frozen=True)
class SlurmClone(Clone):
    """A clone whose Snakemake submits to the cluster."""

    cluster: Cluster
    profile: str = "profiles/test"

    def command(self, *arguments: str) -> list[str]:
        return [
            str(self.cluster.python),
            str(HERE / "fast_polls.py"),
            *arguments,
            *("--workflow-profile", self.profile, "--configfile", "tiny.yaml"),
        ]

    def adapt_profile(self, **changes: Any) -> None:
        """The shipped profile with what a test cluster and a test's patience need."""
        made = yaml.safe_load((ROOT / "profiles/slurm/profile.yaml").read_text())
        made |= {
            "slurm-status-command": "squeue",
            "slurm-init-seconds-before-status-checks": 1,
            "latency-wait": 10,
            "retries": 0,
            "set-threads": {"train": 1, "idle": 1},
        }
        made["resources"]["board"] = 3
        made["default-resources"] |= {"slurm_partition": "gpu"} | changes.pop("default", {})
        made["set-resources"]["train"] |= changes.pop("train", {})
        target = self.folder / self.profile / "profile.yaml"
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(yaml.safe_dump(made | changes))


def slurm_clone(cluster: Cluster, folder: Path, placements: list[str], repeats: int) -> SlurmClone:
    made = SlurmClone(make_clone(folder).folder, cluster)
    made.configure(campaign(placements, repeats))
    return made


def campaign(placements: list[str], repeats: int) -> dict[str, object]:
    return {
        **TINY,
        "board": {"kind": "nvidia", "mig": "existing", "power_model": None},
        "measure": {**TINY["measure"], "cooldown": {"max_s": 0}},  # type: ignore[dict-item]
        "experiments": [
            {
                "name": "slurm",
                "layouts": [LAYOUT],
                "workloads": ["distilbert"],
                "precisions": ["fp32"],
                "placements": placements,
                "repeats": repeats,
            }
        ],
    }


@pytest.fixture(scope="session")
def plugin_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment that has the project's packages and the pinned plugin.

    In the project's own it would delay every local call of Snakemake (see requirements-slurm.txt).
    """
    folder = tmp_path_factory.mktemp("plugin") / "venv"
    pinned = [
        line
        for line in (ROOT / "envs/requirements-slurm.txt").read_text().splitlines()
        if line.startswith("snakemake-executor-plugin-slurm")
    ]
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    python = folder / "bin" / "python"
    (packages,) = folder.glob("lib/python*/site-packages")
    inherited = [path for path in sys.path if path.endswith("site-packages")]
    (packages / "inherited.pth").write_text("\n".join(inherited) + "\n")
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-deps"]
    done = subprocess.run([*pip, *pinned], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"SLURM IS NOT TESTED: its plugin cannot be installed: {done.stderr[-500:]}")
    return python


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory, plugin_python: Path) -> Iterator[Cluster]:
    if os.getuid() != 0 or shutil.which("apt-get") is None:
        pytest.skip("SLURM IS NOT TESTED: a cluster of our own needs root on Debian")
    folder = tmp_path_factory.mktemp("slurm")
    environ = {**os.environ, "WATTSLICE_SLURM_DIR": str(folder)}
    # SLURM's files in /etc and its ports are the machine's: one test run at a time.
    with Path("/tmp/wattslice-slurm-test.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        up = subprocess.run(
            [HERE / "up.sh"], env=environ, capture_output=True, text=True, check=False
        )
        try:
            if up.returncode == CANNOT:
                pytest.skip(f"SLURM IS NOT TESTED: {up.stderr.strip()}")
            assert up.returncode == 0, up.stdout + up.stderr
            found = {node: _board(folder, node, models) for node, models in BOARDS.items()}
            yield Cluster(
                folder,
                plugin_python,
                {node: uuids[0] for node, uuids in found.items()},
                {node: uuids[1:] for node, uuids in found.items()},
            )
        finally:
            subprocess.run([HERE / "down.sh"], env=environ, check=False)
            _end_orphans(tmp_path_factory.getbasetemp())


def _end_orphans(folder: Path) -> None:
    """End what is left of jobs: a Snakemake that was told to end may wait for a child for ever."""
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            words = (entry / "cmdline").read_bytes().split(b"\0")
            ours = (entry / "cwd").resolve().is_relative_to(folder)
            if ours and (b"--target-jobs" in words or b"wattslice.train" in words):
                os.kill(int(entry.name), signal.SIGKILL)


def _board(folder: Path, node: str, models: list[str]) -> list[str]:
    """Make a node's simulated boards; UUIDs of the last one and of its slices."""
    simulated = create(models, folder / f"{node}.state", mig=True)
    environ = simulated.environment()
    environ["WATTSLICE_LEASE_DIR"] = str(folder / "leases")
    environ["PYTHONPATH"] = str(ROOT / "src")
    done = subprocess.run(
        [sys.executable, "-c", _CUT], env=environ, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    uuids: list[str] = json.loads(done.stdout)
    names = ("LD_LIBRARY_PATH", "WATTSIM_STATE", "WATTSLICE_SIMULATED")
    lines = [f"{name}={environ[name]}" for name in names]
    lines.append(f'SLICES="{" ".join(uuids[1:])}"')
    (folder / f"node-{node}.env").write_text("\n".join(lines) + "\n")
    return uuids
