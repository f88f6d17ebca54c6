"""Tidy tables: complete, refusing foreign records, equal bytes for equal input."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from fixtures.records import (
    CODE_DIGEST,
    Truth,
    campaign_truths,
    constant_power,
    expected_of,
    make_campaign,
    make_run,
)
from wattslice.analysis.aggregate import write_tables
from wattslice.analysis.collect import DigestMismatchError, collect, read_expected
from wattslice.analysis.frames import COLUMNS, TABLES, read_tables
from wattslice.analysis.metrics import write_metrics
from wattslice.analysis.raw import RawFileError
from wattslice.analysis.rows import placement_kind
from wattslice.analysis.shares import compute_units
from wattslice.files import write_json
from wattslice.records.board import SliceState
from wattslice.records.energy import EnergyResult

TRUTHS = [
    *(Truth(repeat=k, step_s=0.1 * (1 + 0.1 * (k - 2))) for k in (1, 2, 3)),
    Truth(precision="bf16", repeat=1, step_s=0.05),
    Truth(precision="bf16", repeat=2, outcome="oom", reason="no room", window=None),
    Truth(
        layout="2x1c", placement="mix.both", workloads={0: "cnn", 1: "vit"}, tokens_per_sample=None
    ),
]


@pytest.fixture
def campaign(tmp_path: Path) -> Path:
    return make_campaign(tmp_path, TRUTHS)


def test_rows(campaign: Path) -> None:
    tables = read_tables(campaign / "tables")
    assert len(tables["runs"]) == 6
    assert len(tables["slices"]) == 7
    assert len(tables["cells"]) == 7
    assert len(tables["summary"]) == 4
    for name in TABLES:
        assert list(tables[name].columns) == list(COLUMNS[name])
        assert tables[name].iloc[:, 0].is_monotonic_increasing


def test_summary_has_median_interval_and_outcomes(campaign: Path) -> None:
    summary = read_tables(campaign / "tables")["summary"].set_index(
        ["layout", "placement", "workload", "precision"]
    )
    fp32 = summary.loc[("full", "cnn.solo", "cnn", "fp32")]
    assert fp32["n"] == 3
    assert fp32["throughput_samples_s"] == pytest.approx(80.0)
    assert fp32["throughput_samples_s_low"] == pytest.approx(80.0 / 1.1)
    assert fp32["throughput_samples_s_high"] == pytest.approx(80.0 / 0.9)
    assert fp32["samples_per_j"] == pytest.approx(2.0)
    bf16 = summary.loc[("full", "cnn.solo", "cnn", "bf16")]
    assert (bf16["n"], bf16["runs"], bf16["outcomes"]) == (1, 2, "ok=1;oom=1")
    assert pd.isna(bf16["throughput_samples_s_low"])
    assert bf16["throughput_samples_s_note"] == "one repeat has no interval"


def test_a_mix_has_a_row_per_workload_and_no_energy_of_its_own(campaign: Path) -> None:
    cells = read_tables(campaign / "tables")["cells"]
    mix = cells[cells["kind"] == "mix"]
    assert sorted(mix["workload"]) == ["cnn", "vit"]
    assert mix["throughput_samples_s"].tolist() == pytest.approx([80.0, 80.0])
    assert mix["samples_per_j"].isna().all()
    assert mix["samples_per_j_reason"].str.contains("mix").all()


def test_every_missing_figure_has_a_reason(campaign: Path) -> None:
    cells = read_tables(campaign / "tables")["cells"]
    for column in COLUMNS["cells"]:
        if f"{column}_reason" in COLUMNS["cells"]:
            assert (cells[column].isna() == cells[f"{column}_reason"].notna()).all(), column


def test_equal_bytes(campaign: Path, tmp_path: Path) -> None:
    other = tmp_path / "again"
    entries = json.loads((campaign / "expected.json").read_text())
    (tmp_path / "shuffled.json").write_text(json.dumps({"runs": entries[::-1], "name": "x"}))
    write_tables(campaign, tmp_path / "shuffled.json", other)
    names = sorted(path.name for path in (campaign / "tables").iterdir())
    assert names == sorted(f"{name}.{kind}" for name in TABLES for kind in ("csv", "parquet"))
    for name in names:
        assert (other / name).read_bytes() == (campaign / "tables" / name).read_bytes(), name


def test_csv_has_the_parquet_s_values(campaign: Path) -> None:
    frame = read_tables(campaign / "tables")["summary"]
    text = pd.read_csv(campaign / "tables" / "summary.csv")
    assert text["throughput_samples_s"].tolist() == pytest.approx(
        frame["throughput_samples_s"].tolist(), rel=1e-8
    )


@pytest.mark.parametrize("which", ["spec_digest", "code_digest"])
def test_foreign_record_is_refused(campaign: Path, which: str) -> None:
    entries = json.loads((campaign / "expected.json").read_text())
    entries[0][which] = "f" * 64
    path = campaign / "other.json"
    path.write_text(json.dumps(entries))
    with pytest.raises(DigestMismatchError) as caught:
        collect(campaign, read_expected(path))
    text = str(caught.value)
    assert entries[0]["run_id"] in text
    assert which.replace("_", " ") in text
    assert "f" * 64 in text
    assert (CODE_DIGEST in text) == (which == "code_digest")
    assert "delete the folder" in text


def test_spec_that_is_not_what_its_digest_says_is_refused(campaign: Path) -> None:
    path = campaign / "runs" / TRUTHS[0].run_id / "run.json"
    record = json.loads(path.read_text())
    record["spec"]["seed"] = 99
    path.write_text(json.dumps(record))
    with pytest.raises(DigestMismatchError, match=r"spec in run.json"):
        collect(campaign, read_expected(campaign / "expected.json"))


def test_stale_metrics_are_refused(campaign: Path) -> None:
    path = campaign / "runs" / TRUTHS[0].run_id / "run.json"
    path.write_text(path.read_text() + "\n")
    with pytest.raises(DigestMismatchError, match=r"metrics.json was made of a run.json"):
        collect(campaign, read_expected(campaign / "expected.json"))


def test_missing_run_and_missing_metrics_are_named(campaign: Path) -> None:
    run_dir = campaign / "runs" / TRUTHS[0].run_id
    (run_dir / "metrics.json").unlink()
    with pytest.raises(FileNotFoundError, match=r"metrics.json is missing"):
        collect(campaign, read_expected(campaign / "expected.json"))
    (run_dir / "run.json").unlink()
    with pytest.raises(RawFileError, match=r"run.json is missing"):
        collect(campaign, read_expected(campaign / "expected.json"))


def test_a_campaign_in_which_nothing_worked(tmp_path: Path) -> None:
    truths = [Truth(repeat=k, outcome="oom", reason="too big", window=None) for k in (1, 2)]
    tables = read_tables(make_campaign(tmp_path, truths) / "tables")
    row = tables["summary"].iloc[0]
    assert (row["n"], row["runs"], row["outcomes"]) == (0, 2, "oom=2")
    assert row["throughput_samples_s_reason"] == "outcome oom: too big"


def test_a_campaign_without_runs(tmp_path: Path) -> None:
    tables = read_tables(make_campaign(tmp_path, []) / "tables")
    assert all(frame.empty for frame in tables.values())


def test_placement_kinds() -> None:
    assert placement_kind("cnn.solo.1c") == "solo"
    assert placement_kind("cnn.fill") == "fill"
    assert placement_kind("mix.solo-like") == "mix"


def test_expected_runs_may_be_lists(tmp_path: Path) -> None:
    truths = campaign_truths(repeats=1, workloads=("cnn",))
    for truth in truths:
        run_dir = make_run(tmp_path, truth)
        write_metrics(run_dir, None, run_dir / "metrics.json", energy=constant_power)
    (tmp_path / "expected.json").write_text(
        json.dumps([list(e.values()) for e in expected_of(truths)])
    )
    assert len(write_tables(tmp_path, tmp_path / "expected.json", tmp_path / "t")["runs"]) == 6


def _without(campaign: Path, truths: list[Truth], **changes: Any) -> dict[str, pd.DataFrame]:
    """Tables of a campaign whose energy results are changed."""

    def energy(*arguments: Any) -> EnergyResult:
        return constant_power(*arguments).model_copy(update=changes)

    return read_tables(make_campaign(campaign, truths, energy=energy) / "tables")


def test_a_run_with_rejected_energy_keeps_its_throughput(tmp_path: Path) -> None:
    made = _without(tmp_path, [Truth()], coverage=0.5)
    run, cell = made["runs"].iloc[0], made["cells"].iloc[0]
    assert run["badge"] == "energy-rejected"
    assert run["quality_rejects"] == "coverage"
    assert "cover 50.0% of the window" in run["quality_why"]
    assert run["gross_j"] == pytest.approx(400.0)  # what was measured stays to be seen
    assert pd.isna(cell["samples_per_j"])
    assert cell["samples_per_j_reason"].startswith("rejected by quality check coverage: ")
    assert cell["throughput_samples_s"] == pytest.approx(80.0)


def test_a_rejected_run_is_in_no_median(tmp_path: Path) -> None:
    folder = make_campaign(tmp_path, [Truth(repeat=1), Truth(repeat=2, step_s=0.2)])
    path = folder / "runs" / "full/cnn.solo/fp32/rep2"
    record = json.loads((path / "run.json").read_text())
    record["health_before"]["foreign_processes"] = ["77 other"]
    write_json(path / "run.json", record)
    write_metrics(path, folder / "idle" / "full.json", path / "metrics.json", energy=constant_power)
    made = write_tables(folder, folder / "expected.json", folder / "tables")
    row = made["summary"].iloc[0]
    assert (row["n"], row["runs"]) == (1, 2)
    assert row["throughput_samples_s"] == pytest.approx(80.0)
    assert row["outcomes"] == "ok=1;rejected=1"
    assert list(made["runs"]["badge"]) == ["flagged", "rejected"]


def test_a_rejected_run_of_a_simulated_board_is_shown(tmp_path: Path) -> None:
    made = _without(tmp_path, [Truth(simulated=True)], coverage=0.5)
    assert made["runs"].iloc[0]["badge"] == "energy-rejected"
    assert made["cells"].iloc[0]["samples_per_j"] > 0


def test_energy_of_slices_is_an_estimate_that_adds_up(tmp_path: Path) -> None:
    truth = Truth(layout="2x1c", placement="cnn.fill", workloads={0: "cnn", 1: "cnn"})
    slices = read_tables(make_campaign(tmp_path, [truth]) / "tables")["slices"]
    # 40 W over 10 s, 20 W of it idle: 200 J above idle, in two equal shares.
    assert list(slices["energy_estimate_j"]) == pytest.approx([100.0, 100.0])
    assert set(slices["energy_estimate_method"]) == {"slice-share"}
    assert list(slices["energy_by_slice_share_j"]) == pytest.approx([100.0, 100.0])
    assert slices["energy_by_slice_activity_j"].isna().all()
    assert "no activity data, so by slice-share" in slices.iloc[0]["energy_estimate_note"]
    whole = read_tables(make_campaign(tmp_path / "b", [Truth()]) / "tables")["slices"].iloc[0]
    assert pd.isna(whole["energy_estimate_j"])
    assert "one slice" in whole["energy_estimate_note"]


def test_energy_of_slices_goes_by_their_activity_where_it_was_read(tmp_path: Path) -> None:
    truth = Truth(layout="2x1c", placement="cnn.fill", workloads={0: "cnn", 1: "cnn"})
    folder = make_campaign(tmp_path, [truth])
    path = folder / "runs" / "2x1c/cnn.fill/fp32/rep1"
    record = json.loads((path / "run.json").read_text())
    record["activities"] = [
        {
            "slice_index": index,
            "metric": metric,
            "value": value,
            "source": "gpm",
            "notes": ["0.900 of its own"] if index == 0 else [],
        }
        for index, value in ((0, 0.9), (1, 0.3), (None, 0.6))
        for metric in ("sm-activity", "graphics-activity")
    ]
    write_json(path / "run.json", record)
    idle = folder / "idle" / "2x1c.json"
    write_metrics(path, idle, path / "metrics.json", energy=constant_power)
    slices = write_tables(folder, folder / "expected.json", folder / "tables")["slices"]
    assert list(slices["energy_estimate_j"]) == pytest.approx([150.0, 50.0])
    assert set(slices["energy_estimate_method"]) == {"slice-activity"}
    assert list(slices["energy_by_activity_j"]) == pytest.approx([150.0, 50.0])
    assert list(slices["energy_by_slice_share_j"]) == pytest.approx([100.0, 100.0])
    assert list(slices["activity"]) == [0.9, 0.3]
    assert slices.iloc[0]["energy_estimate_note"] == "0.900 of its own"


@pytest.mark.parametrize(
    ("state", "size"),
    [
        (SliceState(index=0, name="3g", profile="3g.40gb", sm_count=42), (42, "SM")),
        (SliceState(index=0, name="3g", profile="3g.40gb"), (3, "compute slice")),
        (SliceState(index=0, name="2c", profile="2c", cores=(0, 1)), (2, "core")),
        (SliceState(index=0, name="full", profile="full"), (None, None)),
    ],
)
def test_size_of_a_slice(state: SliceState, size: tuple[int | None, str | None]) -> None:
    assert compute_units(state) == size
