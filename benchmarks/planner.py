"""How fast the planner is, and how close to the optimum: 1,000 jobs on 64 boards.

    python benchmarks/planner.py [--jobs 1000] [--boards 64] [--seeds 3]

Jobs are drawn from the example table (config/planner-example), their work log-uniform between 2
minutes and 2 hours of a whole board. Prints one JSON line per instance: the plan's value, the
proved bound, the gap between them and the seconds that it took.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from pathlib import Path

from wattslice.planner.boards import board_for
from wattslice.planner.fleet import plan_fleet
from wattslice.planner.pool import Group
from wattslice.planner.predict import Job
from wattslice.planner.search import Objective, Options
from wattslice.planner.table import read_csv

TABLE = Path(__file__).resolve().parents[1] / "config/planner-example/miso-a100-40gb.csv"
LIMIT_W = 400.0
OBJECTIVES: tuple[Objective, ...] = ("makespan", "energy")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=1000)
    parser.add_argument("--boards", type=int, default=64)
    parser.add_argument("--seeds", type=int, default=3)
    arguments = parser.parse_args()
    table = read_csv(TABLE)
    board = board_for("a100-sxm4-40gb", table.slices, LIMIT_W)
    for seed in range(arguments.seeds):
        draw = random.Random(seed)
        jobs = [
            Job(f"job{i}", draw.choice(table.workloads), work=120 * 60 ** draw.random())
            for i in range(arguments.jobs)
        ]
        options = Options(table, jobs, board.memory_mib, board.power_limit_w)
        for objective in OBJECTIVES:
            plan = plan_fleet([Group(options, board.layouts, arguments.boards)], objective)
            row = {
                "seed": seed,
                "objective": objective,
                "jobs": arguments.jobs,
                "boards": arguments.boards,
                "value": round(plan.value, 1),
                "bound": round(plan.bound, 1),
                "gap": round(plan.gap, 5),
                "seconds": round(plan.seconds, 2),
            }
            print(json.dumps(row), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
