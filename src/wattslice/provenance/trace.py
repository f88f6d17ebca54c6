"""From a number to what it rests on: `wattslice trace PATH[#entry|?column=value&…]`.

A target is a run's folder or file, a row of a table, an entry of a file of the analysis, a figure,
or a number of the report. Whatever it is, it is made again from raw samples and compared.
"""

from __future__ import annotations

import csv
import json
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

from wattslice.analysis.collect import DigestMismatchError
from wattslice.analysis.frames import FIGURE_UNITS, KEY, TABLES, read_tables
from wattslice.analysis.mixes import GAINS, gain_percent
from wattslice.analysis.raw import RawFileError
from wattslice.provenance.chain import Chain, NotACampaignError
from wattslice.provenance.manifest import RUN_DEPTH
from wattslice.provenance.rebuild import Rebuilt, differing_values, same_file
from wattslice.provenance.tree import Node
from wattslice.report.figure_list import BY_NAME
from wattslice.report.numbers import number

_KEYS: dict[str, tuple[str, ...]] = {
    "runs": ("run_id",),
    "slices": ("run_id", "slice_index"),
    "attribution": ("run_id", "slice_index", "method"),
    "cells": ("run_id", "workload"),
    "summary": KEY,
}
# The report shows numbers to this many significant digits.
_DIGITS = (3, 4)
_MOST_SOURCES = 8
# What a file that was tampered with may raise while all is made again.
FAULTS = (RawFileError, DigestMismatchError, ValueError, OSError, KeyError)


@dataclass(frozen=True, slots=True)
class Target:
    """What is to be traced: a file, and an entry in it by place (`#`) or by values (`?`)."""

    path: Path
    entry: str | None = None
    where: tuple[tuple[str, str], ...] = ()

    @classmethod
    def parse(cls, text: str) -> Target:
        """Split PATH[#entry|?column=value&…]; a path that exists as it is written is not split."""
        if Path(text).exists():
            return cls(Path(text))
        path, mark, query = text.partition("?")
        if mark and Path(path).exists():
            return cls(Path(path), where=tuple(parse_qsl(query, keep_blank_values=True)))
        path, mark, entry = text.partition("#")
        return cls(Path(path), entry=entry if mark else None)


def trace(text: str) -> Node:
    """Trace a target. Raises NotACampaignError where there is no such thing."""
    target = Target.parse(text)
    if not target.path.exists():
        raise NotACampaignError(f"{target.path} does not exist")
    chain = Chain.around(target.path)
    name = target.path.resolve().relative_to(chain.folder).as_posix()
    node = Node(text)
    _trace_of(name)(node, chain, name, target)
    chain.campaign(node.add("campaign", chain.content["name"]))
    if not node.holds():
        chain.tell_code(node)
    return node


_Tracer = Callable[[Node, Chain, str, Target], None]


def _trace_of(name: str) -> _Tracer:
    first = name.split("/", maxsplit=1)[0]
    tracers: dict[str, _Tracer] = {
        "runs": _run,
        "tables": _table,
        "analysis": _entry,
        "figures": _figure,
        "report": _report,
    }
    if first not in tracers:
        raise NotACampaignError(
            f"{name} is nothing that can be traced; give a file or folder below "
            + ", ".join(f"{folder}/" for folder in tracers)
        )
    return tracers[first]


@contextmanager
def rebuilding(chain: Chain, runs: Iterable[str] | None = None) -> Iterator[Rebuilt]:
    """The campaign made again in a temporary folder, which goes away afterwards."""
    with tempfile.TemporaryDirectory(prefix="wattslice-") as folder:
        yield Rebuilt(chain.folder, Path(folder), runs)


def _runs(node: Node, chain: Chain, runs: Iterable[str], rebuilt: Rebuilt) -> None:
    for run_id in sorted(set(runs)):
        chain.run(node, run_id, rebuilt)


# --- runs ----------------------------------------------------------------------------------------


def _run(node: Node, chain: Chain, name: str, target: Target) -> None:
    parts = name.split("/")[1 : 1 + RUN_DEPTH]
    run_id = "/".join(parts)
    if run_id not in chain.runs:
        raise NotACampaignError(
            f"{run_id or name} is no run of the campaign; a run is runs/<layout>/<placement>/"
            f"<precision>/rep<k>, for example runs/{next(iter(chain.runs), '')}"
        )
    with rebuilding(chain, [run_id]) as rebuilt:
        chain.run(node, run_id, rebuilt)


# --- tables --------------------------------------------------------------------------------------


