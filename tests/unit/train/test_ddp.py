"""Data-parallel training: two processes over gloo do what one does with the whole batch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from unit.train.test_launcher import FAST, _execute, _run
from unit.workloads.definitions import DIGITS, TEXT, TINY_DISTILBERT, TINY_VIT, workload
from wattslice.config.expand import expand
from wattslice.config.load import load_files
from wattslice.records.board import SliceState
from wattslice.train import ddp

STEPS = 10
# No batch normalisation: its statistics are those of each worker's own part.
VIT = workload("vit_tiny_patch16_224", "image-classification", DIGITS, model_args=TINY_VIT)
# Nor dropout: each worker has its own.
WITHOUT = {**TINY_DISTILBERT, "attention_dropout": 0.0}
MLM = workload("distilbert", "masked-lm", TEXT, model_args=WITHOUT)

WORKER = """
import json, sys, torch
from wattslice.train import ddp
from wattslice.train.loop import StepLoop
from wattslice.workloads import precision, registry
torch.set_num_threads(1)
definition, rank, world, file, steps = json.loads(sys.argv[1])
member = None
if world > 1:
    member = ddp.Member(ddp.Rendezvous(rank=rank, world_size=world, file=file), "cpu")
built = registry.build(definition, 7, rank, world)
loop = StepLoop(built, precision.apply("fp32", "cpu"), torch.device("cpu"), member)
for _ in range(steps):
    loop.step()
norm = sum(float(p.detach().double().square().sum()) for p in built.model.parameters())
said = (None, "window", None) if rank else ("window", None, None)
agreed = [member.agree(command) for command in said] if member else []
print(json.dumps({"losses": loop.losses(), "norm": norm, "agreed": agreed}))
if member:
    member.leave()
"""


def train(definition: dict[str, Any], world: int, folder: Path) -> list[dict[str, Any]]:
    processes = [
        subprocess.Popen(
            [
                sys.executable,
                "-c",
                WORKER,
                json.dumps([definition, rank, world, str(folder / f"meet{world}"), STEPS]),
            ],
            env={**os.environ, "PYTHONPATH": "src"},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        for rank in range(world)
    ]
    outputs = [process.communicate(timeout=200)[0] for process in processes]
    assert [process.returncode for process in processes] == [0] * world
    return [json.loads(output.splitlines()[-1]) for output in outputs]


@pytest.mark.parametrize("definition", [VIT, MLM], ids=["vit", "masked-lm"])
def test_two_workers_equal_one_on_the_whole_batch(definition, tmp_path):
    one = train({**definition, "batch_size": 8}, 1, tmp_path)[0]
    accumulate = {"batch_size": 4, "gradient_accumulation_steps": 2}
    two = train({**definition, **accumulate}, 2, tmp_path)
    for step in range(STEPS):
        mean = (two[0]["losses"][step] + two[1]["losses"][step]) / 2
        assert mean == pytest.approx(one["losses"][step], abs=1e-5)
    assert two[0]["losses"] != two[1]["losses"]  # each has its own samples
    assert two[0]["norm"] == two[1]["norm"]  # and both the same model
    assert two[0]["norm"] == pytest.approx(one["norm"], rel=1e-5)
    # A command counts once all have it, at the same step for all.
    assert two[0]["agreed"] == two[1]["agreed"] == [None, "window", None]


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="two workers need two cores")
def test_a_data_parallel_run_has_one_meter_and_a_worker_per_core_set(tmp_path):
    steps = {**FAST, "window": {"min_s": 1, "min_steps": 20, "max_s": 60}}
    placement = {"experiments__0__placements": ["ddp"]}
    run = _run("2x1c", measure=steps, **placement)
    assert run.placement == "resnet.ddp"
    assert run.spec.parallel == "ddp"
    assert run.spec.digest() != _run("2x1c", measure=steps).spec.digest()
    record, _ = _execute(run, tmp_path)
    assert record.outcome == "ok", record.reason
    first, second = record.workers
    assert set(first.affinity).isdisjoint(second.affinity)
    assert first.seed == second.seed
    assert first.data_parallel == {"rank": 0, "world_size": 2, "backend": "gloo"}
    assert second.data_parallel == {"rank": 1, "world_size": 2, "backend": "gloo"}
    assert first.steps == second.steps
    assert record.window is not None


def test_mig_instances_are_refused_with_the_reason():
    slices = [
        SliceState(index=i, name="3g", profile="3g.40gb", gpu_instance_id=i + 1) for i in range(2)
    ]
    with pytest.raises(ddp.RefusedError, match=r"3g\.40gb, 3g\.40gb.*peer-to-peer"):
        ddp.check(slices)
    ddp.check([SliceState(index=0, name="full", profile="full")])


def test_specs_of_other_runs_do_not_mention_it():
    for run in expand(load_files([Path("config/config.yaml")])):
        assert "parallel" not in run.spec.canonical()
