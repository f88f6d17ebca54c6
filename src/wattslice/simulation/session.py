"""A simulation: its state file, and the environment in which programs run on it."""

from __future__ import annotations

import os
import shutil
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wattslice.simulation.boards import MAX_BOARDS, board_model
from wattslice.simulation.build import ensure_built
from wattslice.simulation.control import Control
from wattslice.simulation.errors import SimulationError
from wattslice.simulation.faults import apply_scenario, check_scenario
from wattslice.simulation.library import SIMULATED_VARIABLE, STATE_VARIABLE, check, load

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence


@dataclass(frozen=True)
class Simulation:
    """Boards that exist as long as the state file does."""

    state: Path
    library: Path
    boards: tuple[str, ...]

    def environment(self, base: Mapping[str, str] | None = None) -> dict[str, str]:
        """The environment of a program that is to run on these boards.

        The dynamic linker reads LD_LIBRARY_PATH when a process starts, so this cannot be done
        from inside one.
        """
        env = dict(os.environ if base is None else base)
        folder = str(self.library.parent)
        rest = env.get("LD_LIBRARY_PATH")
        env["LD_LIBRARY_PATH"] = f"{folder}:{rest}" if rest else folder
        env[STATE_VARIABLE] = str(self.state)
        env[SIMULATED_VARIABLE] = "1"
        return env

    def control(self) -> Control:
        """Steers these boards from here."""
        return Control(self.state, self.library)


def create(
    boards: Sequence[str],
    state: Path,
    *,
    mig: bool = False,
    scenario: Mapping[str, Any] | None = None,
) -> Simulation:
    """Makes the state file of a new simulation; an existing file is refused."""
    models = [board_model(name).model for name in boards]
    if not 1 <= len(models) <= MAX_BOARDS:
        raise SimulationError(f"{len(models)} boards: a simulation has 1 to {MAX_BOARDS}")
    if scenario is not None:
        check_scenario(scenario)
    library = ensure_built()
    path = state.absolute()
    code = load(library).wattsim_create(os.fsencode(path), ",".join(models).encode(), int(mig))
    check(code, f"making the simulation {path}" + (" (it exists)" if path.exists() else ""))
    simulation = Simulation(path, library, tuple(models))
    if scenario is not None:
        try:
            apply_scenario(simulation.control(), scenario)
        except SimulationError:
            path.unlink(missing_ok=True)
            raise
    return simulation


def resume(state: Path, scenario: Mapping[str, Any] | None = None) -> Simulation:
    """An existing simulation; the scenario, if any, is applied now."""
    library = ensure_built()
    control = Control(state.absolute(), library)
    found = Simulation(state.absolute(), library, control.board_models())
    if scenario is not None:
        apply_scenario(control, scenario)
    return found


@contextmanager
def simulation(
    boards: Sequence[str],
    *,
    mig: bool = False,
    scenario: Mapping[str, Any] | None = None,
) -> Iterator[Simulation]:
    """A simulation in a temporary folder, which goes with it."""
    folder = Path(tempfile.mkdtemp(prefix="wattslice-simulation-"))
    try:
        yield create(boards, folder / "state", mig=mig, scenario=scenario)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
