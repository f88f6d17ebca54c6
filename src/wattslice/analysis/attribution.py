"""Estimates of how much of a board's energy belongs to each slice.

NVML gives no energy per MIG instance, so nothing here is a measurement of a slice. What is
measured is the board; its energy above idle is shared out, and the shares and the idle energy add
up to the board again. Idle energy stays with the board: it is there whoever works.

    slice-share       active x n_i / Σ n_j              n = compute slices (or SMs) of busy slices
    activity          active x a_i / Σ a_j              Kepler's rule; a = activity 0..1
    slice-activity    active x n_i a_i / Σ n_j a_j      CEEMS' idea without its occupancy factor
    shapley           mean marginal contribution over all orders in which the slices could start

`shapley` needs the board's energy with each subset of the slices busy (2^k windows), is exact for
these, and serves as the reference that the cheap rules are scored against.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from pydantic import Field

from wattslice.records.base import Record

Method = Literal["slice-share", "activity", "slice-activity", "shapley"]
METHODS: tuple[Method, ...] = ("slice-share", "activity", "slice-activity", "shapley")
# Σ shares + idle = board to this relative precision: the arithmetic of doubles.
CONSERVATION_LIMIT = 1e-9
# Shapley values of k slices need 2^k measured windows; more slices cannot be measured on a bench.
MAX_SHAPLEY_SLICES = 7


@dataclass(frozen=True, slots=True)
class SliceUse:
    """How a slice was used in a window."""

    index: int
    weight: float  # compute slices or SMs (one unit for all slices of a board)
    busy: bool = True  # False: the slice is there and has no worker
    activity: float | None = None  # mean over the window, 0..1; None: no such reading


class Attribution(Record):
    """Shares of one board's energy over one window. They are estimates, by `method`."""

    method: Method
    estimate: Literal[True] = True
    board_j: float
    idle_j: float | None = Field(description="kept by the board; null: idle power is not known")
    shares_j: dict[int, float] | None = Field(description="by slice index; null with a reason")
    activity_source: str | None = None
    notes: tuple[str, ...] = ()
    reason: str | None = None

    @property
    def conservation_error(self) -> float | None:
        """|Σ shares + idle - board| / board; None where there are no shares."""
        if self.shares_j is None:
            return None
        total = math.fsum([*self.shares_j.values(), self.idle_j or 0.0])
        return abs(total - self.board_j) / self.board_j if self.board_j else abs(total)


class AttributionError(Record):
    """How far a cheap rule is from the Shapley shares of the same window."""

    method: Method
    error_j: dict[int, float] = Field(description="estimate - reference, by slice index")
    relative_error: dict[int, float] = Field(description="error / reference, where that is not 0")
    max_relative_error: float | None
    misplaced_share: float | None = Field(
        description="energy given to the wrong slice / energy shared out, 0..1"
    )


def attribute(
    method: Method,
    board_j: float,
    idle_j: float | None,
    slices: Sequence[SliceUse],
    *,
    activity_source: str | None = None,
) -> Attribution:
    """Share out a board's energy by one of the cheap rules.

    Without `idle_j` all of the board's energy is shared out, and a note says so. A rule that
    needs activities refuses with the reason where a busy slice has none; it never falls back to
    another rule on its own, as the result would then bear the wrong name.
    """
    if method == "shapley":
        raise ValueError("shapley needs measured subsets: call shapley()")
    base = {
        "method": method,
        "board_j": board_j,
        "idle_j": idle_j,
        "activity_source": None if method == "slice-share" else activity_source,
    }

    def refuse(reason: str) -> Attribution:
        return Attribution.model_validate(base | {"shares_j": None, "reason": reason})

    fault = _fault(board_j, idle_j, slices)
    if fault is not None:
        return refuse(fault)
    notes: list[str] = []
    if idle_j is None:
        notes.append("idle power is not known: the board's whole energy is shared out")
    busy = [use for use in slices if use.busy]
    weights: dict[int, float] = {}
    for use in busy:
        activity = 1.0
        if method != "slice-share":
            if use.activity is None:
                return refuse(f"no activity reading of slice {use.index}; slice-share needs none")
            activity = min(max(use.activity, 0.0), 1.0)
            if activity != use.activity:
                # Seen with DCGM, which sometimes scales an instance by the wrong size.
                notes.append(f"activity of slice {use.index}, {use.activity:.3g}, cut to 0..1")
        weights[use.index] = activity if method == "activity" else use.weight * activity
    total = math.fsum(weights.values())
    if total <= 0:
        return refuse("no slice was active")
    active_j = board_j - (idle_j or 0.0)
    shares = {use.index: 0.0 for use in slices}
    shares |= {index: active_j * weight / total for index, weight in weights.items()}
    return Attribution.model_validate(base | {"shares_j": shares, "notes": tuple(notes)})


