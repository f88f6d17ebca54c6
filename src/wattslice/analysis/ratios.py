"""Ratios that answer the campaign's questions, paired by block: precision, partition, workload.

A block is one repeat on one board. Every ratio is the median over blocks of
numerator / denominator, with the bootstrap interval over blocks; where there are several boards,
they are a random effect (`wattslice.analysis.boards`). What rests on modelled or
simulated numbers says so in every record.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from itertools import permutations
from pathlib import Path
from typing import Any

import pandas as pd

from wattslice.analysis.boards import estimate_over_boards
from wattslice.analysis.frames import read_tables
from wattslice.analysis.mixes import mix_rows, shared_rows
from wattslice.analysis.statistics import (
    Estimate,
    arithmetic_mean,
    geometric_mean,
    paired_ratios,
)
from wattslice.config.models import CampaignConfig
from wattslice.files import write_json
from wattslice.records.base import Record

RATIOS_SCHEMA_VERSION = 1
# In this order: the first of a pair that a campaign has is the base of the ratio.
BASELINES = ("fp32", "fp32-default")
PRECISIONS = ("fp32", "fp32-default", "tf32", "bf16", "fp16", "fp8")

KINDS: dict[str, str] = {
    "precision_speedup": "throughput of a precision over that of the base precision",
    "precision_energy_gain": "samples per joule of a precision over those of the base precision",
    "precision_memory": "peak memory of a precision over that of the base precision",
    "precision_speedup_geomean": "geometric mean of the speed-ups of all workloads, by block",
    "precision_speedup_mean": "arithmetic mean of the speed-ups of all workloads, by block",
    "partition_throughput": "all slices filled, together, over the board as one",
    "partition_energy_per_sample": "board energy per sample, all slices filled over board as one",
    "mix_progress": "work per time of jobs at once over that of the same jobs on the baseline",
    "mix_energy": "board energy of jobs at once over that of the same work on the baseline",
    "workload_time": "time per sample of one workload over that of another on the same slice",
    "workload_memory": "peak memory of one workload over that of another on the same slice",
}
ENERGY_KINDS = frozenset({"precision_energy_gain", "partition_energy_per_sample", "mix_energy"})
# By figure of `mix_rows`: the kind for a mix, and that for one workload on every slice.
_MIX_KINDS = {
    "progress": ("mix_progress", "partition_throughput"),
    "energy_ratio": ("mix_energy", "partition_energy_per_sample"),
}


class Pair(Record):
    """One block of a ratio, with the runs that it came from."""

    block: str
    numerator_run: str
    denominator_run: str
    value: float


class Ratio(Record):
    """A ratio of two figures. `value` is null with the `reason` where no block has both."""

    name: str
    kind: str
    figure: str
    workload: str | None
    layout: str
    placement: str
    precision: str
    numerator: str
    denominator: str
    value: float | None
    ci_low: float | None
    ci_high: float | None
    n_pairs: int
    unit: str = "1"
    modelled: bool
    simulated: bool
    energy_scope: str | None = None
    reason: str | None = None
    note: str | None = None
    pairs: tuple[Pair, ...] = ()


class RatioTable(Record):
    """analysis/ratios.json."""

    schema_version: int = RATIOS_SCHEMA_VERSION
    confidence: float
    kinds: dict[str, str]
    ratios: tuple[Ratio, ...]


Cell = dict[str, Any]
Rows = Sequence[Cell]


def cell_rows(cells: pd.DataFrame) -> list[Cell]:
    """The rows of the table `cells` with None for what is missing; `group` is the placement
    without its workload, so that workloads can be compared."""
    rows = []
    for record in cells.to_dict("records"):
        row = {str(key): None if value is pd.NA else value for key, value in record.items()}
        row["group"] = str(row["placement"]).removeprefix(f"{row['workload']}.")
        rows.append(row)
    return rows


def _side(rows: Rows, figure: str, *, inverse: bool = False) -> dict[Hashable, tuple[float, str]]:
    """Block -> (value, run id) of the rows that have the figure."""
    side: dict[Hashable, tuple[float, str]] = {}
    for row in rows:
        value = row[figure]
        if value is None or not value > 0:
            continue
        block = (int(row["repeat"]), str(row["board_uuid"] or ""))
        side[block] = (1.0 / float(value) if inverse else float(value), str(row["run_id"]))
    return side


def _reason(rows: Rows, figure: str, who: str) -> str | None:
    if not rows:
        return f"{who}: no run"
    if any(row[figure] is not None for row in rows):
        return None
    reasons = sorted({str(row[f"{figure}_reason"]) for row in rows if row[f"{figure}_reason"]})
    return f"{who}: " + ("; ".join(reasons) or "no figure")


def _ratio(
    kind: str,
    figure: str,
    sides: tuple[tuple[str, Rows], tuple[str, Rows]],
    labels: dict[str, Any],
    confidence: float,
    *,
    inverse: bool = False,
) -> Ratio:
    numerator, denominator = sides
    top = _side(numerator[1], figure, inverse=inverse)
    bottom = _side(denominator[1], figure, inverse=inverse)
    blocks = paired_ratios(
        {block: value for block, (value, _) in top.items()},
        {block: value for block, (value, _) in bottom.items()},
    )
    boards = [(str(block[1]), value) for block, value in blocks.items() if isinstance(block, tuple)]
    result = estimate_over_boards(boards, confidence)
    reasons = [
        reason
        for who, rows in (numerator, denominator)
        if (reason := _reason(rows, figure, who)) is not None
    ]
    both = [*numerator[1], *denominator[1]]
    energy = kind in ENERGY_KINDS
    scopes = sorted({row["energy_scope"] for row in both if energy and row["energy_scope"]})
    return Ratio(
        name="/".join([kind, *(str(v) for v in labels.values() if v), numerator[0]])
        + f" over {denominator[0]}",
        kind=kind,
        figure=figure,
        numerator=numerator[0],
        denominator=denominator[0],
        modelled=energy and any(row["modelled"] for row in both),
        simulated=any(row["simulated"] for row in both),
        energy_scope=",".join(scopes) or None,
        pairs=tuple(
            Pair(
                block="rep{}{}".format(block[0], f" {block[1]}" if block[1] else ""),
                numerator_run=top[block][1],
                denominator_run=bottom[block][1],
                value=value,
            )
            for block, value in blocks.items()
            if isinstance(block, tuple)
        ),
        **_numbers(result, reasons),
        **labels,
    )


def _numbers(result: Estimate, reasons: list[str]) -> dict[str, Any]:
    reason = result.reason
    if result.value is None:
        reason = "; ".join(reasons) or "no repeat has both sides"
    return {
        "value": result.value,
        "ci_low": result.low,
        "ci_high": result.high,
        "n_pairs": result.n,
        "reason": reason,
        "note": result.note,
    }


def _groups(rows: Rows, keys: Sequence[str]) -> list[tuple[tuple[str, ...], list[Cell]]]:
    groups: dict[tuple[str, ...], list[Cell]] = {}
    for row in rows:
        groups.setdefault(tuple(str(row[key]) for key in keys), []).append(row)
    return sorted(groups.items(), key=lambda item: item[0])


def _of(rows: Rows, key: str, value: str) -> list[Cell]:
    return [row for row in rows if row[key] == value]


def precision_ratios(cells: Rows, confidence: float) -> list[Ratio]:
    """Each precision over each base precision, per workload x layout x placement."""
    ratios = []
    for (layout, placement, workload), group in _groups(cells, ["layout", "placement", "workload"]):
        have = {row["precision"] for row in group}
        for base in (b for b in BASELINES if b in have):
            for precision in PRECISIONS:
                if precision == base or precision not in have:
                    continue
                if precision in BASELINES and BASELINES.index(precision) < BASELINES.index(base):
                    continue
                sides = (
                    (precision, _of(group, "precision", precision)),
                    (base, _of(group, "precision", base)),
                )
                labels = {
                    "workload": workload,
                    "layout": layout,
                    "placement": placement,
                    "precision": precision,
                }
                for kind, figure in (
                    ("precision_speedup", "throughput_samples_s"),
                    ("precision_energy_gain", "samples_per_j"),
                    ("precision_memory", "peak_memory_mib"),
                ):
                    ratios.append(_ratio(kind, figure, sides, labels, confidence))
    return ratios


def mean_precision_ratios(ratios: Iterable[Ratio], confidence: float) -> list[Ratio]:
    """Geometric and arithmetic mean of the speed-ups of all workloads, block by block.

    Only blocks in which every workload has its ratio count; placements are compared by their kind.
    """
    groups: dict[tuple[str, str, str, str], list[Ratio]] = {}
    for ratio in ratios:
        if ratio.kind == "precision_speedup" and ratio.value is not None:
            kind = _placement_group(ratio)
            key = (ratio.layout, kind, ratio.numerator, ratio.denominator)
            groups.setdefault(key, []).append(ratio)
    means = []
    for (layout, placement, top, bottom), members in sorted(groups.items()):
        if len(members) < 2:
            continue
        by_block = [{pair.block: pair for pair in member.pairs} for member in members]
        blocks = sorted(set.intersection(*(set(pairs) for pairs in by_block)))
        for kind, mean in (
            ("precision_speedup_geomean", geometric_mean),
            ("precision_speedup_mean", arithmetic_mean),
        ):
            values = [
                (b.partition(" ")[2], mean([pairs[b].value for pairs in by_block])) for b in blocks
            ]
            result = estimate_over_boards(values, confidence)
            means.append(
                Ratio(
                    name=f"{kind}/{layout}/{placement}/{top} over {bottom}",
                    kind=kind,
                    figure="throughput_samples_s",
                    workload=None,
                    layout=layout,
                    placement=placement,
                    precision=top,
                    numerator=top,
                    denominator=bottom,
                    modelled=False,
                    simulated=any(member.simulated for member in members),
                    **_numbers(result, ["no repeat has all workloads"])
                    | {"note": _mean_note(len(members), result.note)},
                )
            )
    return means


def _placement_group(ratio: Ratio) -> str:
    """The placement without its workload, so that workloads can be averaged: solo, fill, …"""
    prefix = f"{ratio.workload}."
    return ratio.placement.removeprefix(prefix)


def _mean_note(workloads: int, note: str | None) -> str:
    return f"{workloads} workloads" + (f"; {note}" if note else "")


def partition_ratios(cells: Rows, confidence: float) -> list[Ratio]:
    """All slices of a layout filled with one workload, over the same workload on `full`."""
    ratios = []
    for (workload, precision), group in _groups(cells, ["workload", "precision"]):
        # On the whole board, solo and fill are the same thing: one process.
        on_full = _of(group, "layout", "full")
        whole = _of(on_full, "kind", "solo") or _of(on_full, "kind", "fill")
        filled = [row for row in _of(group, "kind", "fill") if row["layout"] != "full"]
        if not whole:
            continue
        for (layout, placement), rows in _groups(filled, ["layout", "placement"]):
            labels = {
                "workload": workload,
                "layout": layout,
                "placement": placement,
                "precision": precision,
            }
            for kind, figure, inverse in (
                ("partition_throughput", "throughput_samples_s", False),
                ("partition_energy_per_sample", "samples_per_j", True),
            ):
                sides = (f"{layout} fill", rows), ("full", whole)
                ratios.append(_ratio(kind, figure, sides, labels, confidence, inverse=inverse))
    return ratios


def mix_ratios(cells: Rows, confidence: float) -> list[Ratio]:
    """Jobs at once over the same jobs on each named baseline; see `wattslice.analysis.mixes`.

    A fill over `full` is in `partition_ratios`; over `7g` it is of the same kinds, and given here.
    """
    sequential = mix_rows(cells)
    rows = [row for row in sequential if row["kind"] == "mix" or row["base"] != "full"]
    rows += shared_rows(sequential)
    groups = _groups(rows, ["layout", "placement", "precision", "baseline"])
    return [
        _mix_ratio(kinds[group[0]["kind"] == "fill"], figure, group, confidence)
        for _, group in groups
        for figure, kinds in _MIX_KINDS.items()
    ]


def _mix_ratio(kind: str, figure: str, group: Rows, confidence: float) -> Ratio:
    """One figure of one mix against one baseline, over its blocks."""
    first = group[0]
    blocks = {
        (int(row["repeat"]), str(row["board_uuid"] or "")): row
        for row in group
        if row[figure] is not None
    }
    result = estimate_over_boards(
        [(board, row[figure]) for (_, board), row in sorted(blocks.items())], confidence
    )
    reasons = sorted({str(row[f"{figure}_reason"]) for row in group} - {"None"})
    energy = kind in ENERGY_KINDS
    place = [str(first[key]) for key in ("layout", "placement", "precision")]
    denominator = str(first["baseline"] if kind.startswith("mix") else first["base"])
    return Ratio(
        name="/".join([kind, *place, f"over {denominator}"]),
        kind=kind,
        figure=figure,
        workload=first["workload"],
        layout=place[0],
        placement=place[1],
        precision=place[2],
        numerator=str(first["workloads"]),
        denominator=denominator,
        modelled=energy and any(row["modelled"] for row in group),
        simulated=any(row["simulated"] for row in group),
        energy_scope=first["energy_scope"] if energy else None,
        pairs=tuple(
            Pair(
                block=f"rep{block[0]}" + (f" {block[1]}" if block[1] else ""),
                numerator_run=str(row["run_id"]),
                denominator_run=" + ".join(row["base_runs"]),
                value=float(row[figure]),
            )
            for block, row in sorted(blocks.items())
        ),
        **_numbers(result, reasons),
    )


def comparable_workloads(config: CampaignConfig) -> list[tuple[str, str]]:
    """Pairs of workloads that differ in their model only: same task, data, batch and optimizer.

    Each pair is given once, in the order of the models' names (albert before distilbert).
    """
    pairs = []
    for left, right in permutations(sorted(config.workloads), 2):
        a, b = config.workloads[left], config.workloads[right]
        if (a.model, left) >= (b.model, right) or a.framework != b.framework:
            continue
        if a.model == b.model:
            continue
        if all(
            getattr(a, field) == getattr(b, field)
            for field in ("task", "data", "batch_size", "optimizer", "mode")
        ):
            pairs.append((left, right))
    return pairs


def workload_ratios(
    cells: Rows, pairs: Iterable[tuple[str, str]], confidence: float
) -> list[Ratio]:
    """Time and memory of one workload over another, on the same slice, in the same precision."""
    ratios = []
    alone = [row for row in cells if row["kind"] in ("solo", "fill")]
    for left, right in pairs:
        own = [row for row in alone if row["workload"] in (left, right)]
        for (layout, placement, precision), group in _groups(own, ["layout", "group", "precision"]):
            top, bottom = _of(group, "workload", left), _of(group, "workload", right)
            if not top or not bottom:
                continue
            labels = {
                "workload": left,
                "layout": layout,
                "placement": placement,
                "precision": precision,
            }
            for kind, figure, inverse in (
                ("workload_time", "throughput_samples_s", True),
                ("workload_memory", "peak_memory_mib", False),
            ):
                sides = (left, top), (right, bottom)
                ratios.append(_ratio(kind, figure, sides, labels, confidence, inverse=inverse))
    return ratios


def all_ratios(table: pd.DataFrame, config: CampaignConfig) -> RatioTable:
    """Every ratio of a campaign from its table `cells`, sorted by kind and name."""
    confidence = config.report.confidence
    cells = cell_rows(table)
    ratios = precision_ratios(cells, confidence)
    ratios += mean_precision_ratios(ratios, confidence)
    ratios += partition_ratios(cells, confidence)
    ratios += mix_ratios(cells, confidence)
    ratios += workload_ratios(cells, comparable_workloads(config), confidence)
    order = list(KINDS)
    ratios.sort(key=lambda ratio: (order.index(ratio.kind), ratio.name))
    return RatioTable(confidence=confidence, kinds=KINDS, ratios=tuple(ratios))


def read_ratios(analysis_dir: Path) -> RatioTable:
    """Read analysis/ratios.json."""
    return RatioTable.model_validate_json((analysis_dir / "ratios.json").read_bytes())


def write_analysis(tables_dir: Path, config: CampaignConfig, out_dir: Path) -> RatioTable:
    """Write analysis/ratios.json from the tables."""
    table = all_ratios(read_tables(Path(tables_dir))["cells"], config)
    write_json(Path(out_dir) / "ratios.json", table.model_dump(mode="json"))
    return table
