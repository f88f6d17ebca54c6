"""A real SLURM cluster on the loopback, with simulated boards in its nodes."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from wattslice.simulation.session import create

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
RUN = Path("/run/wattslice-slurm")  # process ids, see up.sh
CANNOT = 77  # how up.sh says that this machine cannot have a cluster
LAYOUT = "3g+2x1g"
# The job's board is the second one of n2: a job must find its own. Simulated boards of the same
# model and number are the same board, so this also gives nodes different ones.
BOARDS = {
    "n1": ["a100-sxm4-80gb"],
    "n2": ["h100-sxm5-80gb", "a100-sxm4-80gb"],
    "n3": ["a100-sxm4-80gb"],
    "n4": ["a100-sxm4-80gb"],
    "n5": ["a100-sxm4-40gb"],
}
CUT = ("n1", "n2", "n3")  # their boards are in LAYOUT, the others' whole
_READY = f"""
import json, sys
from wattslice.boards.lease import lease_path
from wattslice.boards.nvidia.board import discover
from wattslice.boards.nvidia.identity import lock_key
from wattslice.config.layout import Layout
board = discover("managed")[-1]
with board.lease():
    board.ensure(Layout.parse("{LAYOUT}" if sys.argv[1] == "cut" else "full"))
slices = [s.uuid for s in board.slices()] if sys.argv[1] == "cut" else [board.identity.uuid]
print(json.dumps([board.identity.uuid, lease_path(lock_key(board.identity)).name, *slices]))
"""


class CannotError(Exception):
    """This machine cannot have a cluster."""


@dataclass(frozen=True)
class Cluster:
    """The cluster that runs now."""

    python: Path  # an environment with the SLURM plugin, beside the project's own
    boards: dict[str, str]  # UUID of each node's board
    leases: dict[str, str]  # name of the lease file of each node's board
    slices: dict[str, list[str]]  # UUIDs of each node's devices, in the order of its gres

    def ask(self, *command: str) -> str:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout

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

    def set_node(self, nodes: str, state: str) -> None:
        self.ask("scontrol", "update", f"nodename={nodes}", f"state={state}", "reason=test")

    def lose(self, node: str) -> None:
        """The node is gone, with its daemon and all that runs there, before it can tell."""
        daemon = int((RUN / f"slurmd-{node}.pid").read_text())
        tasks = [
            pid for pid, _, environ in _processes() if f"SLURMD_NODENAME={node}".encode() in environ
        ]
        # The order matters: a daemon that sees its tasks end reports it.
        for pid in [daemon, *_step_daemons(tasks), *tasks]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.set_node(node, "down")


@contextlib.contextmanager
def running_cluster(folder: Path, *, install: bool) -> Iterator[Cluster]:
    """Bring the cluster up, and down again. Raises CannotError where this machine cannot."""
    environ = {**os.environ, "WATTSLICE_SLURM_DIR": str(folder)}
    command = [str(HERE / "up.sh"), *(["--install"] if install else [])]
    up = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    if up.returncode == CANNOT:
        raise CannotError(up.stderr.strip())
    try:
        assert up.returncode == 0, up.stdout + up.stderr
        found = {node: _board(folder, node, models) for node, models in BOARDS.items()}
        yield Cluster(
            _plugin_environment(folder / "plugin"),
            boards={node: names[0] for node, names in found.items()},
            leases={node: names[1] for node, names in found.items()},
            slices={node: names[2:] for node, names in found.items()},
        )
    finally:
        subprocess.run([HERE / "down.sh"], check=False)


def end_orphans(folder: Path) -> None:
    """End what is left of jobs: a Snakemake that was told to end may wait for a child for ever."""
    for pid, words, _ in _processes():
        with contextlib.suppress(OSError):
            ours = Path(f"/proc/{pid}/cwd").resolve().is_relative_to(folder)
            if ours and (b"--target-jobs" in words or b"wattslice.train" in words):
                os.kill(pid, signal.SIGKILL)


def launcher(folder: Path, run_id: str) -> int | None:
    """The process that measures a run in a working directory."""
    for pid, words, _ in _processes():
        with contextlib.suppress(OSError):
            if Path(f"/proc/{pid}/cwd").resolve() != folder or not words[0].endswith(b"python"):
                continue
            if b"wattslice.train" in words and run_id.encode() in words:
                return pid
    return None


def _plugin_environment(folder: Path) -> Path:
    """Python of an environment that has the project's packages and the pinned plugin.

    In the project's own it would delay every local call of Snakemake (see requirements-slurm.txt).
    Raises CannotError where the plugin cannot be installed.
    """
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
        raise CannotError(f"SLURM's plugin cannot be installed: {done.stderr[-500:]}")
    return python


def _step_daemons(tasks: list[int]) -> set[int]:
    """The daemons that look after these processes: their parents by that name."""
    found = set()
    for pid in tasks:
        with contextlib.suppress(OSError):
            parent = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]
            if Path(f"/proc/{parent}/comm").read_text().strip() == "slurmstepd":
                found.add(int(parent))
    return found


def _processes() -> Iterator[tuple[int, list[bytes], list[bytes]]]:
    """(id, command line, environment) of every process that can be read."""
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            words = (entry / "cmdline").read_bytes().split(b"\0")
            yield int(entry.name), words, (entry / "environ").read_bytes().split(b"\0")


def _board(folder: Path, node: str, models: list[str]) -> list[str]:
    """Make a node's simulated boards; UUID and lease of the last one, UUIDs of its devices."""
    cut = node in CUT
    environ = create(models, folder / f"{node}.state", mig=cut).environment()
    environ["WATTSLICE_LEASE_DIR"] = str(folder / "leases")
    environ["PYTHONPATH"] = str(ROOT / "src")
    done = subprocess.run(
        [sys.executable, "-c", _READY, "cut" if cut else "whole"],
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: list[str] = json.loads(done.stdout)
    kept = ("LD_LIBRARY_PATH", "WATTSIM_STATE", "WATTSLICE_SIMULATED")
    lines = [f"{name}={environ[name]}" for name in kept]
    lines.append(f'SLICES="{" ".join(found[2:])}"')
    (folder / f"node-{node}.env").write_text("\n".join(lines) + "\n")
    return found
