"""The meters of a run: one for each physical board, started, marked and stopped together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from wattslice.boards.base import Board
from wattslice.boards.several import members
from wattslice.measure.background import Background
from wattslice.measure.meter import Meter
from wattslice.records.run import MeterRecord


class Meters(Background):
    """Meters by the UUID of their board. For a run on one board that is one meter."""

    def __init__(self, by_board: Mapping[str, Meter]) -> None:
        self.by_board = dict(by_board)

    @classmethod
    def of(cls, board: Board, rate_hz: float) -> Meters:
        """A meter, not started yet, for each board behind `board`; sampled `rate_hz` times a s."""
        return cls({one.identity.uuid: _meter(one, rate_hz) for one in members(board)})

    def start(self) -> None:
        for meter in self.by_board.values():
            meter.start()

    def stop(self) -> None:
        for meter in self.by_board.values():
            meter.stop()

    def mark(self, label: str) -> float:
        """A sample of each board now; the time (s) at which all have been taken."""
        return max(meter.mark(label) for meter in self.by_board.values())

    @property
    def reason(self) -> str | None:
        """Why some board has no samples, or why they ended early; None if all is well."""
        reasons = {uuid: meter.reason for uuid, meter in self.by_board.items()}
        if len(reasons) == 1:
            return next(iter(reasons.values()))
        return "; ".join(f"board {uuid}: {why}" for uuid, why in reasons.items() if why) or None

    @property
    def readable(self) -> bool:
        """Whether any board has sensors to read."""
        return any(meter.readable for meter in self.by_board.values())

    def latest_temperature(self) -> tuple[float, float] | None:
        """(time in s, °C) of the hottest board; None until each has been read."""
        found = [meter.latest_temperature() for meter in self.by_board.values()]
        known = [reading for reading in found if reading is not None]
        return max(known, key=lambda reading: reading[1]) if len(known) == len(found) else None

    def samples(self) -> dict[str, dict[str, list[Any]]]:
        """The samples so far by board, as from `Meter.samples`."""
        return {uuid: meter.samples() for uuid, meter in self.by_board.items()}

    def record(self) -> MeterRecord:
        """How was measured, for run.json: of the one meter, or what all have in common."""
        records = [meter.record() for meter in self.by_board.values()]
        if len(records) == 1:
            return records[0]
        first = records[0]
        cpu = [record.cpu_s for record in records]
        return MeterRecord(
            scope=first.scope,
            method=first.method,
            rate_hz=first.rate_hz,
            samples=sum(record.samples for record in records),
            errors=sum(record.errors for record in records),
            missed=sum(record.missed for record in records),
            cpu_s=None if None in cpu else sum(s for s in cpu if s is not None),
            start_s=max((r.start_s for r in records if r.start_s is not None), default=None),
            end_s=min((r.end_s for r in records if r.end_s is not None), default=None),
            reason=self.reason,
        )


def _meter(board: Board, rate_hz: float) -> Meter:
    reason = board.capabilities().energy.reason or "the board has no readable power sensor"
    return Meter(board.power_source(), rate_hz, no_source_reason=reason)
