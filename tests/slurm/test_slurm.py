"""Campaigns on a real SLURM: gres of every job, two nodes, faults, and the same tables as here.

Everything is made once, side by side, as a time limit takes SLURM more than a minute: while one
campaign waits for it (its board is held from here, so that nothing depends on how fast it is), the
others are made.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from slurm.conftest import LAYOUT, Cluster, SlurmClone, campaign, slurm_clone
from wattslice.simulation.session import simulation
from workflow.conftest import Clone, make_clone
from workflow.test_simulated import SimulatedClone

pytestmark = pytest.mark.timeout(900)
TABLES = "results/tiny/tables/runs.csv"
GRES = {"distilbert.solo.3g": "gpu:3g.40gb:1", "distilbert.solo.1g": "gpu:1g.10gb:1"}
GRES["distilbert.fill"] = "gpu:3"
LIMITED, KILLED, CANCELLED = (
    f"{LAYOUT}/distilbert.solo.3g/fp32/rep1",
    f"{LAYOUT}/distilbert.solo.1g/fp32/rep1",
    f"{LAYOUT}/distilbert.solo.1g/fp32/rep2",
)


@dataclass
class Made:
    """All that the tests look at."""

    healthy: SlurmClone
    healthy_jobs: dict[int, dict[str, str]]
    drained_jobs: dict[int, dict[str, str]]
    drained_said: str
    all_drained_said: str
    here: Clone
    faulty: SlurmClone
    faulty_states: dict[str, str]
    faulty_rc: int
    left_by_faults: list[str]
    resumed_rc: int
    said: str = ""


def until(
    what: str,
    holds: Callable[[], Any],
    seconds: float = 300,
    ended: Callable[[], str | None] = lambda: None,
) -> Any:
    """What `holds` gives once it is true; `ended` says why it never will be."""
    deadline = time.monotonic() + seconds
    while True:
        if found := holds():
            return found
        why_not = ended()
        assert why_not is None, f"{what} will not come: {why_not}"
        assert time.monotonic() < deadline, f"not in {seconds} s: {what}"
        time.sleep(0.2)


def record(clone: Clone, run_id: str) -> Any:
    return json.loads((clone.results / "runs" / run_id / "run.json").read_text())


def _recorded(clone: Clone, run_id: str) -> bool:
    return (clone.results / "runs" / run_id / "run.json").exists()


def starts(clone: Clone, run_id: str) -> list[str]:
    path = clone.results / "logs" / "train" / f"{run_id}.log.starts"
    return path.read_text().splitlines() if path.exists() else []


@pytest.fixture(scope="module")
def made(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Made]:
    folder = tmp_path_factory.mktemp("campaigns")
    faulty = slurm_clone(cluster, folder / "faulty", ["solo"], 2)
    faulty.adapt_profile(
        default={"slurm_partition": "spare"},
        train={"runtime": "1 if wildcards.placement.endswith('.3g') else 10"},
    )
    healthy = slurm_clone(cluster, folder / "healthy", ["solo", "fill"], 1)
    healthy.adapt_profile()
    wanted = [f"results/tiny/runs/{run}/run.json" for run in (LIMITED, KILLED, CANCELLED)]
    log = folder / "faulty.log"
    with log.open("w") as out, subprocess.Popen(
        faulty.command(*wanted), cwd=faulty.folder, env=faulty.environment(),
        stdout=out, stderr=subprocess.STDOUT,
    ) as faults:  # fmt: skip
        try:
            with _board_held(faulty, lambda: log.read_text() if faults.poll() else None):
                _break(cluster, faulty)
                found = _while_it_waits(cluster, healthy, folder)
                states = until("the time limit", lambda: _ended(cluster, faulty))
            rc = faults.wait(timeout=120)
        finally:
            if faults.poll() is None:
                faults.send_signal(signal.SIGINT)
                faults.wait()
    left = [run for run in (LIMITED, KILLED, CANCELLED) if _recorded(faulty, run)]
    faulty.adapt_profile(default={"slurm_partition": "spare"})
    resumed = faulty.snakemake(*wanted)
    yield Made(
        healthy=healthy,
        faulty=faulty,
        faulty_states=states,
        faulty_rc=rc,
        left_by_faults=left,
        resumed_rc=resumed.returncode,
        said=log.read_text() + resumed.stdout + resumed.stderr,
        **found,
    )


class _board_held:  # noqa: N801
    """The lease of the spare node's board, from when its layout was tried: runs wait for it."""

    def __init__(self, clone: Clone, ended: Callable[[], str | None]) -> None:
        self._ended = ended
        self._leases = clone.folder / "leases"
        self._partition = clone.results / "partitions" / f"{LAYOUT}.json"

    def __enter__(self) -> None:
        until("the partition stage", self._partition.exists, ended=self._ended)
        (lease,) = self._leases.glob("*.lock")
        self._handle = lease.open("r+")
        fcntl.flock(self._handle, fcntl.LOCK_EX)

    def __exit__(self, *_: object) -> None:
        self._handle.close()


