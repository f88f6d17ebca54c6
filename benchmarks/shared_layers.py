"""ALBERT-base beside DistilBERT: what sharing a layer's parameters costs, and what it does not.

    PYTHONPATH=src python benchmarks/shared_layers.py [--steps 5]

Both have layers of one shape (width 768, 12 heads, feed-forward 3072); DistilBERT has 6, ALBERT
applies its one layer 12 times. Same batch, sequence and precision, in one process, step by step in
turn. Printed: operations of a forward pass (torch's counter, and those of the layers alone, which
are exactly 2 to 1), saved activations (exact), and step time. `albert-base-gelu` has DistilBERT's
activation function.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import torch
from interleaved import Contest, machine

from wattslice.config.expand import definition
from wattslice.config.load import load_files
from wattslice.train.loop import StepLoop
from wattslice.workloads import data, flops, precision, registry

NAMES = ("distilbert-base", "albert-base", "albert-base-gelu")
CONFIG = Path("config/papers/paper-b.yaml")


def layer_flops(spec: dict[str, Any]) -> int:
    """Forward operations of the applied layers alone: with and without one of them."""
    key = "num_hidden_layers" if spec["model"] == "albert" else "n_layers"
    full = int(spec["model_args"].get(key, 6))
    counts = []
    for layers in (full, full - 1):
        less = {**spec, "model_args": {**spec["model_args"], key: layers}}
        built = registry.build_model(less, meta=True)
        counts.append(flops.forward_flops(built, data.shape_of(spec["data"]), spec["task"]))
    return full * (counts[0] - counts[1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--precision", default="fp32")
    parser.add_argument("--steps", type=int, default=5, help="counted steps of each")
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    campaign = load_files([CONFIG])
    specs = {
        name: {**definition(campaign, name), "batch_size": arguments.batch_size} for name in NAMES
    }
    print(machine(arguments.threads))
    contest = Contest(device, warm=1)
    rows: dict[str, dict[str, float]] = {}
    with precision.apply(arguments.precision, device.type) as context:
        loops = {}
        for name, spec in specs.items():
            built = registry.build_model(spec, meta=True)
            shape = data.shape_of(spec["data"])
            loops[name] = StepLoop(registry.build(spec, 0), context, device)
            rows[name] = {
                "forward GFLOP": flops.forward_flops(built, shape, spec["task"]) / 1e9,
                "of layers": layer_flops(spec) / 1e9,
                "saved MiB": loops[name].profile_memory()["activations_mib"],
            }
        contest.run({name: loop.step for name, loop in loops.items()}, arguments.steps)
    base = NAMES[0]
    for name, row in rows.items():
        row["step ms"] = 1e3 * contest.median_s(name)
        values = ", ".join(
            f"{key} {value:.4g} ({value / rows[base][key]:.4g}x)" for key, value in row.items()
        )
        print(f"{name}: {values}; step time over {base} {contest.ratio(contest.wall, name, base)}")


if __name__ == "__main__":
    main()
