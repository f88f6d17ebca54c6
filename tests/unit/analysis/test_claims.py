"""Every verdict of every claim, in worlds where the truth is known."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import scipy.stats
import yaml

from fixtures.records import Truth, make_campaign, make_config
from fixtures.worlds import FALSE, HALF, World
from wattslice.analysis.claim_files import Claim, ClaimFileError, read_all, read_claims
from wattslice.analysis.claims import (
    VERDICTS,
    ClaimResult,
    State,
    judge_all,
    judge_claim,
    read_claim_table,
    verdict_of,
    write_claims,
)

FILE = Path(__file__).parents[3] / "config" / "claims.yaml"
SOURCES, CLAIMS = read_all([FILE])
BY_ID = {claim.id: claim for claim in CLAIMS}
IDS = [f"A{i}" for i in range(1, 11)] + [f"B{i}" for i in range(1, 10)] + ["AB1"]
EXACT = ("A6", "A9", "B3")
# In the world of all claims ALBERT is smaller than the smallest classifier of paper A.
SUITE_A = World(parameters={"albert": 20_000_000, "albert-6": 20_000_000})


def judged(world: World, frames: dict[str, pd.DataFrame] | None = None) -> dict[str, ClaimResult]:
    results = judge_all(CLAIMS, frames or world.tables(), 0.95)
    return {result.id: result for result in results}


@pytest.fixture(scope="module")
def true() -> dict[str, ClaimResult]:
    return judged(World())


def test_all_claims_of_both_papers_are_there() -> None:
    assert [claim.id for claim in CLAIMS] == IDS
    assert set(SOURCES) == {"paper-a", "paper-b", "wattslice"}


@pytest.mark.parametrize("name", IDS)
def test_reproduced_where_it_is_true(true: dict[str, ClaimResult], name: str) -> None:
    result = true[name]
    if name == "A6":  # the suite of paper A alone
        result = judge_all([BY_ID[name]], SUITE_A.tables(), 0.95)[0]
    assert result.verdict == "reproduced", result.why
    assert result.value.value is not None
    assert result.runs


@pytest.mark.parametrize("name", [name for name in IDS if name != "B3"])
def test_not_reproduced_where_it_is_false(name: str) -> None:
    result = judge_all([BY_ID[name]], FALSE[name].tables(), 0.95)[0]
    assert result.verdict == "not reproduced", result.why


@pytest.mark.parametrize("name", HALF)
def test_partly_where_it_is_half_true(name: str) -> None:
    result = judge_all([BY_ID[name]], HALF[name].tables(), 0.95)[0]
    assert result.verdict == "partly", result.why
    assert ": yes" in result.why
    assert ": no" in result.why


def test_more_parameters_are_not_fewer() -> None:
    """B3 by itself: in its file's range of sizes ALBERT always has fewer."""
    claim = BY_ID["B3"]
    text = claim.model_dump(mode="json", by_alias=True)
    text["values"]["ratio"]["over"]["parameters"] = {"min": 0, "max": 1e7}
    world = World(parameters={"distilbert": 8_000_000})
    result = judge_all([Claim.model_validate(text)], world.tables(), 0.95)[0]
    assert result.verdict == "not reproduced"


@pytest.mark.parametrize("name", [name for name in IDS if name not in EXACT])
def test_undecided_from_one_repeat(name: str) -> None:
    result = judge_all([BY_ID[name]], World(repeats=1).tables(), 0.95)[0]
    assert result.verdict == "undecided", result.why
    assert result.more_repeats == 2
    assert "needs 2 more repeats" in result.why
    assert result.value.low is None


@pytest.mark.parametrize("name", EXACT)
def test_what_is_counted_needs_no_repeats(name: str) -> None:
    world = (SUITE_A if name == "A6" else World()).but(repeats=1)
    result = judge_all([BY_ID[name]], world.tables(), 0.95)[0]
    assert result.verdict == "reproduced"


