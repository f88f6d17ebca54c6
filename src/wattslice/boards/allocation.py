"""A board as a scheduler's job has it: which of its slices are the job's own, and who has the rest.

A job of a cluster gets a device, not a board. So the device is resolved from the environment and
checked; a run is placed on the slices that the job was given; and where others may be on the same
board its energy is not claimed, because a board has one meter for all its slices.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from wattslice.boards.activity import ActivitySource
from wattslice.boards.base import Board, PowerSource, WorkerPlacement
from wattslice.boards.errors import BoardError, BoardNotFoundError
from wattslice.config.layout import Layout
from wattslice.records.base import Quantity
from wattslice.records.board import (
    BoardIdentity,
    Capabilities,
    EnergyCapability,
    Health,
    LayoutPlan,
    LayoutState,
    SliceState,
    Snapshot,
)

if TYPE_CHECKING:
    from wattslice.boards.nvidia.resolve import Present

_JOB = "SLURM_JOB_ID"
_STEP_DEVICES = "SLURM_STEP_GPUS"
_ASK_TIMEOUT_S = 15.0


class AllocationError(BoardError):
    """The job's device is not what the run needs; the message says what to ask SLURM for."""


@dataclass(frozen=True, slots=True)
class Allocation:
    """The part of one board that a job may use."""

    job_id: str
    board_uuid: str
    slices: frozenset[str]  # UUIDs of the job's slices; empty: the whole board
    siblings: tuple[str, ...]  # UUIDs of slices on the board that are not the job's
    exclusive: bool  # the job has its node for itself

    @property
    def whole(self) -> bool:
        return not self.slices


