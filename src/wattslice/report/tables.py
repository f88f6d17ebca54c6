"""The report's tables, once, for html, LaTeX (booktabs, siunitx) and Markdown."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import pandas as pd

from wattslice.analysis.claims import ClaimResult, ClaimTable
from wattslice.analysis.quality import load_checks
from wattslice.analysis.ratios import Ratio
from wattslice.analysis.rows import WHY_SEPARATOR
from wattslice.analysis.statistics import ENOUGH_REPEATS, weakness
from wattslice.files import write_text
from wattslice.records.run import MEASURED_OUTCOMES
from wattslice.report.charts.base import MODELLED, SIMULATED, FigureData, ordered_slots, slot_of
from wattslice.report.charts.slice_rows import workers
from wattslice.report.job_sets import MEASURES, Gain, JobSet, Option, job_sets
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


def report_tables(data: FigureData, claims: ClaimTable | None = None) -> dict[str, Table]:
    """claims, summary, energy, mixes, slices, attribution, ratios, quality and outcomes."""
    made = (
        _claims(data, claims),
        _summary(data),
        _energy(data),
        _mixes(data),
        _slices(data),
        _attribution(data),
        _ratios(data),
        _quality(data),
        _outcomes(data),
    )
    return {table.name: table for table in made}


def claim_value(claim: ClaimResult) -> str:
    """The value found, with its interval and the number of blocks."""
    value = claim.value
    if value.value is None:
        return MISSING
    span = interval(value.low, value.high)
    if claim.verdict == "rehearsed only":
        return f"{number(value.value)} (rehearsed)"
    if span == MISSING or value.low == value.high:
        return f"{number(value.value)} (n={value.n})"
    return f"{number(value.value)} ({span}, n={value.n})"


def _claims(data: FigureData, claims: ClaimTable | None) -> Table:
    rows = [
        (
            claim.id,
            claim.statement,
            claim.verdict,
            claim_value(claim),
            claim.published_says or claim.expectation or "no public number",
            claim.why,
        )
        for claim in (claims.claims if claims else ())
    ]
    modelled = bool(claims and any(claim.modelled for claim in claims.claims))
    return Table(
        "claims",
        "Claims and their verdicts; values with their interval "
        f"({100 * data.ratios.confidence:g} %) over n blocks (repeat and board).",
        (
            Column("claim"),
            Column("statement"),
            Column("verdict"),
            Column("value here"),
            Column("published or expected"),
            Column("why"),
        ),
        tuple(rows),
        _common((MODELLED,) if modelled else (), data.simulated),
        "the campaign names no claims",
    )


def _common(labels: Sequence[str], simulated: bool) -> tuple[str, ...]:
    return (*labels, *((SIMULATED,) if simulated else ()))


def _ordered(data: FigureData) -> list[tuple[str, Mapping[Any, Any]]]:
    records = data.tables["summary"].to_dict("records")
    pairs = [(slot_of(r["layout"], r["placement"], r["workload"]), r) for r in records]
    slots = {slot: i for i, slot in enumerate(ordered_slots(slot for slot, _ in pairs))}
    return sorted(pairs, key=lambda p: (p[1]["workload"], slots[p[0]], p[1]["precision"]))


def _text(value: Any) -> str:
    return MISSING if pd.isna(value) else str(value)


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
            number(row["idle_w"]),
            _text(row["energy_scope"]),
            _text(row["energy_method"]),
            *((reason,) if with_reasons else ()),
        )
        for (slot, row), reason in zip(_ordered(data), reasons, strict=True)
    ]
    return Table(
        "energy",
        "Samples per joule of gross energy of the scope (with its interval), per joule of net "
        "energy (gross less idle power times time), mean power, and idle power of the same layout; "
        "medians over repeats.",
        (
            *_IDENTITY,
            Column("samples/J", True),
            Column("interval (samples/J)", True),
            Column("samples/J net", True),
            Column("mean power (W)", True),
            Column("idle power (W)", True),
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


def _mixes(data: FigureData) -> Table:
    """A row per way to run jobs at once and baseline."""
    sets = job_sets(data)
    rows = [
        _mix_row(own, option, baseline)
        for own in sets
        for option in own.options.values()
        for baseline in own.baselines()
        if any((measure, baseline) in option.gains for measure in MEASURES)
    ]
    return Table(
        "mixes",
        "Jobs that run at once, in each layout, against each baseline: gain in work per time and "
        "energy saved for the same work, medians over repeats with their interval "
        f"({100 * data.ratios.confidence:g} %; of fewer than {ENOUGH_REPEATS} repeats the range, "
        "of a prediction its bounds). Above 0 the layout is better; docs/job-sets.md has formulas.",
        (
            Column("jobs"),
            Column("precision"),
            Column("layout"),
            Column("against"),
            Column("work per time (%)", True),
            Column("interval (%)", True),
            Column("energy saved (%)", True),
            Column("interval (%)", True),
            Column("repeats", True),
            Column("best in"),
            Column("why none"),
        ),
        tuple(rows),
        _common((MODELLED,) if any(own.modelled for own in sets) else (), data.simulated),
        "no experiment of the campaign places a mix or a job list",
    )


def _mix_row(own: JobSet, option: Option, baseline: str) -> tuple[str, ...]:
    gains = [option.gains.get((measure, baseline), Gain(None)) for measure in MEASURES]
    cells = [text for gain in gains for text in (number(gain.value), interval(gain.low, gain.high))]
    best = [measure for measure in MEASURES if own.best(measure) == option.label]
    repeats = max(gain.n for gain in gains)
    return (
        f"{own.name}: {own.jobs}",
        own.precision,
        option.label,
        baseline,
        *cells,
        str(repeats) if repeats else MISSING,
        ", ".join(best),
        "; ".join(dict.fromkeys(gain.reason for gain in gains if gain.reason)),
    )


def _slices(data: FigureData) -> Table:
    """Medians by kind of slice in runs with several slices; energy is an estimate."""
    runs = data.tables["runs"]
    windows = {
        str(run_id): float(window)
        for run_id, window in zip(runs["run_id"], runs["window_s"], strict=True)
        if not pd.isna(window)
    }
    groups: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for row in workers(data):
        shared = row["kind"] in ("fill", "mix") and row["slice"] != "full"
        if row["throughput_samples_s"] is None or not shared:
            continue
        place = f"{row['layout']} · {row['placement']}"
        group = (row["workload"], place, row["slice"], row["precision"])
        groups.setdefault(group, []).append(row)
    rows = []
    for key, members in sorted(groups.items()):
        watts = [
            m["energy_estimate_j"] / windows[m["run_id"]]
            for m in members
            if m["energy_estimate_j"] is not None and m["run_id"] in windows
        ]
        per_j = [
            m["samples_per_j_estimate"] for m in members if m["samples_per_j_estimate"] is not None
        ]
        methods = sorted({_text(m["energy_estimate_method"]) for m in members})
        rows.append(
            (
                *key,
                str(len(members)),
                number(median(m["throughput_samples_s"] for m in members)),
                number(median(watts) if watts else None),
                number(median(per_j) if per_j else None),
                ", ".join(methods),
            )
        )
    return Table(
        "slices",
        "Slices of runs with several slices: medians over slices of a kind and repeats. Power and "
        "samples per joule of a slice are estimates (no meter sees a slice): the board's energy "
        "above idle is shared out among the busy slices by the method named; idle energy stays "
        "with the board.",
        (
            Column("workload"),
            Column("layout · placement"),
            Column("slice"),
            Column("precision"),
            Column("n", True),
            Column("throughput (samples/s)", True),
            Column("power above idle, estimate (W)", True),
            Column("samples/J, estimate", True),
            Column("method"),
        ),
        tuple(rows),
        _common((MODELLED,) if data.modelled else (), data.simulated),
        "no run has several slices",
    )


def _attribution(data: FigureData) -> Table:
    """Errors of the rules that share energy out, against Shapley shares of the same runs."""
    groups: dict[tuple[str, str, str], list[Mapping[Any, Any]]] = {}
    for row in data.tables["attribution"].to_dict("records"):
        place = f"{row['layout']} · {row['placement']}"
        rule = row["method"] if not pd.isna(row["shapley_j"]) else "every rule"
        groups.setdefault((place, str(row["precision"]), rule), []).append(row)
    rows = []
    for key, members in sorted(groups.items()):
        had = [m for m in members if not pd.isna(m["error_j"])]
        relative = [abs(m["relative_error"]) for m in had if not pd.isna(m["relative_error"])]
        misplaced = _misplaced_shares(had)
        rows.append(
            (
                *key,
                str(len({m["run_id"] for m in members})),
                number(100 * median(misplaced) if misplaced else None),
                number(100 * max(relative) if relative else None),
                "; ".join(
                    sorted({_text(m["error_reason"]) for m in members if pd.isna(m["error_j"])})
                ),
            )
        )
    return Table(
        "attribution",
        "Errors of the rules by which energy is shared out among slices, against Shapley shares: "
        "what each slice adds to the board's power, averaged over all orders in which the slices "
        "could start. For these the board must have been measured with every subset of the jobs, "
        "in the same layout; where it was not, the table says so.",
        (
            Column("layout · placement"),
            Column("precision"),
            Column("rule"),
            Column("runs", True),
            Column("energy given to the wrong slice (%)", True),
            Column("largest error of a slice (%)", True),
            Column("why none"),
        ),
        tuple(rows),
        _common((MODELLED,) if data.modelled else (), data.simulated),
        "no run with several busy slices has energy to share out",
    )


def _misplaced_shares(rows: Sequence[Mapping[Any, Any]]) -> list[float]:
    """Of each run, which share of the energy above idle a rule gave to the wrong slices."""
    runs: dict[str, list[Mapping[Any, Any]]] = {}
    for row in rows:
        runs.setdefault(str(row["run_id"]), []).append(row)
    return [
        sum(abs(m["error_j"]) for m in members) / 2 / shared
        for members in runs.values()
        if (shared := sum(abs(m["shapley_j"]) for m in members)) > 0
    ]


def _quality(data: FigureData) -> Table:
    """A row per check that some run failed, with an example."""
    known = {check.id: check for check in load_checks()}
    found: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for row in data.tables["runs"].to_dict("records"):
        names = [
            (severity, name)
            for severity, column in (("reject", "quality_rejects"), ("flag", "quality_flags"))
            for name in _text(row[column]).split(";")
            if name not in ("", MISSING)
        ]
        why = _text(row["quality_why"]).split(WHY_SEPARATOR)
        for key, message in zip(names, why, strict=False):
            found.setdefault(key, []).append((str(row["run_id"]), message))
    runs = len(data.tables["runs"])
    rows = [
        (
            name,
            severity,
            known[name].concerns if name in known else MISSING,
            f"{len(members)}/{runs}",
            members[0][1],
            members[0][0],
            known[name].source if name in known else MISSING,
        )
        for (severity, name), members in sorted(
            found.items(), key=lambda item: (item[0][0] != "reject", -len(item[1]), item[0][1])
        )
    ]
    return Table(
        "quality",
        "Checks that runs failed. What a check rejects is in no median, ratio or claim (on a "
        "simulated board it is shown, and no claim rests on it); what it flags is, with this note.",
        (
            Column("check"),
            Column("severity"),
            Column("concerns"),
            Column("runs"),
            Column("example"),
            Column("of run"),
            Column("where the threshold comes from"),
        ),
        tuple(rows),
        _common((), data.simulated),
        f"all {runs} runs passed every check" if runs else "there are no runs",
    )


def _outcomes(data: FigureData) -> Table:
    """Every run that gave no measurement, or whose figures or energy a check rejects."""
    runs = data.tables["runs"]
    rows = []
    for row in runs.to_dict("records"):
        badge = _text(row["badge"])
        if row["outcome"] == "ok" and badge in ("good", "flagged"):
            continue
        measured = "yes" if row["outcome"] in MEASURED_OUTCOMES else "no"
        why = "" if pd.isna(row["reason"]) else str(row["reason"])
        rejects = _text(row["quality_rejects"])
        if row["outcome"] in MEASURED_OUTCOMES and rejects not in ("", MISSING):
            count = len(rejects.split(";"))
            messages = _text(row["quality_why"]).split(WHY_SEPARATOR)[:count]
            why = "; ".join([*([why] if why else []), *messages])
        rows.append((row["run_id"], row["outcome"], measured, badge, why))
    return Table(
        "outcomes",
        "Runs that are not plainly ok: their outcome and why. Runs with throughput count as "
        "measured; the others are in no median.",
        (
            Column("run"),
            Column("outcome"),
            Column("measured"),
            Column("badge"),
            Column("why"),
        ),
        tuple(rows),
        _common((), data.simulated),
        f"all {len(runs)} runs are ok, and no check rejects one"
        if len(runs)
        else "there are no runs",
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


# Text longer than this many characters gets a column that breaks lines.
_WIDE = 28
# A table of more rows than this, or one with broken lines, may go over a page.
_PAGE_ROWS = 30


def _paragraphs(lengths: Mapping[int, int], columns: int) -> dict[int, str]:
    """Widths of the columns that break lines: what the others leave, by what they hold."""
    total = sum(min(length, 120) for length in lengths.values())
    room = max(0.3, 0.94 - 0.085 * (columns - len(lengths)))
    return {
        index: f">{{\\raggedright\\arraybackslash}}p{{{room * min(length, 120) / total:.2f}"
        "\\linewidth}"
        for index, length in lengths.items()
    }


def _heading(title: str) -> str:
    """A heading with its unit on a line of its own."""
    parts = [
        latex_text(part) for part in title.replace(" (", "\n(").replace(", ", ",\n").split("\n")
    ]
    if len(parts) == 1:
        return f"{{{parts[0]}}}"
    return "{\\shortstack{" + "\\\\".join(parts) + "}}"


def to_latex(table: Table) -> str:
    """A table for booktabs and siunitx, as longtable where it may not fit on a page.

    Interval columns are text; long texts are in columns that break lines.
    """
    by_column = list(zip(*table.rows, strict=True)) if table.rows else [()] * len(table.columns)
    lengths = {
        index: max(len(cell) for cell in cells)
        for index, (column, cells) in enumerate(zip(table.columns, by_column, strict=True))
        if cells and not column.numeric and max(len(cell) for cell in cells) > _WIDE
    }
    wide = _paragraphs(lengths, len(table.columns))
    kinds, formats = [], []
    for index, (column, cells) in enumerate(zip(table.columns, by_column, strict=True)):
        found = _siunitx_format(cells) if column.numeric else None
        formats.append(found)
        plain = "r" if column.numeric else wide.get(index, "l")
        kinds.append(f"S[table-format={found}]" if found else plain)
    caption = table.caption + (f" ({'; '.join(table.labels)})" if table.labels else "")
    head = " & ".join(_heading(column.title) for column in table.columns) + " \\\\"
    named = f"\\caption{{{latex_text(caption)}}}", f"\\label{{tab:{table.name}}}"
    body = []
    for row in table.rows:
        texts = []
        for index, (cell, form) in enumerate(zip(row, formats, strict=True)):
            text = latex_text(cell)
            if index in wide:  # run ids and sums of names may break
                text = text.replace("/", "/\\allowbreak{}").replace("+", "+\\allowbreak{}")
            texts.append(f"{{{text}}}" if form and not _is_number(cell) else text)
        body.append("    " + " & ".join(texts) + " \\\\")
    if not table.rows:
        width = len(table.columns)
        body.append(f"    \\multicolumn{{{width}}}{{l}}{{{latex_text(table.empty)}}} \\\\")
    columns = " ".join(kinds)
    lines = ["% Needs \\usepackage{array,booktabs,longtable,siunitx}"]
    small = ["\\begingroup\\footnotesize\\setlength{\\tabcolsep}{3pt}"]
    if wide or len(table.rows) > _PAGE_ROWS:
        lines += [
            *small,
            f"\\begin{{longtable}}{{{columns}}}",
            f"    {named[0]}{named[1]} \\\\",
            "    \\toprule",
            f"    {head}",
            "    \\midrule",
            "    \\endfirsthead",
            "    \\toprule",
            f"    {head}",
            "    \\midrule",
            "    \\endhead",
            *body,
            "    \\bottomrule",
            "\\end{longtable}",
        ]
    else:
        lines += [
            *small,
            "\\begin{table}",
            *(f"  {line}" for line in named),
            "  \\centering",
            f"  \\begin{{tabular}}{{{columns}}}",
            "    \\toprule",
            f"    {head}",
            "    \\midrule",
            *body,
            "    \\bottomrule",
            "  \\end{tabular}",
            "\\end{table}",
        ]
    return "\n".join([*lines, "\\endgroup"]) + "\n"


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


def to_csv(table: Table) -> str:
    """A table as CSV, the cells as the report shows them; labels are in a last column."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*(column.title for column in table.columns), "labels"])
    labels = "; ".join(table.labels)
    writer.writerows(
        [*("" if cell == MISSING else cell for cell in row), labels] for row in table.rows
    )
    return text.getvalue()


def write_report_tables(tables: Mapping[str, Table], out_dir: Path) -> list[Path]:
    """Write each table as .tex, .md and .csv."""
    written = []
    for name, table in sorted(tables.items()):
        for suffix, text in (
            (".tex", to_latex(table)),
            (".md", to_markdown(table)),
            (".csv", to_csv(table)),
        ):
            path = out_dir / f"{name}{suffix}"
            write_text(path, text)
            written.append(path)
    return written
