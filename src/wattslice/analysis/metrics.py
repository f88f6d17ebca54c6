"""One run's figures, from its raw files only.

In the window [a, b] that all workers share, a step [s, e] with n samples counts

    n x |[s, e] ∩ [a, b]| / (e - s)

so a step that is half inside counts half. Throughput is work / (b - a); step times are those of
whole steps inside; energy is the board's over the same window, by `wattslice.measure.energy`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from wattslice.analysis import quality
from wattslice.analysis.raw import RawFileError, Steps, read_run, read_steps, verify_raw
from wattslice.config.spec import RunSpec
from wattslice.files import sha256_file, write_json
from wattslice.records.base import Quantity
from wattslice.records.board import Health
from wattslice.records.energy import EnergyResult, IdleRecord, idle_power
from wattslice.records.metrics import Conservation, RunMetrics, RunQuality, WorkerMetrics
from wattslice.records.run import (
    MEASURED_OUTCOMES,
    BoardMeasurement,
    IdleWindow,
    RunRecord,
    Window,
    WorkerRecord,
)

FloatArray = npt.NDArray[np.float64]

CONSERVATION_LIMIT = 1e-6
# A window of which less than this is tiled by recorded steps gives no throughput.
MIN_COVERED = 0.999
RUN_ID_PARTS = 4


class EnergyFunction(Protocol):
    """Energy of a run's board over its window; takes the folder with the raw power samples.

    `step_s` are the median step times of the workers, s.
    """

    def __call__(
        self,
        run_dir: Path,
        record: RunRecord,
        idle: IdleRecord | None,
        step_s: Sequence[float],
    ) -> EnergyResult: ...


@dataclass(frozen=True, slots=True)
class RunLabels:
    """The parts of a run id: layout/placement/precision/rep<k>."""

    layout: str
    placement: str
    precision: str
    repeat: int

    @classmethod
    def of(cls, run_id: str) -> RunLabels:
        parts = run_id.split("/")
        if len(parts) != RUN_ID_PARTS or not parts[3].removeprefix("rep").isdigit():
            raise ValueError(f"run id {run_id!r} is not layout/placement/precision/rep<k>")
        return cls(parts[0], parts[1], parts[2], int(parts[3].removeprefix("rep")))


@dataclass(frozen=True, slots=True)
class Work:
    """What a worker did in a window."""

    steps: float
    samples: float
    covered_s: float
    data_s: float
    durations_s: FloatArray  # of the whole steps inside
    samples_by_curve: float  # the same work, from the curve of samples done over time


def work_in_window(steps: Steps, start_s: float, end_s: float) -> Work:
    """Work of the steps inside [start_s, end_s], fractional at the edges."""
    inside = np.clip(np.minimum(steps.end_s, end_s) - np.maximum(steps.begin_s, start_s), 0.0, None)
    share = inside / (steps.end_s - steps.begin_s)
    whole = (steps.begin_s >= start_s) & (steps.end_s <= end_s)
    # Samples done over time: rising in a step, flat between two.
    total = np.cumsum(steps.samples)
    times = np.column_stack((steps.begin_s, steps.end_s)).ravel()
    done = np.column_stack((total - steps.samples, total)).ravel()
    at_start, at_end = np.interp([start_s, end_s], times, done)
    return Work(
        steps=float(share.sum()),
        samples=float((share * steps.samples).sum()),
        covered_s=float(inside.sum()),
        data_s=float((share * np.nan_to_num(steps.data_s)).sum()),
        durations_s=(steps.end_s - steps.begin_s)[whole],
        samples_by_curve=float(at_end - at_start),
    )


def measured_energy(
    run_dir: Path, record: RunRecord, idle: IdleRecord | None, step_s: Sequence[float]
) -> EnergyResult:
    """Energy of a run from its power samples, by the measuring side's own rules."""
    assert record.window is not None
    return _energy_of(run_dir, record, record.window, idle, step_s)


def _energy_of(
    run_dir: Path,
    record: RunRecord,
    window: Window | IdleWindow,
    idle: IdleRecord | None = None,
    step_s: Sequence[float] = (),
) -> EnergyResult:
    from wattslice.measure.energy import energy
    from wattslice.measure.raw import read_power
    from wattslice.measure.sum_of_boards import idle_of_board, sum_of_boards

    def of(board: RunRecord | BoardMeasurement, uuid: str | None) -> EnergyResult:
        return energy(
            samples=read_power(run_dir / "power.parquet", uuid),
            window_start_s=window.start_s,
            window_end_s=window.end_s,
            meter=board.meter,
            idle=idle if uuid is None else idle_of_board(idle, uuid),
            simulated=record.simulated,
            step_s=step_s,
            power_limit_w=_power_limit_w(board.health_before, board.health_after),
        )

    if not record.boards:
        return of(record, None)
    used = [slice_.uuid for slice_ in (w.slice for w in record.workers) if slice_.uuid is not None]
    measured = {board.identity.uuid: board for board in record.boards}
    return sum_of_boards({uuid: of(board, uuid) for uuid, board in measured.items()}, used)


