from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from wattslice.simulation.session import Simulation, simulation


@pytest.fixture
def simulate() -> Iterator[Callable[..., Simulation]]:
    """Makes simulations that go with the test."""
    with ExitStack() as stack:

        def make(*boards: str, **settings: Any) -> Simulation:
            return stack.enter_context(simulation(boards, **settings))

        yield make
