"""What was measured of each workload on each kind of slice, as the planner needs it.

Read from a campaign's tables (parquet or CSV; only `runs` and `slices` are used) or from one CSV
that anybody can write:

    workload,slice,rate[,rate_unit,rate_low,rate_high,power_w,busy,idle_w,memory_mib,outcome,precision]

`rate` is samples/s of one worker on one such slice, or in the one `rate_unit` of all rows (relative
rates, too). `power_w` is the board's mean power while `busy` slices (default 1) of the layout run
this workload, `idle_w` the board's power with the layout there and idle. `busy` above 1 says that
the slices beside it were at work, so that the rate holds what neighbours cost. A row with outcome
`oom`, or any other than `ok`, has no rate: the workload does not run there.
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Any

from wattslice.analysis.statistics import estimate
from wattslice.config.layout import Layout, LayoutSyntaxError, slice_size
from wattslice.planner.errors import TableError
from wattslice.planner.ranges import Range
from wattslice.records.run import MEASURED_OUTCOMES

REFERENCES = ("full", "7g")  # the first that every workload has is the unit of progress
_COLUMNS = {
    "workload",
    "slice",
    "rate",
    "rate_unit",
    "rate_low",
    "rate_high",
    "power_w",
    "busy",
    "idle_w",
    "memory_mib",
    "outcome",
    "precision",
}


@dataclass(frozen=True, slots=True)
class Measured:
    """A workload on a kind of slice: rate, samples/s, and what it adds to the idle power, W."""

    rate: Range
    dynamic_w: Range | None = None
    n: int = 1  # runs that it rests on


@dataclass(slots=True)
class Cell:
    """All that is known of a workload on a kind of slice; `failed` says why it does not run."""

    alone: Measured | None = None  # the rest of the board idle
    among: Measured | None = None  # neighbours at work
    memory_mib: float | None = None
    failed: str | None = None
    sources: list[str] = field(default_factory=list)  # run ids, for tracing

    def best(self, *, neighbours: bool) -> Measured | None:
        """The measurement that fits the case best; the other one where there is no better."""
        return (self.among or self.alone) if neighbours else (self.alone or self.among)


@dataclass(slots=True)
class Table:
    """Measurements of one board and one precision."""

    precision: str
    cells: dict[tuple[str, str], Cell]
    idle_w: dict[str, Range]  # by layout; "" is any other
    rate_unit: str = "samples/s"
    board: str | None = None
    power_limit_w: float | None = None
    simulated: bool = False
    modelled: bool = False
    notes: list[str] = field(default_factory=list)

    @property
    def workloads(self) -> list[str]:
        return list(dict.fromkeys(workload for workload, _ in self.cells))

    @property
    def slices(self) -> list[str]:
        """Kinds of slices, largest first."""
        kinds = {kind for _, kind in self.cells}
        return sorted(kinds, key=lambda kind: (slice_size(kind), kind), reverse=True)

    def measured(self, workload: str, kind: str, *, neighbours: bool) -> Measured | None:
        """The measurement to predict from; None where it was not measured or did not run."""
        cell = self.cells.get((workload, kind))
        if cell is None or cell.failed is not None:
            return None
        return cell.best(neighbours=neighbours)

    def why_not(self, workload: str, kind: str) -> str:
        """Why a workload is not proposed for a kind of slice."""
        cell = self.cells.get((workload, kind))
        if cell is None:
            return "not measured"
        return cell.failed or "no figure"

    def renamed(self, aliases: Mapping[str, str]) -> Table:
        """The same with other names of slices, e.g. 3g for 3g.40gb.

        Raises TableError where a workload then has two cells of one name.
        """
        if not aliases:
            return self
        cells: dict[tuple[str, str], Cell] = {}
        for (workload, kind), cell in self.cells.items():
            key = (workload, aliases.get(kind, kind))
            if key in cells:
                raise TableError(f"{workload} is given twice for {key[1]} (once as {kind})")
            cells[key] = cell
        idle = {
            str(Layout.parse("+".join(aliases.get(k, k) for k in Layout.parse(layout).slices)))
            if layout
            else "": power
            for layout, power in self.idle_w.items()
        }
        return replace(self, cells=cells, idle_w=idle)

    def idle(self, layout: str) -> Range | None:
        """Idle power of the board in a layout, W; of another layout of its kind where unknown."""
        return self.idle_w.get(layout, self.idle_w.get(""))

    def reference(self, workloads: Iterable[str]) -> str | None:
        """The whole board as all the workloads have it, `full` before `7g`; None if none has."""
        wanted = list(workloads)
        for kind in REFERENCES:
            if all(self.measured(name, kind, neighbours=False) for name in wanted):
                return kind
        return None


# --- a plain CSV -------------------------------------------------------------------------------


def read_csv(path: Path, precision: str | None = None) -> Table:
    """Read a table that somebody wrote. Raises TableError naming the line and the column."""
    lines = [
        line
        for line in path.read_text(encoding="utf-8").splitlines()
        if line.strip() and not line.lstrip().startswith("#")
    ]
    reader = csv.DictReader(lines)
    unknown = set(reader.fieldnames or ()) - _COLUMNS
    missing = {"workload", "slice"} - set(reader.fieldnames or ())
    if unknown or missing:
        raise TableError(
            f"{path}: "
            + (f"unknown columns {', '.join(sorted(unknown))}; " if unknown else "")
            + (f"missing columns {', '.join(sorted(missing))}; " if missing else "")
            + f"valid: {', '.join(sorted(_COLUMNS))}"
        )
    rows = [row for row in reader if precision is None or row.get("precision") in (precision, None)]
    precisions = sorted({row.get("precision") or "" for row in rows})
    if len(precisions) > 1:
        raise TableError(f"{path} has several precisions ({', '.join(precisions)}): choose one")
    table = Table(precisions[0] if precisions else precision or "", {}, {})
    units = sorted({row["rate_unit"] for row in rows if row.get("rate_unit")})
    if len(units) > 1:
        raise TableError(f"{path} has rates in several units: {', '.join(units)}")
    table.rate_unit = units[0] if units else table.rate_unit
    idle: list[float] = []
    for number, row in enumerate(rows, start=2):
        where = f"{path}, data row {number - 1}"
        kind = _slice_name(row["slice"], where)
        cell = table.cells.setdefault((row["workload"], kind), Cell())
        outcome = row.get("outcome") or "ok"
        if outcome not in MEASURED_OUTCOMES:
            cell.failed = outcome
            continue
        rate = _number(row, "rate", where)
        if rate is None or not rate > 0:
            raise TableError(f"{where}: rate must be above 0, not {row.get('rate')!r}")
        busy = int(_number(row, "busy", where) or 1)
        own_idle = _number(row, "idle_w", where)
        if own_idle is not None:
            idle.append(own_idle)
        power = _number(row, "power_w", where)
        dynamic = None
        if power is not None and own_idle is not None:
            dynamic = Range.of(max(power - own_idle, 0.0) / busy)
        known = Range.of(rate, _number(row, "rate_low", where), _number(row, "rate_high", where))
        if busy > 1:
            cell.among = Measured(known, dynamic)
        else:
            cell.alone = Measured(known, dynamic)
        cell.memory_mib = _number(row, "memory_mib", where) or cell.memory_mib
    if idle:
        table.idle_w[""] = Range.of(median(idle), min(idle), max(idle))
    if not table.cells:
        raise TableError(
            f"{path} has no rows" + (f" of precision {precision}" if precision else "")
        )
    fill_in_power(table)
    return table


def _number(row: Mapping[str, str | None], column: str, where: str) -> float | None:
    text = (row.get(column) or "").strip()
    if not text:
        return None
    try:
        value = float(text)
    except ValueError:
        raise TableError(f"{where}: {column} is not a number: {text!r}") from None
    if not math.isfinite(value) or value < 0:
        raise TableError(f"{where}: {column} must be finite and not below 0: {text!r}")
    return value


def _slice_name(text: str, where: str) -> str:
    try:
        (name,) = Layout.parse(text).slices
    except (LayoutSyntaxError, ValueError) as error:
        raise TableError(f"{where}: {text!r} is not one slice: {error}") from None
    return name


# --- a campaign's tables -----------------------------------------------------------------------


def read_campaign(folder: Path, precision: str | None = None, confidence: float = 0.95) -> Table:
    """Read results/<campaign> (or its tables/ folder, or an archive of either).

    Solo and fill runs are used, those that a quality check rejects are not. Rates are medians
    over repeats with their bootstrap interval, or their range below five repeats.
    Raises TableError where there is nothing to plan from.
    """
    tables = folder / "tables" if (folder / "tables").is_dir() else folder
    runs = {str(row["run_id"]): row for row in read_frame(tables, "runs")}
    slices = read_frame(tables, "slices")
    usable = {
        run_id: row
        for run_id, row in runs.items()
        if row["kind"] in ("solo", "fill") and (row["badge"] != "rejected" or row["simulated"])
    }
    precisions = list(dict.fromkeys(str(row["precision"]) for row in usable.values()))
    if not precisions:
        raise TableError(f"{tables} has no usable solo or fill run")
    chosen = precision or precisions[0]
    if chosen not in precisions:
        raise TableError(f"{tables} has no precision {chosen}; it has {', '.join(precisions)}")
    mine = {key: row for key, row in usable.items() if row["precision"] == chosen}
    table = Table(chosen, {}, {})
    _read_cells(table, mine, runs, slices, confidence)
    _read_idle(table, mine.values())
    first = next(iter(mine.values()))
    table.board = None if first["board"] is None else str(first["board"])
    table.simulated = any(bool(row["simulated"]) for row in mine.values())
    table.modelled = any(bool(row["modelled"]) for row in mine.values())
    table.power_limit_w = _power_limit_w(tables.parent, mine)
    boards = {str(row["board_uuid"]) for row in mine.values()}
    if len(boards) > 1:
        table.notes.append(f"measured on {len(boards)} boards: their spread is in the intervals")
    fill_in_power(table)
    return table


def read_frame(tables: Path, name: str) -> list[dict[str, Any]]:
    """Rows of a table of a campaign, None for what is missing. Raises TableError without it."""
    import pandas as pd

    parquet, text = tables / f"{name}.parquet", tables / f"{name}.csv"
    if parquet.is_file():
        frame = pd.read_parquet(parquet)
    elif text.is_file():
        frame = pd.read_csv(text)
    else:
        raise TableError(f"neither {parquet} nor {text} is there: aggregate the campaign first")
    return [
        {str(key): None if pd.isna(value) else value for key, value in row.items()}
        for row in frame.to_dict("records")
    ]


def _read_cells(
    table: Table,
    mine: Mapping[str, Mapping[str, Any]],
    runs: Mapping[str, Mapping[str, Any]],
    slices: Sequence[Mapping[str, Any]],
    confidence: float,
) -> None:
    rates: dict[tuple[str, str, bool], list[float]] = {}
    powers: dict[tuple[str, str, bool], list[float]] = {}
    for row in slices:
        run = runs.get(str(row["run_id"]))
        if (
            run is None
            or row["precision"] != table.precision
            or row["kind"] not in ("solo", "fill")
        ):
            continue
        key = (str(row["workload"]), str(row["slice"]))
        cell = table.cells.setdefault(key, Cell())
        if row["worker_outcome"] == "oom":
            # Also from a mix or a rejected run: what does not fit does not fit.
            cell.failed = f"out of memory ({row['run_id']})"
            continue
        if row["run_id"] not in mine:
            continue
        rate = row["throughput_samples_s"]
        if rate is None or not rate > 0:
            continue
        workers = int(run["workers"])
        among = workers > 1
        rates.setdefault((*key, among), []).append(float(rate))
        cell.sources.append(str(row["run_id"]))
        if row["peak_memory_mib"] is not None:
            cell.memory_mib = max(cell.memory_mib or 0.0, float(row["peak_memory_mib"]))
        same = len(set(Layout.parse(str(run["layout"])).slices)) == 1
        trusted = run["badge"] != "energy-rejected" or run["simulated"]
        powered = run["mean_power_w"] is not None and run["idle_w"] is not None
        if trusted and powered and (same or not among):
            above = max(float(run["mean_power_w"]) - float(run["idle_w"]), 0.0)
            # Each worker's row of a run adds the same figure; its median is not moved by that.
            powers.setdefault((*key, among), []).append(above / workers)
    for (workload, kind, among), values in rates.items():
        cell = table.cells[workload, kind]
        found = Measured(
            _range(values, confidence),
            _range(powers.get((workload, kind, among), []), confidence),
            len(values),
        )
        if among:
            cell.among = found
        else:
            cell.alone = found
    for cell in table.cells.values():
        if cell.failed is None and cell.alone is None and cell.among is None:
            cell.failed = "no usable run"


def _range(values: Sequence[float], confidence: float) -> Any:
    found = estimate(values, confidence)
    return None if found.value is None else Range.of(found.value, found.low, found.high)


def _read_idle(table: Table, runs: Iterable[Mapping[str, Any]]) -> None:
    by_layout: dict[str, list[float]] = {}
    for row in runs:
        if row["idle_w"] is not None:
            by_layout.setdefault(str(row["layout"]), []).append(float(row["idle_w"]))
    for layout, values in by_layout.items():
        table.idle_w[layout] = Range.of(median(values), min(values), max(values))
    divided = [v for layout, values in by_layout.items() if layout != "full" for v in values]
    values = divided or [v for values in by_layout.values() for v in values]
    if values:
        table.idle_w[""] = Range.of(median(values), min(values), max(values))


def _power_limit_w(campaign: Path, runs: Iterable[str]) -> float | None:
    """The board's power limit as a run's record has it; None where no record is there."""
    for run_id in runs:
        path = campaign / "runs" / run_id / "run.json"
        try:
            record = json.loads(path.read_text(encoding="utf-8"))
            return float(record["health_before"]["power_limit_w"]["value"])
        except (OSError, ValueError, KeyError, TypeError):
            continue
    return None


def fill_in_power(table: Table) -> None:
    """Power of a slice where it was not measured: the workload's joules per sample above idle, as
    on its largest slice where they were, times its rate. A note says so."""
    filled = []
    for workload in table.workloads:
        base: Measured | None = None
        for kind in table.slices:
            cell = table.cells.get((workload, kind))
            for known in (cell.alone, cell.among) if cell is not None else ():
                if base is None and known is not None and known.dynamic_w is not None:
                    base = known
        if base is None or base.dynamic_w is None:
            continue
        per_sample = base.dynamic_w / base.rate
        for kind in table.slices:
            cell = table.cells.get((workload, kind))
            if cell is None:
                continue
            other = next(
                (m.dynamic_w for m in (cell.among, cell.alone) if m is not None and m.dynamic_w),
                None,
            )
            for name in ("alone", "among"):
                known = getattr(cell, name)
                if known is not None and known.dynamic_w is None:
                    dynamic = other or per_sample * known.rate
                    setattr(cell, name, Measured(known.rate, dynamic, known.n))
                    if other is None:
                        filled.append(f"{workload} on {kind}")
    if filled:
        each = list(dict.fromkeys(filled))
        more = f" and {len(each) - 4} more" if len(each) > 4 else ""
        table.notes.append(
            f"power not measured but scaled by throughput: {', '.join(each[:4])}{more}"
        )
