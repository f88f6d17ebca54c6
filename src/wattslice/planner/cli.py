"""`wattslice plan`: how to cut a board for given jobs, from measurements; runs nothing."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wattslice.command import Subparsers, add_command, print_json

if TYPE_CHECKING:
    from wattslice.planner.records import Figure, JobRequest, Plan, PlanRequest
    from wattslice.planner.table import Table

OK, NO, USAGE = 0, 1, 2
_OBJECTIVES = ("throughput", "samples-per-joule", "makespan", "energy", "pareto")
_EXAMPLE = """examples:
  wattslice plan --table results/default --board cpu:2 --job cnn --job vit
  wattslice plan --table results/mine --objective energy --job resnet50=1e6 --job bert=2e5x3
  wattslice plan --table config/planner-example/miso-a100-40gb.csv \\
      --request config/planner-example/three-jobs.yaml
A job is WORKLOAD[=SAMPLES][xCOUNT][@MIN_RATE]. Jobs without SAMPLES run all the time
(objectives throughput, samples-per-joule); with SAMPLES they end (makespan, energy).
exit codes: 0 planned, 1 no layout meets the request (it says why and what is nearest), 2 usage"""


def add_parser(subparsers: Subparsers) -> None:
    """Add the command to `wattslice`'s subparsers."""
    parser = add_command(
        subparsers,
        "plan",
        run,
        summary="rank the layouts of a board for given jobs, from measurements",
        about="Rank the layouts of a board for given jobs, from measured solo and fill runs "
        "or a table of them. Nothing is run. See docs/planner.md.",
        epilog=_EXAMPLE,
    )
    parser.add_argument(
        "--table",
        type=Path,
        required=True,
        metavar="PATH",
        help="a campaign's folder (or its tables/), or a CSV of your own",
    )
    parser.add_argument(
        "--request", type=Path, metavar="FILE", help="YAML with all of what follows"
    )
    parser.add_argument(
        "--job",
        action="append",
        default=[],
        metavar="JOB",
        help="WORKLOAD[=SAMPLES][xCOUNT][@MIN_RATE]; repeat it",
    )
    parser.add_argument("--objective", choices=_OBJECTIVES, help="default: throughput")
    parser.add_argument("--board", metavar="NAME", help="catalogue name, or cpu:<cores>")
    parser.add_argument("--boards", type=int, metavar="N", help="so many equal boards (default 1)")
    parser.add_argument("--precision", metavar="NAME", help="default: the table's first")
    parser.add_argument("--power-limit-w", type=float, metavar="W", help="limit of one board")
    parser.add_argument("--deadline-s", type=float, metavar="S", help="longest makespan")
    parser.add_argument("--top", type=int, metavar="N", help="layouts to show (default 5)")


def run(arguments: argparse.Namespace) -> int:
    """Plan and print; return the exit code."""
    from pydantic import ValidationError

    from wattslice.boards.errors import BoardNotFoundError
    from wattslice.config.errors import ConfigError
    from wattslice.planner.boards import board_for
    from wattslice.planner.errors import InfeasibleError, PlannerError
    from wattslice.planner.plan import plan

    try:
        request = _request(arguments)
        table = _table(arguments.table, arguments.precision)
        board = board_for(request.board or table.board, table.slices)
        more = []
        for each in request.more_boards:
            other = _table(Path(each.table), arguments.precision)
            more.append((other, board_for(each.board or other.board, other.slices)))
        answer = plan(request, table, board, more)
    except InfeasibleError as error:
        print(f"wattslice plan: {error}", file=sys.stderr)
        if arguments.json:
            print_json({"reasons": error.reasons, "nearest": error.nearest})
        return NO
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        print(f"wattslice plan: {where}: {first['msg']}", file=sys.stderr)
        return USAGE
    except (PlannerError, BoardNotFoundError, ConfigError, OSError, ValueError) as error:
        print(f"wattslice plan: {error}", file=sys.stderr)
        return USAGE
    print(answer.model_dump_json(indent=2) if arguments.json else text(answer))
    return OK


def parse_job(text_: str) -> JobRequest:
    """WORKLOAD[=SAMPLES][xCOUNT][@MIN_RATE]. Raises ValueError with the form."""
    import re

    from wattslice.planner.records import JobRequest

    number = r"\d+(?:\.\d*)?(?:e\d+)?"
    match = re.fullmatch(
        rf"(?P<workload>[^=@\s]+?)(?:=(?P<work>{number}))?(?:x(?P<count>\d+))?"
        rf"(?:@(?P<rate>{number}))?",
        text_,
    )
    if match is None:
        raise ValueError(f"--job {text_!r}: write WORKLOAD[=SAMPLES][xCOUNT][@MIN_RATE]")
    return JobRequest(
        workload=match["workload"],
        work=float(match["work"]) if match["work"] else None,
        count=int(match["count"] or 1),
        min_rate=float(match["rate"]) if match["rate"] else None,
    )


