"""What the worker's step costs beside a bare PyTorch loop: same model, batches, precision, process.

    PYTHONPATH=src python benchmarks/step_loop.py [--steps 60] [--json]

The two take turns step by step, in random order within each pair, on models built alike, so that
whatever else the machine does falls on both. Printed are the medians of wall and of CPU time, the
ratio of medians (bare / ours: 1 is as fast as bare), a bootstrap 95 % interval of the wall ratio,
and whether the losses of both are the same numbers.

The default is one thread, for this reason: torch's OpenMP threads (libgomp) spin after each
parallel region unless OMP_WAIT_POLICY=passive. On two cores that other work shared (load 10), 300
small steps on two threads took 19 and 27 s of wall time so, and 1.4 and 1.7 s with `passive` (CPU
time 6.6 and 9.1 s against 0.4 s). Use more threads only on a machine with nothing else to do.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import torch

from wattslice.config.expand import definition
from wattslice.config.load import load_files
from wattslice.train.clock import CudaClock, HostClock, StepClock
from wattslice.train.loop import StepLoop
from wattslice.workloads import precision, registry

WARM = 5  # steps that are not counted


class BareLoop:
    """What one would write by hand."""

    def __init__(self, workload: Any, context: Any, device: Any) -> None:
        self.model = workload.model.to(device).train()
        self.optimizer = workload.optimizer(self.model)
        self.loss = workload.built.loss
        self.batches = workload.batches()
        self.device = device
        self.dtype = {"bf16": torch.bfloat16}.get(context.precision)
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


def compare(spec: dict[str, Any], kind: Any, device: torch.device, steps: int) -> dict[str, Any]:
    """Time `steps` steps of both loops; times in s, ratios bare / ours."""
    order = random.Random(0)
    with precision.apply(kind, device.type) as context:
        bare = BareLoop(registry.build(spec, 0), context, device)
        ours = StepLoop(registry.build(spec, 0), context, device)
        clocks: dict[str, StepClock] = {
            name: HostClock() if device.type == "cpu" else CudaClock(torch)
            for name in ("ours", "bare")
        }
        wall: dict[str, list[float]] = {"ours": [], "bare": []}
        cpu: dict[str, list[float]] = {"ours": [], "bare": []}

        def one(name: str) -> None:
            clocks[name].synchronise()
            begin, used = time.perf_counter(), time.process_time()
            if name == "ours":
                ours.step()
                clocks[name].mark()  # as the worker does
            else:
                bare.step()
            clocks[name].synchronise()
            wall[name].append(time.perf_counter() - begin)
            cpu[name].append(time.process_time() - used)

        for _ in range(WARM + steps):
            names = ["ours", "bare"]
            order.shuffle(names)
            for name in names:
                one(name)
        same = ours.losses() == [float(loss) for loss in bare.kept]
    wall = {name: times[WARM:] for name, times in wall.items()}
    cpu = {name: times[WARM:] for name, times in cpu.items()}
    ratios = sorted(_ratio(wall, order.choices(range(steps), k=steps)) for _ in range(1000))
    return {
        "wall_ours_s": statistics.median(wall["ours"]),
        "wall_bare_s": statistics.median(wall["bare"]),
        "wall_ratio": _ratio(wall, range(steps)),
        "wall_ratio_low": ratios[25],
        "wall_ratio_high": ratios[974],
        "cpu_ratio": _ratio(cpu, range(steps)),
        "same_losses": same,
    }


def _ratio(times: dict[str, list[float]], pairs: Any) -> float:
    chosen = list(pairs)
    medians = {name: statistics.median([v[i] for i in chosen]) for name, v in times.items()}
    return medians["bare"] / medians["ours"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--config", type=Path, nargs="+", default=[Path("config/config.yaml")])
    parser.add_argument("--workloads", nargs="*", help="default: all of the config")
    parser.add_argument("--precisions", nargs="+", default=["fp32", "bf16"])
    parser.add_argument("--steps", type=int, default=60, help="counted steps of each loop")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    campaign = load_files(arguments.config)
    rows = []
    for name in arguments.workloads or campaign.workloads:
        for kind in arguments.precisions:
            spec = dict(definition(campaign, name))
            row = {"workload": name, "precision": kind}
            row |= compare(spec, kind, device, arguments.steps)
            rows.append(row)
            if not arguments.json:
                print(
                    f"{name:12} {kind:12} ours {1e3 * row['wall_ours_s']:8.2f} ms  "
                    f"bare {1e3 * row['wall_bare_s']:8.2f} ms  ratio {row['wall_ratio']:.4f} "
                    f"[{row['wall_ratio_low']:.4f}, {row['wall_ratio_high']:.4f}]  "
                    f"cpu {row['cpu_ratio']:.4f}  same losses {row['same_losses']}",
                    flush=True,
                )
    if arguments.json:
        print(json.dumps({"device": str(device), "torch": torch.__version__, "rows": rows}))
    middle = statistics.median(row["wall_ratio"] for row in rows)
    print(f"median ratio {middle:.4f}", file=sys.stderr)
    return 0 if middle >= 0.99 else 1


if __name__ == "__main__":
    sys.exit(main())