def _jobs_of(cluster: Cluster, clone: SlurmClone) -> dict[str, dict[str, str]]:
    """The last job of each run, as scontrol shows it."""
    found = {}
    for job in cluster.jobs("train", clone.folder).values():
        for run_id in (LIMITED, KILLED, CANCELLED):
            layout, placement, precision, repeat = run_id.split("/")
            ending = f"{layout}_{placement}_{precision}_{repeat.removeprefix('rep')}"
            if job["Comment"].endswith(ending):
                found[run_id] = job
    return found


def _break(cluster: Cluster, clone: SlurmClone) -> None:
    """Kill the program of one run and cancel the job of another; the third meets its limit."""
    for run_id in (KILLED, CANCELLED):
        until(f"the start of {run_id}", lambda run_id=run_id: starts(clone, run_id))
    launcher = until("the launcher", lambda: _launcher(clone, KILLED))
    os.kill(launcher, signal.SIGKILL)
    cluster.ask("scancel", _jobs_of(cluster, clone)[CANCELLED]["JobId"])


def _launcher(clone: Clone, run_id: str) -> int | None:
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            words = (entry / "cmdline").read_bytes().decode().split("\0")
            here = (entry / "cwd").resolve() == clone.folder
        except OSError:
            continue
        if here and "wattslice.train" in words and run_id in words and words[0].endswith("python"):
            return int(entry.name)
    return None


def _ended(cluster: Cluster, clone: SlurmClone) -> dict[str, str] | None:
    """State of the job of each run, when all have ended."""
    states = {run: job["JobState"] for run, job in _jobs_of(cluster, clone).items()}
    over = {"TIMEOUT", "FAILED", "CANCELLED", "COMPLETED", "NODE_FAIL"}
    return states if len(states) == 3 and over.issuperset(states.values()) else None


def _while_it_waits(cluster: Cluster, healthy: SlurmClone, folder: Path) -> dict[str, Any]:
    """The healthy campaign on SLURM and here, and a run again while a node is drained."""
    healthy.snakemake(TABLES, check=True)
    jobs = {rule: cluster.jobs(rule, healthy.folder) for rule in ("partition", "idle", "train")}
    here = make_clone(folder / "here")
    here.configure(campaign(["solo", "fill"], 1))
    with simulation(["a100-sxm4-80gb"], mig=True) as board:
        local = SimulatedClone(here.folder, board)
        local.make(LAYOUT)
        local.snakemake(TABLES, check=True)
    run = f"{LAYOUT}/distilbert.solo.1g/fp32/rep1"
    (healthy.results / "runs" / run / "run.json").unlink()
    cluster.ask("scontrol", "update", "nodename=n2", "state=drain", "reason=test")
    # Named too, as Snakemake does not miss a file between others.
    targets = (f"results/tiny/runs/{run}/run.json", TABLES)
    again = healthy.snakemake(*targets, check=True)
    new = set(cluster.jobs("train", healthy.folder)) - set(jobs["train"])
    drained = {job: cluster.jobs("train", healthy.folder)[job] for job in new}
    cluster.ask("scontrol", "update", "nodename=n1", "state=drain", "reason=test")
    (healthy.results / "runs" / run / "run.json").rename(folder / "run.json")
    refused = healthy.snakemake(*targets)
    assert refused.returncode != 0
    (folder / "run.json").rename(healthy.results / "runs" / run / "run.json")
    cluster.ask("scontrol", "update", "nodename=n1,n2", "state=resume")
    return {
        "healthy_jobs": {**jobs["partition"], **jobs["idle"], **jobs["train"]},
        "drained_jobs": drained,
        "drained_said": again.stdout + again.stderr,
        "all_drained_said": refused.stdout + refused.stderr,
        "here": here,
    }


