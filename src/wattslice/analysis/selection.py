"""From rows of a table to a value per cell and block, as claims need them.

A block is one repeat on one board (or set of boards): what was run side by side. Ratios may be set
beside those of other boards (`across_boards`); then a block is one repeat on any. A matrix has a
row per cell and a column per block, NaN where a cell has no figure in a block.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.stats

from wattslice.analysis.claim_files import Aggregate, Condition, Not, Range

FloatArray = npt.NDArray[np.float64]
Row = Mapping[str, Any]
Block = tuple[int, str]
Key = tuple[Any, ...]


@dataclass(slots=True)
class Selected:
    """The figure of the chosen cells, by block."""

    cells: list[Key]
    blocks: list[Block]
    matrix: FloatArray  # cells x blocks
    rank: FloatArray  # the column that `spearman` ranks against, by cell
    runs: dict[Block, set[str]]
    rows: list[Row] = field(default_factory=list)
    reason: str | None = None


def matches(value: Any, condition: Condition) -> bool:
    """Whether a value of a row satisfies a condition; a missing value satisfies none."""
    if value is None:
        return False
    match condition:
        case Range(min=low, max=high):
            is_number = isinstance(value, int | float)
            result = is_number and not (
                (low is not None and value < low) or (high is not None and value > high)
            )
        case Not(not_=one):
            result = not matches(value, one)
        case tuple():
            result = any(matches(value, one) for one in condition)
        case str():
            result = fnmatch.fnmatchcase(str(value), condition)
        case _:
            result = bool(value == condition)
    return result


def say(conditions: Mapping[str, Condition]) -> str:
    """Conditions in words, e.g. `layout full, parameters 1e+09 to 1.2e+09`."""

    def one(condition: Condition) -> str:
        if isinstance(condition, Range):
            low = "" if condition.min is None else f"{condition.min:.4g}"
            high = "" if condition.max is None else f"{condition.max:.4g}"
            if low and high:
                return f"{low} to {high}"
            return f"of {low} or more" if low else f"of {high} or less"
        if isinstance(condition, Not):
            return f"other than {one(condition.not_)}"
        if isinstance(condition, float):
            return f"{condition:g}"
        if isinstance(condition, tuple):
            shown = [str(entry) for entry in condition]
            return " or ".join(shown[:4]) + (" or …" if len(shown) > 4 else "")
        return str(condition)

    return ", ".join(f"{name} {one(condition)}" for name, condition in conditions.items())


class _NothingError(Exception):
    """Why a named value has no cell, and the rows that were looked at."""

    def __init__(self, reason: str, rows: Sequence[Row] = ()) -> None:
        super().__init__(reason)
        self.rows = list(rows)


def select(aggregate: Aggregate, rows: Sequence[Row]) -> Selected:
    """The matrix of a named value; where it is empty, `reason` says why.

    Raises ValueError for a column that the table does not have.
    """
    _check_columns(aggregate, rows)
    try:
        return _select(aggregate, rows)
    except _NothingError as why:
        nothing = np.empty((0, 0))
        return Selected([], [], nothing, np.empty(0), {}, why.rows, str(why))


def _check_columns(aggregate: Aggregate, rows: Sequence[Row]) -> None:
    if not rows:
        return
    known = rows[0].keys()
    used = {aggregate.figure, *aggregate.identity, *aggregate.where, *(aggregate.over or {})}
    used |= {*aggregate.having, *([aggregate.against] if aggregate.against else [])}
    unknown = sorted(used - known)
    if unknown:
        raise ValueError(
            f"the table {aggregate.table} has no column {', '.join(unknown)}; it has "
            + ", ".join(sorted(str(name) for name in known))
        )


def _select(aggregate: Aggregate, rows: Sequence[Row]) -> Selected:
    if not rows:
        raise _NothingError(
            "no run has several busy slices and a base to compare with"
            if aggregate.table == "mixes"
            else "the campaign has no runs"
        )
    tops, top = _side(aggregate, rows, aggregate.where, aggregate.identity)
    used = list(tops)
    if aggregate.over is None:
        values = {key: {b: _middle(v) for b, v in by.items()} for key, by in top.items()}
    else:
        match = _match(aggregate)
        conditions = {**aggregate.where, **aggregate.over}
        bottoms, bottom = _side(aggregate, rows, conditions, match)
        used += bottoms
        values = _ratios(top, bottom, [aggregate.identity.index(name) for name in match])
        if not values:
            raise _NothingError("no repeat has both sides of the ratio", used)
    values = _having(values, tops, aggregate)
    if aggregate.across_boards:
        values = {key: _on_any_board(by) for key, by in values.items()}
    if len(values) < aggregate.min_cells:
        raise _NothingError(
            f"{len(values)} of the {aggregate.min_cells} cells needed of "
            f"{say(aggregate.where) or aggregate.table}",
            used,
        )
    if aggregate.reduce == "only" and len(values) > 1:
        raise _NothingError(f"{len(values)} cells where one is meant; give `reduce`", used)
    runs: dict[Block, set[str]] = {}
    for row in used:
        names = {str(row["run_id"]), *map(str, row.get("base_runs") or ())}
        block = _block(row)
        runs.setdefault(_any_board(block) if aggregate.across_boards else block, set()).update(
            names
        )
    return _matrix(values, tops, aggregate, runs, used)


_Cells = dict[Key, dict[Block, list[float]]]


def _side(
    aggregate: Aggregate,
    rows: Sequence[Row],
    conditions: Mapping[str, Condition],
    identity: Sequence[str],
) -> tuple[list[Row], _Cells]:
    """The rows that satisfy the conditions, and their figure by cell and block."""
    chosen = [
        row
        for row in rows
        if all(matches(row[name], condition) for name, condition in conditions.items())
    ]
    if not chosen:
        raise _NothingError(f"no run with {say(conditions)}")
    cells = _by_cell(chosen, identity, aggregate.figure)
    if not cells:
        raise _NothingError(_why(chosen, aggregate.figure), chosen)
    return chosen, cells


def _ratios(top: _Cells, bottom: _Cells, positions: Sequence[int]) -> dict[Key, dict[Block, float]]:
    values = {}
    for key, by in top.items():
        other = bottom.get(tuple(key[i] for i in positions), {})
        below = {block: _middle(value) for block, value in other.items()}
        shared = {b: _middle(by[b]) / below[b] for b in by if below.get(b)}
        if shared:
            values[key] = shared
    return values


def _block(row: Row) -> Block:
    return int(row["repeat"]), str(row["board_uuid"] or "")


def _any_board(block: Block) -> Block:
    return block[0], ""


def _on_any_board(by: Mapping[Block, float]) -> dict[Block, float]:
    """By repeat; the median where several boards have made it."""
    found: dict[Block, list[float]] = {}
    for block, value in by.items():
        found.setdefault(_any_board(block), []).append(value)
    return {block: _middle(values) for block, values in found.items()}


def _by_cell(
    rows: Sequence[Row], identity: Sequence[str], figure: str
) -> dict[Key, dict[Block, list[float]]]:
    cells: dict[Key, dict[Block, list[float]]] = {}
    for row in rows:
        value = row[figure]
        if value is not None:
            key = tuple(row[name] for name in identity)
            cells.setdefault(key, {}).setdefault(_block(row), []).append(float(value))
    return cells


def _middle(values: Sequence[float]) -> float:
    return float(np.median(values))


def _match(aggregate: Aggregate) -> tuple[str, ...]:
    """Columns in which both sides of a ratio agree: those of a cell that `over` does not change.

    Another model is another workload, and another kind of placement another group.
    """
    changed = set(aggregate.over or {})
    if changed & {"model", "task", "parameters", "layers", "framework"}:
        changed.add("workload")
    if changed & {"kind", "placement"}:
        changed.add("group")
    return tuple(name for name in aggregate.identity if name not in changed)


def _why(rows: Sequence[Row], figure: str) -> str:
    reasons = sorted({str(row[f"{figure}_reason"]) for row in rows if row.get(f"{figure}_reason")})
    shown = "; ".join(reasons[:2]) + (" …" if len(reasons) > 2 else "")
    return shown or f"no run has {figure}"


def _having(
    values: dict[Key, dict[Block, float]], rows: Sequence[Row], aggregate: Aggregate
) -> dict[Key, dict[Block, float]]:
    for name, limits in aggregate.having.items():
        cells = _by_cell(rows, aggregate.identity, name)
        kept = {
            key
            for key, by in cells.items()
            if matches(_middle([_middle(v) for v in by.values()]), limits)
        }
        values = {key: by for key, by in values.items() if key in kept}
    return values


def _matrix(
    values: dict[Key, dict[Block, float]],
    rows: Sequence[Row],
    aggregate: Aggregate,
    runs: dict[Block, set[str]],
    used: list[Row],
) -> Selected:
    cells = sorted(values, key=repr)
    blocks = sorted({block for by in values.values() for block in by})
    matrix = np.full((len(cells), len(blocks)), np.nan)
    column = {block: i for i, block in enumerate(blocks)}
    for i, key in enumerate(cells):
        for block, value in values[key].items():
            matrix[i, column[block]] = value
    rank = np.zeros(len(cells))
    if aggregate.against is not None:
        partners = _by_cell(rows, aggregate.identity, aggregate.against)
        rank = np.array(
            [
                _middle([_middle(v) for v in partners[key].values()]) if key in partners else np.nan
                for key in cells
            ]
        )
        if np.isnan(rank).any():
            raise _NothingError(f"a cell has no {aggregate.against}", used)
    return Selected(cells, blocks, matrix, rank, runs, used)


def keep_common(
    selected: Mapping[str, Selected], aggregates: Mapping[str, Aggregate], columns: Sequence[str]
) -> None:
    """Leave in each matrix only the cells whose `columns` occur in all of them."""

    def members(name: str) -> list[Key]:
        positions = [aggregates[name].identity.index(column) for column in columns]
        return [tuple(cell[i] for i in positions) for cell in selected[name].cells]

    shared = set.intersection(*(set(members(name)) for name in selected))
    for name, own in selected.items():
        if own.reason is not None:
            continue
        keep = [i for i, member in enumerate(members(name)) if member in shared]
        own.cells = [own.cells[i] for i in keep]
        own.matrix, own.rank = own.matrix[keep], own.rank[keep]
        if not keep:
            own.reason = f"no {' and '.join(columns)} has both sides"


def reduce_cells(aggregate: Aggregate, cells: FloatArray, rank: FloatArray) -> FloatArray:
    """Reduce over axis 0 (the cells); the other axes stay."""
    with np.errstate(all="ignore"):
        match aggregate.reduce:
            case "max":
                result = cells.max(axis=0)
            case "min":
                result = cells.min(axis=0)
            case "mean" | "only":
                result = cells.mean(axis=0)
            case "geomean":
                result = np.exp(np.log(cells).mean(axis=0))
            case "median":
                result = np.median(cells, axis=0)
            case "spread":
                result = cells.max(axis=0) / cells.min(axis=0)
            case "count":
                result = np.full(cells.shape[1:], float(cells.shape[0]))
            case "spearman":
                result = _spearman(cells, rank)
    return np.asarray(result, dtype=np.float64)


def _spearman(cells: FloatArray, rank: FloatArray) -> FloatArray:
    """Spearman's rank correlation of each column with `rank`, ties with their mean rank."""
    ours = scipy.stats.rankdata(cells, axis=0)
    theirs = scipy.stats.rankdata(rank)
    ours = ours - ours.mean(axis=0)
    theirs = (theirs - theirs.mean()).reshape((-1,) + (1,) * (cells.ndim - 1))
    scale = np.sqrt((ours**2).sum(axis=0) * (theirs**2).sum(axis=0))
    product = np.asarray((ours * theirs).sum(axis=0))
    return np.where(scale > 0, product / np.where(scale > 0, scale, 1.0), 0.0)
