"""The idle stage: a board's power in a layout whose slices exist and are empty."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

from wattslice.boards.base import Board
from wattslice.boards.several import members
from wattslice.config.layout import Layout
from wattslice.config.models import MeasureConfig
from wattslice.measure.energy import energy
from wattslice.measure.idle_window import sample_idle
from wattslice.measure.meters import Meters
from wattslice.measure.monitors import running_monitors
from wattslice.measure.sum_of_boards import sum_of_boards
from wattslice.records.energy import EnergyResult, IdleRecord, idle_power
from wattslice.records.run import IdleWindow


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
    with board.lease():
        state = board.ensure(layout)
        window, meters = sample_idle(board, measure)
        if window is None:
            result = EnergyResult(window_s=measure.idle_s, reason=meters.reason)
        else:
            result = _energy(board, meters, window)
    power = idle_power(result, () if window is None else window.foreign_processes)
    return IdleRecord(
        layout=state.layout,
        board_uuid=board.identity.uuid,
        idle_w=power.value,
        reason=power.reason,
        energy=result,
        code_digest=code_digest,
        settings=dict(settings),
        monitors=running_monitors(),
        simulated=board.identity.simulated,
        measured_utc=datetime.now(UTC).isoformat(timespec="seconds"),
    )


def _energy(board: Board, meters: Meters, window: IdleWindow) -> EnergyResult:
    found = {}
    for one in members(board):
        meter = meters.by_board[one.identity.uuid]
        found[one.identity.uuid] = energy(
            meter.samples(),
            window.start_s,
            window.end_s,
            meter.record(),
            simulated=one.identity.simulated,
            power_limit_w=one.health().power_limit_w.value,
        )
    return sum_of_boards(found, found)
