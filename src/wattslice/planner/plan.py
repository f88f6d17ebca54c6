"""From a question to ranked layouts with assignments and predictions."""

from __future__ import annotations

import contextlib
import math
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from wattslice.analysis.mixes import sequential_on
from wattslice.config.layout import Layout
from wattslice.planner import exact
from wattslice.planner import fleet as fleets
from wattslice.planner.boards import BoardModel
from wattslice.planner.errors import InfeasibleError
from wattslice.planner.jobsets import Schedule, faster
from wattslice.planner.pool import Group
from wattslice.planner.predict import (
    Fixed,
    Job,
    Steady,
    Use,
    fixed,
    sequential_power,
    steady,
    timeline,
)
from wattslice.planner.ranges import Range, total
from wattslice.planner.records import (
    Figure,
    FleetBoards,
    FleetSummary,
    Gain,
    PlacedJob,
    Plan,
    PlanRequest,
    Proposal,
    Semantics,
)
from wattslice.planner.search import (
    FIXED,
    STEADY,
    Candidate,
    Front,
    Objective,
    Options,
    SearchTooLargeError,
    search_fixed,
    search_steady,
)
from wattslice.planner.steady_fleet import plan_steady_fleet
from wattslice.planner.table import REFERENCES, Table

# Up to so many jobs the exhaustive search is quicker than the mixed-integer model.
_SEARCH_JOBS = 12
_SEARCH_NODES = 150_000
# Beyond so many pairs of job and slice the pooled model takes over.
_EXACT_PAIRS = 1_500


def expand_jobs(request: PlanRequest) -> list[Job]:
    """Each job by itself, named by its workload and a number."""
    jobs: list[Job] = []
    numbers: Counter[str] = Counter()
    for asked in request.jobs:
        for _ in range(asked.count):
            numbers[asked.workload] += 1
            number = numbers[asked.workload]
            jobs.append(
                Job(
                    f"{asked.workload}#{number}",
                    asked.workload,
                    asked.work,
                    asked.min_rate,
                    asked.memory_mib,
                )
            )
    return jobs


def semantics_of(request: PlanRequest) -> Semantics:
    """Fixed work for makespan and energy; for `pareto` where every job has its work given."""
    if request.objective == "pareto":
        return "fixed" if all(job.work is not None for job in request.jobs) else "steady"
    return "steady" if request.objective in STEADY else "fixed"


@dataclass(frozen=True, slots=True)
class _Context:
    request: PlanRequest
    table: Table
    board: BoardModel
    options: Options
    objectives: tuple[Objective, ...]
    semantics: Semantics
    reference: str
    others: tuple[tuple[Table, BoardModel], ...] = ()  # of the request's `more_boards`

    @property
    def known(self) -> list[tuple[Table, BoardModel]]:
        """Every kind of board with its measurements."""
        return [(self.table, self.board), *self.others]


def plan(
    request: PlanRequest,
    table: Table,
    board: BoardModel,
    more: Sequence[tuple[Table, BoardModel]] = (),
) -> Plan:
    """Rank the layouts of a board for the jobs of a request, or divide the jobs over many boards.

    `more` has the table and the board of each of the request's `more_boards`. Raises
    InfeasibleError, which says why nothing fits and what is nearest.
    """
    started = time.monotonic()
    others = tuple((other.renamed(model.aliases), model) for other, model in more)
    context = _context(request, table.renamed(board.aliases), board, others)
    if request.boards > 1 or others:
        return _plan_fleet(context, started)
    check_feasible(context.options, board, context.semantics)
    candidates, method, gap = _candidates(context)
    if not candidates:
        raise _nothing_together(context)
    candidates.sort(key=lambda c: (c.costs, len(c.layout.slices), str(c.layout)))
    shown = [
        _proposal(context, rank, candidate)
        for rank, candidate in enumerate(candidates[: request.top], start=1)
    ]
    return _answer(context, started, method, gap, proposals=tuple(shown))


