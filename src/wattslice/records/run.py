"""The record of one run: everything that its figures can be traced back to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints, model_validator

from wattslice.records.base import Quantity, Record
from wattslice.records.board import BoardIdentity, EnergyScope, Health, LayoutState, SliceState
from wattslice.records.migrations import RUN_SCHEMA_VERSION, migrate_run

KnownOutcome = Literal[
    "ok",
    "oom",
    "unsupported_precision",
    "unsupported_layout",
    "wrong_device",
    "disturbed",
    "sampling_insufficient",
    "energy_unavailable",
    "diverged",
]
Outcome = KnownOutcome | Annotated[str, StringConstraints(pattern=r"^error:[a-z0-9_-]+$")]
# Outcomes whose throughput is a valid measurement (energy may still be missing).
MEASURED_OUTCOMES: tuple[str, ...] = ("ok", "energy_unavailable", "sampling_insufficient")


class RawFile(Record):
    """A raw file of a run, relative to the run's folder."""

    name: str
    sha256: str
    bytes: int


class Warmup(Record):
    """How a worker came to its steady state."""

    steps: int
    duration_s: float
    steady: bool = Field(description="False: the cap ended the warm-up before it was steady")
    step_time_cv: float | None = Field(description="coefficient of variation of the last steps")


class DataFingerprint(Record):
    """Which data a worker trained on."""

    name: str
    kind: str
    real: bool = Field(description="False: synthetic, so a falling loss is not asked for")
    samples: int
    sha256: str = Field(description="digest of the tensors that the workload was fed from")
    source: str


class MemoryPeak(Record):
    """Peak memory of a worker, MiB; null where the device has no such figure."""

    rss_mib: float = Field(description="resident high-water mark of the process")
    rss_base_mib: float | None = Field(
        default=None, description="resident size before the model was built: what libraries take"
    )
    cuda_allocated_mib: float | None = None
    cuda_reserved_mib: float | None = None
    device_used_mib: float | None = Field(
        default=None,
        description="in use on the slice at the end of the window, by all that is on it, as NVML "
        "says (up to schema version 2 as cudaMemGetInfo says)",
    )


class MemoryBreakdown(Record):
    """What one step keeps in memory, MiB, counted on its tensors in a step before the warm-up."""

    parameters_mib: float
    buffers_mib: float
    gradients_mib: float = Field(description="after the backward pass")
    optimizer_mib: float = Field(description="state of the optimizer after its first step")
    activations_mib: float | None = Field(
        default=None,
        description="saved for the backward pass by autograd: distinct storages, without those of "
        "parameters and buffers, at the end of the forward pass (of the first micro-batch)",
    )
    reason: str | None = Field(default=None, description="why there is no figure of activations")

    @property
    def total_mib(self) -> float | None:
        """Sum of the parts; None without the activations."""
        if self.activations_mib is None:
            return None
        held = self.parameters_mib + self.buffers_mib + self.gradients_mib + self.optimizer_mib
        return held + self.activations_mib


class StepPhases(Record):
    """Parts of one step before the warm-up, s; each waits for the device, so they only compare."""

    data_s: float
    forward_s: float
    backward_s: float
    optimizer_s: float


class BatchTry(Record):
    """Whether one batch size fitted."""

    batch_size: int
    outcome: Literal["ok", "oom"]
    reason: str | None = None


class BatchSearch(Record):
    """How the batch size of a worker with `batch_size: auto` was found."""

    requested: Literal["auto"] = "auto"
    unit: int = Field(description="only multiples of it were tried: the micro-batches of a step")
    min: int = Field(description="smallest and largest size that might be tried")
    max: int
    tries: tuple[BatchTry, ...] = Field(description="in the order in which they were made")
    largest: int | None = Field(description="the largest that fitted; null: none did")
    used: int = Field(description="the largest less the headroom, or min where none fitted")
    limited_by: Literal["memory", "max", "time", "nothing fits"] = Field(
        description="why no larger one is used; time: a larger one may fit"
    )


class WorkerRecord(Record):
    """One training process of a run."""

    slice: SliceState
    workload: str
    outcome: Outcome
    reason: str | None = None
    pid: int
    device: str = Field(description="e.g. cpu, cuda:0 with its name and UUID as read back")
    threads: int | None = None
    affinity: tuple[int, ...] = ()
    foreign_cpu_share: Quantity = Field(
        default_factory=lambda: Quantity.missing("not recorded"),
        description="share of its own cores' time in the window that other processes took, 0..1",
    )
    variables: dict[str, str] = Field(
        default_factory=dict,
        description="environment variables that steer threads, CUDA and PyTorch (OMP_, CUDA_, …)",
    )
    parameters: int | None = None
    trainable_parameters: int | None = None
    weights: str | None = Field(default=None, description="random, or where they came from")
    model: dict[str, object] = Field(
        default_factory=dict, description="class, library version, attention implementation, …"
    )
    precision_flags: dict[str, object] = Field(
        default_factory=dict, description="the framework's switches as read back"
    )
    batch_size: int | None = None
    batch_search: BatchSearch | None = Field(
        default=None, description="null: the batch size is the config's"
    )
    sample_unit: str | None = Field(default=None, description="image or sequence")
    tokens_per_sample: int | None = None
    seed: int | None = None
    data: DataFingerprint | None = None
    warmup: Warmup | None = None
    steps: int = 0
    window_start_s: float | None = Field(default=None, description="first step boundary in it")
    window_end_s: float | None = Field(default=None, description="last step boundary in it")
    loss_first: float | None = Field(default=None, description="mean of the first steps")
    loss_last: float | None = Field(default=None, description="mean of the last steps")
    memory: MemoryPeak | None = None
    memory_breakdown: MemoryBreakdown | None = Field(
        default=None, description="null: the worker did not come to its first step"
    )
    phases: StepPhases | None = None
    data_parallel: dict[str, object] | None = Field(
        default=None, description="rank, world_size and backend; null: not a data-parallel worker"
    )


