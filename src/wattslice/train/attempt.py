"""What becomes of a run: what its workers said, as records and rows, and the outcome."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from wattslice.config.models import MeasureConfig
from wattslice.measure.meters import Meters
from wattslice.records.base import Quantity
from wattslice.records.board import Health, LayoutState
from wattslice.records.run import (
    ActivityReading,
    AliasingCheck,
    MemoryPeak,
    Warmup,
    Window,
    WorkerRecord,
)
from wattslice.train.batch_trials import Searches
from wattslice.train.group import WorkerGroup


@dataclass
class Attempt:
    """What is known so far about the run in flight."""

    layout_state: LayoutState | None = None
    health_before: dict[str, Health] = field(default_factory=dict)  # by board
    health_after: dict[str, Health] = field(default_factory=dict)
    workers: list[WorkerRecord] = field(default_factory=list)
    rows: dict[str, list[Any]] = field(default_factory=dict)
    torch: dict[str, Any] = field(default_factory=dict)
    window: Window | None = None
    window_from_s: float | None = None  # last loss of a worker inside the window
    activities: tuple[ActivityReading, ...] = ()
    foreign: dict[int, Quantity] = field(default_factory=dict)  # by slice index
    memory_used: dict[int, float | None] = field(default_factory=dict)  # by slice index, MiB
    aliasing: AliasingCheck | None = None
    searches: Searches = field(default_factory=dict)
    lost: bool = False
    outcome: str = "ok"
    reason: str | None = None

    def fail(self, outcome: str, reason: str) -> None:
        self.outcome, self.reason = outcome, reason


def account_for_losses(group: WorkerGroup, measure: MeasureConfig, attempt: Attempt) -> None:
    """The outcome of a run that some workers did not live to see; all losses are named."""
    if not group.losses:
        return
    attempt.lost = True
    losses = "; ".join(str(loss) for loss in group.losses)
    left = len(group.survivors)
    if left == 0 or attempt.outcome != "ok":
        attempt.reason = losses if left == 0 else attempt.reason
        return
    whose = f"{left} of {len(group.workers)} workers came through"
    if measure.allow_partial:
        attempt.reason = f"counts without a worker ({losses}); {whose}"
    else:
        attempt.fail(group.losses[0].outcome, f"{losses}; {whose}, their data are kept")


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _loss_ends(losses: Sequence[float | None]) -> tuple[float | None, float | None]:
    """Mean loss of the first steps (a quarter, 10 at most) and of the last quarter."""
    if not losses or any(loss is None for loss in losses):
        return None, None
    values = [loss for loss in losses if loss is not None]
    quarter = max(1, len(values) // 4)
    return _mean(values[: min(quarter, 10)]), _mean(values[-quarter:])


def collect(group: WorkerGroup, attempt: Attempt) -> None:
    """Turn what the workers said into records, rows of steps and the common window."""
    assert attempt.layout_state is not None
    columns = ("slice_index", "step", "start_s", "end_s", "data_s", "samples", "loss")
    attempt.rows = {name: [] for name in columns}
    for worker in group.workers:
        job, said = worker.job, worker.said
        ready, result = said.get("ready", {}), said.get("done", {}).get("result", {})
        attempt.torch = ready.get("torch", attempt.torch)
        failed = said.get("failed")
        losses = result.get("loss", [])
        first, last = _loss_ends(losses)
        ended_alone = "done" not in said and failed is None
        attempt.workers.append(
            WorkerRecord(
                slice=attempt.layout_state.slices[job.slice_index],
                workload=job.workload,
                outcome=failed["outcome"] if failed else attempt.outcome if ended_alone else "ok",
                reason=failed["reason"] if failed else attempt.reason if ended_alone else None,
                pid=worker.process.pid,
                **{
                    "device": job.device,
                    "batch_size": job.definition["batch_size"],
                    **ready.get("facts", {}),
                },
                batch_search=attempt.searches.get(job.slice_index),
                foreign_cpu_share=attempt.foreign.get(
                    job.slice_index, Quantity.missing("the run did not hold its window to the end")
                ),
                warmup=Warmup.model_validate(result["warmup"]) if result else None,
                steps=len(losses),
                window_start_s=result.get("window_start_s"),
                window_end_s=result.get("window_end_s"),
                loss_first=first,
                loss_last=last,
                memory=MemoryPeak(
                    **result["memory"], device_used_mib=attempt.memory_used.get(job.slice_index)
                )
                if result
                else None,
            )
        )
        for step, loss in enumerate(losses):
            row = (job.slice_index, step, result["start_s"][step], result["end_s"][step])
            more = (result["data_s"][step], int(job.definition["batch_size"]), loss)
            for name, value in zip(columns, (*row, *more), strict=True):
                attempt.rows[name].append(value)
    starts = [w.window_start_s for w in attempt.workers if w.window_start_s is not None]
    ends = [w.window_end_s for w in attempt.workers if w.window_end_s is not None]
    if attempt.window_from_s is not None:
        starts.append(attempt.window_from_s)
    if ends and len(ends) == len(group.survivors) and max(starts) < min(ends):
        attempt.window = Window(start_s=max(starts), end_s=min(ends))


def write_steps(path: Path, rows: dict[str, list[Any]]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    from wattslice.files import replacing

    types = {"slice_index": pa.int32(), "step": pa.int32(), "samples": pa.int32()}
    names = ("slice_index", "step", "start_s", "end_s", "data_s", "samples", "loss")
    arrays = {n: pa.array(rows.get(n, []), type=types.get(n, pa.float64())) for n in names}
    with replacing(path) as temporary:
        pq.write_table(pa.table(arrays), temporary, compression="zstd")


def judge(attempt: Attempt, meters: Meters) -> None:
    """The outcome of a run by those workers that came through."""
    if attempt.outcome != "ok":
        return
    for index, worker in enumerate(attempt.workers):
        if worker.outcome != "ok":
            continue
        reason = _divergence(worker)
        if reason is not None:
            changed = worker.model_copy(update={"outcome": "diverged", "reason": reason})
            attempt.workers[index] = changed
            attempt.fail("diverged", f"slice {worker.slice.index}: {reason}")
    if attempt.outcome == "ok" and attempt.window is None:
        attempt.fail("error:no-overlap", "the workers' windows do not overlap")
    if attempt.outcome == "ok" and meters.reason is not None:
        partial = f"; {attempt.reason}" if attempt.lost else ""
        attempt.fail("energy_unavailable", f"{meters.reason}{partial}")


def _divergence(worker: WorkerRecord) -> str | None:
    first, last = worker.loss_first, worker.loss_last
    if first is None or last is None:
        return "the loss is not finite"
    if worker.data is not None and worker.data.real and last >= first:
        return f"the loss did not fall: {first:.4g} at the start, {last:.4g} at the end"
    return None
