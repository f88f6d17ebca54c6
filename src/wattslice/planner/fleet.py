"""Fixed work of many jobs on many equal boards, by mixed-integer programming (HiGHS).

`exact_model` is the whole problem, for instances of tens of jobs. `plan_fleet` is for thousands:

1. Slices of a kind are pooled over all boards. With y_l boards in layout l, n_lc slices of class c
   in it, x_jc the share of job j on class c and M the makespan:

       Σ_c x_jc = 1,   Σ_j t_jc x_jc <= M Σ_l n_lc y_l,   Σ_l y_l = B
       Σ_jc e_jc x_jc <= M Σ_l (L - idle_l) y_l           the power limit L of all boards together
       makespan: min M        energy: min M Σ_l idle_l y_l + Σ_jc e_jc x_jc

   Every schedule obeys this. With the products z_l = M y_l as variables it is linear, and its
   optimum is a lower bound of the optimum: the stated gap is measured against it.
2. For makespans a little above the bound, y is made whole (mixed-integer); where that is
   impossible at a makespan, the bound rises to it.
3. Jobs go to the class of their largest share, longest first to the slice that ends first; moves
   and swaps then shorten the slice that ends last.
"""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse
from scipy.optimize import Bounds, LinearConstraint, milp

from wattslice.config.layout import Layout
from wattslice.planner.errors import InfeasibleError
from wattslice.planner.search import Objective, Options

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

# Makespans above the bound at which whole boards are tried.
_STEPS = (0.0, 0.002, 0.005, 0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64)
_INFEASIBLE = 2  # status of scipy.optimize.milp


@dataclass(frozen=True, slots=True)
class FleetBoard:
    """One board: its layout and the jobs of each slice, by number."""

    layout: Layout
    jobs: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class FleetPlan:
    """A plan with its proof: the optimum lies in [bound, value]."""

    objective: Objective
    value: float
    bound: float
    makespan_s: float
    energy_j: float | None
    boards: tuple[FleetBoard, ...]
    seconds: float  # taken to find it
    method: str

    @property
    def gap(self) -> float:
        """value / bound - 1: at most so much could be saved."""
        return self.value / self.bound - 1.0 if self.bound > 0 else math.inf


def _quiet_milp(*arguments: Any, **named: Any) -> Any:
    """`milp` without the lines that HiGHS 1.x prints to file descriptor 1 itself now and then."""
    sys.stdout.flush()
    try:
        kept = os.dup(1)
    except OSError:  # no standard output at all
        return milp(*arguments, **named)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 1)
        return milp(*arguments, **named)
    finally:
        os.dup2(kept, 1)
        os.close(kept)
        os.close(nowhere)


class _Instance:
    """Arrays of times and joules; impossible pairs are inf in `t`."""

    def __init__(self, options: Options, layouts: Sequence[Layout], boards: int) -> None:
        self.options, self.layouts, self.boards = options, tuple(layouts), boards
        classes: dict[tuple[str, bool], int] = {}
        for layout in layouts:
            for kind in layout.slices:
                classes.setdefault((kind, len(layout.slices) > 1), len(classes))
        self.classes = classes
        self.n = np.zeros((len(layouts), len(classes)))
        for row, layout in enumerate(layouts):
            for kind in layout.slices:
                self.n[row, classes[kind, len(layout.slices) > 1]] += 1
        jobs = options.jobs
        self.t = np.full((len(jobs), len(classes)), np.inf)
        self.e = np.zeros_like(self.t)
        self.powered = True
        for (kind, neighbours), column in classes.items():
            for row, job in enumerate(jobs):
                found = options.on(job, kind, neighbours=neighbours)
                if found is None or job.work is None:
                    continue
                self.t[row, column] = job.work / found.rate.value
                if found.dynamic_w is None:
                    self.powered = False
                else:
                    self.e[row, column] = self.t[row, column] * found.dynamic_w.value
        idle = [options.table.idle(str(layout)) for layout in layouts]
        self.powered = self.powered and all(each is not None for each in idle)
        self.idle = np.array([0.0 if each is None else each.value for each in idle])
        limit = options.limit_w if self.powered else None
        self.headroom = None if limit is None else np.maximum(limit - self.idle, 0.0)
        if np.isinf(self.t).all(axis=1).any():
            names = [j.name for j, row in zip(jobs, self.t, strict=True) if np.isinf(row).all()]
            raise InfeasibleError([f"{', '.join(names[:5])}: runs on no slice"])


