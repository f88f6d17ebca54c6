"""Durations and windows go by a clock that nobody can set."""

from __future__ import annotations

import ast
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

import wattslice
from wattslice.boards.base import Sample
from wattslice.measure.energy import energy
from wattslice.measure.meter import Meter
from wattslice.records.board import EnergyScope

SOURCES = Path(wattslice.__file__).parent


class _Constant:
    """100 W, whose driver takes 0.3 s to open."""

    scope: EnergyScope = "board"
    method = "nvml-power"

    def describe(self) -> Mapping[str, object]:
        return {}

    def open(self) -> None:
        time.sleep(0.3)

    def read(self) -> Sample:
        return Sample(t_s=time.monotonic(), call_s=0.0, power_w=100.0)

    def close(self) -> None: ...


def test_t48_a_wall_clock_that_jumps_changes_no_duration_and_no_energy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    jumps = iter(range(10**9, 0, -3600))
    monkeypatch.setattr(time, "time", lambda: float(next(jumps)))
    before = time.monotonic()
    with Meter(_Constant(), 20) as meter:
        start_s = meter.mark("start")
        time.sleep(0.6)
        end_s = meter.mark("end")
    result = energy(meter.samples(), start_s, end_s, meter.record())
    assert 0.6 <= result.window_s < 2.0
    assert result.gross_j == pytest.approx(100.0 * result.window_s, rel=1e-3)
    assert start_s - before >= 0.3  # opening the driver is outside the window


@pytest.mark.parametrize("package", ["measure", "train", "boards"])
def test_t48_no_duration_is_taken_from_the_wall_clock(package: str) -> None:
    # How long a campaign has left spans processes and reboots, and is measured by nobody.
    allowed = {SOURCES / "train" / "progress.py"}
    for path in set((SOURCES / package).rglob("*.py")) - allowed:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                assert (node.value.id, node.attr) != ("time", "time"), f"{path}:{node.lineno}"