def _request(arguments: argparse.Namespace) -> PlanRequest:
    from wattslice.config.load import read_yaml
    from wattslice.planner.records import PlanRequest

    fields: dict[str, Any] = {} if arguments.request is None else read_yaml(arguments.request)
    for key in ("objective", "board", "boards", "power_limit_w", "deadline_s", "top"):
        if getattr(arguments, key) is not None:
            fields[key] = getattr(arguments, key)
    if arguments.job:
        fields["jobs"] = [parse_job(job) for job in arguments.job]
    if not fields.get("jobs"):
        raise ValueError("which jobs? Give --job (several times) or --request")
    return PlanRequest.model_validate(fields)


def _table(path: Path, precision: str | None) -> Table:
    from wattslice.planner.table import read_campaign, read_csv

    if path.is_dir():
        return read_campaign(path, precision)
    return read_csv(path, precision)


# --- text --------------------------------------------------------------------------------------


def _number(figure: Figure | None, *, percent: bool = False) -> str:
    if figure is None:
        return "unknown"
    if percent:
        value, low, high = 100 * figure.value, 100 * figure.low, 100 * figure.high
        shown, unit = f"{value:+.0f} %", ""
        between = f" [{low:+.0f}, {high:+.0f}]" if figure.low < figure.high else ""
    else:
        shown, unit = f"{figure.value:.4g}", "" if figure.unit == "1" else f" {figure.unit}"
        between = f" [{figure.low:.4g}, {figure.high:.4g}]" if figure.low < figure.high else ""
    return f"{shown}{between}{unit}"


def text(answer: Plan) -> str:
    """The answer for a person."""
    proof = "proven best" if answer.gap <= 1e-6 else f"within {100 * answer.gap:.2f} % of the best"
    labels = [
        w for w, on in (("SIMULATED", answer.simulated), ("MODELLED power", answer.modelled)) if on
    ]
    lines = [
        f"{answer.board}, {answer.request.objective}, "
        + ("jobs that run all the time" if answer.semantics == "steady" else "jobs that end")
        + (f"  [{', '.join(labels)}]" if labels else ""),
        f"{answer.method}; {proof}; {answer.seconds:.2g} s",
    ]
    if answer.power_limit_w is not None:
        lines.append(f"power limit {answer.power_limit_w:g} W per board, shared by all slices")
    if answer.fleet is not None:
        fleet = answer.fleet
        lines.append("")
        lines += [f"  {each.count:4} x {each.layout} of {each.board}" for each in fleet.layouts]
        figures = (
            ("makespan", fleet.makespan_s, "s"),
            ("energy", fleet.energy_j, "J"),
            ("progress", fleet.progress, "reference-s/s"),
            ("mean power", fleet.power_w, "W"),
        )
        known = [f"{name} {v:.4g} {unit}" for name, v, unit in figures if v is not None]
        lines.append(f"  {', '.join(known)}")
    for proposal in answer.proposals:
        lines += ["", f"{proposal.rank}. {proposal.layout}"]
        by_slice: dict[int, list[str]] = {}
        for job in proposal.jobs:
            by_slice.setdefault(job.slice_index, []).append(
                f"{job.job} {_number(job.rate)}"
                + ("" if job.time_s is None else f", {_number(job.time_s)}")
            )
        kinds = {job.slice_index: job.slice for job in proposal.jobs}
        lines += [f"     {kinds[i]:>6}  {'; '.join(by_slice[i])}" for i in sorted(by_slice)]
        if proposal.empty_slices:
            lines.append(f"     empty: {', '.join(proposal.empty_slices)}")
        for name, figure in (
            ("progress", proposal.progress),
            ("progress per joule", proposal.progress_per_j),
            ("makespan", proposal.makespan_s),
            ("energy", proposal.energy_j),
            ("mean power", proposal.power_w),
        ):
            if figure is not None:
                lines.append(f"     {name}: {_number(figure)}")
        for gain in proposal.gains:
            parts = []
            if gain.throughput_gain is not None:
                parts.append(f"throughput {_number(gain.throughput_gain, percent=True)}")
            if gain.time_saved is not None:
                parts.append(f"time saved {_number(gain.time_saved, percent=True)}")
            if gain.energy_saved is not None:
                parts.append(f"energy saved {_number(gain.energy_saved, percent=True)}")
            lines.append(f"     against {gain.base}: {', '.join(parts)}")
        lines += [f"     note: {note}" for note in proposal.notes]
    if answer.impossible:
        lines += ["", "never proposed:"]
        lines += [f"  {cell}: {why}" for cell, why in answer.impossible.items()]
    lines += [f"note: {note}" for note in answer.notes]
    return "\n".join(lines)
