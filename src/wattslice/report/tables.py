"""The report's tables, once, for html, LaTeX (booktabs, siunitx) and Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from wattslice.analysis.ratios import Ratio
from wattslice.analysis.statistics import ENOUGH_REPEATS, weakness
from wattslice.files import write_text
from wattslice.records.run import MEASURED_OUTCOMES
from wattslice.report.charts.base import MODELLED, SIMULATED, FigureData, ordered_slots, slot_of
from wattslice.report.numbers import MISSING, interval, number


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its heading with the unit, and whether it holds numbers."""

    title: str
    numeric: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """A table as text cells. `labels` stand beside the caption: modelled, simulated."""

    name: str
    caption: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[str, ...], ...]
    labels: tuple[str, ...] = ()
    empty: str = "no rows"


def report_tables(data: FigureData) -> dict[str, Table]:
    """summary, energy, ratios and outcomes."""
    made = (_summary(data), _energy(data), _ratios(data), _outcomes(data))
    return {table.name: table for table in made}


def _common(labels: Sequence[str], simulated: bool) -> tuple[str, ...]:
    return (*labels, *((SIMULATED,) if simulated else ()))


def _ordered(data: FigureData) -> list[tuple[str, Mapping[Any, Any]]]:
    records = data.tables["summary"].to_dict("records")
    pairs = [(slot_of(r["layout"], r["placement"], r["workload"]), r) for r in records]
    slots = {slot: i for i, slot in enumerate(ordered_slots(slot for slot, _ in pairs))}
    return sorted(pairs, key=lambda p: (p[1]["workload"], slots[p[0]], p[1]["precision"]))


def _text(value: Any) -> str:
    return MISSING if value is None or value is pd.NA else str(value)


def _identity(slot: str, row: Mapping[Any, Any]) -> tuple[str, ...]:
    return (_text(row["workload"]), slot, _text(row["precision"]))


_IDENTITY = (Column("workload"), Column("layout · placement"), Column("precision"))


def _span(row: Mapping[Any, Any], figure: str, digits: int = 3) -> tuple[str, str]:
    return (
        number(row[figure], digits),
        interval(row[f"{figure}_low"], row[f"{figure}_high"], digits),
    )


def _summary(data: FigureData) -> Table:
    rows = [
        (
            *_identity(slot, row),
            f"{row['n']}/{row['runs']}",
            *_span(row, "throughput_samples_s"),
            number(row["throughput_tokens_s"]),
            number(row["step_p50_s"]),
            number(row["step_p95_s"]),
            number(row["peak_memory_mib"], 4),
            _text(row["peak_memory_source"]),
        )
        for slot, row in _ordered(data)
    ]
    percent = f"{100 * data.ratios.confidence:g} %"
    return Table(
        "summary",
        f"Throughput, step time and memory: medians over repeats; n is measured runs of all runs. "
        f"Intervals are bootstrap intervals of the median ({percent}).",
        (
            *_IDENTITY,
            Column("n"),
            Column("throughput (samples/s)", True),
            Column("interval (samples/s)", True),
            Column("tokens/s", True),
            Column("step p50 (s)", True),
            Column("step p95 (s)", True),
            Column("peak memory (MiB)", True),
            Column("memory source"),
        ),
        tuple(rows),
        _common((), data.simulated),
        "the campaign has no runs",
    )


