from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wattslice.boards.cpu import rapl
from wattslice.boards.cpu.board import CpuBoard
from wattslice.boards.cpu.cores import divide
from wattslice.boards.cpu.power_model import PowerModelSource
from wattslice.boards.errors import LayoutImpossibleError
from wattslice.boards.inventory import problems
from wattslice.config.layout import Layout


@dataclass
class Model:
    idle_w: float = 20.0
    active_w_per_core: float = 8.0
    source: str = "test"


@given(st.lists(st.integers(1, 4), min_size=1, max_size=6), st.integers(1, 16))
def test_slices_are_disjoint_core_sets_or_the_layout_is_refused(
    sizes: list[int], cores: int
) -> None:
    layout = Layout.parse("+".join(f"{size}c" for size in sizes))
    if sum(sizes) > cores:
        with pytest.raises(LayoutImpossibleError) as caught:
            divide(layout, range(cores))
        assert f"needs {sum(sizes)} cores" in caught.value.reason
        for near in caught.value.nearest:
            divide(Layout.parse(near), range(cores))
        return
    sets = divide(layout, range(cores))
    taken = [core for part in sets for core in part]
    assert sorted(map(len, sets), reverse=True) == sorted(sizes, reverse=True)
    assert len(taken) == len(set(taken)) == sum(sizes)


def test_full_is_every_allowed_core_and_a_mig_slice_is_refused() -> None:
    board = CpuBoard(cores=(4, 5, 6))
    state = board.ensure(Layout.parse("full"))
    assert state.slices[0].cores == (4, 5, 6)
    assert board.placement(state.slices[0]).threads == 3
    with pytest.raises(LayoutImpossibleError, match="'3g' is a MIG slice"):
        board.plan(Layout.parse("3g"))


def test_the_inventory_names_what_the_board_cannot_do() -> None:
    found = list(problems(CpuBoard(cores=(0, 1)), ["full", "3x1c"], ["bf16", "tf32"]))
    assert len(found) == 2
    assert "'3x1c'" in found[0]
    assert "needs 3 cores and this process may use 2" in found[0]
    assert "nearest possible: 2x1c, full" in found[0]
    assert "'tf32'" in found[1]
    assert "valid: fp32, fp32-default, bf16" in found[1]


class Powercap:
    """A powercap tree that a test fills."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def add(self, zone: str, name: str, energy_uj: int, range_uj: int = 1_000_000) -> Path:
        folder = self.root / zone
        folder.mkdir(parents=True)
        (folder / "name").write_text(name + "\n")
        (folder / "max_energy_range_uj").write_text(f"{range_uj}\n")
        self.set(zone, energy_uj)
        return folder / "energy_uj"

    def set(self, zone: str, energy_uj: int) -> None:
        (self.root / zone / "energy_uj").write_text(f"{energy_uj}\n")


def test_rapl_sums_packages_and_dram_once_and_survives_wraps(tmp_path: Path) -> None:
    tree = Powercap(tmp_path)
    tree.add("intel-rapl:0", "package-0", 900_000)
    tree.add("intel-rapl:0:0", "core", 5)
    tree.add("intel-rapl:0:1", "dram", 100_000, range_uj=500_000)
    tree.add("intel-rapl:1", "package-1", 0)
    tree.add("intel-rapl:2", "psys", 7)
    source = rapl.RaplSource(tmp_path)
    source.open()
    assert source.read().energy_j == 0.0
    tree.set("intel-rapl:0", 100_000)  # wrapped: 0.2 J
    tree.set("intel-rapl:0:1", 200_000)  # 0.1 J
    tree.set("intel-rapl:1", 50_000)  # 0.05 J
    tree.set("intel-rapl:0:0", 999_999)  # part of the package
    assert source.read().energy_j == pytest.approx(0.35)
    (tmp_path / "intel-rapl:1" / "energy_uj").write_text("broken")
    failed = source.read()
    assert failed.energy_j is None
    assert failed.error is not None
    tree.set("intel-rapl:1", 60_000)
    assert source.read().energy_j == pytest.approx(0.36)  # nothing is lost over a failed read


def test_a_machine_without_rapl_says_so(tmp_path: Path) -> None:
    assert "no RAPL package domain" in str(rapl.probe(tmp_path).reason)


def test_a_counter_that_does_not_move_is_no_meter(tmp_path: Path) -> None:
    Powercap(tmp_path).add("intel-rapl:0", "package-0", 0)
    assert "does not move" in str(rapl.probe(tmp_path, wait_s=0).reason)


def test_a_counter_that_only_root_may_read_says_what_to_ask_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Powercap(tmp_path).add("intel-rapl:0", "package-0", 0)

    def refuse(self: rapl.Domain) -> float:
        raise PermissionError(13, "Permission denied", str(self.path / "energy_uj"))

    monkeypatch.setattr(rapl.Domain, "read_j", refuse)
    reason = rapl.probe(tmp_path).reason
    assert reason is not None
    assert "energy_uj may be read by root only" in reason
    assert "ask an administrator" in reason


def test_without_counter_and_model_there_is_no_energy_and_a_reason(tmp_path: Path) -> None:
    board = CpuBoard(cores=(0,), powercap=tmp_path)
    assert board.power_source() is None
    energy = board.capabilities().energy
    assert (energy.scope, energy.method) == (None, None)
    assert energy.reason


def test_a_declared_model_is_labelled_and_says_why_it_is_used(tmp_path: Path) -> None:
    energy = CpuBoard(Model(), cores=(0,), powercap=tmp_path).capabilities().energy
    assert energy.scope == "modelled"
    assert "modelled, not measured: no RAPL package domain" in str(energy.reason)


def _stat(path: Path, busy: int, idle: int) -> None:
    line = "{} {} 0 0 {} 0 0 0 0 9 9\n"
    path.write_text("".join(line.format(f"cpu{core}", busy, idle) for core in (0, 1, 2)))


def test_modelled_power_follows_the_load_of_the_boards_own_cores(tmp_path: Path) -> None:
    path = tmp_path / "stat"
    _stat(path, 100, 100)
    source = PowerModelSource(Model(), (0, 1), path)
    source.open()
    _stat(path, 110, 130)  # a quarter busy on each of two cores
    assert source.read().power_w == pytest.approx(20 + 8 * 0.25 * 2)
    assert source.read().power_w == pytest.approx(24)  # within one tick the load still holds
    _stat(path, 150, 130)
    assert source.read().power_w == pytest.approx(20 + 8 * 2)
    path.write_text("cpu0 x\n")
    failed = source.read()
    assert failed.power_w is None
    assert failed.error is not None


def test_the_kernels_ticks_are_read_from_this_machine() -> None:
    core = min(os.sched_getaffinity(0))
    source = PowerModelSource(Model(), (core,))
    source.open()
    end_s = time.monotonic() + 0.2
    while time.monotonic() < end_s:
        pass
    power_w = source.read().power_w
    assert power_w is not None
    assert 20.0 <= power_w <= 28.0
