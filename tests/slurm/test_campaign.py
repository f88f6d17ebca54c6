"""A campaign on a real SLURM: gres of every job, two nodes, and the same tables as here."""

from __future__ import annotations

import re

import pandas as pd
import pytest

from slurm.campaigns import FILL, SOLO_1G, SOLO_3G, Clone, Healthy, record
from slurm.cluster import Cluster

pytestmark = pytest.mark.timeout(900)
ASKED = {SOLO_3G: "gpu:3g.40gb:1", SOLO_1G: "gpu:1g.10gb:1", FILL: "gpu:3"}
GIVEN = {**ASKED, FILL: "gpu:3g.40gb:1,gpu:1g.10gb:2"}

# What is not measured, and so is the same wherever a run is made.
_CELL = ["layout", "placement", "kind", "workload", "precision", "simulated", "modelled"]
SETTLED = {
    "runs": ["run_id", "spec_digest", "code_digest", "repeat", "workers", *_CELL],
    "slices": ["run_id", "slice", "profile", "threads", "batch_size", "parameters", "device"],
    "cells": ["run_id", "model", "layers", "compute_units", "fits", "board", *_CELL],
    "summary": ["runs", "throughput_samples_s_n", "peak_memory_mib_n", *_CELL],
}


def test_every_job_asks_for_the_slices_of_its_run_and_gets_them(healthy: Healthy) -> None:
    rules = {}
    for number, job in healthy.jobs.items():
        assert job["JobState"] == "COMPLETED"
        assert job["Partition"] == "gpu"
        (rules[number],) = re.findall(r"^rule_([a-z]+)_", job["Comment"])
        if rules[number] != "train":
            assert asked(job) == "gpu:3"
    assert sorted(rules.values()) == ["idle", "partition", "train", "train", "train"]
    for run_id, gres in ASKED.items():
        job = healthy.jobs[healthy.made_by[run_id]]
        assert asked(job) == gres
        assert sorted(job["JOB_GRES"].split(",")) == sorted(GIVEN[run_id].split(","))
        assert job["TimeLimit"] == "00:08:00"
        workers = 3 if run_id == FILL else 1
        assert job["MinMemoryNode"].startswith(f"{2000 + 4000 * workers}M")


def asked(job: dict[str, str]) -> str:
    (gres,) = re.findall(r"gres:(gpu:\S+)", job["TresPerNode"])
    return str(gres)


def test_both_nodes_are_used(healthy: Healthy) -> None:
    assert {job["NodeList"] for job in healthy.jobs.values()} == {"n1", "n2"}


def test_records_name_the_job_the_node_and_the_slices_that_slurm_gave(
    healthy: Healthy, cluster: Cluster
) -> None:
    jobs = {**healthy.jobs, **{int(job["JobId"]): job for job in healthy.drained_jobs}}
    for run_id in ASKED:
        found = record(healthy.clone, run_id)
        job = jobs[int(found["slurm"]["SLURM_JOB_ID"])]
        node = job["NodeList"]
        assert found["slurm"]["SLURMD_NODENAME"] == node
        assert found["board"]["uuid"] == cluster.boards[node]
        # scontrol forgets the numbers of an ended job's devices; the job's own variable stays.
        numbers = [int(number) for number in found["slurm"]["SLURM_STEP_GPUS"].split(",")]
        given = {cluster.slices[node][number] for number in numbers}
        assert {worker["slice"]["uuid"] for worker in found["workers"]} == given


def test_energy_is_claimed_by_runs_that_have_the_board_and_by_no_others(healthy: Healthy) -> None:
    runs = healthy.runs.set_index("run_id")
    assert runs.loc[FILL, "outcome"] == "ok"
    assert runs.loc[FILL, "samples_per_j"] > 0
    # The board of its own job was measured idle, which need not be that of the idle stage.
    assert runs.loc[FILL, "samples_per_net_j"] > 0
    for run_id in (SOLO_1G, SOLO_3G):
        assert runs.loc[run_id, "outcome"] == "energy_unavailable"
        assert "shared board" in runs.loc[run_id, "reason"]
        assert pd.isna(runs.loc[run_id, "samples_per_j"])
        assert runs.loc[run_id, "throughput_samples_s"] > 0


def test_the_same_campaign_gives_the_same_tables_here(healthy: Healthy, here: Clone) -> None:
    for name, settled in SETTLED.items():
        there = pd.read_parquet(healthy.clone.results / "tables" / f"{name}.parquet")
        local = pd.read_parquet(here.results / "tables" / f"{name}.parquet")
        assert list(there.columns) == list(local.columns), name
        pd.testing.assert_frame_equal(there[settled], local[settled])
    manifests = [(c.results / "campaign.json").read_text() for c in (healthy.clone, here)]
    assert manifests[0] == manifests[1]


def test_a_drained_node_is_said_and_its_work_goes_to_the_other(healthy: Healthy) -> None:
    assert "note: node n2 takes no jobs: drain" in healthy.drained_said
    (job,) = healthy.drained_jobs  # submitted with the profile for --gres alone
    assert job["NodeList"] == "n1"
    assert asked(job) == ASKED[SOLO_1G]
    assert "MinMemoryCPU" in job  # the cluster's own: the job asked for none
    assert record(healthy.clone, SOLO_1G)["attempt"] == 2


def test_a_campaign_that_no_node_can_take_is_refused_before_anything_is_submitted(
    healthy: Healthy,
) -> None:
    assert "no node that has gpu:1g.10gb:1 takes jobs now" in healthy.all_drained_said
    assert "has been submitted" not in healthy.all_drained_said
