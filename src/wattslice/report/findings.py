"""Findings in sentences; every sentence is made from numbers, with their intervals."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pandas as pd

from wattslice.analysis.ratios import Ratio
from wattslice.analysis.statistics import ENOUGH_REPEATS, range_coverage
from wattslice.records.run import MEASURED_OUTCOMES
from wattslice.report.charts.base import MODELLED, SIMULATED, FigureData, slot_of
from wattslice.report.charts.planner_error import error_sentence
from wattslice.report.job_sets import job_sets, sentences
from wattslice.report.numbers import with_interval

MOST_SENTENCES_OF_A_KIND = 6
_BOARD_AS_ONE = {"full": "the whole board", "7g": "one instance of all slices (7g)"}


@dataclass(frozen=True, slots=True)
class Finding:
    """A sentence and the labels that must stand beside it."""

    text: str
    labels: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Topic:
    """Findings that belong together."""

    title: str
    findings: tuple[Finding, ...]


def findings(data: FigureData) -> list[Topic]:
    """All sentences of a campaign, by topic. Only what a number stands behind is said."""
    confidence = data.ratios.confidence
    topics = {
        "Runs": [*_outcomes(data), *_quality(data), *_weakness(data)],
        "Throughput": _extremes(
            data, "throughput_samples_s", "throughput", "samples/s", confidence
        ),
        "Precision": _precision(data, "precision_speedup", "throughput", confidence),
        "Partition": _partition(data, "partition_throughput", "throughput", confidence),
        "Layouts for jobs": [*_mixes(data, confidence), *_planner(data)],
        "Workloads compared": _workloads(data, confidence),
        "Energy": [
            *_extremes(data, "samples_per_j", "work per joule", "samples/J", confidence),
            *_precision(data, "precision_energy_gain", "samples per joule", confidence),
            *_partition(data, "partition_energy_per_sample", "energy per sample", confidence),
        ],
    }
    return [
        Topic(title, tuple(_marked(finding, data.simulated) for finding in members))
        for title, members in topics.items()
        if members
    ]


def _marked(finding: Finding, simulated: bool) -> Finding:
    """A finding of a simulated campaign says so."""
    if not simulated or SIMULATED in finding.labels:
        return finding
    return Finding(finding.text, (*finding.labels, SIMULATED))


def _labels(ratios: Iterable[Ratio]) -> tuple[str, ...]:
    return (MODELLED,) if any(ratio.modelled for ratio in ratios) else ()


def _count(number_of: int, what: str) -> str:
    return f"{number_of} {what}" + ("" if number_of == 1 else "s")


def _outcomes(data: FigureData) -> list[Finding]:
    runs = data.tables["runs"]
    if runs.empty:
        return [Finding("The campaign has 0 runs.")]
    counts = Counter(runs["outcome"])
    ok = counts.pop("ok", 0)
    text = f"{ok} of {_count(len(runs), 'run')} ended without a fault"
    if counts:
        text += "; the others: " + ", ".join(f"{n} {name}" for name, n in sorted(counts.items()))
    return [Finding(text + ".")]


def _quality(data: FigureData) -> list[Finding]:
    """How many runs the checks reject, and by which."""
    runs = data.tables["runs"]
    if runs.empty:
        return []
    badges = Counter(runs["badge"])
    measured = runs["outcome"].isin(MEASURED_OUTCOMES)
    checks: Counter[str] = Counter()
    for names in runs.loc[measured, "quality_rejects"].dropna():
        checks.update(name for name in str(names).split(";") if name)
    parts = [
        f"{badges[badge]} {badge}"
        for badge in ("good", "flagged", "energy-rejected", "rejected")
        if badges[badge]
    ]
    text = f"By the quality checks, of {_count(len(runs), 'run')} there are {', '.join(parts)}"
    if checks:
        text += "; rejecting checks: " + ", ".join(
            f"{name} ({n})" for name, n in sorted(checks.items())
        )
    return [Finding(text + ".")]


def _extremes(
    data: FigureData, figure: str, what: str, unit: str, confidence: float
) -> list[Finding]:
    """The highest and the lowest median of each task, as samples of tasks do not compare."""
    summary = data.tables["summary"]
    have = summary[summary[figure].notna()]
    found = []
    for task, group in list(have.groupby("task", sort=True))[:MOST_SENTENCES_OF_A_KIND]:
        if len(group) < 2:
            continue
        order = group.sort_values([figure, "layout", "placement", "precision"])
        low, high = order.iloc[0], order.iloc[-1]
        labels: tuple[str, ...] = ()
        if figure == "samples_per_j" and bool(group["modelled"].any()):
            labels = (MODELLED,)
        found.append(
            Finding(
                f"Of the {len(group)} cells of {task}, the highest {what} is "
                f"{_cell(high, figure, unit, confidence)}; the lowest is "
                f"{_cell(low, figure, unit, confidence)}.",
                labels,
            )
        )
    return found


def _cell(row: pd.Series, figure: str, unit: str, confidence: float) -> str:
    value = with_interval(
        row[figure],
        row[f"{figure}_low"],
        row[f"{figure}_high"],
        confidence,
        n=_count(int(row[f"{figure}_n"]), "repeat"),
        unit=f" {unit}",
    )
    slot = slot_of(row["layout"], row["placement"], row["workload"])
    return f"{value}, {row['workload']} in {row['precision']} on {slot}"


def _value(ratio: Ratio, confidence: float, n: str = "pair") -> str:
    return with_interval(
        ratio.value,
        ratio.ci_low,
        ratio.ci_high,
        confidence,
        n=_count(ratio.n_pairs, n),
        unit="×",
    )


def _resolved(ratios: Sequence[Ratio]) -> str:
    """How many ratios differ from 1 by their interval."""
    above = sum(r.ci_low is not None and r.ci_low > 1 for r in ratios)
    below = sum(r.ci_high is not None and r.ci_high < 1 for r in ratios)
    neither = len(ratios) - above - below
    return (
        f"{above} of {len(ratios)} intervals lie above 1, {below} below, {neither} "
        f"{'does' if neither == 1 else 'do'} not tell"
    )


def _slot(ratio: Ratio) -> str:
    return slot_of(ratio.layout, ratio.placement, ratio.workload or "")


def _precision(data: FigureData, kind: str, what: str, confidence: float) -> list[Finding]:
    groups: dict[tuple[bool, str, str, str], list[Ratio]] = {}
    for ratio in data.ratios.ratios:
        if ratio.kind == kind and ratio.value is not None:
            slot = _slot(ratio)
            key = (not slot.startswith("full "), slot, ratio.numerator, ratio.denominator)
            groups.setdefault(key, []).append(ratio)
    found = []
    ordered = sorted(groups.items())
    for (_, slot, top, bottom), members in ordered[:MOST_SENTENCES_OF_A_KIND]:
        members.sort(key=lambda r: (r.value or 0.0, r.name))
        least, most = members[0], members[-1]
        text = f"On {slot}, {top} gives {_value(most, confidence)} the {what} of {bottom} for "
        if len(members) == 1:
            text += f"{most.workload}."
        else:
            text += (
                f"{most.workload}, the most, and {_value(least, confidence)} for "
                f"{least.workload}, the least; {_resolved(members)}."
            )
        mean = _mean(data, kind, slot, top, bottom)
        if mean is not None:
            text += f" The geometric mean over {mean.note or ''}".split(";")[0]
            text += f" is {_value(mean, confidence, 'block')}."
        found.append(Finding(text, _labels(members)))
    return found + _rest(len(ordered), what, _labels(m for _, ms in ordered for m in ms))


def _rest(
    groups: int, what: str, labels: tuple[str, ...] = (), *, table: str = "ratios"
) -> list[Finding]:
    """What was left out of the sentences is said, and where it stands."""
    left = groups - MOST_SENTENCES_OF_A_KIND
    if left <= 0:
        return []
    return [Finding(f"{left} more comparisons of {what} are in the table of {table}.", labels)]


def _mean(data: FigureData, kind: str, slot: str, top: str, bottom: str) -> Ratio | None:
    if kind != "precision_speedup":
        return None
    for ratio in data.ratios.ratios:
        same = f"{ratio.layout} · {ratio.placement}" == slot
        if ratio.kind != "precision_speedup_geomean" or not same or ratio.value is None:
            continue
        if (ratio.numerator, ratio.denominator) == (top, bottom):
            return ratio
    return None


def _partition(data: FigureData, kind: str, what: str, confidence: float) -> list[Finding]:
    groups: dict[tuple[str, str], list[Ratio]] = {}
    for ratio in data.ratios.ratios:
        if ratio.kind == kind and ratio.value is not None:
            groups.setdefault((ratio.denominator, ratio.layout), []).append(ratio)
    found = []
    ordered = sorted(groups.items(), key=lambda item: (item[0][0] != "full", item[0]))
    for (base, layout), members in ordered[:MOST_SENTENCES_OF_A_KIND]:
        members.sort(key=lambda r: (r.value or 0.0, r.name))
        low, high = members[0], members[-1]
        text = (
            f"Filling {layout} with a process on each slice gives {_value(high, confidence)} the "
            f"{what} of one process on {_BOARD_AS_ONE[base]} for {high.workload} in "
            f"{high.precision}"
        )
        if len(members) > 1:
            text += (
                f", the most, and {_value(low, confidence)} for {low.workload} in "
                f"{low.precision}, the least; {_resolved(members)}"
            )
        found.append(Finding(text + ".", _labels(members)))
    return found + _rest(len(groups), what, _labels(m for ms in groups.values() for m in ms))


def _mixes(data: FigureData, confidence: float) -> list[Finding]:
    sets = job_sets(data)
    found = [
        Finding(sentences(own, confidence), (MODELLED,) if own.modelled else ())
        for own in sets[:MOST_SENTENCES_OF_A_KIND]
    ]
    return found + _rest(len(sets), "jobs at once", table="mixes")


def _planner(data: FigureData) -> list[Finding]:
    if data.validation is None or not data.validation.summary:
        return []
    labels = (MODELLED,) if data.validation.modelled else ()
    return [Finding(error_sentence(data.validation), labels)]


def _workloads(data: FigureData, confidence: float) -> list[Finding]:
    times = [r for r in data.ratios.ratios if r.kind == "workload_time" and r.value is not None]
    whole = [r for r in times if r.layout == "full"] or times
    memory = {
        (r.numerator, r.denominator, r.layout, r.placement, r.precision): r
        for r in data.ratios.ratios
        if r.kind == "workload_memory" and r.value is not None
    }
    found = []
    for ratio in whole[:MOST_SENTENCES_OF_A_KIND]:
        key = (
            ratio.numerator,
            ratio.denominator,
            ratio.layout,
            ratio.placement,
            ratio.precision,
        )
        text = (
            f"On {_slot(ratio)} in {ratio.precision}, {ratio.numerator} takes "
            f"{_value(ratio, confidence)} the time per sample of {ratio.denominator}"
        )
        if key in memory:
            text += f" and {_value(memory[key], confidence)} its peak memory"
        found.append(Finding(text + "."))
    return found + _rest(len(whole), "workloads")


def _weakness(data: FigureData) -> list[Finding]:
    """How few repeats there are, and what that does to the intervals."""
    counts = [int(n) for n in data.tables["summary"]["n"] if int(n) > 0]
    if not counts or min(counts) >= ENOUGH_REPEATS:
        return []
    least = min(counts)
    if least == 1:
        text = "Some cells have 1 measured repeat: they have no interval, and show no spread."
    else:
        text = (
            f"Some cells have {least} measured repeats: their interval is the range of the "
            f"repeats and holds the true median with {100 * range_coverage(least):g} % at most. "
            f"Read them as directions; {ENOUGH_REPEATS} repeats or more carry an interval."
        )
    return [Finding(text)]
