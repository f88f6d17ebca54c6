"""The figures of a report: names, titles and captions. Imports nothing, so a Snakefile can."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure, which answers one question. `energy`: it rests on energy or power."""

    name: str
    title: str
    question: str
    caption: str
    category: str
    energy: bool = False


FIGURES: Final[tuple[Figure, ...]] = (
    Figure(
        "throughput",
        "Training throughput",
        "How fast does each workload train, by slice layout and precision?",
        "Throughput of all busy slices together, in samples per second. Large marks are medians "
        "over repeats, lines their bootstrap intervals, small marks the repeats.",
        "Throughput",
    ),
    Figure(
        "samples_per_joule",
        "Samples per joule",
        "How much training does a joule buy?",
        "Samples over gross energy of the stated scope in the same window. Large marks are "
        "medians over repeats, lines their bootstrap intervals, small marks the repeats.",
        "Energy",
        energy=True,
    ),
    Figure(
        "step_time",
        "Step time",
        "How long does a training step take, and how much longer the slow ones?",
        "Median (mark) and 95th percentile (tick) of the durations of whole steps in the window; "
        "both are medians over repeats.",
        "Throughput",
    ),
    Figure(
        "precision_speedup",
        "Speed-up by precision",
        "How much faster is a lower precision than the base precision?",
        "Ratio of throughputs, paired by repeat; marks are medians over pairs, lines their "
        "bootstrap intervals, small marks the pairs. At 1 there is no difference.",
        "Ratios",
    ),
    Figure(
        "partition_gain",
        "Gain of partitioning",
        "What does splitting the board bring, when all slices are busy?",
        "All slices filled with one workload, over one process on the whole board or on one "
        "instance of all slices (7g): aggregate throughput (above 1 is better) and energy per "
        "sample (below 1 is better), paired by repeat.",
        "Ratios",
        energy=True,
    ),
    Figure(
        "mixes",
        "Layouts for jobs",
        "Which layout is best for jobs that run at once, and what does it gain over what?",
        "Gain in work per time, and energy saved for the same work, of jobs that run at once over "
        "the same jobs on each named baseline: one after another on the whole board or on one "
        "instance of all slices, or all at once without slices. Marks are medians over repeats, "
        "lines their intervals; right of 0 is better.",
        "Jobs at once",
        energy=True,
    ),
    Figure(
        "planner_error",
        "Error of the planner",
        "How far are the planner's predictions from what was then measured?",
        "Predicted over measured, less 1, in runs of the layout that the planner proposes and of "
        "others. Predictions rest on runs of each job alone or of equal jobs.",
        "Jobs at once",
        energy=True,
    ),
    Figure(
        "slice_scaling",
        "Scaling with the slice",
        "How does training scale with the size of a slice?",
        "Throughput of one slice over that of the whole board, paired by repeat, against the "
        "share of the board's SMs or cores. The dashed line is ideal scaling.",
        "Ratios",
    ),
    Figure(
        "prediction",
        "Alone and beside others",
        "Does a slice train as fast beside busy ones as it does alone?",
        "Throughput of a slice beside busy ones, against that of the same slice alone, which "
        "would be its prediction if slices did not disturb each other.",
        "Ratios",
    ),
    Figure(
        "pareto",
        "Energy against throughput",
        "Which layouts and precisions does no other beat in both energy and speed?",
        "Energy per sample against throughput; medians over repeats with their bootstrap "
        "intervals. The dashed line joins what is beaten in both by none.",
        "Energy",
        energy=True,
    ),
    Figure(
        "workload_pairs",
        "Model against model",
        "What does one model cost against another of the same task, in time and in memory?",
        "Time per sample and peak memory of one workload over another that differs in its model "
        "only, on the same slice in the same precision, paired by repeat.",
        "Ratios",
    ),
    Figure(
        "peak_memory",
        "Peak memory",
        "How much memory does a worker need?",
        "Peak memory of the largest worker of a run; medians over repeats with their bootstrap "
        "intervals. The source (framework allocator or process) is stated.",
        "Memory",
    ),
    Figure(
        "memory_breakdown",
        "Parts of the memory",
        "What does the memory of a worker consist of, and what do parameters say of it?",
        "Median memory of a worker by part: what one step keeps, counted on its tensors, and the "
        "peaks of the process and of the framework's allocator.",
        "Memory",
    ),
    Figure(
        "oom_map",
        "What fits where",
        "Which workload fits into the memory of which slice?",
        "Peak memory of the workers on each kind of slice; what ran out of memory is a result, "
        "not an error.",
        "Memory",
    ),
    Figure(
        "power_trace",
        "Power over time",
        "What did the power meter see in a run?",
        "Power samples of one example run of each layout. The shaded interval is the measured "
        "window; the dashed line is the idle power of the layout.",
        "Energy",
        energy=True,
    ),
    Figure(
        "outcomes",
        "Outcomes",
        "Which runs gave a measurement, and what became of the others?",
        "Runs with a measurement out of the runs of each cell; the worst outcome is named.",
        "Quality",
    ),
    Figure(
        "quality_matrix",
        "Quality checks",
        "Which checks did the runs of each cell fail?",
        "How many runs of each cell failed which named check. Rejected runs of a real board are in "
        "no median, ratio or claim; flagged ones are, with the note beside them.",
        "Quality",
    ),
)

BY_NAME: Final[dict[str, Figure]] = {figure.name: figure for figure in FIGURES}
NAMES: Final[tuple[str, ...]] = tuple(figure.name for figure in FIGURES)
FORMATS: Final[tuple[str, ...]] = ("html", "svg", "png", "pdf")
