"""Mixes and their baselines: on two cores, and on a simulated A100."""

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

from wattslice.analysis.ratios import Ratio, read_ratios
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
    "experiments": [
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


def test_mixes_and_baselines_on_two_cores_conserve_work_and_energy(tmp_path: Path) -> None:
    clone = make_clone(tmp_path / "clone")
    clone.configure(MIXED)
    clone.snakemake("analyse", check=True)
    runs = pd.read_parquet(clone.results / "tables" / "runs.parquet").set_index("run_id")
    solo = ["full/cnn.solo/fp32/rep1", "full/distilbert.solo/fp32/rep1"]  # sequential, too
    mix, shared = "2x1c/mix.pair/fp32/rep1", "full/mix.pair.time-slice/fp32/rep1"
    mps = "full/mix.pair.mps/fp32/rep1"
    assert set(runs.index) == {*solo, mix, shared, mps}
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

    gains = _gains(clone, "2x1c")
    over = {ratio.denominator for ratio in gains}
    assert over == {"sequential on full", "time-slice on full", "mps on full"}
    for ratio in gains:
        had = ratio.denominator != "mps on full"
        assert (ratio.value is not None) == had, ratio.reason
        assert ratio.modelled == (ratio.kind == "mix_energy")
    rate = slices.set_index(["run_id", "workload"])["throughput_samples_s"]
    parts = [rate[mix, run_id.split("/")[1][:-5]] / rate[run_id].iloc[0] for run_id in solo]
    progress = next(r for r in gains if r.name.endswith("fp32/over sequential on full"))
    assert progress.value == pytest.approx(sum(parts), rel=1e-9)


def _gains(clone: Clone, layout: str) -> list[Ratio]:
    table = read_ratios(clone.results / "analysis")
    return [r for r in table.ratios if r.kind.startswith("mix_") and r.layout == layout]


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
