"""Energy of a CPU package through RAPL's files: wraps, and what cannot be read."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from wattslice.boards.cpu.rapl import RaplSource
from wattslice.measure.energy import energy
from wattslice.measure.meter import Meter

RANGE_UJ = 100_000_000  # wraps every 100 J
POWER_W = 80.0


@pytest.fixture
def package(tmp_path: Path) -> Path:
    domain = tmp_path / "intel-rapl:0"
    domain.mkdir()
    (domain / "name").write_text("package-0\n")
    (domain / "max_energy_range_uj").write_text(f"{RANGE_UJ}\n")
    (domain / "energy_uj").write_text("90000000\n")
    return domain


def _measure(root: Path, package: Path, seconds: float, power_w: float = POWER_W) -> tuple:  # type: ignore[type-arg]
    """Count up the domain's file while it is measured."""
    started, ended = time.monotonic(), threading.Event()

    def count() -> None:
        while not ended.wait(0.001):
            joules = 90.0 + power_w * (time.monotonic() - started)
            temporary = package / "new"
            temporary.write_text(f"{round(joules * 1e6) % RANGE_UJ}\n")
            temporary.replace(package / "energy_uj")

    thread = threading.Thread(target=count)
    thread.start()
    with Meter(RaplSource(root), 10) as meter:
        meter.mark("start")
        start_s = time.monotonic()
        time.sleep(seconds)
        end_s = time.monotonic()
        meter.mark("end")
    ended.set()
    thread.join()
    return energy(meter.samples(), start_s, end_s, meter.record()), end_s - start_s


def test_t35_a_counter_that_wraps_with_a_known_range_is_unwrapped(
    tmp_path: Path, package: Path
) -> None:
    result, seconds = _measure(tmp_path, package, 3.0)  # 240 J, two wraps
    assert result.gross_j == pytest.approx(POWER_W * seconds, rel=0.02), result
    assert result.scope == "package"
    assert result.method == "rapl-counter"
    assert "tolerance-unknown" in result.flags


def test_t35_a_domain_without_a_readable_range_is_left_out(tmp_path: Path, package: Path) -> None:
    (package / "max_energy_range_uj").unlink()
    with Meter(RaplSource(tmp_path), 20) as meter:
        time.sleep(0.3)
    result = energy(meter.samples(), *_span(meter), meter.record())
    assert result.gross_j is None or result.gross_j > 0
    assert result.gross_j is None
    assert result.reason


def test_a_package_counter_that_does_not_move_is_no_energy(tmp_path: Path, package: Path) -> None:
    assert package.exists()
    with Meter(RaplSource(tmp_path), 20) as meter:
        time.sleep(0.5)
    result = energy(meter.samples(), *_span(meter), meter.record())
    assert result.gross_j is None
    assert "stood still" in (result.reason or "")


def _span(meter: Meter) -> tuple[float, float]:
    times = meter.samples()["t_s"]
    return times[0], times[-1]