@dataclass(frozen=True, slots=True)
class _Solved:
    """`x`: boards, or board-seconds, per layout; None where nothing was found."""

    status: int
    value: float
    x: FloatArray | None
    shares: FloatArray


def _solve(
    instance: _Instance,
    objective: Objective,
    allowed: npt.NDArray[np.bool_],
    *,
    makespan: float | None = None,
    seconds: float,
    deadline_s: float | None = None,
) -> _Solved:
    """The pooled model. Without a makespan the relaxation in z; else whole boards at it."""
    jobs, columns = np.nonzero(allowed)
    width, pairs = len(instance.layouts), len(jobs)
    # Variables: per layout (z or y), M, x of the allowed pairs.
    count = width + 1 + pairs
    scale = 1.0 if makespan is None else makespan
    cost = np.zeros(count)
    if objective == "energy":
        cost[:width] = instance.idle * scale
        cost[width + 1 :] = instance.e[jobs, columns]
    else:
        cost[width] = 1.0
    each = sparse.csr_array(
        (np.ones(pairs), (jobs, np.arange(pairs) + width + 1)), (instance.t.shape[0], count)
    )
    use = sparse.csr_array(
        (instance.t[jobs, columns], (columns, np.arange(pairs) + width + 1)),
        (instance.n.shape[1], count),
    )
    have = sparse.csr_array(
        np.hstack([instance.n.T * scale, np.zeros((len(instance.n.T), count - width))])
    )
    constraints = [
        LinearConstraint(each, 1.0, 1.0),
        LinearConstraint(use - have, -np.inf, 0.0),
    ]
    total = np.zeros((1, count))
    total[0, :width] = 1.0
    if makespan is None:
        total[0, width] = -float(instance.boards)
        constraints.append(LinearConstraint(total, 0.0, 0.0))
    else:
        constraints.append(LinearConstraint(total, instance.boards, instance.boards))
    if instance.headroom is not None:
        power = np.zeros((1, count))
        power[0, :width] = -instance.headroom * scale
        power[0, width + 1 :] = instance.e[jobs, columns]
        constraints.append(LinearConstraint(power, -np.inf, 0.0))
    lower, upper = np.zeros(count), np.ones(count)
    upper[:width] = np.inf
    longest = np.where(allowed, instance.t, np.inf).min(axis=1).max()
    lower[width] = longest if makespan is None else makespan
    upper[width] = (deadline_s or np.inf) if makespan is None else makespan
    if lower[width] > upper[width]:
        return _Solved(_INFEASIBLE, math.inf, None, np.zeros_like(instance.t))
    whole = np.zeros(count)
    if makespan is not None:
        whole[:width] = 1
    found = _quiet_milp(
        cost,
        constraints=constraints,
        bounds=Bounds(lower, upper),
        integrality=whole,
        options={"time_limit": max(seconds, 0.1), "mip_rel_gap": 1e-4},
    )
    shares = np.zeros_like(instance.t)
    if found.x is None:
        return _Solved(int(found.status), math.inf, None, shares)
    shares[jobs, columns] = found.x[width + 1 :]
    return _Solved(int(found.status), float(found.fun), found.x[:width], shares)


def _relaxation(
    instance: _Instance,
    objective: Objective,
    allowed: npt.NDArray[np.bool_],
    seconds: float,
    deadline_s: float | None,
) -> tuple[float, float]:
    """Lower bound of the objective, and the makespan (s) at which it is had."""
    if allowed.any(axis=1).all():
        found = _solve(instance, objective, allowed, seconds=seconds, deadline_s=deadline_s)
        if found.x is not None:
            return found.value, float(found.x.sum()) / instance.boards
    free = np.isfinite(instance.t)
    fastest = _solve(instance, "makespan", free, seconds=seconds)
    nearest = [] if fastest.x is None else [f"{fastest.value:.6g} s at least"]
    reason = "the power limit leaves nothing above idle"
    if deadline_s is not None:
        reason = f"the jobs cannot be done in {deadline_s:g} s"
    raise InfeasibleError([reason], nearest)


