"""One line per finished run, with a bar and the time that is left for the campaign."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

BAR_CELLS = 20


def begin(folder: Path, pending: int) -> None:
    """Start counting: called once when a campaign starts with this many runs to make."""
    folder.mkdir(parents=True, exist_ok=True)
    head = {"pending": pending, "started_s": time.time()}
    (folder / "progress.jsonl").write_text(json.dumps(head) + "\n", encoding="utf-8")


def finished(folder: Path, run_id: str, now_s: float | None = None) -> str:
    """Note a finished run; returns the bar, or an empty text where nobody began to count."""
    path = folder / "progress.jsonl"
    if not path.exists():
        return ""
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND)
    try:
        os.write(descriptor, (json.dumps({"run": run_id}) + "\n").encode())
    finally:
        os.close(descriptor)
    lines = path.read_text(encoding="utf-8").splitlines()
    head = json.loads(lines[0])
    done, pending = len(lines) - 1, max(head["pending"], len(lines) - 1)
    elapsed_s = (now_s if now_s is not None else time.time()) - head["started_s"]
    left_s = elapsed_s / done * (pending - done)
    return f"[{bar(done, pending)}] {done}/{pending}, {duration(left_s)} left"


def bar(done: int, total: int) -> str:
    filled = BAR_CELLS * done // total if total else BAR_CELLS
    return "█" * filled + "·" * (BAR_CELLS - filled)


def duration(seconds: float) -> str:
    """A duration that a person reads at a glance."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = seconds / 60
    return f"{minutes:.0f} min" if minutes < 90 else f"{minutes / 60:.1f} h"
