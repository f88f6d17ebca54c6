from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from unit.config.campaigns import campaign
from wattslice.config.errors import ConfigError
from wattslice.config.load import load_campaign, load_files, merge, read_yaml


def test_the_default_campaign_is_valid() -> None:
    default = load_files([Path("config/config.yaml")])
    assert {w.model for w in default.workloads.values()} >= {"distilbert", "albert", "llama"}


BAD = {
    "unknown workload": (
        {"experiments__0__workloads": ["resnt"]},
        ["experiments[0].workloads", "'resnt'", "did you mean 'resnet'"],
    ),
    "unknown key": (
        {"measure": {"sampel_hz": 3}},
        ["measure.sampel_hz", "did you mean 'sample_hz'"],
    ),
    "unknown key of a workload": (
        {"workloads__resnet__batchsize": 3},
        ["workloads.resnet.batchsize", "did you mean 'batch_size'"],
    ),
    "unknown key of tagged data": (
        {"data__digits": {"kind": "digits", "image_sz": 3}},
        ["image_sz", "did you mean 'image_size'"],
    ),
    "zero repeats": ({"experiments__0__repeats": 0}, ["experiments[0].repeats", "0", "equal to 1"]),
    "empty list of layouts": ({"experiments__0__layouts": []}, ["experiments[0].layouts", "[]"]),
    "no workloads": ({"experiments__0__workloads": []}, ["experiments[0].workloads", "empty"]),
    "no experiments": ({"experiments": []}, ["experiments", "[]"]),
    "bad layout": ({"experiments__0__layouts": ["3q"]}, ["experiments[0].layouts", "'3q'"]),
    "layout spelt twice": (
        {"experiments__0__layouts": ["2x1c", "1c+1c"]},
        ["experiments[0].layouts", "'2x1c'", "2 times"],
    ),
    "unknown precision": (
        {"experiments__0__precisions": ["fp4"]},
        ["experiments[0].precisions", "'fp4'", "'fp32'"],
    ),
    "unknown placement": (
        {"experiments__0__placements": ["fil"]},
        ["experiments[0].placements", "'fil'", "did you mean 'fill'"],
    ),
    "placement as the report names it": (
        {"mixes": {"both": ["resnet", "albert"]}, "experiments__0__placements": ["mix.both"]},
        ["experiments[0].placements", "'mix.both'", "valid: both, ddp, fill, solo"],
    ),
    "name of a workload that is no path": (
        {"workloads__Res/Net": {}},
        ["Res/Net", "a-z, 0-9, - and _"],
    ),
    "missing data set": (
        {"workloads__resnet__data": "digit"},
        ["workloads.resnet.data", "'digit'", "did you mean 'digits'"],
    ),
    "data that does not fit the task": (
        {"workloads__resnet__data": "text"},
        ["workloads.resnet.data", "'text'", "images"],
    ),
    "fine-tuning without weights": (
        {"workloads__resnet__mode": "finetune"},
        ["workloads.resnet.weights", "missing"],
    ),
    "text task of a timm model": (
        {"workloads__resnet__task": "causal-lm"},
        ["workloads.resnet.task", "'causal-lm'", "image-classification"],
    ),
    "mix of another length": (
        {"mixes": {"both": ["resnet"]}, "experiments__0__placements": ["both"]},
        ["experiments[0].placements", "'both'", "names 1 slices", "2x1c has 2"],
    ),
    "mix of nothing": ({"mixes": {"none": [None]}}, ["mixes.none", "at least one"]),
    "mix of an unknown workload": (
        {"mixes": {"both": ["alber"]}},
        ["mixes.both", "'alber'", "did you mean 'albert'"],
    ),
    "a search for a batch that is given": (
        {"workloads__resnet__batch_search": {"max": 8}},
        ["workloads.resnet.batch_search", "batch_size: auto", "not 4"],
    ),
    "a search without a size": (
        {
            "workloads__resnet__batch_size": "auto",
            "workloads__resnet__gradient_accumulation_steps": 16,
            "workloads__resnet__batch_search": {"max": 8},
        },
        ["workloads.resnet.batch_search.max", "8", "smallest batch, 16"],
    ),
    "a batch of another word": (
        {"workloads__resnet__batch_size": "big"},
        ["workloads.resnet.batch_size", "'big'", "auto"],
    ),
    "a search in shared memory": (
        {
            "workloads__resnet__batch_size": "auto",
            "mixes": {"both": ["resnet", "albert"]},
            "experiments__0__layouts": ["full"],
            "experiments__0__placements": ["both"],
            "experiments__0__sharing": ["time-slice"],
        },
        ["workloads.resnet.batch_size", "'auto'", "share one memory"],
    ),
    "several boards for one job": (
        {"board": {"kind": "nvidia"}, "experiments__0__layouts": ["4xfull"]},
        ["experiments[0].placements", "solo, fill", "4xfull has 4", "valid: ddp"],
    ),
    "fewer boards than the layout has": (
        {
            "board": {"kind": "nvidia", "select": ["GPU-a", "GPU-b"]},
            "experiments__0__layouts": ["full", "4xfull"],
            "experiments__0__placements": ["ddp"],
        },
        ["board.select", "names 2 board(s)", "4xfull", "has 4"],
    ),
    "several boards of a CPU": (
        {"experiments__0__layouts": ["2xfull"], "experiments__0__placements": ["ddp"]},
        ["experiments[0].layouts", "2xfull", "the CPU is one"],
    ),
    "name that is no folder": ({"name": "a/b"}, ["name", "'a/b'"]),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_named_with_key_value_and_cure(case: str) -> None:
    changes, wanted = BAD[case]
    with pytest.raises(ConfigError) as caught:
        load_campaign(campaign(**changes))
    for text in wanted:
        assert text in str(caught.value)


def test_two_experiments_of_one_name_are_refused() -> None:
    raw = campaign()
    raw["experiments"] *= 2
    with pytest.raises(ConfigError, match="'main' is given 2 times"):
        load_campaign(raw)


def test_a_list_whose_items_are_wrong_is_not_called_empty_too() -> None:
    with pytest.raises(ConfigError) as caught:
        load_campaign(campaign(experiments__0__placements=[""]))
    assert [problem.split("'")[1] for problem in caught.value.problems] == [
        "experiments[0].placements[0]"
    ]


def test_every_problem_is_reported_at_once() -> None:
    raw = campaign(experiments__0__workloads=["x"], experiments__0__layouts=["3q"])
    with pytest.raises(ConfigError) as caught:
        load_campaign(raw)
    assert len(caught.value.problems) == 2


def test_a_key_given_twice_in_a_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "twice.yaml"
    path.write_text("workloads:\n  a: {x: 1}\n  a: {x: 2}\n")
    with pytest.raises(ConfigError, match=r"twice\.yaml.*'a' is given twice"):
        read_yaml(path)


@pytest.mark.parametrize("text", ["- a\n- b\n", "a: [\n"])
def test_a_file_that_is_no_mapping_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=r"bad\.yaml"):
        read_yaml(path)


def test_overlays_merge_mappings_and_replace_lists() -> None:
    base: dict[str, Any] = {"a": {"b": 1, "c": [1, 2]}, "d": 1}
    assert merge(base, {"a": {"c": [3]}, "d": {"e": 2}}) == {"a": {"b": 1, "c": [3]}, "d": {"e": 2}}