def _table(node: Node, chain: Chain, name: str, target: Target) -> None:
    table = Path(name).stem
    if table not in TABLES:
        raise NotACampaignError(f"{name} is no table; there are: {', '.join(TABLES)}")
    frame = read_tables(chain.folder / "tables")[table]
    rows = [_plain(row) for row in frame.to_dict("records")]
    chosen = _chosen(rows, target, name)
    members = {index: _members(table, rows[index], chain) for index in chosen}
    chain.file(node, name)
    with rebuilding(chain, sorted({run for runs in members.values() for run in runs})) as rebuilt:
        for index in chosen:
            row = node.add(f"row {index}", _row_text(table, rows[index]), **rows[index])
            try:
                again = _again(table, rows[index], rebuilt)
            except FAULTS as fault:
                row.add("made again from raw samples", str(fault), "bad")
            else:
                _compare_row(row, rows[index], again)
            if name.endswith(".csv") and again is not None:
                made = rebuilt.out / "tables" / f"{table}.csv"
                _compare_csv(row, chain.folder / name, index, made)
            _runs(row, chain, members[index], rebuilt)


def _plain(row: Mapping[Any, Any]) -> dict[str, Any]:
    import pandas as pd

    return {
        str(key): None if value is pd.NA else value.item() if hasattr(value, "item") else value
        for key, value in row.items()
    }


def _chosen(rows: Sequence[Mapping[str, Any]], target: Target, name: str) -> list[int]:
    """Indices of the rows that a target names; all rows for a table as a whole."""
    if target.entry is not None:
        if not target.entry.isdigit() or int(target.entry) >= len(rows):
            raise NotACampaignError(
                f"{name} has the rows 0 to {len(rows) - 1}, but no row {target.entry!r}"
            )
        return [int(target.entry)]
    for column, _ in target.where:
        if rows and column not in rows[0]:
            raise NotACampaignError(
                f"{name} has no column {column!r}; there are: {', '.join(rows[0])}"
            )
    chosen = [i for i, row in enumerate(rows) if _fits(row, target.where)]
    if not chosen:
        raise NotACampaignError(f"{name} has no row with {_query(target.where)}")
    return chosen


def _fits(row: Mapping[str, Any], where: Iterable[tuple[str, str]]) -> bool:
    return all(_same_text(row.get(column), value) for column, value in where)


def _same_text(value: Any, text: str) -> bool:
    if isinstance(value, bool):
        return str(value).lower() == text.lower()
    if isinstance(value, int | float):
        try:
            return value == float(text)
        except ValueError:
            return False
    return ("" if value is None else str(value)) == text


def _query(where: Iterable[tuple[str, str]]) -> str:
    return " and ".join(f"{column} = {value}" for column, value in where)


def _row_text(table: str, row: Mapping[str, Any]) -> str:
    shown = [str(row[key]) for key in _KEYS[table]]
    for figure, unit in FIGURE_UNITS.items():
        if row.get(figure) is not None and figure in (
            "throughput_samples_s",
            "samples_per_j",
            "step_p50_s",
        ):
            shown.append(f"{figure} = {row[figure]:.6g} {unit}")
    return ", ".join(shown)


def _members(table: str, row: Mapping[str, Any], chain: Chain) -> list[str]:
    """Runs that a row is made of."""
    if table != "summary":
        others = str(row.get("subset_runs") or "").split(";")
        return [str(row["run_id"]), *filter(None, others)]
    prefix = f"{row['layout']}/{row['placement']}/{row['precision']}/"
    return [run_id for run_id in chain.runs if run_id.startswith(prefix)]


def _again(table: str, row: Mapping[str, Any], rebuilt: Rebuilt) -> dict[str, Any] | None:
    """The row as the raw files give it; None where they give none."""
    keys = _KEYS[table]
    for record in rebuilt.tables[table].to_dict("records"):
        plain = _plain(record)
        if all(plain[key] == row[key] for key in keys):
            return plain
    return None


def _compare_row(node: Node, row: Mapping[str, Any], again: Mapping[str, Any] | None) -> None:
    label = "made again from raw samples"
    if again is None:
        node.add(label, "the raw files give no such row", "bad")
        return
    differs = differing_values(dict(row), dict(again))
    if differs is not None:
        node.add(label, differs, "bad")
        return
    numbers = sum(isinstance(v, float) for v in row.values())
    exact = "to the last bit" if dict(row) == dict(again) else "within 1e-9"
    node.add(label, f"all {len(row)} values are equal, {numbers} numbers {exact}", "ok")


def _compare_csv(node: Node, path: Path, index: int, made: Path) -> None:
    """The text of a row in the csv file against that of the row made again."""
    keys = _KEYS[path.stem]
    stored, again = (
        list(csv.DictReader(p.read_text(encoding="utf-8").splitlines())) for p in (path, made)
    )
    row = stored[index] if index < len(stored) else {}
    if any(row == other for other in again if all(other[k] == row.get(k) for k in keys)):
        node.add("text of the row in the csv file", "is equal", "ok")
    else:
        node.add("text of the row in the csv file", "is not what the raw files give", "bad")


