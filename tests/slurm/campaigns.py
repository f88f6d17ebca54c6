"""The campaigns that the tests look at, each made by one function from its first job to its last.

They run side by side, as a time limit takes SLURM more than a minute. Runs that something is to
happen to wait for their board, which is held from here meanwhile, so that nothing depends on how
fast a machine is.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from slurm.cluster import HERE, LAYOUT, ROOT, Cluster, launcher
from wattslice.simulation.session import simulation
from workflow.conftest import TINY, Clone, make_clone
from workflow.test_simulated import SimulatedClone

TABLES = "results/tiny/tables/runs.csv"
SOLO_3G = f"{LAYOUT}/cnn.solo.3g/fp32/rep1"
SOLO_1G = f"{LAYOUT}/cnn.solo.1g/fp32/rep1"
FILL = f"{LAYOUT}/cnn.fill/fp32/rep1"
# What happens to the runs of the faulty campaign.
LIMITED, KILLED, CANCELLED = SOLO_3G, SOLO_1G, SOLO_1G.replace("rep1", "rep2")
FAULTS = (LIMITED, KILLED, CANCELLED)
PATIENCE_S = 400  # for one event, on a machine that has much else to do


@dataclass(frozen=True)
class SlurmClone(Clone):
    """A clone whose Snakemake submits to the cluster."""

    cluster: Cluster

    def command(self, *arguments: str) -> list[str]:
        return [
            str(self.cluster.python),
            str(HERE / "fast_polls.py"),
            *arguments,
            *("--workflow-profile", "profiles/test", "--configfile", "tiny.yaml"),
        ]

    def use_profile(self, name: str = "slurm", **changes: Any) -> None:
        """A shipped profile with what a test cluster and a test's patience need."""
        made = yaml.safe_load((ROOT / "profiles" / name / "profile.yaml").read_text())
        made |= {
            "slurm-status-command": "squeue",
            "slurm-init-seconds-before-status-checks": 1,
            "latency-wait": 10,
            "retries": 0,
        }
        if "set-threads" in made:
            made["set-threads"] = dict.fromkeys(made["set-threads"], 1)
        made["resources"]["board"] = 3
        made["default-resources"] |= changes.pop("default", {})
        for rule, resources in changes.pop("rules", {}).items():
            made["set-resources"][rule] = made["set-resources"][rule] | resources
        target = self.folder / "profiles/test/profile.yaml"
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(yaml.safe_dump(made | changes))

    def jobs(self, *rules: str) -> dict[int, dict[str, str]]:
        """Jobs of these rules, by id, as scontrol shows them."""
        return {i: job for rule in rules for i, job in self.cluster.jobs(rule, self.folder).items()}

    def job_of(self, run_id: str) -> dict[str, str]:
        """The last job of a run."""
        layout, placement, precision, repeat = run_id.split("/")
        ending = f"{layout}_{placement}_{precision}_{repeat.removeprefix('rep')}"
        return [j for j in self.jobs("train").values() if j["Comment"].endswith(ending)][-1]


def target(run_id: str) -> str:
    return f"results/tiny/runs/{run_id}/run.json"


def record(clone: Clone, run_id: str) -> Any:
    return json.loads((clone.folder / target(run_id)).read_text())


def starts(clone: Clone, run_id: str) -> list[str]:
    """The lines that the starts of a run have left."""
    path = clone.results / "logs" / "train" / f"{run_id}.log.starts"
    return path.read_text().splitlines() if path.exists() else []


