"""Estimates of each slice's part of the board's energy in a run, by every rule that can be had."""

from __future__ import annotations

import re
from typing import NamedTuple

from wattslice.analysis.attribution import Attribution, Method, SliceUse, attribute
from wattslice.analysis.collect import CollectedRun
from wattslice.records.board import SliceState
from wattslice.records.run import SM_ACTIVITY, ActivityReading, RunRecord

# Rules by which energy of slices is estimated, the best that there are readings for first: size x
# activity is nearest to the measured marginal energies, and size alone needs no readings.
ATTRIBUTIONS: tuple[Method, ...] = ("slice-activity", "slice-share", "activity")


def compute_units(state: SliceState) -> tuple[int | None, str | None]:
    """Size of a slice and its unit: SMs, CPU cores, or compute slices by its profile's name."""
    if state.sm_count:
        return state.sm_count, "SM"
    if state.cores:
        return len(state.cores), "core"
    match = re.match(r"(\d+)g\b", state.profile.removeprefix("1c."))
    return (int(match[1]), "compute slice") if match else (None, None)


def activities_of(record: RunRecord) -> dict[int, ActivityReading]:
    """SM activity of each slice that was asked for one, by index."""
    return {
        reading.slice_index: reading
        for reading in record.activities
        if reading.slice_index is not None and reading.metric == SM_ACTIVITY
    }


class EnergyShares(NamedTuple):
    """Estimates of the energy above idle of each busy slice, by every rule that can be had."""

    by_rule: dict[Method, Attribution]
    reason: str | None = None  # why there is none at all
    activity_notes: tuple[str, ...] = ()

    @property
    def chosen(self) -> Attribution | None:
        """By the best rule, whose name goes with the numbers."""
        had = (self.by_rule.get(method) for method in ATTRIBUTIONS)
        return next((found for found in had if found and found.shares_j is not None), None)

    @property
    def note(self) -> str | None:
        chosen, best = self.chosen, self.by_rule.get(ATTRIBUTIONS[0])
        if chosen is None:
            return self.reason or (None if best is None else best.reason)
        fallback = []
        if best is not None and best.reason is not None:
            fallback = [f"no activity data, so by {chosen.method}: {best.reason}"]
        notes = chosen.notes if chosen.method == "slice-share" else self.activity_notes
        return "; ".join(dict.fromkeys([*fallback, *chosen.notes, *notes])) or None

    def of(self, method: Method, index: int) -> float | None:
        """Energy of a slice by a rule, J; None where the rule had no readings."""
        found = self.by_rule.get(method)
        return None if found is None or found.shares_j is None else found.shares_j.get(index)


def energy_shares(run: CollectedRun) -> EnergyShares:
    state, energy = run.record.layout_state, run.metrics.energy
    if state is None or len(state.slices) < 2:
        return EnergyShares({}, "one slice: the energy of the board is that of the run")
    if run.record.boards:
        return EnergyShares({}, "each slice is a board with a meter of its own: nothing to share")
    if energy is None or energy.gross_j is None:
        return EnergyShares({}, run.metrics.energy_reason or "no energy")
    activities = activities_of(run.record)
    busy = {worker.slice_index for worker in run.metrics.workers}
    uses = []
    for own in state.slices:
        units, _ = compute_units(own)
        if units is None:
            return EnergyShares({}, f"the size of slice {own.index} ({own.profile}) is not known")
        reading = activities.get(own.index)
        activity = None if reading is None else reading.value
        uses.append(SliceUse(own.index, float(units), own.index in busy, activity))
    idle_j = None if energy.idle_w is None else energy.idle_w * energy.window_s
    sources = sorted({f"{r.source} {r.metric}" for r in activities.values()})
    return EnergyShares(
        {
            method: attribute(
                method, energy.gross_j, idle_j, uses, activity_source=", ".join(sources) or None
            )
            for method in ATTRIBUTIONS
        },
        activity_notes=tuple(note for r in activities.values() for note in r.notes),
    )
