"""Fixed work as one whole mixed-integer model (HiGHS), for instances of tens of jobs."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np
from scipy import sparse
from scipy.optimize import Bounds, LinearConstraint

from wattslice.config.layout import Layout
from wattslice.planner.errors import InfeasibleError
from wattslice.planner.fleet import FleetBoard, FleetPlan
from wattslice.planner.pool import INFEASIBLE, FloatArray, Group, Pool, quiet_milp
from wattslice.planner.search import Objective, Options


class _Model:
    """Variables: y_bl (board b in layout l), M, E_b (>= idle_l M where y_bl = 1), x_jp."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self.layouts = [layout for _, layout in pool.rows]
        self.boards = pool.groups[0].boards
        boards, layouts = self.boards, self.layouts
        self.places = [
            (board, row, index, column)
            for board in range(boards)
            for row in range(len(layouts))
            for index, column in enumerate(pool.columns(row))
        ]
        self.pairs = [
            (job, place)
            for job in range(len(pool.jobs))
            for place in range(len(self.places))
            if np.isfinite(pool.t[job, self.places[place][3]])
        ]
        self.at_m = boards * len(layouts)
        self.at_e = self.at_m + 1
        self.at_x = self.at_e + boards
        self.count = self.at_x + len(self.pairs)
        self.far_s = self._far()

    def y(self, board: int, row: int) -> int:
        return board * len(self.layouts) + row

    def _far(self) -> float:
        """A makespan that no optimum exceeds, s."""
        pool = self.pool
        possible = np.isfinite(pool.t)
        far = float(np.where(possible, pool.t, 0.0).max(axis=1).sum())
        if pool.limited and (pool.headroom > 0).any():
            most = float(np.where(possible, pool.e, 0.0).max(axis=1).sum())
            far = max(far, most / float(pool.headroom[pool.headroom > 0].min()))
        return far

    def constraints(self) -> LinearConstraint:
        pool = self.pool
        rows: list[tuple[dict[int, float], float, float]] = []
        for board in range(self.boards):
            everything = range(len(self.layouts))
            rows.append(({self.y(board, row): 1.0 for row in everything}, 1.0, 1.0))
            for row in everything:
                # E_b >= idle_l M - (1 - y) idle_l far
                idle = float(pool.idle[row])
                power = {self.at_e + board: 1.0, self.at_m: -idle}
                power[self.y(board, row)] = -idle * self.far_s
                rows.append((power, -idle * self.far_s, np.inf))
        once: dict[int, dict[int, float]] = {}
        limits: dict[tuple[int, ...], dict[int, float]] = {}
        for k, (job, place) in enumerate(self.pairs):
            board, row, _, column = self.places[place]
            x = self.at_x + k
            once.setdefault(job, {})[x] = 1.0
            limits.setdefault((0, place), {self.at_m: -1.0})[x] = float(pool.t[job, column])
            limits.setdefault((1, job, board, row), {self.y(board, row): -1.0})[x] = 1.0
            if pool.limited:
                head = -float(pool.headroom[row])
                used = limits.setdefault((2, board, row), {self.at_m: head})
                used[x] = float(pool.e[job, column])
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
            cost[self.at_x + k] = self.pool.e[job, self.places[place][3]]
        return cost

    def answer(self, x: FloatArray) -> tuple[tuple[FleetBoard, ...], float | None]:
        """Boards with their jobs, and the energy, J."""
        pool = self.pool
        layouts = self.layouts
        rows = [
            int(x[self.y(board, 0) : self.y(board, 0) + len(layouts)].argmax())
            for board in range(self.boards)
        ]
        slots: list[list[list[int]]] = [[[] for _ in layouts[row].slices] for row in rows]
        joules = 0.0
        for k, (job, place) in enumerate(self.pairs):
            if x[self.at_x + k] > 0.5:
                board, _, index, column = self.places[place]
                slots[board][index].append(job)
                joules += float(pool.e[job, column])
        boards = tuple(
            FleetBoard(layouts[row], tuple(tuple(jobs) for jobs in own))
            for row, own in zip(rows, slots, strict=True)
        )
        energy = float(pool.idle[rows].sum()) * float(x[self.at_m]) + joules
        return boards, energy if pool.powered else None


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
    pool = Pool([Group(options, tuple(layouts), boards)])
    if objective == "energy" and not pool.powered:
        raise InfeasibleError(["the table has no power for every job and layout"])
    model = _Model(pool)
    upper = np.ones(model.count)
    upper[model.at_m] = model.far_s if deadline_s is None else deadline_s
    upper[model.at_e : model.at_x] = np.inf
    whole = np.ones(model.count)
    whole[model.at_m : model.at_x] = 0
    found = quiet_milp(
        model.cost(objective),
        constraints=[model.constraints()],
        bounds=Bounds(np.zeros(model.count), upper),
        integrality=whole,
        options={"time_limit": max(time_limit_s, 0.1), "mip_rel_gap": 1e-6},
    )
    if found.x is None:
        reason = str(found.message)
        if deadline_s is not None and found.status == INFEASIBLE:
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
