"""Samples of a board that is held, in its layout and empty: for the idle stage, and for a run.

On a cluster a job may come to another board than the one that the campaign's idle stage measured:
the run then samples its own board just before it begins. What the samples mean is read from them
afterwards, as for the run itself.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any

from wattslice.boards.base import Board
from wattslice.config.models import MeasureConfig
from wattslice.measure.meters import Meters
from wattslice.measure.monitors import running_monitors
from wattslice.measure.steady import cool_down
from wattslice.records.run import IdleWindow

Samples = dict[str, dict[str, list[Any]]]  # columns by the UUID of the board


def sample_idle(board: Board, measure: MeasureConfig) -> tuple[IdleWindow | None, Meters]:
    """Sample the board for `measure.idle_s` seconds; it is held, in its layout and empty.

    Without readable sensors there is no window, and the meters say why.
    """
    meters = Meters.of(board, measure.sample_hz)
    if not meters.readable:
        meters.start()
        return None, meters
    cool_down(lambda: board.health().temperature_c.value, measure.cooldown)
    strangers = board.health().foreign_processes
    with meters:
        start_s = meters.mark("start")
        time.sleep(measure.idle_s)
        end_s = meters.mark("end")
    strangers += board.health().foreign_processes
    window = IdleWindow(
        start_s=start_s,
        end_s=end_s,
        foreign_processes=tuple(dict.fromkeys(strangers)),
        monitors=running_monitors(),
        measured_utc=datetime.now(UTC).isoformat(timespec="seconds"),
    )
    return window, meters


def joined(before: Samples, samples: Samples) -> Samples:
    """The samples of each board, those of `before` first."""
    return {
        uuid: {name: [*before.get(uuid, {}).get(name, []), *own] for name, own in columns.items()}
        for uuid, columns in samples.items()
    }
