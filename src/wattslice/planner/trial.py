"""Run the layout that is predicted best and some others, and compare; needs the board.

The runs lie in results/<campaign>/validation/. One that is there already is kept while its spec
and the measuring code are the same.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from wattslice.analysis.metrics import run_metrics
from wattslice.boards.allocation import without_allocation
from wattslice.boards.base import Board
from wattslice.boards.discover import board_of
from wattslice.config.expand import definition, spec_measure
from wattslice.config.models import CampaignConfig
from wattslice.config.spec import Assignment, RunSpec
from wattslice.planner.boards import BoardModel, cpu_board, geometry_board, present_board
from wattslice.planner.errors import InfeasibleError, PlannerError
from wattslice.planner.predict import Job
from wattslice.planner.records import Validation
from wattslice.planner.search import Candidate, Options
from wattslice.planner.table import Table, read_campaign
from wattslice.planner.validation import best_is_best, choose, compare, members, summarise


def validate(config: CampaignConfig, folder: Path, code: str) -> Validation:
    """Plan from the tables of the campaign in `folder`, run, compare.

    `code` is the digest of the measuring code. Raises PlannerError where there is no plan or a
    run cannot be made.
    """
    precision = config.plan.precision or config.experiments[0].precisions[0]
    table = read_campaign(folder, precision, config.report.confidence)
    model = _board_model(board_of(config.board), config, table)
    table = table.renamed(model.aliases)
    names = list(config.plan.jobs) or table.workloads[: model.most_slices]
    jobs = [Job(f"{name}#{number}", name) for number, name in enumerate(names, start=1)]
    options = Options(table, jobs, model.memory_mib, table.power_limit_w)
    reference = table.reference(names)
    if reference is None:
        raise InfeasibleError(
            [f"neither full nor 7g was measured for all of {', '.join(names)}"],
            ["add an experiment of layouts [full] with placements [solo]"],
        )
    chosen = choose(
        options,
        model,
        reference,
        config.plan.objective,
        count=config.plan.random,
        seed=config.seed,
    )
    runs = []
    for number, (role, candidate) in enumerate(chosen):
        for repeat in range(1, config.plan.repeats + 1):
            spec = _spec(config, candidate, jobs, precision, repeat)
            run_id = f"{candidate.layout}/mix.validate-{number}/{precision}/rep{repeat}"
            out = folder / "validation" / run_id
            _make(spec, code, config.name, run_id, out)
            metrics = run_metrics(out, None)
            runs.append(compare(table, options, candidate, reference, role=role, metrics=metrics))
    return Validation(
        campaign=config.name,
        objective=config.plan.objective,
        precision=precision,
        jobs=tuple(names),
        reference=reference,
        board=model.name,
        layouts_possible=sum(len(layout.slices) > 1 for layout in model.layouts),
        runs=tuple(runs),
        summary=summarise(runs),
        best_is_best=best_is_best(runs, config.plan.objective),
        simulated=table.simulated,
        modelled=table.modelled,
        notes=tuple(table.notes),
    )


def _board_model(board: Board, config: CampaignConfig, table: Table) -> BoardModel:
    """The layouts that the campaign may make on the board."""
    limit = table.power_limit_w
    if board.identity.kind == "cpu":
        cores = max(profile.compute_slices for profile in board.capabilities().profiles)
        return cpu_board(cores, table.slices, limit)
    if config.board.mig != "managed":
        return present_board(board.identity.name, (s.name for s in board.slices()), limit)
    from wattslice.boards.nvidia.board import NvidiaBoard

    whole = without_allocation(board)
    assert isinstance(whole, NvidiaBoard)
    return geometry_board(whole.identity.name, whole.geometry(), table.slices, limit)


def _spec(
    config: CampaignConfig,
    candidate: Candidate,
    jobs: Sequence[Job],
    precision: str,
    repeat: int,
) -> RunSpec:
    return RunSpec(
        board=config.board.model_dump(mode="json"),
        layout=str(candidate.layout),
        assignments=tuple(
            Assignment(slice_index=index, workload=name, definition=definition(config, name))
            for index, name in enumerate(members(candidate, jobs))
            if name is not None
        ),
        precision=precision,
        repeat=repeat,
        seed=config.seed + 1000 * repeat,
        measure=spec_measure(config),
    )


def _make(spec: RunSpec, code: str, campaign: str, run_id: str, folder: Path) -> None:
    """Make the run unless it is there."""
    record = folder / "run.json"
    if record.is_file():
        old = json.loads(record.read_text(encoding="utf-8"))
        if (old["spec_digest"], old["code_digest"]) == (spec.digest(), code):
            return
    command = [sys.executable, "-m", "wattslice.train", "--spec", spec.canonical()]
    command += ["--code", code, "--campaign", campaign, "--run", run_id, "--record", str(record)]
    done = subprocess.run(command, check=False)
    if done.returncode:
        raise PlannerError(f"{run_id}: the run failed with exit code {done.returncode}")
