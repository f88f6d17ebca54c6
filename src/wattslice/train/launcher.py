"""One run: lease the board, make the layout hold, start workers and meter, write the record.

    python -m wattslice.train --spec JSON --code DIGEST --campaign NAME --run ID --record FILE

What goes wrong with the training itself is data: the record's outcome says it and the exit code
is 0. A worker that fails, dies or runs out of memory does not stop the others: each has its own
outcome, and the window is that of the survivors. If one is lost inside the window, the window
starts again without it, so that the work and the energy in it are of the same set of workers. The
run's outcome stays that of the first loss, unless the campaign has `measure.allow_partial`.

Only faults of the infrastructure (board lost or held by another, no permission, disk) make the
command fail, so that Snakemake repeats the run.
"""

from __future__ import annotations

import argparse
import math
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from wattslice.boards import sharing
from wattslice.boards.activity import ActivitySource
from wattslice.boards.base import Board
from wattslice.boards.discover import board_of
from wattslice.boards.errors import BoardError, LayoutImpossibleError
from wattslice.boards.several import common_health, members
from wattslice.config.layout import Layout
from wattslice.config.models import BoardConfig, MeasureConfig
from wattslice.config.spec import RunSpec
from wattslice.files import sha256_file, write_json
from wattslice.measure.host import HostLoad, host_workers
from wattslice.measure.meters import Meters
from wattslice.measure.raw import write_power, write_powers
from wattslice.measure.steady import WarmupDetector, cool_down
from wattslice.measure.window import check_window
from wattslice.provenance import environment as environments
from wattslice.records.base import Quantity
from wattslice.records.board import Health, LayoutState
from wattslice.records.run import (
    ActivityReading,
    AliasingCheck,
    BoardMeasurement,
    MemoryPeak,
    RawFile,
    RunRecord,
    Warmup,
    Window,
    WorkerRecord,
)
from wattslice.train import ddp, progress
from wattslice.train.batch_trials import Searches, find_batch_sizes
from wattslice.train.group import WorkerFailedError, WorkerGroup
from wattslice.train.lifetime import die_with_parent
from wattslice.train.protocol import Jobs, WorkerJob

_LISTEN_S = 0.5
_EXIT_INFRASTRUCTURE = 3


class _Terminated(BaseException):
    """SIGTERM, or the death of the parent: leave through all `finally` clauses."""


@dataclass
class _Attempt:
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


@dataclass(frozen=True, slots=True)
class _Beside:
    """What the launcher reads at the two ends of the window, beside the meter."""

    activity: ActivitySource
    host: HostLoad

    def begin(self) -> None:
        self.activity.begin()
        self.host.begin()

    def end(self) -> None:
        self.host.end()
        self.activity.end()


def execute(spec: RunSpec, code_digest: str, out: Path, campaign: str, run_id: str) -> RunRecord:
    """Make one run and write its record (last, so that a record is always complete).

    Raises BoardError for faults of the infrastructure; then nothing is written.
    """
    started_utc, start_s = _utc(), time.monotonic()
    measure = MeasureConfig.model_validate(spec.measure)
    layout = Layout.parse(spec.layout)
    board = board_of(BoardConfig.model_validate(spec.board), layout.boards)
    out.mkdir(parents=True, exist_ok=True)
    attempt = _Attempt()
    meters = Meters.of(board, measure.sample_hz)
    with board.lease():
        try:
            state = board.ensure(layout)
            if spec.sharing is not None:
                state = sharing.divided(state, len(spec.assignments))
            attempt.layout_state = state
            if spec.parallel == "ddp":
                ddp.check(state.slices)
        except (LayoutImpossibleError, sharing.SharingUnavailableError, ddp.RefusedError) as error:
            attempt.fail("unsupported_layout", str(error))
        else:
            _measure(spec, measure, board, meters, attempt)
    _write_power(out / "power.parquet", meters)
    _write_steps(out / "steps.parquet", attempt.rows)
    _judge(attempt, meters)
    environment = {**environments.environment(), "torch": attempt.torch}
    record = RunRecord(
        run_id=run_id,
        campaign=campaign,
        outcome=attempt.outcome,
        reason=attempt.reason,
        simulated=board.identity.simulated,
        spec=spec.model_dump(mode="json"),
        spec_digest=spec.digest(),
        code_digest=code_digest,
        git=environments.git(Path(__file__).parent),
        environment=environment,
        environment_digest=environments.digest(environment),
        container=environments.container(),
        host=environments.host(),
        slurm=environments.slurm(),
        attempt=int(os.environ.get("WATTSLICE_ATTEMPT", "1")),
        started_utc=started_utc,
        ended_utc=_utc(),
        start_s=start_s,
        end_s=time.monotonic(),
        board=board.identity,
        layout_state=attempt.layout_state,
        health_before=_common(attempt.health_before),
        health_after=_common(attempt.health_after),
        window=attempt.window,
        workers=tuple(attempt.workers),
        meter=meters.record(),
        boards=_boards(board, meters, attempt),
        aliasing=attempt.aliasing,
        activities=attempt.activities,
        raw=tuple(
            RawFile(name=name, sha256=sha256_file(out / name), bytes=(out / name).stat().st_size)
            for name in ("power.parquet", "steps.parquet")
        ),
    )
    write_json(out / "run.json", record.model_dump(mode="json"))
    return record


