"""What is known about the energy of a window, and what it may claim."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import Field

from wattslice.records.base import Quantity, Record
from wattslice.records.board import EnergyScope


class EnergyResult(Record):
    """Energy of one board over one window. `gross_j` is null with a `reason` where there is none.

    `modelled` and `simulated` mark numbers that are not measurements; they go wherever the
    numbers go.
    """

    scope: EnergyScope | None = None
    method: str | None = None
    modelled: bool = False
    simulated: bool = False
    window_s: float
    gross_j: float | None = None
    net_j: float | None = None
    idle_w: float | None = None
    idle_source: str | None = None
    counter_j: float | None = None
    integral_j: float | None = None
    disagreement: float | None = None
    mean_power_w: float | None = None
    samples: int = 0
    period_median_s: float | None = None
    period_max_gap_s: float | None = None
    coverage: float | None = None
    errors: int = 0
    flags: tuple[str, ...] = ()
    notes: tuple[str, ...] = Field(default=(), description="what can be done about a flag")
    event_shares: dict[str, float] = Field(
        default_factory=dict,
        description="share of the readings in the window that show a clock event reason, 0..1; "
        "empty where the board has none or none was read",
    )
    temperature_max_c: float | None = None
    temperature_drift_c: float | None = Field(
        default=None, description="last third of the window minus first third, mean, °C"
    )
    uncertainty_j: float | None = Field(
        default=None, description="of gross_j at about 95 %, sensor tolerance included"
    )
    uncertainty_parts_j: dict[str, float] = Field(
        default_factory=dict, description="what uncertainty_j is made of (added in squares)"
    )
    reason: str | None = None
    boards: dict[str, EnergyResult] = Field(
        default_factory=dict,
        description="by UUID, where this is a sum over several boards; empty for one board",
    )


class IdleRecord(Record):
    """The board's idle power in one layout, its instances created and empty."""

    schema_version: int = 1
    layout: str
    board_uuid: str
    idle_w: float | None
    reason: str | None = None
    energy: EnergyResult
    code_digest: str
    settings: dict[str, object]
    simulated: bool
    monitors: tuple[str, ...] = Field(
        default=(),
        description="other monitors of GPUs that ran on the host, 'pid name': they can raise the "
        "idle power",
    )
    measured_utc: str


def idle_power(energy: EnergyResult, foreign_processes: Sequence[str]) -> Quantity:
    """Mean power (W) of an idle window; null with the reason where the board was not idle.

    A board that somebody works on is not idle, and a mean power that cannot be is none.
    """
    if foreign_processes:
        named = ", ".join(foreign_processes)
        return Quantity.missing(f"not idle: other processes were on the board: {named}")
    if energy.mean_power_w is None or energy.reason is not None:
        return Quantity.missing(energy.reason or "no energy reading")
    return Quantity.of(energy.mean_power_w)
