"""What is asked of the planner, and its answer."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from wattslice.planner.jobsets import Faster
from wattslice.planner.ranges import Range
from wattslice.records.base import Record

PLAN_SCHEMA_VERSION = 1
VALIDATION_SCHEMA_VERSION = 1
Goal = Literal["throughput", "samples-per-joule", "makespan", "energy", "pareto"]
Semantics = Literal["steady", "fixed"]
Role = Literal["best", "random"]
FigureName = Literal["throughput", "progress", "energy_ratio", "mean_power"]


class JobRequest(Record):
    """Jobs of one workload. With `work` they end; without, they run all the time."""

    workload: str
    count: int = Field(default=1, ge=1, le=100_000)
    work: float | None = Field(default=None, gt=0, description="samples that each has to do")
    min_rate: float | None = Field(default=None, gt=0, description="samples/s that each must reach")
    memory_mib: float | None = Field(default=None, gt=0, description="memory that each asks for")


class MoreBoards(Record):
    """Boards of another kind beside those of the request, with measurements of their own."""

    board: str | None = Field(default=None, description="catalogue name, or cpu:<cores>")
    boards: int = Field(default=1, ge=1, le=100_000, description="how many such boards")
    table: str = Field(description="a campaign's folder, or a CSV; rates in the same units")
    power_limit_w: float | None = Field(default=None, gt=0, description="limit of one board, W")


class PlanRequest(Record):
    """A question to the planner."""

    jobs: tuple[JobRequest, ...] = Field(min_length=1)
    objective: Goal = "throughput"
    board: str | None = Field(default=None, description="catalogue name, or cpu:<cores>")
    boards: int = Field(default=1, ge=1, le=100_000, description="how many such boards")
    more_boards: tuple[MoreBoards, ...] = ()
    power_limit_w: float | None = Field(default=None, gt=0, description="limit of one board, W")
    deadline_s: float | None = Field(default=None, gt=0, description="longest makespan, s")
    top: int = Field(default=5, ge=1, description="layouts to show")
    time_limit_s: float = Field(default=50.0, gt=0, description="for the mixed-integer model, s")


class Figure(Record):
    """A predicted number with its bounds."""

    value: float
    low: float
    high: float
    unit: str

    @classmethod
    def of(cls, known: Range, unit: str) -> Figure:
        return cls(value=known.value, low=known.low, high=known.high, unit=unit)


class Gain(Record):
    """A proposal against the same jobs one after another on an undivided board."""

    base: str
    throughput_gain: Figure | None = Field(default=None, description="steady: progress - 1")
    time_saved: Figure | None = Field(default=None, description="fixed: 1 - M / M_base")
    energy_saved: Figure | None = Field(default=None, description="1 - E / E_base, equal work")
    faster: Faster = Field(description="every reading of faster, see docs/job-sets.md")


class PlacedJob(Record):
    """A job on a slice."""

    job: str
    workload: str
    slice_index: int
    slice: str
    rate: Figure
    time_s: Figure | None = None
    evidence: str = Field(description="neighbours: measured with busy slices beside it; or alone")


class Proposal(Record):
    """A layout with its assignment and what is predicted of it."""

    rank: int
    layout: str
    jobs: tuple[PlacedJob, ...]
    empty_slices: tuple[str, ...] = ()
    progress: Figure | None = Field(
        default=None, description="work done per second, in seconds of the reference board"
    )
    progress_per_j: Figure | None = None
    power_w: Figure | None = None
    makespan_s: Figure | None = None
    energy_j: Figure | None = None
    power_limited: bool
    timeline_s: float | None = Field(
        default=None, description="makespan followed job by job under the power limit, s"
    )
    gains: tuple[Gain, ...] = ()
    notes: tuple[str, ...] = ()


class FleetBoards(Record):
    """How many boards of a kind get a layout."""

    board: str
    layout: str
    count: int


class FleetSummary(Record):
    """Many boards: how often each layout, and which jobs (numbers) on each board's slices."""

    layouts: tuple[FleetBoards, ...]
    makespan_s: float | None = Field(default=None, description="jobs that end")
    energy_j: float | None = None
    progress: float | None = Field(
        default=None, description="jobs that run all the time: reference-seconds per second"
    )
    power_w: float | None = None
    assignment: tuple[tuple[str, tuple[tuple[int, ...], ...]], ...]


class Plan(Record):
    """The planner's answer. `gap`: another plan is better by at most so much; 0: proven best."""

    schema_version: int = PLAN_SCHEMA_VERSION
    request: PlanRequest
    board: str
    precision: str
    semantics: Semantics
    reference: str | None
    power_limit_w: float | None
    method: str
    gap: float
    seconds: float
    proposals: tuple[Proposal, ...] = ()
    fleet: FleetSummary | None = None
    layouts_considered: tuple[str, ...]
    impossible: dict[str, str] = Field(description="cells that are never proposed, and why")
    simulated: bool
    modelled: bool
    notes: tuple[str, ...] = ()


# --- predicted against measured -------------------------------------------------------------------


class Compared(Record):
    """A predicted figure beside the measured one; null with the reason where it was not had."""

    name: FigureName
    unit: str
    workload: str | None = None
    slice: str | None = None
    predicted: float
    low: float
    high: float
    measured: float | None
    error: float | None
    inside: bool | None
    reason: str | None = None


class ValidatedRun(Record):
    """One run of a chosen layout."""

    run_id: str
    role: Role
    layout: str
    workloads: tuple[str, ...]
    outcome: str
    figures: tuple[Compared, ...]


class Summary(Record):
    """Errors of all runs, by figure."""

    name: str
    n: int
    median_abs_error: float
    largest_abs_error: float
    median_error: float
    inside: int


class Validation(Record):
    """analysis/validation.json."""

    schema_version: int = VALIDATION_SCHEMA_VERSION
    campaign: str
    objective: str
    precision: str
    jobs: tuple[str, ...]
    reference: str
    board: str
    layouts_possible: int
    runs: tuple[ValidatedRun, ...]
    summary: tuple[Summary, ...]
    best_is_best: bool | None
    simulated: bool
    modelled: bool
    notes: tuple[str, ...] = ()
