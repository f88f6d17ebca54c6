"""The planner's optimum is that of trying everything; the models agree with the search."""

from __future__ import annotations

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from unit.planner.instances import (
    Instance,
    brute_fixed,
    brute_steady,
    close,
    fixed_values,
    instances,
)
from wattslice.config.layout import Layout
from wattslice.planner import fleet
from wattslice.planner.errors import InfeasibleError
from wattslice.planner.exact import exact_model
from wattslice.planner.pool import Group
from wattslice.planner.predict import fixed, steady, timeline
from wattslice.planner.search import (
    FIXED,
    Candidate,
    Front,
    Objective,
    search_fixed,
    search_steady,
)

MANY = settings(max_examples=500, deadline=None)
SOME = settings(max_examples=40, deadline=None)


def _best(instance: Instance, objective: Objective) -> Candidate | None:
    found: list[Candidate] = []
    for layout in instance.board.layouts:
        if objective in FIXED:
            found += search_fixed(instance.options, layout, [objective], instance.deadline_s)
        else:
            found += search_steady(instance.options, layout, "full", [objective])
    return min(found, key=lambda candidate: candidate.costs, default=None)


@MANY
@given(instances(), st.sampled_from(["throughput", "samples-per-joule"]))
def test_the_best_steady_plan_is_that_of_trying_everything(
    instance: Instance, objective: Objective
) -> None:
    wanted, found = brute_steady(instance, objective), _best(instance, objective)
    assert (found is None) == (wanted is None)
    if found is not None and wanted is not None:
        assert close(-found.costs[0], wanted)
        # And the prediction that is shown says the same.
        uses = instance.options.uses(found.layout, found.slices)
        shown = steady(instance.table, found.layout, uses, "full", instance.limit_w)
        value = shown.progress if objective == "throughput" else shown.progress_per_j
        assert value is not None
        assert close(value.value, wanted)


@MANY
@given(instances(), st.sampled_from(FIXED))
def test_the_best_plan_of_fixed_work_is_that_of_trying_everything(
    instance: Instance, objective: Objective
) -> None:
    values = brute_fixed(instance)
    found = _best(instance, objective)
    assert (found is None) == (not values)
    if found is not None:
        assert close(found.costs[0], min(v[FIXED.index(objective)] for v in values))
        uses = instance.options.uses(found.layout, found.slices)
        shown = fixed(instance.table, found.layout, uses, instance.limit_w)
        assert shown.energy_j is not None
        value = shown.makespan_s if objective == "makespan" else shown.energy_j
        assert close(value.value, found.costs[0])
        followed = timeline(instance.table, found.layout, uses, instance.limit_w)
        assert followed >= shown.makespan_s.value * (1 - 1e-9)


@SOME
@given(instances(most_jobs=3))
def test_the_pareto_set_is_that_of_trying_everything(instance: Instance) -> None:
    values = brute_fixed(instance)
    front = Front()
    for layout in instance.board.layouts:
        for candidate in search_fixed(instance.options, layout, FIXED, instance.deadline_s):
            front.add(candidate)
    for makespan, energy in values:  # nothing is better than the set
        assert any(
            c.costs[0] <= makespan * (1 + 1e-9) and c.costs[1] <= energy * (1 + 1e-9)
            for c in front.items
        )
    for candidate in front.items:  # and all of the set is real
        own = fixed_values(instance, candidate.layout, candidate.slices)
        assert own is not None
        assert close(own[0], candidate.costs[0])
        assert close(own[1], candidate.costs[1])


@settings(max_examples=25, deadline=None)
@given(instances("a100-sxm4-80gb", most_jobs=3), st.sampled_from(["makespan", "throughput"]))
def test_the_layouts_of_an_a100_are_searched_completely(
    instance: Instance, objective: Objective
) -> None:
    found = _best(instance, objective)
    if objective == "throughput":
        wanted = brute_steady(instance, objective)
        assert (found is None) == (wanted is None)
        assert found is None or close(-found.costs[0], wanted or 0.0)
    else:
        values = brute_fixed(instance)
        assert (found is None) == (not values)
        assert found is None or close(found.costs[0], min(values)[0])


@SOME
@given(instances(), st.sampled_from(FIXED))
def test_the_mixed_integer_model_agrees_with_the_search(
    instance: Instance, objective: Objective
) -> None:
    found = _best(instance, objective)
    try:
        solved = exact_model(
            instance.options,
            instance.board.layouts,
            1,
            objective,
            deadline_s=instance.deadline_s,
        )
    except InfeasibleError:
        assert found is None
        return
    assert found is not None
    assert solved.value == pytest.approx(found.costs[0], rel=1e-4)
    assert solved.bound <= solved.value


def _jobs_of(plan: fleet.FleetPlan) -> list[int]:
    return sorted(job for board in plan.boards for slot in board.jobs for job in slot)


@settings(max_examples=15, deadline=None)
@given(instances(), st.sampled_from(FIXED))
def test_two_boards_lie_between_the_bound_and_the_pooled_plan(
    instance: Instance, objective: Objective
) -> None:
    try:
        pooled = fleet.plan_fleet([Group(instance.options, instance.board.layouts, 2)], objective)
        exact = exact_model(instance.options, instance.board.layouts, 2, objective)
    except InfeasibleError:
        assume(False)
        return
    assert pooled.bound <= exact.value * (1 + 1e-4)
    assert exact.value <= pooled.value * (1 + 1e-4)
    for plan in (pooled, exact):
        assert _jobs_of(plan) == list(range(len(instance.jobs)))
        assert len(plan.boards) == 2
    # The stated makespan is that of its boards.
    makespan = 0.0
    for board in pooled.boards:
        mine = [job for slot in board.jobs for job in slot]
        where = {job: i for i, slot in enumerate(board.jobs) for job in slot}
        if mine:
            part = Instance(
                instance.table,
                instance.board,
                [instance.jobs[j] for j in mine],
                instance.limit_w,
                None,
            )
            own = fixed_values(part, board.layout, [where[j] for j in mine])
            assert own is not None
            makespan = max(makespan, own[0])
    assert close(makespan, pooled.makespan_s)


def test_a_cell_that_is_out_of_memory_is_never_proposed() -> None:
    @settings(max_examples=60, deadline=None)
    @given(instances())
    def check(instance: Instance) -> None:
        for objective in ("throughput", "makespan"):
            best = _best(instance, objective)  # type: ignore[arg-type]
            if best is not None:
                for job, index in zip(instance.jobs, best.slices, strict=True):
                    cell = instance.table.cells[job.workload, best.layout.slices[index]]
                    assert cell.failed is None

    check()


def test_layouts_are_those_of_the_measured_slices() -> None:
    from wattslice.planner.boards import cpu_board, mig_board

    assert [str(x) for x in mig_board("a100-sxm4-80gb", ["full", "3g"]).layouts] == [
        "full",
        "2x3g",
    ]
    assert [str(x) for x in cpu_board(4, ["2c", "1c"]).layouts] == ["2x2c", "2c+2x1c", "4x1c"]
    assert Layout.parse("4g+2g+1g") in mig_board("a100-sxm4-80gb", ["4g", "2g", "1g"]).layouts
