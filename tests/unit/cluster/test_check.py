"""The check of a cluster before anything is submitted, on what sinfo and scontrol print."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

from wattslice.cluster.check import JobRequest, Submission, problems, remarks, requests_of
from wattslice.cluster.nodes import Cluster, ClusterError, minutes, read_cluster, run
from wattslice.config.models import BoardConfig

SINFO = """\
n1|gpu*|idle|4|16000|1:00:00|(null)|gpu:3g.40gb:1,gpu:1g.10gb:2
n2|gpu*|mixed|4|16000|1:00:00|big|gpu:3g.40gb:1(S:0),gpu:1g.10gb:2(S:0)
n3|spare|drained|8|32000|infinite|(null)|gpu:a100:4
n1|urgent|idle|4|16000|1:00:00|(null)|gpu:3g.40gb:1,gpu:1g.10gb:2
n3|urgent|drained|8|32000|infinite|(null)|gpu:a100:4
n4|cpu|idle|64|256000|2-00:00:00|(null)|(null)
"""
CONFIG = """\
Configuration data as of 2026-01-01
AccountingStorageType   = {accounting}
MinJobAge               = 300 sec
JobRequeue              = 1
PreemptType             = {preempt}
"""
PARTITIONS = """\
PartitionName=gpu Nodes=n[1-2] PriorityTier=1 PreemptMode=REQUEUE State=UP
PartitionName=spare Nodes=n3 PriorityTier=1 PreemptMode=CANCEL State=UP
PartitionName=urgent Nodes=n[1-3] PriorityTier=9 PreemptMode=OFF State=UP
PartitionName=cpu Nodes=n4 PriorityTier=1 PreemptMode=REQUEUE State=UP
"""
TRAIN = JobRequest(
    rule="train", gres="gpu:1g.10gb:1", partition="gpu", cpus=4, memory_mib=6000, runtime_min=20
)
GOOD = Submission(status_command="sacct")


BOARD = BoardConfig(kind="nvidia", mig="existing", power_model=None)


def cluster(
    accounting: str = "accounting_storage/slurmdbd", preempt: str = "preempt/none"
) -> Cluster:
    said = {
        "sinfo": SINFO,
        "config": CONFIG.format(accounting=accounting, preempt=preempt),
        "partition": PARTITIONS,
    }
    return read_cluster(lambda command: said[command[2] if command[0] == "scontrol" else "sinfo"])


def found(
    request: JobRequest, submission: Submission = GOOD, board: BoardConfig = BOARD
) -> list[str]:
    return list(problems([request], cluster(), submission, board))


def test_a_cluster_that_has_it_all_gives_no_problem() -> None:
    assert cluster().default_partition == "gpu"
    assert found(TRAIN) == []
    assert found(replace(TRAIN, partition=None)) == []
    assert found(replace(TRAIN, gres="gpu:3")) == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"gres": "gpu:7g.80gb:1"}, "gpu:7g.80gb:1, and no node.*n1, n2: gpu:3g.40gb:1, gpu:1g"),
        ({"gres": "gpu:1g.10gb:3"}, "asks for gpu:1g.10gb:3"),
        ({"gres": "gpu:1g.10gb+me:1"}, "needs an alias"),
        ({"gres": "gpu:1g.10gb:1,gpu:3g.40gb:1"}, "one resource"),
        ({"partition": "dgx"}, "no partition dgx; the cluster has gpu, spare, urgent, cpu"),
        ({"cpus": 16}, "16 CPUs, and no node.*4 CPUs"),
        ({"memory_mib": 64000}, "64000 MB of memory"),
        ({"runtime_min": 600}, "600 minutes.*at most 60 minutes"),
        ({"constraint": "huge"}, "the feature huge"),
        ({"partition": "spare", "gres": "gpu:a100:1"}, "takes jobs now.*n3 drained"),
    ],
)
def test_what_the_cluster_lacks_is_said_with_what_it_has(change, said) -> None:
    (problem,) = found(replace(TRAIN, **change))
    import re

    assert re.search(said, problem), problem


def test_without_accounting_only_squeue_can_see_the_end_of_a_job() -> None:
    lonely = cluster("accounting_storage/none")
    (said,) = problems([TRAIN], lonely, Submission("sacct"), BOARD)
    assert "--slurm-status-command squeue" in said
    assert list(problems([TRAIN], lonely, Submission("squeue"), BOARD)) == []
    (said,) = problems([TRAIN], lonely, Submission("squeue", first_check_s=200), BOARD)
    assert "MinJobAge" in said


def test_arrays_and_groups_of_measuring_jobs_are_refused() -> None:
    (said,) = found(TRAIN, Submission("sacct", array_rules=("train",)))
    assert "--slurm-array-jobs" in said
    (said,) = found(TRAIN, Submission("sacct", grouped_rules=("train",)))
    assert "group" in said


def test_managed_layouts_need_the_whole_node() -> None:
    managed = BOARD.model_copy(update={"mig": "managed"})
    (said,) = found(TRAIN, board=managed)
    assert "slurm-exclusive" in said
    assert found(replace(TRAIN, extra="--exclusive"), board=managed) == []


def test_a_rule_that_works_on_a_board_must_ask_for_one() -> None:
    request = replace(TRAIN, rule="validate", gres="", board=True)
    (said,) = found(request)
    assert "set-resources: validate: gres" in said
    assert found(request, board=BoardConfig(kind="cpu")) == []


def test_jobs_that_may_be_preempted_must_be_started_again() -> None:
    busy = cluster(preempt="preempt/partition_prio")
    assert busy.preemption == {"gpu": "REQUEUE", "spare": "CANCEL"}
    (said,) = problems([TRAIN], busy, replace(GOOD, requeue=False), BOARD)
    assert "--slurm-requeue" in said
    assert list(problems([TRAIN], busy, replace(GOOD, requeue=True), BOARD)) == []
    assert list(problems([TRAIN], busy, GOOD, BOARD)) == []  # JobRequeue = 1
    (said, _) = remarks([replace(TRAIN, partition="spare", gres="gpu:a100:1")], busy)
    assert "waits for them for ever" in said
    assert cluster(preempt="preempt/qos").preemption == {
        "gpu": "REQUEUE", "spare": "CANCEL", "cpu": "REQUEUE",
    }  # fmt: skip


def test_the_resources_gpu_and_gpu_model_are_a_gres() -> None:
    job = SimpleNamespace(
        is_local=False,
        rule=SimpleNamespace(name="train"),
        resources={
            **{"gpu": 7, "gpu_model": "1g.10gb", "board": 1},
            **{"mem_mb": 6000, "cpus_per_task": -1},
        },
        threads=4,
    )
    (request,) = requests_of([job, job])
    assert (request.gres, request.board, request.memory_mib) == ("gpu:1g.10gb:7", True, 6000)
    assert request.cpus == 1  # a negative number asks for none
    job.resources = {"gpu": 3, "gpu_model": ""}
    assert [r.gres for r in requests_of([job])] == ["gpu:3"]


def test_closed_nodes_and_boards_cut_unlike_are_remarked() -> None:
    mixed = cluster()
    nodes = tuple(
        replace(node, state="drained") if node.name == "n2" else node for node in mixed.nodes
    )
    (said,) = remarks([TRAIN], replace(mixed, nodes=nodes))
    assert "n2" in said
    other = tuple(replace(n, gres=n.gres[1:]) if n.name == "n2" else n for n in mixed.nodes)
    (said,) = remarks([TRAIN], replace(mixed, nodes=other))
    assert "constraint" in said


@pytest.mark.parametrize(
    ("text", "wanted"),
    [("1:00:00", 60), ("2-00:00:00", 2880), ("30:00", 30), ("infinite", None), ("1-12", 2160)],
)
def test_time_limits_are_read(text, wanted) -> None:
    assert minutes(text) == wanted


def test_a_machine_without_slurm_is_said_to_be_one() -> None:
    with pytest.raises(ClusterError, match="not on PATH"):
        run(["sinfo-that-is-not-there"])
