"""Make the runs of a small campaign one after another, without Snakemake, within a time budget.

    PYTHONPATH=src python benchmarks/gpu_runs.py OUT.tar.xz [--budget-s 400] [--config FILE …]

For a machine that is had for some minutes only. The idle power is measured first; then the runs in
the order of the experiment's precisions, so that what is cut off is the last precision. Runs that
there was no time for are named, and are not in the campaign that is packed: its records, raw files
and manifest, as the workflow would have written them (tables and figures can be made from it).

Exit code: the number of runs that could not be made or had no outcome `ok`.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path

from wattslice.boards.discover import board_of
from wattslice.boards.inventory import take_inventory
from wattslice.boards.partition import try_layout
from wattslice.config.campaign import Campaign
from wattslice.config.expand import Run
from wattslice.config.layout import Layout
from wattslice.config.load import merge, read_yaml
from wattslice.files import write_json
from wattslice.measure.idle import measure_idle
from wattslice.provenance.environment import host

CONFIG = [Path("config/papers/paper-b.yaml"), Path("config/gpu-check.yaml")]


def read_campaign(paths: list[Path]) -> Campaign:
    raw: dict[str, object] = {}
    for path in paths:
        raw = merge(raw, read_yaml(path))
    return Campaign(raw)


def in_order(campaign: Campaign) -> list[Run]:
    precisions = campaign.config.experiments[0].precisions
    return sorted(campaign.runs, key=lambda run: precisions.index(run.precision))


def before_the_runs(campaign: Campaign, folder: Path) -> None:
    """Inventory, layout and idle power of the board, as the stages before `train` write them."""
    config = campaign.config
    settings = json.loads(campaign.idle_settings)
    for text in campaign.layouts:
        layout = Layout.parse(text)
        board = board_of(config.board, layout.boards)
        write_json(folder / "inventory.json", take_inventory(board, host()).model_dump(mode="json"))
        partition = try_layout(board, layout)
        write_json(folder / "partitions" / f"{text}.json", partition.model_dump(mode="json"))
        idle = measure_idle(board, layout, config.measure, settings, campaign.train_code)
        write_json(folder / "idle" / f"{text}.json", idle.model_dump(mode="json"))
        print(f"idle {text}: {idle.idle_w} W {idle.reason or ''}", flush=True)


def make(campaign: Campaign, run: Run, folder: Path) -> str:
    """Make one run in a process of its own; its outcome, or that there is no record."""
    record = folder / "runs" / run.run_id / "run.json"
    command = [sys.executable, "-m", "wattslice.train", "--spec", run.spec.canonical()]
    command += ["--code", campaign.train_code, "--campaign", campaign.name]
    command += ["--run", run.run_id, "--record", str(record)]
    code = subprocess.run(command, check=False, stdout=subprocess.DEVNULL).returncode
    if not record.is_file():
        return f"no record (exit code {code})"
    content = json.loads(record.read_text(encoding="utf-8"))
    return " ".join(filter(None, (content["outcome"], content["reason"])))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("out", type=Path, help="archive to write, .tar.xz")
    parser.add_argument("--config", type=Path, nargs="+", default=CONFIG)
    parser.add_argument("--budget-s", type=float, default=400.0, help="no run that would exceed it")
    arguments = parser.parse_args()
    start_s, longest_s, failed = time.monotonic(), 0.0, 0
    campaign = read_campaign(arguments.config)
    made = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / campaign.name
        before_the_runs(campaign, folder)
        for run in in_order(campaign):
            begin_s = time.monotonic()
            if begin_s - start_s + longest_s > arguments.budget_s:
                print(f"{run.run_id}: no time left")
                failed += 1
                continue
            outcome = make(campaign, run, folder)
            longest_s = max(longest_s, time.monotonic() - begin_s)
            print(f"{run.run_id}: {outcome}, {time.monotonic() - begin_s:.0f} s", flush=True)
            failed += not outcome.startswith("ok")
            if not outcome.startswith("no record"):
                made.append(run.run_id)
        manifest = campaign.manifest()
        manifest["runs"] = [entry for entry in manifest["runs"] if entry["run_id"] in made]
        write_json(folder / "campaign.json", manifest)
        with tarfile.open(arguments.out, "w:xz") as archive:
            archive.add(folder, arcname=campaign.name)
    print(f"{len(made)} runs in {arguments.out}, {time.monotonic() - start_s:.0f} s")
    return min(failed, 100)


if __name__ == "__main__":
    sys.exit(main())
