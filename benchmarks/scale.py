"""What a campaign of thousands of runs costs beside the runs: planning, checking again, tables.

    python benchmarks/scale.py --runs 100 1000 10000 --out docs/scale.json
    python benchmarks/scale.py --default            # the default campaign's dry run

Nothing is trained. Planning is a dry run of a fresh folder, the no-op is one of a folder in which
every output exists; both are compared with a Snakefile of as many jobs that only touch files,
three per run and with the same files, under the same options. Tables are made of synthetic run
folders. Every time is the least of `--repeat` calls, as load only ever adds to it; ratios are of
CPU time, which other load on the machine changes less.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests")]

from wattslice.boards.cpu.board import cpu_name  # noqa: E402
from wattslice.config.campaign import Campaign  # noqa: E402
from wattslice.config.load import read_yaml  # noqa: E402

BARE = """
runs = [line.strip() for line in open("runs.txt")]

rule all:
    input: expand("out/{run}/metrics.json", run=runs), expand("out/{run}/run.json", run=runs)

rule prepare:
    output: "out/prepared.json"
    params: spec="x"
    shell: "touch {output}"

rule train:
    input: "out/prepared.json"
    output: "out/{run}/run.json", "out/{run}/steps.parquet", "out/{run}/power.parquet"
    log: "logs/{run}.log"
    params: spec="x", code="y"
    shell: "touch {output}"

rule metrics:
    input: "out/{run}/run.json", "out/{run}/steps.parquet", "out/{run}/power.parquet"
    output: "out/{run}/metrics.json"
    log: "logs/metrics/{run}.log"
    params: code="z"
    shell: "touch {output}"

wildcard_constraints:
    run=r"[^/]+/[^/]+/[^/]+/[^/]+"
"""


def campaign_config(runs: int) -> dict[str, Any]:
    """A campaign of that many runs: all workloads, two layouts, two precisions, many repeats."""
    config = dict(read_yaml(ROOT / "config" / "config.yaml"))
    (experiment,) = config["experiments"][:1]
    workloads = experiment["workloads"]
    per_repeat = 2 * 2 * len(workloads)
    repeats = max(1, math.ceil(runs / per_repeat))
    experiment = {**experiment, "layouts": ["full", "2x1c"], "precisions": ["fp32", "bf16"]}
    experiment |= {"placements": ["fill"], "repeats": repeats}
    return {**config, "name": "scale", "experiments": [experiment]}


def snakemake(folder: Path, *arguments: str) -> tuple[float, float]:
    """(wall, CPU) time of a call, s. Ends the benchmark where it fails."""
    # As at a user's: what the first call compiles and remembers is there for the second.
    left_out = ("PYTHONPATH", "PYTHONDONTWRITEBYTECODE")
    environ = {key: value for key, value in os.environ.items() if key not in left_out}
    command = [str(Path(sys.executable).parent / "snakemake"), *arguments]
    return timed(command, folder, environ)


def timed(command: Sequence[str], folder: Path, environ: dict[str, str]) -> tuple[float, float]:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    begin = time.perf_counter()
    done = subprocess.run(
        command, cwd=folder, env=environ, capture_output=True, text=True, check=False
    )
    seconds = time.perf_counter() - begin
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)} failed:\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return seconds, cpu


def least(name: str, repeat: int, call: Callable[[], tuple[float, float]]) -> dict[str, float]:
    """The least wall and CPU time of some calls."""
    times = [call() for _ in range(repeat)]
    return {f"{name}_s": min(t[0] for t in times), f"{name}_cpu_s": min(t[1] for t in times)}


def clone(folder: Path) -> Path:
    """The workflow without results, in a folder of its own."""
    folder.mkdir(parents=True)
    for name in ("Snakefile", "workflow", "src", "config", "profiles"):
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy2(source, folder / name)
    return folder


OPTIONS = ("--cores", "2", "--scheduler", "greedy", "--nolock", "--quiet", "all")


def ours(folder: Path, runs: int, repeat: int) -> dict[str, float]:
    """Dry runs of a campaign: nothing made, then everything there."""
    config = campaign_config(runs)
    (folder / "scale.yaml").write_text(yaml.safe_dump(config))
    flags = ["--configfile", "scale.yaml", *OPTIONS]
    target = ("--", "metrics_of_all")
    # A target of runs and their metrics only: what comes after them is a handful of jobs.
    (folder / "Snakefile").write_text(
        (ROOT / "Snakefile").read_text()
        + "\n\nrule metrics_of_all:\n    input:\n"
        + '        every_run("run.json"),\n        every_run("metrics.json"),\n'
    )
    found = least("plan", repeat, lambda: snakemake(folder, "-n", *flags, *target))
    made = Campaign(config)
    results = folder / "results" / "scale"
    for name in ("campaign.json", "inventory.json"):
        touch(results / name)
    for layout in made.layouts:
        touch(results / "partitions" / f"{layout}.json")
    for layout in made.layouts:
        touch(results / "idle" / f"{layout}.json")
    names = ("run.json", "steps.parquet", "power.parquet", "metrics.json")
    for name in names:
        for run in made.runs:
            touch(results / "runs" / run.run_id / name)
    snakemake(folder, "--touch", *flags, *target)
    found |= least("noop", repeat, lambda: snakemake(folder, "-n", *flags, *target))
    begin = time.perf_counter()
    manifest = json.dumps(Campaign(config).manifest())
    manifest_s = time.perf_counter() - begin
    shutil.rmtree(results)
    shutil.rmtree(folder / ".snakemake", ignore_errors=True)
    return {
        "runs": len(made.runs),
        **found,
        "manifest_s": manifest_s,
        "manifest_mb": len(manifest) / 1e6,
    }


def touch(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("{}")


def bare(folder: Path, runs: Sequence[str], repeat: int) -> dict[str, float]:
    """The same for jobs that do nothing."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "Snakefile").write_text(BARE)
    (folder / "runs.txt").write_text("\n".join(runs))
    found = least("plan", repeat, lambda: snakemake(folder, "-n", *OPTIONS))
    touch(folder / "out" / "prepared.json")
    for name in ("run.json", "steps.parquet", "power.parquet", "metrics.json"):
        for run in runs:
            touch(folder / "out" / run / name)
    snakemake(folder, "--touch", *OPTIONS)
    found |= least("noop", repeat, lambda: snakemake(folder, "-n", *OPTIONS))
    shutil.rmtree(folder)
    return found