# --- the healthy campaign ----------------------------------------------------------------------


def test_every_job_asks_for_the_slices_of_its_run_and_gets_them(made: Made) -> None:
    asked = {}
    for job in made.healthy_jobs.values():
        assert job["JobState"] == "COMPLETED"
        assert job["Partition"] == "gpu"
        (gres,) = re.findall(r"gres:(gpu:\S+)", job["TresPerNode"])
        comment = job["Comment"]
        placement = next((name for name in GRES if f"_{name}_" in comment), "distilbert.fill")
        assert gres == GRES[placement], comment
        asked[comment] = job
    trained = [name for name in asked if name.startswith("rule_train_")]
    assert len(trained) == 3
    for name in trained:
        given = asked[name]["JOB_GRES"]
        if "solo" in name:
            kind = "3g.40gb" if ".solo.3g_" in name else "1g.10gb"
            assert given == f"gpu:{kind}:1"
        else:
            assert sorted(given.split(",")) == ["gpu:1g.10gb:2", "gpu:3g.40gb:1"]
        assert asked[name]["TimeLimit"] == "00:08:00"
        workers = 3 if "fill" in name else 1
        assert asked[name]["MinMemoryNode"].startswith(f"{2000 + 4000 * workers}M")


def test_both_nodes_are_used(made: Made) -> None:
    assert {job["NodeList"] for job in made.healthy_jobs.values()} == {"n1", "n2"}


def test_records_name_the_job_the_node_and_the_slices_that_slurm_gave(
    made: Made, cluster: Cluster
) -> None:
    jobs = {**made.healthy_jobs, **made.drained_jobs}
    for placement in GRES:
        found = record(made.healthy, f"{LAYOUT}/{placement}/fp32/rep1")
        job = jobs[int(found["slurm"]["SLURM_JOB_ID"])]
        node = job["NodeList"]
        assert found["slurm"]["SLURMD_NODENAME"] == node
        assert found["board"]["uuid"] == cluster.boards[node]
        # scontrol forgets the numbers of an ended job's devices; the job's own variable stays.
        numbers = [int(number) for number in found["slurm"]["SLURM_STEP_GPUS"].split(",")]
        given = {cluster.slices[node][number] for number in numbers}
        assert {worker["slice"]["uuid"] for worker in found["workers"]} == given


def test_energy_is_claimed_by_runs_that_have_the_board_and_by_no_others(made: Made) -> None:
    runs = pd.read_csv(made.healthy.folder / TABLES).set_index("placement")
    assert runs.loc["distilbert.fill", "outcome"] == "ok"
    assert runs.loc["distilbert.fill", "samples_per_j"] > 0
    for placement in ("distilbert.solo.1g", "distilbert.solo.3g"):
        assert runs.loc[placement, "outcome"] == "energy_unavailable"
        assert "shared board" in runs.loc[placement, "reason"]
        assert pd.isna(runs.loc[placement, "samples_per_j"])
        assert runs.loc[placement, "throughput_samples_s"] > 0