def _context(
    request: PlanRequest,
    table: Table,
    board: BoardModel,
    others: tuple[tuple[Table, BoardModel], ...],
) -> _Context:
    semantics = semantics_of(request)
    jobs = expand_jobs(request)
    tables = [table, *(other for other, _ in others)]
    known = list(dict.fromkeys(name for each in tables for name in each.workloads))
    unknown = sorted({job.workload for job in jobs} - set(known))
    if unknown:
        raise InfeasibleError(
            [f"no measurement of {', '.join(unknown)}"], [f"measured: {', '.join(known)}"]
        )
    unfinished = [asked.workload for asked in request.jobs if asked.work is None]
    if semantics == "fixed" and unfinished:
        raise InfeasibleError(
            [f"{request.objective} needs the work of {', '.join(unfinished)}, in samples"],
            ["objective throughput or samples-per-joule, for jobs that run all the time"],
        )
    objectives: tuple[Objective, ...]
    if request.objective == "pareto":
        objectives = STEADY if semantics == "steady" else FIXED
    else:
        objectives = (request.objective,)
    limit = request.power_limit_w or table.power_limit_w or board.power_limit_w
    reference = table.reference([job.workload for job in jobs])
    if semantics == "steady" and reference is None:
        raise InfeasibleError(
            [
                "progress is measured against the whole board, and the table has neither full nor "
                "7g of every workload"
            ],
            ["objective makespan or energy, which need no reference"],
        )
    options = Options(table, jobs, board.memory_mib, limit)
    return _Context(request, table, board, options, objectives, semantics, reference or "", others)


# --- why not -----------------------------------------------------------------------------------


def check_feasible(options: Options, board: BoardModel, semantics: Semantics) -> None:
    """Raises InfeasibleError for what no layout can mend, naming job, slice and nearest values."""
    reasons, nearest = [], []
    unit = options.table.rate_unit
    kinds = {(k, len(la.slices) > 1) for la in board.layouts for k in la.slices}
    distinct = {(j.workload, j.min_rate, j.memory_mib): j for j in options.jobs}
    for job in distinct.values():
        if any(options.on(job, kind, neighbours=among) for kind, among in kinds):
            continue
        best: tuple[float, str] | None = None
        whys = []
        for kind, among in sorted(kinds):
            found = options.table.measured(job.workload, kind, neighbours=among)
            memory = options.why_not_memory(job, kind)
            if found is None:
                whys.append(f"{kind}: {options.table.why_not(job.workload, kind)}")
            elif memory is not None:
                whys.append(f"{kind}: {memory}")
            else:
                whys.append(f"{kind}: {found.rate.value:.4g} {unit}")
                best = max(best or (0.0, ""), (found.rate.value, kind))
        asked = f" at {job.min_rate:g} {unit} or more" if job.min_rate is not None else ""
        reasons.append(f"{job.workload} runs on no slice{asked} ({', '.join(dict.fromkeys(whys))})")
        if best is not None:
            nearest.append(f"{job.workload} at {best[0]:.4g} {unit} on {best[1]}")
    idle = [power.value for la in board.layouts if (power := options.table.idle(str(la)))]
    if options.limit_w is not None and idle and options.limit_w <= min(idle):
        reasons.append(f"the power limit of {options.limit_w:g} W leaves nothing above idle")
        nearest.append(f"a power limit above {min(idle):.4g} W, the idle power")
    count = len(options.jobs)
    if semantics == "steady" and count > board.most_slices:
        widest = max(board.layouts, key=lambda layout: len(layout.slices))
        reasons.append(
            f"{count} jobs are to run at once, and {board.name} has {board.most_slices} measured "
            f"slices at most"
        )
        nearest.append(
            f"{board.most_slices} jobs on {widest}, or jobs with an end (give their work)"
        )
    if reasons:
        raise InfeasibleError(reasons, nearest)