def plan_fleet(
    options: Options,
    layouts: Sequence[Layout],
    boards: int,
    objective: Objective = "makespan",
    *,
    time_limit_s: float = 55.0,
    target_gap: float = 0.01,
    deadline_s: float | None = None,
) -> FleetPlan:
    """A plan for `boards` equal boards and its gap to the bound.

    All boards are on until the last job ends. Raises InfeasibleError where a job runs nowhere,
    where power is not known for an energy objective, or where the deadline (s) cannot be met.
    """
    started = time.monotonic()
    instance = _Instance(options, layouts, boards)
    if objective == "energy" and not instance.powered:
        raise InfeasibleError(["the table has no power for every job and layout"])
    allowed = np.isfinite(instance.t)
    if deadline_s is not None:
        allowed &= instance.t <= deadline_s
    bound, base_s = _relaxation(instance, objective, allowed, time_limit_s / 2, deadline_s)
    best: FleetPlan | None = None
    for step in _STEPS:
        left = time_limit_s - (time.monotonic() - started)
        if left < 1.0 and best is not None:
            break
        makespan = base_s * (1.0 + step)
        if deadline_s is not None and makespan > deadline_s:
            break
        possible = allowed & (instance.t <= makespan * (1 + 1e-12))
        if not possible.any(axis=1).all():
            bound = max(bound, makespan) if objective == "makespan" else bound
            continue
        solved = _solve(
            instance,
            "energy" if instance.powered else objective,
            possible,
            makespan=makespan,
            seconds=left / 3,
        )
        if solved.x is None:
            if solved.status == _INFEASIBLE and objective == "makespan":
                bound = max(bound, makespan)
            continue
        plan = _concrete(
            instance,
            np.rint(solved.x).astype(np.int64),
            solved.shares,
            objective=objective,
            bound=bound,
            started=started,
        )
        if deadline_s is not None and plan.makespan_s > deadline_s * (1 + 1e-9):
            continue
        if best is None or plan.value < best.value:
            best = plan
        if best.value / bound - 1.0 <= target_gap:
            break
    if best is None:
        raise InfeasibleError(
            [f"no plan of whole boards was found in {time_limit_s:g} s"],
            [f"the bound is {bound:.6g}"],
        )
    return FleetPlan(
        objective,
        best.value,
        min(bound, best.value),
        best.makespan_s,
        best.energy_j,
        best.boards,
        time.monotonic() - started,
        "pooled mixed-integer model, then list scheduling with moves and swaps",
    )


class _Shop:
    """Slices of all boards with their jobs, improved by moves and swaps."""

    def __init__(self, instance: _Instance, whole: IntArray, shares: FloatArray) -> None:
        self.instance = instance
        self.boards = [
            layout
            for layout, count in zip(instance.layouts, whole, strict=True)
            for _ in range(int(count))
        ]
        where = [
            (board, instance.classes[kind, len(layout.slices) > 1])
            for board, layout in enumerate(self.boards)
            for kind in layout.slices
        ]
        self.board = np.array([board for board, _ in where])
        self.column = np.array([column for _, column in where])
        self.loads = np.zeros(len(where))
        self.slot = np.full(instance.t.shape[0], -1)
        self._place(shares)

    def _place(self, shares: FloatArray) -> None:
        """Longest job first, to the slice of its class that ends first."""
        t = self.instance.t
        present = np.zeros(t.shape[1], dtype=bool)
        present[self.column] = True
        shares = np.where(present & np.isfinite(t), shares, -1.0)
        column = shares.argmax(axis=1)
        # A job whose share was rounded away goes where it is fastest.
        lost = shares.max(axis=1) <= 0
        fastest = np.where(present, t, np.inf).argmin(axis=1)
        column = np.where(lost, fastest, column)
        times = t[np.arange(len(column)), column]
        for job in np.argsort(-times, kind="stable"):
            slots = np.flatnonzero(self.column == column[job])
            slot = slots[self.loads[slots].argmin()]
            self.slot[job] = slot
            self.loads[slot] += times[job]

    def improve(self, rounds: int = 20_000) -> None:
        """Shorten the slice that ends last, by a move or else a swap, while one does."""
        t = self.instance.t
        for _ in range(rounds):
            last = int(self.loads.argmax())
            top = self.loads[last]
            own = np.flatnonzero(self.slot == last)
            times = t[own][:, self.column]  # job x slot
            after = self.loads + times
            after[:, last] = np.inf
            job, slot = np.unravel_index(int(after.argmin()), after.shape)
            if after[job, slot] < top * (1 - 1e-9):
                self._move(int(own[job]), int(slot))
                continue
            if not self._swap(own, last, top):
                return

    def _move(self, job: int, slot: int) -> None:
        t, old = self.instance.t, int(self.slot[job])
        self.loads[old] -= t[job, self.column[old]]
        self.loads[slot] += t[job, self.column[slot]]
        self.slot[job] = slot

    def _swap(self, own: IntArray, last: int, top: float) -> bool:
        t = self.instance.t
        everyone = np.arange(t.shape[0])
        at = self.slot
        theirs = t[everyone, self.column[at]]
        here = t[:, self.column[last]]
        best, pair = top * (1 - 1e-9), None
        for job in own:
            new_last = top - t[job, self.column[last]] + here
            new_other = self.loads[at] - theirs + t[job, self.column[at]]
            worst = np.maximum(new_last, new_other)
            worst[at == last] = np.inf
            other = int(worst.argmin())
            if worst[other] < best:
                best, pair = worst[other], (int(job), other)
        if pair is None:
            return False
        job, other = pair
        slot = int(self.slot[other])
        self._move(job, slot)
        self._move(other, last)
        return True


