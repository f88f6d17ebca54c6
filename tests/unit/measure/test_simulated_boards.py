"""The meter against boards whose true energy is known; each test is a case that trapped a tool."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from unit.measure.simulated_cases import FAULTY, GROUPS, WINDOW_S, Case
from wattslice.analysis.attribution import (
    METHODS,
    SliceUse,
    attribute,
    errors_against,
    shapley,
)
from wattslice.records.energy import EnergyResult, IdleRecord
from wattslice.records.run import MeterRecord
from wattslice.simulation import SimulationError
from wattslice.simulation.session import simulation

Results = dict[str, dict[str, Any]]
TESTS = Path(__file__).parents[2]
MAX_ERROR = 0.005


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Results]:
    """All groups at the same time, each in a process of its own on boards of its own."""
    folder = tmp_path_factory.mktemp("simulated")
    found: Results = {}
    with ExitStack() as stack:
        children = {}
        for group, models in GROUPS.items():
            try:
                boards = stack.enter_context(simulation(models))
            except SimulationError as error:
                pytest.skip(f"the simulated library cannot be built here: {error}")
            environment = boards.environment()
            for name in ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES"):
                environment.pop(name, None)
            environment["PYTHONPATH"] = os.pathsep.join([str(TESTS), *sys.path])
            environment["WATTSLICE_LEASE_DIR"] = str(folder / "leases")
            out = folder / f"{group}.json"
            command = [sys.executable, "-m", "unit.measure.simulated_cases", group, str(out)]
            children[group] = (
                subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True),
                out,
            )
        for group, (child, out) in children.items():
            _, errors = child.communicate(timeout=120)
            assert child.returncode == 0, f"group {group}:\n{errors}"
            found |= json.loads(out.read_text(encoding="utf-8"))
    yield found


def _energy(entry: dict[str, Any]) -> EnergyResult:
    return EnergyResult.model_validate(entry["energy"])


def _error(entry: dict[str, Any]) -> float:
    gross = _energy(entry).gross_j
    assert gross is not None, entry["energy"]
    return abs(gross - entry["true_j"]) / float(entry["true_j"])


def _check_energy(case: Case, entry: dict[str, Any]) -> None:
    result = _energy(entry)
    assert result.window_s == pytest.approx(WINDOW_S, abs=0.5)
    assert result.simulated
    assert set(case.flags) <= set(result.flags)
    if not case.energy:
        assert result.gross_j is None
        assert case.reason in (result.reason or "")
        return
    assert _error(entry) <= case.max_error
    assert (result.method or "").endswith(case.way)
    assert result.uncertainty_j is not None
    assert result.gross_j is not None
    assert abs(result.gross_j - entry["true_j"]) <= result.uncertainty_j


@pytest.mark.parametrize("case", FAULTY, ids=[case.name for case in FAULTY])
def test_energy_or_the_right_refusal(case: Case, results: Results) -> None:
    _check_energy(case, results[case.name])


def test_s5_a_mig_device_gives_its_boards_energy_with_that_scope(results: Results) -> None:
    for name in ("S5", "S5-old"):
        (entry,) = results[name]["boards"]
        assert entry["number"] == 0
        assert _error(entry) <= MAX_ERROR
        assert _energy(entry).scope == "board"
        note = " ".join(results[name]["notes"])
        assert "the energy is the whole board's, with 2 sibling instance(s)" in note


@pytest.mark.parametrize("name", ["S6", "S7", "T02-short"])
def test_s6_s7_only_the_board_that_may_be_used_is_measured(name: str, results: Results) -> None:
    (entry,) = results[name]["boards"]
    assert entry["number"] == 1
    assert entry["true_j"] == pytest.approx(301 * WINDOW_S, rel=0.05)
    assert _error(entry) <= MAX_ERROR


def test_t22_instances_of_one_board_are_its_energy_once(results: Results) -> None:
    """However many MIG devices are named, the energy is the board's, and counted once."""
    (entry,) = results["T22"]["boards"]
    assert _error(entry) <= MAX_ERROR


def test_s8_a_superchip_without_gpu_sensor_is_measured_as_module(results: Results) -> None:
    entry = results["S8"]
    assert _error(entry) <= MAX_ERROR
    assert _energy(entry).scope == "module"


def test_s10_twelve_boards_are_added_up_and_not_averaged(results: Results) -> None:
    entries = results["S10"]["boards"]
    assert len(entries) == 12
    total = sum(_energy(entry).gross_j or 0.0 for entry in entries)
    true_j = sum(entry["true_j"] for entry in entries)
    assert true_j == pytest.approx(sum(300 + n for n in range(12)) * WINDOW_S, rel=0.05)
    assert abs(total - true_j) / true_j <= MAX_ERROR
    assert max(map(_error, entries)) <= MAX_ERROR


