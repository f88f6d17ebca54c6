"""Jobs that run all the time on many boards, of one kind or several: the largest progress of all.

With y_l boards in layout l, n_lc slices of class c in it, m_w equal jobs of kind w, x_wc of them on
class c, r_wc their rate there and b_w on the reference:

    max Σ_wc (r_wc / b_w) x_wc
    Σ_c x_wc = m_w,   Σ_w x_wc <= Σ_l n_lc y_l,   Σ_l y_l = B per group of equal boards

Slices of a class are alike, so that this is exact where no power limit is reached (x and y are
whole), and an upper bound where one is: jobs are then put where their board draws least, and what
each board throttles is in the value, not in the bound.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import sparse
from scipy.optimize import Bounds, LinearConstraint

from wattslice.planner.errors import InfeasibleError
from wattslice.planner.fleet import FleetBoard
from wattslice.planner.pool import INFEASIBLE, FloatArray, Group, Pool, quiet_milp
from wattslice.planner.predict import Job, Steady, Use, steady

JobKind = tuple[str, float | None, float | None]  # workload, minimum rate, memory
IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class SteadyFleetPlan:
    """A plan with its proof: the optimum lies in [progress, bound]."""

    progress: float  # reference-seconds per second, all boards together
    bound: float
    power_w: float | None
    boards: tuple[FleetBoard, ...]
    seconds: float
    limited: tuple[int, ...]  # groups whose power limit was applied
    method: str = "mixed-integer model (HiGHS) of job kinds on classes of slices"

    @property
    def gap(self) -> float:
        """bound / progress - 1: at most so much more is possible."""
        return max(self.bound / self.progress - 1.0, 0.0) if self.progress > 0 else math.inf


def kind_of(job: Job) -> JobKind:
    """Jobs of one kind are not told apart."""
    return (job.workload, job.min_rate, job.memory_mib)


def plan_steady_fleet(
    groups: Sequence[Group], reference: str, *, time_limit_s: float = 55.0
) -> SteadyFleetPlan:
    """The plan of largest progress in units of the first group's `reference` (full or 7g).

    Raises InfeasibleError where the jobs have no slice each, or a minimum rate is missed.
    """
    started = time.monotonic()
    pool = Pool(groups)
    counts = Counter(kind_of(job) for job in pool.jobs)
    kinds = list(counts)
    values, power_w = _measured(pool, kinds, reference)
    bound, on_class, layouts = _solve(
        pool, values, np.array([counts[kind] for kind in kinds], float), time_limit_s
    )
    boards = _placed(pool, kinds, on_class, layouts, power_w)
    predicted = [_predict(pool, board, reference) for board in boards]
    powers = [each.power_w for each in predicted if each.power_w is not None]
    return SteadyFleetPlan(
        progress=math.fsum(each.progress.value for each in predicted),
        bound=bound,
        power_w=math.fsum(p.value for p in powers) if len(powers) == len(predicted) else None,
        boards=boards,
        seconds=time.monotonic() - started,
        limited=pool.limited,
    )


def _measured(
    pool: Pool, kinds: Sequence[JobKind], reference: str
) -> tuple[FloatArray, FloatArray]:
    """Progress, and W above idle, of each kind of job on each class; progress -inf: impossible."""
    values = np.full((len(kinds), len(pool.classes)), -np.inf)
    power_w = np.zeros_like(values)
    for row, kind in enumerate(kinds):
        job = Job(kind[0], kind[0], None, *kind[1:])
        base = pool.groups[0].options.table.measured(job.workload, reference, neighbours=False)
        assert base is not None
        for (g, name, neighbours), column in pool.classes.items():
            found = pool.groups[g].options.on(job, name, neighbours=neighbours)
            if found is not None:
                values[row, column] = found.rate.value / base.rate.value
                power_w[row, column] = 0.0 if found.dynamic_w is None else found.dynamic_w.value
    return values, power_w


def _solve(
    pool: Pool, values: FloatArray, wanted: FloatArray, seconds: float
) -> tuple[float, IntArray, IntArray]:
    """The bound of progress, how many of each kind on each class, and how many of each layout."""
    kinds, columns = np.nonzero(np.isfinite(values))
    width, pairs = len(pool.rows), len(kinds)
    at = np.arange(pairs) + width
    each = sparse.csr_array((np.ones(pairs), (kinds, at)), (len(wanted), width + pairs))
    use = sparse.csr_array((np.ones(pairs), (columns, at)), (pool.n.shape[1], width + pairs))
    have = sparse.csr_array(np.hstack([pool.n.T, np.zeros((pool.n.shape[1], pairs))]))
    boards = np.hstack([pool.of_group, np.zeros((len(pool.groups), pairs))])
    found = quiet_milp(
        np.concatenate([np.zeros(width), -values[kinds, columns]]),
        constraints=[
            LinearConstraint(each, wanted, wanted),
            LinearConstraint(use - have, -np.inf, 0.0),
            LinearConstraint(boards, pool.boards, pool.boards),
        ],
        bounds=Bounds(0.0, np.inf),
        integrality=np.ones(width + pairs),
        options={"time_limit": max(seconds, 0.1), "mip_rel_gap": 1e-6},
    )
    if found.x is None:
        most = int(
            sum(
                group.boards * max(len(layout.slices) for layout in group.layouts)
                for group in pool.groups
            )
        )
        why = "have no slice each" if found.status == INFEASIBLE else "were not placed in the time"
        raise InfeasibleError(
            [f"{int(wanted.sum())} jobs that run all the time {why}"],
            [f"{most} slices at most on all boards, or jobs with an end (give their work)"],
        )
    whole = np.rint(found.x).astype(np.int64)
    on_class = np.zeros(values.shape, dtype=np.int64)
    on_class[kinds, columns] = whole[width:]
    return -float(found.mip_dual_bound), on_class, whole[:width]


def _placed(
    pool: Pool,
    kinds: Sequence[JobKind],
    on_class: IntArray,
    layouts: IntArray,
    power_w: FloatArray,
) -> tuple[FleetBoard, ...]:
    """Jobs on boards: those that draw most first, each on the board that draws least so far."""
    rows = np.repeat(np.arange(len(layouts)), layouts)
    free: dict[int, list[tuple[int, int]]] = {}  # class -> (board, slice)
    for board, row in enumerate(rows):
        for index, column in enumerate(pool.columns(int(row))):
            free.setdefault(column, []).append((board, index))
    numbers: dict[JobKind, list[int]] = {}
    for number, job in enumerate(pool.jobs):
        numbers.setdefault(kind_of(job), []).append(number)
    drawn = pool.idle[rows].copy()
    taken: dict[tuple[int, int], int] = {}
    pairs = [(k, c) for k, c in np.argwhere(on_class) for _ in range(on_class[k, c])]
    for kind, column in sorted(pairs, key=lambda pair: -power_w[pair]):
        place = min(free[column], key=lambda each: (drawn[each[0]], each))
        free[column].remove(place)
        drawn[place[0]] += power_w[kind, column]
        taken[place] = numbers[kinds[kind]].pop(0)
    boards = []
    for board, row in enumerate(rows):
        group, layout = pool.rows[row]
        slots = [
            (taken[board, i],) if (board, i) in taken else () for i in range(len(layout.slices))
        ]
        boards.append(FleetBoard(layout, tuple(slots), group))
    return tuple(boards)


def _predict(pool: Pool, board: FleetBoard, reference: str) -> Steady:
    """What a board does under its own power limit. Raises InfeasibleError for a missed rate."""
    options = pool.groups[board.group].options
    uses = []
    for index, slot in enumerate(board.jobs):
        for number in slot:
            measured = options.measured(pool.jobs[number], board.layout, index)
            assert measured is not None
            uses.append(Use(pool.jobs[number], index, measured))
    base = pool.groups[0].options.table
    predicted = steady(options.table, board.layout, uses, reference, options.limit_w, base=base)
    for use, rate in zip(uses, predicted.rates, strict=True):
        if use.job.min_rate is not None and rate.value < use.job.min_rate:
            raise InfeasibleError(
                [
                    f"the power limit holds {use.job.name} to {rate.value:.4g} "
                    f"{options.table.rate_unit}"
                ],
                ["a lower minimum rate, or more boards"],
            )
    return predicted