def _concrete(
    instance: _Instance,
    whole: IntArray,
    shares: FloatArray,
    *,
    objective: Objective,
    bound: float,
    started: float,
) -> FleetPlan:
    shop = _Shop(instance, whole, shares)
    shop.improve()
    everyone = np.arange(instance.t.shape[0])
    joules = instance.e[everyone, shop.column[shop.slot]]
    makespan = float(shop.loads.max())
    rows = {str(layout): row for row, layout in enumerate(instance.layouts)}
    kinds = np.array([rows[str(layout)] for layout in shop.boards])
    if instance.headroom is not None:
        per_board = np.zeros(len(shop.boards))
        np.add.at(per_board, shop.board[shop.slot], joules)
        with np.errstate(divide="ignore", invalid="ignore"):
            least = np.where(per_board > 0, per_board / instance.headroom[kinds], 0.0)
        makespan = max(makespan, float(least.max()))
    energy = (
        float(instance.idle[kinds].sum() * makespan + joules.sum()) if instance.powered else None
    )
    value = makespan if objective == "makespan" else energy
    assert value is not None
    slots: list[list[int]] = [[] for _ in shop.loads]
    for job, slot in enumerate(shop.slot):
        slots[slot].append(job)
    first = np.searchsorted(shop.board, np.arange(len(shop.boards)))
    boards = tuple(
        FleetBoard(layout, tuple(tuple(slots[at + k]) for k in range(len(layout.slices))))
        for layout, at in zip(shop.boards, first, strict=True)
    )
    return FleetPlan(
        objective, value, bound, makespan, energy, boards, time.monotonic() - started, ""
    )


