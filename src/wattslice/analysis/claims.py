"""Claims judged from the tables of a campaign: analysis/claims.json.

Every quantity is computed per cell as the median over blocks (one block: one repeat on one board),
then reduced over cells and put into the claim's formula. Its interval resamples whole blocks, so
all cells of a block stay together: percentile bootstrap from five blocks on, Student's t of the
formula's value per block for two to four. Only blocks in which every cell has its value count.

A comparison holds where the whole interval of its margin is on the right side, fails where it is
on the wrong side, and is open between. See docs/claims.md for the verdicts.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import pandas as pd
from pydantic import Field

from wattslice.analysis.claim_files import Aggregate, Check, Claim, read_all
from wattslice.analysis.expressions import Comparison, Expression, parse, parse_comparison
from wattslice.analysis.frames import ENERGY_FIGURES as MEASURED_ENERGY_FIGURES
from wattslice.analysis.frames import read_tables
from wattslice.analysis.mixes import mix_rows
from wattslice.analysis.ratios import cell_rows
from wattslice.analysis.selection import (
    Block,
    FloatArray,
    Selected,
    keep_common,
    reduce_cells,
    select,
)
from wattslice.analysis.statistics import (
    ENOUGH_REPEATS,
    MOST_REPEATS,
    SEED,
    repeats_needed,
    student_interval,
)
from wattslice.config.models import CampaignConfig
from wattslice.files import sha256_file, write_json
from wattslice.records.base import Record

CLAIMS_SCHEMA_VERSION = 1
RESAMPLES = 1999
ENERGY_FIGURES = (*MEASURED_ENERGY_FIGURES, "energy_ratio", "power_ratio", "saving")

Verdict = Literal[
    "reproduced",
    "partly",
    "not reproduced",
    "undecided",
    "not measurable here",
    "rehearsed only",
]
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)
State = Literal["holds", "fails", "open"]


class Number(Record):
    """A computed quantity with its interval over `n` blocks; null with the reason."""

    value: float | None
    low: float | None = None
    high: float | None = None
    n: int = 0
    cells: int = 0
    reason: str | None = None


class Judged(Record):
    """A comparison with its outcome."""

    test: str
    says: str
    state: State
    margin: Number
    more_repeats: int | None = Field(
        default=None, description="how many more decide an open one; null: none, or too many"
    )


class ClaimResult(Record):
    """A claim with its verdict and everything that the verdict rests on."""

    id: str
    source: str
    title: str
    statement: str
    runs_needed: str
    verdict: Verdict
    why: str
    basis: Literal["value and direction", "direction", "none"]
    published: float | None
    published_says: str | None
    tolerance: str | None
    expectation: str | None
    scope: str | None
    formula: str | None
    unit: str
    value: Number
    also: dict[str, Number] = Field(default_factory=dict)
    checks: tuple[Judged, ...] = ()
    more_repeats: int | None = None
    boards: tuple[str, ...] = ()
    simulated: bool = False
    modelled: bool = False
    runs: tuple[str, ...] = Field(default=(), description="run ids that the value came from")


class ClaimTable(Record):
    """analysis/claims.json."""

    schema_version: int = CLAIMS_SCHEMA_VERSION
    confidence: float
    files: dict[str, str] = Field(description="files of claims with their sha256")
    sources: dict[str, str]
    claims: tuple[ClaimResult, ...]

    def count(self) -> dict[str, int]:
        """Number of claims by verdict, in the order of VERDICTS, those with none left out."""
        found = [claim.verdict for claim in self.claims]
        return {verdict: found.count(verdict) for verdict in VERDICTS if verdict in found}


# --- numbers -------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Evaluation:
    """The named values of a claim, and expressions over them."""

    aggregates: Mapping[str, Aggregate]
    selected: dict[str, Selected]
    confidence: float
    exact: bool
    board_kinds: frozenset[str]

    def reason(self, names: Iterable[str]) -> str | None:
        """Why an expression over these names has no value."""
        missing = [self.selected[name].reason for name in sorted(names)]
        return "; ".join(dict.fromkeys(reason for reason in missing if reason)) or None

    def blocks(self, names: Iterable[str]) -> list[Block]:
        """Blocks in which every cell of all these values has its figure."""
        common: set[Block] | None = None
        for name in names:
            own = self.selected[name]
            whole = {b for b, ok in zip(own.blocks, self._whole(own), strict=True) if ok}
            common = whole if common is None else common & whole
        return sorted(common or ())

    @staticmethod
    def _whole(own: Selected) -> Any:
        return ~np.isnan(own.matrix).any(axis=0)

    def columns(self, name: str, blocks: Sequence[Block]) -> FloatArray:
        own = self.selected[name]
        position = {block: i for i, block in enumerate(own.blocks)}
        return own.matrix[:, [position[block] for block in blocks]]

    def number(
        self, expression: Expression, *, difference: bool = False
    ) -> tuple[Number, float | None]:
        """The expression with its interval, and its standard deviation over blocks.

        `difference`: it is one, so that 0 must lie within reach of its interval.
        """
        names = sorted(expression.names)
        blocks = self.blocks(names) if names else [(0, "")]
        cells = max((len(self.selected[name].cells) for name in names), default=0)
        why = self.reason(names) or (None if blocks else "no repeat has all cells")
        if why is not None:
            return Number(value=None, cells=cells, reason=why), None
        n = len(blocks)
        matrices = {name: self.columns(name, blocks) for name in names}

        def value(columns: Any) -> FloatArray:
            """Formula from medians over the last axis of the chosen columns."""
            reduced = {
                name: reduce_cells(
                    self.aggregates[name],
                    np.median(matrix[:, columns], axis=-1),
                    self.selected[name].rank,
                )
                for name, matrix in matrices.items()
            }
            return np.asarray(expression(reduced), dtype=np.float64)

        point = float(value(np.arange(n)))
        if not np.isfinite(point):
            return Number(value=None, n=n, cells=cells, reason="the formula has no value"), None
        if self.exact or n == 1:
            span = point if self.exact else None
            why = None if self.exact else "one repeat has no interval"
            number = Number(value=point, low=span, high=span, n=n, cells=cells, reason=why)
            return number, 0.0 if self.exact else None
        single = np.broadcast_to(value(np.arange(n)[:, None]), (n,))
        if n < ENOUGH_REPEATS:
            logarithms = not difference and bool((single > 0).all())
            low, high = student_interval(single, self.confidence, logarithms=logarithms)
        else:
            drawn = np.random.default_rng((SEED, n)).integers(0, n, size=(RESAMPLES, n))
            tail = (1.0 - self.confidence) / 2.0
            spread = np.broadcast_to(value(drawn), (RESAMPLES,))
            low, high = (float(q) for q in np.nanquantile(spread, [tail, 1.0 - tail]))
        # The median lies in its own interval, also where Student's centre is elsewhere.
        low, high = min(low, point), max(high, point)
        deviation = float(np.std(single, ddof=1))
        return Number(value=point, low=low, high=high, n=n, cells=cells), deviation

    def judge(self, comparison: Comparison, says: str) -> Judged:
        """Whether a comparison holds, by the interval of its margin."""
        margin, deviation = self.number(comparison.margin, difference=True)
        state: State = "open"
        if margin.low is not None and margin.high is not None:
            if margin.low > 0 or (margin.low == 0 and not comparison.strict):
                state = "holds"
            elif margin.high < 0 or (margin.high == 0 and comparison.strict):
                state = "fails"
        more = None
        if state == "open" and margin.value is not None:
            need = repeats_needed(abs(margin.value), deviation, margin.n, self.confidence)
            more = None if need is None else need - margin.n
        return Judged(
            test=comparison.text, says=says, state=state, margin=margin, more_repeats=more
        )


# --- verdicts ------------------------------------------------------------------------------------


def verdict_of(states: Sequence[State], value: State | None) -> Verdict:
    """What follows from the comparisons and, where it is judged at all, the value.

    Pure: all hold and the value agrees -> reproduced; nothing holds -> not reproduced; some hold
    -> partly; where more repeats could still change that -> undecided.
    """
    every = [*states, *([value] if value is not None else [])]
    holds, fails = "holds" in every, "fails" in every
    if holds and fails:
        return "partly"
    if "open" in every or not every:
        return "undecided"
    return "reproduced" if holds else "not reproduced"


def _published_test(claim: Claim) -> Comparison | None:
    if claim.published is None:
        return None
    wanted, half = claim.published.value, claim.published.half_width
    match claim.published.kind:
        case "about":
            return parse_comparison(f"abs({claim.formula} - {wanted!r}) <= {half!r}")
        case "at-least":
            return parse_comparison(f"({claim.formula}) >= {wanted - half!r}")
        case "at-most":
            return parse_comparison(f"({claim.formula}) <= {wanted + half!r}")


def judge_claim(
    claim: Claim, tables: Mapping[str, Sequence[Mapping[str, Any]]], confidence: float
) -> ClaimResult:
    """The verdict of one claim. `tables` are rows by name: cells, mixes, slices."""
    base: dict[str, Any] = {
        "id": claim.id,
        "source": claim.source,
        "title": claim.title,
        "statement": claim.statement,
        "runs_needed": claim.runs,
        "published": claim.published.value if claim.published else None,
        "published_says": claim.published.says if claim.published else None,
        "tolerance": _tolerance(claim),
        "expectation": claim.expectation,
        "scope": claim.scope,
        "formula": claim.formula,
        "unit": claim.unit,
    }
    selected = {name: select(own, tables[own.table]) for name, own in claim.values.items()}
    if claim.common is not None:
        keep_common(
            {name: selected[name] for name in claim.common.values},
            claim.values,
            claim.common.columns,
        )
    evaluation = _Evaluation(
        claim.values,
        selected,
        confidence,
        claim.exact,
        frozenset(str(row["board_kind"]) for row in tables["cells"] if row["board_kind"]),
    )
    value, _ = evaluation.number(claim.expression)
    names = set(claim.expression.names).union(
        *(check.comparison.margin.names for check in claim.checks)
    )
    blocks = set(evaluation.blocks(claim.expression.names))
    rows = [row for name in names for row in evaluation.selected[name].rows]
    energy = any(claim.values[name].figure in ENERGY_FIGURES for name in names)
    boards = tuple(sorted({str(row["board"]) for row in rows if row.get("board")}))
    base |= {
        "value": value,
        "also": {
            name: evaluation.number(expression)[0]
            for name, text in claim.also.items()
            for expression in (parse(text),)
        },
        "boards": boards,
        "simulated": any(bool(row["simulated"]) for row in rows),
        "modelled": energy and any(bool(row["modelled"]) for row in rows),
        "runs": tuple(
            sorted(
                {
                    run
                    for name in claim.expression.names
                    for block, runs in evaluation.selected[name].runs.items()
                    if block in blocks
                    for run in runs
                }
            )
        ),
    }
    return _decide(claim, evaluation, base, names)


def _decide(
    claim: Claim, evaluation: _Evaluation, base: dict[str, Any], names: Iterable[str]
) -> ClaimResult:
    def result(verdict: Verdict, why: str, **more: Any) -> ClaimResult:
        fields = {"basis": "none"} | base | {"verdict": verdict, "why": why} | more
        return ClaimResult.model_validate(fields)

    why = _not_measurable(claim, evaluation, base["value"], names)
    if why is not None:
        return result("not measurable here", why)
    checks = tuple(evaluation.judge(check.comparison, check.says) for check in claim.checks)
    missing = [check.margin.reason for check in checks if check.margin.value is None]
    if missing:
        return result("not measurable here", str(missing[0]), checks=checks)
    judged, on_value, basis = _value_state(claim, evaluation, base["boards"])
    shown = checks if judged is None else (*checks, judged)
    verdict = verdict_of([check.state for check in checks], on_value)
    more = [check.more_repeats for check in shown if check.state == "open"]
    needed = None if verdict != "undecided" or None in more else max(map(int, filter(None, more)))
    if base["simulated"] or base["modelled"]:
        label = "the board is simulated" if base["simulated"] else "the energy is modelled"
        text = f"{label}: the value shows that the pipeline computes it, not what hardware does"
        return result("rehearsed only", text, checks=shown, basis=basis)
    text = "; ".join(f"{check.says}: {_WORDS[check.state]}" for check in shown)
    if verdict == "undecided":
        text += "; " + (
            f"more than {MOST_REPEATS} repeats would be needed, the margin is too small"
            if needed is None
            else f"needs {needed} more repeat{'' if needed == 1 else 's'}"
        )
    if claim.published is not None and judged is None:
        text += (
            "; the published number is of other hardware, so order and direction are judged alone"
        )
    return result(verdict, text, checks=shown, basis=basis, more_repeats=needed)


def _not_measurable(
    claim: Claim, evaluation: _Evaluation, value: Number, names: Iterable[str]
) -> str | None:
    """Why a claim cannot be judged from these runs; None where it can."""
    other = sorted(evaluation.board_kinds - set(claim.boards))
    if other:
        return (
            f"the claim is about {' or '.join(claim.boards)} boards; these runs are of a "
            f"{' and a '.join(other)} board"
        )
    why = evaluation.reason(names) or (value.reason if value.value is None else None)
    if why is not None:
        return why
    for requirement in claim.requires:
        if evaluation.judge(requirement.comparison, "").state == "fails":
            return requirement.says
    return None


_WORDS: dict[State, str] = {"holds": "yes", "fails": "no", "open": "not decided"}


def _value_state(
    claim: Claim, evaluation: _Evaluation, boards: Sequence[str]
) -> tuple[Judged | None, State | None, str]:
    """The published number judged, where it is to be found again on these boards."""
    test = _published_test(claim)
    if test is None or claim.published is None:
        return None, None, "direction"
    if not all(
        any(fnmatch.fnmatchcase(board, pattern) for pattern in claim.published.boards)
        for board in boards
    ):
        return None, None, "direction"
    says = f"the value agrees with the published one ({claim.published.says})"
    judged = evaluation.judge(test, says)
    return judged, judged.state, "value and direction"


def _tolerance(claim: Claim) -> str | None:
    if claim.published is None:
        return None
    tolerance = claim.published.tolerance
    size = (
        f"±{100 * tolerance.relative:g} %"
        if tolerance.relative is not None
        else f"±{tolerance.absolute:g}"
    )
    return f"{size}: {tolerance.reason}"


# --- tables in, claims.json out ------------------------------------------------------------------


def claim_tables(frames: Mapping[str, pd.DataFrame]) -> dict[str, list[dict[str, Any]]]:
    """The rows that claims may use, from the tables of a campaign."""
    cells = cell_rows(frames["cells"])
    return {"cells": cells, "mixes": mix_rows(cells), "slices": cell_rows(frames["slices"])}


def judge_all(
    claims: Iterable[Claim], frames: Mapping[str, pd.DataFrame], confidence: float
) -> tuple[ClaimResult, ...]:
    """Every claim judged, in its file's order."""
    tables = claim_tables(frames)
    return tuple(judge_claim(claim, tables, confidence) for claim in claims)


def read_claim_table(analysis_dir: Path) -> ClaimTable:
    """Read analysis/claims.json."""
    return ClaimTable.model_validate_json((analysis_dir / "claims.json").read_bytes())


def write_claims(
    tables_dir: Path, config: CampaignConfig, files: Mapping[str, Path], out: Path
) -> ClaimTable:
    """Write analysis/claims.json: the claims of `files` (by the name to show) judged."""
    sources, claims = read_all(files.values())
    confidence = config.report.confidence
    table = ClaimTable(
        confidence=confidence,
        files={name: sha256_file(path) for name, path in files.items()},
        sources=sources,
        claims=judge_all(claims, read_tables(tables_dir), confidence),
    )
    write_json(out, table.model_dump(mode="json"))
    return table


__all__ = [
    "VERDICTS",
    "Check",
    "ClaimResult",
    "ClaimTable",
    "claim_tables",
    "judge_all",
    "judge_claim",
    "read_claim_table",
    "verdict_of",
    "write_claims",
]
