"""Energy of several boards over one window: a sum in which each board counts once."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from wattslice.records.energy import EnergyResult, IdleRecord

_SUMS = ("gross_j", "net_j", "idle_w", "counter_j", "integral_j", "mean_power_w", "uncertainty_j")
_WORST: dict[str, Callable[[list[float]], float]] = {
    "period_median_s": max,
    "period_max_gap_s": max,
    "coverage": min,
    "temperature_max_c": max,
    "temperature_drift_c": lambda drifts: max(drifts, key=abs),
}


def sum_of_boards(boards: Mapping[str, EnergyResult], wanted: Iterable[str]) -> EnergyResult:
    """The energy of the boards `wanted` (UUIDs; one that is named twice counts once).

    Energies, powers and uncertainties are added; sensors of one kind may err alike, so the
    uncertainties are not added in squares. A figure that one board lacks is null in the sum, and
    `reason` names the boards without energy. The boards' own results are kept in `boards`.
    One board alone is its own sum. Raises ValueError without any board.
    """
    uuids = list(dict.fromkeys(wanted))
    own = {uuid: boards[uuid] for uuid in uuids if uuid in boards}
    parts = list(own.values())
    if not parts:
        raise ValueError("there is no board to sum the energy of")
    if len(uuids) == 1:
        return parts[0]
    without = [f"board {uuid} has no meter" for uuid in uuids if uuid not in boards]
    without += [
        f"board {uuid}: {part.reason or 'no energy'}"
        for uuid, part in own.items()
        if part.gross_j is None
    ]
    whole = len(parts) == len(uuids)

    def over(name: str, how: Callable[[list[float]], float]) -> float | None:
        values = [getattr(part, name) for part in parts]
        return how(values) if whole and None not in values else None

    fields: dict[str, Any] = {name: over(name, math.fsum) for name in _SUMS}
    fields |= {name: over(name, how) for name, how in _WORST.items()}
    counter, integral = fields["counter_j"], fields["integral_j"]
    return EnergyResult(
        **fields,
        scope=parts[0].scope if len({part.scope for part in parts}) == 1 else None,
        method=" + ".join(dict.fromkeys(part.method for part in parts if part.method)) or None,
        modelled=any(part.modelled for part in parts),
        simulated=any(part.simulated for part in parts),
        window_s=parts[0].window_s,
        idle_source="; ".join(dict.fromkeys(p.idle_source for p in parts if p.idle_source)) or None,
        disagreement=abs(integral - counter) / counter if counter and integral else None,
        samples=sum(part.samples for part in parts),
        errors=sum(part.errors for part in parts),
        flags=tuple(dict.fromkeys(flag for part in parts for flag in part.flags)),
        notes=tuple(dict.fromkeys(note for part in parts for note in part.notes)),
        event_shares={
            name: max(part.event_shares.get(name, 0.0) for part in parts)
            for name in dict.fromkeys(name for part in parts for name in part.event_shares)
        },
        uncertainty_parts_j={
            name: math.fsum(part.uncertainty_parts_j.get(name, 0.0) for part in parts)
            for name in dict.fromkeys(n for part in parts for n in part.uncertainty_parts_j)
        },
        reason="; ".join(without) or None,
        boards=own,
    )


def idle_of_board(idle: IdleRecord | None, uuid: str) -> IdleRecord | None:
    """One board's part of the idle record of several."""
    if idle is None:
        return None
    own = idle.energy.boards.get(uuid)
    if own is None or idle.idle_w is None:
        reason = idle.reason or f"no idle power of board {uuid} was measured"
        return idle.model_copy(update={"board_uuid": uuid, "idle_w": None, "reason": reason})
    return idle.model_copy(
        update={"board_uuid": uuid, "idle_w": own.mean_power_w, "reason": own.reason, "energy": own}
    )
