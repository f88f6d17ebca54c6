"""Errors of the rules of attribution, from runs that measured the subsets of a mix."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from fixtures.records import Truth, make_campaign
from wattslice.analysis.frames import read_tables

# 20 W idle; cnn alone adds 6 W and vit 14 W, and together they share 4 W of it.
POWER_W = {"both": 36.0, "cnn": 26.0, "vit": 34.0}
JOBS = {"both": {0: "cnn", 1: "vit"}, "cnn": {0: "cnn"}, "vit": {1: "vit"}}
WINDOW_S = 10.0


def _runs(*names: str, **changes: Any) -> list[Truth]:
    return [
        Truth(
            **{
                "layout": "2x1c",
                "placement": f"mix.{name}",
                "workloads": JOBS[name],
                "power_w": POWER_W[name],
            }
            | changes
        )
        for name in names
    ]


def _table(tmp_path: Path, truths: list[Truth]) -> pd.DataFrame:
    return read_tables(make_campaign(tmp_path, truths) / "tables")["attribution"]


def test_errors_against_what_each_subset_of_jobs_drew(tmp_path: Path) -> None:
    table = _table(tmp_path, _runs("both", "cnn", "vit"))
    rows = table[table["method"] == "slice-share"].set_index("workload")
    # (6 + (16 - 14)) / 2 = 4 W and (14 + (16 - 6)) / 2 = 12 W of the 16 W above idle.
    assert rows["shapley_j"].to_dict() == pytest.approx({"cnn": 40.0, "vit": 120.0})
    assert rows["estimate_j"].to_dict() == pytest.approx({"cnn": 80.0, "vit": 80.0})
    assert rows["error_j"].to_dict() == pytest.approx({"cnn": 40.0, "vit": -40.0})
    assert rows["relative_error"].to_dict() == pytest.approx({"cnn": 1.0, "vit": -1 / 3})
    assert rows["error_reason"].isna().all()
    runs = "2x1c/mix.cnn/fp32/rep1;2x1c/mix.vit/fp32/rep1"
    assert set(rows["subset_runs"]) == {runs}


def test_a_subset_counts_with_its_power_whatever_its_window(tmp_path: Path) -> None:
    longer = _runs("cnn", "vit", window=(1001.0, 1031.0))
    table = _table(tmp_path, [*_runs("both"), *longer])
    assert sorted(set(table["shapley_j"])) == pytest.approx([40.0, 120.0])


def test_a_rule_without_readings_has_no_error_and_says_why(tmp_path: Path) -> None:
    table = _table(tmp_path, _runs("both", "cnn", "vit"))
    rows = table[table["method"] == "activity"]
    assert rows["error_j"].isna().all()
    assert rows["error_reason"].str.contains("no activity reading of slice 0").all()


@pytest.mark.parametrize(
    ("truths", "reason"),
    [
        (_runs("both", "cnn"), "1 of 2 subsets of its jobs were measured"),
        (
            [*_runs("both", "cnn"), *_runs("vit", repeat=2)],  # another block
            "1 of 2 subsets of its jobs were measured",
        ),
        (_runs("both", "cnn", "vit", idle_w=None), "the idle power of the layout is not known"),
    ],
)
def test_without_a_reference_the_reason_is_said(
    truths: list[Truth], reason: str, tmp_path: Path
) -> None:
    table = _table(tmp_path, truths)
    assert set(table["error_reason"]) == {reason}
    assert table["shapley_j"].isna().all()
    assert table["error_j"].isna().all()


def test_equal_jobs_on_equal_slices_need_one_run_each(tmp_path: Path) -> None:
    """Fill and solo of one workload are all that two equal slices need."""
    fill, solo = (
        Truth(
            layout="2x1c",
            placement=f"cnn.{kind}",
            workloads=dict.fromkeys(range(busy), "cnn"),
            power_w=20.0 + watts,
        )
        for kind, busy, watts in (("fill", 2, 16.0), ("solo", 1, 11.0))
    )
    rows = _table(tmp_path, [fill, solo])
    rows = rows[rows["method"] == "slice-share"]
    assert rows["shapley_j"].tolist() == pytest.approx([8.0 * WINDOW_S] * 2)
    assert rows["error_j"].tolist() == pytest.approx([0.0, 0.0], abs=1e-9)