def tables(folder: Path, runs: int) -> dict[str, float]:
    """Time of `aggregate` over synthetic runs of 10 s windows; writing the folders is not in it."""
    from fixtures.records import CODE_DIGEST, make_run, make_spec
    from wattslice.analysis.metrics import write_metrics

    campaign = folder / "tables"
    layouts = ("full", "2x1c")
    expected = []
    for truth in _truths(runs, layouts):
        run_dir = make_run(campaign, truth)
        write_metrics(run_dir, None, run_dir / "metrics.json")
        spec = make_spec(truth).digest()
        expected.append({"run_id": truth.run_id, "spec_digest": spec, "code_digest": CODE_DIGEST})
    (campaign / "campaign.json").write_text(
        json.dumps({"config": {"report": {"confidence": 0.95}}, "runs": expected})
    )
    script = ROOT / "workflow" / "scripts" / "aggregate.py"
    seconds, cpu = timed(
        [sys.executable, str(script), "--campaign", str(campaign / "campaign.json")],
        folder,
        {**os.environ, "PYTHONPATH": str(ROOT / "src")},
    )
    peak_mib = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    shutil.rmtree(campaign)
    return {"aggregate_s": seconds, "aggregate_cpu_s": cpu, "peak_mib_so_far": peak_mib}


def _truths(runs: int, layouts: Sequence[str]) -> Iterator[Any]:
    from fixtures.records import Truth

    for index in range(runs):
        layout = layouts[index % 2]
        precision = ("fp32", "bf16")[index // 2 % 2]
        workers = {0: "cnn"} if layout == "full" else {0: "cnn", 1: "cnn"}
        yield Truth(
            layout=layout,
            placement="cnn.fill" if layout != "full" else "cnn.solo",
            precision=precision,
            repeat=index // 4 + 1,
            workloads=workers,
            step_s=0.1 + 1e-6 * index,
        )


def default_campaign(folder: Path, repeat: int) -> dict[str, float]:
    """The default campaign's dry run beside one of a bare Snakefile with as many jobs."""
    made = Campaign(read_yaml(ROOT / "config" / "config.yaml"))
    flags = ["-n", "--cores", "2"]
    found = least("campaign", repeat, lambda: snakemake(folder, *flags))
    other = bare(folder / "bare", [run.run_id for run in made.runs], repeat)
    return {
        "runs": len(made.runs),
        **found,
        "bare_s": other["plan_s"],
        "bare_cpu_s": other["plan_cpu_s"],
        "more_s": found["campaign_s"] - other["plan_s"],
        "more_cpu_s": found["campaign_cpu_s"] - other["plan_cpu_s"],
    }


def machine() -> dict[str, Any]:
    return {
        "cpu": cpu_name(),
        "cores": os.cpu_count(),
        "load_1min": os.getloadavg()[0],
        "python": platform.python_version(),
        "kernel": platform.release(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--runs", type=int, nargs="*", default=[])
    parser.add_argument("--repeat", type=int, default=2)
    parser.add_argument("--default", action="store_true", help="the default campaign as well")
    parser.add_argument("--skip-tables", action="store_true")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    result: dict[str, Any] = {"machine": machine(), "scale": []}
    with tempfile.TemporaryDirectory(prefix="wattslice-scale-") as name:
        folder = clone(Path(name) / "clone")
        if arguments.default:
            result["default"] = default_campaign(folder, arguments.repeat)
            print(json.dumps(result["default"]), flush=True)
        for runs in arguments.runs:
            row: dict[str, Any] = ours(folder, runs, arguments.repeat)
            ids = [run.run_id for run in Campaign(campaign_config(runs)).runs]
            row |= {
                f"bare_{k}": v for k, v in bare(Path(name) / "bare", ids, arguments.repeat).items()
            }
            for stage in ("plan", "noop"):
                row[f"{stage}_ratio"] = row[f"{stage}_cpu_s"] / row[f"bare_{stage}_cpu_s"]
            if not arguments.skip_tables:
                row |= tables(Path(name), len(ids))
            print(json.dumps(row), flush=True)
            result["scale"].append(row)
    if arguments.out:
        arguments.out.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
