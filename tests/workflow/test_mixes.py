"""Mixes, baselines and the planner's validation: on two cores, and on a simulated A100."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from wattslice.planner.gains import GainTable
from wattslice.planner.records import Plan
from wattslice.planner.validation import Validation
from wattslice.records.metrics import RunMetrics
from wattslice.records.run import RunRecord
from wattslice.simulation.session import simulation
from workflow.conftest import TINY, Clone, make_clone
from workflow.test_simulated import SimulatedClone

pytestmark = [
    pytest.mark.timeout(1500),
    pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="two slices need two cores"),
]
ONE = {"precisions": ["fp32"], "repeats": 1}
MIXED = {
    **TINY,
    "mixes": {"pair": ["cnn", "distilbert"]},
    "plan": {"jobs": ["cnn", "distilbert"], "random": 1},
    "experiments": [
        {
            **ONE,
            "name": "solo",
            "layouts": ["full", "2x1c"],
            "workloads": ["cnn", "distilbert"],
            "placements": ["solo"],
        },
        {**ONE, "name": "divided", "layouts": ["2x1c"], "placements": ["pair"]},
        {
            **ONE,
            "name": "baselines",
            "layouts": ["full"],
            "placements": ["pair"],
            "sharing": ["sequential", "time-slice", "mps"],
        },
    ],
}


def _metrics(clone: Clone, run_id: str) -> RunMetrics:
    path = clone.results / "runs" / run_id / "metrics.json"
    return RunMetrics.model_validate_json(path.read_bytes())


def test_mixes_and_baselines_on_two_cores_and_the_plan_made_of_them(tmp_path: Path) -> None:
    clone = make_clone(tmp_path / "clone")
    clone.configure(MIXED)
    clone.snakemake("validate", "mix_gains", check=True)
    runs = pd.read_parquet(clone.results / "tables" / "runs.parquet").set_index("run_id")
    solo = ["full/cnn.solo/fp32/rep1", "full/distilbert.solo/fp32/rep1"]  # sequential, too
    mix, shared = "2x1c/mix.pair/fp32/rep1", "full/mix.pair.time-slice/fp32/rep1"
    mps = "full/mix.pair.mps/fp32/rep1"
    assert {*solo, mix, shared, mps} < set(runs.index)
    assert len(runs) == 2 + 2 + 3
    assert runs.loc[mps, "outcome"] == "unsupported_layout"
    assert "needs an NVIDIA board" in runs.loc[mps, "reason"]
    for run_id in (mix, shared):
        metrics = _metrics(clone, run_id)
        assert metrics.outcome == "ok"
        assert metrics.conservation is not None
        assert metrics.conservation.ok
        assert [w.workload for w in metrics.workers] == ["cnn", "distilbert"]
        assert all(w.throughput_samples_s.value for w in metrics.workers)
    slices = pd.read_parquet(clone.results / "tables" / "slices.parquet")
    for run_id in (mix, shared):  # shares add up to the energy above idle
        own = slices[slices["run_id"] == run_id]
        above_j = runs.loc[run_id, "gross_j"] - runs.loc[run_id, "idle_j"]
        assert own["energy_estimate_j"].sum() == pytest.approx(above_j, rel=1e-6)
    record = json.loads((clone.results / "runs" / shared / "run.json").read_text())
    cores = {tuple(worker["affinity"]) for worker in record["workers"]}
    assert len(cores) == 1  # every worker on all cores

    path = clone.results / "analysis" / "validation.json"
    found = Validation.model_validate_json(path.read_bytes())
    assert found.modelled
    assert {run.role for run in found.runs} == {"best"}  # 2x1c in one of two equal ways
    assert {figure.name for run in found.runs for figure in run.figures} == {
        "throughput",
        "progress",
        "mean_power",
    }
    assert [each.n for each in found.summary] == [2, 1, 1]  # how large is up to the machine
    assert clone.planned("validate") == {}

    gains = GainTable.model_validate_json(
        (clone.results / "analysis" / "mix-gains.json").read_bytes()
    )
    by_base = {gain.base: gain for gain in gains.gains}
    assert set(by_base) == {"sequential on full", "time-slice on full"}
    assert all(gain.throughput_gain is not None for gain in gains.gains)
    assert all(gain.energy_saved is not None and gain.modelled for gain in gains.gains)

    python = clone.command()[0].replace("snakemake", "python")
    plan = [python, "-m", "wattslice", "plan", "--table", "results/tiny", "--board", "cpu:2"]
    done = subprocess.run(
        [*plan, "--job", "cnn", "--job", "distilbert", "--json"],
        cwd=clone.folder,
        env={**clone.environment(), "PYTHONPATH": "src"},
        capture_output=True,
        text=True,
        check=True,
    )
    answer = Plan.model_validate_json(done.stdout)
    assert answer.proposals[0].layout == "2x1c"
    assert answer.modelled


LAYOUTS_OF_PAPER_A = {
    "4g+2g+1g": ["cnn", "distilbert", "distilbert"],
    "3g+2g+2x1g": ["cnn", "distilbert", "distilbert", "distilbert"],
}


def _workers(clone: Clone, placement: str) -> list[int]:
    """The workers of the run of a placement: direct children of its launcher, nothing they fork."""
    commands: dict[int, tuple[int, bytes]] = {}
    for entry in Path("/proc").iterdir():
        try:
            if (entry / "cwd").readlink() == clone.folder:
                parent = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
                commands[int(entry.name)] = parent, (entry / "cmdline").read_bytes()
        except (OSError, ValueError):
            continue
    return [
        pid
        for pid, (parent, command) in commands.items()
        if b"wattslice.train.worker" in command
        and f"/{placement}/".encode() in commands.get(parent, (0, b""))[1]
    ]


def test_paper_as_mixed_layouts_on_a_simulated_a100_and_a_worker_killed_at_random(
    tmp_path: Path,
) -> None:
    plain = make_clone(tmp_path / "clone")
    experiments: list[dict[str, Any]] = [
        {**ONE, "name": f"mix{n}", "layouts": [layout], "placements": [f"mix{n}"]}
        for n, layout in enumerate(LAYOUTS_OF_PAPER_A)
    ]
    window = {"min_s": 4, "min_steps": 3, "max_s": 60}
    plain.configure(
        {
            **TINY,
            "board": {"kind": "nvidia", "mig": "managed", "power_model": None},
            "measure": {
                **TINY["measure"],  # type: ignore[dict-item]
                "window": window,
                "cooldown": {"max_s": 0},
            },
            "mixes": {f"mix{n}": mix for n, mix in enumerate(LAYOUTS_OF_PAPER_A.values())},
            "experiments": experiments,
        }
    )
    with simulation(["a100-sxm4-80gb"], mig=True) as board:
        clone = SimulatedClone(plain.folder, board)
        with subprocess.Popen(
            clone.command("--until", "metrics"),
            cwd=clone.folder,
            env=clone.environment(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        ) as campaign:
            deadline = time.monotonic() + 600
            victim = 0
            while not victim and campaign.poll() is None and time.monotonic() < deadline:
                workers = _workers(clone, "mix.mix1")
                if len(workers) == 4:
                    victim = random.Random(0).choice(sorted(workers))
                    os.kill(victim, signal.SIGKILL)
                time.sleep(0.05)
            campaign.wait(timeout=600)
    assert victim
    three = _record(clone, "4g+2g+1g/mix.mix0")
    assert three.outcome == "ok", three.reason
    assert [w.slice.profile for w in three.workers] == ["4g.40gb", "2g.20gb", "1g.10gb"]
    assert three.simulated
    four = _record(clone, "3g+2g+2x1g/mix.mix1")
    assert four.outcome == "error:killed"
    (lost,) = [worker for worker in four.workers if worker.outcome != "ok"]
    assert lost.pid == victim
    assert f"slice {lost.slice.index}: error:killed" in str(four.reason)
    assert "3 of 4 workers came through" in str(four.reason)
    assert four.window is not None
    assert sum(worker.steps > 0 for worker in four.workers) == 3


def _record(clone: Clone, placed: str) -> RunRecord:
    path = clone.results / "runs" / placed / "fp32" / "rep1" / "run.json"
    return RunRecord.model_validate_json(path.read_bytes())
