"""Whether a cluster has what a campaign's jobs ask for: looked at before anything is submitted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from wattslice.cluster.gres import GRES, Gres, has, parse_gres
from wattslice.cluster.nodes import Cluster, Node
from wattslice.config.models import BoardConfig

# Rules that measure: no other job may decide what they run on or when they end.
MEASURING = ("train", "idle", "partition", "validate")
_EXCLUSIVE = "--exclusive"
_PREEMPTED = {
    "CANCEL": "cancelled for others, and SLURM's plugin then waits for them for ever: when all "
    "other jobs have ended, interrupt Snakemake and call it again",
    "SUSPEND": "suspended for others amid a measurement, which then fails its checks",
}


@dataclass(frozen=True, slots=True)
class JobRequest:
    """What a job will ask SLURM for."""

    rule: str
    gres: str = ""
    partition: str | None = None
    constraint: str | None = None
    cpus: int = 1
    memory_mib: int | None = None
    runtime_min: int | None = None
    extra: str = ""
    board: bool = False  # the rule works on a board

    @property
    def exclusive(self) -> bool:
        return _EXCLUSIVE in self.extra.split()


@dataclass(frozen=True, slots=True)
class Submission:
    """How jobs are submitted and watched."""

    status_command: str | None = None
    first_check_s: int = 40
    array_rules: tuple[str, ...] = ()
    grouped_rules: tuple[str, ...] = ()
    requeue: bool | None = None  # None: as the cluster does by itself


def requests_of(jobs: Iterable[Any]) -> Counter[JobRequest]:
    """The requests of Snakemake's jobs that are not run on this machine, each with its number."""
    return Counter(_request(job) for job in jobs if not job.is_local)


def _request(job: Any) -> JobRequest:
    asked: Mapping[str, Any] = job.resources

    def number(name: str) -> int | None:
        value = asked.get(name)
        return int(value) if isinstance(value, int | float) else None

    def text(name: str) -> str | None:
        value = asked.get(name)
        return None if value is None else str(value)

    return JobRequest(
        rule=job.rule.name,
        gres=text("gres") or _devices(number("gpu"), text("gpu_model")),
        partition=text("slurm_partition"),
        constraint=text("constraint"),
        cpus=max(number("cpus_per_task") or int(job.threads), 1),  # negative: none are asked for
        memory_mib=number("mem_mb"),
        runtime_min=number("runtime"),
        extra=text("slurm_extra") or "",
        board=bool(number("board")),
    )


def _devices(count: int | None, kind: str | None) -> str:
    """The gres that the resources `gpu` and `gpu_model` amount to."""
    return ":".join(filter(None, ("gpu", kind, str(count)))) if count else ""


def problems(
    requests: Iterable[JobRequest], cluster: Cluster, submission: Submission, board: BoardConfig
) -> Iterator[str]:
    """Everything for which a job would be refused, wait for ever or measure the wrong thing."""
    yield from _watching(cluster, submission)
    for rule in MEASURING:
        if rule in submission.array_rules:
            yield (
                f"rule {rule} must not be in --slurm-array-jobs: an array asks for the slice of "
                "its first job in all of them"
            )
        if rule in submission.grouped_rules:
            yield f"rule {rule} must not be in a group: one board runs one job at a time"
    for request in requests:
        yield from _of_request(request, cluster)
        mode = cluster.preemption.get(_partition(request, cluster))
        requeues = cluster.requeues if submission.requeue is None else submission.requeue
        if mode == "REQUEUE" and not requeues:
            yield (
                f"rule {request.rule}: jobs of partition {_partition(request, cluster)} may be "
                "pre-empted, and SLURM's plugin waits for ever for one that is not started again; "
                "add --slurm-requeue, or ask for another partition"
            )
        if board.kind == "nvidia" and request.board and not request.gres:
            yield (
                f"rule {request.rule} works on a board and asks for no gres: add it in the profile "
                f"under set-resources: {request.rule}: gres (docs/slurm.md)"
            )
        if board.mig == "managed" and request.rule in MEASURING and not request.exclusive:
            yield (
                f"rule {request.rule}: config key 'board.mig' is 'managed', which re-partitions "
                "the board under all jobs of the node, and the job does not ask for the node with "
                "slurm_extra --exclusive; use --workflow-profile profiles/slurm-exclusive, or "
                "'existing'"
            )


def _watching(cluster: Cluster, submission: Submission) -> Iterator[str]:
    if cluster.accounting:
        return
    if submission.status_command != "squeue":
        yield (
            "the cluster has no accounting, so sacct says nothing and the campaign would wait for "
            "ever for jobs that have ended; add --slurm-status-command squeue"
        )
    needed = 3 * submission.first_check_s
    if cluster.min_job_age_s is not None and cluster.min_job_age_s < needed:
        yield (
            f"the cluster has no accounting and forgets jobs {cluster.min_job_age_s} s after their "
            f"end (MinJobAge), and squeue is trusted only from {needed} s on; set "
            f"--slurm-init-seconds-before-status-checks to {cluster.min_job_age_s // 3} or less"
        )