def until(what: str, holds: Callable[[], Any], campaign: subprocess.Popen[str]) -> Any:
    """What `holds` gives once it is true; fails where the campaign ends before."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        ended = campaign.poll() is not None
        if found := holds():
            return found
        assert not ended, f"{what} will not come, the campaign has ended"
        assert time.monotonic() < deadline, f"not in {PATIENCE_S} s: {what}"
        time.sleep(0.2)


def slurm_clone(
    cluster: Cluster, folder: Path, placements: list[str], repeats: int, mig: str = "existing"
) -> SlurmClone:
    made = SlurmClone(make_clone(folder).folder, cluster)
    made.configure(config(placements, repeats, mig))
    return made


def config(placements: list[str], repeats: int, mig: str = "existing") -> dict[str, object]:
    experiment = {
        "name": "slurm",
        "layouts": [LAYOUT],
        "workloads": ["cnn"],
        "precisions": ["fp32"],
        "placements": placements,
        "repeats": repeats,
    }
    return {
        **TINY,
        "board": {"kind": "nvidia", "mig": mig, "power_model": None},
        "measure": {**TINY["measure"], "cooldown": {"max_s": 0}},  # type: ignore[dict-item]
        "experiments": [experiment],
    }


# --- a campaign to which nothing happens, here and there ---------------------------------------


@dataclass(frozen=True)
class Healthy:
    """A campaign on two nodes; later with one drained, and with both drained."""

    clone: SlurmClone
    runs: pd.DataFrame  # tables/runs of the first call
    jobs: dict[int, dict[str, str]]
    made_by: dict[str, int]  # the job of each run
    drained_said: str
    drained_jobs: list[dict[str, str]]
    all_drained_said: str


def healthy(cluster: Cluster, folder: Path) -> Healthy:
    clone = slurm_clone(cluster, folder, ["solo", "fill"], 1)
    clone.use_profile()
    clone.snakemake(TABLES, check=True)
    runs = pd.read_csv(clone.folder / TABLES)
    jobs = clone.jobs("partition", "idle", "train")
    made_by = {run_id: int(clone.job_of(run_id)["JobId"]) for run_id in runs["run_id"]}

    clone.use_profile("slurm-gres-only")
    (clone.folder / target(SOLO_1G)).unlink()
    cluster.set_node("n2", "drain")
    # Named too, as Snakemake does not miss a file between others.
    drained = clone.snakemake(target(SOLO_1G), TABLES, check=True)
    new = [job for number, job in clone.jobs("train").items() if number not in jobs]

    clone.use_profile()
    kept = (clone.folder / target(SOLO_1G)).rename(folder / "run.json")
    cluster.set_node("n1", "drain")
    refused = clone.snakemake(target(SOLO_1G))
    kept.rename(clone.folder / target(SOLO_1G))
    assert refused.returncode != 0
    cluster.set_node("n1,n2", "resume")
    return Healthy(
        clone=clone,
        runs=runs,
        jobs=jobs,
        made_by=made_by,
        drained_said=drained.stdout + drained.stderr,
        drained_jobs=new,
        all_drained_said=refused.stdout + refused.stderr,
    )


def here(_: Cluster, folder: Path) -> Clone:
    """The same campaign without SLURM."""
    plain = make_clone(folder)
    plain.configure(config(["solo", "fill"], 1))
    with simulation(["a100-sxm4-80gb"], mig=True) as board:
        clone = SimulatedClone(plain.folder, board)
        clone.make(LAYOUT)
        clone.snakemake(TABLES, check=True)
    return plain


# --- campaigns to which something happens ------------------------------------------------------


@contextlib.contextmanager
def running(clone: SlurmClone, *targets: str) -> Iterator[subprocess.Popen[str]]:
    """A campaign in the background; its output is in campaign.log beside the results."""
    log = clone.folder / "campaign.log"
    with log.open("w") as out, subprocess.Popen(
        clone.command(*targets), cwd=clone.folder, env=clone.environment(),
        stdout=out, stderr=subprocess.STDOUT, text=True,
    ) as campaign:  # fmt: skip
        try:
            yield campaign
        except AssertionError as error:
            raise AssertionError(f"{error}\n{log.read_text()[-5000:]}") from None
        finally:
            if campaign.poll() is None:
                campaign.send_signal(signal.SIGINT)
                campaign.wait()


@contextlib.contextmanager
def boards_held(clone: SlurmClone, campaign: subprocess.Popen[str], *nodes: str) -> Iterator[None]:
    """The leases of the nodes' boards, from when the layout was tried: runs wait for them."""
    tried = clone.results / "partitions" / f"{LAYOUT}.json"
    until("the partition stage", tried.exists, campaign)
    leases = clone.cluster.leases
    with contextlib.ExitStack() as held:
        for node in nodes:
            handle = held.enter_context((clone.folder / "leases" / leases[node]).open("a"))
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


