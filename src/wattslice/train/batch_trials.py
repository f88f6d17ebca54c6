"""Trying batch sizes for real: each size in fresh processes on the slices of the run.

A process that runs out of memory may leave its device's context, its allocator or itself in any
state, and the kernel may kill it. So no try shares a process with another, or with the run.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from wattslice.config.models import BatchSearchConfig
from wattslice.files import canonical_json
from wattslice.records.board import SliceState
from wattslice.records.run import BatchSearch, BatchTry
from wattslice.train import ddp
from wattslice.train.batch_search import Bounds, find_largest, with_headroom
from wattslice.train.group import WorkerFailedError, WorkerGroup
from wattslice.train.protocol import Jobs, WorkerJob

Searches = dict[int, BatchSearch]  # by index of the slice


def find_batch_sizes(
    jobs: Jobs, slices: Sequence[SliceState], timeout_s: float, *, parallel: bool
) -> tuple[Jobs, Searches]:
    """The jobs with a number in place of `batch_size: auto`, and how each was found.

    Workers with the same workload on the same kind of slice get the same size, which is tried by
    all of them at once, as in the run; `parallel`: as one data-parallel job. A try takes
    `timeout_s` at most. Raises WorkerFailedError where a try fails for another reason than memory.
    """
    groups: dict[str, list[int]] = {}
    for place, (job, _) in enumerate(jobs):
        if job.definition["batch_size"] == "auto":
            key = canonical_json([slices[job.slice_index].profile, job.definition])
            groups.setdefault(key, []).append(place)
    found, searches = list(jobs), Searches()
    for places in groups.values():
        search = _search([jobs[place] for place in places], timeout_s, parallel=parallel)
        for place in places:
            job, env = jobs[place]
            found[place] = (_with_size(job, search.used), env)
            searches[job.slice_index] = search
    return found, searches


def _search(jobs: Jobs, timeout_s: float, *, parallel: bool) -> BatchSearch:
    definition = jobs[0][0].definition
    config = BatchSearchConfig.model_validate(definition.get("batch_search") or {})
    deadline = time.monotonic() + config.max_s

    def fits(size: int) -> BatchTry:
        trials = [
            (_with_size(job, size).model_copy(update={"trial_steps": config.steps}), env)
            for job, env in jobs
        ]
        return _try(trials, size, timeout_s, parallel=parallel)

    found = find_largest(Bounds.of(definition, config), fits, lambda: time.monotonic() >= deadline)
    return with_headroom(found, config.headroom)


def _with_size(job: WorkerJob, size: int) -> WorkerJob:
    return job.model_copy(update={"definition": {**job.definition, "batch_size": size}})


def _try(jobs: Jobs, size: int, timeout_s: float, *, parallel: bool) -> BatchTry:
    with tempfile.TemporaryDirectory(prefix="wattslice-batch-") as folder:
        if parallel:
            jobs = ddp.joined(jobs, Path(folder) / "rendezvous")
        group = WorkerGroup(jobs)
        try:
            failure = _failure(group, timeout_s)
        finally:
            group.close()
    if failure is None:
        return BatchTry(batch_size=size, outcome="ok")
    if failure.outcome != "oom":
        raise failure
    return BatchTry(batch_size=size, outcome="oom", reason=failure.reason)


def _failure(group: WorkerGroup, timeout_s: float) -> WorkerFailedError | None:
    """The first worker that was lost, or None once all have done their steps."""
    deadline = time.monotonic() + timeout_s
    while not group.losses and not group.all_said("done"):
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            why = f"no end within {timeout_s:g} s (trying a batch size)"
            return WorkerFailedError(group.survivors[0].job.slice_index, "error:timeout", why)
        try:
            group.listen(left_s)
        except WorkerFailedError as failure:
            return failure
    return group.losses[0] if group.losses else None
