"""Named checks: which run gets which badge, and why."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fixtures.records import BOARD_UUID, START_S, Truth, make_run
from wattslice.analysis.metrics import run_metrics
from wattslice.analysis.quality import VALUES, Check, evaluate, load_checks
from wattslice.analysis.raw import read_run
from wattslice.records.base import Quantity
from wattslice.records.board import Health
from wattslice.records.energy import EnergyResult
from wattslice.records.metrics import Conservation, RunMetrics
from wattslice.records.run import ActivityReading, RunRecord, Warmup

LONG = (START_S + 1.0, START_S + 71.0)


def _energy(**changes: Any) -> EnergyResult:
    return EnergyResult(
        **{
            "scope": "board",
            "method": "nvml-counter",
            "window_s": 70.0,
            "gross_j": 21000.0,
            "net_j": 17500.0,
            "idle_w": 50.0,
            "counter_j": 21000.0,
            "integral_j": 21010.0,
            "disagreement": 0.0005,
            "mean_power_w": 300.0,
            "samples": 700,
            "period_max_gap_s": 0.12,
            "coverage": 1.0,
            "uncertainty_j": 1000.0,
        }
        | changes
    )


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[RunRecord, RunMetrics]:
    """A run on a GPU with nothing to find fault with."""
    run_dir = make_run(tmp_path_factory.mktemp("c"), Truth(window=LONG))
    record = read_run(run_dir)
    metrics = run_metrics(run_dir, None)
    assert record.board is not None
    assert record.meter is not None
    health = Health(
        temperature_c=Quantity.of(60.0),
        power_limit_w=Quantity.of(400.0),
        sm_clock_mhz=Quantity.of(1410.0),
        memory_clock_mhz=Quantity.of(1593.0),
    )
    record = record.model_copy(
        update={
            "board": record.board.model_copy(update={"kind": "nvidia"}),
            "health_before": health,
            "health_after": health,
            "meter": record.meter.model_copy(
                update={"cpu_s": 0.2, "start_s": START_S, "end_s": START_S + 72, "samples": 720}
            ),
        }
    )
    return record, metrics.model_copy(update={"energy": _energy(), "energy_reason": None})


def _failed(record: RunRecord, metrics: RunMetrics | None) -> dict[str, str]:
    return {f.check: f.message for f in evaluate(record, metrics).findings}


def test_a_faultless_run_is_good(run: tuple[RunRecord, RunMetrics]) -> None:
    quality = evaluate(*run)
    assert quality.findings == ()
    assert quality.badge == "good"
    assert quality.run_valid
    assert quality.energy_valid
    assert len(quality.checked) > 20


ENERGY_CASES = [
    ({"coverage": 0.9}, "coverage", "energy-rejected", "cover 90.0% of the window, 95%"),
    ({"period_max_gap_s": 1.7}, "sampling-rate", "energy-rejected", "1.70 s without a reading"),
    ({"errors": 70}, "sampling-errors", "flagged", "10.0% of the readings failed"),
    ({"disagreement": 0.75}, "counter-and-integral", "energy-rejected", "differ by 75.0%"),
    ({"disagreement": 0.03}, "counter-and-integral-close", "flagged", "differ by 3.0%"),
    ({"mean_power_w": 450.0}, "mean-power", "energy-rejected", "1.12 times the board's limit"),
    (
        {"gross_j": None, "net_j": None, "flags": ("implausible-power",), "reason": "0 W"},
        "implausible-power",
        "energy-rejected",
        "implausible-power",
    ),
    ({"flags": ("counter-reset",)}, "counter-faults", "flagged", "not used: counter-reset"),
    ({"flags": ("aliasing",)}, "aliasing", "flagged", "lengthen the window, or jitter"),
    ({"flags": ("power-averaged",)}, "averaged-power", "flagged", "mean of 1 s"),
    ({"net_j": None, "idle_w": None}, "net-energy", "flagged", "idle power of this layout"),
    ({"modelled": True}, "modelled", "flagged", "modelled, not measured"),
    ({"temperature_drift_c": -9.0}, "temperature-drift", "flagged", "by 9.0 °C"),
    (
        {"event_shares": {"hw_thermal_slowdown": 0.2}},
        "thermal-slowdown",
        "rejected",
        "in 20.0% of the window",
    ),
    (
        {"event_shares": {"hw_power_brake_slowdown": 0.01}},
        "power-brake",
        "rejected",
        "in 1.0% of the window",
    ),
    ({"event_shares": {"sw_power_cap": 0.5}}, "software-power-cap", "flagged", "in 50.0%"),
]


@pytest.mark.parametrize(("changes", "check", "badge", "text"), ENERGY_CASES)
def test_energy_checks(
    run: tuple[RunRecord, RunMetrics], changes: dict[str, Any], check: str, badge: str, text: str
) -> None:
    record, metrics = run
    metrics = metrics.model_copy(update={"energy": _energy(**changes)})
    quality = evaluate(record, metrics)
    assert quality.badge == badge
    message = {f.check: f.message for f in quality.findings}[check]
    assert text in message
    assert quality.run_valid == (badge != "rejected")
    assert quality.energy_valid == (badge == "flagged")
    assert quality.findings[0].source


def test_foreign_processes_reject_the_run(run: tuple[RunRecord, RunMetrics]) -> None:
    record, metrics = run
    assert record.health_after is not None
    health = record.health_after.model_copy(update={"foreign_processes": ("4711 python",)})
    quality = evaluate(record.model_copy(update={"health_after": health}), metrics)
    assert quality.badge == "rejected"
    assert quality.why == ("other processes were on the board: 4711 python",)


def test_other_checks_of_the_run(run: tuple[RunRecord, RunMetrics]) -> None:
    record, metrics = run
    assert record.window is not None
    assert record.health_after is not None
    short = record.window.model_copy(update={"end_s": record.window.start_s + 4.0})
    assert set(_failed(record.model_copy(update={"window": short}), metrics)) == {
        "window-minimum",
        "window-headline",
    }
    warmup = Warmup(steps=9, duration_s=120.0, steady=False, step_time_cv=0.2)
    workers = tuple(w.model_copy(update={"warmup": warmup}) for w in record.workers)
    found = _failed(record.model_copy(update={"workers": workers}), metrics)
    assert found == {"warm-up": "the warm-up hit its cap before it was steady: slice 0"}
    limit = record.health_after.model_copy(update={"power_limit_w": Quantity.of(300.0)})
    found = _failed(record.model_copy(update={"health_after": limit}), metrics)
    assert "changed by 100 W" in found["power-limit-changed"]
    dirty = record.model_copy(update={"git": {"commit": "0", "dirty": True}})
    assert set(_failed(dirty, metrics)) == {"uncommitted-code"}
    assert set(_failed(record.model_copy(update={"simulated": True}), metrics)) == {"simulated"}
    meter = record.meter.model_copy(update={"cpu_s": 7.0, "missed": 200})
    found = _failed(record.model_copy(update={"meter": meter}), metrics)
    assert set(found) == {"meter-cost", "missed-samples"}
    broken = Conservation(ok=False, relative_error=0.5, limit=1e-6, notes=("slice 0: 2 x",))
    found = _failed(record, metrics.model_copy(update={"conservation": broken}))
    assert found["conservation"].endswith("slice 0: 2 x")


@pytest.mark.parametrize(
    ("device", "share", "flagged"),
    [("cpu", 0.2, True), ("cpu", 0.04, False), ("cpu", None, False), ("cuda:0 A100", 0.2, False)],
)
def test_load_of_others_on_the_workers_cores_is_flagged_where_they_compute(
    device: str, share: float | None, flagged: bool, run: tuple[RunRecord, RunMetrics]
) -> None:
    record, metrics = run
    had = Quantity.missing("no /proc") if share is None else Quantity.of(share)
    changes = {"device": device, "foreign_cpu_share": had}
    workers = tuple(worker.model_copy(update=changes) for worker in record.workers)
    quality = evaluate(record.model_copy(update={"workers": workers}), metrics)
    assert quality.badge == ("flagged" if flagged else "good")
    if flagged:
        assert "other processes took up to 20.0% of the workers' own cores" in quality.why[0]
        assert "slice 0: 20.0%" in quality.why[0]


def test_a_run_without_a_measurement_is_rejected_for_that_alone(
    run: tuple[RunRecord, RunMetrics],
) -> None:
    record = run[0].model_copy(
        update={"outcome": "oom", "reason": "out of memory on slice 2", "window": None}
    )
    quality = evaluate(record, None)
    assert quality.badge == "rejected"
    assert quality.why == ("the run gave no valid measurement: oom: out of memory on slice 2",)


def test_no_energy_is_flagged_with_the_reason_and_the_run_stays_valid(
    run: tuple[RunRecord, RunMetrics],
) -> None:
    record, metrics = run
    metrics = metrics.model_copy(update={"energy": None, "energy_reason": "no RAPL package domain"})
    quality = evaluate(record, metrics)
    assert quality.badge == "flagged"
    assert "no energy: no RAPL package domain" in quality.why


def test_a_cpu_board_is_not_measured_by_a_gpus_rules(tmp_path: Path) -> None:
    run_dir = make_run(tmp_path, Truth(window=(START_S + 1.0, START_S + 4.0)))
    quality = evaluate(read_run(run_dir), run_metrics(run_dir, None))
    assert "window-minimum" not in quality.checked + quality.skipped
    assert "thermal-slowdown" in quality.skipped
    assert read_run(run_dir).board.uuid == BOARD_UUID


def test_the_checks_are_data_with_sources_and_all_values_are_used() -> None:
    checks = load_checks()
    assert all(check.source and check.message for check in checks)
    assert {check.value for check in checks} == set(VALUES)


def test_a_faulty_file_of_checks_is_refused(tmp_path: Path) -> None:
    entry = load_checks()[0].model_dump()
    with pytest.raises(ValueError, match="unknown value 'coverag'"):
        Check.model_validate(entry | {"value": "coverag"})
    path = tmp_path / "checks.yaml"
    path.write_text(
        "checks:\n" + 2 * "- {id: a, value: coverage, good: ['>', 0], severity: flag, "
        "concerns: energy, message: m, source: s}\n",
        encoding="utf-8",
    )
    with pytest.raises(ValueError, match="same id: a"):
        load_checks(path)


@pytest.mark.parametrize(("by_instances", "flagged"), [(0.62, False), (0.9, True), (None, False)])
def test_activity_of_instances_that_does_not_add_up_to_the_boards_is_flagged(
    by_instances: float | None, flagged: bool, run: tuple[RunRecord, RunMetrics]
) -> None:
    record, metrics = run
    board = ActivityReading(
        slice_index=None, metric="sm-activity", value=0.6, source="gpm", by_instances=by_instances
    )
    found = _failed(record.model_copy(update={"activities": (board,)}), metrics)
    assert ("activity-adds-up" in found) == flagged
    if flagged:
        assert "0.300 apart" in found["activity-adds-up"]