def _nothing_together(context: _Context) -> InfeasibleError:
    """Each job has a slice somewhere, but no layout has one for all of them."""
    options, board = context.options, context.board
    reasons = ["every job runs on some slice, but no layout has room for all of them together"]
    kinds = list(dict.fromkeys(kind for layout in board.layouts for kind in layout.slices))
    for workload in dict.fromkeys(job.workload for job in options.jobs):
        bad = [f"{k}: {why}" for k in kinds if (why := _why_never(options.table, workload, k))]
        if bad:
            reasons.append(f"{workload} does not run on every slice ({', '.join(bad)})")
    nearest = []
    energy = {"energy", "samples-per-joule"} & set(context.objectives)
    if energy and not any(
        m.dynamic_w for c in context.table.cells.values() for m in (c.alone, c.among) if m
    ):
        return InfeasibleError(["the table has no power"], ["objective throughput or makespan"])
    slow = [job for job in options.jobs if job.min_rate is not None]
    if slow:
        free = [replace(job, min_rate=None) for job in options.jobs]
        relaxed = replace_options(options, free)
        found = _look(context, relaxed, None)
        if found:
            best = min(found, key=lambda c: c.costs)
            uses = relaxed.uses(best.layout, best.slices)
            rates = ", ".join(f"{u.job.name} {u.measured.rate.value:.4g}" for u in uses)
            reasons = ["no layout gives every job its minimum rate"]
            nearest.append(
                f"without minimum rates {best.layout} ({context.table.rate_unit}: {rates})"
            )
    if context.request.deadline_s is not None:
        found = _look(replace(context, objectives=("makespan",)), options, None)
        if found:
            best = min(found, key=lambda c: c.costs)
            reasons = [f"the jobs are not done in {context.request.deadline_s:g} s on any layout"]
            nearest.append(f"{best.costs[0]:.6g} s on {best.layout}")
    if not nearest and len(options.jobs) > 1:
        for gone in options.jobs:
            rest = replace_options(options, [job for job in options.jobs if job is not gone])
            found = _look(context, rest, context.request.deadline_s)
            if found:
                best = min(found, key=lambda c: c.costs)
                nearest.append(f"without {gone.name}: {best.layout}")
                break
    return InfeasibleError(reasons, nearest or [f"layouts: {', '.join(map(str, board.layouts))}"])


def _why_never(table: Table, workload: str, kind: str) -> str | None:
    cell = table.cells.get((workload, kind))
    return "not measured" if cell is None else cell.failed


def replace_options(options: Options, jobs: Sequence[Job]) -> Options:
    return Options(options.table, jobs, options.memory_mib, options.limit_w)


# --- search ------------------------------------------------------------------------------------


def _look(context: _Context, options: Options, deadline_s: float | None) -> list[Candidate]:
    """What a relaxed request would have got, where that is quickly seen."""
    try:
        return _search(context, options, deadline_s)
    except SearchTooLargeError:
        return []


def _search(context: _Context, options: Options, deadline_s: float | None) -> list[Candidate]:
    found = []
    for layout in context.board.layouts:
        if context.semantics == "steady":
            found += search_steady(options, layout, context.reference, context.objectives)
        else:
            found += search_fixed(options, layout, context.objectives, deadline_s, _SEARCH_NODES)
    return found


def _candidates(context: _Context) -> tuple[list[Candidate], str, float]:
    """Best assignments per layout, how they were found, and the gap of the best."""
    deadline_s = context.request.deadline_s
    method, gap = "exact search over all layouts and assignments", 0.0
    found: list[Candidate] | None = None
    if context.semantics == "steady" or len(context.options.jobs) <= _SEARCH_JOBS:
        with contextlib.suppress(SearchTooLargeError):
            found = _search(context, context.options, deadline_s)
    if found is None:
        found, gap = _by_model(context)
        method = "mixed-integer model per layout (HiGHS)"
    if len(context.objectives) > 1:
        front = Front()
        for candidate in found:
            front.add(candidate)
        found = front.items
        method += "; Pareto set of " + " and ".join(context.objectives)
    return found, method, gap


