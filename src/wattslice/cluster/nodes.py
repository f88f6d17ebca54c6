"""What a SLURM cluster has, as sinfo and scontrol say it."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from wattslice.cluster.gres import Gres, parse_gres

_TIMEOUT_S = 30.0
_SINFO = ("sinfo", "--noheader", "--Node", "--all", "--format=%N|%P|%T|%c|%m|%l|%f|%G")
_CONFIG = ("scontrol", "show", "config")
_PARTITIONS = ("scontrol", "show", "partition", "--oneliner")
# States in which a node takes no new job, whatever is free on it.
_CLOSED = ("down", "drain", "fail", "maint", "inval", "unknown", "future")
# Marks behind a state: not responding, powering, rebooting, in maintenance.
_MARKS = "*~#!%$@^-+"


class ClusterError(RuntimeError):
    """SLURM does not answer; the message says what was asked."""


@dataclass(frozen=True, slots=True)
class Node:
    """A node in one partition."""

    name: str
    partition: str
    state: str
    cpus: int
    memory_mib: int
    max_minutes: int | None  # None: no limit
    features: frozenset[str] = frozenset()
    gres: tuple[Gres, ...] = ()

    @property
    def open(self) -> bool:
        """Whether new jobs may come to it (now or when others have ended)."""
        return "*" not in self.state and not any(
            word in self.state.rstrip(_MARKS) for word in _CLOSED
        )


@dataclass(frozen=True, slots=True)
class Cluster:
    """All nodes, and the settings that decide how jobs are watched."""

    nodes: tuple[Node, ...]
    default_partition: str | None = None
    accounting: bool = True
    min_job_age_s: int | None = None
    requeues: bool = True  # what becomes of jobs that say nothing of it
    # What a partition's jobs may meet for the sake of others': REQUEUE, CANCEL, SUSPEND.
    preemption: dict[str, str] = field(default_factory=dict)

    @property
    def partitions(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(node.partition for node in self.nodes))


def run(command: Sequence[str]) -> str:
    """The output of a SLURM command. Raises ClusterError with what it said."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
        )
    except FileNotFoundError as error:
        raise ClusterError(
            f"{command[0]} is not on PATH: start the campaign where SLURM's commands are, "
            "usually a login node"
        ) from error
    except subprocess.TimeoutExpired as error:
        raise ClusterError(f"{command[0]} gave no answer in {_TIMEOUT_S:.0f} s") from error
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip().splitlines()
        raise ClusterError(f"{' '.join(command[:2])} failed: {said[-1] if said else 'no message'}")
    return done.stdout


def read_cluster(ask: Callable[[Sequence[str]], str] = run) -> Cluster:
    """Read the cluster that this machine belongs to. Raises ClusterError."""
    nodes = []
    default = None
    for line in ask(_SINFO).splitlines():
        fields = [part.strip() for part in line.split("|")]
        if len(fields) != 8:
            continue
        name, partition, state, cpus, memory, limit, features, gres = fields
        if partition.endswith("*"):
            partition = default = partition[:-1]
        nodes.append(
            Node(
                name=name,
                partition=partition,
                state=state.lower(),
                cpus=_number(cpus) or 0,
                memory_mib=_number(memory) or 0,
                max_minutes=minutes(limit),
                features=frozenset(f for f in features.split(",") if f and f != "(null)"),
                gres=() if gres == "(null)" else parse_gres(gres),
            )
        )
    if not nodes:
        raise ClusterError("sinfo lists no node")
    settings = dict(re.findall(r"^(\w+)\s*=\s*(.*?)\s*$", ask(_CONFIG), re.M))
    return Cluster(
        nodes=tuple(nodes),
        default_partition=default,
        accounting=not settings.get("AccountingStorageType", "").endswith("/none"),
        min_job_age_s=_number(settings.get("MinJobAge", "")),
        requeues=settings.get("JobRequeue") != "0",
        preemption=_preemption(settings, nodes, ask(_PARTITIONS)),
    )


def _preemption(settings: Mapping[str, str], nodes: Sequence[Node], shown: str) -> dict[str, str]:
    """How the jobs of each partition may be pre-empted; partitions where they may not are left out.

    By quality of service it may happen to any job; by partition where one of a higher tier has
    some of the same nodes.
    """
    kind = settings.get("PreemptType", "preempt/none")
    if kind == "preempt/none":
        return {}
    partitions = [dict(re.findall(r"(\S+?)=(\S*)", line)) for line in shown.splitlines() if line]
    tiers = {p["PartitionName"]: _number(p.get("PriorityTier", "")) or 0 for p in partitions}
    found = {}
    for partition in partitions:
        name, mode = partition["PartitionName"], partition.get("PreemptMode", "OFF")
        own = {node.name for node in nodes if node.partition == name}
        above = {node.name for node in nodes if tiers.get(node.partition, 0) > tiers[name]}
        if mode != "OFF" and (kind != "preempt/partition_prio" or own & above):
            found[name] = mode
    return found


def minutes(text: str) -> int | None:
    """A limit of SLURM (days-hours:minutes:seconds, hours:minutes:seconds, …) in minutes."""
    text = text.strip().lower()
    if text in ("infinite", "unlimited", "n/a", ""):
        return None
    days, dash, rest = text.rpartition("-")
    parts = [int(part) for part in rest.split(":")]
    if dash:  # days-hours[:minutes[:seconds]]
        hours, mins = (*parts, 0, 0)[:2]
        return int(days) * 1440 + hours * 60 + mins
    if len(parts) == 3:
        return parts[0] * 60 + parts[1]
    return parts[0]


def _number(text: str) -> int | None:
    match = re.match(r"\d+", text)
    return int(match[0]) if match else None
