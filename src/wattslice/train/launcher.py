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
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from wattslice.boards import sharing
from wattslice.boards.activity import ActivitySource
from wattslice.boards.allocation import in_job
from wattslice.boards.base import Board
from wattslice.boards.discover import board_of
from wattslice.boards.errors import BoardError, LayoutImpossibleError
from wattslice.boards.several import common_health, members
from wattslice.config.layout import Layout
from wattslice.config.models import BoardConfig, MeasureConfig
from wattslice.config.spec import RunSpec
from wattslice.files import sha256_file, write_json
from wattslice.measure.host import HostLoad, host_workers
from wattslice.measure.idle_window import Samples, joined, sample_idle
from wattslice.measure.meters import Meters
from wattslice.measure.raw import write_power, write_powers
from wattslice.measure.steady import WarmupDetector, cool_down
from wattslice.measure.window import check_window
from wattslice.provenance import environment as environments
from wattslice.records.board import Health, LayoutState
from wattslice.records.run import (
    AliasingCheck,
    BoardMeasurement,
    IdleWindow,
    RawFile,
    RunRecord,
)
from wattslice.train import ddp, progress
from wattslice.train.attempt import Attempt, account_for_losses, collect, judge, write_steps
from wattslice.train.batch_trials import find_batch_sizes
from wattslice.train.group import WorkerFailedError, WorkerGroup
from wattslice.train.lifetime import die_with_parent
from wattslice.train.protocol import Jobs, WorkerJob

_LISTEN_S = 0.5
_EXIT_INFRASTRUCTURE = 3


class _Terminated(BaseException):
    """SIGTERM, or the death of the parent: leave through all `finally` clauses."""


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
    attempt = Attempt()
    meters = Meters.of(board, measure.sample_hz)
    idle: IdleWindow | None = None
    idle_samples: Samples = {}
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
            if in_job():
                idle, idle_meters = sample_idle(board, measure)
                idle_samples = idle_meters.samples()
            _measure(spec, measure, board, meters, attempt)
    _write_power(out / "power.parquet", meters, idle_samples)
    write_steps(out / "steps.parquet", attempt.rows)
    judge(attempt, meters)
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
        idle=idle,
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


def _boards(board: Board, meters: Meters, attempt: Attempt) -> tuple[BoardMeasurement, ...]:
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


def _write_power(path: Path, meters: Meters, before: Samples) -> None:
    boards = joined(before, meters.samples())
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
    spec: RunSpec, measure: MeasureConfig, board: Board, meters: Meters, attempt: Attempt
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
    attempt: Attempt,
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
    attempt: Attempt,
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
            account_for_losses(group, measure, attempt)
            collect(group, attempt)
            group.close()


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
    attempt: Attempt,
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
