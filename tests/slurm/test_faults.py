"""Faults on a real SLURM: each is seen, leaves no record, and its run is made once at last."""

from __future__ import annotations

import pytest

from slurm.campaigns import (
    CANCELLED,
    FAULTS,
    KILLED,
    LIMITED,
    SOLO_1G,
    Faulty,
    Moved,
    record,
    starts,
)
from slurm.cluster import Cluster

pytestmark = pytest.mark.timeout(900)


def test_the_faults_were_what_slurm_says_they_were(faulty: Faulty) -> None:
    assert faulty.states == {LIMITED: "TIMEOUT", KILLED: "FAILED", CANCELLED: "CANCELLED"}


def test_faults_end_the_campaign_with_an_error_and_leave_no_record(faulty: Faulty) -> None:
    assert faulty.returncode != 0
    assert faulty.left == []


def test_the_campaign_resumes_and_counts_attempts_not_results(faulty: Faulty) -> None:
    assert faulty.resumed == 0, faulty.said[-3000:]
    for run_id in FAULTS:
        noted = starts(faulty.clone, run_id)
        found = record(faulty.clone, run_id)
        assert found["attempt"] == len(noted) == 2
        assert found["slurm"]["SLURM_JOB_ID"] == noted[-1].split()[-1]
    assert len(list(faulty.clone.results.glob("runs/**/run.json"))) == 3


def test_with_the_node_for_itself_a_run_on_one_slice_has_energy(faulty: Faulty) -> None:
    for run_id in FAULTS:
        job = faulty.clone.job_of(run_id)
        assert job["TresPerJob"] == "gres:gpu:3"
        assert job["OverSubscribe"] == "NO"
        found = record(faulty.clone, run_id)
        assert found["outcome"] == "ok", found["reason"]
        assert len(found["workers"]) == 1


def test_slurm_starts_a_job_again_that_was_preempted_or_lost_its_node(
    moved: Moved, cluster: Cluster
) -> None:
    assert moved.returncode == 0, moved.said[-3000:]
    found = record(moved.clone, SOLO_1G)
    noted = starts(moved.clone, SOLO_1G)
    assert found["attempt"] == len(noted) == 3
    # One job from first to last: Snakemake has submitted nothing again.
    (job,) = moved.clone.jobs("train").values()
    assert {line.split()[-1] for line in noted} == {job["JobId"]}
    assert job["Restarts"] == "2"
    assert moved.nodes[1] != moved.nodes[2] == job["NodeList"]
    assert found["slurm"]["SLURMD_NODENAME"] == job["NodeList"]
    assert found["board"]["uuid"] == cluster.boards[job["NodeList"]]
    assert len(list(moved.clone.results.glob("runs/**/run.json"))) == 1


def test_a_managed_job_makes_its_layout_on_the_board_that_it_was_given(moved: Moved) -> None:
    found = record(moved.clone, SOLO_1G)
    profiles = [slice_["profile"] for slice_ in found["layout_state"]["slices"]]
    assert [profile.partition(".")[0] for profile in profiles] == ["3g", "1g", "1g"]
    assert found["outcome"] == "ok", found["reason"]
