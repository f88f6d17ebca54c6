from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from unit.config.campaigns import campaign
from wattslice.config.campaign import Campaign
from wattslice.config.errors import ConfigError
from wattslice.config.start import CampaignBusyError, CampaignLock, check_disk, pending_runs


def test_a_results_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "results").write_text("a file is in the way")
    with pytest.raises(ConfigError, match="cannot be written"):
        check_disk(tmp_path / "results" / "campaign", 0)


def test_a_disk_almost_full_is_refused_with_both_numbers(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"disk almost full: \d+ MiB.*min_free_mib.*999999999999"):
        check_disk(tmp_path, 999_999_999_999)


def test_the_lock_of_a_campaign_names_its_holder_and_ends_with_it(tmp_path: Path) -> None:
    hold = (
        "import sys, pathlib; from wattslice.config.start import CampaignLock;"
        "CampaignLock(pathlib.Path(sys.argv[1])).acquire(); print('held', flush=True);"
        "sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", hold, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={"PYTHONPATH": "src"},
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(CampaignBusyError, match=f"process {holder.pid}"):
            CampaignLock(tmp_path).acquire()
        holder.kill()
        holder.wait()
    CampaignLock(tmp_path).acquire()


def test_runs_without_a_record_of_the_same_digests_are_pending(tmp_path: Path) -> None:
    prepared = Campaign(campaign())
    fresh, stale, broken = prepared.runs[:3]
    for run, code in ((fresh, prepared.train_code), (stale, "old")):
        folder = tmp_path / "runs" / run.run_id
        folder.mkdir(parents=True)
        record = {"spec_digest": run.spec.digest(), "code_digest": code}
        (folder / "run.json").write_text(json.dumps(record))
    (tmp_path / "runs" / broken.run_id).mkdir(parents=True)
    (tmp_path / "runs" / broken.run_id / "run.json").write_text("{")
    assert pending_runs(prepared, tmp_path) == len(prepared.runs) - 1
