"""Eight-second windows on simulated boards whose true energy is known.

    python -m unit.measure.simulated_cases GROUP FILE

runs one group on the boards of the simulation that the process is in, and writes what the meter
and the truth say. All windows of a group are one and the same eight seconds.

The cases S0-S10 are those on which other tools were tried; the rest are reports of their users.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wattslice.boards.base import Board
from wattslice.config.layout import Layout
from wattslice.config.models import CooldownConfig, MeasureConfig
from wattslice.measure.cli import select_boards
from wattslice.measure.energy import energy
from wattslice.measure.idle import measure_idle
from wattslice.measure.meter import Meter
from wattslice.simulation.control import Control

WINDOW_S = 8.0
# Longer than the energy counter may be carried by power, so that a fault is there at the start.
LEAD_S = 1.3
A100, H100, GH200 = "a100-sxm4-80gb", "h100-sxm5-80gb", "gh200-96gb"
NOT_SUPPORTED, NO_PERMISSION = 3, 4
COUNTER = ("field:83", "field:191", "nvmlDeviceGetTotalEnergyConsumption")
POWER = ("field:185", "field:186", "nvmlDeviceGetPowerUsage")
Hook = Callable[[Control, int], None]


def _nothing(_: Control, __: int) -> None: ...


def _faults(code: int, *functions: str, **times: float) -> Hook:
    """Faults of a board; `after` and `until` count in s from the call."""

    def add(control: Control, board: int) -> None:
        now_s = time.monotonic()
        for function in functions:
            control.add_fault(
                function,
                code,
                board=board,
                after_s=now_s + times["after"] if "after" in times else 0.0,
                until_s=now_s + times["until"] if "until" in times else 0.0,
            )

    return add


def _options(**values: float) -> Hook:
    def set_all(control: Control, board: int) -> None:
        for name, value in values.items():
            moment = name in ("counter_reset_s", "counter_freeze_s", "lost_s")
            control.set_option(board, name, time.monotonic() + value if moment else value)

    return set_all


def _both(*hooks: Hook) -> Hook:
    def call(control: Control, board: int) -> None:
        for hook in hooks:
            hook(control, board)

    return call


def _wave(kind: str, low_w: float, high_w: float, period_s: float) -> Hook:
    return lambda control, board: control.set_waveform(
        board, kind, low_w=low_w, high_w=high_w, period_s=period_s
    )


@dataclass(frozen=True)
class Case:
    """One board's window: what is done to it, and what must come out."""

    name: str
    what: str
    model: str = A100
    before: Hook = _nothing  # before the meter starts
    running: Hook = _nothing  # when it runs, LEAD_S before the window
    energy: bool = True  # False: energy must be refused
    way: str = "counter"
    reason: str = ""  # part of the refusal's reason
    flags: tuple[str, ...] = ()
    max_error: float = 0.005


