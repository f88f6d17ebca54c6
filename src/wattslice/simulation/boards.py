"""The catalogue of board models that can be simulated (``simulator/data/boards.csv``)."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import lru_cache

from wattslice.simulation.build import source_dir
from wattslice.simulation.errors import SimulationError, suggestion

#: Boards in one simulation; the library's WS_MAX_BOARDS.
MAX_BOARDS = 16


@dataclass(frozen=True)
class BoardModel:
    """One model as the tables have it."""

    model: str
    name: str
    family: str
    architecture: str
    memory_mib: int
    sm_count: int
    memory_slices: int
    min_limit_w: float
    default_limit_w: float
    max_limit_w: float
    idle_w: float
    idle_mig_w: float
    peak_w: float
    power_scope: str
    confidence: str


@lru_cache(maxsize=1)
def catalogue() -> dict[str, BoardModel]:
    """All models by name."""
    with (source_dir() / "data" / "boards.csv").open(newline="") as file:
        return {
            row["model"]: BoardModel(
                model=row["model"],
                name=row["name"],
                family=row["family"],
                architecture=row["arch"],
                memory_mib=int(row["memory_mib"]),
                sm_count=int(row["sms"]),
                memory_slices=int(row["mem_axis"]),
                min_limit_w=float(row["min_limit_w"]),
                default_limit_w=float(row["default_limit_w"]),
                max_limit_w=float(row["max_limit_w"]),
                idle_w=float(row["idle_w"]),
                idle_mig_w=float(row["idle_mig_w"]),
                peak_w=float(row["peak_w"]),
                power_scope=row["scope"],
                confidence=row["confidence"],
            )
            for row in csv.DictReader(file)
        }


def board_model(name: str) -> BoardModel:
    """The model of that name; the error for an unknown one names what is near."""
    known = catalogue()
    found = known.get(name.lower())
    if found is None:
        raise SimulationError(f"unknown board {name!r}{suggestion(name.lower(), known)}")
    return found
