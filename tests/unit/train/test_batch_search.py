"""The largest batch that fits: the sizes that are tried, and processes that run out of memory."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unit.train.test_launcher_partial import ENCODERS, execute, mixed_run
from wattslice.config.models import BatchSearchConfig
from wattslice.records.board import SliceState
from wattslice.records.run import BatchSearch, BatchTry
from wattslice.train.batch_search import Bounds, find_largest, with_headroom
from wattslice.train.batch_trials import find_batch_sizes
from wattslice.train.group import WorkerFailedError
from wattslice.train.protocol import Jobs, WorkerJob


def _search(threshold: int, bounds: Bounds, tries: int = 10**6) -> BatchSearch:
    made: list[int] = []

    def fits(size: int) -> BatchTry:
        made.append(size)
        return BatchTry(batch_size=size, outcome="ok" if size <= threshold else "oom")

    found = find_largest(bounds, fits, lambda: len(made) >= tries)
    assert [one.batch_size for one in found.tries] == made
    return found


@given(
    threshold=st.integers(0, 5000),
    low=st.integers(1, 64),
    high=st.integers(64, 4096),
    unit=st.sampled_from([1, 2, 3, 8]),
)
def test_the_exact_largest_batch_is_found(threshold: int, low: int, high: int, unit: int) -> None:
    definition = {"gradient_accumulation_steps": unit}
    bounds = Bounds.of(definition, BatchSearchConfig(min=low, max=high))
    allowed = range(bounds.low, bounds.high + 1, unit)
    assert bounds.low - low < unit
    found = _search(threshold, bounds)
    fitting = [size for size in allowed if size <= threshold]
    assert found.largest == (fitting[-1] if fitting else None)
    assert found.used == (found.largest or bounds.low)
    assert found.limited_by == (
        "nothing fits" if not fitting else "max" if fitting[-1] == allowed[-1] else "memory"
    )
    sizes = [one.batch_size for one in found.tries]
    assert len(set(sizes)) == len(sizes) <= 2 * len(allowed).bit_length() + 2
    assert set(sizes) <= set(allowed)


def test_when_time_is_up_the_largest_so_far_is_taken() -> None:
    found = _search(100, Bounds(1, 4096, 1), tries=4)
    assert (found.used, found.limited_by) == (8, "time")


def test_headroom_is_left_where_memory_is_the_limit_and_only_there() -> None:
    limited = with_headroom(_search(1565, Bounds(8, 4096, 8)), 0.02)
    assert (limited.largest, limited.used) == (1560, 1528)
    for threshold in (5000, 0):  # nothing but the config limits it; nothing fits
        search = _search(threshold, Bounds(8, 4096, 8))
        assert with_headroom(search, 0.02) == search
    assert with_headroom(_search(9, Bounds(8, 4096, 8)), 0.5).used == 8


# A worker that needs no torch: a size above 5 runs out of memory in one of several ways.
STUB = """
import json, os, signal, sys
job = json.loads(sys.stdin.readline())
size, out = job["definition"]["batch_size"], int(os.environ["WATTSLICE_WORKER_FD"])
assert job["trial_steps"] == 2
say = lambda **message: os.write(out, json.dumps(message).encode() + b"\\n")
open(os.environ["TRIED"], "a").write(f"{job['slice_index']}:{size} ")
if size > 5 and job["workload"] == "killed":
    os.kill(os.getpid(), signal.SIGKILL)
if size > 5 and job["slice_index"] == 1:
    say(message="failed", outcome="oom", reason="OutOfMemoryError: CUDA out of memory")
elif size > 5 and job["workload"] == "broken":
    say(message="failed", outcome="error:value-error", reason="ValueError: no")
else:
    say(message="ready")
    say(message="done", result=None)