def _by_model(context: _Context) -> tuple[list[Candidate], float]:
    """Plans per layout and objective (a Pareto set is given by its two ends), and the gap.

    The pooled model gives every layout a plan and a bound at once. The whole model then works on
    the layouts whose bound could still beat the best plan, the most promising first.
    """
    found: list[Candidate] = []
    gap = 0.0
    deadline_s = context.request.deadline_s
    for objective in context.objectives:
        started = time.monotonic()
        budget = context.request.time_limit_s / len(context.objectives)
        plans: dict[Layout, fleets.FleetPlan] = {}
        bounds: dict[Layout, float] = {}
        for layout in context.board.layouts:
            with contextlib.suppress(InfeasibleError):
                solved = fleets.plan_fleet(
                    [Group(context.options, (layout,), 1)],
                    objective,
                    time_limit_s=2.0,
                    deadline_s=deadline_s,
                )
                plans[layout], bounds[layout] = solved, solved.bound
        for layout in sorted(bounds, key=bounds.__getitem__):
            best = min(each.value for each in plans.values())
            left = budget - (time.monotonic() - started)
            pairs = len(context.options.jobs) * len(layout.slices)
            if pairs > _EXACT_PAIRS or bounds[layout] >= best * (1 - 1e-6) or left < 0.2:
                continue
            with contextlib.suppress(InfeasibleError):
                solved = exact.exact_model(
                    context.options,
                    [layout],
                    1,
                    objective,
                    time_limit_s=left / 2,
                    deadline_s=deadline_s,
                )
                bounds[layout] = max(bounds[layout], solved.bound)
                if solved.value < plans[layout].value:
                    plans[layout] = solved
        found += [_of_plan(context, objective, each) for each in plans.values()]
        if plans:
            best = min(each.value for each in plans.values())
            gap = max(gap, best / min(bounds.values()) - 1.0)
    return found, gap


def _of_plan(context: _Context, objective: Objective, solved: fleets.FleetPlan) -> Candidate:
    slices = [0] * len(context.options.jobs)
    for index, numbers in enumerate(solved.boards[0].jobs):
        for number in numbers:
            slices[number] = index
    costs = {"makespan": solved.makespan_s, "energy": solved.energy_j or math.inf}
    costs[objective] = solved.value
    wanted = tuple(costs[each] for each in context.objectives)
    return Candidate(solved.boards[0].layout, tuple(slices), wanted)


# --- answers -----------------------------------------------------------------------------------


