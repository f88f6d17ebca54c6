"""Rows of the table `summary`: medians over repeats, or means over boards, with intervals."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from wattslice.analysis.boards import estimate_over_boards
from wattslice.analysis.frames import FIGURE_UNITS, KEY


def summary_rows(cells: Sequence[Mapping[str, Any]], confidence: float) -> list[dict[str, Any]]:
    groups: dict[tuple[str, ...], list[Mapping[str, Any]]] = {}
    for cell in cells:
        groups.setdefault(tuple(cell[key] for key in KEY), []).append(cell)
    rows = []
    for key, members in sorted(groups.items()):
        row: dict[str, Any] = dict(zip(KEY, key, strict=True))
        first = members[0]
        counts = Counter(member["status"] for member in members)
        measured = [m for m in members if m["throughput_samples_s"] is not None]
        row |= {
            "kind": first["kind"],
            "framework": first["framework"],
            "model": first["model"],
            "task": first["task"],
            "mode": first["mode"],
            "runs": len(members),
            "n": len(measured),
            "outcomes": ";".join(f"{name}={counts[name]}" for name in sorted(counts)),
            "simulated": any(m["simulated"] for m in members),
            "modelled": any(m["modelled"] for m in members),
            "energy_scope": _joined(m["energy_scope"] for m in members),
            "energy_method": _joined(m["energy_method"] for m in members),
            "peak_memory_source": _joined(m["peak_memory_source"] for m in members),
        }
        for figure in FIGURE_UNITS:
            row |= _summary_figure(figure, members, confidence)
        rows.append(row)
    return rows


def _summary_figure(
    figure: str, members: Sequence[Mapping[str, Any]], confidence: float
) -> dict[str, Any]:
    values = [
        (str(member["board_uuid"] or ""), member[figure])
        for member in members
        if member[figure] is not None
    ]
    result = estimate_over_boards(values, confidence)
    reason = None
    if not values:
        reasons = sorted({str(m[f"{figure}_reason"]) for m in members if m[f"{figure}_reason"]})
        reason = "; ".join(reasons) or result.reason
    return {
        figure: result.value,
        f"{figure}_low": result.low,
        f"{figure}_high": result.high,
        f"{figure}_n": result.n,
        f"{figure}_reason": reason,
        f"{figure}_note": (result.reason if values else None) or result.note,
    }


def _joined(values: Iterable[str | None]) -> str | None:
    return ",".join(sorted({value for value in values if value is not None})) or None