def _energy(data: FigureData) -> Table:
    reasons = [
        "" if number(row["samples_per_j"]) != MISSING else _text(row["samples_per_j_reason"])
        for _, row in _ordered(data)
    ]
    # The column of reasons is there only when it says something.
    with_reasons = any(reasons)
    rows = [
        (
            *_identity(slot, row),
            *_span(row, "samples_per_j"),
            number(row["samples_per_net_j"]),
            number(row["mean_power_w"]),
            _text(row["energy_scope"]),
            _text(row["energy_method"]),
            *((reason,) if with_reasons else ()),
        )
        for (slot, row), reason in zip(_ordered(data), reasons, strict=True)
    ]
    return Table(
        "energy",
        "Samples per joule of gross energy of the scope (with its interval), per joule of net "
        "energy (gross less idle power times time), and mean power; medians over repeats.",
        (
            *_IDENTITY,
            Column("samples/J", True),
            Column("interval (samples/J)", True),
            Column("samples/J net", True),
            Column("mean power (W)", True),
            Column("scope"),
            Column("method"),
            *((Column("why none"),) if with_reasons else ()),
        ),
        tuple(rows),
        _common((MODELLED,) if data.modelled else (), data.simulated),
        "the campaign has no runs",
    )


def _ratio_row(ratio: Ratio) -> tuple[str, ...]:
    label = "; ".join(
        word for word, on in ((MODELLED, ratio.modelled), (SIMULATED, ratio.simulated)) if on
    )
    slot = slot_of(ratio.layout, ratio.placement, ratio.workload or "")
    between = f"{ratio.numerator} / {ratio.denominator}"
    workload = "" if ratio.workload in (None, ratio.numerator) else _text(ratio.workload)
    return (
        ratio.kind.replace("_", " "),
        workload,
        "" if slot.split(" · ")[0] in ratio.numerator else slot,
        "" if ratio.precision == ratio.numerator else ratio.precision,
        between,
        number(ratio.value),
        interval(ratio.ci_low, ratio.ci_high),
        str(ratio.n_pairs),
        label,
        _note(ratio),
    )


def _note(ratio: Ratio) -> str:
    """Why there is no value or interval, or what the value is over; the caption says the rest."""
    if ratio.reason:
        return ratio.reason
    notes = (ratio.note or "").split("; ")
    weak = weakness(ratio.n_pairs)
    shown = [note for note in notes if note and note != weak]
    return "; ".join([*shown, *(["range"] if weak else [])])


def _ratios(data: FigureData) -> Table:
    ratios = data.ratios.ratios
    return Table(
        "ratios",
        "Ratios paired by repeat: medians over pairs with bootstrap intervals "
        f"({100 * data.ratios.confidence:g} %); dimensionless. With fewer than {ENOUGH_REPEATS} "
        "pairs the interval is their range, which holds the true median in 50 % (2 pairs), 75 % "
        "(3) or 87.5 % (4) of cases at most.",
        (
            Column("kind"),
            Column("workload"),
            Column("layout · placement"),
            Column("precision"),
            Column("of"),
            Column("ratio (1)", True),
            Column("interval (1)", True),
            Column("pairs", True),
            Column("label"),
            Column("note"),
        ),
        tuple(_ratio_row(ratio) for ratio in ratios),
        _common((), data.simulated),
        "no two cells of the campaign can be compared",
    )


def _flags(row: Mapping[Any, Any]) -> list[str]:
    """What a reader should know of a run that has a measurement."""
    said = ("", "<NA>", "None", "modelled", "simulated")  # the labels say these for all runs
    flags = [flag for flag in str(row["energy_flags"]).split(";") if flag not in said]
    if row["warmup_steady"] is not pd.NA and row["warmup_steady"] is False:
        flags.append("warm-up was not steady")
    if row["conservation_ok"] is not pd.NA and row["conservation_ok"] is False:
        flags.append("throughput × time differs from the samples counted")
    if row["git_dirty"] is True:
        flags.append("made with uncommitted changes")
    return flags


def _outcomes(data: FigureData) -> Table:
    """Every run that is not plainly ok, with why."""
    runs = data.tables["runs"]
    rows = []
    for row in runs.to_dict("records"):
        flags = _flags(row)
        why = "" if row["reason"] is pd.NA or row["reason"] is None else str(row["reason"])
        if row["outcome"] == "ok" and not flags:
            continue
        measured = "yes" if row["outcome"] in MEASURED_OUTCOMES else "no"
        rows.append((row["run_id"], row["outcome"], measured, why, "; ".join(flags)))
    return Table(
        "outcomes",
        "Runs that are not plainly ok: their outcome and why. Runs with throughput count as "
        "measured; the others are in no median.",
        (
            Column("run"),
            Column("outcome"),
            Column("measured"),
            Column("why"),
            Column("flags"),
        ),
        tuple(rows),
        _common((), data.simulated),
        f"all {len(runs)} runs are ok and without flags" if len(runs) else "there are no runs",
    )


