"""The scenario file: faults, options, processes and power scripts that a simulation starts with.

JSON object with any of the keys ``faults``, ``options``, ``processes``, ``waveforms``, ``traces``
and ``versions``; simulator/README.md describes them with examples. ``board`` is a number or
"all"; times ``*_s`` count from when the file is applied.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from wattslice.simulation.control import OPTIONS, TARGETS, TIME_OPTIONS, WAVEFORMS
from wattslice.simulation.errors import SimulationError, parse_code, suggestion

if TYPE_CHECKING:
    from pathlib import Path

    from wattslice.simulation.control import Control

_KEYS: dict[str, dict[str, tuple[type, ...]]] = {
    "faults": {
        "board": (int, str),
        "function": (str,),
        "code": (int, str),
        "target": (str,),
        "from_call": (int,),
        "to_call": (int,),
        "after_s": (int, float),
        "until_s": (int, float),
        "delay_ms": (int, float),
    },
    "processes": {
        "board": (int,),
        "uuid": (str,),
        "pid": (int,),
        "activity": (int, float),
        "memory_mib": (int, float),
        "graphics": (bool,),
    },
    "waveforms": {
        "board": (int,),
        "kind": (str,),
        "low_w": (int, float),
        "high_w": (int, float),
        "period_s": (int, float),
        "duty": (int, float),
    },
    "traces": {"board": (int,), "points": (list,)},
}
_TOP = (*_KEYS, "options", "versions")


def read_scenario(path: Path) -> dict[str, Any]:
    """A scenario file as checked data."""
    try:
        data = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise SimulationError(f"cannot read {path}: {error}") from error
    try:
        return check_scenario(data)
    except SimulationError as error:
        raise SimulationError(f"{path}: {error}") from error


def _check_entry(kind: str, number: int, entry: object) -> None:
    where = f"{kind}[{number}]"
    if not isinstance(entry, Mapping):
        raise SimulationError(f"{where} is not an object")
    known = _KEYS[kind]
    for key, value in entry.items():
        if key not in known:
            raise SimulationError(f"{where}: unknown key {key!r}{suggestion(key, known)}")
        right = isinstance(value, known[key]) and not (
            isinstance(value, bool) and bool not in known[key]
        )
        if not right:
            raise SimulationError(f"{where}: {key} cannot be {value!r}")
    _board(entry.get("board"), where)
    if kind == "faults":
        if "function" not in entry:
            raise SimulationError(f"{where} names no function")
        parse_code(entry.get("code", 0))
        if entry.get("code", 0) in (0, "SUCCESS") and not entry.get("delay_ms"):
            raise SimulationError(f"{where} has neither code nor delay_ms")
        if entry.get("target", "any") not in TARGETS:
            raise SimulationError(f"{where}: target is one of {', '.join(TARGETS)}")
    if kind == "waveforms" and entry.get("kind") not in WAVEFORMS:
        raise SimulationError(f"{where}: kind is one of {', '.join(WAVEFORMS)}")


def _board(value: object, where: str) -> int | None:
    if value is None or value == "all":
        return None
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    raise SimulationError(f"{where}: board is a number or 'all', not {value!r}")


def check_scenario(data: object) -> dict[str, Any]:
    """The same data if it is a valid scenario, else an error that says where it is not."""
    if not isinstance(data, Mapping):
        raise SimulationError("a scenario is a JSON object")
    for key, value in data.items():
        if key not in _TOP:
            raise SimulationError(f"unknown key {key!r}{suggestion(key, _TOP)}")
        if key == "versions":
            if not isinstance(value, Mapping) or not set(value) <= {"driver", "nvml", "cuda"}:
                raise SimulationError("versions has the keys driver, nvml and cuda")
            continue
        if not isinstance(value, list):
            raise SimulationError(f"{key} is a list")
        for number, entry in enumerate(value):
            if key == "options":
                _check_options(number, entry)
            else:
                _check_entry(key, number, entry)
    return dict(data)


def _check_options(number: int, entry: object) -> None:
    where = f"options[{number}]"
    if not isinstance(entry, Mapping):
        raise SimulationError(f"{where} is not an object")
    _board(entry.get("board"), where)
    for key, value in entry.items():
        if key == "board":
            continue
        if key not in OPTIONS:
            raise SimulationError(f"{where}: unknown option {key!r}{suggestion(key, OPTIONS)}")
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise SimulationError(f"{where}: {key} is a number, not {value!r}")


def apply_scenario(control: Control, data: Mapping[str, Any]) -> None:
    """Sets up all that the scenario says, now."""
    check_scenario(data)
    now_s = time.monotonic()
    for entry in data.get("options", []):
        for name, value in entry.items():
            if name != "board":
                absolute = now_s + value if name in TIME_OPTIONS and value else value
                control.set_option(_board(entry.get("board"), "options"), name, absolute)
    for entry in data.get("processes", []):
        _apply_process(control, entry)
    for entry in data.get("waveforms", []):
        settings = {k: v for k, v in entry.items() if k != "board"}
        control.set_waveform(entry.get("board", 0), **settings)
    for entry in data.get("traces", []):
        control.set_trace(entry.get("board", 0), [(float(t), float(w)) for t, w in entry["points"]])
    if "versions" in data:
        control.set_versions(**data["versions"])
    for entry in data.get("faults", []):
        control.add_fault(
            entry["function"],
            parse_code(entry.get("code", 0)),
            board=_board(entry.get("board"), "faults"),
            target=entry.get("target", "any"),
            from_call=entry.get("from_call", 1),
            to_call=entry.get("to_call", 0),
            after_s=now_s + entry["after_s"] if entry.get("after_s") else 0.0,
            until_s=now_s + entry["until_s"] if entry.get("until_s") else 0.0,
            delay_ms=entry.get("delay_ms", 0.0),
        )


def _apply_process(control: Control, entry: Mapping[str, Any]) -> None:
    """A process that is there without existing: a foreign one, or one that holds an instance."""
    control.set_process(
        entry.get("uuid") or control.board_uuid(entry.get("board", 0)),
        pid=entry.get("pid", 4_000_001),
        activity=float(entry.get("activity", 0.0)),
        memory_mib=float(entry.get("memory_mib", 256)),
        fake=True,
        graphics=bool(entry.get("graphics", False)),
    )
