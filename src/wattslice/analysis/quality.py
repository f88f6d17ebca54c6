"""What may be claimed of a run: named checks, kept as data in `data/quality.yaml`.

A check compares one value of the run with a threshold. `reject` means that the figures which it
concerns (those of the run, or only its energy) must not be used; `flag` that they may, with the
note beside them. A value that was not had is skipped unless the check says otherwise: what does
not exist on a board cannot be wrong on it.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator

from wattslice.records.base import Record
from wattslice.records.board import Health
from wattslice.records.metrics import RunMetrics
from wattslice.records.run import MEASURED_OUTCOMES, RunRecord

Severity = Literal["reject", "flag"]
Concern = Literal["run", "energy"]
Badge = Literal["good", "flagged", "energy-rejected", "rejected"]
Comparison = Literal["<", "<=", ">", ">=", "=="]
Value = float | bool | tuple[str, ...] | None

_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
}


class Check(Record):
    """One rule, as in quality.yaml."""

    id: Annotated[str, Field(pattern=r"^[a-z0-9-]+$")]
    value: str
    good: tuple[Comparison, float | bool] | Literal["empty"]
    severity: Severity
    concerns: Concern
    boards: tuple[str, ...] = ()
    missing: Literal["skip", "flag", "reject"] = "skip"
    message: str
    source: str

    @field_validator("value")
    @classmethod
    def _known(cls, value: str) -> str:
        if value not in VALUES:
            raise ValueError(f"unknown value {value!r}; known are {', '.join(sorted(VALUES))}")
        return value


class Finding(Record):
    """A check that failed."""

    check: str
    severity: Severity
    concerns: Concern
    message: str
    value: float | bool | tuple[str, ...] | None
    source: str


class Quality(Record):
    """What the checks say of a run."""

    badge: Badge
    findings: tuple[Finding, ...]
    checked: tuple[str, ...] = Field(description="checks that had a value to judge")
    skipped: tuple[str, ...] = Field(description="checks without a value on this board")

    @property
    def run_valid(self) -> bool:
        """Throughput and all else of the run may be used."""
        return self.badge != "rejected"

    @property
    def energy_valid(self) -> bool:
        """Energy may be used."""
        return self.badge in ("good", "flagged")

    @property
    def why(self) -> tuple[str, ...]:
        """The findings in words, the grave ones first."""
        return tuple(finding.message for finding in self.findings)


@dataclass(frozen=True, slots=True)
class _Run:
    record: RunRecord
    metrics: RunMetrics | None

    def energy(self, name: str) -> Any:
        energy = None if self.metrics is None else self.metrics.energy
        return None if energy is None else getattr(energy, name)

    def flags(self, *names: str) -> tuple[str, ...]:
        return tuple(flag for flag in self.energy("flags") or () if flag in names)

    def event_share(self, *names: str) -> float | None:
        """Largest share of some event reasons; None on boards that report none at all."""
        if self.record.board is None or self.record.board.kind != "nvidia":
            return None
        shares: Mapping[str, float] = self.energy("event_shares") or {}
        in_window = max((shares.get(name, 0.0) for name in names), default=0.0)
        # After the run the reason may still stand, where no sample of the window has it.
        after = self.record.health_after
        return in_window or float(
            after is not None and any(n in after.event_reasons for n in names)
        )

    def health(self) -> tuple[Health, ...]:
        both = (self.record.health_before, self.record.health_after)
        return tuple(health for health in both if health is not None)


def _window_s(run: _Run) -> float | None:
    window = run.record.window
    return None if window is None else window.end_s - window.start_s


def _unsteady(run: _Run) -> tuple[str, ...]:
    return tuple(
        f"slice {worker.slice.index}"
        for worker in run.record.workers
        if worker.warmup is not None and not worker.warmup.steady
    )


def _foreign(run: _Run) -> tuple[str, ...]:
    found = [name for health in run.health() for name in health.foreign_processes]
    return tuple(dict.fromkeys(found))


def _drift(run: _Run) -> float | None:
    drift = run.energy("temperature_drift_c")
    return None if drift is None else abs(drift)


def _limit_change(run: _Run) -> float | None:
    limits = [health.power_limit_w.value for health in run.health()]
    known = [limit for limit in limits if limit is not None]
    return abs(known[1] - known[0]) if len(known) == 2 else None


def _error_share(run: _Run) -> float | None:
    samples, errors = run.energy("samples"), run.energy("errors")
    return errors / samples if samples else None


def _over_limit(run: _Run) -> float | None:
    if run.energy("scope") != "board":
        return None  # a module may draw more than the limit of its GPU
    mean_w = run.energy("mean_power_w")
    limits = [h.power_limit_w.value for h in run.health() if h.power_limit_w.value is not None]
    return mean_w / max(limits) if mean_w is not None and limits and max(limits) > 0 else None


def _conserved(run: _Run) -> bool | None:
    conservation = None if run.metrics is None else run.metrics.conservation
    return None if conservation is None else conservation.ok


def _meter_share(run: _Run) -> float | None:
    meter = run.record.meter
    if meter.cpu_s is None or meter.start_s is None or meter.end_s is None:
        return None
    duration_s = meter.end_s - meter.start_s
    # The first second holds the opening of the driver and the first burst.
    return meter.cpu_s / duration_s if duration_s > 5 else None


def _missed_share(run: _Run) -> float | None:
    meter = run.record.meter
    total = meter.missed + meter.samples
    return meter.missed / total if total else None


def _foreign_shares(run: _Run) -> dict[int, float]:
    """By slice, of the workers that compute on the CPU."""
    return {
        worker.slice.index: worker.foreign_cpu_share.value
        for worker in run.record.workers
        if worker.device.startswith("cpu") and worker.foreign_cpu_share.value is not None
    }


def _activity_mismatch(run: _Run) -> float | None:
    """How far the board's SM activity is from what its instances' add up to."""
    for reading in run.record.activities:
        if reading.value is not None and reading.by_instances is not None:
            return abs(reading.value - reading.by_instances)
    return None


def _git_dirty(run: _Run) -> bool | None:
    dirty = run.record.git.get("dirty")
    return dirty if isinstance(dirty, bool) else None


VALUES: dict[str, Callable[[_Run], Value]] = {
    "measured": lambda run: run.record.outcome in MEASURED_OUTCOMES,
    "window_s": _window_s,
    "unsteady_workers": _unsteady,
    "foreign_processes": _foreign,
    "thermal_share": lambda run: run.event_share("sw_thermal_slowdown", "hw_thermal_slowdown"),
    "power_brake_share": lambda run: run.event_share("hw_power_brake_slowdown", "hw_slowdown"),
    "power_cap_share": lambda run: run.event_share("sw_power_cap"),
    "temperature_drift_c": _drift,
    "power_limit_change_w": _limit_change,
    "gross_j": lambda run: run.energy("gross_j"),
    "net_j": lambda run: run.energy("net_j"),
    "coverage": lambda run: run.energy("coverage"),
    "max_gap_s": lambda run: run.energy("period_max_gap_s"),
    "error_share": _error_share,
    "disagreement": lambda run: run.energy("disagreement"),
    "power_over_limit": _over_limit,
    "implausible_flags": lambda run: run.flags("implausible-power"),
    "counter_flags": lambda run: run.flags(
        "counter-reset",
        "counter-frozen",
        "counter-jump",
        "counter-incomplete",
        "counter-unresolved",
    ),
    "aliasing_flags": lambda run: run.flags("aliasing"),
    "averaged_flags": lambda run: run.flags("power-averaged"),
    "modelled": lambda run: run.energy("modelled"),
    "simulated": lambda run: run.record.simulated,
    "conserved": _conserved,
    "meter_cpu_share": _meter_share,
    "missed_share": _missed_share,
    "activity_mismatch": _activity_mismatch,
    "git_dirty": _git_dirty,
    "foreign_cpu_share": lambda run: max(_foreign_shares(run).values(), default=None),
}


def load_checks(path: Path | None = None) -> tuple[Check, ...]:
    """The project's checks, or those of another file of the same form.

    Raises ValueError (pydantic's) where a check is malformed or names an unknown value.
    """
    if path is None:
        return _own_checks()
    return _parse(path.read_text(encoding="utf-8"))


@functools.cache
def _own_checks() -> tuple[Check, ...]:
    data = resources.files("wattslice.analysis").joinpath("data/quality.yaml")
    return _parse(data.read_text(encoding="utf-8"))


def _parse(text: str) -> tuple[Check, ...]:
    import yaml

    checks = tuple(Check.model_validate(entry) for entry in yaml.safe_load(text)["checks"])
    names = [check.id for check in checks]
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise ValueError(f"checks with the same id: {', '.join(sorted(twice))}")
    return checks


def evaluate(
    record: RunRecord, metrics: RunMetrics | None, checks: tuple[Check, ...] | None = None
) -> Quality:
    """Put a run through the checks. `metrics` may be None where a run has none."""
    run = _Run(record, metrics)
    findings: list[Finding] = []
    checked, skipped = [], []
    for check in load_checks() if checks is None else checks:
        kind = None if record.board is None else record.board.kind
        if check.boards and kind not in check.boards:
            continue
        # A run that gave no measurement is rejected for that; the rest would only repeat it.
        if check.value != "measured" and record.outcome not in MEASURED_OUTCOMES:
            skipped.append(check.id)
            continue
        value = VALUES[check.value](run)
        if value is None and check.missing == "skip":
            skipped.append(check.id)
            continue
        checked.append(check.id)
        finding = _judge(check, value, run)
        if finding is not None:
            findings.append(finding)
    findings.sort(key=lambda finding: (finding.severity != "reject", finding.concerns != "run"))
    return Quality(
        badge=_badge(findings),
        findings=_without_echoes(findings),
        checked=tuple(checked),
        skipped=tuple(skipped),
    )


def _badge(findings: list[Finding]) -> Badge:
    rejects = {finding.concerns for finding in findings if finding.severity == "reject"}
    if "run" in rejects:
        return "rejected"
    if "energy" in rejects:
        return "energy-rejected"
    return "flagged" if findings else "good"


def _without_echoes(findings: list[Finding]) -> tuple[Finding, ...]:
    """A flag with the message of a rejection (two thresholds of one value) says nothing new."""
    rejected = {f.message for f in findings if f.severity == "reject"}
    return tuple(f for f in findings if f.severity == "reject" or f.message not in rejected)


def _judge(check: Check, value: Value, run: _Run) -> Finding | None:
    if value is None:
        severity: Severity = "reject" if check.missing == "reject" else "flag"
    elif _is_good(check, value):
        return None
    else:
        severity = check.severity
    threshold = None if check.good == "empty" else check.good[1]
    message = check.message.format(
        value=value, threshold=threshold, detail=_detail(check, value, run)
    )
    return Finding(
        check=check.id,
        severity=severity,
        concerns=check.concerns,
        message=message,
        value=value,
        source=check.source,
    )


def _is_good(check: Check, value: Value) -> bool:
    if check.good == "empty":
        return not value
    name, threshold = check.good
    if isinstance(value, float) and math.isnan(value):
        return False
    return _OPERATORS[name](value, threshold)


def _detail(check: Check, value: Value, run: _Run) -> str:
    """What stands behind a failed check, in the words of the record."""
    if check.value in _DETAILS:
        return _DETAILS[check.value](run)
    return ", ".join(value) if isinstance(value, tuple) else ""


def _why_no_energy(run: _Run) -> str:
    found = None if run.metrics is None else run.metrics.energy_reason or run.energy("reason")
    return str(found or run.record.meter.reason or "no reason was recorded")


def _why_not_conserved(run: _Run) -> str:
    conservation = None if run.metrics is None else run.metrics.conservation
    return "" if conservation is None else "; ".join(conservation.notes)


_DETAILS: dict[str, Callable[[_Run], str]] = {
    "measured": lambda run: ": ".join(filter(None, (run.record.outcome, run.record.reason))),
    "gross_j": _why_no_energy,
    "net_j": lambda run: str(
        run.energy("idle_source") or "the idle power of this layout is not known"
    ),
    "conserved": _why_not_conserved,
    "foreign_cpu_share": lambda run: ", ".join(
        f"slice {index}: {share:.1%}" for index, share in _foreign_shares(run).items()
    ),
    "aliasing_flags": lambda run: "; ".join(
        run.energy("notes") or ("lengthen the window, or jitter the steps",)
    ),
}
