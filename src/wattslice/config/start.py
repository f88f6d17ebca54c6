"""What must hold before a campaign starts, and the lock that keeps a second one out."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from pathlib import Path
from typing import TextIO

from wattslice.config.campaign import Campaign
from wattslice.config.errors import ConfigError
from wattslice.files import sha256_text


class CampaignBusyError(ConfigError):
    """Another process runs the same campaign in the same folder."""


def check_disk(folder: Path, min_free_mib: int) -> None:
    """Raise ConfigError unless the results folder can be written and has room."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / f".write-test-{os.getpid()}"
        probe.write_text("")
        probe.unlink()
    except OSError as error:
        raise ConfigError(
            [
                f"results folder {str(folder)!r} cannot be written: {error.strerror}; make it a "
                "folder that you may write to, or start in another directory (--directory)"
            ]
        ) from error
    free_mib = shutil.disk_usage(folder).free // 2**20
    if free_mib < min_free_mib:
        raise ConfigError(
            [
                f"disk almost full: {free_mib} MiB free below {str(folder)!r}, and config key "
                f"'min_free_mib' asks for {min_free_mib}; free some, or lower the key"
            ]
        )


PREFLIGHT = "preflight.json"
_HELD: list[TextIO] = []  # closing the file would give the lock away


class CampaignLock:
    """A kernel lock on a campaign's folder: unlike a lock file it cannot outlive its holder."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / ".lock"

    def acquire(self) -> None:
        """Take the lock. Raises CampaignBusyError naming the process that has it."""
        handle = self._path.open("a+", encoding="utf-8")
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            handle.seek(0)
            holder = handle.read().strip() or "unknown"
            handle.close()
            raise CampaignBusyError(
                [
                    f"the campaign in {str(self._path.parent)!r} is being run by process {holder}; "
                    "wait for it, or end it"
                ]
            ) from error
        handle.truncate(0)
        handle.write(str(os.getpid()))
        handle.flush()
        _HELD.append(handle)


def preflight_passed(campaign: Campaign, folder: Path) -> bool:
    """Whether the same request passed the preflight before (then it is not checked again)."""
    try:
        passed = json.loads((folder / PREFLIGHT).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return bool(passed.get("request_digest") == sha256_text(campaign.request))


def pending_runs(campaign: Campaign, folder: Path) -> int:
    """How many runs have no record, or one of another spec or of other code."""
    pending = 0
    for run in campaign.runs:
        try:
            record = json.loads((folder / "runs" / run.run_id / "run.json").read_text())
            made = (record["spec_digest"], record["code_digest"])
        except (OSError, ValueError, KeyError):
            pending += 1
        else:
            pending += made != (run.spec.digest(), campaign.train_code)
    return pending