@dataclass(frozen=True)
class Faulty:
    """A campaign whose jobs end badly, and its second call, with the node for each job."""

    clone: SlurmClone
    states: dict[str, str]  # of the first job of each run
    returncode: int
    left: list[str]  # records after the first call
    resumed: int  # return code of the second call
    said: str


def faulty(cluster: Cluster, folder: Path) -> Faulty:
    clone = slurm_clone(cluster, folder, ["solo"], 2)
    spare = {"slurm_partition": "spare"}
    clone.use_profile(default=spare)
    targets = [target(run_id) for run_id in FAULTS]

    def job_id(run_id: str) -> str:
        return clone.job_of(run_id)["JobId"]

    with running(clone, *targets) as campaign:
        with boards_held(clone, campaign, "n3"):
            for run_id in FAULTS:
                until(f"the start of {run_id}", lambda r=run_id: starts(clone, r), campaign)
            # Limits are in minutes; this one is brought forward, and SLURM looks every 30 s.
            cluster.ask("scontrol", "update", f"JobId={job_id(LIMITED)}", "EndTime=now+5")
            pid = until("the launcher", lambda: launcher(clone.folder, KILLED), campaign)
            os.kill(pid, signal.SIGKILL)
            cluster.ask("scancel", job_id(CANCELLED))
            campaign.wait(PATIENCE_S)
        states = {run_id: clone.job_of(run_id)["JobState"] for run_id in FAULTS}
        said = (clone.folder / "campaign.log").read_text()
    left = [run_id for run_id in FAULTS if (clone.folder / target(run_id)).exists()]
    clone.use_profile("slurm-exclusive", default=spare)
    resumed = clone.snakemake(*targets)
    return Faulty(
        clone=clone,
        states=states,
        returncode=campaign.returncode,
        left=left,
        resumed=resumed.returncode,
        said=said + resumed.stdout + resumed.stderr,
    )


@dataclass(frozen=True)
class Moved:
    """A run of a managed campaign that was pre-empted, then lost its node, and was made at last."""

    clone: SlurmClone
    returncode: int
    nodes: list[str]  # of its starts
    said: str


def moved(cluster: Cluster, folder: Path) -> Moved:
    clone = slurm_clone(cluster, folder, ["solo"], 1, mig="managed")
    board = {"gpu": 1, "gpu_model": "''"}
    clone.use_profile(
        "slurm-exclusive",
        default={"slurm_partition": "night"},
        rules=dict.fromkeys(("train", "idle", "partition"), board),
    )
    nodes = []

    def started(campaign: subprocess.Popen[str], number: int) -> str:
        """The node of a start of the run."""
        until(f"start {number}", lambda: len(starts(clone, SOLO_1G)) == number, campaign)
        nodes.append(clone.job_of(SOLO_1G)["NodeList"])
        return nodes[-1]

    with running(clone, target(SOLO_1G)) as campaign:
        with boards_held(clone, campaign, "n4", "n5"):
            urgent = ["sbatch", "--partition=urgent", "--exclusive", "--output=/dev/null"]
            cluster.ask(*urgent, f"--nodelist={started(campaign, 1)}", "--wrap=true")
            cluster.lose(started(campaign, 2))
            started(campaign, 3)
        campaign.wait(PATIENCE_S)
    said = (clone.folder / "campaign.log").read_text()
    return Moved(clone, campaign.returncode, nodes, said)