def test_t31_the_idle_power_of_a_board_in_use_is_unknown(results: Results) -> None:
    quiet = IdleRecord.model_validate(results["idle"]["quiet"])
    assert quiet.idle_w == pytest.approx(50.0, rel=0.01)
    busy = IdleRecord.model_validate(results["idle"]["busy"])
    assert busy.idle_w is None
    assert "other processes were on the board: 4000001" in (busy.reason or "")


def test_t25_shares_of_instances_are_estimates_that_add_up_to_the_board(
    results: Results, capsys: pytest.CaptureFixture[str]
) -> None:
    """On a simulated H100 in 3g+2g+1g, against what each subset of the instances really takes."""
    data = results["attribution"]
    subsets = {frozenset(chosen): joules for chosen, joules in data["subsets"]}
    reference = shapley(subsets)
    board_j, idle_j = subsets[frozenset({0, 1, 2})], subsets[frozenset()]
    slices = [
        SliceUse(index, sms, activity=activity)
        for index, (sms, activity) in enumerate(zip(data["sizes"], data["activity"], strict=True))
    ]
    cheap = [attribute(m, board_j, idle_j, slices) for m in METHODS if m != "shapley"]
    for result in (reference, *cheap):
        assert result.estimate
        assert result.conservation_error is not None
        assert result.conservation_error < 1e-9
    errors = {e.method: e for e in errors_against(reference, cheap)}
    with capsys.disabled():
        for method, error in errors.items():
            print(f"\n{method:15} largest error of a slice {error.max_relative_error:6.1%}", end="")
    # Activity without size treats a busy 1g as a busy 3g.
    sized, unsized = errors["slice-activity"], errors["activity"]
    assert sized.max_relative_error is not None
    assert unsized.max_relative_error is not None
    assert sized.max_relative_error < 0.15 < unsized.max_relative_error


def test_t40_a_disagreement_of_counter_and_integral_is_rejected(results: Results) -> None:
    from wattslice.analysis.quality import load_checks

    result = _energy(results["T40"])
    assert result.disagreement == pytest.approx(0.43 / 0.57, rel=0.05)
    check = next(c for c in load_checks() if c.id == "counter-and-integral")
    assert check.severity == "reject"
    assert check.good != "empty"
    assert result.disagreement > check.good[1]


def test_t43_failed_readings_are_counted_and_not_summed(results: Results) -> None:
    entry = results["T43"]
    assert 2 <= _energy(entry).errors <= 12


def test_t44_slow_calls_are_seen_and_not_made_worse(results: Results) -> None:
    entry = results["T44"]
    record = MeterRecord.model_validate(entry["meter"])
    assert record.call_median_s is not None
    assert record.call_median_s >= 0.02
    # Ticks known to 50 ms would leave 0.6 % of doubt; constant power leaves none.
    assert _energy(entry).method == "nvml-integral"
    assert "counter-unresolved" in _energy(entry).flags
    assert _error(entry) <= MAX_ERROR
    # Bursts leave the driver alone for four fifths of the time: no more than 2 calls in 0.2 s.
    assert record.samples < 10 * WINDOW_S + 35


def test_t46_the_first_sample_comes_before_the_window(results: Results) -> None:
    for name in ("S0", "S1", "S8"):
        assert results[name]["first_sample_s"] < 0
        assert _energy(results[name]).coverage == 1.0


def test_a_lost_board_keeps_its_samples_and_says_why_there_is_no_more(results: Results) -> None:
    entry = results["lost"]
    result = _energy(entry)
    assert 20 <= result.samples <= 120
    assert result.coverage is not None
    assert result.coverage < 0.6
    assert "the board was lost" in (result.reason or "")


def test_table_of_all_cases(results: Results, capsys: pytest.CaptureFixture[str]) -> None:
    """Prints what every case gave; the figures are those that the other tests judge."""
    texts = {case.name: case.what for case in FAULTY}
    lines = [
        f"{'case':15} {'true J':>9} {'ours J':>9} {'error':>7} {'± J':>7}  way, flags | why none"
    ]
    for name, entry in results.items():
        if name in ("idle", "attribution"):
            continue
        for board in entry.get("boards", [entry]):
            result = _energy(board)
            if result.gross_j is None:
                tail = f"{'none':>9} {'':7} {'':7}  {result.reason}"
            else:
                labels = ", ".join((result.method or "", *result.flags))
                tail = (
                    f"{result.gross_j:9.1f} {_error(board):7.2%} {result.uncertainty_j or 0:7.1f}"
                    f"  {labels}"
                )
            what = f"  ({texts[name]})" if name in texts else ""
            lines.append(f"{name:15} {board['true_j']:9.1f} {tail}{what}")
    with capsys.disabled():
        print("\n" + "\n".join(lines))