def in_job(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether this process is part of a SLURM job."""
    return _JOB in environ


def read_allocation(
    environ: Mapping[str, str] = os.environ,
    node_is_ours: Callable[[str], bool] | None = None,
) -> Allocation:
    """The allocation of this process's job, from its environment and what NVML shows.

    Raises AllocationError where the job has no device, devices of several boards, or uses one
    that SLURM did not give to it.
    """
    found = read_allocations(environ, node_is_ours)
    if len(found) > 1:
        listed = ", ".join(allocation.board_uuid for allocation in found)
        raise AllocationError(
            f"SLURM job {found[0].job_id} has devices of {len(found)} boards ({listed}); energy is "
            "of one board, so ask for slices of one (see docs/slurm.md, whole boards)"
        )
    return found[0]


def read_allocations(
    environ: Mapping[str, str] = os.environ,
    node_is_ours: Callable[[str], bool] | None = None,
) -> tuple[Allocation, ...]:
    """As `read_allocation`, for each board of which the job has devices; at least one."""
    from wattslice.boards.nvidia import resolve

    job = environ[_JOB]
    exclusive = (node_is_ours or _node_is_ours)(job)
    present = resolve.read_present()
    found = resolve.resolve(environ, present)
    if not found.devices:
        raise AllocationError(
            f"SLURM job {job} was given no GPU ({found.variable}="
            f"{environ.get(found.variable or '')!r}); ask for one with the resource `gres`"
        )
    if found.variable is None and not exclusive:
        raise AllocationError(
            f"SLURM job {job} was given no GPU (no variable names one) and does not have its node "
            "for itself; ask for one with the resource `gres`, or for the node with --exclusive"
        )
    slices = frozenset(d.instance.uuid for d in found.devices if d.instance is not None)
    if not slices and (strangers := resolve.against_allocation(environ, present)):
        # SLURM numbers slices and boards alike, so this tells something of whole boards only.
        raise AllocationError(f"SLURM job {job}: {'; '.join(strangers)}")
    given = environ.get(_STEP_DEVICES, "")
    if slices and given and len(given.split(",")) < len(slices):
        raise AllocationError(
            f"SLURM job {job} uses {len(slices)} slices ({', '.join(sorted(slices))}) and was "
            f"given {len(given.split(','))} ({_STEP_DEVICES}={given})"
        )
    return tuple(_of_board(job, board, slices, exclusive) for board in found.boards)


def _of_board(job: str, board: Present, slices: frozenset[str], exclusive: bool) -> Allocation:
    own = slices & {instance.uuid for instance in board.instances}
    return Allocation(
        job_id=job,
        board_uuid=board.uuid,
        slices=own,
        siblings=tuple(i.uuid for i in board.instances if i.uuid not in own) if own else (),
        exclusive=exclusive,
    )


def _node_is_ours(job: str) -> bool:
    """Whether SLURM keeps other jobs off the node; False where that cannot be asked."""
    try:
        done = subprocess.run(
            ["scontrol", "show", "job", "-o", job],
            capture_output=True,
            text=True,
            timeout=_ASK_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return says_exclusive(done.stdout)


def says_exclusive(shown: str) -> bool:
    """What `scontrol show job -o` says of the node: `OverSubscribe=NO` is --exclusive."""
    return "OverSubscribe=NO" in shown.split()


def allocated(
    boards: Sequence[Board], allocation: Allocation, hidden: Callable[[Board], bool] | None = None
) -> Board:
    """The board of the allocation, with what the allocation means for it."""
    for board in boards:
        if board.identity.uuid == allocation.board_uuid:
            return AllocatedBoard(board, allocation, (hidden or _hides_slices)(board))
    listed = "; ".join(board.identity.uuid for board in boards) or "none"
    raise BoardNotFoundError(
        f"the board {allocation.board_uuid} of SLURM job {allocation.job_id} is not among those "
        f"that NVML lists: {listed}"
    )


def _hides_slices(board: Board) -> bool:
    """Whether the board has slices that this process cannot see (a device cgroup hides them).

    The driver says how many more of the smallest slice would fit. Fewer than what is free beside
    the visible ones means that somebody else's are there. Where it does not say, it may be so.
    """
    from wattslice.boards.nvidia import nvml
    from wattslice.boards.nvidia.board import NvidiaBoard
    from wattslice.boards.nvidia.nvml_errors import NvmlError

    if not isinstance(board, NvidiaBoard):
        return False
    reading = board.reading()
    if not reading.mig_on:
        return False
    geometry = reading.geometry
    smallest = min(geometry.profiles, key=lambda p: (p.memory_slices, p.compute_slices))
    profiles = [instance.profile for instance in reading.instances]
    if any(profile is None for profile in profiles):
        return True
    free = min(
        geometry.compute_slices - sum(p.compute_slices for p in profiles if p is not None),
        geometry.axis - sum(p.memory_slices for p in profiles if p is not None),
    )
    if free <= 0:
        return False
    try:
        nvml.ensure_open()
        device = nvml.device_by_uuid(board.identity.uuid)
        return nvml.remaining_capacity(device, smallest.profile_id) < free
    except NvmlError:
        return True


def without_allocation(board: Board) -> Board:
    """The board itself, where this is a job's part of it."""
    return board.itself if isinstance(board, AllocatedBoard) else board


class AllocatedBoard:
    """A board of which a SLURM job has a part, or all."""

    def __init__(self, board: Board, allocation: Allocation, hides_slices: bool = False) -> None:
        self._board = board
        self._allocation = allocation
        self._hides_slices = hides_slices

    @property
    def itself(self) -> Board:
        return self._board

    @property
    def allocation(self) -> Allocation:
        return self._allocation

    @property
    def identity(self) -> BoardIdentity:
        return self._board.identity

    def shared(self) -> str | None:
        """Why the board's energy is not this job's own; None where the job has the board."""
        own = self._allocation
        if own.exclusive:
            return None
        if own.siblings:
            rest = f"{len(own.siblings)} of its slices are not the job's"
            tenants = self._tenants()
            now = f", now with {', '.join(tenants)}" if tenants else ", now empty"
        elif self._hides_slices:
            rest, now = "it may have slices that the job cannot see", ""
        else:
            return None
        return (
            f"shared board: SLURM job {own.job_id} has {len(own.slices)} slice(s) of "
            f"{self.identity.uuid}, and {rest}{now}; the board's meter counts them all"
        )

    def capabilities(self) -> Capabilities:
        found = self._board.capabilities()
        reason = self.shared()
        if reason is None:
            return found
        none = EnergyCapability(scope=None, method=None, reason=reason)
        return found.model_copy(update={"energy": none})

    def plan(self, layout: Layout) -> LayoutPlan:
        return self._board.plan(layout)

    def slices(self) -> tuple[SliceState, ...]:
        return self._own_first(self._board.slices())

    def ensure(self, layout: Layout) -> LayoutState:
        state = self._board.ensure(layout)
        return state.model_copy(update={"slices": self._own_first(state.slices)})

    def _own_first(self, slices: Sequence[SliceState]) -> tuple[SliceState, ...]:
        """Equal slices in another order: the job's come first, so that its runs are put there."""
        places: dict[str, list[int]] = defaultdict(list)
        equal: dict[str, list[SliceState]] = defaultdict(list)
        for slice_ in slices:
            places[slice_.name].append(slice_.index)
            equal[slice_.name].append(slice_)
        ordered: list[SliceState] = []
        for name, found in equal.items():
            found.sort(key=lambda s: s.uuid not in self._allocation.slices)
            ordered += [
                slice_.model_copy(update={"index": index})
                for index, slice_ in zip(places[name], found, strict=True)
            ]
        return tuple(sorted(ordered, key=lambda s: s.index))

    def placement(self, slice_: SliceState) -> WorkerPlacement:
        """See Board.placement. Raises AllocationError for a slice that is not the job's."""
        own = self._allocation
        # A layout that this job made itself has slices that SLURM knows nothing of.
        made_here = own.exclusive and self._policy() == "managed"
        if not (own.whole or made_here or slice_.uuid in own.slices):
            raise AllocationError(
                f"the run needs slice {slice_.index} ({slice_.profile}, {slice_.uuid}), and SLURM "
                f"job {own.job_id} has {', '.join(sorted(own.slices))}; let the profile ask for "
                "as many slices of that kind as the run uses"
            )
        return self._board.placement(slice_)

    def _policy(self) -> str | None:
        return getattr(self._board, "mig_policy", None)

    def snapshot(self) -> Snapshot:
        return self._board.snapshot()

    def restore(self, snapshot: Snapshot) -> None:
        self._board.restore(snapshot)

    def power_source(self) -> PowerSource | None:
        """None on a shared board: `capabilities().energy.reason` names it."""
        return None if self.shared() else self._board.power_source()

    def activity_source(self, slices: Sequence[SliceState]) -> ActivitySource:
        return self._board.activity_source(slices)

    def health(self) -> Health:
        """On a shared board tenants of other slices are expected; `shared` names them."""
        found = self._board.health()
        if not self._allocation.siblings or self.shared() is None:
            return found
        elsewhere = set(self._tenants())
        mine = tuple(name for name in found.foreign_processes if name not in elsewhere)
        return found.model_copy(update={"foreign_processes": mine})

    def memory_used(self, slice_: SliceState) -> Quantity:
        return self._board.memory_used(slice_)

    @contextlib.contextmanager
    def lease(self, timeout_s: float | None = None) -> Iterator[None]:
        """See Board.lease. A managed board is put back before the job gives it to the next one."""
        with self._board.lease(timeout_s):
            if self._policy() != "managed":
                yield
                return
            before = self._board.snapshot()
            try:
                yield
            finally:
                self._board.restore(before)

    def _tenants(self) -> tuple[str, ...]:
        """Processes on the slices that are not the job's: 'pid name'."""
        from wattslice.boards.nvidia import holders, nvml
        from wattslice.boards.nvidia.nvml_errors import NvmlError

        siblings = set(self._allocation.siblings)
        pids: set[int] = set()
        try:
            nvml.ensure_open()
            device = nvml.device_by_uuid(self.identity.uuid)
            for handle in nvml.mig_devices(device):
                if nvml.uuid(handle) in siblings:
                    pids.update(nvml.processes(handle))
        except NvmlError:
            pass  # then nobody is named; that the board is shared does not depend on it
        return tuple(f"{pid} {holders.process_name(pid)}" for pid in sorted(pids))
