"""How long tables and report of 1,000 runs take, and how large they are.

    python benchmarks/report.py --runs 1000 --out /tmp/benchmark

Makes the records of 1,000 runs with 60 s of power at 10 Hz (synthetic, labelled simulated), and
then does what the rules `metrics`, `aggregate`, `analyse`, `claims` and `report` do, each in a
process of its own. Prints the time and the peak memory of each, the size of the page, and, with
--browser, how long Chromium takes to open it.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests")]

LIMITS = {"aggregate": 30.0, "page_mb": 15.0, "open_s": 3.0, "memory_gb": 1.0}
CONFIG = ROOT / "config" / "claims.yaml"


def make(folder: Path, runs: int) -> None:
    """Write the raw files of a campaign."""
    from fixtures.records import WORKLOADS, Truth, expected_of, make_config, make_idle, make_run
    from wattslice.files import write_json

    window = (1001.0, 1061.0)
    cells = [
        (layout, slices, kind, precision, workload)
        for layout, slices, kind in (
            ("full", 1, "solo"),
            ("2x3g", 2, "fill"),
            ("3x2g", 3, "fill"),
            ("7x1g", 7, "fill"),
            ("2x3g", 1, "solo"),
        )
        for precision in ("fp32", "fp32-default", "tf32", "bf16")
        for workload in WORKLOADS
    ]
    truths = []
    for index in range(runs):
        layout, slices, kind, precision, workload = cells[index % len(cells)]
        cost = WORKLOADS[workload][4]
        truths.append(
            Truth(
                layout=layout,
                placement=f"{workload}.{kind}",
                precision=precision,
                repeat=1 + index // len(cells),
                workloads=dict.fromkeys(range(slices), workload),
                step_s=0.1 * cost * (1 + 0.01 * (index % 7)),
                power_w=250.0 + index % 11,
                window=window,
                simulated=True,
                cuda_mib=3000.0 * cost,
            )
        )
    for truth in truths:
        idle = folder / "idle" / f"{truth.layout}.json"
        if not idle.exists():
            write_json(idle, make_idle(truth).model_dump(mode="json"))
        make_run(folder, truth)
    config = make_config(name=folder.name).model_dump(mode="json")
    write_json(folder / "campaign.json", {"config": config, "runs": expected_of(truths)})


def metrics(folder: Path) -> None:
    """Figures of each run from its raw files."""
    from wattslice.analysis.metrics import write_metrics

    for run in json.loads((folder / "campaign.json").read_text())["runs"]:
        run_dir = folder / "runs" / run["run_id"]
        idle = folder / "idle" / f"{run['run_id'].split('/')[0]}.json"
        write_metrics(run_dir, idle, run_dir / "metrics.json")


def script(name: str, folder: Path, *arguments: str) -> list[str]:
    """The command of a rule."""
    path = ROOT / "workflow" / "scripts" / name
    return [sys.executable, str(path), "--campaign", str(folder / "campaign.json"), *arguments]


def timed(command: list[str]) -> tuple[float, float, float]:
    """Seconds, CPU seconds and peak memory in GB of a command."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    start = time.perf_counter()
    with subprocess.Popen(command, env=environment) as process:
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{command[1]} failed with {process.returncode}")
    seconds = time.perf_counter() - start
    return seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1e6


def opened(page: Path, browser: str) -> float:
    """Seconds until Chromium has loaded and printed the page's elements, without its own start."""

    def dump(address: str) -> float:
        start = time.perf_counter()
        subprocess.run(
            [browser, "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom", address],
            check=True,
            capture_output=True,
        )
        return time.perf_counter() - start

    empty = min(dump("data:text/html,<p>empty</p>") for _ in range(3))
    return min(dump(page.as_uri()) for _ in range(3)) - empty


def main() -> int:
    """Run the benchmark; exit code 1 where a limit is not kept."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--out", type=Path, required=True, help="folder for the campaign")
    parser.add_argument("--browser", help="Chromium's command, to time the opening of the page")
    arguments = parser.parse_args()
    folder = arguments.out.resolve() / "benchmark"
    if not (folder / "campaign.json").exists():
        make(folder, arguments.runs)
    start = time.perf_counter()
    metrics(folder)
    own = resource.getrusage(resource.RUSAGE_SELF)
    found: dict[str, tuple[float, float, float]] = {
        "metrics (all runs, one process)": (
            time.perf_counter() - start,
            own.ru_utime + own.ru_stime,
            own.ru_maxrss / 1e6,
        )
    }
    analysis = folder / "analysis"
    page = folder / "report" / "index.html"
    for name, command in {
        "aggregate": script("aggregate.py", folder),
        "analyse": script("analyse.py", folder, "--out", str(analysis / "ratios.json")),
        "claims": script(
            "claims.py", folder, "--claims", str(CONFIG), "--out", str(analysis / "claims.json")
        ),
        "report": script("report.py", folder, "--out", str(page)),
    }.items():
        found[name] = timed(command)
    print(f"{arguments.runs} runs on {platform.processor() or platform.machine()}, ", end="")
    print(f"{os.cpu_count()} cores, Python {platform.python_version()}")
    print(f"load of the machine {os.getloadavg()[0]:.1f}")
    print(f"{'stage':34}{'seconds':>9}{'CPU s':>8}{'GB':>7}")
    for name, (seconds, cpu_s, memory) in found.items():
        print(f"{name:34}{seconds:9.1f}{cpu_s:8.1f}{memory:7.2f}")
    size = page.stat().st_size / 1e6
    print(f"page {size:.1f} MB")
    kept = [
        found["aggregate"][0] < LIMITS["aggregate"],
        found["aggregate"][2] < LIMITS["memory_gb"],
        size < LIMITS["page_mb"],
    ]
    if arguments.browser:
        seconds = opened(page, arguments.browser)
        print(f"opens in {seconds:.2f} s")
        kept.append(seconds < LIMITS["open_s"])
    return 0 if all(kept) else 1


if __name__ == "__main__":
    sys.exit(main())
