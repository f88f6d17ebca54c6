"""Runs through the real launcher on simulated boards: what it records beside the training."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from unit.config.campaigns import campaign
from wattslice.analysis.collect import CollectedRun
from wattslice.analysis.metrics import run_metrics
from wattslice.analysis.shares import energy_shares
from wattslice.config.campaign import Campaign
from wattslice.config.expand import Run
from wattslice.config.spec import RunSpec
from wattslice.records.run import RunRecord
from wattslice.simulation import SimulationError
from wattslice.simulation.session import Simulation, simulation

MEASURE = {
    "sample_hz": 10,
    "idle_s": 1,
    "warmup": {"min_steps": 2, "cv_steps": 3, "cv_max": 10, "max_s": 2},
    "window": {"min_s": 5, "min_steps": 3, "max_s": 8},
    "cooldown": {"max_s": 0},
}


def _run(layout: str, placement: str, *select: str) -> Run:
    return Campaign(
        campaign(
            measure=MEASURE,
            board={"kind": "nvidia", "mig": "managed", "select": select or None},
            experiments__0__layouts=[layout],
            experiments__0__workloads=["resnet"],
            experiments__0__precisions=["fp32"],
            experiments__0__placements=[placement],
        )
    ).runs[0]


@pytest.fixture(scope="module")
def h100() -> Iterator[Simulation]:
    try:
        with simulation(["h100-sxm5-80gb"], mig=True) as boards:
            yield boards
    except SimulationError as error:
        pytest.skip(f"the simulated library cannot be built here: {error}")


def _execute(boards: Simulation, run: Run, folder: Path) -> RunRecord:
    record = folder / "run.json"
    arguments = ["--spec", run.spec.canonical(), "--code", "c", "--campaign", "test"]
    arguments += ["--run", run.run_id, "--record", str(record)]
    environment = boards.environment()
    environment |= {"PYTHONPATH": "src", "WATTSLICE_LEASE_DIR": str(folder)}
    done = subprocess.run(
        [sys.executable, "-m", "wattslice.train", *arguments],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return RunRecord.model_validate_json(record.read_bytes())


@pytest.fixture(scope="module")
def solo(h100: Simulation, tmp_path_factory: pytest.TempPathFactory) -> tuple[RunRecord, Path]:
    folder = tmp_path_factory.mktemp("solo")
    record = _execute(h100, _run("3g+1g", "solo"), folder)
    assert record.outcome == "ok", record.reason
    return record, folder


def test_activity_of_busy_and_idle_slices_and_memory_in_use_are_in_the_record(
    solo: tuple[RunRecord, Path],
) -> None:
    record, _ = solo
    assert record.window is not None
    (worker,) = record.workers
    assert worker.memory is not None
    assert worker.memory.device_used_mib is not None
    assert 0 <= worker.memory.device_used_mib < (worker.slice.memory_mib or 0)
    readings = {(r.slice_index, r.metric): r for r in record.activities}
    busy = [worker.slice.index for worker in record.workers]
    for index in (0, 1):
        reading = readings[index, "sm-activity"]
        assert reading.reason is None
        assert reading.value == pytest.approx(1.0 if index in busy else 0.0, abs=0.01)
        assert reading.start_s is not None
        assert reading.end_s is not None
        # Inside the window, and nearly all of it: at its ends by some steps only.
        assert record.window.start_s <= reading.start_s < reading.end_s <= record.window.end_s
        assert reading.end_s - reading.start_s > 0.8 * (record.window.end_s - record.window.start_s)
    assert readings[None, "sm-activity"].value is not None


def test_a_run_with_activities_has_its_figures(solo: tuple[RunRecord, Path]) -> None:
    metrics = run_metrics(solo[1], None)
    assert metrics.energy is not None
    assert metrics.energy.gross_j is not None


def test_the_check_of_steps_against_the_sensor_is_in_the_record(
    solo: tuple[RunRecord, Path],
) -> None:
    found = solo[0].aliasing
    assert found is not None
    assert found.period_s == pytest.approx(0.1, rel=0.3)  # on a loaded machine
    assert found.step_s is not None or found.locked is False
    assert found.asked_s == MEASURE["window"]["min_s"]  # type: ignore[index]
    assert found.window_s == found.asked_s or found.cured


def test_the_load_of_others_and_the_steering_variables_are_in_the_workers_record(
    solo: tuple[RunRecord, Path],
) -> None:
    (worker,) = solo[0].workers
    share = worker.foreign_cpu_share.value
    assert share is not None, worker.foreign_cpu_share.reason
    assert 0.0 <= share <= 1.0
    assert worker.variables["OMP_NUM_THREADS"] == str(worker.threads)
    assert worker.variables["CUDA_VISIBLE_DEVICES"] == ""
    findings = {f.check for f in run_metrics(solo[1], None).quality.findings}
    assert ("foreign-host-load" in findings) == (share > 0.05)


def test_data_parallel_over_two_boards_has_a_meter_each_and_their_sum(tmp_path: Path) -> None:
    with simulation(["a100-sxm4-80gb", "a100-sxm4-80gb"]) as boards:
        select = [boards.control().board_uuid(number) for number in (0, 1)]
        record = _execute(boards, _run("2xfull", "ddp", *select), tmp_path)
    assert record.outcome == "ok", record.reason
    uuids = [board.identity.uuid for board in record.boards]
    assert len(set(uuids)) == 2
    assert record.board is not None
    assert record.board.uuid == "+".join(uuids)
    assert [worker.slice.uuid for worker in record.workers] == uuids
    assert [(w.data_parallel or {}).get("rank") for w in record.workers] == [0, 1]
    assert all(board.meter.samples > 50 and board.meter.reason is None for board in record.boards)
    assert record.meter.samples == sum(board.meter.samples for board in record.boards)
    assert all(board.health_after is not None for board in record.boards)
    assert [r.slice_index for r in record.activities] == [0, 1]

    metrics = run_metrics(tmp_path, None)
    energy = metrics.energy
    assert energy is not None
    assert energy.gross_j is not None
    assert list(energy.boards) == uuids
    parts = [part.gross_j for part in energy.boards.values()]
    assert energy.gross_j == pytest.approx(sum(part for part in parts if part is not None))
    assert all(part is not None and part > 0.4 * energy.gross_j for part in parts)
    # Nothing is shared out by estimates where each slice has a meter.
    shares = energy_shares(CollectedRun(record, metrics, RunSpec.model_validate(record.spec)))
    assert shares.chosen is None
    assert "a meter of its own" in str(shares.reason)
    samples = [worker.samples.value for worker in metrics.workers]
    assert metrics.samples.value == pytest.approx(sum(s for s in samples if s is not None))


def test_data_parallel_over_mig_instances_is_refused(h100: Simulation, tmp_path: Path) -> None:
    record = _execute(h100, _run("2x3g", "ddp"), tmp_path)
    assert record.outcome == "unsupported_layout"
    assert "data parallel over MIG instances (3g.40gb, 3g.40gb)" in str(record.reason)
