"""Ratios of synthetic campaigns with known true values."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fixtures.records import WORKLOADS, Truth, campaign_truths, make_campaign, make_config
from wattslice.analysis.ratios import Ratio, comparable_workloads, read_ratios


def ratios_of(tmp_path: Path, truths: list[Truth]) -> dict[str, Ratio]:
    table = read_ratios(make_campaign(tmp_path, truths) / "analysis")
    return {ratio.name: ratio for ratio in table.ratios}


def test_speedup_and_energy_gain_are_paired(tmp_path: Path) -> None:
    truths = [
        Truth(
            precision=precision,
            repeat=k,
            step_s=0.1 * k / speed,  # each block has its own pace, the same on both sides
            power_w=power,
            modelled=True,
        )
        for k in (1, 2, 3)
        for precision, speed, power in (("fp32", 1.0, 40.0), ("bf16", 2.0, 50.0))
    ]
    ratios = ratios_of(tmp_path, truths)
    speed = ratios["precision_speedup/cnn/full/cnn.solo/bf16/bf16 over fp32"]
    assert speed.value == pytest.approx(2.0)
    assert (speed.ci_low, speed.ci_high) == pytest.approx((2.0, 2.0))
    assert (speed.n_pairs, speed.unit, speed.modelled) == (3, "1", False)
    assert [pair.numerator_run for pair in speed.pairs] == [
        f"full/cnn.solo/bf16/rep{k}" for k in (1, 2, 3)
    ]
    gain = ratios["precision_energy_gain/cnn/full/cnn.solo/bf16/bf16 over fp32"]
    assert gain.value == pytest.approx(2.0 * 40 / 50)
    assert gain.modelled
    assert gain.energy_scope == "modelled"


def test_each_base_precision_once(tmp_path: Path) -> None:
    truths = [Truth(precision=precision) for precision in ("fp32", "fp32-default", "tf32", "bf16")]
    names = [n for n in ratios_of(tmp_path, truths) if n.startswith("precision_speedup/")]
    pairs = sorted(name.rsplit("/", 1)[1] for name in names)
    assert pairs == [
        "bf16 over fp32",
        "bf16 over fp32-default",
        "fp32-default over fp32",
        "tf32 over fp32",
        "tf32 over fp32-default",
    ]


def test_means_of_speedups_by_block(tmp_path: Path) -> None:
    truths = [
        Truth(
            placement=f"{name}.solo",
            workloads={0: name},
            precision=precision,
            repeat=k,
            step_s=0.1 / (gain if precision == "bf16" else 1.0),
        )
        for name, gain in (("cnn", 1.0), ("vit", 4.0))
        for precision in ("fp32", "bf16")
        for k in (1, 2)
    ]
    ratios = ratios_of(tmp_path, truths)
    geometric = ratios["precision_speedup_geomean/full/solo/bf16 over fp32"]
    assert geometric.value == pytest.approx(2.0)
    assert "2 workloads" in (geometric.note or "")
    arithmetic = ratios["precision_speedup_mean/full/solo/bf16 over fp32"]
    assert arithmetic.value == pytest.approx(2.5)


def test_partition_gain(tmp_path: Path) -> None:
    truths = [
        truth
        for k in (1, 2)
        for truth in (
            Truth(repeat=k, step_s=0.1, power_w=40.0),
            Truth(
                layout="2x1c",
                placement="cnn.fill",
                workloads={0: "cnn", 1: "cnn"},
                repeat=k,
                step_s=0.16,
                power_w=45.0,
            ),
        )
    ]
    ratios = ratios_of(tmp_path, truths)
    speed = ratios["partition_throughput/cnn/2x1c/cnn.fill/fp32/2x1c fill over full"]
    assert speed.value == pytest.approx(2 / 1.6)
    energy = ratios["partition_energy_per_sample/cnn/2x1c/cnn.fill/fp32/2x1c fill over full"]
    assert energy.value == pytest.approx(45 / 40 / 1.25)
    assert not energy.modelled


def test_workload_against_workload(tmp_path: Path) -> None:
    truths = campaign_truths(repeats=2, workloads=("albert", "distilbert"))
    ratios = ratios_of(tmp_path, truths)
    memory = ratios["workload_memory/albert/full/solo/fp32/albert over distilbert"]
    expected = (300 + 120 * WORKLOADS["albert"][4]) / (300 + 120 * WORKLOADS["distilbert"][4])
    assert memory.value == pytest.approx(expected)
    time = ratios["workload_time/albert/full/solo/fp32/albert over distilbert"]
    assert time.value == pytest.approx(3.4 / 2.0, rel=0.2)


def test_comparable_workloads_differ_in_the_model_only() -> None:
    assert comparable_workloads(make_config()) == [("albert", "distilbert"), ("cnn", "vit")]


def test_a_side_without_runs_gives_the_reason(tmp_path: Path) -> None:
    truths = [
        Truth(),
        Truth(precision="bf16", outcome="oom", reason="no room", window=None),
    ]
    ratio = ratios_of(tmp_path, truths)["precision_speedup/cnn/full/cnn.solo/bf16/bf16 over fp32"]
    assert ratio.value is None
    assert ratio.n_pairs == 0
    assert ratio.reason == "bf16: outcome oom: no room"


def test_repeats_that_do_not_meet_give_no_ratio(tmp_path: Path) -> None:
    truths = [Truth(repeat=1), Truth(precision="bf16", repeat=2)]
    ratio = ratios_of(tmp_path, truths)["precision_speedup/cnn/full/cnn.solo/bf16/bf16 over fp32"]
    assert ratio.value is None
    assert ratio.reason == "no repeat has both sides"


def test_simulated_numbers_are_marked(tmp_path: Path) -> None:
    truths = [Truth(simulated=True), Truth(precision="bf16", simulated=True)]
    assert all(ratio.simulated for ratio in ratios_of(tmp_path, truths).values())


def test_file_is_the_same_every_time(tmp_path: Path) -> None:
    truths = campaign_truths(repeats=2, workloads=("cnn", "vit"))
    one = make_campaign(tmp_path / "a", truths) / "analysis" / "ratios.json"
    other = make_campaign(tmp_path / "b", truths) / "analysis" / "ratios.json"
    assert one.read_bytes() == other.read_bytes()
    assert json.loads(one.read_text())["schema_version"] == 1