class _ExactModel:
    """Variables: y_bl (board b in layout l), M, E_b (>= idle_l M where y_bl = 1), x_jp."""

    def __init__(self, instance: _Instance) -> None:
        self.instance = instance
        boards, layouts = instance.boards, instance.layouts
        self.places = [
            (board, row, index, instance.classes[kind, len(layout.slices) > 1])
            for board in range(boards)
            for row, layout in enumerate(layouts)
            for index, kind in enumerate(layout.slices)
        ]
        self.pairs = [
            (job, place)
            for job in range(len(instance.options.jobs))
            for place in range(len(self.places))
            if np.isfinite(instance.t[job, self.places[place][3]])
        ]
        self.at_m = boards * len(layouts)
        self.at_e = self.at_m + 1
        self.at_x = self.at_e + boards
        self.count = self.at_x + len(self.pairs)
        self.far_s = self._far()

    def y(self, board: int, row: int) -> int:
        return board * len(self.instance.layouts) + row

    def _far(self) -> float:
        """A makespan that no optimum exceeds, s."""
        instance = self.instance
        possible = np.isfinite(instance.t)
        far = float(np.where(possible, instance.t, 0.0).max(axis=1).sum())
        if instance.headroom is not None and (instance.headroom > 0).any():
            most = float(np.where(possible, instance.e, 0.0).max(axis=1).sum())
            far = max(far, most / float(instance.headroom[instance.headroom > 0].min()))
        return far

    def constraints(self) -> LinearConstraint:
        instance = self.instance
        rows: list[tuple[dict[int, float], float, float]] = []
        for board in range(instance.boards):
            everything = range(len(instance.layouts))
            rows.append(({self.y(board, row): 1.0 for row in everything}, 1.0, 1.0))
            for row in everything:
                # E_b >= idle_l M - (1 - y) idle_l far
                idle = float(instance.idle[row])
                power = {self.at_e + board: 1.0, self.at_m: -idle}
                power[self.y(board, row)] = -idle * self.far_s
                rows.append((power, -idle * self.far_s, np.inf))
        once: dict[int, dict[int, float]] = {}
        limits: dict[tuple[int, ...], dict[int, float]] = {}
        for k, (job, place) in enumerate(self.pairs):
            board, row, _, column = self.places[place]
            x = self.at_x + k
            once.setdefault(job, {})[x] = 1.0
            limits.setdefault((0, place), {self.at_m: -1.0})[x] = float(instance.t[job, column])
            limits.setdefault((1, job, board, row), {self.y(board, row): -1.0})[x] = 1.0
            if instance.headroom is not None:
                head = -float(instance.headroom[row])
                used = limits.setdefault((2, board, row), {self.at_m: head})
                used[x] = float(instance.e[job, column])
        rows += [(each, 1.0, 1.0) for each in once.values()]
        rows += [(each, -np.inf, 0.0) for each in limits.values()]
        matrix = sparse.lil_array((len(rows), self.count))
        for number, (each, _, _) in enumerate(rows):
            for variable, value in each.items():
                matrix[number, variable] = value
        low, high = np.array([r[1] for r in rows]), np.array([r[2] for r in rows])
        return LinearConstraint(matrix.tocsr(), low, high)

    def cost(self, objective: Objective) -> FloatArray:
        cost = np.zeros(self.count)
        if objective == "makespan":
            cost[self.at_m] = 1.0
            return cost
        cost[self.at_e : self.at_x] = 1.0
        for k, (job, place) in enumerate(self.pairs):
            cost[self.at_x + k] = self.instance.e[job, self.places[place][3]]
        return cost

    def answer(self, x: FloatArray) -> tuple[tuple[FleetBoard, ...], float | None]:
        """Boards with their jobs, and the energy, J."""
        instance = self.instance
        layouts = instance.layouts
        rows = [
            int(x[self.y(board, 0) : self.y(board, 0) + len(layouts)].argmax())
            for board in range(instance.boards)
        ]
        slots: list[list[list[int]]] = [[[] for _ in layouts[row].slices] for row in rows]
        joules = 0.0
        for k, (job, place) in enumerate(self.pairs):
            if x[self.at_x + k] > 0.5:
                board, _, index, column = self.places[place]
                slots[board][index].append(job)
                joules += float(instance.e[job, column])
        boards = tuple(
            FleetBoard(layouts[row], tuple(tuple(jobs) for jobs in own))
            for row, own in zip(rows, slots, strict=True)
        )
        energy = float(instance.idle[rows].sum()) * float(x[self.at_m]) + joules
        return boards, energy if instance.powered else None


def exact_model(
    options: Options,
    layouts: Sequence[Layout],
    boards: int,
    objective: Objective,
    *,
    time_limit_s: float = 60.0,
    deadline_s: float | None = None,
) -> FleetPlan:
    """The whole problem as one mixed-integer model, with HiGHS's own bound.

    Raises InfeasibleError where a job runs nowhere, power is not known for an energy objective,
    or the deadline (s) cannot be met.
    """
    started = time.monotonic()
    instance = _Instance(options, layouts, boards)
    if objective == "energy" and not instance.powered:
        raise InfeasibleError(["the table has no power for every job and layout"])
    model = _ExactModel(instance)
    upper = np.ones(model.count)
    upper[model.at_m] = model.far_s if deadline_s is None else deadline_s
    upper[model.at_e : model.at_x] = np.inf
    whole = np.ones(model.count)
    whole[model.at_m : model.at_x] = 0
    found = _quiet_milp(
        model.cost(objective),
        constraints=[model.constraints()],
        bounds=Bounds(np.zeros(model.count), upper),
        integrality=whole,
        options={"time_limit": max(time_limit_s, 0.1), "mip_rel_gap": 1e-6},
    )
    if found.x is None:
        reason = str(found.message)
        if deadline_s is not None and found.status == _INFEASIBLE:
            reason = f"the jobs cannot be done in {deadline_s:g} s"
        raise InfeasibleError([reason])
    assigned, energy = model.answer(found.x)
    return FleetPlan(
        objective,
        float(found.fun),
        min(float(found.mip_dual_bound), float(found.fun)),
        float(found.x[model.at_m]),
        energy,
        assigned,
        time.monotonic() - started,
        "mixed-integer model (HiGHS)",
    )
