from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unit.config.campaigns import campaign
from wattslice.config.campaign import Campaign
from wattslice.config.expand import expand
from wattslice.config.load import load_campaign


def test_runs_of_layouts_workloads_precisions_placements_and_repeats() -> None:
    runs = expand(load_campaign(campaign()))
    # On one slice `fill` is `solo`, so full gives one placement and 2x1c gives two.
    assert len(runs) == 2 * 2 * 2 * (1 + 2)
    assert len({run.run_id for run in runs}) == len(runs)
    fill = next(run for run in runs if run.placement == "resnet.fill")
    assert [a.slice_index for a in fill.spec.assignments] == [0, 1]
    solo = next(run for run in runs if run.run_id.startswith("2x1c/resnet.solo/"))
    assert [a.slice_index for a in solo.spec.assignments] == [0]


def test_solo_visits_each_kind_of_slice_once() -> None:
    runs = expand(load_campaign(campaign(experiments__0__layouts=["4g+2g+1g+1g"])))
    labels = {run.placement for run in runs if run.placement.startswith("resnet.solo")}
    assert labels == {"resnet.solo.4g", "resnet.solo.2g", "resnet.solo.1g"}


def test_a_mix_leaves_null_slices_empty() -> None:
    raw = campaign(
        mixes={"pair": ["resnet", None, "albert"]},
        experiments__0__layouts=["4g+2g+1g"],
        experiments__0__placements=["pair"],
    )
    run = expand(load_campaign(raw))[0]
    assert run.placement == "mix.pair"
    assert [(a.slice_index, a.workload) for a in run.spec.assignments] == [
        (0, "resnet"),
        (2, "albert"),
    ]


def test_experiments_that_ask_for_the_same_run_share_it() -> None:
    raw = campaign()
    raw["experiments"].append({**raw["experiments"][0], "name": "again", "layouts": ["full"]})
    runs = expand(load_campaign(raw))
    assert len(runs) == 24
    assert {run.experiments for run in runs if run.layout == "full"} == {("main", "again")}


@given(st.integers(0, 2**31))
def test_the_order_is_layout_then_block_and_shuffled_by_seed_alone(seed: int) -> None:
    config = load_campaign(campaign(seed=seed))
    runs = expand(config)
    keys = [(["full", "2x1c"].index(run.layout), run.repeat) for run in runs]
    assert keys == sorted(keys)
    assert [run.run_id for run in expand(config)] == [run.run_id for run in runs]


SCIENTIFIC = [
    {"seed": 1},
    {"board": {"kind": "cpu", "power_model": {"idle_w": 1, "active_w_per_core": 1, "source": "x"}}},
    {"measure": {"sample_hz": 5}},
    {"workloads__resnet__batch_size": 5},
    {"data__digits": {"kind": "digits", "image_size": 16}},
]
COSMETIC = [
    {"title": "Other"},
    {"question": "Why?"},
    {"report": {"confidence": 0.9}},
    {"experiments__0__question": "Why?"},
    {"workloads__resnet__note": "small"},
    {"min_free_mib": 1},
]


def _digests(**changes: object) -> set[str]:
    runs = expand(load_campaign(campaign(**changes)))
    return {run.spec.digest() for run in runs if run.placement.startswith("resnet")}


@pytest.mark.parametrize("change", SCIENTIFIC, ids=lambda change: next(iter(change)))
def test_what_is_scientific_changes_every_digest(change: dict[str, object]) -> None:
    assert _digests().isdisjoint(_digests(**change))


@pytest.mark.parametrize("change", COSMETIC, ids=lambda change: next(iter(change)))
def test_what_is_cosmetic_changes_no_digest(change: dict[str, object]) -> None:
    assert _digests() == _digests(**change)


def test_idle_and_runs_of_a_layout_come_together_in_the_order_of_runs() -> None:
    prepared = Campaign(campaign())
    order = [(prepared.run_priority(run.run_id), run.layout, "run") for run in prepared.runs]
    order += [(prepared.layout_priority(name), name, "idle") for name in prepared.layouts]
    order.sort(reverse=True)
    assert [kind for _, _, kind in order].count("idle") == 2
    assert order[0][1:] == ("full", "idle")
    assert [layout for _, layout, _ in order] == ["full"] * 9 + ["2x1c"] * 17
    assert order[9][1:] == ("2x1c", "idle")
    assert len({priority for priority, _, _ in order}) == len(order)
