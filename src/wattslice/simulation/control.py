"""Steering a running simulation and reading what is true about it.

Times are seconds of CLOCK_MONOTONIC, the clock of :func:`time.monotonic`. A process controls one
simulation at a time; using a :class:`Control` of another one switches over, which is refused
while NVML is initialised in the same process.
"""

from __future__ import annotations

import math
import os
from ctypes import byref, c_double, c_uint, c_uint64, create_string_buffer
from pathlib import Path
from typing import TYPE_CHECKING

from wattslice.simulation.build import ensure_built
from wattslice.simulation.errors import SimulationError, code_name, suggestion
from wattslice.simulation.library import NVML_LIBRARY, STATE_VARIABLE, check, load

if TYPE_CHECKING:
    import ctypes
    from collections.abc import Sequence

#: Numbers of a board that :meth:`Control.set_option` knows (meanings: simulator/README.md).
OPTIONS = (
    "idle_w",
    "idle_mig_w",
    "peak_w",
    "sensor_gain",
    "sensor_offset_w",
    "sensor_period_ms",
    "sensor_window_ms",
    "average_window_ms",
    "counter_period_ms",
    "counter_gain",
    "counter_reset_s",
    "counter_freeze_s",
    "lost_s",
    "permission",
    "mig_switch",
    "sparse_indices",
    "gi_id_mode",
    "mig_power",
    "gpu_scope",
    "independent_query",
    "name_drift_gb",
    "ambient_c",
    "heat_c_per_w",
    "heat_tau_s",
    "event_reasons",
)
#: Options that are points in time, for which 0 means never.
TIME_OPTIONS = ("counter_reset_s", "counter_freeze_s", "lost_s")
#: Kinds of scripted power and their numbers in the library.
WAVEFORMS = {"none": 0, "constant": 1, "square": 2, "sawtooth": 3}
#: Which handles a fault is for.
TARGETS = {"any": 0, "gpu": 1, "mig": 2}


class _OpenState:
    """The state file that the library in this process has open: it can have one."""

    path: Path | None = None