def _proposal(context: _Context, rank: int, candidate: Candidate) -> Proposal:
    table, options, layout = context.table, context.options, candidate.layout
    uses = options.uses(layout, candidate.slices)
    taken = set(candidate.slices)
    empty = tuple(k for i, k in enumerate(layout.slices) if i not in taken)
    notes = []
    alone = sorted(
        {
            f"{u.job.workload} on {layout.slices[u.slice_index]}"
            for u in uses
            if len(taken) > 1 and _evidence(table, layout, u) == "alone"
        }
    )
    if alone:
        notes.append("neighbours' influence was not measured for " + ", ".join(alone))
    if options.limit_w is None:
        notes.append("the power limit is not known, so it is not applied")
    predicted: Steady | Fixed
    if context.semantics == "steady":
        predicted = steady(table, layout, uses, context.reference, options.limit_w)
        figures = {
            "progress": Figure.of(predicted.progress, "reference-s/s"),
            "progress_per_j": _figure(predicted.progress_per_j, "reference-s/J"),
            "power_w": _figure(predicted.power_w, "W"),
        }
        limited, rates = predicted.throttle < 1.0, list(predicted.rates)
        followed = None
    else:
        predicted = fixed(table, layout, uses, options.limit_w)
        mean = None if predicted.energy_j is None else predicted.energy_j / predicted.makespan_s
        figures = {
            "makespan_s": Figure.of(predicted.makespan_s, "s"),
            "energy_j": _figure(predicted.energy_j, "J"),
            "power_w": _figure(mean, "W"),
        }
        limited, rates = predicted.limited, [use.measured.rate for use in uses]
        followed = timeline(table, layout, uses, options.limit_w)
    if limited:
        notes.append("the board's power limit holds the slices back")
    jobs = tuple(
        PlacedJob(
            job=use.job.name,
            workload=use.job.workload,
            slice_index=use.slice_index,
            slice=layout.slices[use.slice_index],
            rate=Figure.of(rate, table.rate_unit),
            time_s=None if use.job.work is None else Figure.of(Range.of(use.job.work) / rate, "s"),
            evidence=_evidence(table, layout, use),
        )
        for use, rate in zip(uses, rates, strict=True)
    )
    gains = [
        gain
        for base in REFERENCES
        if (gain := _gain(context, base, layout, uses, predicted)) is not None
    ]
    return Proposal(
        rank=rank,
        layout=str(layout),
        jobs=jobs,
        empty_slices=empty,
        power_limited=limited,
        timeline_s=followed if followed is not None and math.isfinite(followed) else None,
        gains=tuple(gains),
        notes=tuple(notes),
        **figures,
    )


def _evidence(table: Table, layout: Layout, use: Use) -> str:
    cell = table.cells[use.job.workload, layout.slices[use.slice_index]]
    return "neighbours" if use.measured is cell.among else "alone"


def _figure(known: Range | None, unit: str) -> Figure | None:
    return None if known is None else Figure.of(known, unit)


def _below_one(ratio: Range, unit: str = "1") -> Figure:
    """1 - ratio."""
    return Figure(value=1 - ratio.value, low=1 - ratio.high, high=1 - ratio.low, unit=unit)


def _gain(
    context: _Context, base: str, layout: Layout, uses: Sequence[Use], predicted: Steady | Fixed
) -> Gain | None:
    """Against the same jobs in sequence on `base`; None where the table does not have it."""
    table, whole, name = context.table, Layout((base,)), sequential_on(base)
    alone = []
    for use in uses:
        measured = table.measured(use.job.workload, base, neighbours=False)
        if measured is None:
            return None
        alone.append(Use(use.job, 0, measured))
    base_rates = {use.job.name: use.measured.rate.value for use in alone}
    if isinstance(predicted, Steady):
        shares = [
            rate / use.measured.rate if use.measured is not own.measured else Range.of(1.0)
            for rate, use, own in zip(predicted.rates, alone, uses, strict=True)
        ]
        p = total(shares)
        rates = {u.job.name: r.value for u, r in zip(uses, predicted.rates, strict=True)}
        before_w, saved = sequential_power(shares, alone, table.idle(base)), None
        if before_w is not None and predicted.power_w is not None:
            saved = _below_one(predicted.power_w / before_w)
        return Gain(
            base=name,
            throughput_gain=Figure(value=p.value - 1, low=p.low - 1, high=p.high - 1, unit="1"),
            energy_saved=saved,
            faster=faster(name, rates=rates, base_rates=base_rates),
        )
    before = fixed(table, whole, alone, context.options.limit_w)
    same = str(layout) == base  # the same thing twice has no error
    saved = None
    if predicted.energy_j is not None and before.energy_j is not None:
        saved = _below_one(Range.of(1.0) if same else predicted.energy_j / before.energy_j)
    return Gain(
        base=name,
        time_saved=_below_one(Range.of(1.0) if same else predicted.makespan_s / before.makespan_s),
        energy_saved=saved,
        faster=faster(
            name, schedule=_schedule(layout, uses), base_schedule=_schedule(whole, alone)
        ),
    )


