"""What the worker's step costs beside others': same model, batch, precision and process.

    PYTHONPATH=src python benchmarks/step.py [--steps 60] [--timm-benchmark benchmark.py]

Compared with a bare PyTorch loop, and

- for timm models with timm's own training benchmark: `benchmark.py` of timm's repository
  (github.com/huggingface/pytorch-image-models), which is in no package; give its path, else this
  comparison is left out. Its step has one constant batch of random images on the device;
- for transformers models with transformers' Trainer, which takes its batches from a DataLoader;
  gradient clipping, which the others do not do, is off.

All take turns step by step, in a new order in each round (the Trainer's step begins each round), so
that whatever else the machine does falls on all. Printed are the medians of wall time, and the
ratios of the others' medians to ours (1: as fast; above 1: ours is faster) with bootstrap 95 %
intervals. Exit code 0: the median of all ratios to the bare loop is 0.99 or more.

The default is one thread, for this reason: torch's OpenMP threads (libgomp) spin after each
parallel region unless OMP_WAIT_POLICY=passive. On two cores that other work shared (load 10), 300
small steps on two threads took 19 and 27 s of wall time so, and 1.4 and 1.7 s with `passive` (CPU
time 6.6 and 9.1 s against 0.4 s). Use more threads only on a machine with nothing else to do.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import logging
import statistics
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from interleaved import Contest, machine

from wattslice.config.expand import definition
from wattslice.config.load import load_files
from wattslice.train.clock import CudaClock, HostClock, StepClock
from wattslice.train.loop import StepLoop
from wattslice.workloads import data, precision, registry
from wattslice.workloads.workload import Workload

HEAD = (
    "| workload | precision | ours ms | bare ms | other ms | bare / ours | in CPU time "
    "| other / ours | |\n| --- | --- | ---: | ---: | ---: | --- | ---: | --- | --- |"
)
OTHERS = {"timm": "timm", "transformers": "Trainer"}
Step = Callable[[], object]


class BareLoop:
    """What one would write by hand."""

    def __init__(self, workload: Any, kind: str, device: torch.device) -> None:
        self.model = workload.model.to(device).train()
        self.optimizer = workload.optimizer(self.model)
        self.loss = workload.built.loss
        self.batches = workload.batches()
        self.device = device
        self.dtype = {"bf16": torch.bfloat16}.get(kind)
        self.kept: list[torch.Tensor] = []

    def step(self) -> None:
        batch = {k: v.to(self.device, non_blocking=True) for k, v in next(self.batches).items()}
        self.optimizer.zero_grad(set_to_none=True)
        if self.dtype is None:
            loss = self.loss(self.model, batch)
        else:
            with torch.autocast(self.device.type, dtype=self.dtype):
                loss = self.loss(self.model, batch)
        loss.backward()
        self.optimizer.step()
        self.kept.append(loss.detach())


def timm_step(path: Path, spec: dict[str, Any], kind: str, device: torch.device) -> Step:
    """One step of timm's TrainBenchmarkRunner, which is asked for runs of one step."""
    found = importlib.util.spec_from_file_location("timm_benchmark", path)
    if found is None or found.loader is None:
        raise SystemExit(f"{path} is not timm's benchmark.py")
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    logging.disable(logging.INFO)
    shape = data.shape_of(spec["data"])
    runner = module.TrainBenchmarkRunner(
        model_name=spec["model"],
        device=device.type,
        precision={"fp32": "float32", "bf16": "amp_bfloat16"}[kind],
        num_warm_iter=0,
        num_bench_iter=1,
        num_classes=shape.classes,
        input_size=(shape.channels, shape.image_size, shape.image_size),
        batch_size=spec["batch_size"],
        model_kwargs=_timm_arguments(spec, shape.image_size),
        gp=spec["model_args"].get("global_pool"),
        opt=spec["optimizer"]["name"],
        lr=spec["optimizer"]["lr"],
    )
    runner.log_freq = 10**9  # a fifth of one step
    runner._init_input()
    runner._init_input = lambda: None  # its batch is made once
    return runner.run  # type: ignore[no-any-return]


def _timm_arguments(spec: dict[str, Any], image_size: int | None) -> dict[str, Any]:
    arguments = {k: v for k, v in spec["model_args"].items() if k != "global_pool"}
    fixed = spec["model"].startswith("vit")
    return {**arguments, **({"img_size": image_size} if fixed else {})}