def _own_idle(run_dir: Path, record: RunRecord, labels: RunLabels) -> IdleRecord | None:
    """The idle power of the run's own board, where the run measured it before it began."""
    window = record.idle
    if window is None or record.board is None:
        return None
    result = _energy_of(run_dir, record, window)
    power = idle_power(result, window.foreign_processes)
    return IdleRecord(
        layout=labels.layout,
        board_uuid=record.board.uuid,
        idle_w=power.value,
        reason=power.reason,
        energy=result,
        code_digest=record.code_digest,
        settings={},
        simulated=record.simulated,
        monitors=window.monitors,
        measured_utc=window.measured_utc,
    )


def _power_limit_w(*healths: Health | None) -> float | None:
    """The board's power limit as it was read before or after the run; None where it was not."""
    for health in healths:
        if health is not None and health.power_limit_w.value is not None:
            return health.power_limit_w.value
    return None


def run_metrics(
    run_dir: Path, idle: IdleRecord | None, *, energy: EnergyFunction = measured_energy
) -> RunMetrics:
    """Figures of the run in `run_dir`.

    Raises RawFileError when run.json or a raw file is missing, unreadable or was changed, and
    ValueError when the idle record belongs to another layout.
    """
    record = read_run(run_dir)
    verify_raw(run_dir, record)
    labels = RunLabels.of(record.run_id)
    idle = _own_idle(run_dir, record, labels) or idle
    if idle is not None:
        idle = _idle_of(record, labels, idle)
    why_not = _why_not_measured(record)
    steps: dict[int, Steps] = {}
    if why_not is None:
        steps = read_steps(run_dir / "steps.parquet")
    window_s = 0.0 if record.window is None else record.window.end_s - record.window.start_s
    works: dict[int, Work] = {}
    workers = []
    for worker in record.workers:
        own = steps.get(worker.slice.index)
        reason = why_not
        if reason is None and own is None:
            reason = f"steps.parquet has no step of slice {worker.slice.index}"
        work: Work | None = None
        if reason is None and own is not None and record.window is not None:
            work = work_in_window(own, record.window.start_s, record.window.end_s)
            covered = work.covered_s / window_s
            if covered < MIN_COVERED or covered > 2.0 - MIN_COVERED:
                reason = f"recorded steps tile {100 * covered:.2f} % of the window, not all of it"
            else:
                works[worker.slice.index] = work
        workers.append(_worker(worker, work, window_s, reason, record))
    if why_not is None and len(works) < len(record.workers):
        faults = [w.samples.reason for w in workers if w.samples.reason is not None]
        why_not = "a worker has no work: " + "; ".join(faults)
    return _run(
        record,
        labels,
        sha256_file(run_dir / "run.json"),
        _energy(run_dir, record, idle, energy, workers),
        workers=tuple(workers),
        works=works,
        why_not=why_not,
    )


def _idle_of(record: RunRecord, labels: RunLabels, idle: IdleRecord) -> IdleRecord:
    """The idle record as far as it holds for the run: an idle power is of one board.

    A run on another board than that of the campaign's idle stage, without an idle power of its
    own, has no net energy, and the reason says so.
    """
    if idle.layout != labels.layout:
        raise ValueError(
            f"{record.run_id}: the idle record is of layout {idle.layout}, not {labels.layout}"
        )
    if record.board is None or idle.board_uuid == record.board.uuid:
        return idle
    reason = f"measured on board {idle.board_uuid}, the run is of board {record.board.uuid}"
    return idle.model_copy(update={"idle_w": None, "reason": reason})


def _why_not_measured(record: RunRecord) -> str | None:
    if record.outcome not in MEASURED_OUTCOMES:
        return f"outcome {record.outcome}" + (f": {record.reason}" if record.reason else "")
    if record.window is None:
        return "the run has no window"
    if not record.window.end_s > record.window.start_s:
        return "the window has no length"
    if not record.workers:
        return "the run has no workers"
    return None


