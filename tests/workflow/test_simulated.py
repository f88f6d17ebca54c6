"""A managed campaign on a simulated A100: partition, run, re-partition, restore, report."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from wattslice.planner.records import Validation
from wattslice.simulation.control import Control
from wattslice.simulation.session import Simulation, simulation
from workflow.conftest import TINY, Clone, make_clone

LAYOUTS = ["full", "2x3g", "4g+2g+1g"]
MANAGED = {
    **TINY,
    "board": {"kind": "nvidia", "mig": "managed", "power_model": None},
    "measure": {
        **TINY["measure"],  # type: ignore[dict-item]
        "cooldown": {"max_s": 0},
    },
    "experiments": [
        {
            "name": "managed",
            "layouts": LAYOUTS,
            "workloads": ["distilbert"],
            "precisions": ["fp32"],
            "placements": ["fill"],
            "repeats": 2,
        }
    ],
    "plan": {"jobs": ["distilbert", "distilbert"], "random": 1},
}


@dataclass(frozen=True)
class SimulatedClone(Clone):
    """A clone whose Snakemake sees a simulated board."""

    board: Simulation

    def environment(self) -> dict[str, str]:
        return self.board.environment(super().environment())

    def boards(self) -> Any:
        """What the board is like now, as our own command reads it."""
        python = str(Path(sys.executable).parent / "python")
        done = subprocess.run(
            [python, "-m", "wattslice", "boards", "--json"],
            cwd=self.folder,
            env={**self.environment(), "PYTHONPATH": "src"},
            capture_output=True,
            text=True,
            check=True,
        )
        found = json.loads(done.stdout)
        return [board for board in found["boards"] if board["identity"]["kind"] == "nvidia"]

    def make(self, layout: str) -> None:
        code = (
            "import sys; from wattslice.boards.nvidia.board import discover;"
            "from wattslice.config.layout import Layout;"
            "board = discover('managed')[0];"
            "board.lease().__enter__(); board.ensure(Layout.parse(sys.argv[1]))"
        )
        subprocess.run(
            [sys.executable, "-c", code, layout],
            cwd=self.folder,
            env={**self.environment(), "PYTHONPATH": "src"},
            check=True,
        )


@pytest.fixture
def simulated(tmp_path: Path) -> Iterator[SimulatedClone]:
    plain = make_clone(tmp_path / "clone")
    plain.configure(MANAGED)
    with simulation(["a100-sxm4-80gb"], mig=True) as board:
        yield SimulatedClone(plain.folder, board)


def _slices(boards: Any) -> Any:
    return [(board.get("mig_mode"), board["slices"]) for board in boards]


def test_a_managed_campaign_partitions_once_a_layout_validates_and_restores_the_board(
    simulated: SimulatedClone,
) -> None:
    simulated.make("3g+2g")
    before = simulated.boards()
    created: Control = simulated.board.control()
    count = created.add_fault("nvmlDeviceCreateGpuInstance*", 999, from_call=10**9)
    simulated.snakemake(check=True)
    assert _slices(simulated.boards()) == _slices(before)
    assert not (simulated.results / "board-before.json").exists()
    # 2 + 3 instances of the two MIG layouts, tried once and made once for idle and all runs, and
    # the 2 of the user's layout put back after each of three trials and at the end.
    assert created.fault_calls(count) <= 2 * (2 + 3) + 4 * 2
    runs = pd.read_parquet(simulated.results / "tables" / "runs.parquet")
    assert len(runs) == 6
    assert runs["simulated"].all()
    assert (runs["outcome"] == "ok").all(), runs[["run_id", "outcome", "reason"]]
    assert (runs["samples_per_j"] > 0).all()
    page = (simulated.results / "report" / "index.html").read_text()
    assert "simulated" in page.lower()
    for figure in simulated.results.glob("figures/*.svg"):
        text = figure.read_text().lower()
        assert "simulated" in text or "no data" in text, figure.name
    record = json.loads(
        (simulated.results / "runs/4g+2g+1g/distilbert.fill/fp32/rep1/run.json").read_text()
    )
    assert [s["profile"] for s in record["layout_state"]["slices"]] == [
        "4g.40gb",
        "2g.20gb",
        "1g.10gb",
    ]
    assert record["board"]["simulated"] is True
    _validates(simulated)
    assert _slices(simulated.boards()) == _slices(before)


def _validates(simulated: SimulatedClone) -> None:
    """The planner's best layout and one more are run; the report would show it next."""
    simulated.snakemake("validate", check=True)
    path = simulated.results / "analysis" / "validation.json"
    found = Validation.model_validate_json(path.read_bytes())
    assert [run.role for run in found.runs] == ["best", "random"]
    assert len({run.layout for run in found.runs}) == 2
    assert {run.outcome for run in found.runs} == {"ok"}
    assert found.simulated
    assert (found.reference, found.jobs) == ("full", ("distilbert", "distilbert"))
    # Two jobs, and progress, energy and power of each run; how far off is up to the machine.
    assert [each.n for each in found.summary] == [4, 2, 2, 2]
    assert simulated.planned("validate") == {}
    assert set(simulated.planned()) == {"figures", "report", "crate", "manifest"}


def test_after_kill_9_the_target_restore_puts_the_board_back(simulated: SimulatedClone) -> None:
    simulated.make("3g+2g")
    before = _slices(simulated.boards())
    with subprocess.Popen(
        simulated.command(),
        cwd=simulated.folder,
        env=simulated.environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as campaign:
        assert campaign.stdout is not None
        # The line of the first finished run: the board is in the campaign's layout.
        assert any("rep1  ok" in line for line in campaign.stdout)
        os.kill(campaign.pid, signal.SIGKILL)
        campaign.wait()
    assert _slices(simulated.boards()) != before
    simulated.snakemake("restore", check=True)
    assert _slices(simulated.boards()) == before


def test_a_layout_that_cannot_exist_stops_before_any_training(simulated: SimulatedClone) -> None:
    experiment = MANAGED["experiments"][0] | {"layouts": ["4g+2g+2g"]}  # type: ignore[index]
    simulated.configure({**MANAGED, "experiments": [experiment]})
    done = simulated.snakemake()
    assert done.returncode != 0
    text = done.stdout + done.stderr
    assert "4g+2x2g" in text
    assert "nearest possible" in text
    assert not list(simulated.results.glob("runs/**/run.json"))


def test_existing_mode_changes_nothing_and_says_what_is_there(simulated: SimulatedClone) -> None:
    simulated.make("3g+2g")
    before = _slices(simulated.boards())
    board = {"kind": "nvidia", "mig": "existing", "power_model": None}
    simulated.configure({**MANAGED, "board": board})
    done = simulated.snakemake()
    assert done.returncode != 0
    assert "3g" in done.stdout + done.stderr
    assert _slices(simulated.boards()) == before
