from __future__ import annotations

import json
from pathlib import Path

import pytest

from wattslice.train import progress


def test_bar_and_time_left_come_from_the_runs_that_were_pending(tmp_path: Path) -> None:
    progress.begin(tmp_path, 4)
    head = json.loads((tmp_path / "progress.jsonl").read_text().splitlines()[0])
    assert progress.finished(tmp_path, "a", head["started_s"] + 10).endswith("1/4, 30 s left")
    line = progress.finished(tmp_path, "b", head["started_s"] + 20)
    assert line == "[██████████··········] 2/4, 20 s left"
    progress.begin(tmp_path, 1)
    assert progress.finished(tmp_path, "c", 0).startswith("[████████████████████] 1/1")


def test_more_runs_than_were_pending_do_not_break_the_bar(tmp_path: Path) -> None:
    progress.begin(tmp_path, 0)
    assert "1/1" in progress.finished(tmp_path, "a")


def test_without_a_campaign_there_is_no_bar(tmp_path: Path) -> None:
    assert progress.finished(tmp_path, "a") == ""


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0 s"), (89, "89 s"), (600, "10 min"), (7200, "2.0 h")]
)
def test_durations_read_well(seconds: float, text: str) -> None:
    assert progress.duration(seconds) == text