def _healths(board: Board) -> dict[str, Health]:
    return {one.identity.uuid: one.health() for one in members(board)}


def _common(healths: dict[str, Health]) -> Health | None:
    found = list(healths.values())
    return common_health(found) if len(found) > 1 else next(iter(found), None)


def _boards(board: Board, meters: Meters, attempt: _Attempt) -> tuple[BoardMeasurement, ...]:
    """Each board of a run on several; empty for one."""
    found = members(board)
    if len(found) == 1:
        return ()
    return tuple(
        BoardMeasurement(
            identity=one.identity,
            health_before=attempt.health_before.get(one.identity.uuid),
            health_after=attempt.health_after.get(one.identity.uuid),
            meter=meters.by_board[one.identity.uuid].record(),
        )
        for one in found
    )


def _write_power(path: Path, meters: Meters) -> None:
    boards = meters.samples()
    if len(boards) == 1:
        write_power(path, next(iter(boards.values())), meters.record())
    else:
        write_powers(path, boards, meters.record())


def _utc() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def _jobs(spec: RunSpec, measure: MeasureConfig, board: Board, state: LayoutState) -> Jobs:
    jobs = []
    for assignment in spec.assignments:
        slice_ = state.slices[assignment.slice_index]
        placement = board.placement(slice_)
        job = WorkerJob(
            slice_index=assignment.slice_index,
            definition=assignment.definition,
            workload=assignment.workload,
            precision=spec.precision,
            seed=spec.seed + assignment.slice_index,
            device=placement.device,
            device_uuid=slice_.uuid,
            cores=placement.cores,
            threads=placement.threads,
            simulated_slice=placement.simulated_slice,
            warmup=measure.warmup.model_dump(mode="json"),
            min_steps=measure.window.min_steps,
            parent_pid=os.getpid(),
        )
        jobs.append((job, dict(placement.env)))
    return jobs


def _measure(
    spec: RunSpec, measure: MeasureConfig, board: Board, meters: Meters, attempt: _Attempt
) -> None:
    """Find the batch sizes that are to be found, let the board cool down, and train."""
    assert attempt.layout_state is not None
    jobs = _jobs(spec, measure, board, attempt.layout_state)
    try:
        jobs, attempt.searches = find_batch_sizes(
            jobs,
            attempt.layout_state.slices,
            measure.start_timeout_s,
            parallel=spec.parallel == "ddp",
        )
    except WorkerFailedError as failure:
        attempt.fail(failure.outcome, str(failure))
        return
    cool_down(lambda: board.health().temperature_c.value, measure.cooldown)
    attempt.health_before = _healths(board)
    _train(jobs, spec, measure, board, meters, attempt)
    attempt.health_after = _healths(board)


