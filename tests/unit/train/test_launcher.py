"""One run through the real launcher and real workers on the CPU board."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from unit.config.campaigns import campaign
from wattslice.analysis.metrics import run_metrics
from wattslice.config.campaign import Campaign
from wattslice.config.expand import Run
from wattslice.records.run import RunRecord

FAST = {
    "sample_hz": 10,
    "idle_s": 1,
    "warmup": {"min_steps": 2, "cv_steps": 3, "cv_max": 10, "max_s": 5},
    "window": {"min_s": 1, "min_steps": 3, "max_s": 30},
}
MODEL = {"kind": "cpu", "power_model": {"idle_w": 10, "active_w_per_core": 5, "source": "test"}}


def _run(layout: str = "full", **changes: Any) -> Run:
    defaults = {
        "measure": FAST,
        "board": MODEL,
        "experiments__0__layouts": [layout],
        "experiments__0__workloads": ["resnet"],
        "experiments__0__precisions": ["fp32"],
        "experiments__0__placements": ["fill"],
    }
    return Campaign(campaign(**{**defaults, **changes})).runs[0]


def _command(run: Run, record: Path) -> list[str]:
    arguments = ["--spec", run.spec.canonical(), "--code", "c", "--campaign", "test"]
    more = ["--run", run.run_id, "--record", str(record)]
    return [sys.executable, "-m", "wattslice.train", *arguments, *more]


def _execute(run: Run, folder: Path) -> tuple[RunRecord, str]:
    record = folder / "run.json"
    done = subprocess.run(
        _command(run, record),
        env={**os.environ, "PYTHONPATH": "src", "WATTSLICE_LEASE_DIR": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return RunRecord.model_validate_json(record.read_bytes()), done.stdout


def two_cores() -> bool:
    return len(os.sched_getaffinity(0)) >= 2


@pytest.mark.skipif(not two_cores(), reason="two slices need two cores")
def test_a_fill_run_has_two_workers_in_the_window_together(tmp_path: Path) -> None:
    # The loss of so small a batch falls for sure after some 20 steps only.
    steps = {**FAST, "window": {"min_s": 1, "min_steps": 25, "max_s": 60}}
    record, line = _execute(_run("2x1c", measure=steps), tmp_path)
    assert record.outcome == "ok", record.reason
    assert record.window is not None
    first, second = record.workers
    assert set(first.affinity).isdisjoint(second.affinity)
    assert (first.threads, second.threads) == (1, 1)
    for worker in record.workers:
        assert worker.window_start_s is not None
        assert worker.window_end_s is not None
        assert worker.window_start_s <= record.window.start_s
        assert worker.window_end_s >= record.window.end_s
        assert worker.loss_last is not None
        assert worker.loss_first is not None
        assert worker.loss_last < worker.loss_first
    assert record.meter.start_s is not None
    assert record.meter.start_s < record.window.start_s
    assert first.seed != second.seed
    metrics = run_metrics(tmp_path, None)
    assert metrics.conservation is not None
    assert metrics.conservation.ok
    assert metrics.energy is not None
    assert metrics.energy.modelled
    assert metrics.samples_per_j.value is not None
    assert "images/s" in line
    assert "(modelled)" in line


def test_a_record_carries_what_its_figures_are_traced_back_by(tmp_path: Path) -> None:
    run = _run()
    record, _ = _execute(run, tmp_path)
    assert record.spec_digest == run.spec.digest()
    assert record.code_digest == "c"
    assert len(str(record.git["commit"])) == 40
    packages = record.environment["packages"]
    assert isinstance(packages, dict)
    assert {"torch", "timm", "snakemake"} <= set(packages)
    worker = record.workers[0]
    assert worker.precision_flags["autocast"] is False
    assert worker.data is not None
    assert worker.data.real
    assert worker.memory is not None
    assert worker.memory.rss_base_mib is not None
    assert worker.memory.rss_mib > worker.memory.rss_base_mib
    assert {raw.name for raw in record.raw} == {"steps.parquet", "power.parquet"}


OUTCOMES = {
    "unsupported_precision": ({"experiments__0__precisions": ["tf32"]}, "tf32"),
    "unsupported_layout": ({"experiments__0__layouts": ["999c"]}, "needs 999 cores"),
    "diverged": ({"workloads__resnet__optimizer": {"name": "sgd", "lr": 1e9}}, "not finite"),
    "oom": (  # 3 TB of pixels
        {
            "workloads__resnet__batch_size": 10**6,
            "data__digits": {"kind": "synthetic-images", "samples": 64, "image_size": 1024},
        },
        "memory",
    ),
}


@pytest.mark.parametrize("outcome", OUTCOMES)
def test_what_goes_wrong_in_training_is_data(outcome: str, tmp_path: Path) -> None:
    changes, reason = OUTCOMES[outcome]
    record, _ = _execute(_run(**changes), tmp_path)
    assert record.outcome == outcome, record.reason
    assert record.reason is not None
    assert reason in record.reason
    metrics = run_metrics(tmp_path, None)
    assert metrics.throughput_samples_s.value is None
    assert metrics.throughput_samples_s.reason


def test_without_a_meter_the_throughput_still_counts(tmp_path: Path) -> None:
    record, line = _execute(_run(board={"kind": "cpu"}), tmp_path)
    if record.meter.scope == "package":
        pytest.skip("this machine has a readable energy counter")
    assert record.outcome == "energy_unavailable"
    assert "RAPL" in str(record.reason)
    metrics = run_metrics(tmp_path, None)
    assert metrics.throughput_samples_s.value is not None
    assert metrics.samples_per_j.value is None
    assert "J in" not in line


def _workers_of(pid: int) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
            except OSError:
                continue
            if int(fields[1]) == pid and fields[0] != "Z":
                found.append(int(entry.name))
    return found


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_workers_end_with_their_launcher_and_leave_no_record(
    number: signal.Signals, tmp_path: Path
) -> None:
    record = tmp_path / "run.json"
    run = _run(measure={**FAST, "window": {"min_s": 60, "min_steps": 3, "max_s": 100}})
    environment = {**os.environ, "PYTHONPATH": "src", "WATTSLICE_LEASE_DIR": str(tmp_path)}
    with subprocess.Popen(_command(run, record), env=environment) as launcher:
        deadline = time.monotonic() + 30
        while not (workers := _workers_of(launcher.pid)) and time.monotonic() < deadline:
            time.sleep(0.02)
        assert workers
        launcher.send_signal(number)
        launcher.wait(timeout=10)
    deadline = time.monotonic() + 2
    while (alive := [p for p in workers if _alive(p)]) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not alive
    assert not record.exists()
    assert not list(tmp_path.glob(".*.tmp"))


def _alive(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


def test_a_worker_that_is_killed_is_named(tmp_path: Path) -> None:
    record = tmp_path / "run.json"
    run = _run(measure={**FAST, "window": {"min_s": 60, "min_steps": 3, "max_s": 100}})
    environment = {**os.environ, "PYTHONPATH": "src", "WATTSLICE_LEASE_DIR": str(tmp_path)}
    with subprocess.Popen(_command(run, record), env=environment) as launcher:
        deadline = time.monotonic() + 30
        while not (workers := _workers_of(launcher.pid)) and time.monotonic() < deadline:
            time.sleep(0.02)
        os.kill(workers[0], signal.SIGKILL)
        assert launcher.wait(timeout=30) == 0
    made = json.loads(record.read_text())
    assert made["outcome"] == "error:killed"
    assert "slice 0" in made["reason"]