class MeterRecord(Record):
    """How the board was measured; `reason` says why there are no samples."""

    scope: EnergyScope | None = None
    method: str | None = None
    description: dict[str, object] = Field(default_factory=dict)
    rate_hz: float
    samples: int = 0
    errors: int = Field(default=0, description="samples in which a reading failed")
    missed: int = Field(default=0, description="deadlines that passed without a sample")
    call_median_s: float | None = Field(default=None, description="time of one reading, s")
    call_max_s: float | None = None
    cpu_s: float | None = Field(default=None, description="CPU time of the sampler's threads, s")
    start_s: float | None = None
    end_s: float | None = None
    reason: str | None = None


class IdleWindow(Record):
    """An interval before the run in which its board was idle; its samples are in power.parquet."""

    start_s: float
    end_s: float
    foreign_processes: tuple[str, ...] = Field(
        description="'pid name' of who was on the board all the same"
    )
    monitors: tuple[str, ...] = Field(description="other monitors of GPUs on the host: 'pid name'")
    measured_utc: str


class BoardMeasurement(Record):
    """One of the boards that a run used together."""

    identity: BoardIdentity
    health_before: Health | None
    health_after: Health | None
    meter: MeterRecord


ActivityMetric = Literal["graphics-activity", "sm-activity", "sm-occupancy", "tensor-activity"]
# The metric that energy is shared out by: power goes with the share of busy SMs, and graphics
# activity counts a slice with one busy SM as busy as a full one.
SM_ACTIVITY: ActivityMetric = "sm-activity"


class ActivityReading(Record):
    """How busy a slice or the board was between two moments of the window.

    A share of the slice's own units, so that a full 1g and a full board both have 1.
    """

    slice_index: int | None = Field(description="null: the whole board, for comparison")
    metric: ActivityMetric
    value: float | None = Field(description="mean, 0..1; null with a reason")
    raw: float | None = Field(
        default=None, description="as the driver gave it, 0..1 if all is well; kept if not used"
    )
    reason: str | None = None
    notes: tuple[str, ...] = Field(default=(), description="what is to be known of the value")
    source: Literal["gpm", "none"] = Field(
        description="gpm: the board's own counters, read through NVML; none: there is no such"
    )
    covers: str | None = Field(default=None, description="e.g. GPU instance 3")
    by_instances: float | None = Field(
        default=None,
        description="of the board: what its instances' values, weighed by their SMs, add up to",
    )
    start_s: float | None = None
    end_s: float | None = None


class AliasingCheck(Record):
    """Whether steps and power sensor beat, as judged after the warm-up, and what was done.

    The energy of the window is judged again by the steps that were made in it.
    """

    period_s: float | None = Field(default=None, description="update period of the power sensor")
    period_source: Literal["measured", "nominal"] | None = None
    step_s: float | None = Field(default=None, description="median step time that beats worst")
    asked_s: float = Field(description="shortest window by the config")
    window_s: float = Field(description="shortest window that was held")
    locked: bool | None = Field(description="at the asked length; null: not known, with a reason")
    cured: bool | None = Field(description="by lengthening; null: there was nothing to cure")
    reason: str | None = None

    @property
    def lengthened(self) -> bool:
        return self.window_s > self.asked_s


class Window(Record):
    """The interval in which all workers were training, CLOCK_MONOTONIC seconds."""

    start_s: float
    end_s: float


def unknown_container() -> dict[str, object]:
    """What stands in a record whose maker did not say whether it ran in a container."""
    return {"kind": None, "reason": "not recorded"}


class RunRecord(Record):
    """run.json: one run, with all that is needed to redo or to judge it."""

    schema_version: int = RUN_SCHEMA_VERSION
    run_id: str = Field(description="layout/placement/precision/rep<k>")
    campaign: str
    outcome: Outcome
    reason: str | None = None
    simulated: bool
    spec: dict[str, object]
    spec_digest: str
    code_digest: str
    git: dict[str, object]
    environment: dict[str, object]
    environment_digest: str
    container: dict[str, object] = Field(
        default_factory=unknown_container,
        description="image that the run was made in: kind (null: none), image, reason",
    )
    host: dict[str, object]
    slurm: dict[str, str] = Field(default_factory=dict)
    attempt: int = 1
    started_utc: str
    ended_utc: str
    start_s: float
    end_s: float
    board: BoardIdentity | None
    layout_state: LayoutState | None
    health_before: Health | None
    health_after: Health | None
    window: Window | None
    workers: tuple[WorkerRecord, ...]
    meter: MeterRecord
    idle: IdleWindow | None = Field(
        default=None,
        description="when the run's own board was idle, in a cluster's job; null: the campaign's "
        "idle stage measured it",
    )
    aliasing: AliasingCheck | None = Field(
        default=None, description="null: the run did not come to its window"
    )
    activities: tuple[ActivityReading, ...] = Field(
        default=(), description="of each slice and of the board, by metric"
    )
    boards: tuple[BoardMeasurement, ...] = Field(
        default=(),
        description="each board of a run on several; then `board`, `health_…` and `meter` are of "
        "them all together. Empty: one board",
    )
    raw: tuple[RawFile, ...]

    @model_validator(mode="before")
    @classmethod
    def _of_any_version(cls, content: Any) -> Any:
        return migrate_run(content) if isinstance(content, Mapping) else content