def _fault(board_j: float, idle_j: float | None, slices: Sequence[SliceUse]) -> str | None:
    if not (math.isfinite(board_j) and board_j >= 0):
        return f"the board's energy, {board_j} J, is not a number of at least 0"
    if idle_j is not None and not 0 <= idle_j <= board_j:
        return f"the idle energy, {idle_j:.6g} J, is not within 0 and the board's {board_j:.6g} J"
    if not any(use.busy for use in slices):
        return "no slice was busy"
    if any(not use.weight > 0 for use in slices if use.busy):
        return "a busy slice has no size"
    return None


def shapley(subset_j: Mapping[frozenset[int], float]) -> Attribution:
    """Exact Shapley shares from the board's energy with each subset of slices busy.

    `subset_j` maps the set of busy slices to the energy of a window of one length; the empty set
    is idle. Shares may be negative where a slice saves energy for the others (it then says so).
    """
    slices = sorted(frozenset().union(*subset_j)) if subset_j else []
    board_j = subset_j.get(frozenset(slices), math.nan)
    idle_j = subset_j.get(frozenset())
    missing = [
        "{" + ", ".join(map(str, subset)) + "}"
        for size in range(len(slices) + 1)
        for subset in itertools.combinations(slices, size)
        if frozenset(subset) not in subset_j
    ]
    reason = None
    if not slices:
        reason = "no subset with a busy slice was measured"
    elif len(slices) > MAX_SHAPLEY_SLICES:
        reason = f"{len(slices)} slices would need {2 ** len(slices)} measured subsets"
    elif missing:
        reason = f"subsets not measured: {', '.join(missing)}"
    elif not all(math.isfinite(value) and value >= 0 for value in subset_j.values()):
        reason = "a subset's energy is not a number of at least 0"
    if reason is not None:
        known = board_j if math.isfinite(board_j) else 0.0
        return Attribution(
            method="shapley", board_j=known, idle_j=idle_j, shares_j=None, reason=reason
        )
    count = len(slices)
    shares: dict[int, float] = {}
    for index in slices:
        others = [other for other in slices if other != index]
        terms = []
        for size in range(count):
            # Share of all orders in which exactly these slices start before this one.
            weight = math.factorial(size) * math.factorial(count - size - 1) / math.factorial(count)
            for before in itertools.combinations(others, size):
                with_it = subset_j[frozenset((*before, index))]
                terms.append(weight * (with_it - subset_j[frozenset(before)]))
        shares[index] = math.fsum(terms)
    negative = [str(index) for index, share in shares.items() if share < 0]
    notes = (f"slices {', '.join(negative)} saved energy for the others",) if negative else ()
    return Attribution(
        method="shapley", board_j=board_j, idle_j=idle_j, shares_j=shares, notes=notes
    )


def errors_against(
    reference: Attribution, estimates: Iterable[Attribution]
) -> tuple[AttributionError, ...]:
    """Errors of cheap rules against Shapley shares of the same slices; refusals are left out.

    Raises ValueError where the slices or the energies are not those of the reference.
    """
    if reference.shares_j is None:
        raise ValueError(f"the reference has no shares: {reference.reason}")
    found = []
    for estimate in estimates:
        if estimate.shares_j is None:
            continue
        if set(estimate.shares_j) != set(reference.shares_j):
            raise ValueError(
                f"{estimate.method} is of slices {sorted(estimate.shares_j)}, "
                f"the reference of {sorted(reference.shares_j)}"
            )
        if not math.isclose(estimate.board_j, reference.board_j, rel_tol=1e-6):
            raise ValueError(
                f"{estimate.method} shares out {estimate.board_j:.6g} J, "
                f"the reference {reference.board_j:.6g} J: not the same window"
            )
        error = {i: estimate.shares_j[i] - share for i, share in reference.shares_j.items()}
        relative = {i: error[i] / share for i, share in reference.shares_j.items() if share}
        shared = math.fsum(abs(share) for share in reference.shares_j.values())
        found.append(
            AttributionError(
                method=estimate.method,
                error_j=error,
                relative_error=relative,
                max_relative_error=max(map(abs, relative.values()), default=None),
                misplaced_share=math.fsum(map(abs, error.values())) / 2 / shared
                if shared
                else None,
            )
        )
    return tuple(found)