"""


def _stubs(folder: Path, workload: str, slices: int) -> tuple[Jobs, list[SliceState]]:
    (folder / "wattslice" / "train").mkdir(parents=True)
    for package in ("wattslice", "wattslice/train"):
        (folder / package / "__init__.py").touch()
    (folder / "wattslice" / "train" / "worker.py").write_text(STUB)
    env = {"PYTHONPATH": str(folder), "TRIED": str(folder / "tried")}
    fields: dict[str, Any] = {"precision": "fp32", "seed": 1, "device": "cpu", "threads": 1}
    fields |= {"device_uuid": None, "cores": (), "simulated_slice": None, "warmup": {}}
    fields |= {"min_steps": 1, "parent_pid": os.getpid(), "workload": workload}
    search = {"steps": 2, "max": 64, "headroom": 0.0}
    definition = {"batch_size": "auto", "batch_search": search}
    jobs = [(WorkerJob(slice_index=i, definition=definition, **fields), env) for i in range(slices)]
    return jobs, [SliceState(index=i, name="1g", profile="1g.10gb") for i in range(slices)]


def test_workers_on_equal_slices_try_together_and_get_one_size(tmp_path: Path) -> None:
    jobs, slices = _stubs(tmp_path, "any", 2)
    found, searches = find_batch_sizes(jobs, slices, 30.0, parallel=False)
    assert [job.definition["batch_size"] for job, _ in found] == [5, 5]
    assert searches[0] is searches[1]
    assert [(t.batch_size, t.outcome) for t in searches[0].tries] == [
        (1, "ok"),
        (2, "ok"),
        (4, "ok"),
        (8, "oom"),
        (6, "oom"),
        (5, "ok"),
    ]
    assert searches[0].tries[3].reason == "OutOfMemoryError: CUDA out of memory"
    assert {"0:5", "1:5"} <= set((tmp_path / "tried").read_text().split())


def test_the_kernel_that_kills_for_memory_is_an_answer_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counter = tmp_path / "vmstat"
    counter.write_text("pgfault 1\noom_kill 3\n")
    monkeypatch.setattr("wattslice.train.group._OOM_COUNTERS", (tmp_path / "none", counter))
    jobs, slices = _stubs(tmp_path, "killed", 1)
    # Nobody says that it was for memory: the run fails, rather than take too small a batch.
    with pytest.raises(WorkerFailedError, match="killed with SIGKILL"):
        find_batch_sizes(jobs, slices, 30.0, parallel=False)
    counts = iter(range(4, 99))
    monkeypatch.setattr("wattslice.train.group._oom_kills", lambda: next(counts))
    _, searches = find_batch_sizes(jobs, slices, 30.0, parallel=False)
    assert searches[0].used == 5
    assert searches[0].tries[3].reason == "the kernel killed it for want of memory"


def test_another_failure_ends_the_search(tmp_path: Path) -> None:
    jobs, slices = _stubs(tmp_path, "broken", 1)
    with pytest.raises(WorkerFailedError, match="error:value-error"):
        find_batch_sizes(jobs, slices, 30.0, parallel=False)


def test_a_run_finds_its_batch_and_trains_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WATTSLICE_LEASE_DIR", str(tmp_path / "leases"))
    monkeypatch.setenv("PYTHONPATH", "src")
    search = {"min": 3, "max": 3, "steps": 1}
    workloads = {"albert": {**ENCODERS["albert"], "batch_size": "auto", "batch_search": search}}
    run = mixed_run(
        workloads=workloads,
        mixes={},
        experiments__0__layouts=["full"],
        experiments__0__workloads=["albert"],
        experiments__0__placements=["solo"],
    )
    assert run.run_id == "full/albert.solo/fp32/rep1"
    assert run.spec.assignments[0].definition["batch_size"] == "auto"
    record = execute(run, tmp_path)
    assert record.outcome == "ok", record.reason
    (worker,) = record.workers
    assert worker.batch_size == 3
    assert worker.batch_search is not None
    assert [(t.batch_size, t.outcome) for t in worker.batch_search.tries] == [(3, "ok")]
    assert worker.batch_search.limited_by == "max"
    assert record.spec["assignments"][0]["definition"]["batch_size"] == "auto"  # type: ignore[index]