FAULTY: tuple[Case, ...] = (
    Case("S0", "nothing wrong"),
    Case(
        "S1",
        "energy counter not supported",
        before=_faults(NOT_SUPPORTED, *COUNTER),
        way="integral",
    ),
    Case(
        "S2",
        "neither counter nor power supported",
        before=_faults(NOT_SUPPORTED, *COUNTER, *POWER),
        energy=False,
        reason="NOT_SUPPORTED",
    ),
    Case(
        "S3",
        "counter restarts in the window",
        running=_options(counter_reset_s=LEAD_S + 4.0),
        way="integral",
        flags=("counter-reset",),
    ),
    Case(
        "S4",
        "counter fails for the first half",
        running=_faults(999, *COUNTER, until=LEAD_S + 4.0),
        way="integral",
        flags=("counter-incomplete",),
    ),
    Case(
        "S9",
        "memory query without permission",
        before=_faults(NO_PERMISSION, "nvmlDeviceGetMemoryInfo*"),
    ),
    Case(
        "no-permission",
        "no permission for any sensor",
        before=_faults(NO_PERMISSION, *COUNTER, *POWER),
        energy=False,
        reason="NO_PERMISSION",
    ),
    Case(
        "T38-frozen",
        "counter freezes in the window",
        running=_options(counter_freeze_s=LEAD_S + 3.0),
        way="integral",
        flags=("counter-frozen",),
    ),
    Case(
        "T38-impossible",
        "counter runs eight times too fast, no power to compare",
        before=_both(_options(counter_gain=8.0), _faults(NOT_SUPPORTED, *POWER)),
        energy=False,
        reason="W",
    ),
    Case(
        "T42",
        "plain power call only, a mean of 1 s",
        model=H100,
        before=_faults(NOT_SUPPORTED, *COUNTER, "field:185", "field:186"),
        way="integral",
        flags=("power-averaged",),
    ),
    Case(
        "T43",
        "power fails now and then, as when polled too fast",
        before=_faults(NOT_SUPPORTED, *COUNTER),
        running=_both(
            _faults(NOT_SUPPORTED, "field:186", after=LEAD_S + 2.0, until=LEAD_S + 2.25),
            _faults(NOT_SUPPORTED, "field:186", after=LEAD_S + 5.0, until=LEAD_S + 5.15),
        ),
        way="integral",
    ),
    Case(
        "T45",
        "power falls from 380 W just before the window",
        before=lambda control, board: control.set_trace(board, [(0.0, 380.0), (60.0, 380.0)]),
        running=lambda control, board: control.set_trace(
            board, [(0.0, 380.0), (LEAD_S - 0.1, 120.0)]
        ),
    ),
    Case("square", "power changes each 0.37 s", before=_wave("square", 100.0, 380.0, 0.74)),
    Case("sawtooth", "power rises in 1.3 s", before=_wave("sawtooth", 100.0, 380.0, 1.3)),
    Case(
        "lost",
        "the board falls off the bus",
        running=_options(lost_s=LEAD_S + 3.0),
        energy=False,
        reason="lost",
    ),
    Case(
        "T40",
        "counter tells 57 % of what power tells",
        before=_options(counter_gain=0.57),
        # Which of the two is wrong cannot be known: the checks must reject it.
        max_error=0.45,
    ),
)

GROUPS: dict[str, tuple[str, ...]] = {
    "faulty": tuple(case.model for case in FAULTY),
    "visible": (H100, H100),
    "many": (A100,) * 12,
    "module": (GH200,),
    "slow": (A100,),
    "idle": (A100, H100),
}


def _measure(
    control: Control, boards: Sequence[Board], running: Callable[[], None] = lambda: None
) -> list[dict[str, Any]]:
    """One window over some boards, each with its own meter; number, result and truth."""
    numbers = {control.board_uuid(n): n for n in range(len(control.board_models()))}
    meters = []
    for board in boards:
        reason = board.capabilities().energy.reason
        meters.append(Meter(board.power_source(), 10, no_source_reason=reason or "no sensor"))
    limits_w = [board.health().power_limit_w.value for board in boards]
    for meter in meters:
        meter.start()
    running()
    for meter in meters:
        meter.mark("start")
    start_s = time.monotonic()
    time.sleep(max(0.0, start_s + WINDOW_S - time.monotonic()))
    end_s = time.monotonic()
    for meter in meters:
        meter.mark("end")
    for meter in meters:
        meter.stop()
    found = []
    for board, meter, limit_w in zip(boards, meters, limits_w, strict=True):
        number = numbers[board.identity.uuid]
        result = energy(
            meter.samples(),
            start_s,
            end_s,
            meter.record(),
            simulated=board.identity.simulated,
            power_limit_w=limit_w,
        )
        found.append(
            {
                "number": number,
                "uuid": board.identity.uuid,
                "true_j": control.true_energy_j(number, start_s, end_s),
                "energy": result.model_dump(mode="json"),
                "meter": meter.record().model_dump(mode="json"),
                "first_sample_s": meter.samples()["t_s"][0] - start_s if meter.latest() else None,
            }
        )
    return found


def _boards(control: Control, numbers: Sequence[int]) -> list[Board]:
    from wattslice.boards.nvidia.board import NvidiaBoard

    return [NvidiaBoard(control.board_uuid(number)) for number in numbers]


def _constant(control: Control) -> None:
    for number in range(len(control.board_models())):
        control.set_waveform(number, "constant", low_w=300.0 + number)


def faulty(control: Control) -> dict[str, Any]:
    boards = _boards(control, range(len(FAULTY)))
    for number, case in enumerate(FAULTY):
        case.before(control, number)

    def running() -> None:
        for number, case in enumerate(FAULTY):
            case.running(control, number)
        time.sleep(LEAD_S)

    found = _measure(control, boards, running)
    return {case.name: entry for case, entry in zip(FAULTY, found, strict=True)}


