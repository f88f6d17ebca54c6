"""Data-parallel training: one worker per board (or, on a CPU board, per set of cores).

The workers of a job find each other through a file that the launcher names, and average their
gradients with torch's DistributedDataParallel: nccl between GPUs, gloo between CPU cores. Each
takes its part of every batch: a step trains on batch_size x workers samples, as with torchrun.

All workers have to make the same number of steps, or one waits for ever. So they agree on every
command of the launcher before they follow it: a command counts once all have it.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wattslice.records.base import Record

if TYPE_CHECKING:
    from wattslice.records.board import SliceState
    from wattslice.train.protocol import Jobs

# A worker that is lost closes its connections, which the others notice at once; this is for one
# that hangs.
_TIMEOUT = timedelta(seconds=120)


class Rendezvous(Record):
    """Which worker of a data-parallel job a process is, and where the workers meet."""

    rank: int
    world_size: int
    file: str  # a path that does not exist yet, the same for all


def joined(jobs: Jobs, file: Path) -> Jobs:
    """The workers of one data-parallel job: the first one's seed, and a file by which they meet."""
    seed, size = jobs[0][0].seed, len(jobs)
    together = []
    for rank, (job, env) in enumerate(jobs):
        meeting = Rendezvous(rank=rank, world_size=size, file=str(file))
        together.append((job.model_copy(update={"seed": seed, "rendezvous": meeting}), env))
    return together


class RefusedError(Exception):
    """A data-parallel job that these slices cannot run; the message says why."""


def check(slices: Iterable[SliceState]) -> None:
    """Raise RefusedError where a data-parallel job cannot run on these slices."""
    instances = [slice_ for slice_ in slices if slice_.gpu_instance_id is not None]
    if not instances:
        return
    raise RefusedError(
        f"data parallel over MIG instances ({', '.join(s.profile for s in instances)}): a process "
        "sees one instance, and instances cannot reach each other's memory (no peer-to-peer, and "
        "nccl refuses two ranks on one GPU); use one whole board per worker"
    )


class Member:
    """This process's membership in a data-parallel job."""

    def __init__(self, rendezvous: Rendezvous, device_type: str) -> None:
        """Meet the other workers; waits until all are there.

        Raises RuntimeError (torch's) when they are not there in time.
        """
        import torch.distributed as dist

        self.rank = rendezvous.rank
        self.world_size = rendezvous.world_size
        self.backend = "nccl" if device_type == "cuda" else "gloo"
        self._dist: Any = dist
        dist.init_process_group(
            self.backend,
            init_method=f"file://{rendezvous.file}",
            rank=self.rank,
            world_size=self.world_size,
            timeout=_TIMEOUT,
        )
        # Commands are agreed on between the hosts, beside the devices' work.
        self._control = dist.new_group(backend="gloo", timeout=_TIMEOUT)
        self._pending: str | None = None

    def wrap(self, model: Any, device: Any) -> Any:
        """Return the model wrapped so that its backward pass averages the gradients."""
        from torch.nn.parallel import DistributedDataParallel

        ids = [device.index or 0] if device.type == "cuda" else None
        return DistributedDataParallel(model, device_ids=ids)

    def agree(self, command: str | None) -> str | None:
        """Return the command that all workers have by now, or None; called once a step by all."""
        import torch

        self._pending = command or self._pending
        has = torch.tensor([0 if self._pending is None else 1])
        self._dist.all_reduce(has, op=self._dist.ReduceOp.MIN, group=self._control)
        if not has.item():
            return None
        agreed, self._pending = self._pending, None
        return agreed

    def description(self) -> dict[str, object]:
        """What a record says of it."""
        return {"rank": self.rank, "world_size": self.world_size, "backend": self.backend}

    def leave(self) -> None:
        """Take leave of the others, when all are done."""
        self._dist.destroy_process_group()
