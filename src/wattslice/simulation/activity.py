"""What a worker on simulated boards tells the simulator: how busy it keeps its device."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from wattslice.simulation.control import Control
from wattslice.simulation.errors import SimulationError

if TYPE_CHECKING:
    from collections.abc import Iterator


def set_activity(uuid: str, value: float) -> None:
    """This process keeps the board or MIG device ``uuid`` busy to ``value`` (0..1) from now on."""
    Control.from_environment().set_activity(uuid, value)


@contextmanager
def busy(uuid: str, value: float = 1.0, memory_mib: float = 0.0) -> Iterator[None]:
    """This process is at work on the device inside the block, and gone from it afterwards."""
    control = Control.from_environment()
    control.set_process(uuid, activity=value, memory_mib=memory_mib)
    try:
        yield
    finally:
        try:
            control.remove_process()
        except SimulationError as error:
            if error.code is None:
                raise
            # The device was destroyed or the board lost meanwhile: nothing is left to remove.
