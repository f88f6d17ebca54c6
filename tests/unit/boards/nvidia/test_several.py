"""Two simulated boards as the place of one run: lease, slices, one meter each, and their sum."""

from __future__ import annotations

import os
import time

import pytest
from nvidia_sim import A100, on_simulator

from wattslice.boards.allocation import AllocatedBoard
from wattslice.boards.discover import board_of, selected_boards
from wattslice.boards.errors import (
    BoardBusyError,
    BoardError,
    BoardNotFoundError,
    LayoutImpossibleError,
)
from wattslice.boards.several import members
from wattslice.config.layout import Layout
from wattslice.config.models import BoardConfig
from wattslice.measure.energy import energy
from wattslice.measure.meters import Meters
from wattslice.measure.sum_of_boards import sum_of_boards

TWO = f"{A100},{A100}"
GPU_IS_LOST = 15


def config(*select):
    return BoardConfig(kind="nvidia", select=select or None)


@on_simulator(TWO, mig_on=False)
def test_a_layout_of_two_boards_is_made_on_both_and_put_back(sim):
    a, b = sim.uuid(0), sim.uuid(1)
    board = board_of(config(a, b), 2)
    assert board.identity.uuid == f"{a}+{b}"
    assert board.identity.name.startswith("2 x ")
    before = board.snapshot()
    state = board.ensure(Layout.parse("2xfull"))
    assert [(s.index, s.name, s.uuid) for s in state.slices] == [(0, "full", a), (1, "full", b)]
    places = [board.placement(slice_) for slice_ in state.slices]
    assert [place.simulated_slice for place in places] == [a, b]
    assert not set(places[0].cores) & set(places[1].cores) or len(places[0].cores) == 1
    board.restore(before)
    assert board.health().power_limit_w.value == 800.0  # of two boards
    with pytest.raises(LayoutImpossibleError, match="nearest possible: 2xfull"):
        board.plan(Layout.parse("full"))
    with pytest.raises(LayoutImpossibleError, match="of 2 boards, and this is one"):
        members(board)[0].plan(Layout.parse("2xfull"))


@on_simulator(TWO, mig_on=False)
def test_a_run_on_two_boards_holds_both(sim):
    board = board_of(config(sim.uuid(0), sim.uuid(1)), 2)
    for one in (0, 1):
        alone = board_of(config(sim.uuid(one)))
        with board.lease(), pytest.raises(BoardBusyError, match=sim.uuid(one)), alone.lease(0):
            pass
        with alone.lease(), pytest.raises(BoardBusyError, match=sim.uuid(one)), board.lease(0):
            pass
    with board.lease(0):  # what was taken before the busy one was given back
        pass


@on_simulator(TWO, mig_on=False)
def test_which_boards_are_taken(sim):
    a, b = sim.uuid(0), sim.uuid(1)
    assert board_of(config(b, a), 2).identity.uuid == f"{b}+{a}"
    assert board_of(config(b, a)).identity.uuid == b
    assert selected_boards(config(b, a)).identity.uuid == f"{b}+{a}"
    assert selected_boards(config(b)).identity.uuid == b
    with pytest.raises(BoardError, match=f"{a} is named twice"):
        board_of(config(a, a.upper()), 2)
    with pytest.raises(BoardNotFoundError, match=r"of 3 boards, and .* lists 2"):
        board_of(config(a, b), 3)


@on_simulator(TWO, mig_on=False)
def test_energy_is_the_sum_of_one_meter_per_board_and_null_when_one_is_lost(sim):
    a, b = sim.uuid(0), sim.uuid(1)
    board = board_of(config(a, b), 2)
    meters = Meters.of(board, 10)
    assert list(meters.by_board) == [a, b]
    with meters:
        start_s = meters.mark("start")
        time.sleep(1.5)
        end_s = meters.mark("end")
        sim.control.add_fault("*", GPU_IS_LOST, board=1)
        time.sleep(1.0)
        late_s = meters.mark("late")

    def of(until_s):
        return {
            uuid: energy(meter.samples(), start_s, until_s, meter.record())
            for uuid, meter in meters.by_board.items()
        }

    found = of(end_s)
    total = sum_of_boards(found, [a, b, a])  # a is named twice and counts once
    assert total.gross_j == pytest.approx(found[a].gross_j + found[b].gross_j)
    assert total.mean_power_w == pytest.approx(2 * found[a].mean_power_w, rel=0.2)
    assert total.boards == found
    assert meters.reason.startswith(f"board {b}: the board was lost")
    assert meters.record().reason == meters.reason

    lost = sum_of_boards(of(late_s), [a, b])
    assert lost.gross_j is None
    assert lost.net_j is None
    assert f"board {b}: " in lost.reason
    assert lost.boards[a].gross_j > 0
    never = sum_of_boards({a: found[a]}, [a, b])
    assert (never.gross_j, never.reason) == (None, f"board {b} has no meter")


@on_simulator(TWO, mig_on=False)
def test_a_job_that_slurm_gave_two_boards_trains_on_both(sim):
    a, b = sim.uuid(0), sim.uuid(1)
    os.environ.update(SLURM_JOB_ID="17", CUDA_VISIBLE_DEVICES="0,1", SLURM_STEP_GPUS="0,1")
    board = board_of(config(a, b), 2)
    assert [type(one) for one in members(board)] == [AllocatedBoard, AllocatedBoard]
    assert all(one.allocation.whole for one in members(board))
    assert board.ensure(Layout.parse("2xfull")).layout == "2xfull"
    os.environ.update(CUDA_VISIBLE_DEVICES="0", SLURM_STEP_GPUS="0")
    with pytest.raises(BoardNotFoundError, match="fits no board; there are"):
        board_of(config(a, b), 2)
