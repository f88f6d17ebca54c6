"""Tables, answers, refusals and the command, on tables whose best layout is known."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from wattslice import cli
from wattslice.planner.boards import board_for
from wattslice.planner.cli import parse_job, text
from wattslice.planner.errors import InfeasibleError, TableError
from wattslice.planner.plan import plan
from wattslice.planner.records import Plan, PlanRequest
from wattslice.planner.table import read_campaign, read_csv

EXAMPLE = Path("config/planner-example")
MISO = EXAMPLE / "miso-a100-40gb.csv"


def _plan(table: Path = MISO, **request: Any) -> Plan:
    known = read_csv(table)
    asked = PlanRequest.model_validate({"board": "a100-sxm4-40gb", **request})
    return plan(asked, known, board_for(asked.board, known.slices))


def _jobs(*names: str, **more: Any) -> list[dict[str, Any]]:
    return [{"workload": name, **more} for name in names]


@pytest.mark.parametrize(
    ("workload", "count", "layout", "total"),
    [
        # Aggregates of the published ratios: 7x1g, 3x2g (a 1g is free), 2x3g.
        ("mobilenet-64", 7, "7x1g", 5.67),
        ("resnet50-32px-512", 7, "7x1g", 1.54),
        ("transformer-32", 2, "4g+3g", 1.12),
        ("bert-base-8", 2, "4g+3g", 1.09),
        ("gnn-128", 7, "7x1g", 2.03),
    ],
)
def test_published_ratios_give_their_known_aggregates(
    workload: str, count: int, layout: str, total: float
) -> None:
    answer = _plan(jobs=_jobs(workload, count=count))
    best = answer.proposals[0]
    assert best.layout == layout
    assert best.progress is not None
    assert best.progress.value == pytest.approx(total, abs=0.005)
    assert answer.gap == 0
    assert answer.reference == "7g"
    (gain,) = best.gains
    assert gain.base == "sequential on 7g"
    assert gain.throughput_gain is not None
    assert gain.throughput_gain.value == pytest.approx(total - 1, abs=0.005)


def test_a_power_limit_holds_all_slices_back() -> None:
    free = _plan(jobs=_jobs("transformer-16", count=2), objective="throughput", top=50)
    tight = _plan(jobs=_jobs("transformer-16", count=2), power_limit_w=150, top=50)
    by_layout = {p.layout: p for p in free.proposals}
    for proposal in tight.proposals:
        other = by_layout[proposal.layout]
        assert proposal.power_w is not None
        assert proposal.progress is not None
        assert other.progress is not None
        assert proposal.power_w.value <= 150.0
        assert proposal.progress.value <= other.progress.value
    best = tight.proposals[0]
    assert best.power_limited
    assert any("power limit" in note for note in best.notes)
    assert any("power limit is not known" in n for n in free.proposals[0].notes)


def test_a_pareto_set_holds_only_what_nothing_beats() -> None:
    answer = _plan(
        jobs=_jobs("transformer-16", "gnn-128", "mobilenet-64"), objective="pareto", top=50
    )
    points = [(p.progress.value, p.progress_per_j.value) for p in answer.proposals]  # type: ignore[union-attr]
    assert points
    for one in points:
        assert not any(o[0] >= one[0] and o[1] >= one[1] and o != one for o in points)


REFUSED: dict[str, tuple[dict[str, Any], str, str]] = {
    "fits nowhere with that rate": (
        {"jobs": _jobs("bert-base-8", min_rate=2.0)},
        "bert-base-8 runs on no slice at 2 x 7g or more (1g: oom, 2g: oom",
        "bert-base-8 at 1 x 7g on 7g",
    ),
    "too many at once": (
        {"jobs": _jobs("mobilenet-64", count=9)},
        "9 jobs are to run at once, and a100-sxm4-40gb has 7 measured slices at most",
        "7 jobs on 7x1g, or jobs with an end",
    ),
    "no layout has room": (
        {"jobs": _jobs("bert-base-8", count=3)},
        "no layout has room for all of them together",
        "without bert-base-8#1: 4g+3g",
    ),
    "minimum rates together": (
        {"jobs": _jobs("transformer-16", min_rate=0.6, count=2)},
        "no layout gives every job its minimum rate",
        "without minimum rates 4g+3g",
    ),
    "deadline": (
        {"jobs": _jobs("gnn-128", work=100, count=2), "objective": "makespan", "deadline_s": 100},
        "not done in 100 s on any layout",
        "147.059 s on 4g+3g",
    ),
    "energy without work": (
        {"jobs": _jobs("gnn-128"), "objective": "energy"},
        "energy needs the work of gnn-128",
        "objective throughput",
    ),
    "no power left": (
        {"jobs": _jobs("gnn-128"), "power_limit_w": 40},
        "the power limit of 40 W leaves nothing above idle",
        "a power limit above 50 W",
    ),
    "more jobs than slices of all boards": (
        {"jobs": _jobs("gnn-128", count=29), "boards": 4},
        "29 jobs that run all the time have no slice each",
        "28 slices at most on all boards",
    ),
    "not measured": ({"jobs": _jobs("vgg")}, "no measurement of vgg", "measured: mobilenet-64"),
    "memory": (
        {"jobs": _jobs("gnn-128", memory_mib=50_000)},
        "4g: needs 50000 MiB, 4g has 19968",
        "",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_an_impossible_request_says_why_and_what_is_nearest(case: str) -> None:
    request, reason, nearest = REFUSED[case]
    with pytest.raises(InfeasibleError) as error:
        _plan(**request)
    assert reason in str(error.value)
    assert nearest in "; ".join(error.value.nearest)


def test_many_jobs_are_planned_by_the_model_with_a_stated_gap() -> None:
    jobs = _jobs("gnn-128", work=600, count=8) + _jobs("mobilenet-64", work=900, count=8)
    answer = _plan(jobs=jobs, objective="makespan", top=1, time_limit_s=6)
    assert "mixed-integer" in answer.method
    # How tight depends on the time that there was; that it is stated does not.
    assert 0.0 <= answer.gap < 0.5
    assert "within" in text(answer) or "proven best" in text(answer)
    assert len(answer.proposals[0].jobs) == 16


def test_a_fleet_says_how_many_boards_get_which_layout() -> None:
    jobs = _jobs("gnn-128", work=600, count=60) + _jobs("bert-base-8", work=900, count=12)
    answer = _plan(jobs=jobs, objective="makespan", boards=6)
    assert answer.fleet is not None
    assert sum(each.count for each in answer.fleet.layouts) == 6
    placed = sorted(j for _, slots in answer.fleet.assignment for jobs in slots for j in jobs)
    assert placed == list(range(72))
    assert answer.gap < 0.25  # few jobs per slice: the pooled bound is loose, and says so
    assert "6 x" in text(answer) or "5 x" in text(answer)


def test_boards_of_two_kinds_share_the_jobs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    faster = tmp_path / "faster.csv"
    faster.write_text(
        "workload,slice,rate,rate_unit,outcome\n"
        "gnn-128,full,40,x 7g,ok\ngnn-128,3g,30,x 7g,ok\ngnn-128,1g,,,oom\n"
    )
    request = tmp_path / "request.yaml"
    request.write_text(
        "board: a100-sxm4-40gb\nboards: 2\nobjective: makespan\n"
        "jobs: [{workload: gnn-128, work: 600, count: 40}, {workload: bert-base-8, work: 60}]\n"
        f"more_boards: [{{board: h100-sxm5-80gb, table: {faster}}}]\n"
    )
    arguments = ["plan", "--table", str(MISO), "--request", str(request)]
    assert cli.main([*arguments, "--json"]) == 0
    answer = Plan.model_validate_json(capsys.readouterr().out)
    assert answer.fleet is not None
    # bert-base-8 was not measured on the other kind of board.
    assert {each.board for each in answer.fleet.layouts} == {"a100-sxm4-40gb", "h100-sxm5-80gb"}
    assert sum(each.count for each in answer.fleet.layouts) == 3
    assert answer.impossible["gnn-128 on 1g of h100-sxm5-80gb"] == "oom"
    assert "the power limit of h100-sxm5-80gb is not applied: it is not known" in answer.notes
    fast = next(slots for layout, slots in answer.fleet.assignment if layout == "2x3g")
    assert sum(map(len, fast)) > 30
    assert cli.main(arguments) == 0
    assert "1 x 2x3g of h100-sxm5-80gb" in capsys.readouterr().out


def test_jobs_that_run_all_the_time_on_many_boards() -> None:
    jobs = _jobs("gnn-128", count=7) + _jobs("mobilenet-64", count=3)
    answer = _plan(jobs=jobs, objective="throughput", boards=3)
    assert answer.fleet is not None
    assert (answer.fleet.makespan_s, answer.gap) == (None, pytest.approx(0.0, abs=1e-6))
    assert "progress" in text(answer)
    for objective in ("samples-per-joule", "pareto"):
        with pytest.raises(InfeasibleError, match="one sum over them"):
            _plan(jobs=jobs, objective=objective, boards=3)
    with pytest.raises(InfeasibleError, match="14 slices at most on all boards"):
        _plan(jobs=_jobs("gnn-128", count=15), objective="throughput", boards=2)


# --- tables ------------------------------------------------------------------------------------


def _campaign(folder: Path, suffix: str) -> Path:
    """Tables of a campaign on two cores: solo on full, fill on 2x1c, one run out of memory."""
    runs, slices = [], []

    def add(layout: str, workload: str, kind: str, rates: list[float | None], **more: Any) -> None:
        run_id = f"{layout}/{workload}.{kind}/fp32/rep{more.get('repeat', 1)}"
        runs.append(
            {
                "run_id": run_id,
                "layout": layout,
                "kind": kind,
                "precision": "fp32",
                "badge": more.get("badge", "good"),
                "simulated": False,
                "modelled": True,
                "workers": len(rates),
                "mean_power_w": more.get("power"),
                "idle_w": 20.0,
                "board": "a CPU",
                "board_uuid": "CPU-1",
            }
        )
        for index, rate in enumerate(rates):
            slices.append(
                {
                    "run_id": run_id,
                    "precision": "fp32",
                    "kind": kind,
                    "workload": workload,
                    "slice": "full" if layout == "full" else "1c",
                    "slice_index": index,
                    "worker_outcome": "ok" if rate is not None else "oom",
                    "throughput_samples_s": rate,
                    "peak_memory_mib": 500.0,
                }
            )

    for repeat, rate in enumerate((10.0, 10.2, 9.8), start=1):
        add("full", "cnn", "solo", [rate], power=36.0, repeat=repeat)
        add("full", "vit", "solo", [4.0], power=36.0, repeat=repeat)
        add("2x1c", "cnn", "fill", [6.0, 6.0], power=36.0, repeat=repeat)
    add("2x1c", "vit", "fill", [3.0, 3.0], power=36.0)
    add("2x1c", "vit", "fill", [300.0, 300.0], power=36.0, repeat=2, badge="rejected")
    add("2x1c", "big", "fill", [None, None])
    add("full", "big", "solo", [1.0], power=36.0)
    tables = folder / "tables"
    tables.mkdir()
    for name, rows in (("runs", runs), ("slices", slices)):
        frame = pd.DataFrame(rows)
        if suffix == "parquet":
            frame.to_parquet(tables / f"{name}.parquet")
        else:
            frame.to_csv(tables / f"{name}.csv", index=False)
    return folder


@pytest.mark.parametrize("suffix", ["parquet", "csv"])
def test_a_campaigns_tables_are_read_without_running_anything(suffix: str, tmp_path: Path) -> None:
    table = read_campaign(_campaign(tmp_path, suffix))
    cnn = table.cells["cnn", "full"].alone
    assert cnn is not None
    assert (cnn.rate.low, cnn.rate.value, cnn.rate.high) == (9.8, 10.0, 10.2)
    assert cnn.dynamic_w is not None
    assert cnn.dynamic_w.value == 16.0
    among = table.cells["vit", "1c"].among
    assert among is not None
    assert among.rate.value == 3.0  # the rejected run is not in it
    assert among.dynamic_w is not None
    assert among.dynamic_w.value == 8.0
    assert table.why_not("big", "1c").startswith("out of memory")
    assert table.modelled
    request = PlanRequest.model_validate({"jobs": _jobs("cnn", "vit")})
    answer = plan(request, table, board_for("cpu:2", table.slices))
    best = answer.proposals[0]
    assert best.layout == "2x1c"
    assert best.progress is not None
    assert best.progress.value == pytest.approx(6 / 10 + 3 / 4)
    assert best.progress.low < best.progress.value < best.progress.high
    assert best.power_w is not None
    assert best.power_w.value == 36.0
    assert answer.impossible == {}
    with pytest.raises(InfeasibleError, match="big"):
        plan(
            PlanRequest.model_validate({"jobs": _jobs("cnn", "big")}),
            table,
            board_for("cpu:2", table.slices),
        )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("workload,slice,speed\na,1g,1\n", "unknown columns speed"),
        ("workload,rate\na,1\n", "missing columns slice"),
        ("workload,slice,rate\na,1g,fast\n", "data row 1: rate is not a number: 'fast'"),
        ("workload,slice,rate\na,1g,-1\n", "must be finite and not below 0"),
        ("workload,slice,rate\na,4g+3g,1\n", "is not one slice"),
        ("workload,slice,rate\n", "has no rows"),
        ("workload,slice,rate,precision\na,1g,1,fp32\na,2g,1,bf16\n", "several precisions"),
    ],
)
def test_a_bad_table_is_refused_by_line_and_column(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_text(text)
    with pytest.raises(TableError, match=message):
        read_csv(path)


def test_exact_names_of_slices_mean_the_boards_own(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_text(MISO.read_text().replace(",3g,", ",3g.20gb,").replace(",2g,", ",2g.10gb,"))
    jobs = _jobs("transformer-16", "gnn-128", "mobilenet-64")
    ours, theirs = _plan(path, jobs=jobs), _plan(jobs=jobs)
    assert ours.proposals == theirs.proposals
    path.write_text(path.read_text() + "gnn-128,3g,0.7,,,,ok\n")
    with pytest.raises(TableError, match="gnn-128 is given twice for 3g"):
        _plan(path, jobs=jobs)


def test_a_folder_without_tables_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(TableError, match="aggregate the campaign first"):
        read_campaign(tmp_path)


# --- the command -------------------------------------------------------------------------------


@pytest.mark.parametrize("request_file", sorted(EXAMPLE.glob("*.yaml")))
def test_the_examples_are_planned_by_the_command(
    request_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["plan", "--table", str(MISO), "--request", str(request_file)]
    assert cli.main(arguments) == 0
    shown = capsys.readouterr().out
    assert "against sequential on 7g" in shown
    assert "proven best" in shown
    assert cli.main([*arguments, "--json"]) == 0
    answer = Plan.model_validate_json(capsys.readouterr().out)
    assert answer.proposals


def test_the_command_says_what_is_wrong(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    table = ["plan", "--table", str(MISO), "--board", "a100-sxm4-40gb"]
    assert cli.main([*table, "--job", "bert-base-8x3", "--json"]) == 1
    out, err = capsys.readouterr()
    assert "no layout has room" in err
    assert json.loads(out)["nearest"]
    assert cli.main(table) == 2
    assert "which jobs?" in capsys.readouterr().err
    assert cli.main([*table[:3], "--job", "gnn-128"]) == 2
    assert "which board?" in capsys.readouterr().err
    assert cli.main([*table, "--job", "gnn-128=soon"]) == 2
    assert cli.main([*table[:3], "--board", "a1000", "--job", "gnn-128"]) == 2
    assert cli.main(["plan", "--table", str(tmp_path / "no.csv"), "--job", "a"]) == 2


def test_jobs_on_the_command_line() -> None:
    job = parse_job("resnet50=2.5e6x3@40")
    assert (job.workload, job.work, job.count, job.min_rate) == ("resnet50", 2.5e6, 3, 40.0)
    assert parse_job("gnn-128x2").count == 2
    assert parse_job("resnet50").workload == "resnet50"
    with pytest.raises(ValueError, match="write WORKLOAD"):
        parse_job("a=b=c")
