"""The whole workflow, as a user starts it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pandas as pd
import pytest

from wattslice.records.metrics import RunMetrics
from wattslice.records.run import RunRecord
from workflow.conftest import TINY, Clone


def test_a_campaign_runs_from_config_to_report(finished_once: Clone) -> None:
    results = finished_once.results
    runs = pd.read_parquet(results / "tables" / "runs.parquet")
    assert len(runs) == 2
    assert set(runs["outcome"]) <= {"ok", "energy_unavailable"}
    assert (runs["throughput_samples_s"] > 0).all()
    for path in results.glob("runs/*/*/*/*/metrics.json"):
        metrics = RunMetrics.model_validate_json(path.read_bytes())
        assert metrics.conservation is not None
        assert metrics.conservation.ok
    page = (results / "report" / "index.html").read_text()
    assert TINY["title"] in page
    assert "modelled" in page
    assert (results / "figures" / "throughput.svg").stat().st_size > 1000


def test_a_bare_dry_run_plans_the_default_campaign(clone: Clone) -> None:
    """A root Snakefile without a default target would plan nothing and exit 0."""
    (clone.folder / "tiny.yaml").write_text("name: default\n")
    assert clone.planned()["train"] >= 40


def test_snakemakes_own_report_holds_the_figures(finished: Clone) -> None:
    finished.snakemake("--report", "report.zip", check=True)
    assert (finished.folder / "report.zip").stat().st_size > 100_000


BAD = {
    "unknown workload": ({"workloads": ["distilbrt"]}, "did you mean 'distilbert'"),
    "too many cores": ({"layouts": ["512c"]}, "needs 512 cores"),
    "precision the board lacks": ({"precisions": ["tf32"]}, "valid: fp32, fp32-default, bf16"),
    "zero repeats": ({"repeats": 0}, "experiments[0].repeats"),
    "no workloads": ({"workloads": []}, "experiments[0].workloads' is empty"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_stops_before_any_training(case: str, clone: Clone) -> None:
    changes, message = BAD[case]
    experiment = TINY["experiments"][0] | changes  # type: ignore[index]
    clone.configure({**TINY, "experiments": [experiment]})
    done = clone.snakemake()
    assert done.returncode != 0
    assert message in done.stdout + done.stderr
    assert not list(clone.folder.glob("results/tiny/runs/**/run.json"))


def test_a_model_that_does_not_exist_stops_before_any_training(clone: Clone) -> None:
    workload = {"cnn": {"model": "resnet10x"}}
    clone.configure({**TINY, "workloads": workload})
    done = clone.snakemake()
    assert done.returncode != 0
    assert "workloads.cnn" in done.stdout + done.stderr
    assert "resnet10t" in done.stdout + done.stderr
    assert not list(clone.folder.glob("results/tiny/runs/**/run.json"))


def test_a_key_given_twice_in_an_overlay_is_refused(clone: Clone) -> None:
    path = clone.folder / "tiny.yaml"
    path.write_text(path.read_text() + "title: again\n")
    done = clone.snakemake("-n")
    assert done.returncode != 0
    assert "'title' is given twice" in done.stdout + done.stderr


def test_a_disk_almost_full_stops_before_any_training(clone: Clone) -> None:
    clone.configure({**TINY, "min_free_mib": 10**12})
    done = clone.snakemake()
    assert done.returncode != 0
    assert "disk almost full" in done.stdout + done.stderr
    assert not (clone.results / "runs").exists()


def test_a_results_folder_that_cannot_be_written_is_named(clone: Clone) -> None:
    (clone.folder / "results" / "tiny").write_text("in the way")
    done = clone.snakemake()
    assert done.returncode != 0
    assert "results/tiny" in done.stdout + done.stderr


def _process_table() -> dict[int, tuple[str, str]]:
    """pid to (working directory, command line) of the processes that can be looked at."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                found[int(entry.name)] = (str((entry / "cwd").readlink()), command)
            except OSError:
                continue
    return found


def _training(clone: Clone) -> list[int]:
    return [
        pid
        for pid, (folder, command) in _process_table().items()
        if folder == str(clone.folder) and "wattslice.train" in command
    ]


def test_kill_9_leaves_no_worker_and_no_half_written_record(clone: Clone) -> None:
    slow = {**TINY["measure"], "window": {"min_s": 5, "min_steps": 5, "max_s": 20}}  # type: ignore[dict-item]
    clone.configure({**TINY, "measure": slow})
    with subprocess.Popen(
        clone.command(),
        cwd=clone.folder,
        env=clone.environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as campaign:
        deadline = time.monotonic() + 90
        records: list[Path] = []
        workers: list[int] = []
        # The second run is in flight once a record is there and workers are training again.
        while time.monotonic() < deadline and not (records and len(workers) >= 2):
            records = list(clone.results.glob("runs/*/*/*/*/run.json"))
            workers = _training(clone)
            time.sleep(0.05)
        assert records
        assert workers
        os.kill(campaign.pid, signal.SIGKILL)
        campaign.wait()
    deadline = time.monotonic() + 2
    while (left := _training(clone)) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not left
    first = {path: path.stat().st_mtime_ns for path in records}
    for path in clone.results.glob("runs/*/*/*/*/run.json"):
        RunRecord.model_validate_json(path.read_bytes())
    clone.snakemake(check=True)
    assert (clone.results / "report" / "index.html").exists()
    assert {path: path.stat().st_mtime_ns for path in records} == first


def test_a_second_start_of_the_same_campaign_is_kept_out(finished: Clone) -> None:
    holder = (
        "import sys, pathlib; sys.path.insert(0, 'src');"
        "from wattslice.config.start import CampaignLock;"
        "CampaignLock(pathlib.Path('results/tiny')).acquire(); print('held', flush=True);"
        "sys.stdin.read()"
    )
    python = finished.command()[0].replace("snakemake", "python")
    with subprocess.Popen(
        [python, "-c", holder],
        cwd=finished.folder,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        done = finished.snakemake("--forcerun", "report")
        assert done.returncode != 0
        assert f"run by process {process.pid}" in done.stdout + done.stderr
        process.kill()


def test_a_record_of_another_version_is_refused_by_the_aggregation(finished: Clone) -> None:
    path = next(finished.results.glob("runs/*/*/*/*/run.json"))
    record = json.loads(path.read_text())
    path.write_text(json.dumps({**record, "code_digest": "0" * 64}))
    done = finished.snakemake("--forcerun", "aggregate")
    assert done.returncode != 0
    assert "code digest" in done.stdout + done.stderr