# --- analysis ------------------------------------------------------------------------------------


def _entries(content: Any) -> list[tuple[str, dict[str, Any]]]:
    """The entries of a file of the analysis with the name of each: those of its lists."""
    if not isinstance(content, dict):
        return []
    return [
        (str(entry.get("name") or entry.get("id") or f"{key}[{index}]"), entry)
        for key, value in content.items()
        if isinstance(value, list)
        for index, entry in enumerate(value)
        if isinstance(entry, dict)
    ]


def _entry(node: Node, chain: Chain, name: str, target: Target) -> None:
    path = chain.folder / name
    entries = _entries(_read_json(path))
    if target.entry is not None:
        chosen = [e for i, e in enumerate(entries) if target.entry in (e[0], str(i))]
        wanted = repr(target.entry)
    else:
        chosen = [e for e in entries if _fits(e[1], target.where)]
        wanted = _query(target.where) or "any entry"
    if not chosen and (entries or target.entry or target.where):
        some = "; ".join(entry[0] for entry in entries[:5])
        raise NotACampaignError(f"{name} has no entry {wanted}; it has for example: {some}")
    chain.file(node, name)
    for table in ("cells.parquet", "summary.parquet"):
        chain.file(node, f"tables/{table}")
    with rebuilding(chain) as rebuilt:
        again = _entries_again(node, rebuilt, path.name)
        every: set[str] = set()
        for label, entry in chosen:
            child = node.add(label, _entry_text(entry), **entry)
            if again is not None:
                _compare_entry(child, entry, again.get(label))
            runs = _runs_of_entry(entry, chain, dict(entries))
            child.data["runs"] = sorted(runs)
            every |= runs
        _runs(node, chain, every, rebuilt)


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise NotACampaignError(f"{path} is no JSON file that can be traced: {error}") from error


def _entries_again(node: Node, rebuilt: Rebuilt, name: str) -> dict[str, dict[str, Any]] | None:
    try:
        path = rebuilt.analysis / name
    except FAULTS as fault:
        node.add("made again from raw samples", str(fault), "bad")
        return None
    if not path.is_file():
        node.add("made again", f"{name} is traced to its runs, but not made again", "info")
        return None
    return dict(_entries(json.loads(path.read_text(encoding="utf-8"))))


def _compare_entry(node: Node, entry: dict[str, Any], again: dict[str, Any] | None) -> None:
    label = "made again from raw samples"
    if again is None:
        node.add(label, "the raw files give no such entry", "bad")
    elif (differs := differing_values(entry, again)) is not None:
        node.add(label, differs, "bad")
    else:
        node.add(label, "equal", "ok")


def _entry_text(entry: Mapping[str, Any]) -> str:
    value = entry.get("value")
    if not isinstance(value, int | float):
        return str(entry.get("verdict") or entry.get("reason") or "")
    low, high = entry.get("ci_low"), entry.get("ci_high")
    span = f" ({number(low)} to {number(high)})" if low is not None else ""
    return f"{value:.6g}{span}"


def _runs_of_entry(
    entry: Mapping[str, Any], chain: Chain, others: Mapping[str, Mapping[str, Any]]
) -> set[str]:
    """Runs that an entry names, itself or by other entries; else those that its labels fit."""
    if entry.get("runs") == []:
        return set()
    found: set[str] = set()
    waiting: list[Any] = [dict(entry)]
    seen: set[str] = set()
    while waiting:
        value = waiting.pop()
        if isinstance(value, Mapping):
            waiting += value.values()
        elif isinstance(value, list | tuple):
            waiting += value
        elif isinstance(value, str) and (named := _runs_in(value, chain)):
            found |= named
        elif isinstance(value, str) and value in others and value not in seen:
            seen.add(value)
            if others[value] is not entry:
                waiting.append(others[value])
    return found or {run_id for run_id in chain.runs if _fits_labels(run_id, entry)}


def _runs_in(text: str, chain: Chain) -> set[str]:
    """The runs that a text names; several are joined, where a baseline consists of them."""
    return {part for part in text.split(" + ") if part in chain.runs}


def _fits_labels(run_id: str, entry: Mapping[str, Any]) -> bool:
    layout, placement, precision, _ = run_id.split("/")
    kind = entry.get("placement")
    precisions = {entry.get(key) for key in ("precision", "numerator", "denominator")} - {None}
    return (
        entry.get("layout") in (None, layout)
        and (not precisions or precision in precisions)
        and (kind is None or placement == kind or placement.endswith(f".{kind}"))
        and entry.get("workload") in (None, placement.split(".")[0])
    )