def _train(  # noqa: PLR0917  (the order in which a run comes by them)
    jobs: Jobs,
    spec: RunSpec,
    measure: MeasureConfig,
    board: Board,
    meters: Meters,
    attempt: _Attempt,
) -> None:
    """Run the workers; under a sharing scheme, with what that needs around them."""
    assert attempt.layout_state is not None
    if spec.parallel == "ddp":
        with tempfile.TemporaryDirectory(prefix="wattslice-ddp-") as folder:
            jobs = ddp.joined(jobs, Path(folder) / "rendezvous")
            _train_workers(jobs, measure, board, meters, attempt)
        return
    if spec.sharing is None:
        _train_workers(jobs, measure, board, meters, attempt)
        return
    try:
        with sharing.shared(spec.sharing, board, attempt.layout_state, len(jobs)) as scheme:
            jobs = [(job, {**env, **e}) for (job, env), e in zip(jobs, scheme.env, strict=True)]
            _train_workers(jobs, measure, board, meters, attempt, scheme=scheme)
    except sharing.SharingUnavailableError as error:
        attempt.fail("unsupported_layout", str(error))


def _train_workers(
    jobs: Jobs,
    measure: MeasureConfig,
    board: Board,
    meters: Meters,
    attempt: _Attempt,
    *,
    scheme: sharing.Shared | None = None,
) -> None:
    assert attempt.layout_state is not None
    slices = attempt.layout_state.slices
    activity = board.activity_source(slices)
    group: WorkerGroup | None = None
    try:
        group = WorkerGroup(jobs)
        meters.start()
        group.wait("ready", measure.start_timeout_s, "building the model")
        group.command("go")
        _warm_up(group, measure, meters)
        if scheme is not None:
            why_not = scheme.check([worker.process.pid for worker in group.survivors])
            if why_not is not None:
                attempt.fail("wrong_device", why_not)
                return
        attempt.aliasing = _check_aliasing(group, measure, meters)
        lost = len(group.losses)
        group.command("window")
        group.wait("opened", measure.start_timeout_s, "opening the window")
        meters.mark("start")
        beside = _Beside(activity, _host_load(group))
        beside.begin()
        _hold_window(group, measure, meters, attempt, beside=beside, lost=lost)
        beside.end()  # before the workers stop: the interval lies inside the window
        attempt.foreign = beside.host.foreign()
        attempt.memory_used = {s.index: board.memory_used(s).value for s in slices}
        group.command("stop")
        group.wait("done", measure.start_timeout_s, "closing the window")
        meters.mark("end")
    except WorkerFailedError as failure:
        attempt.fail(failure.outcome, str(failure))
    finally:
        meters.stop()
        attempt.activities = activity.readings()
        if group is not None:
            _account_for_losses(group, measure, attempt)
            _collect(group, attempt)
            group.close()


def _account_for_losses(group: WorkerGroup, measure: MeasureConfig, attempt: _Attempt) -> None:
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


def _warm_up(group: WorkerGroup, measure: MeasureConfig, meters: Meters) -> None:
    """Until every worker's steps are steady and the board's temperature is (each capped)."""
    start_s = time.monotonic()
    temperatures = WarmupDetector(measure.warmup)
    while True:
        group.listen(_LISTEN_S)
        if (reading := meters.latest_temperature()) is not None:
            temperatures.add_temperature(*reading)
        if not group.all_said("warm"):
            continue
        capped = time.monotonic() - start_s >= measure.warmup.max_s
        if temperatures.temperature_steady() or capped:
            return


def _host_load(group: WorkerGroup) -> HostLoad:
    said = [(worker, worker.said["ready"]["facts"]) for worker in group.survivors]
    return HostLoad(
        host_workers(
            (worker.job.slice_index, worker.process.pid, facts["affinity"])
            for worker, facts in said
        )
    )


def _check_aliasing(group: WorkerGroup, measure: MeasureConfig, meters: Meters) -> AliasingCheck:
    """Whether the window has to be longer than was asked for, by the steps of the warm-up."""
    said = (worker.said["warm"].get("step_s") for worker in group.survivors)
    steps = [step_s for step_s in said if step_s is not None]
    found = [
        check_window(meter.samples(), meter.record(), steps, measure.window)
        for meter in meters.by_board.values()
    ]
    return max(found, key=lambda check: check.window_s)


