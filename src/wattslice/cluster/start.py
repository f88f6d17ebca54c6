"""The check of a campaign that is about to be submitted: Snakemake's plan against the cluster."""

from __future__ import annotations

from typing import Any

from wattslice.cluster.check import Submission, problems, remarks, requests_of
from wattslice.cluster.nodes import ClusterError, read_cluster
from wattslice.config.models import BoardConfig


class ClusterProblem(Exception):  # noqa: N818
    """The campaign would fail, hang or mislead on this cluster; every reason is a line."""


def check_start(workflow: Any, board: BoardConfig) -> tuple[str, ...]:
    """What is worth a remark. Raises ClusterProblem before anything has been submitted."""
    requests = requests_of(workflow.dag.needrun_jobs())
    if not requests:
        return ()
    settings = workflow.executor_settings
    arrays = str(getattr(settings, "array_jobs", None) or "")
    groups = getattr(workflow.group_settings, "overwrite_groups", None) or {}
    submission = Submission(
        status_command=getattr(settings, "status_command", None),
        first_check_s=int(getattr(settings, "init_seconds_before_status_checks", None) or 40),
        array_rules=tuple(name.strip() for name in arrays.split(",") if name.strip()),
        grouped_rules=tuple(groups),
        requeue=_requeue(settings),
    )
    try:
        cluster = read_cluster()
    except ClusterError as error:
        raise ClusterProblem(str(error)) from error
    found = tuple(dict.fromkeys(problems(requests, cluster, submission, board)))
    if found:
        raise ClusterProblem("\n".join(found))
    return tuple(remarks(requests, cluster))


def _requeue(settings: Any) -> bool | None:
    """Whether jobs are to be started again by SLURM; None where the cluster decides."""
    if getattr(settings, "no_requeue", False):
        return False
    return True if getattr(settings, "requeue", False) else None