def _partition(request: JobRequest, cluster: Cluster) -> str:
    """The partitions that a job may come to, comma-separated; empty: not known."""
    return request.partition or cluster.default_partition or ""


def _of_request(request: JobRequest, cluster: Cluster) -> Iterator[str]:
    name = f"rule {request.rule}"
    if request.gres and not GRES.match(request.gres):
        yield (
            f"{name}: gres {request.gres!r} is not one that SLURM's plugin passes on (one "
            "resource, no '+' and no '-' in its type; a type such as 1g.10gb+me needs an alias "
            "from the cluster's administrator, see docs/slurm.md)"
        )
        return
    asked = _partition(request, cluster)
    partitions = set(asked.split(",")) - {""}
    unknown = sorted(partitions - set(cluster.partitions))
    if unknown:
        yield (
            f"{name}: there is no partition {', '.join(unknown)}; the cluster has "
            f"{', '.join(cluster.partitions)}"
        )
        return
    here = [node for node in cluster.nodes if not partitions or node.partition in partitions]
    where = f"partition {asked}" if asked else "the cluster"
    fitting = here
    for what, test, offered in _tests(request):
        left = [node for node in fitting if test(node)]
        if not left:
            yield f"{name} asks for {what}, and no node of {where} has it: {offered(fitting)}"
            return
        fitting = left
    if not any(node.open for node in fitting):
        states = ", ".join(f"{node.name} {node.state}" for node in fitting)
        yield (
            f"{name}: no node that has {request.gres or 'what it asks for'} takes jobs now "
            f"({states}); wait for one, or ask for another partition"
        )


def _tests(request: JobRequest) -> Iterator[tuple[str, Any, Any]]:
    """(what, whether a node has it, what nodes have instead), in the order of their interest."""
    if request.gres:
        (wanted,) = parse_gres(request.gres)
        yield str(wanted), lambda n: has(n.gres, wanted), _listed(lambda n: _gres_text(n.gres))
    if request.constraint and request.constraint.isidentifier():
        feature = request.constraint
        yield (
            f"the feature {feature}",
            lambda n: feature in n.features,
            _listed(lambda n: ",".join(sorted(n.features)) or "none"),
        )
    yield (
        f"{request.cpus} CPUs",
        lambda n: n.cpus >= request.cpus,
        _listed(lambda n: f"{n.cpus} CPUs"),
    )
    if request.memory_mib is not None:
        memory = request.memory_mib
        yield (
            f"{memory} MB of memory",
            lambda n: n.memory_mib >= memory,
            _listed(lambda n: f"{n.memory_mib} MB"),
        )
    if request.runtime_min is not None:
        runtime = request.runtime_min
        yield (
            f"{runtime} minutes",
            lambda n: n.max_minutes is None or n.max_minutes >= runtime,
            _listed(lambda n: f"at most {n.max_minutes} minutes"),
        )


def _gres_text(gres: tuple[Gres, ...]) -> str:
    return ", ".join(map(str, gres)) or "none"


def _listed(text: Any) -> Any:
    """A function that groups nodes by what they have."""

    def listed(nodes: Iterable[Node]) -> str:
        groups: dict[str, list[str]] = {}
        for node in nodes:
            groups.setdefault(text(node), []).append(node.name)
        return "; ".join(f"{', '.join(dict.fromkeys(n))}: {t}" for t, n in groups.items())

    return listed


def remarks(requests: Iterable[JobRequest], cluster: Cluster) -> Iterator[str]:
    """What is no fault and should be known: closed nodes, boards cut unlike, pre-emption."""
    for name in dict.fromkeys(_partition(request, cluster) for request in requests):
        said = _PREEMPTED.get(cluster.preemption.get(name, ""))
        if said:
            yield f"jobs of partition {name} may be {said} (docs/slurm.md, pre-emption)"
    wanted = {r.gres: r for r in requests if r.gres and r.rule == "train" and GRES.match(r.gres)}
    seen: set[str] = set()
    for request in wanted.values():
        (gres,) = parse_gres(request.gres)
        partitions = _partition(request, cluster).split(",")
        nodes = [n for n in cluster.nodes if n.partition in partitions and has(n.gres, gres)]
        closed = [n for n in nodes if not n.open and n.name not in seen]
        for node in closed:
            seen.add(node.name)
            yield f"node {node.name} takes no jobs: {node.state}"
        kinds = {_gres_text(n.gres) for n in nodes if n.open}
        if len(kinds) > 1:
            yield (
                f"{gres} is on nodes whose boards are cut unlike ({' | '.join(sorted(kinds))}): a "
                "run that comes to a board in another layout fails; pin the layout to its nodes "
                "with the resource `constraint` or --nodelist (docs/slurm.md)"
            )