# --- figures and report --------------------------------------------------------------------------


def _figure(node: Node, chain: Chain, name: str, target: Target) -> None:
    figure, kind = Path(name).stem, Path(name).suffix.lstrip(".")
    if figure not in BY_NAME:
        raise NotACampaignError(f"{name} is no figure; there are: {', '.join(BY_NAME)}")
    node.text = BY_NAME[figure].question
    chain.file(node, name)
    with rebuilding(chain) as rebuilt:
        try:
            made = rebuilt.figures([kind], [figure])
        except FAULTS as fault:
            node.add("drawn again from raw samples", str(fault), "bad")
        else:
            differs = same_file(chain.folder / name, made / f"{figure}.{kind}")
            text = "is equal" if differs is None else f"{name} {differs}"
            node.add("drawn again from raw samples", text, "ok" if differs is None else "bad")
        _runs(node, chain, chain.runs, rebuilt)


def _report(node: Node, chain: Chain, name: str, target: Target) -> None:
    chain.file(node, name)
    with rebuilding(chain) as rebuilt:
        try:
            made = rebuilt.report
        except FAULTS as fault:
            node.add("made again from raw samples", str(fault), "bad")
        else:
            again = made / Path(name).relative_to("report")
            differs = same_file(chain.folder / name, again)
            text = "is equal" if differs is None else f"{name} {differs}"
            node.add("made again from raw samples", text, "ok" if differs is None else "bad")
        runs: Iterable[str] = chain.runs
        if target.entry is not None:
            runs = _sources(node, chain, name, target.entry)
        _runs(node, chain, runs, rebuilt)


def _sources(node: Node, chain: Chain, name: str, text: str) -> set[str]:
    """Where a number of the report comes from: every value that is shown as this text."""
    page = (chain.folder / name).read_text(encoding="utf-8")
    lines = [line.strip() for line in page.splitlines() if text in line and len(line) < 5000]
    if not lines:
        raise NotACampaignError(f"{name} does not say {text!r}")
    said = node.add("said", f"{text!r} in {len(lines)} places")
    for line in lines[:3]:
        said.add("line", line if len(line) < 200 else line[:197] + "…")
    found = [source for source in shown_values(chain) if source.shows(text)]
    # A value is the better a source, the more of its labels stand in the same lines.
    found.sort(key=lambda source: -max(source.labels_in(line) for line in lines))
    if not found:
        node.add("sources", "no value of tables or analysis is shown as this text", "bad")
        return set()
    best = max(source.labels_in(line) for source in found[:1] for line in lines)
    near = [s for s in found if max(s.labels_in(line) for line in lines) == best]
    sources = node.add("sources", f"{len(near)} of {len(found)} values that are shown so fit best")
    for source in near[:_MOST_SOURCES]:
        sources.add(source.place, f"{source.value!r}", "ok", runs=sorted(source.runs))
    return {run for source in near for run in source.runs}


@dataclass(frozen=True, slots=True)
class _Source:
    """A value that the report may show."""

    place: str
    value: float
    labels: tuple[str, ...]
    runs: frozenset[str]

    def shows(self, text: str) -> bool:
        text = text.removesuffix("×")
        return any(number(self.value, digits) == text for digits in _DIGITS)

    def labels_in(self, line: str) -> int:
        return sum(label in line for label in self.labels)


def shown_values(chain: Chain) -> Iterator[_Source]:
    """Every number that the report may show, with its runs."""
    rows = [_plain(r) for r in read_tables(chain.folder / "tables")["summary"].to_dict("records")]
    for index, row in enumerate(rows):
        runs = frozenset(_members("summary", row, chain))
        labels = tuple(str(row[key]) for key in KEY)
        for column, value in row.items():
            if isinstance(value, float):
                place = f"tables/summary.parquet#{index} {column}"
                yield _Source(place, value, labels, runs)
    for path in sorted((chain.folder / "analysis").glob("*.json")):
        entries = _entries(_read_json(path))
        for label, entry in entries:
            runs = frozenset(_runs_of_entry(entry, chain, dict(entries)))
            words = (entry.get(k) for k in ("workload", "layout", "numerator", "denominator"))
            labels = tuple(str(word) for word in words if word)
            kind = str(entry.get("kind"))
            for key, value in entry.items():
                if isinstance(value, float):
                    place = f"analysis/{path.name}#{label} {key}"
                    yield _Source(place, value, labels, runs)
                    if kind in GAINS:
                        gain = gain_percent(kind, value)
                        yield _Source(f"{place}, as a gain in %", gain, labels, runs)
