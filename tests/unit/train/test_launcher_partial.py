"""Workers that are lost: killed at random in every phase, out of memory, or hanging."""

from __future__ import annotations

import os
import random
import signal
from pathlib import Path
from typing import Any

import pytest

from unit.config.campaigns import campaign
from wattslice.analysis.metrics import run_metrics
from wattslice.config.campaign import Campaign
from wattslice.config.expand import Run
from wattslice.records.run import RunRecord
from wattslice.train import launcher
from wattslice.train.group import WorkerFailedError, WorkerGroup
from wattslice.train.protocol import WorkerJob

pytestmark = pytest.mark.skipif(
    len(os.sched_getaffinity(0)) < 2, reason="two slices need two cores"
)
FAST = {
    "sample_hz": 10,
    "idle_s": 1,
    "warmup": {"min_steps": 2, "cv_steps": 3, "cv_max": 10, "max_s": 5},
    "window": {"min_s": 1, "min_steps": 3, "max_s": 30},
}
SMALL = {
    "hidden_size": 32,
    "embedding_size": 16,
    "intermediate_size": 64,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
}
# Two models of one library, whose import takes a fifth of the other's.
ENCODERS = {
    name: {
        "framework": "transformers",
        "model": name,
        "task": "masked-lm",
        "data": "text",
        "batch_size": 4,
        "model_args": SMALL
        if name == "albert"
        else {"dim": 32, "hidden_dim": 64, "n_layers": 1, "n_heads": 2},
    }
    for name in ("albert", "distilbert")
}
MODEL = {"kind": "cpu", "power_model": {"idle_w": 10, "active_w_per_core": 5, "source": "test"}}


def mixed_run(*, allow_partial: bool = False, **changes: Any) -> Run:
    """Two workloads on two cores, a core each."""
    defaults: dict[str, Any] = {
        "measure": {**FAST, "allow_partial": allow_partial},
        "board": MODEL,
        "workloads": ENCODERS,
        "mixes": {"both": ["distilbert", "albert"]},
        # A few steps do not make a loss fall for sure; on synthetic data it is not asked to.
        "data__text": {"kind": "synthetic-tokens", "samples": 16, "vocabulary": 64},
        "experiments__0__layouts": ["2x1c"],
        "experiments__0__workloads": [],
        "experiments__0__precisions": ["fp32"],
        "experiments__0__placements": ["both"],
        "experiments__0__repeats": 1,
    }
    return Campaign(campaign(**{**defaults, **changes})).runs[0]


def execute(run: Run, folder: Path) -> RunRecord:
    launcher.execute(run.spec, "c", folder, "test", run.run_id)
    return RunRecord.model_validate_json((folder / "run.json").read_bytes())


@pytest.fixture(autouse=True)
def _own_leases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WATTSLICE_LEASE_DIR", str(tmp_path / "leases"))
    monkeypatch.setenv("PYTHONPATH", "src")


class Killer:
    """Kills a worker, drawn at random, when the group comes to a phase."""

    def __init__(self, phase: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.victim = random.Random(phase).randrange(2)
        self.phase = phase
        self.killed = False
        command, wait = WorkerGroup.command, WorkerGroup.wait

        def waiting(group: WorkerGroup, message: str, timeout_s: float, phase: str) -> None:
            if message == "ready" and self.phase == "building":
                self.kill(group)
            wait(group, message, timeout_s, phase)

        def commanding(group: WorkerGroup, word: Any) -> None:
            if word == self.phase:
                self.kill(group)
            command(group, word)
            if (self.phase, word) == ("warm-up", "go"):
                self.kill(group)

        hold = launcher._hold_window

        def holding(group: WorkerGroup, *rest: Any, **named: Any) -> None:
            if self.phase == "inside the window":
                self.kill(group)
            hold(group, *rest, **named)

        monkeypatch.setattr(WorkerGroup, "wait", waiting)
        monkeypatch.setattr(WorkerGroup, "command", commanding)
        monkeypatch.setattr(launcher, "_hold_window", holding)

    def kill(self, group: WorkerGroup) -> None:
        if not self.killed:
            self.killed = True
            os.kill(group.workers[self.victim].process.pid, signal.SIGKILL)


PHASES = ("building", "warm-up", "window", "inside the window", "stop")


@pytest.mark.parametrize("phase", PHASES)
def test_a_worker_killed_at_random_is_named_and_the_others_go_on(
    phase: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killer = Killer(phase, monkeypatch)
    partial = phase in ("warm-up", "inside the window")  # and without in the other phases
    record = execute(mixed_run(allow_partial=partial), tmp_path)
    victim, survivor = record.workers[killer.victim], record.workers[1 - killer.victim]
    assert killer.killed
    assert (victim.outcome, survivor.outcome) == ("error:killed", "ok")
    assert victim.slice.index == killer.victim
    assert record.reason is not None
    assert f"slice {killer.victim}: error:killed" in record.reason
    assert "1 of 2 workers came through" in record.reason
    assert record.outcome == ("ok" if partial else "error:killed")
    assert survivor.steps >= 3
    assert record.window is not None
    assert survivor.window_start_s is not None
    assert record.window.start_s >= survivor.window_start_s
    if phase == "inside the window":  # it starts again after the loss, at full length
        assert record.window.start_s > survivor.window_start_s
    if phase != "stop":
        assert record.window.end_s - record.window.start_s >= 1.0
    metrics = run_metrics(tmp_path, None)
    lost, kept = (metrics.workers[i] for i in (killer.victim, 1 - killer.victim))
    assert lost.samples.value is None
    assert (kept.throughput_samples_s.value is not None) == partial
    if partial:
        assert metrics.energy is not None
        assert metrics.energy.gross_j is not None


def test_a_worker_out_of_memory_leaves_the_other_training(tmp_path: Path) -> None:
    images = {"framework": "timm", "model": "resnet10t", "task": "image-classification"}
    run = mixed_run(
        workloads={**ENCODERS, "resnet": {**images, "data": "digits", "batch_size": 10**6}},
        mixes={"both": ["resnet", "albert"]},
        data__digits={"kind": "synthetic-images", "samples": 64, "image_size": 1024},
    )
    record = execute(run, tmp_path)
    assert record.outcome == "oom"
    assert [worker.outcome for worker in record.workers] == ["oom", "ok"]
    assert str(record.reason).startswith("slice 0: oom")
    assert record.workers[1].steps >= 3
    assert record.window is not None


def _job(index: int) -> WorkerJob:
    (run,) = [mixed_run()]
    assignment = run.spec.assignments[index]
    return WorkerJob(
        slice_index=index,
        definition=assignment.definition,
        workload=assignment.workload,
        precision="fp32",
        seed=0,
        device="cpu",
        device_uuid=None,
        cores=(),
        threads=1,
        simulated_slice=None,
        warmup=FAST["warmup"],  # type: ignore[arg-type]
        min_steps=3,
        parent_pid=os.getpid(),
    )


def test_a_worker_that_hangs_is_late_and_a_group_without_workers_ends() -> None:
    group = WorkerGroup([(_job(0), {}), (_job(1), {})])
    try:
        os.kill(group.workers[0].process.pid, signal.SIGSTOP)
        # The other one is ready long before; the time is that of a slow machine.
        os.kill(group.workers[1].process.pid, signal.SIGTERM)
        with pytest.raises(WorkerFailedError, match=r"slice 1: error:killed: .*SIGTERM"):
            group.wait("ready", 3.0, "building the model")
        assert [loss.outcome for loss in group.losses] == ["error:killed", "error:timeout"]
        assert all(worker.process.poll() is not None for worker in group.workers)
    finally:
        group.close()