def _worker(
    worker: WorkerRecord,
    work: Work | None,
    window_s: float,
    reason: str | None,
    record: RunRecord,
) -> WorkerMetrics:
    ok = work if reason is None else None
    missing = Quantity.missing(reason or "not measured")
    samples = Quantity.of(ok.samples) if ok else missing
    tokens = missing
    if ok:
        per_sample = worker.tokens_per_sample
        tokens = (
            Quantity.missing(f"a sample ({worker.sample_unit or 'unit unknown'}) has no tokens")
            if per_sample is None
            else Quantity.of(ok.samples * per_sample)
        )
    memory, source = _peak_memory(worker, record)
    return WorkerMetrics(
        slice_index=worker.slice.index,
        slice_name=worker.slice.name,
        profile=worker.slice.profile,
        workload=worker.workload,
        outcome=worker.outcome,
        reason=worker.reason,
        batch_size=worker.batch_size,
        sample_unit=worker.sample_unit,
        parameters=worker.parameters,
        device=worker.device,
        threads=worker.threads,
        warmup_steady=None if worker.warmup is None else worker.warmup.steady,
        steps=Quantity.of(ok.steps) if ok else missing,
        whole_steps=int(ok.durations_s.size) if ok else 0,
        samples=samples,
        tokens=tokens,
        throughput_samples_s=_over(samples, window_s),
        throughput_tokens_s=_over(tokens, window_s),
        step_p50_s=_quantile(ok.durations_s, 0.5) if ok else missing,
        step_p95_s=_quantile(ok.durations_s, 0.95) if ok else missing,
        data_wait_share=Quantity.of(ok.data_s / ok.covered_s) if ok else missing,
        peak_memory_mib=memory,
        peak_memory_source=source,
        covered_share=work.covered_s / window_s if work else None,
        loss_first=worker.loss_first,
        loss_last=worker.loss_last,
    )


def _peak_memory(worker: WorkerRecord, record: RunRecord) -> tuple[Quantity, str | None]:
    """Peak of the framework's allocator where the device has one, else of the process."""
    if record.outcome not in MEASURED_OUTCOMES:
        return Quantity.missing(_why_not_measured(record) or "not measured"), None
    if worker.memory is None:
        return Quantity.missing("the worker recorded no memory"), None
    if worker.memory.cuda_allocated_mib is not None:
        return Quantity.of(worker.memory.cuda_allocated_mib), "cuda-allocated"
    return Quantity.of(worker.memory.rss_mib), "rss"


def _quantile(durations_s: FloatArray, quantile: float) -> Quantity:
    if durations_s.size == 0:
        return Quantity.missing("no whole step lies inside the window")
    return Quantity.of(float(np.quantile(durations_s, quantile)))


def _over(amount: Quantity, seconds: float) -> Quantity:
    if amount.value is None:
        return amount
    return Quantity.of(amount.value / seconds)


def _sum(quantities: Iterable[Quantity]) -> Quantity:
    total = 0.0
    for quantity in quantities:
        if quantity.value is None:
            return quantity
        total += quantity.value
    return Quantity.of(total)


def _run(
    record: RunRecord,
    labels: RunLabels,
    run_sha256: str,
    measured: tuple[EnergyResult | None, str | None],
    *,
    workers: tuple[WorkerMetrics, ...],
    works: dict[int, Work],
    why_not: str | None,
) -> RunMetrics:
    names = sorted({worker.workload for worker in record.workers})
    if not names:
        names = sorted({a.workload for a in RunSpec.model_validate(record.spec).assignments})
    workload = names[0] if len(names) == 1 else None
    window = (
        Quantity.missing(_why_not_measured(record) or "the run has no window")
        if record.window is None or record.window.end_s <= record.window.start_s
        else Quantity.of(record.window.end_s - record.window.start_s)
    )
    figures: dict[str, Quantity]
    if why_not is not None:
        missing = Quantity.missing(why_not)
        figures = dict.fromkeys(
            ("samples", "tokens", "throughput_samples_s", "throughput_tokens_s"), missing
        )
        figures |= {"step_p50_s": missing, "step_p95_s": missing}
    elif workload is None:
        mixed = Quantity.missing(
            "a mix: samples of different workloads (" + ", ".join(names) + ") do not add up"
        )
        figures = dict.fromkeys(
            ("samples", "tokens", "throughput_samples_s", "throughput_tokens_s"), mixed
        )
        figures |= {"step_p50_s": mixed, "step_p95_s": mixed}
    else:
        assert window.value is not None
        samples, tokens = _sum(w.samples for w in workers), _sum(w.tokens for w in workers)
        durations = np.concatenate([work.durations_s for work in works.values()])
        figures = {
            "samples": samples,
            "tokens": tokens,
            "throughput_samples_s": _over(samples, window.value),
            "throughput_tokens_s": _over(tokens, window.value),
            "step_p50_s": _quantile(durations, 0.5),
            "step_p95_s": _quantile(durations, 0.95),
        }
    result, energy_reason = measured
    metrics = RunMetrics(
        run_id=record.run_id,
        campaign=record.campaign,
        layout=labels.layout,
        placement=labels.placement,
        precision=labels.precision,
        repeat=labels.repeat,
        outcome=record.outcome,
        reason=record.reason,
        simulated=record.simulated,
        spec_digest=record.spec_digest,
        code_digest=record.code_digest,
        run_sha256=run_sha256,
        board_uuid=None if record.board is None else record.board.uuid,
        window_s=window,
        workload=workload,
        workers=workers,
        energy=result,
        energy_reason=energy_reason,
        conservation=_conservation(workers, works, window),
        quality=RunQuality(badge="good", findings=(), checked=(), skipped=()),
        **figures,
        **_per_joule(figures["samples"], result, energy_reason),
    )
    # The checks look at the figures, so they come last.
    found = quality.evaluate(record, metrics)
    return metrics.model_copy(
        update={"quality": RunQuality.model_validate(found.model_dump(mode="json"))}
    )