def test_the_same_campaign_gives_the_same_tables_here(made: Made) -> None:
    for name in ("runs", "slices", "cells", "summary"):
        there = pd.read_parquet(made.healthy.results / "tables" / f"{name}.parquet")
        here = pd.read_parquet(made.here.results / "tables" / f"{name}.parquet")
        assert list(there.columns) == list(here.columns), name
        assert len(there) == len(here), name
        keys = ["run_id", "spec_digest", "code_digest"] if name == "runs" else None
        keys = keys or [k for k in ("layout", "placement", "precision", "workload") if k in there]
        pd.testing.assert_frame_equal(there[keys], here[keys])
    manifests = [
        (clone.results / "campaign.json").read_text() for clone in (made.healthy, made.here)
    ]
    assert manifests[0] == manifests[1]


# --- faults ------------------------------------------------------------------------------------


def test_the_faults_were_what_slurm_says_they_were(made: Made) -> None:
    assert made.faulty_states == {LIMITED: "TIMEOUT", KILLED: "FAILED", CANCELLED: "CANCELLED"}


def test_faults_end_the_campaign_with_an_error_and_leave_no_record(made: Made) -> None:
    assert made.faulty_rc != 0
    assert made.left_by_faults == []


def test_the_campaign_resumes_and_counts_attempts_not_results(made: Made) -> None:
    assert made.resumed_rc == 0, made.said[-3000:]
    for run_id in (LIMITED, KILLED, CANCELLED):
        noted = starts(made.faulty, run_id)
        found = record(made.faulty, run_id)
        # On a slow machine a limit of a minute may pass before the run began.
        assert found["attempt"] == len(noted)
        assert len(noted) == 2 or run_id == LIMITED
        assert found["slurm"]["SLURM_JOB_ID"] == noted[-1].split()[-1]
        assert found["outcome"] == "energy_unavailable"
    assert len(list(made.faulty.results.glob("runs/**/run.json"))) == 3


def test_a_drained_node_is_said_and_its_work_goes_to_the_other(made: Made) -> None:
    assert "note: node n2 takes no jobs: drain" in made.drained_said
    assert [job["NodeList"] for job in made.drained_jobs.values()] == ["n1"]
    assert record(made.healthy, f"{LAYOUT}/distilbert.solo.1g/fp32/rep1")["attempt"] == 2


def test_a_campaign_that_no_node_can_take_is_refused_before_anything_is_submitted(
    made: Made,
) -> None:
    assert "no node that has gpu:1g.10gb:1 takes jobs now" in made.all_drained_said
    assert "has been submitted" not in made.all_drained_said


# --- checks before submission ------------------------------------------------------------------


def test_a_slice_that_the_cluster_lacks_is_refused_with_what_it_has(
    cluster: Cluster, tmp_path: Path
) -> None:
    clone = slurm_clone(cluster, tmp_path / "clone", ["solo"], 1)
    clone.adapt_profile(train={"gres": "'gpu:7g.80gb:1'"})
    done = clone.snakemake(TABLES)
    assert done.returncode != 0
    said = done.stdout + done.stderr
    assert "asks for gpu:7g.80gb:1, and no node of partition gpu has it" in said
    assert "gpu:3g.40gb:1, gpu:1g.10gb:2" in said
    assert not list(clone.results.glob("logs/partition/*"))
    assert cluster.jobs("partition", clone.folder) == {}


def test_sacct_without_accounting_is_refused_instead_of_waiting_for_ever(
    cluster: Cluster, tmp_path: Path
) -> None:
    clone = slurm_clone(cluster, tmp_path / "clone", ["solo"], 1)
    clone.adapt_profile(**{"slurm-status-command": "sacct"})
    done = clone.snakemake(TABLES)
    assert done.returncode != 0
    assert "--slurm-status-command squeue" in done.stdout + done.stderr
    assert cluster.jobs("partition", clone.folder) == {}


def test_without_the_plugin_local_calls_are_as_quick_as_before(tmp_path: Path) -> None:
    clone = make_clone(tmp_path / "clone")
    begin = time.monotonic()
    clone.snakemake("--version", check=True)
    assert time.monotonic() - begin < 8  # with the plugin and no controller: 10 s more