def _schedule(layout: Layout, uses: Sequence[Use]) -> Schedule:
    return Schedule(
        tuple(
            tuple(
                (use.job.name, (use.job.work or 0.0) / use.measured.rate.value)
                for use in uses
                if use.slice_index == index
            )
            for index in range(len(layout.slices))
        )
    )


def _plan_fleet(context: _Context, started: float) -> Plan:
    request, objective = context.request, context.objectives[0]
    if len(context.objectives) > 1 or objective == "samples-per-joule":
        raise InfeasibleError(
            [f"many boards are planned by one sum over them, which {request.objective} is not"],
            ["objective throughput; or makespan or energy, with the work of each job"],
        )
    groups = [Group(context.options, context.board.layouts, request.boards)]
    for (table, board), asked in zip(context.others, request.more_boards, strict=True):
        limit = asked.power_limit_w or table.power_limit_w or board.power_limit_w
        options = Options(table, context.options.jobs, board.memory_mib, limit)
        groups.append(Group(options, board.layouts, asked.boards))
    if not context.others:
        check_feasible(context.options, context.board, "fixed")  # each job has a slice somewhere
    names = [board.name for _, board in context.known]
    if context.semantics == "steady":
        found = plan_steady_fleet(groups, context.reference, time_limit_s=request.time_limit_s)
        summary = _summary(names, found.boards, progress=found.progress, power_w=found.power_w)
        notes = _without_limit(names, groups, found.limited)
        return _answer(context, started, found.method, found.gap, fleet=summary, notes=notes)
    solved = fleets.plan_fleet(
        groups, objective, time_limit_s=request.time_limit_s, deadline_s=request.deadline_s
    )
    summary = _summary(names, solved.boards, makespan_s=solved.makespan_s, energy_j=solved.energy_j)
    notes = _without_limit(names, groups, solved.limited)
    return _answer(context, started, solved.method, solved.gap, fleet=summary, notes=notes)


def _without_limit(
    names: Sequence[str], groups: Sequence[Group], limited: Sequence[int]
) -> tuple[str, ...]:
    """Which boards' power limit is not in the plan, and why."""
    return tuple(
        f"the power limit of {name} is not applied: "
        + ("it is not known" if group.options.limit_w is None else "power is not known")
        for g, (name, group) in enumerate(zip(names, groups, strict=True))
        if g not in limited
    )


def _summary(
    names: Sequence[str], boards: Sequence[fleets.FleetBoard], **figures: float | None
) -> FleetSummary:
    counts = Counter((names[each.group], str(each.layout)) for each in boards)
    return FleetSummary(
        layouts=tuple(
            FleetBoards(board=board, layout=layout, count=count)
            for (board, layout), count in sorted(counts.items())
        ),
        assignment=tuple((str(each.layout), each.jobs) for each in boards),
        **figures,
    )


def _answer(
    context: _Context,
    started: float,
    method: str,
    gap: float,
    *,
    proposals: tuple[Proposal, ...] = (),
    fleet: FleetSummary | None = None,
    notes: tuple[str, ...] = (),
) -> Plan:
    known = context.known
    wanted = {job.workload for job in context.options.jobs}
    impossible = {
        f"{workload} on {kind}" + (f" of {board.name}" if context.others else ""): cell.failed
        for table, board in known
        for (workload, kind), cell in table.cells.items()
        if cell.failed is not None and workload in wanted
    }
    return Plan(
        request=context.request,
        board=context.board.name,
        precision=context.table.precision,
        semantics=context.semantics,
        reference=context.reference or None,
        power_limit_w=context.options.limit_w,
        method=method,
        gap=max(gap, 0.0),
        seconds=time.monotonic() - started,
        proposals=proposals,
        fleet=fleet,
        layouts_considered=tuple(str(la) for _, board in known for la in board.layouts),
        impossible=impossible,
        simulated=any(table.simulated for table, _ in known),
        modelled=any(table.modelled for table, _ in known),
        notes=(*notes, *dict.fromkeys(note for table, _ in known for note in table.notes)),
    )
