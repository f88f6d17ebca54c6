"""A run's figures against synthetic raw files with known true values."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from fixtures.records import START_S, Truth, constant_power, make_idle, make_run
from wattslice.analysis.metrics import RunLabels, run_metrics, work_in_window, write_metrics
from wattslice.analysis.raw import RawFileError, Steps
from wattslice.files import write_json
from wattslice.records.metrics import RunMetrics


def steps_of(ends: list[float], samples: float = 8.0) -> Steps:
    edges = np.asarray(ends)
    count = len(ends) - 1
    return Steps(edges[:-1], edges[1:], np.zeros(count), np.full(count, samples))


def test_whole_steps(tmp_path: Path) -> None:
    truth = Truth(step_s=0.1, batch_size=8, tokens_per_sample=64, power_w=40.0, idle_w=15.0)
    metrics = run_metrics(make_run(tmp_path, truth), make_idle(truth), energy=constant_power)
    worker = metrics.workers[0]
    assert metrics.window_s.value == pytest.approx(10.0)
    assert worker.steps.value == pytest.approx(100.0)
    assert worker.samples.value == pytest.approx(800.0)
    assert worker.throughput_samples_s.value == pytest.approx(80.0)
    assert worker.throughput_tokens_s.value == pytest.approx(80.0 * 64)
    assert worker.step_p50_s.value == pytest.approx(0.1)
    assert worker.step_p95_s.value == pytest.approx(0.1)
    assert worker.data_wait_share.value == pytest.approx(0.1)
    assert (worker.peak_memory_mib.value, worker.peak_memory_source) == (500.0, "rss")
    assert metrics.throughput_samples_s.value == pytest.approx(80.0)
    assert metrics.energy is not None
    assert metrics.energy.gross_j == pytest.approx(400.0)
    assert metrics.samples_per_j.value == pytest.approx(2.0)
    assert metrics.j_per_sample.value == pytest.approx(0.5)
    assert metrics.samples_per_net_j.value == pytest.approx(800 / 250)
    assert metrics.mean_power_w.value == pytest.approx(40.0)
    assert metrics.conservation is not None
    assert metrics.conservation.ok


def test_energy_by_the_measuring_side(tmp_path: Path) -> None:
    truth = Truth(power_w=40.0, idle_w=15.0)
    metrics = run_metrics(make_run(tmp_path, truth), None)
    assert metrics.energy is not None
    assert metrics.energy.gross_j == pytest.approx(400.0, rel=0.01)
    assert metrics.samples_per_j.value == pytest.approx(2.0, rel=0.01)


def test_a_step_half_inside_counts_half() -> None:
    work = work_in_window(steps_of([0.0, 1.0, 2.0, 3.0, 4.0]), 0.5, 3.25)
    assert work.steps == pytest.approx(2.75)
    assert work.samples == pytest.approx(22.0)
    assert work.samples_by_curve == pytest.approx(22.0)
    assert work.durations_s.tolist() == [1.0, 1.0]


def test_a_window_inside_one_step() -> None:
    work = work_in_window(steps_of([0.0, 10.0]), 2.0, 4.5)
    assert work.steps == pytest.approx(0.25)
    assert work.durations_s.size == 0


def test_edges_with_steps_of_different_length() -> None:
    work = work_in_window(steps_of([0.0, 1.0, 3.0, 3.5]), 0.75, 3.25)
    assert work.steps == pytest.approx(0.25 + 1.0 + 0.5)


@pytest.mark.parametrize("offset", [0.0, 0.013, 0.05, 0.0999])
def test_throughput_does_not_depend_on_where_the_window_cuts(tmp_path: Path, offset: float) -> None:
    truth = Truth(window=(START_S + 1 + offset, START_S + 8 + 0.5 * offset))
    metrics = run_metrics(make_run(tmp_path, truth), None, energy=constant_power)
    assert metrics.throughput_samples_s.value == pytest.approx(80.0)
    window = metrics.window_s.value
    samples = metrics.samples.value
    assert window is not None
    assert samples == pytest.approx(80.0 * window)


def test_slices_filled_add_up(tmp_path: Path) -> None:
    truth = Truth(layout="2x1c", placement="cnn.fill", workloads={0: "cnn", 1: "cnn"}, step_s=0.2)
    metrics = run_metrics(make_run(tmp_path, truth), None, energy=constant_power)
    assert [w.throughput_samples_s.value for w in metrics.workers] == pytest.approx([40.0, 40.0])
    assert metrics.throughput_samples_s.value == pytest.approx(80.0)
    assert metrics.samples_per_j.value == pytest.approx(2.0)


def test_a_mix_has_no_sum_but_workers(tmp_path: Path) -> None:
    truth = Truth(layout="2x1c", placement="mix.both", workloads={0: "cnn", 1: "vit"})
    metrics = run_metrics(make_run(tmp_path, truth), None, energy=constant_power)
    assert metrics.throughput_samples_s.value is None
    assert "do not add up" in (metrics.throughput_samples_s.reason or "")
    assert metrics.samples_per_j.value is None
    assert metrics.mean_power_w.value == pytest.approx(40.0)
    assert [w.throughput_samples_s.value for w in metrics.workers] == pytest.approx([80.0, 80.0])


def test_percentiles_of_whole_steps(tmp_path: Path) -> None:
    durations = [0.1] * 15 + [0.3] * 5
    edges = START_S + np.concatenate(([0.0], np.cumsum(durations)))
    steps = [
        {
            "slice_index": 0,
            "step": i,
            "start_s": edges[i],
            "end_s": edges[i + 1],
            "data_s": 0.05,
            "samples": 4,
            "loss": 1.0,
        }
        for i in range(len(durations))
    ]
    truth = Truth(window=(START_S, float(edges[-1])))
    metrics = run_metrics(make_run(tmp_path, truth, steps), None, energy=constant_power)
    worker = metrics.workers[0]
    assert worker.step_p50_s.value == pytest.approx(0.1)
    assert worker.step_p95_s.value == pytest.approx(float(np.quantile(durations, 0.95)))
    assert worker.data_wait_share.value == pytest.approx(20 * 0.05 / 3.0)


def rows_of(intervals: list[tuple[float, float]], samples: int = 4) -> list[dict[str, object]]:
    return [
        {
            "slice_index": 0,
            "step": i,
            "start_s": START_S + start,
            "end_s": START_S + end,
            "data_s": 0.0,
            "samples": samples,
            "loss": 1.0,
        }
        for i, (start, end) in enumerate(intervals)
    ]


def test_a_pause_before_the_window_costs_nothing(tmp_path: Path) -> None:
    warm_up = [(float(i), i + 1.0) for i in range(3)]
    steps = rows_of(warm_up + [(i + 7.5, i + 8.5) for i in range(10)])
    truth = Truth(window=(START_S + 7.5, START_S + 17.5))
    metrics = run_metrics(make_run(tmp_path, truth, steps), None, energy=constant_power)
    assert metrics.workers[0].steps.value == pytest.approx(10.0)
    assert metrics.throughput_samples_s.value == pytest.approx(4.0)
    assert metrics.conservation is not None
    assert metrics.conservation.ok


def test_time_that_no_step_accounts_for_makes_no_throughput(tmp_path: Path) -> None:
    steps = rows_of([(i + 0.3, i + 1.0) for i in range(10)])
    truth = Truth(window=(START_S + 2, START_S + 8))
    metrics = run_metrics(make_run(tmp_path, truth, steps), None, energy=constant_power)
    assert metrics.throughput_samples_s.value is None
    assert "70.00 % of the window" in (metrics.throughput_samples_s.reason or "")


def test_overlapping_steps_are_refused(tmp_path: Path) -> None:
    steps = rows_of([(0.0, 1.0), (0.5, 2.0), (2.0, 3.0)])
    run_dir = make_run(tmp_path, Truth(window=(START_S, START_S + 3)), steps)
    with pytest.raises(RawFileError, match="slice 0 has steps that overlap"):
        run_metrics(run_dir, None, energy=constant_power)


def test_a_lost_step_makes_no_throughput(tmp_path: Path) -> None:
    steps = rows_of([(float(i), i + 1.0) for i in range(10) if i != 5])
    truth = Truth(window=(START_S + 2, START_S + 8))
    metrics = run_metrics(make_run(tmp_path, truth, steps), None, energy=constant_power)
    assert metrics.throughput_samples_s.value is None
    assert "83.33 % of the window" in (metrics.throughput_samples_s.reason or "")


def test_device_memory_comes_before_process_memory(tmp_path: Path) -> None:
    metrics = run_metrics(make_run(tmp_path, Truth(cuda_mib=123.0)), None, energy=constant_power)
    worker = metrics.workers[0]
    assert (worker.peak_memory_mib.value, worker.peak_memory_source) == (123.0, "cuda-allocated")


@pytest.mark.parametrize("outcome", ["oom", "diverged", "disturbed", "error:worker-died"])
def test_other_outcomes_pass_through_with_their_reason(tmp_path: Path, outcome: str) -> None:
    truth = Truth(outcome=outcome, reason="no room for 20 GiB", window=None)
    metrics = run_metrics(make_run(tmp_path, truth), None, energy=constant_power)
    assert metrics.outcome == outcome
    for quantity in (metrics.throughput_samples_s, metrics.samples_per_j, metrics.window_s):
        assert quantity.value is None
        assert quantity.reason == f"outcome {outcome}: no room for 20 GiB"
    assert metrics.energy is None


def test_no_energy_keeps_throughput(tmp_path: Path) -> None:
    truth = Truth(outcome="energy_unavailable", power_w=None, no_energy_reason="RAPL: EACCES")
    metrics = run_metrics(make_run(tmp_path, truth), None)
    assert metrics.throughput_samples_s.value == pytest.approx(80.0)
    assert metrics.samples_per_j.value is None
    assert metrics.samples_per_j.reason == "RAPL: EACCES"


def test_changed_raw_file_is_refused(tmp_path: Path) -> None:
    run_dir = make_run(tmp_path, Truth())
    with (run_dir / "steps.parquet").open("ab") as handle:
        handle.write(b"x")
    with pytest.raises(RawFileError, match=r"full/cnn.solo/fp32/rep1: .*steps.parquet was changed"):
        run_metrics(run_dir, None, energy=constant_power)


def test_missing_raw_file_is_named(tmp_path: Path) -> None:
    run_dir = make_run(tmp_path, Truth())
    (run_dir / "power.parquet").unlink()
    with pytest.raises(RawFileError, match=r"power.parquet is missing"):
        run_metrics(run_dir, None, energy=constant_power)


def test_broken_record_is_named(tmp_path: Path) -> None:
    run_dir = make_run(tmp_path, Truth())
    (run_dir / "run.json").write_text('{"run_id": 3}')
    with pytest.raises(RawFileError, match=r"run.json is not a run record: "):
        run_metrics(run_dir, None)


def test_idle_power_of_another_board_gives_no_net_energy_and_says_why(tmp_path: Path) -> None:
    run_dir = make_run(tmp_path, Truth())
    idle = make_idle(Truth()).model_copy(update={"board_uuid": "CPU-other"})
    found = run_metrics(run_dir, idle)
    assert found.energy is not None
    assert found.energy.net_j is None
    assert "measured on board CPU-other" in str(found.energy.idle_source)


@pytest.mark.parametrize(("there", "idle_w"), [([], 40.0), (["17 python"], None)])
def test_an_idle_power_of_the_run_itself_comes_before_that_of_the_stage(
    tmp_path: Path, there: list[str], idle_w: float | None
) -> None:
    """A cluster's job measures the board that it was given, which need not be the stage's."""
    run_dir = make_run(tmp_path, Truth(power_w=40.0))
    window = {"start_s": START_S + 2.0, "end_s": START_S + 8.0, "foreign_processes": there}
    own = {"idle": {**window, "monitors": [], "measured_utc": "2026-01-01T00:00:00Z"}}
    record = json.loads((run_dir / "run.json").read_text())
    (run_dir / "run.json").write_text(json.dumps(record | own))
    stage = make_idle(Truth()).model_copy(update={"board_uuid": "CPU-other"})
    found = run_metrics(run_dir, stage)
    assert found.energy is not None
    assert found.energy.idle_w == (None if idle_w is None else pytest.approx(idle_w))
    assert found.energy.net_j == (None if idle_w is None else pytest.approx(0.0, abs=1e-6))
    assert "measured on board" not in str(found.energy.idle_source)


def test_idle_power_of_another_layout_is_refused(tmp_path: Path) -> None:
    run_dir = make_run(tmp_path, Truth())
    with pytest.raises(ValueError, match="idle record is of layout 2x1c, not full"):
        run_metrics(run_dir, make_idle(Truth(layout="2x1c")), energy=constant_power)


def test_written_file_reads_back(tmp_path: Path) -> None:
    truth = Truth()
    run_dir = make_run(tmp_path, truth)
    idle = tmp_path / "idle.json"
    write_json(idle, make_idle(truth).model_dump(mode="json"))
    metrics = write_metrics(run_dir, idle, run_dir / "metrics.json", energy=constant_power)
    text = (run_dir / "metrics.json").read_text()
    assert RunMetrics.model_validate_json(text) == metrics


def test_bad_run_id() -> None:
    assert RunLabels.of("2x1c/cnn.fill/bf16/rep12").repeat == 12
    with pytest.raises(ValueError, match="layout/placement/precision"):
        RunLabels.of("2x1c/cnn.fill/bf16")
