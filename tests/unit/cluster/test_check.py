"""The check of a cluster before anything is submitted, on what sinfo and scontrol print."""

from __future__ import annotations

from dataclasses import replace

import pytest

from wattslice.cluster.check import JobRequest, Submission, problems, remarks
from wattslice.cluster.nodes import Cluster, ClusterError, minutes, read_cluster, run

SINFO = """\
n1|gpu*|idle|4|16000|1:00:00|(null)|gpu:3g.40gb:1,gpu:1g.10gb:2
n2|gpu*|mixed|4|16000|1:00:00|big|gpu:3g.40gb:1(S:0),gpu:1g.10gb:2(S:0)
n3|spare|drained|8|32000|infinite|(null)|gpu:a100:4
n4|cpu|idle|64|256000|2-00:00:00|(null)|(null)
"""
CONFIG = """\
Configuration data as of 2026-01-01
AccountingStorageType   = {accounting}
MinJobAge               = 300 sec
"""
TRAIN = JobRequest(
    rule="train", gres="gpu:1g.10gb:1", partition="gpu", cpus=4, memory_mib=6000, runtime_min=20
)
GOOD = Submission(status_command="sacct")


def cluster(accounting: str = "accounting_storage/slurmdbd") -> Cluster:
    said = {"sinfo": SINFO, "scontrol": CONFIG.format(accounting=accounting)}
    return read_cluster(lambda command: said[command[0]])


def found(request: JobRequest, submission: Submission = GOOD, mig: str = "existing") -> list[str]:
    return list(problems([request], cluster(), submission, mig))


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
        ({"partition": "dgx"}, "no partition dgx; the cluster has gpu, spare, cpu"),
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
    (said,) = problems([TRAIN], lonely, Submission("sacct"), "existing")
    assert "--slurm-status-command squeue" in said
    assert list(problems([TRAIN], lonely, Submission("squeue"), "existing")) == []
    (said,) = problems([TRAIN], lonely, Submission("squeue", first_check_s=200), "existing")
    assert "MinJobAge" in said


def test_arrays_and_groups_of_measuring_jobs_are_refused() -> None:
    (said,) = found(TRAIN, Submission("sacct", array_rules=("train",)))
    assert "--slurm-array-jobs" in said
    (said,) = found(TRAIN, Submission("sacct", grouped_rules=("train",)))
    assert "group" in said


def test_managed_layouts_need_the_whole_node() -> None:
    (said,) = found(TRAIN, mig="managed")
    assert "slurm-exclusive" in said
    assert found(replace(TRAIN, extra="--exclusive"), mig="managed") == []


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