class Control:
    """One simulation, named by its state file."""

    def __init__(self, state: Path, library: Path | str) -> None:
        self.state = Path(state)
        self._library = load(library)

    @classmethod
    def from_environment(cls) -> Control:
        """The simulation that this process runs on."""
        state = os.environ.get(STATE_VARIABLE)
        if not state:
            raise SimulationError(f"not on simulated boards: {STATE_VARIABLE} is not set")
        return cls(Path(state), NVML_LIBRARY)

    @classmethod
    def of_state(cls, state: Path) -> Control:
        """The simulation with this state file, from a process that is not itself part of it."""
        return cls(state, ensure_built())

    def _ready(self) -> ctypes.CDLL:
        if _OpenState.path != self.state:
            if _OpenState.path is not None:
                check(self._library.wattsim_close(), f"leaving {_OpenState.path}")
                _OpenState.path = None
            check(self._library.wattsim_open(os.fsencode(self.state)), f"opening {self.state}")
            _OpenState.path = self.state
        return self._library

    # ---- boards and processes --------------------------------------------------------------

    def board_uuid(self, board: int) -> str:
        """The UUID of board number ``board``."""
        buffer = create_string_buffer(64)
        check(self._ready().wattsim_board_uuid(board, buffer, 64), f"board {board}")
        return buffer.value.decode()

    def board_models(self) -> tuple[str, ...]:
        """The models of all boards, in order."""
        models: list[str] = []
        buffer = create_string_buffer(64)
        while self._ready().wattsim_board_model(len(models), buffer, 64) == 0:
            models.append(buffer.value.decode())
        return tuple(models)

    def set_activity(self, uuid: str, value: float, pid: int = 0) -> None:
        """Process ``pid`` (0: this one) keeps the board or MIG device busy to 0..1 from now on.

        It stops counting when the process dies, from the moment that the simulator notices: at
        the next call of any process.
        """
        check(self._ready().wattsim_set_activity(uuid.encode(), value, pid), f"activity of {uuid}")

    def set_process(
        self,
        uuid: str,
        *,
        pid: int = 0,
        activity: float = 0.0,
        memory_mib: float = 0.0,
        fake: bool = False,
        graphics: bool = False,
    ) -> None:
        """A process with device memory; a ``fake`` one need not exist and never dies."""
        check(
            self._ready().wattsim_set_process(
                uuid.encode(), activity, pid, round(memory_mib * 2**20), fake, graphics
            ),
            f"process on {uuid}",
        )

    def remove_process(self, pid: int = 0) -> None:
        """The process (0: this one) no longer uses any board."""
        check(self._ready().wattsim_remove_process(pid), f"process {pid}")

    # ---- options and faults ----------------------------------------------------------------

    def set_option(self, board: int | None, name: str, value: float) -> None:
        """Sets a number of one board, or of all (``None``); names: :data:`OPTIONS`."""
        if name not in OPTIONS:
            raise SimulationError(f"unknown option {name!r}{suggestion(name, OPTIONS)}")
        number = -1 if board is None else board
        check(self._ready().wattsim_set_option(number, name.encode(), value), f"option {name}")

    def option(self, board: int, name: str) -> float:
        """A number of one board."""
        value = c_double()
        check(
            self._ready().wattsim_get_option(board, name.encode(), byref(value)), f"option {name}"
        )
        return value.value

    def set_versions(
        self, driver: str | None = None, nvml: str | None = None, cuda: int = 0
    ) -> None:
        """What the library says about versions; ``cuda`` as 1000 * major + 10 * minor."""
        check(
            self._ready().wattsim_set_versions(
                None if driver is None else driver.encode(),
                None if nvml is None else nvml.encode(),
                cuda,
            ),
            "versions",
        )

    def add_fault(
        self,
        function: str,
        code: int = 0,
        *,
        board: int | None = None,
        target: str = "any",
        from_call: int = 1,
        to_call: int = 0,
        after_s: float = 0.0,
        until_s: float = 0.0,
        delay_ms: float = 0.0,
    ) -> int:
        """Makes matching calls fail with ``code``, or only slow (``delay_ms``); returns its id.

        ``function`` may have wildcards; ``field:186`` means that value of
        nvmlDeviceGetFieldValues. Calls are counted from 1 over all processes.
        """
        if target not in TARGETS:
            raise SimulationError(f"unknown fault target {target!r}{suggestion(target, TARGETS)}")
        number = c_uint()
        check(
            self._ready().wattsim_add_fault(
                -1 if board is None else board,
                function.encode(),
                TARGETS[target],
                code,
                from_call,
                to_call,
                after_s,
                until_s,
                delay_ms,
                byref(number),
            ),
            f"fault in {function}",
        )
        return number.value

    def clear_faults(self, board: int | None = None) -> None:
        """Forgets the faults of one board, or all."""
        check(self._ready().wattsim_clear_faults(-1 if board is None else board), "faults")

    def fault_calls(self, fault: int) -> int:
        """How many calls have matched the fault so far."""
        seen = c_uint64()
        check(self._ready().wattsim_fault_calls(fault, byref(seen)), f"fault {fault}")
        return seen.value

    # ---- scripted power --------------------------------------------------------------------

    def set_waveform(
        self,
        board: int,
        kind: str,
        *,
        low_w: float = 0.0,
        high_w: float = 0.0,
        period_s: float = 1.0,
        duty: float = 0.5,
    ) -> None:
        """Board power that does not follow activity; the wave starts now. Kinds:
        :data:`WAVEFORMS`."""
        if kind not in WAVEFORMS:
            raise SimulationError(f"unknown waveform {kind!r}{suggestion(kind, WAVEFORMS)}")
        check(
            self._ready().wattsim_set_waveform(
                board, WAVEFORMS[kind], low_w, high_w, period_s, duty
            ),
            f"waveform {kind}",
        )

    def set_trace(self, board: int, points: Sequence[tuple[float, float]]) -> None:
        """Steps ``(offset_s, power_w)`` from now on; the last one holds for ever."""
        array = c_double * len(points)
        offsets = array(*(offset for offset, _ in points))
        powers = array(*(power for _, power in points))
        check(self._ready().wattsim_set_trace(board, len(points), offsets, powers), "power trace")

    # ---- truth -----------------------------------------------------------------------------

    def true_energy_j(self, board: int, t0_s: float, t1_s: float) -> float:
        """Energy of the board between two times, exactly and without any sensor, in joules."""
        energy_mj = float(self._ready().wattsim_true_energy_mj(board, t0_s, t1_s))
        if math.isnan(energy_mj):
            raise SimulationError(f"board {board}: no record of power back to {t0_s} s")
        return energy_mj / 1e3

    def true_power_w(self, board: int, t_s: float) -> float:
        """Power of the board at one time, in watts."""
        power_w = float(self._ready().wattsim_true_power_w(board, t_s))
        if math.isnan(power_w):
            raise SimulationError(f"board {board}: no record of power at {t_s} s")
        return power_w

    def created_s(self) -> float:
        """When the simulation was made (monotonic)."""
        monotonic = c_double()
        check(self._ready().wattsim_created(byref(monotonic), None), str(self.state))
        return monotonic.value

    # ---- reset -----------------------------------------------------------------------------

    def reset_board(self, board: int) -> None:
        """GPU reset: the pending MIG mode becomes current, instances go; fails while in use."""
        code = self._ready().wattsim_reset_board(board)
        check(code, f"resetting board {board} ({code_name(code)})")

    def reboot_board(self, board: int) -> None:
        """As after a reboot: no processes, no instances; MIG mode is kept on Ampere only."""
        check(self._ready().wattsim_reboot_board(board), f"rebooting board {board}")

    def post_xid(self, board: int, xid: int) -> None:
        """Logs an Xid error, which event sets receive."""
        check(self._ready().wattsim_post_xid(board, xid), f"Xid on board {board}")


def true_energy_j(board: int, t0_monotonic_s: float, t1_monotonic_s: float) -> float:
    """True energy of a board of the simulation that this process runs on, in joules."""
    return Control.from_environment().true_energy_j(board, t0_monotonic_s, t1_monotonic_s)
