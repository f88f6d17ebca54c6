"""The idle stage: a board's power in a layout whose slices exist and are empty."""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import UTC, datetime

from wattslice.boards.base import Board
from wattslice.boards.several import members
from wattslice.config.layout import Layout
from wattslice.config.models import MeasureConfig
from wattslice.measure.energy import energy
from wattslice.measure.meters import Meters
from wattslice.measure.monitors import running_monitors
from wattslice.measure.steady import cool_down
from wattslice.measure.sum_of_boards import sum_of_boards
from wattslice.records.energy import EnergyResult, IdleRecord


def measure_idle(
    board: Board,
    layout: Layout,
    measure: MeasureConfig,
    settings: Mapping[str, object],
    code_digest: str,
) -> IdleRecord:
    """Mean power (W) over `measure.idle_s` with the layout in place and nothing running on it.

    The record has no power, and the reason, where other processes were on the board.
    Raises BoardError when the board is held by another or the layout cannot be made.
    """
    strangers: tuple[str, ...] = ()
    meters = Meters.of(board, measure.sample_hz)
    with board.lease():
        state = board.ensure(layout)
        if not meters.readable:
            meters.start()
            result = EnergyResult(window_s=measure.idle_s, reason=meters.reason)
        else:
            cool_down(lambda: board.health().temperature_c.value, measure.cooldown)
            strangers = board.health().foreign_processes
            with meters:
                start_s = meters.mark("start")
                time.sleep(measure.idle_s)
                end_s = meters.mark("end")
            result = _energy(board, meters, start_s, end_s)
            strangers = tuple(dict.fromkeys(strangers + board.health().foreign_processes))
    monitors = running_monitors()
    # A board that somebody works on is not idle, and a mean power that cannot be is none.
    reason = result.reason
    if strangers:
        reason = f"not idle: other processes were on the board: {', '.join(strangers)}"
    elif result.gross_j is None and reason is None:
        reason = "no energy reading"
    return IdleRecord(
        layout=state.layout,
        board_uuid=board.identity.uuid,
        idle_w=result.mean_power_w if reason is None else None,
        reason=reason,
        energy=result,
        code_digest=code_digest,
        settings=dict(settings),
        monitors=monitors,
        simulated=board.identity.simulated,
        measured_utc=datetime.now(UTC).isoformat(timespec="seconds"),
    )


def _energy(board: Board, meters: Meters, start_s: float, end_s: float) -> EnergyResult:
    found = {}
    for one in members(board):
        meter = meters.by_board[one.identity.uuid]
        found[one.identity.uuid] = energy(
            meter.samples(),
            start_s,
            end_s,
            meter.record(),
            simulated=one.identity.simulated,
            power_limit_w=one.health().power_limit_w.value,
        )
    return sum_of_boards(found, found)
