"""Busy layouts against the same work done one job after another on the undivided board.

In a window a layout with several busy slices does W_i samples of each workload i on E joules. The
base (the whole board, `full`, or one instance of all slices, `7g`) would do the same work, job
after job, in Σ W_i / r_i seconds on Σ W_i / e_i joules, where r_i is its throughput and e_i its
samples per joule with workload i alone. Divided by the length of the window:

    progress      Σ w_i / r_i                 w_i = throughput of workload i in the layout, 1/s
    energy_ratio  P / Σ (w_i / e_i)           P = mean power of the board in the layout, W
    power_ratio   energy_ratio x progress     mean power over the base's mean power, 1
    saving        1 - energy_ratio
    gain          progress - 1
    time_saving   1 - 1 / progress

Progress above 1 is work done faster than by the base. It holds for unlike workloads, whose samples
do not add up; with one workload it is the plain ratio of throughputs. Both sides are of one block
(one repeat on one board) and of one precision. Energy is the board's, so nothing is attributed.

A baseline that runs the same jobs at once without slices (time slicing, MPS) is taken against the
same sequential base, and the two are divided:

    progress      p / p_shared              energy_ratio   energy_ratio / energy_ratio_shared
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

BASES = ("full", "7g")
MIX_FIGURES = ("progress", "energy_ratio", "power_ratio", "saving", "gain", "time_saving")
ENERGY_MIX_FIGURES = frozenset({"energy_ratio", "power_ratio", "saving"})

# Kinds of ratios over a baseline, and what a ratio above 1 is: a gain (1) or a loss (-1).
GAINS = {"mix_progress": 1, "mix_energy": -1}

Row = Mapping[str, Any]
_LABEL = re.compile(
    r"mix\.(?P<name>[^.]+)(?:\.(?P<part>\d+of\d+))?(?:\.(?P<scheme>(?:time-slice|mps).*))?"
)


@dataclass(frozen=True, slots=True)
class MixLabel:
    """What a placement label says of a mix: its name, which part of a job list, and the scheme."""

    name: str
    part: str | None  # e.g. 1of2, where a layout has too few slices for the whole list
    scheme: str  # partition, time-slice, mps, mps-50-50

    @classmethod
    def parse(cls, placement: str) -> MixLabel | None:
        """None for what is no mix: solo, fill, ddp."""
        match = _LABEL.fullmatch(placement)
        if match is None:
            return None
        return cls(match["name"], match["part"], match["scheme"] or "partition")


def gain_percent(kind: str, ratio: float) -> float:
    """The gain that a ratio of one of `GAINS` is: more work per time, or energy saved, in %."""
    return 100.0 * GAINS[kind] * (ratio - 1.0)


def sequential_on(base: str) -> str:
    """Name of the baseline that runs one job after another on `full` or `7g`."""
    return f"sequential on {base}"


def mix_rows(cells: Sequence[Row]) -> list[dict[str, Any]]:
    """A row per run with several busy slices and per base that the campaign has.

    `cells` are the rows of the table of that name, None for what is missing.
    """
    bases: dict[tuple[str, str, str, int, str], Row] = {}
    runs: dict[str, list[Row]] = {}
    for cell in cells:
        if cell["layout"] in BASES and cell["kind"] in ("solo", "fill"):
            bases.setdefault(_key(cell, str(cell["layout"]), str(cell["precision"])), cell)
        # On a base itself several jobs are there only under a scheme without partitions.
        if cell["kind"] == "mix" or (cell["kind"] == "fill" and cell["layout"] not in BASES):
            runs.setdefault(str(cell["run_id"]), []).append(cell)
    # With no run of a base, nothing can be said against it.
    have = [base for base in BASES if any(key[0] == base for key in bases)]
    return [_row(members, base, bases) for members in runs.values() for base in have]


def _key(cell: Row, base: str, precision: str) -> tuple[str, str, str, int, str]:
    return (
        base,
        str(cell["workload"]),
        precision,
        int(cell["repeat"]),
        str(cell["board_uuid"] or ""),
    )


def _row(
    members: list[Row], base: str, bases: Mapping[tuple[str, str, str, int, str], Row]
) -> dict[str, Any]:
    first = members[0]
    precision = str(first["precision"])
    pairs = [(cell, bases.get(_key(cell, base, precision))) for cell in members]
    others = [other for _, other in pairs if other is not None]
    modes = {cell["mode"] for cell in members}
    sizes = [cell["parameters"] for cell in members if cell["parameters"] is not None]
    names = sorted(str(cell["workload"]) for cell in members)
    row: dict[str, Any] = {
        "run_id": first["run_id"],
        "layout": first["layout"],
        "placement": first["placement"],
        "group": str(first["placement"]).removeprefix(f"{first['workload']}."),
        "kind": first["kind"],
        "sharing": first["sharing"],
        "precision": precision,
        "repeat": first["repeat"],
        "board": first["board"],
        "board_kind": first["board_kind"],
        "board_uuid": first["board_uuid"],
        "base": base,
        "baseline": sequential_on(base),
        "workload": names[0] if len(names) == 1 else None,
        "workloads": "+".join(sorted(map(_counted, members))),
        "mode": modes.pop() if len(modes) == 1 else "several",
        "parameters": max(sizes) if sizes else None,
        "simulated": any(cell["simulated"] for cell in (*members, *others)),
        "modelled": any(cell["modelled"] for cell in (*members, *others)),
        "energy_scope": first["energy_scope"],
        "base_runs": tuple(sorted(str(other["run_id"]) for other in others)),
    }
    progress, reason = _progress(pairs, base)
    energy, energy_reason = _energy(pairs, base) if progress is not None else (None, reason)
    figures = {
        "progress": progress,
        "gain": None if progress is None else progress - 1.0,
        "time_saving": None if progress is None else 1.0 - 1.0 / progress,
        "energy_ratio": energy,
        "saving": None if energy is None else 1.0 - energy,
        "power_ratio": None if energy is None or progress is None else energy * progress,
    }
    for name in MIX_FIGURES:
        row[name] = figures[name]
        row[f"{name}_reason"] = energy_reason if name in ENERGY_MIX_FIGURES else reason
    return row


def _counted(cell: Row) -> str:
    """A workload, and how many workers train it where there are several."""
    count = int(cell["workers"] or 1)
    return str(cell["workload"]) if count == 1 else f"{count} x {cell['workload']}"


def _progress(
    pairs: Sequence[tuple[Row, Row | None]], base: str
) -> tuple[float | None, str | None]:
    total = 0.0
    for cell, other in pairs:
        if other is None:
            return None, f"{cell['workload']} was not run on {base} in the same repeat"
        for side in (cell, other):
            if not side["throughput_samples_s"]:
                why = side["throughput_samples_s_reason"] or "its throughput is 0"
                return None, f"{side['placement']} on {side['layout']}: {why}"
        total += cell["throughput_samples_s"] / other["throughput_samples_s"]
    return total, None


def _energy(pairs: Sequence[tuple[Row, Row | None]], base: str) -> tuple[float | None, str | None]:
    power_w = pairs[0][0]["mean_power_w"]
    if not power_w:
        return None, str(pairs[0][0]["mean_power_w_reason"] or "the mean power is 0")
    base_w = 0.0  # joules that the base needs for the work of one second
    for cell, other in pairs:
        if other is None or not other["samples_per_j"]:
            why = None if other is None else other["samples_per_j_reason"]
            return None, f"{base}: {why or 'no energy'}"
        base_w += cell["throughput_samples_s"] / other["samples_per_j"]
    return power_w / base_w, None


# --- against the same jobs at once, without slices -----------------------------------------------


def shared_rows(rows: Iterable[Row]) -> list[dict[str, Any]]:
    """A row per mix on slices and per baseline that ran the same jobs at once on one slice.

    `rows` are those of `mix_rows`. A part of a job list is not the work of the whole list: its
    row has no figures but the reason.
    """
    ours: dict[str, list[Row]] = {}
    theirs: dict[tuple[str, str], dict[str, list[Row]]] = {}
    for row in rows:
        label = MixLabel.parse(str(row["placement"]))
        if label is None:
            continue
        if label.scheme == "partition":
            ours.setdefault(str(row["run_id"]), []).append(row)
        else:
            baseline = f"{label.scheme} on {row['layout']}"
            of_mix = theirs.setdefault((label.name, str(row["precision"])), {})
            of_mix.setdefault(baseline, []).append(row)
    return [row for members in ours.values() for row in _against_shared(members, theirs)]


def _against_shared(
    members: Sequence[Row], theirs: Mapping[tuple[str, str], Mapping[str, Sequence[Row]]]
) -> Iterator[dict[str, Any]]:
    """One run (a row per sequential base) against each shared baseline of its mix."""
    first = members[0]
    label = MixLabel.parse(str(first["placement"]))
    assert label is not None
    for baseline, shared in theirs.get((label.name, str(first["precision"])), {}).items():
        if label.part is not None:
            yield _divided(first, None, baseline, f"{baseline}: all jobs at once, not this part")
            continue
        blocks = {(row["base"], row["repeat"], row["board_uuid"]): row for row in shared}
        pairs = [
            (row, blocks.get((row["base"], row["repeat"], row["board_uuid"]))) for row in members
        ]
        # Any sequential base will do as the common measure; one that both sides have is taken.
        row, other = next(
            (pair for pair in pairs if pair[0]["progress"] and pair[1] and pair[1]["progress"]),
            pairs[0],
        )
        yield _divided(row, other, baseline, f"{baseline}: no run in the same repeat")


def _divided(row: Row, other: Row | None, baseline: str, missing: str) -> dict[str, Any]:
    divided: dict[str, Any] = {**row, "baseline": baseline, **dict.fromkeys(MIX_FIGURES)}
    divided["base_runs"] = () if other is None else (str(other["run_id"]),)
    for flag in ("simulated", "modelled"):
        divided[flag] = bool(row[flag]) or (other is not None and bool(other[flag]))
    for name in ("progress", "energy_ratio"):
        ours, theirs = row[name], None if other is None else other[name]
        if ours and theirs:
            divided[name], divided[f"{name}_reason"] = ours / theirs, None
            continue
        reasons = [row[f"{name}_reason"], missing if other is None else other[f"{name}_reason"]]
        divided[f"{name}_reason"] = "; ".join(str(reason) for reason in reasons if reason)
    return divided
