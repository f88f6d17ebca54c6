"""metrics.json: the figures of one run, from its raw files only."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from wattslice.records.base import Quantity, Record
from wattslice.records.energy import EnergyResult
from wattslice.records.run import Outcome

METRICS_SCHEMA_VERSION = 2


class WorkerMetrics(Record):
    """Figures of one training process in the window that all workers of the run share."""

    slice_index: int
    slice_name: str = Field(description="name as the campaign writes it, e.g. 1g or 1c")
    profile: str = Field(description="the board's exact name, e.g. 1g.10gb")
    workload: str
    outcome: Outcome
    reason: str | None = None
    batch_size: int | None = None
    sample_unit: str | None = None
    parameters: int | None = None
    device: str | None = None
    threads: int | None = None
    warmup_steady: bool | None = None
    steps: Quantity = Field(description="work in the window, steps; fractional at its edges")
    whole_steps: int = Field(description="steps that lie inside the window as a whole")
    samples: Quantity = Field(description="work in the window, samples; fractional at its edges")
    tokens: Quantity = Field(description="samples x tokens per sample")
    throughput_samples_s: Quantity = Field(description="samples / window, 1/s")
    throughput_tokens_s: Quantity = Field(description="tokens / window, 1/s")
    step_p50_s: Quantity = Field(description="median duration of the whole steps inside, s")
    step_p95_s: Quantity = Field(description="95th percentile of the whole steps inside, s")
    data_wait_share: Quantity = Field(description="time waiting for data / time of steps, 0..1")
    peak_memory_mib: Quantity = Field(description="peak memory, MiB, of `peak_memory_source`")
    peak_memory_source: str | None = Field(
        default=None, description="cuda-allocated (the framework's allocator) or rss (the process)"
    )
    covered_share: float | None = Field(
        default=None, description="share of the window that the recorded steps tile, 0..1"
    )
    loss_first: float | None = None
    loss_last: float | None = None


class Conservation(Record):
    """throughput x time = samples, checked against an independent count of the steps."""

    ok: bool
    relative_error: float | None = Field(
        description="largest of all workers: |rate integrated over the window - samples| / samples"
    )
    limit: float
    notes: tuple[str, ...] = ()


class QualityFinding(Record):
    """A named check that failed, as `wattslice.analysis.quality` found it."""

    check: str
    severity: Literal["reject", "flag"]
    concerns: Literal["run", "energy"]
    message: str
    value: float | bool | tuple[str, ...] | None
    source: str


class RunQuality(Record):
    """What the named checks say of a run.

    rejected: no figure of it may be used; energy-rejected: all but its energy may; flagged: all
    may, with the notes beside them; good: nothing was found.
    """

    badge: Literal["good", "flagged", "energy-rejected", "rejected"]
    findings: tuple[QualityFinding, ...]
    checked: tuple[str, ...] = Field(description="checks that had a value to judge")
    skipped: tuple[str, ...] = Field(description="checks without a value on this board")

    def reject_reason(self, *concerns: str) -> str | None:
        """Why figures that rest on `concerns` (run, energy) may not be used; None if they may."""
        found = [
            f"{finding.check}: {finding.message}"
            for finding in self.findings
            if finding.severity == "reject" and finding.concerns in concerns
        ]
        return "rejected by quality check " + "; ".join(found) if found else None


class RunMetrics(Record):
    """Figures of one run. A figure is null with the reason where it could not be had."""

    schema_version: int = METRICS_SCHEMA_VERSION
    run_id: str
    campaign: str
    layout: str
    placement: str
    precision: str
    repeat: int
    outcome: Outcome
    reason: str | None = None
    simulated: bool
    spec_digest: str
    code_digest: str
    run_sha256: str = Field(description="sha256 of the run.json that this was made from")
    board_uuid: str | None
    window_s: Quantity
    workload: str | None = Field(description="the one workload of the run; null for a mix")
    workers: tuple[WorkerMetrics, ...]
    samples: Quantity = Field(description="work of all workers in the window, samples")
    tokens: Quantity
    throughput_samples_s: Quantity = Field(description="of all workers together, 1/s")
    throughput_tokens_s: Quantity
    step_p50_s: Quantity = Field(description="median over the whole steps of all workers, s")
    step_p95_s: Quantity
    energy: EnergyResult | None
    energy_reason: str | None = Field(default=None, description="why there is no energy at all")
    mean_power_w: Quantity = Field(description="of the energy's scope, W")
    samples_per_j: Quantity = Field(description="samples / gross energy of the scope, 1/J")
    samples_per_net_j: Quantity = Field(description="samples / (gross - idle x time), 1/J")
    j_per_sample: Quantity = Field(description="gross energy of the scope / samples, J")
    conservation: Conservation | None
    quality: RunQuality