def visible(control: Control) -> dict[str, Any]:
    """S5-S7 and the rules for MIG: what a process may use decides what is measured."""
    from wattslice.boards.nvidia.board import NvidiaBoard

    first, second = _boards(control, (0, 1))
    managed = NvidiaBoard(first.identity.uuid, "managed")
    managed.ensure(Layout.parse("3g+2g+1g"))
    slices = managed.slices()
    control.set_activity(slices[0].uuid or "", 0.8)
    _constant(control)
    old_name = f"MIG-{first.identity.uuid}/{slices[0].gpu_instance_id}/0"
    choices = {
        "S5": slices[1].uuid or "",
        "S5-old": old_name,
        "S6": second.identity.uuid,
        "S7": "1",
        "T22": ",".join(s.uuid or "" for s in slices),
        "T02-short": second.identity.uuid[:21],
    }
    selected = {
        name: select_boards(
            None, {"CUDA_VISIBLE_DEVICES": value, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
        )
        for name, value in choices.items()
    }
    found = {e["uuid"]: e for e in _measure(control, [first, second])}
    # MIG handles may give the parent's number, nothing, or something else: it must not matter.
    return {
        name: {
            "boards": [found[board.identity.uuid] for board in boards],
            "notes": list(notes),
            "siblings": [s.profile for s in slices],
        }
        for name, (boards, notes) in selected.items()
    }


def many(control: Control) -> dict[str, Any]:
    """S10: twelve boards; the sum must be the sum."""
    _constant(control)
    boards, _ = select_boards(None, {})
    return {"S10": {"boards": _measure(control, boards)}}


def module(control: Control) -> dict[str, Any]:
    """S8: a superchip that has no sensor of the GPU alone."""
    control.set_option(None, "gpu_scope", 0)
    control.set_waveform(0, "constant", low_w=600.0)
    return {"S8": _measure(control, _boards(control, (0,)))[0]}


def slow(control: Control) -> dict[str, Any]:
    """T44: a driver whose calls take 20 ms; the meter must not hold its lock all the time."""
    _constant(control)
    control.add_fault("nvmlDeviceGetFieldValues*", 0, board=0, delay_ms=20.0)
    return {"T44": _measure(control, _boards(control, (0,)))[0]}


def idle(control: Control) -> dict[str, Any]:
    """T31, T25: idle power of a board in use, and what the slices of a MIG board cost."""
    from wattslice.boards.nvidia.board import NvidiaBoard

    measure = MeasureConfig(idle_s=2.0, cooldown=CooldownConfig(max_s=0))
    (board,) = _boards(control, (0,))
    quiet = measure_idle(board, Layout.parse("full"), measure, {}, "code")
    control.set_process(board.identity.uuid, pid=4_000_001, activity=0.3, fake=True)
    busy = measure_idle(board, Layout.parse("full"), measure, {}, "code")
    control.remove_process(4_000_001)

    sliced = NvidiaBoard(control.board_uuid(1), "managed")
    sliced.ensure(Layout.parse("3g+2g+1g"))
    slices = sliced.slices()
    activity = (0.9, 0.6, 1.0)
    subsets = []
    for mask in range(8):
        chosen = [index for index in range(3) if mask >> index & 1]
        for index in range(3):
            control.set_activity(slices[index].uuid or "", activity[index] * (index in chosen))
        subsets.append([chosen, control.true_power_w(1, time.monotonic()) * 60.0])
    return {
        "idle": {"quiet": quiet.model_dump(mode="json"), "busy": busy.model_dump(mode="json")},
        "attribution": {
            "subsets": subsets,
            "sizes": [slice_.sm_count for slice_ in slices],
            "activity": activity,
        },
    }


def main() -> None:
    control = Control.from_environment()
    group = sys.argv[1]
    if group == "faulty":
        _constant(control)
    result = globals()[group](control)
    Path(sys.argv[2]).write_text(json.dumps(result), encoding="utf-8")


if __name__ == "__main__":
    # nvidia-ml-py is told by the environment which library to load; ours must be it.
    assert os.environ["WATTSLICE_SIMULATED"] == "1"
    main()
