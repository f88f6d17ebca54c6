"""Fixed work of many jobs on many boards, of one kind or several, by mixed-integer programming.

`wattslice.planner.exact` is the whole problem, for tens of jobs. `plan_fleet` is for thousands:

1. Slices of a kind are pooled over all boards of a group (equal boards). With y_l boards in layout
   l, n_lc slices of class c in it, x_jc the share of job j on class c and M the makespan:

       Σ_c x_jc = 1,   Σ_j t_jc x_jc <= M Σ_l n_lc y_l,   Σ_l y_l = B                  per group
       Σ_jc e_jc x_jc <= M Σ_l (L - idle_l) y_l         the power limit L of a group's boards
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
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import sparse
from scipy.optimize import Bounds, LinearConstraint

from wattslice.config.layout import Layout
from wattslice.planner.errors import InfeasibleError
from wattslice.planner.pool import INFEASIBLE, FloatArray, Group, Pool, quiet_milp
from wattslice.planner.search import Objective

IntArray = npt.NDArray[np.int64]

# Makespans above the bound at which whole boards are tried; with few jobs the bound is loose, and
# more is tried only until there is a plan.
_STEPS = (0.0, 0.002, 0.005, 0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64)
_FAR_STEPS = tuple(2.0**k for k in range(20))


@dataclass(frozen=True, slots=True)
class FleetBoard:
    """One board: its layout and the jobs of each slice, by number; `group`: which kind of board."""

    layout: Layout
    jobs: tuple[tuple[int, ...], ...]
    group: int = 0


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
    limited: tuple[int, ...] = ()  # groups whose power limit was applied

    @property
    def gap(self) -> float:
        """value / bound - 1: at most so much could be saved."""
        return self.value / self.bound - 1.0 if self.bound > 0 else math.inf


@dataclass(frozen=True, slots=True)
class _Solved:
    """`x`: boards, or board-seconds, per layout; None where nothing was found."""

    status: int
    value: float
    x: FloatArray | None
    shares: FloatArray


def _solve(
    pool: Pool,
    objective: Objective,
    allowed: npt.NDArray[np.bool_],
    *,
    makespan: float | None = None,
    seconds: float,
    deadline_s: float | None = None,
) -> _Solved:
    """The pooled model. Without a makespan the relaxation in z; else whole boards at it."""
    jobs, columns = np.nonzero(allowed)
    width, pairs = len(pool.rows), len(jobs)
    # Variables: per layout (z or y), M, x of the allowed pairs.
    count = width + 1 + pairs
    scale = 1.0 if makespan is None else makespan
    cost = np.zeros(count)
    if objective == "energy":
        cost[:width] = pool.idle * scale
        cost[width + 1 :] = pool.e[jobs, columns]
    else:
        cost[width] = 1.0
    at = np.arange(pairs) + width + 1
    each = sparse.csr_array((np.ones(pairs), (jobs, at)), (pool.t.shape[0], count))
    use = sparse.csr_array((pool.t[jobs, columns], (columns, at)), (pool.n.shape[1], count))
    have = sparse.csr_array(np.hstack([pool.n.T * scale, np.zeros((len(pool.n.T), count - width))]))
    boards = np.zeros((len(pool.groups), count))
    boards[:, :width] = pool.of_group
    wanted = pool.boards
    if makespan is None:
        boards[:, width] = -pool.boards
        wanted = np.zeros(len(pool.groups))
    constraints = [
        LinearConstraint(each, 1.0, 1.0),
        LinearConstraint(use - have, -np.inf, 0.0),
        LinearConstraint(boards, wanted, wanted),
    ]
    if pool.limited:
        power = np.zeros((len(pool.limited), count))
        for row, g in enumerate(pool.limited):
            own = pool.of_group[g] > 0
            power[row, :width][own] = -pool.headroom[own] * scale
            mine = pool.group_of_class[columns] == g
            power[row, width + 1 :][mine] = pool.e[jobs, columns][mine]
        constraints.append(LinearConstraint(power, -np.inf, 0.0))
    lower, upper = np.zeros(count), np.ones(count)
    upper[:width] = np.inf
    longest = np.where(allowed, pool.t, np.inf).min(axis=1).max()
    lower[width] = longest if makespan is None else makespan
    upper[width] = (deadline_s or np.inf) if makespan is None else makespan
    if lower[width] > upper[width]:
        return _Solved(INFEASIBLE, math.inf, None, np.zeros_like(pool.t))
    whole = np.zeros(count)
    if makespan is not None:
        whole[:width] = 1
    found = quiet_milp(
        cost,
        constraints=constraints,
        bounds=Bounds(lower, upper),
        integrality=whole,
        options={"time_limit": max(seconds, 0.1), "mip_rel_gap": 1e-4},
    )
    shares = np.zeros_like(pool.t)
    if found.x is None:
        return _Solved(int(found.status), math.inf, None, shares)
    shares[jobs, columns] = found.x[width + 1 :]
    return _Solved(int(found.status), float(found.fun), found.x[:width], shares)


def _relaxation(
    pool: Pool,
    objective: Objective,
    allowed: npt.NDArray[np.bool_],
    seconds: float,
    deadline_s: float | None,
) -> tuple[float, float]:
    """Lower bound of the objective, and the makespan (s) at which it is had."""
    if allowed.any(axis=1).all():
        found = _solve(pool, objective, allowed, seconds=seconds, deadline_s=deadline_s)
        if found.x is not None:
            return found.value, float(found.x.sum()) / float(pool.boards.sum())
    free = np.isfinite(pool.t)
    fastest = _solve(pool, "makespan", free, seconds=seconds)
    nearest = [] if fastest.x is None else [f"{fastest.value:.6g} s at least"]
    reason = "the power limit leaves nothing above idle"
    if not nearest and deadline_s is None:
        nearest = [f"a power limit above {float(pool.idle.min()):.4g} W, the idle power"]
    if deadline_s is not None:
        reason = f"the jobs cannot be done in {deadline_s:g} s"
    raise InfeasibleError([reason], nearest)


def plan_fleet(
    groups: Sequence[Group],
    objective: Objective = "makespan",
    *,
    time_limit_s: float = 55.0,
    target_gap: float = 0.01,
    deadline_s: float | None = None,
) -> FleetPlan:
    """A plan for boards of one kind or several, and its gap to the bound.

    All boards are on until the last job ends. Raises InfeasibleError where a job runs nowhere,
    where power is not known for an energy objective, or where the deadline (s) cannot be met.
    """
    started = time.monotonic()
    pool = Pool(groups)
    if objective == "energy" and not pool.powered:
        raise InfeasibleError(["the table has no power for every job and layout"])
    allowed = np.isfinite(pool.t)
    if deadline_s is not None:
        allowed &= pool.t <= deadline_s
    bound, base_s = _relaxation(pool, objective, allowed, time_limit_s / 2, deadline_s)
    best: FleetPlan | None = None
    for step in (*_STEPS, *_FAR_STEPS):
        left = time_limit_s - (time.monotonic() - started)
        if best is not None and (left < 1.0 or step in _FAR_STEPS):
            break
        makespan = base_s * (1.0 + step)
        if deadline_s is not None and makespan > deadline_s:
            break
        possible = allowed & (pool.t <= makespan * (1 + 1e-12))
        if not possible.any(axis=1).all():
            bound = max(bound, makespan) if objective == "makespan" else bound
            continue
        solved = _solve(
            pool,
            "energy" if pool.powered else objective,
            possible,
            makespan=makespan,
            seconds=left / 3,
        )
        if solved.x is None:
            if solved.status == INFEASIBLE and objective == "makespan":
                bound = max(bound, makespan)
            continue
        plan = _concrete(
            pool,
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
        pool.limited,
    )


class _Shop:
    """Slices of all boards with their jobs, improved by moves and swaps."""

    def __init__(self, pool: Pool, whole: IntArray, shares: FloatArray) -> None:
        self.pool = pool
        self.rows = np.repeat(np.arange(len(whole)), whole)  # layout of each board
        where = [
            (board, column)
            for board, row in enumerate(self.rows.tolist())
            for column in pool.columns(row)
        ]
        self.board = np.array([board for board, _ in where])
        self.column = np.array([column for _, column in where])
        self.loads = np.zeros(len(where))
        self.slot = np.full(pool.t.shape[0], -1)
        self._place(shares)

    def _place(self, shares: FloatArray) -> None:
        """Longest job first, to the slice of its class that ends first."""
        t = self.pool.t
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
        t = self.pool.t
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
        t, old = self.pool.t, int(self.slot[job])
        self.loads[old] -= t[job, self.column[old]]
        self.loads[slot] += t[job, self.column[slot]]
        self.slot[job] = slot

    def _swap(self, own: IntArray, last: int, top: float) -> bool:
        t = self.pool.t
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
    pool: Pool,
    whole: IntArray,
    shares: FloatArray,
    *,
    objective: Objective,
    bound: float,
    started: float,
) -> FleetPlan:
    shop = _Shop(pool, whole, shares)
    shop.improve()
    everyone = np.arange(pool.t.shape[0])
    joules = pool.e[everyone, shop.column[shop.slot]]
    makespan = float(shop.loads.max())
    if pool.limited:
        per_board = np.zeros(len(shop.rows))
        np.add.at(per_board, shop.board[shop.slot], joules)
        with np.errstate(divide="ignore", invalid="ignore"):
            least = np.where(per_board > 0, per_board / pool.headroom[shop.rows], 0.0)
        makespan = max(makespan, float(least.max()))
    energy = float(pool.idle[shop.rows].sum() * makespan + joules.sum()) if pool.powered else None
    value = makespan if objective == "makespan" else energy
    assert value is not None
    slots: list[list[int]] = [[] for _ in shop.loads]
    for job, slot in enumerate(shop.slot):
        slots[slot].append(job)
    first = np.searchsorted(shop.board, np.arange(len(shop.rows)))
    boards = []
    for row, at in zip(shop.rows, first, strict=True):
        group, layout = pool.rows[row]
        jobs = tuple(tuple(slots[at + k]) for k in range(len(layout.slices)))
        boards.append(FleetBoard(layout, jobs, group))
    return FleetPlan(
        objective, value, bound, makespan, energy, tuple(boards), time.monotonic() - started, ""
    )