def _hold_window(
    group: WorkerGroup,
    measure: MeasureConfig,
    meters: Meters,
    attempt: _Attempt,
    *,
    beside: _Beside,
    lost: int,
) -> None:
    """Until the window is long enough and every worker has done its steps, or the cap.

    The loss of a worker starts it again: before, other workers were on the board. `lost` were so
    when the window was asked for.
    """
    opened_s = max(worker.said["opened"]["t_s"] for worker in group.survivors)
    min_s = measure.window.min_s if attempt.aliasing is None else attempt.aliasing.window_s
    while True:
        now = time.monotonic()
        if len(group.losses) > lost:
            lost = len(group.losses)
            attempt.window_from_s = opened_s = meters.mark("start")
            beside.begin()
        long_enough = now - opened_s >= min_s
        if (long_enough and group.all_said("enough")) or now - opened_s >= measure.window.max_s:
            return
        left_s = min_s - (now - opened_s)
        group.listen(left_s if left_s > 0 else _LISTEN_S)


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _loss_ends(losses: Sequence[float | None]) -> tuple[float | None, float | None]:
    """Mean loss of the first steps (a quarter, 10 at most) and of the last quarter."""
    if not losses or any(loss is None for loss in losses):
        return None, None
    values = [loss for loss in losses if loss is not None]
    quarter = max(1, len(values) // 4)
    return _mean(values[: min(quarter, 10)]), _mean(values[-quarter:])


def _collect(group: WorkerGroup, attempt: _Attempt) -> None:
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


def _write_steps(path: Path, rows: dict[str, list[Any]]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    from wattslice.files import replacing

    types = {"slice_index": pa.int32(), "step": pa.int32(), "samples": pa.int32()}
    names = ("slice_index", "step", "start_s", "end_s", "data_s", "samples", "loss")
    arrays = {n: pa.array(rows.get(n, []), type=types.get(n, pa.float64())) for n in names}
    with replacing(path) as temporary:
        pq.write_table(pa.table(arrays), temporary, compression="zstd")


def _judge(attempt: _Attempt, meters: Meters) -> None:
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


def _campaign_folder(out: Path, run_id: str) -> Path:
    """results/<campaign> of results/<campaign>/runs/<run id>; elsewhere the folder itself."""
    inside = out.as_posix().endswith(f"/runs/{run_id}")
    return out.parents[len(Path(run_id).parts)] if inside else out


def main(argv: Sequence[str], describe: Callable[[RunRecord, Path], str]) -> int:
    """Make one run; `describe` says in a line what came out, for the person who watches.

    It is handed in because it is no part of the measurement: the digest of the measuring code
    covers what this module imports.
    """
    parser = argparse.ArgumentParser(prog="python -m wattslice.train", description="Make one run.")
    parser.add_argument("--spec", required=True, help="canonical JSON of the run's spec")
    parser.add_argument("--code", required=True, help="digest of the measuring code")
    parser.add_argument("--record", required=True, type=Path, help="run.json to write")
    parser.add_argument("--campaign", required=True, help="name of the campaign")
    parser.add_argument("--run", required=True, help="id of the run: layout/placement/…")
    arguments = parser.parse_args(argv)

    def terminate(*_: object) -> None:
        raise _Terminated

    signal.signal(signal.SIGTERM, terminate)
    die_with_parent(os.getppid(), signal.SIGTERM)
    spec = RunSpec.model_validate_json(arguments.spec)
    out = arguments.record.parent
    try:
        record = execute(spec, arguments.code, out, arguments.campaign, arguments.run)
    except BoardError as error:
        print(f"{arguments.run}: {type(error).__name__}: {error}", file=sys.stderr)
        return _EXIT_INFRASTRUCTURE
    except OSError as error:
        print(f"{arguments.run}: {error}", file=sys.stderr)
        return _EXIT_INFRASTRUCTURE
    except (_Terminated, KeyboardInterrupt):
        print(f"{arguments.run}: stopped; it will be made again", file=sys.stderr)
        return 128 + signal.SIGTERM
    bar = progress.finished(_campaign_folder(out, arguments.run), arguments.run)
    print(f"{bar}  {describe(record, out)}".strip(), flush=True)
    return 0