def train_with_trainer(
    workload: Workload, kind: str, device: torch.device, between: Callable[[], None], rounds: int
) -> None:
    """Run the Trainer for a number of steps; call `between` before each, and after the last."""
    import transformers

    class Between(transformers.TrainerCallback):
        def on_train_begin(self, *_: Any, **__: Any) -> None:
            between()

        def on_step_end(self, *_: Any, **__: Any) -> None:
            between()

    batch = next(workload.batches())
    samples = [{k: v[i] for k, v in batch.items()} for i in range(workload.batch_size)]
    model = workload.model.to(device).train()
    optimizer = workload.optimizer(model)
    constant = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda _: 1.0)
    with tempfile.TemporaryDirectory() as folder:
        arguments = transformers.TrainingArguments(
            output_dir=folder,
            max_steps=rounds,
            per_device_train_batch_size=workload.batch_size,
            bf16=kind == "bf16",
            use_cpu=device.type == "cpu",
            max_grad_norm=0.0,
            report_to=[],
            save_strategy="no",
            logging_strategy="no",
            disable_tqdm=True,
        )
        trainer = transformers.Trainer(
            model=model,
            args=arguments,
            train_dataset=samples * 64,
            optimizers=(optimizer, constant),
            callbacks=[Between()],
        )
        trainer.remove_callback(transformers.trainer_callback.PrinterCallback)
        trainer.train()


def compare(
    spec: dict[str, Any], kind: Any, device: torch.device, steps: int, timm_path: Path | None
) -> dict[str, Any]:
    """Time `steps` rounds; times in s, ratios of the others to ours."""
    contest = Contest(device)
    with precision.apply(kind, device.type) as context:
        bare = BareLoop(registry.build(spec, 0), kind, device)
        ours = StepLoop(registry.build(spec, 0), context, device)
        clock: StepClock = HostClock() if device.type == "cpu" else CudaClock(torch)

        def our_step() -> None:
            ours.step()
            clock.mark()  # as the worker does

        turns: dict[str, Step] = {"bare": bare.step, "ours": our_step}
        if spec["framework"] == "transformers":

            def between() -> None:
                contest.end("Trainer")
                contest.round(turns)
                contest.begin("Trainer")

            train_with_trainer(registry.build(spec, 0), kind, device, between, contest.warm + steps)
        else:
            if timm_path is not None:
                turns["timm"] = timm_step(timm_path, spec, kind, device)
            contest.run(turns, steps)
    other = OTHERS[spec["framework"]]
    return {
        "median_s": {name: contest.median_s(name) for name in contest.wall},
        "bare": contest.ratio(contest.wall, "bare", "ours"),
        "bare_cpu": contest.ratio(contest.cpu, "bare", "ours"),
        "other": contest.ratio(contest.wall, other, "ours") if other in contest.wall else None,
        "other_name": other,
        "same_losses": ours.losses() == [float(loss) for loss in bare.kept],
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--config", type=Path, nargs="+", default=[Path("config/config.yaml")])
    parser.add_argument("--workloads", nargs="*", help="default: all of the config")
    parser.add_argument("--precisions", nargs="+", default=["fp32", "bf16"])
    parser.add_argument("--steps", type=int, default=60, help="counted steps of each")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--timm-benchmark", type=Path, help="benchmark.py of timm's repository")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    campaign = load_files(arguments.config)
    where = machine(arguments.threads)
    if not arguments.json:
        print(f"{where}\n\n{HEAD}")
    rows = []
    for name in arguments.workloads or campaign.workloads:
        for kind in arguments.precisions:
            spec = dict(definition(campaign, name))
            row = compare(spec, kind, device, arguments.steps, arguments.timm_benchmark)
            rows.append({"workload": name, "precision": kind, **row})
            if not arguments.json:
                print(line(rows[-1]), flush=True)
    if arguments.json:
        print(json.dumps({"machine": where, "rows": rows}))
    middle = statistics.median(row["bare"].value for row in rows)
    print(f"median of the ratios to the bare loop: {middle:.4f}", file=sys.stderr)
    return 0 if middle >= 0.99 else 1


def line(row: dict[str, Any]) -> str:
    name, medians = row["other_name"], row["median_s"]
    times = " | ".join(
        f"{1e3 * medians[who]:.2f}" if who in medians else "-" for who in ("ours", "bare", name)
    )
    other = f"{name} {row['other']}" if row["other"] else f"{name} -"
    return (
        f"| {row['workload']} | {row['precision']} | {times} | {row['bare']} | "
        f"{row['bare_cpu'].value:.4f} | {other} | same losses: {row['same_losses']} |"
    )


if __name__ == "__main__":
    sys.exit(main())