def test_undecided_says_how_many_more_repeats() -> None:
    noisy = World(repeats=3, noise=0.2, albert_slower=1.1, board="NVIDIA H200")
    result = judge_all([BY_ID["B1"]], noisy.tables(), 0.95)[0]
    assert result.verdict == "undecided", result.why
    assert result.more_repeats is not None
    assert f"needs {result.more_repeats} more repeat" in result.why
    enough = noisy.but(repeats=3 + 3 * result.more_repeats)
    assert judge_all([BY_ID["B1"]], enough.tables(), 0.95)[0].verdict == "reproduced"


@pytest.mark.parametrize("repeats", [2, 3, 6])
def test_false_alarms_are_rare(repeats: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nothing is faster, "faster" is decided, either way, in 5 % of campaigns or less."""
    monkeypatch.setattr("wattslice.analysis.claims.RESAMPLES", 199)
    claim = Claim.model_validate(MEAN | {"checks": [{"test": "mean > 2", "says": "more than 2"}]})
    rng = np.random.default_rng(6)
    decided = 0
    for _ in range(300):
        result = judge_claim(claim, noisy_rows(rng, repeats), 0.95)
        decided += result.verdict != "undecided"
    assert decided / 300 < 0.05 + 0.04


def test_undecided_where_no_number_of_repeats_helps() -> None:
    """No difference at all: the margin is 0, and more repeats do not move it."""
    level = World(repeats=4, mix=(1.0, 0.33), noise=0.0, board="NVIDIA H200").tables()
    spread = {1: 1.02, 2: 1.0, 3: 1.0, 4: 0.98}
    cells = level["cells"]
    on_slices = cells["kind"] == "mix"
    factor = cells.loc[on_slices, "repeat"].map(spread)
    cells.loc[on_slices, "throughput_samples_s"] *= factor.astype("Float64")
    result = judge_all([BY_ID["A2"]], level, 0.95)[0]
    assert result.verdict == "undecided"
    assert result.more_repeats is None
    assert "more than 1000 repeats would be needed" in result.why


def test_values_are_compared_over_the_same_workloads() -> None:
    """AB1: three workloads were not run on slices, and are not in the whole board's mean."""
    result = judged(World())["AB1"]
    assert result.value.value == pytest.approx(1.0, abs=0.01)
    expected = scipy.stats.gmean([1.1, 1.15, 2.4, 1.25])
    assert result.also["on the whole board"].value == pytest.approx(expected, rel=0.02)


@pytest.mark.parametrize("name", IDS)
def test_not_measurable_without_runs_or_on_another_kind_of_board(name: str) -> None:
    nothing = World(repeats=0).tables()
    result = judge_all([BY_ID[name]], nothing, 0.95)[0]
    assert result.verdict == "not measurable here"
    assert result.why
    if "cpu" not in BY_ID[name].boards:
        on_cpu = judge_all([BY_ID[name]], World(kind="cpu", repeats=2).tables(), 0.95)[0]
        assert on_cpu.verdict == "not measurable here"
        assert "cpu board" in on_cpu.why


@pytest.mark.parametrize("name", IDS)
def test_simulated_is_rehearsed_only_whatever_the_numbers_say(name: str) -> None:
    for world in (World(), FALSE.get(name, World())):
        result = judge_all([BY_ID[name]], world.but(simulated=True).tables(), 0.95)[0]
        assert result.verdict == "rehearsed only"
        assert "simulated" in result.why


def test_a_simulated_campaign_never_yields_another_verdict() -> None:
    for world in (*FALSE.values(), *HALF.values()):
        found = {r.verdict for r in judged(world.but(simulated=True, repeats=2)).values()}
        assert found <= {"rehearsed only", "not measurable here"}


def test_modelled_energy_is_rehearsed_only_and_modelled_power_no_matter_for_speed() -> None:
    results = judged(World(modelled=True, repeats=4))
    for name in ("A1", "A4", "A5", "A10", "B6"):
        assert results[name].verdict == "rehearsed only", name
        assert "modelled" in results[name].why
    for name in ("A2", "A7", "B1", "B2", "B4", "B7"):
        assert results[name].verdict == "reproduced", name


def test_on_other_hardware_order_is_judged_and_the_number_not() -> None:
    world = World(board="NVIDIA H200", mix=(1.3, 0.12), albert_slower=1.4)
    results = judged(world)
    for name in ("A1", "A2", "B1"):
        assert results[name].verdict == "reproduced"
        assert results[name].basis == "direction"
        assert "other hardware" in results[name].why
    assert judged(world.but(board=World().board))["B1"].verdict == "partly"


def test_values_are_the_truth(true: dict[str, ClaimResult]) -> None:
    truth = {
        "A1": 0.33,
        "A2": 0.09,
        "A3": 0.55,
        "A4": 0.42,
        "A10": 0.67 * 1.09,
        "A6": 1_557_611_200 / 11_685_122,
        "B1": 2.2,
        "B2": 3.0,
        "B3": 11_685_122 / 66_955_010,
        "B4": np.mean([1.1, 1.15, 2.4, 2.4, 2.5, 3.9, 1.25]),
        "B5": 3.9 / 1.1,
        "B9": 1.8,
    }
    for name, value in truth.items():
        assert true[name].value.value == pytest.approx(value, rel=0.02), name
    assert true["B4"].also["number of models"].value == 7
    assert true["B4"].also["geometric mean"].value == pytest.approx(
        scipy.stats.gmean([1.1, 1.15, 2.4, 2.4, 2.5, 3.9, 1.25]), rel=0.02
    )
    assert true["A7"].value.value == pytest.approx(-1.0)


@pytest.mark.parametrize(
    ("states", "value", "verdict"),
    [
        (["holds", "holds"], "holds", "reproduced"),
        (["holds"], None, "reproduced"),
        (["fails", "fails"], "fails", "not reproduced"),
        (["fails"], None, "not reproduced"),
        (["holds", "fails"], None, "partly"),
        (["holds"], "fails", "partly"),
        (["holds", "fails", "open"], None, "partly"),  # no repeat can change that
        (["holds", "open"], None, "undecided"),
        (["fails", "open"], None, "undecided"),
        (["holds"], "open", "undecided"),
        ([], None, "undecided"),
    ],
)
def test_verdict_of(states: Sequence[State], value: State | None, verdict: str) -> None:
    assert verdict_of(states, value) == verdict
    assert verdict in VERDICTS


# --- statistics of claims ------------------------------------------------------------------------

MEAN = {
    "id": "X1",
    "source": "me",
    "title": "t",
    "statement": "s",
    "runs": "r",
    "values": {
        "mean": {
            "figure": "throughput_samples_s",
            "where": {"layout": "full", "precision": "bf16"},
            "over": {"precision": "fp32"},
            "by": ["workload"],
            "reduce": "geomean",
        }
    },
    "formula": "mean",
    "expectation": "above 1",
    "checks": [{"test": "mean > 1", "says": "faster"}],
}


def noisy_rows(rng: np.random.Generator, repeats: int) -> dict[str, list[dict[str, object]]]:
    """Four workloads, twice as fast in bf16, each block with its own pace."""
    rows = []
    for repeat in range(1, repeats + 1):
        pace = np.exp(0.3 * rng.standard_normal())
        for workload in range(4):
            for precision, speed in (("fp32", 1.0), ("bf16", 2.0)):
                value = pace * speed * np.exp(0.05 * rng.standard_normal())
                rows.append(
                    {
                        "run_id": f"{workload}{precision}{repeat}",
                        "workload": str(workload),
                        "layout": "full",
                        "precision": precision,
                        "repeat": repeat,
                        "board": "b",
                        "board_uuid": "u",
                        "board_kind": "cpu",
                        "simulated": False,
                        "modelled": False,
                        "throughput_samples_s": value,
                        "throughput_samples_s_reason": None,
                    }
                )
    return {"cells": rows, "mixes": [], "slices": []}


@pytest.mark.parametrize("repeats", [3, 6])
def test_intervals_of_claims_hold_the_truth(repeats: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wattslice.analysis.claims.RESAMPLES", 399)
    claim = Claim.model_validate(MEAN)
    rng = np.random.default_rng(5)
    campaigns = 1000
    hits = 0
    for _ in range(campaigns):
        value = judge_claim(claim, noisy_rows(rng, repeats), 0.95).value
        assert value.low is not None
        assert value.high is not None
        hits += value.low <= 2.0 <= value.high
    assert 0.93 - 0.016 <= hits / campaigns <= 0.97 + 0.016


def test_blocks_without_all_cells_do_not_count() -> None:
    rows = noisy_rows(np.random.default_rng(1), 5)
    rows["cells"] = [row for row in rows["cells"] if row["run_id"] != "2bf163"]
    value = judge_claim(Claim.model_validate(MEAN), rows, 0.95).value
    assert (value.n, value.cells) == (4, 4)


# --- files ---------------------------------------------------------------------------------------


def write(path: Path, *claims: dict[str, object]) -> Path:
    path.write_text(yaml.safe_dump({"sources": {"me": "myself"}, "claims": list(claims)}))
    return path


def test_a_user_adds_a_claim_without_code(tmp_path: Path) -> None:
    truths = [
        Truth(precision=precision, repeat=k, step_s=0.1 * (1 + 0.01 * k) / speed)
        for k in (1, 2, 3)
        for precision, speed in (("fp32", 1.0), ("bf16", 2.0))
    ]
    folder = make_campaign(tmp_path, truths)
    mine = write(tmp_path / "mine.yaml", MEAN)
    out = folder / "analysis" / "claims.json"
    table = write_claims(folder / "tables", make_config(), {"mine.yaml": mine}, out)
    assert table == read_claim_table(out.parent)
    claim = table.claims[0]
    assert claim.verdict == "reproduced", claim.why
    assert claim.value.value == pytest.approx(2.0)
    assert claim.runs == tuple(
        sorted(f"full/cnn.solo/{p}/rep{k}" for p in ("fp32", "bf16") for k in (1, 2, 3))
    )
    assert table.count() == {"reproduced": 1}
    content = json.loads(out.read_text())
    assert len(content["files"]["mine.yaml"]) == 64
    again = folder / "again.json"
    write_claims(folder / "tables", make_config(), {"mine.yaml": mine}, again)
    assert again.read_bytes() == out.read_bytes()


BAD = {
    "unknown name": ({"formula": "mean + x"}, "claim X1: Value error, x: not among the claim's"),
    "code": ({"formula": "__import__('os').system('ls')"}, "is not allowed here|no function"),
    "attribute": ({"formula": "mean.real"}, "Attribute is not allowed"),
    "power": ({"formula": "9**9**9"}, "BinOp is not allowed"),
    "text": ({"formula": "'a'"}, "'a' is not a number"),
    "no comparison": ({"checks": [{"test": "mean", "says": "s"}]}, "is not one comparison"),
    "equality": ({"checks": [{"test": "mean == 1", "says": "s"}]}, "compare with <"),
    "unknown key": ({"tolerance": 1}, "claim X1.tolerance"),
    "no judge": ({"checks": []}, "needs `checks` or a `published` value"),
    "source": ({"source": "you"}, "source 'you' is not in `sources`: me"),
    "syntax": ({"formula": "mean +"}, "is not an expression"),
    "arguments": ({"formula": "min(mean)"}, "min takes 2 arguments"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_claim_is_named(case: str, tmp_path: Path) -> None:
    changes, message = BAD[case]
    with pytest.raises(ClaimFileError, match=message):
        read_claims(write(tmp_path / "bad.yaml", MEAN | changes))


def test_a_claim_twice_and_no_file_are_named(tmp_path: Path) -> None:
    path = write(tmp_path / "a.yaml", MEAN)
    with pytest.raises(ClaimFileError, match="X1 is there twice"):
        read_all([path, path])
    with pytest.raises(ClaimFileError, match="no such file of claims"):
        read_claims(tmp_path / "none.yaml")


def test_an_unknown_column_is_named() -> None:
    claim = json.loads(json.dumps(MEAN))
    claim["values"]["mean"]["where"]["colour"] = "red"
    rows = noisy_rows(np.random.default_rng(1), 2)
    with pytest.raises(ValueError, match="the table cells has no column colour"):
        judge_claim(Claim.model_validate(claim), rows, 0.95)