# --- other formats -------------------------------------------------------------------------------

_LATEX = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "·": r"\textperiodcentered{}",
    "×": r"$\times$",
    "–": "--",
    "…": r"\dots{}",
    "→": r"$\rightarrow$",
    "°": r"\textdegree{}",
}


def latex_text(text: str) -> str:
    """Text that LaTeX shows as it is."""
    return "".join(_LATEX.get(letter, letter) for letter in text)


def _is_number(text: str) -> bool:
    return text.replace(".", "", 1).replace("-", "", 1).isdigit()


def _siunitx_format(cells: Sequence[str]) -> str | None:
    """`table-format` of a column of numbers; None where it holds other text."""
    values = [cell for cell in cells if cell not in (MISSING, "")]
    if not values or not all(_is_number(value) for value in values):
        return None
    parts = [value.lstrip("-").partition(".") for value in values]
    return f"{max(len(p[0]) for p in parts)}.{max(len(p[2]) for p in parts)}"


def to_latex(table: Table) -> str:
    """A table environment for booktabs and siunitx; interval columns are text."""
    by_column = list(zip(*table.rows, strict=True)) if table.rows else [()] * len(table.columns)
    kinds, formats = [], []
    for column, cells in zip(table.columns, by_column, strict=True):
        found = _siunitx_format(cells) if column.numeric else None
        formats.append(found)
        kinds.append(f"S[table-format={found}]" if found else ("r" if column.numeric else "l"))
    caption = table.caption + (f" ({'; '.join(table.labels)})" if table.labels else "")
    lines = [
        "% Needs \\usepackage{booktabs,siunitx}",
        "\\begin{table}",
        f"  \\caption{{{latex_text(caption)}}}",
        f"  \\label{{tab:{table.name}}}",
        "  \\centering",
        f"  \\begin{{tabular}}{{{' '.join(kinds)}}}",
        "    \\toprule",
        "    "
        + " & ".join(f"{{{latex_text(column.title)}}}" for column in table.columns)
        + " \\\\",
        "    \\midrule",
    ]
    for row in table.rows:
        texts = [
            (f"{{{latex_text(cell)}}}" if form and not _is_number(cell) else latex_text(cell))
            for cell, form in zip(row, formats, strict=True)
        ]
        lines.append("    " + " & ".join(texts) + " \\\\")
    if not table.rows:
        width = len(table.columns)
        lines.append(f"    \\multicolumn{{{width}}}{{l}}{{{latex_text(table.empty)}}} \\\\")
    lines += ["    \\bottomrule", "  \\end{tabular}", "\\end{table}"]
    return "\n".join(lines) + "\n"


def to_markdown(table: Table) -> str:
    """A table in GitHub's dialect."""

    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"

    labels = f" **({'; '.join(table.labels)})**" if table.labels else ""
    head = [
        table.caption + labels,
        "",
        line([column.title for column in table.columns]),
        "|" + "|".join("---:" if column.numeric else "---" for column in table.columns) + "|",
    ]
    body = [line(row) for row in table.rows] or ["", table.empty]
    return "\n".join(head + body) + "\n"


def write_report_tables(tables: Mapping[str, Table], out_dir: Path) -> list[Path]:
    """Write each table as .tex and .md."""
    written = []
    for name, table in sorted(tables.items()):
        for suffix, text in ((".tex", to_latex(table)), (".md", to_markdown(table))):
            path = out_dir / f"{name}{suffix}"
            write_text(path, text)
            written.append(path)
    return written
