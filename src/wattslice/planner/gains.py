"""Measured mixes against each named baseline, never against an unnamed one.

For a mix on a layout with rates r_j and mean power P, and alone on `full` (or `7g`) b_j and B_j:

    progress p = Σ r_j / b_j, of a baseline that runs all jobs at once likewise: p_base
    sequential on full, on 7g    gain = p - 1           energy = P / Σ (r_j / b_j) B_j
    time-slice, mps on full      gain = p / p_base - 1  energy = (P / p) / (P_base / p_base)

Both sides are of one block (repeat and board). Values are medians over blocks with their interval.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wattslice.analysis.statistics import Estimate, estimate
from wattslice.planner.table import read_frame
from wattslice.records.base import Record
from wattslice.records.run import MEASURED_OUTCOMES

WHOLE = ("full", "7g")
GAINS_SCHEMA_VERSION = 1


class MeasuredGain(Record):
    """A mix on a layout against one baseline; null with the reason where it was not had."""

    mix: str
    layout: str
    precision: str
    base: str
    throughput_gain: float | None
    throughput_gain_low: float | None
    throughput_gain_high: float | None
    energy_saved: float | None
    energy_saved_low: float | None
    energy_saved_high: float | None
    blocks: int
    runs: tuple[str, ...]
    base_runs: tuple[str, ...]
    reason: str | None = None
    note: str | None = None
    simulated: bool
    modelled: bool


class GainTable(Record):
    """analysis/mix-gains.json."""

    schema_version: int = GAINS_SCHEMA_VERSION
    confidence: float
    gains: tuple[MeasuredGain, ...]


@dataclass(frozen=True, slots=True)
class _Run:
    """A usable run with the throughput of each worker."""

    row: Mapping[str, Any]
    rates: tuple[tuple[str, float], ...]

    @property
    def block(self) -> tuple[str, int, str]:
        return str(self.row["precision"]), int(self.row["repeat"]), str(self.row["board_uuid"])

    @property
    def power_w(self) -> float | None:
        if self.row["badge"] == "energy-rejected" and not self.row["simulated"]:
            return None
        value = self.row["mean_power_w"]
        return None if value is None else float(value)


def split_placement(placement: str) -> tuple[str, str] | None:
    """(mix, scheme) of a placement label; None for solo, fill, and parts of a packed list."""
    parts = placement.split(".")
    if parts[0] != "mix" or len(parts) < 2:
        return None
    scheme = parts[2] if len(parts) > 2 else "partition"
    return None if "of" in scheme and scheme[0].isdigit() else (parts[1], scheme)


def mix_gains(
    runs: Sequence[Mapping[str, Any]], slices: Sequence[Mapping[str, Any]], confidence: float
) -> GainTable:
    """Every mix on every layout against every baseline that the campaign has.

    `runs` and `slices` are the rows of the tables of those names.
    """
    usable = list(_usable(runs, slices))
    alone: dict[tuple[str, str, tuple[str, int, str]], _Run] = {}
    shared: dict[tuple[str, str, str], list[_Run]] = {}
    mixes: dict[tuple[str, str, str], list[_Run]] = {}
    for run in usable:
        layout, placement = str(run.row["layout"]), str(run.row["placement"])
        found = split_placement(placement)
        if found is None:
            if layout in WHOLE and len(run.rates) == 1:
                alone.setdefault((layout, run.rates[0][0], run.block), run)
            continue
        mix, scheme = found
        if scheme == "partition":
            mixes.setdefault((mix, layout, str(run.row["precision"])), []).append(run)
        else:
            shared.setdefault((mix, f"{scheme} on {layout}", run.block[0]), []).append(run)
    gains = []
    for (mix, layout, precision), members in sorted(mixes.items()):
        for whole in WHOLE:
            if any(key[0] == whole for key in alone):
                pairs = [(run, _sequential(run, whole, alone)) for run in members]
                gains.append(
                    _gain((mix, layout, precision), f"sequential on {whole}", pairs, confidence)
                )
        for (other, base, used), theirs in sorted(shared.items()):
            if other == mix and used == precision:
                by_block = {run.block: run for run in theirs}
                pairs = [(run, _together(run, by_block.get(run.block), alone)) for run in members]
                gains.append(_gain((mix, layout, precision), base, pairs, confidence))
    return GainTable(confidence=confidence, gains=tuple(gains))


def _usable(
    runs: Sequence[Mapping[str, Any]], slices: Sequence[Mapping[str, Any]]
) -> Iterator[_Run]:
    workers: dict[str, list[Mapping[str, Any]]] = {}
    for row in slices:
        workers.setdefault(str(row["run_id"]), []).append(row)
    for row in runs:
        if row["outcome"] not in MEASURED_OUTCOMES:
            continue
        if row["badge"] == "rejected" and not row["simulated"]:
            continue
        own = workers.get(str(row["run_id"]), [])
        rates = [(str(w["workload"]), w["throughput_samples_s"]) for w in own]
        if rates and all(rate is not None and rate > 0 for _, rate in rates):
            yield _Run(row, tuple((name, float(rate)) for name, rate in rates))


@dataclass(frozen=True, slots=True)
class _Pair:
    """A block: progress and energy over those of the base, or why there are none."""

    progress: float | None
    energy: float | None
    base_runs: tuple[str, ...] = ()
    reason: str | None = None
    modelled: bool = False


_Alone = Mapping[tuple[str, str, tuple[str, int, str]], _Run]


def _sequential(run: _Run, whole: str, alone: _Alone) -> _Pair:
    progress, joules, base_runs = 0.0, 0.0, []
    modelled, energy = bool(run.row["modelled"]), run.power_w is not None
    for workload, rate in run.rates:
        base = alone.get((whole, workload, run.block))
        if base is None:
            return _Pair(None, None, reason=f"{workload} was not run alone on {whole}")
        part = rate / base.rates[0][1]
        progress += part
        modelled = modelled or bool(base.row["modelled"])
        base_runs.append(str(base.row["run_id"]))
        if base.power_w is None:
            energy = False
        else:
            joules += part * base.power_w
    ratio = run.power_w / joules if energy and run.power_w is not None and joules > 0 else None
    return _Pair(progress, ratio, tuple(sorted(set(base_runs))), None, modelled)


def _together(run: _Run, base: _Run | None, alone: _Alone) -> _Pair:
    if base is None:
        return _Pair(None, None, reason="the baseline was not measured in the same block")
    for whole in WHOLE:
        ours, theirs = _sequential(run, whole, alone), _sequential(base, whole, alone)
        if ours.progress is not None and theirs.progress is not None:
            energy = None
            if run.power_w is not None and base.power_w:
                energy = (run.power_w / ours.progress) / (base.power_w / theirs.progress)
            modelled = bool(run.row["modelled"]) or bool(base.row["modelled"])
            names = (str(base.row["run_id"]),)
            return _Pair(ours.progress / theirs.progress, energy, names, None, modelled)
    return _Pair(None, None, reason="the jobs were run alone on neither full nor 7g")


def _gain(
    labels: tuple[str, str, str], base: str, pairs: Sequence[tuple[_Run, _Pair]], confidence: float
) -> MeasuredGain:
    mix, layout, precision = labels
    progress = estimate([p.progress for _, p in pairs if p.progress is not None], confidence)
    energy = estimate([p.energy for _, p in pairs if p.energy is not None], confidence)
    reasons = sorted({p.reason for _, p in pairs if p.reason is not None})
    if progress.value is not None and energy.value is None:
        reasons.append("no energy on one of the sides")
    return MeasuredGain(
        mix=mix,
        layout=layout,
        precision=precision,
        base=base,
        throughput_gain=None if progress.value is None else progress.value - 1.0,
        throughput_gain_low=None if progress.low is None else progress.low - 1.0,
        throughput_gain_high=None if progress.high is None else progress.high - 1.0,
        **_saved(energy),
        blocks=progress.n,
        runs=tuple(str(run.row["run_id"]) for run, _ in pairs),
        base_runs=tuple(sorted({name for _, pair in pairs for name in pair.base_runs})),
        reason="; ".join(reasons) or progress.reason,
        note=progress.note,
        simulated=any(bool(run.row["simulated"]) for run, _ in pairs),
        modelled=any(pair.modelled for _, pair in pairs),
    )


def _saved(ratio: Estimate) -> dict[str, float | None]:
    return {
        "energy_saved": None if ratio.value is None else 1.0 - ratio.value,
        "energy_saved_low": None if ratio.high is None else 1.0 - ratio.high,
        "energy_saved_high": None if ratio.low is None else 1.0 - ratio.low,
    }


def read_gains(tables: Path, confidence: float = 0.95) -> GainTable:
    """The gains of a campaign, from its folder of tables."""
    return mix_gains(read_frame(tables, "runs"), read_frame(tables, "slices"), confidence)
