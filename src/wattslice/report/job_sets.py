"""Which layout is best for a set of jobs: what it gains, against which baseline, how sure that is.

One source for the figure, the table and the sentences of the report. Gains are in percent: 38 is
38 % more work per time, or 38 % less energy for the same work; above 0 the layout is better.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from wattslice.analysis.mixes import BASES, GAINS, MixLabel, gain_percent, sequential_on
from wattslice.analysis.ratios import Ratio
from wattslice.analysis.statistics import ENOUGH_REPEATS, estimate
from wattslice.planner.records import ValidatedRun, Validation
from wattslice.report.charts.base import FigureData
from wattslice.report.numbers import interval, number, with_interval

SPEED, ENERGY = "work per time", "energy saved"
MEASURES = (SPEED, ENERGY)
_KINDS = dict(zip(GAINS, MEASURES, strict=True))
_COMPARED = {"progress": SPEED, "energy_ratio": ENERGY}


@dataclass(frozen=True, slots=True)
class Gain:
    """A gain (%) against one baseline; `value` is None with the reason where it was not had."""

    value: float | None
    low: float | None = None
    high: float | None = None
    n: int = 0  # repeats; 0 for a prediction
    reason: str | None = None
    by_block: dict[str, float] = field(default_factory=dict)
    runs: frozenset[str] = frozenset()  # that it comes from, on both sides

    @property
    def sure(self) -> bool | None:
        """Whether the whole interval is above 0 (True) or below (False); None: it does not tell.

        Of few repeats it is a range, which tells a direction at most.
        """
        if self.n < ENOUGH_REPEATS or self.low is None or self.high is None:
            return None
        return None if self.low <= 0.0 <= self.high else self.low > 0.0

    @property
    def predicted(self) -> bool:
        return self.n == 0

    def text(self, confidence: float) -> str:
        """The gain with its interval and its repeats."""
        if self.predicted:
            return f"{number(self.value)} % predicted ({interval(self.low, self.high)})"
        n = f"{self.n} repeat" + ("" if self.n == 1 else "s")
        return with_interval(self.value, self.low, self.high, confidence, n=n, unit=" %")


@dataclass(frozen=True, slots=True)
class Option:
    """One way to run a set of jobs at once: a layout, or a scheme without slices."""

    label: str
    gains: dict[tuple[str, str], Gain] = field(default_factory=dict)  # by measure and baseline

    def known(self, measure: str) -> dict[str, Gain]:
        """The gains that there are, by baseline."""
        return {
            baseline: gain
            for (of, baseline), gain in self.gains.items()
            if of == measure and gain.value is not None
        }


@dataclass(frozen=True, slots=True)
class Ranking:
    """The options by their gain against one baseline, best first."""

    baseline: str
    options: tuple[Option, ...]
    first_in: int  # repeats in which the best option was the best
    repeats: int  # that all options have


@dataclass(slots=True)
class JobSet:
    """Jobs that were run at once in one precision, in every way that was tried."""

    name: str
    jobs: str
    precision: str
    modelled: bool = False
    failed_checks: Mapping[str, Sequence[str]] = field(default_factory=dict)  # by run
    options: dict[str, Option] = field(default_factory=dict)

    @property
    def title(self) -> str:
        return f"{self.name} ({self.jobs}) in {self.precision}"

    def put(self, label: str, measure: str, baseline: str, gain: Gain) -> None:
        self.options.setdefault(label, Option(label)).gains[measure, baseline] = gain

    def baselines(self) -> list[str]:
        """All baselines, one job after another on the whole board first, then on 7g."""
        found = {baseline for option in self.options.values() for _, baseline in option.gains}
        first = [sequential_on(base) for base in BASES if sequential_on(base) in found]
        return [*first, *sorted(found - set(first))]

    def ranking(self, measure: str) -> Ranking | None:
        """By the first baseline that any option has a gain against; None where there is none."""
        for baseline in self.baselines():
            gains = {
                label: option.known(measure)[baseline]
                for label, option in self.options.items()
                if baseline in option.known(measure)
            }
            if not gains:
                continue
            order = sorted(gains, key=lambda label: -(gains[label].value or 0.0))
            blocks = set.intersection(*(set(gain.by_block) for gain in gains.values()))
            winners = Counter(max(order, key=lambda la: gains[la].by_block[b]) for b in blocks)
            return Ranking(
                baseline,
                tuple(self.options[label] for label in order),
                winners[order[0]],
                len(blocks),
            )
        return None

    def best(self, measure: str) -> str | None:
        """Label of the best option."""
        ranking = self.ranking(measure)
        return None if ranking is None else ranking.options[0].label


def job_sets(data: FigureData) -> list[JobSet]:
    """The campaign's mixes and job lists, and the jobs of the planner's check where it was made."""
    sets: dict[tuple[str, str, str], JobSet] = {}
    failed_checks = _failed_checks(data)
    for ratio in data.ratios.ratios:
        label = MixLabel.parse(ratio.placement)
        if label is None or ratio.kind not in _KINDS:
            continue
        part = "" if label.part is None else f", part {label.part.replace('of', ' of ')}"
        key = (label.name + part, ratio.numerator.replace("+", " + "), ratio.precision)
        own = sets.setdefault(key, JobSet(*key, failed_checks=failed_checks))
        own.modelled = own.modelled or ratio.modelled
        way = "" if label.scheme == "partition" else f", {label.scheme}"
        own.put(ratio.layout + way, _KINDS[ratio.kind], ratio.denominator, _measured(ratio))
    found = [sets[key] for key in sorted(sets)]
    return found if data.validation is None else [*found, _planned(data.validation)]


def _gain(
    measure: str,
    value: float | None,
    ends: tuple[float | None, float | None],
    blocks: Mapping[str, float] | None = None,
    reason: str | None = None,
) -> Gain:
    """The gain that a ratio over the baseline, its interval and its repeats are."""
    (kind,) = (kind for kind, of in _KINDS.items() if of == measure)

    def percent(ratio: float) -> float:
        return gain_percent(kind, ratio)

    by_block = {block: percent(ratio) for block, ratio in (blocks or {}).items()}
    if value is None:
        return Gain(None, reason=reason)
    low, high = sorted(percent(end) for end in ends if end is not None) or (None, None)
    return Gain(percent(value), low, high, len(by_block), None, by_block)


def _failed_checks(data: FigureData) -> dict[str, list[str]]:
    """Names of the quality checks that each run failed; what the labels say is left out."""
    rows = data.tables["runs"].fillna({"quality_flags": "", "quality_rejects": ""})
    return {
        str(row["run_id"]): [
            name
            for name in f"{row['quality_rejects']};{row['quality_flags']}".split(";")
            if name not in ("", "modelled", "simulated")
        ]
        for row in rows.to_dict("records")
    }


def _measured(ratio: Ratio) -> Gain:
    gain = _gain(
        _KINDS[ratio.kind],
        ratio.value,
        (ratio.ci_low, ratio.ci_high),
        {pair.block: pair.value for pair in ratio.pairs},
        ratio.reason,
    )
    sides = [run for pair in ratio.pairs for run in (pair.numerator_run, pair.denominator_run)]
    return replace(gain, runs=frozenset(run for side in sides for run in side.split(" + ")))


def _planned(validation: Validation) -> JobSet:
    """The jobs that the planner was checked with: measured, and predicted beside it."""
    own = JobSet(
        "jobs of the plan", " + ".join(validation.jobs), validation.precision, validation.modelled
    )
    baseline = sequential_on(validation.reference)
    for label, runs in validated_layouts(validation).items():
        for name, measure in _COMPARED.items():
            figures = [each for run in runs for each in run.figures if each.name == name]
            if not figures:
                continue
            first = figures[0]
            blocks = {
                f"rep{number}": each.measured
                for number, each in enumerate(figures, start=1)
                if each.measured is not None
            }
            found = estimate(list(blocks.values()))
            measured = _gain(measure, found.value, (found.low, found.high), blocks, first.reason)
            predicted = _gain(measure, first.predicted, (first.low, first.high))
            own.put(label, measure, baseline, measured)
            own.put(label, measure, f"predicted, {baseline}", predicted)
    return own


def validated_layouts(validation: Validation) -> dict[str, list[ValidatedRun]]:
    """The runs of each layout and assignment; the assignment is named where a layout has two."""
    found: dict[tuple[str, tuple[str, ...]], list[ValidatedRun]] = {}
    for run in validation.runs:
        slices = tuple(f"{f.workload} on {f.slice}" for f in run.figures if f.name == "throughput")
        found.setdefault((run.layout, slices), []).append(run)
    several = Counter(layout for layout, _ in found)
    return {
        layout if several[layout] == 1 else f"{layout}: {', '.join(slices)}": runs
        for (layout, slices), runs in found.items()
    }


# --- in words ------------------------------------------------------------------------------------


def headline(own: JobSet, confidence: float) -> str:
    """Which layout, what gain over the first baseline, how sure; `sentences` has all baselines."""
    ranking = own.ranking(SPEED)
    if ranking is None:
        return _no_gain(own)
    best, baseline = ranking.options[0], ranking.baseline
    gain = best.known(SPEED)[baseline]
    text = f"{own.title}: {best.label} gains {gain.text(confidence)} in work per time"
    saved = best.known(ENERGY).get(baseline)
    if saved is not None:
        text += f" and saves {saved.text(confidence)} of the energy"
    text += f" against {baseline}; it is {_place(ranking)}"
    if gain.n < ENOUGH_REPEATS:
        text += f", which fewer than {ENOUGH_REPEATS} repeats cannot make sure"
    elif gain.sure is None:
        text += ", but the interval holds 0: it is not sure"
    elif not gain.sure:
        text += f", but surely slower than {baseline}"
    failed = Counter(name for run in gain.runs for name in own.failed_checks.get(run, ()))
    if failed:
        checks = ", ".join(f"{name} ({count})" for name, count in sorted(failed.items()))
        text += f"; checks failed in its {len(gain.runs)} runs: {checks}"
    return f"{text}."


def sentences(own: JobSet, confidence: float) -> str:
    """The best layouts with their gains over every baseline, and which of them are sure."""
    speed, energy = own.ranking(SPEED), own.ranking(ENERGY)
    if speed is None:
        return _no_gain(own)
    best = speed.options[0]
    text = f"{own.title}: {best.label} is {_place(speed)}, with a gain in work per time of "
    text += _listed(best, SPEED, confidence)
    if energy is not None:
        thrifty = energy.options[0]
        who = "it" if thrifty.label == best.label else thrifty.label
        most = " most" if len(energy.options) > 1 else ""
        text += f"; {who} saves{most} energy for the same work: "
        text += _listed(thrifty, ENERGY, confidence)
    return f"{text}. {_how_sure(best)}"


def _no_gain(own: JobSet) -> str:
    reasons = {gain.reason for option in own.options.values() for gain in option.gains.values()}
    return f"{own.title}: no gain is known ({'; '.join(sorted(filter(None, reasons)))})."


def _place(ranking: Ranking) -> str:
    """How many options there were, and in how many repeats this one was the best."""
    count = len(ranking.options)
    if count == 1:
        return "the only way that was run"
    return f"the best of {count} ways (in {ranking.first_in} of {ranking.repeats} repeats)"


def _listed(option: Option, measure: str, confidence: float) -> str:
    return ", ".join(
        gain.text(confidence) + ("" if gain.predicted else f" against {baseline}")
        for baseline, gain in option.known(measure).items()
    )


def _how_sure(option: Option) -> str:
    """Which of the comparisons of work per time the intervals decide."""
    known = {name: g for name, g in option.known(SPEED).items() if not g.predicted}
    if all(gain.n < ENOUGH_REPEATS for gain in known.values()):
        return f"Fewer than {ENOUGH_REPEATS} repeats give a direction, and nothing sure."
    parts = [
        f"{word} {', '.join(names)}"
        for word, state in (("faster than", True), ("slower than", False), ("not told from", None))
        if (names := [name for name, gain in known.items() if gain.sure is state])
    ]
    return f"By the intervals it is {'; '.join(parts)}."