def _energy(
    run_dir: Path,
    record: RunRecord,
    idle: IdleRecord | None,
    energy: EnergyFunction,
    workers: Sequence[WorkerMetrics],
) -> tuple[EnergyResult | None, str | None]:
    not_measured = _why_not_measured(record)
    if not_measured is not None:
        return None, not_measured
    if not any(raw.name == "power.parquet" for raw in record.raw):
        return None, record.meter.reason or "the run has no power samples"
    step_s = [w.step_p50_s.value for w in workers if w.step_p50_s.value is not None]
    result = energy(run_dir, record, idle, step_s)
    reason = None
    if result.gross_j is None:
        reason = result.reason or record.meter.reason or "no energy, and no reason was recorded"
    return result, reason


def _per_joule(
    samples: Quantity, energy: EnergyResult | None, energy_reason: str | None
) -> dict[str, Quantity]:
    def ratio(joules: float | None, why: str) -> Quantity:
        if samples.value is None:
            return samples
        if joules is None:
            return Quantity.missing(why)
        if joules <= 0:
            return Quantity.missing(f"the energy, {joules:g} J, is not greater than 0")
        return Quantity.of(samples.value / joules)

    reason = energy_reason or "no energy"
    gross = None if energy is None else energy.gross_j
    net = None if energy is None else energy.net_j
    power = None if energy is None else energy.mean_power_w
    per_j = ratio(gross, reason)
    inverse = per_j
    if per_j.value is not None:
        inverse = (
            Quantity.of(1.0 / per_j.value) if per_j.value > 0 else Quantity.missing("no sample")
        )
    return {
        "mean_power_w": Quantity.missing(reason) if power is None else Quantity.of(power),
        "samples_per_j": per_j,
        "samples_per_net_j": ratio(
            net, energy_reason or "no net energy: the idle power of the layout is not known"
        ),
        "j_per_sample": inverse,
    }


def _conservation(
    workers: Sequence[WorkerMetrics], works: dict[int, Work], window: Quantity
) -> Conservation | None:
    """throughput x time against the curve of samples done, which knows nothing of fractions."""
    if not works or window.value is None:
        return None
    errors, notes = [], []
    for worker in workers:
        work, rate = works.get(worker.slice_index), worker.throughput_samples_s.value
        if work is None or rate is None:
            continue
        by_rate = rate * window.value
        scale = max(abs(work.samples_by_curve), 1e-12)
        error = abs(by_rate - work.samples_by_curve) / scale
        errors.append(error)
        if error > CONSERVATION_LIMIT:
            notes.append(
                f"slice {worker.slice_index}: throughput x time = {by_rate:.6g} samples, the "
                f"recorded steps give {work.samples_by_curve:.6g}"
            )
    largest = max(errors) if errors else None
    return Conservation(
        ok=not notes,
        relative_error=largest,
        limit=CONSERVATION_LIMIT,
        notes=tuple(notes),
    )


def write_metrics(run_dir: Path, idle_path: Path | None, out: Path, **options: Any) -> RunMetrics:
    """Write metrics.json of a run. `idle_path` is results/<campaign>/idle/<layout>.json or None."""
    idle = None
    if idle_path is not None:
        idle = IdleRecord.model_validate_json(Path(idle_path).read_bytes())
    metrics = run_metrics(Path(run_dir), idle, **options)
    write_json(Path(out), metrics.model_dump(mode="json"))
    return metrics


__all__ = [
    "RawFileError",
    "RunLabels",
    "Work",
    "measured_energy",
    "run_metrics",
    "work_in_window",
    "write_metrics",
]
