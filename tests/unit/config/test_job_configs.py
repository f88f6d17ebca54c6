"""Mixes, job lists and sharing schemes: how they expand, and which configs are refused."""

from __future__ import annotations

from typing import Any

import pytest

from unit.config.campaigns import campaign
from wattslice.config.errors import ConfigError
from wattslice.config.expand import Run, expand, pack
from wattslice.config.load import load_campaign
from wattslice.config.spec import RunSpec

JOBS = {
    "mixes": {"both": ["resnet", "albert"]},
    "job_lists": {"three": ["resnet", "albert", "albert"]},
    "experiments__0__workloads": [],
    "experiments__0__precisions": ["fp32"],
    "experiments__0__repeats": 1,
}


def _runs(**changes: Any) -> list[Run]:
    return expand(load_campaign(campaign(**{**JOBS, **changes})))


def _workloads(run: Run) -> dict[int, str]:
    return {a.slice_index: a.workload for a in run.spec.assignments}


def _baselines(*schemes: str, **changes: Any) -> list[Run]:
    return _runs(
        experiments__0__layouts=["full"],
        experiments__0__placements=["both"],
        experiments__0__sharing=list(schemes),
        **changes,
    )


def test_what_is_not_used_is_not_in_a_spec_so_that_old_digests_hold() -> None:
    (run, *_) = expand(load_campaign(campaign()))
    assert "sharing" not in run.spec.model_dump(mode="json")
    assert "allow_partial" not in run.spec.measure
    assert RunSpec.model_validate_json(run.spec.canonical()).digest() == run.spec.digest()
    (other, *_) = expand(load_campaign(campaign(measure={"allow_partial": True})))
    assert other.spec.measure["allow_partial"] is True


def test_baselines_are_named_by_their_scheme() -> None:
    runs = _baselines("sequential", "time-slice", "mps", experiments__0__mps_percentages=[70, 30])
    by_placement = {run.placement: run for run in runs}
    assert set(by_placement) == {
        "resnet.solo",
        "albert.solo",
        "mix.both.time-slice",
        "mix.both.mps-70-30",
    }
    assert by_placement["resnet.solo"].spec.sharing is None
    assert _workloads(by_placement["mix.both.time-slice"]) == {0: "resnet", 1: "albert"}
    mps = by_placement["mix.both.mps-70-30"].spec.sharing
    assert mps is not None
    assert (mps.scheme, mps.active_thread_percentages) == ("mps", (70, 30))
    again = RunSpec.model_validate_json(by_placement["mix.both.mps-70-30"].spec.canonical())
    assert again.sharing == mps
    assert len({run.spec.digest() for run in runs}) == 4


def test_sequential_shares_its_runs_with_solo() -> None:
    raw = campaign(
        **{
            **JOBS,
            "experiments__0__layouts": ["full"],
            "experiments__0__placements": ["both"],
            "experiments__0__sharing": ["sequential"],
        }
    )
    solo = {"name": "solo", "layouts": ["full"], "workloads": ["resnet"], "precisions": ["fp32"]}
    raw["experiments"].append({**solo, "placements": ["solo"], "repeats": 1})
    runs = {run.run_id: run for run in expand(load_campaign(raw))}
    assert set(runs) == {"full/resnet.solo/fp32/rep1", "full/albert.solo/fp32/rep1"}
    assert runs["full/resnet.solo/fp32/rep1"].experiments == ("main", "solo")


def test_a_job_list_is_packed_on_any_layout() -> None:
    runs = _runs(experiments__0__layouts=["2x1c", "4x1c"], experiments__0__placements=["three"])
    found = {(run.layout, run.placement): _workloads(run) for run in runs}
    assert found == {
        ("2x1c", "mix.three.1of2"): {0: "resnet", 1: "albert"},
        ("2x1c", "mix.three.2of2"): {0: "albert"},
        ("4x1c", "mix.three"): {0: "resnet", 1: "albert", 2: "albert"},
    }
    assert pack(["a"], 2) == [("a", None)]


REFUSED = {
    "a scheme on a layout of several slices": (
        {"layouts": ["2x1c"], "placements": ["both"], "sharing": ["time-slice"]},
        "shares one slice, such as full or 7g, but the layout 2x1c has 2",
    ),
    "a scheme for solo": (
        {"layouts": ["full"], "workloads": ["resnet"], "sharing": ["mps"]},
        "is for mixes and job lists",
    ),
    "percentages for other jobs": (
        {
            "layouts": ["full"],
            "placements": ["both"],
            "sharing": ["mps"],
            "mps_percentages": [50],
        },
        "has 1 values, but 'both' has 2 jobs",
    ),
    "percentages without mps": (
        {"layouts": ["2x1c"], "placements": ["both"], "mps_percentages": [50, 50]},
        "'sharing' has no 'mps'",
    ),
    "an unknown list": (
        {"layouts": ["full"], "placements": ["thre"]},
        "did you mean 'three'",
    ),
    "a scheme given twice": (
        {"layouts": ["full"], "placements": ["both"], "sharing": ["mps", "mps"]},
        "'mps' is given 2 times",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_run_is_refused(case: str) -> None:
    changes, message = REFUSED[case]
    experiment = {"name": "main", "precisions": ["fp32"], "placements": ["solo"], **changes}
    with pytest.raises(ConfigError, match="config key") as error:
        load_campaign(campaign(**{**JOBS, "experiments": [experiment]}))
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"job_lists": {"three": ["resnet", "albrt"]}}, "did you mean 'albert'"),
        ({"job_lists": {"three": []}}, "'job_lists.three' is empty"),
        ({"job_lists": {"both": ["resnet"]}}, "the name is taken"),
        ({"plan": {"jobs": ["rsnet"]}}, "did you mean 'resnet'"),
    ],
)
def test_names_of_jobs_are_checked(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as error:
        load_campaign(campaign(**{"mixes": {"both": ["resnet"]}, **changes}))
    assert message in str(error.value)
