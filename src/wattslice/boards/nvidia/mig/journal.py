"""A note of an unfinished change of layout, so that a killed process leaves nothing unexplained."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from wattslice.boards.errors import BoardPermissionError
from wattslice.boards.lease import lease_dir, make_lease_dir
from wattslice.files import write_json

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """What the board was like before the change that did not end."""

    original: dict[str, object]
    pid: int
    since: str


def _boot_id() -> str:
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return ""


class Journal:
    """One file per board, beside its lease; whoever changes the board holds the lease."""

    def __init__(self, key: str) -> None:
        self.path = lease_dir() / f"{key}.journal.json"

    def begin(self, original: dict[str, object]) -> None:
        """Write down the state to return to. An entry that is still open keeps its original.

        Raises BoardPermissionError where it cannot: without the record nothing may be changed.
        """
        if self.read() is not None:
            return
        entry = {
            "boot_id": _boot_id(),
            "pid": os.getpid(),
            "since": datetime.now(UTC).isoformat(timespec="seconds"),
            "original": original,
        }
        try:
            make_lease_dir()
            write_json(self.path, entry)
        except OSError as error:
            raise BoardPermissionError(
                f"cannot write {self.path}, the record of the board's state before a change: "
                f"{error.strerror}; nothing was changed. Set WATTSLICE_LEASE_DIR to a directory "
                "that you may write to"
            ) from error

    def end(self) -> None:
        self.path.unlink(missing_ok=True)

    def read(self) -> JournalEntry | None:
        """The open entry, or None.

        An entry from before a reboot is void, since instances do not survive one; an entry of
        another user is not trusted, since anybody may write into the directory.
        """
        try:
            with self.path.open(encoding="utf-8") as handle:
                if os.fstat(handle.fileno()).st_uid not in (0, os.getuid()):
                    return None
                entry = json.load(handle)
            if entry["boot_id"] != _boot_id() or not isinstance(entry["original"], dict):
                return None
            return JournalEntry(entry["original"], int(entry["pid"]), str(entry["since"]))
        except (OSError, ValueError, KeyError, TypeError):
            return None
