"""What does the memory of a worker consist of?"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import altair as alt

from wattslice.report.charts.base import (
    PANEL_WIDTH,
    Drawing,
    Empty,
    FigureData,
    Row,
    panel_facet,
    plain,
    precisions_of,
)
from wattslice.report.charts.slice_rows import middle, workers

STEP = "kept by one step"
DEVICE, PROCESS = "device memory at the peak", "memory of the process at the peak"
# Part by panel: the column, and the column that is taken off it.
PARTS = {
    (STEP, "parameters and buffers"): ("step_parameters_mib", None),
    (STEP, "gradients"): ("step_gradients_mib", None),
    (STEP, "optimizer state"): ("step_optimizer_mib", None),
    (STEP, "activations saved for backward"): ("step_activations_mib", None),
    (DEVICE, "allocated"): ("cuda_allocated_mib", None),
    (DEVICE, "held by the allocator beyond it"): ("cuda_reserved_mib", "cuda_allocated_mib"),
    (PROCESS, "libraries, before the model"): ("rss_base_mib", None),
    (PROCESS, "model, training and data"): ("rss_mib", "rss_base_mib"),
}
PANELS = (STEP, DEVICE, PROCESS)
SOURCES = (
    "Kept by one step: exact bytes of its tensors, counted in a step before the warm-up "
    "(activations by autograd's saved-tensor hooks)",
    "At the peak: the framework's allocator for the device, the kernel's high-water mark for the "
    "process; both hold work space and caches, too",
)
X_TITLE = "memory of a worker (MiB)"


@dataclass(frozen=True, slots=True)
class _Kept:
    """What a step of a workload keeps, MiB, and the parameters and batch that it has."""

    workload: str
    precision: str
    parameters: int
    batch_size: int
    activations_mib: float


def breakdown_rows(data: FigureData) -> list[Row]:
    """Median parts of the memory of workers, by workload and precision."""
    made: list[Row] = []
    for (workload, precision), members in sorted(_groups(data).items()):
        for order, ((panel, part), (whole, less)) in enumerate(PARTS.items()):
            values = [
                row[whole] - (row[less] if less else 0.0)
                for row in members
                if row[whole] is not None and (less is None or row[less] is not None)
            ]
            if values:
                made.append(
                    {
                        "panel": panel,
                        "line": f"{workload} · {precision}",
                        "workload": workload,
                        "precision": precision,
                        "part": part,
                        "order": order,
                        "mib": plain(middle(values)),
                        "n": len(values),
                    }
                )
    return made


def _groups(data: FigureData) -> dict[tuple[str, str], list[dict[str, Any]]]:
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in workers(data):
        if row["rss_mib"] is not None and row["worker_outcome"] != "oom":
            groups.setdefault((row["workload"], row["precision"]), []).append(row)
    return groups


def answers(data: FigureData) -> tuple[str, ...]:
    """What parameters say of activations, by the workloads of which they say least.

    Compared are workloads of one batch size in one precision: the pair in which the one with fewer
    parameters saves most more, and all with as many parameters as the one that saves most.
    """
    kept = [
        _Kept(workload, precision, int(row["parameters"]), int(row["batch_size"]), middle(saved))
        for (workload, precision), members in sorted(_groups(data).items())
        for row in members[:1]
        if row["parameters"] and row["batch_size"]
        if (saved := [m["step_activations_mib"] for m in members if m["step_activations_mib"]])
    ]
    kept.sort(key=lambda one: -one.activations_mib)
    pairs = [
        (one, other)
        for one, other in itertools.combinations(kept, 2)
        if (one.precision, one.batch_size) == (other.precision, other.batch_size)
    ]
    said = []
    fewer = [(one, other) for one, other in pairs if one.parameters < 0.9 * other.parameters]
    if fewer:
        one, other = max(fewer, key=lambda pair: pair[0].activations_mib / pair[1].activations_mib)
        said.append(
            f"{one.workload} has {one.parameters / other.parameters:.2g} times the parameters of "
            f"{other.workload} and saves {one.activations_mib / other.activations_mib:.3g} times "
            f"its activations ({one.activations_mib:.4g} and {other.activations_mib:.4g} MiB in "
            f"{one.precision})."
        )
    equal = [(one, other) for one, other in pairs if _alike(one.parameters, other.parameters)]
    if equal:
        most = equal[0][0]
        others = [f"{o.workload} {o.activations_mib:.4g}" for one, o in equal if one is most]
        said.append(
            f"With equal parameters {most.workload} saves activations of "
            f"{most.activations_mib:.4g} MiB in {most.precision}, {', '.join(others)}."
        )
    return tuple(said)


def _alike(one: int, other: int) -> bool:
    return abs(one / other - 1) < 0.01


def draw(data: FigureData) -> Drawing | Empty:
    """Stacked bars of what was recorded: step, process and, where there is one, device."""
    rows = breakdown_rows(data)
    if not rows:
        return Empty("no worker recorded the parts of its memory")
    panels = [panel for panel in PANELS if any(row["panel"] == panel for row in rows)]
    names = sorted({row["workload"] for row in rows})
    have = {row["line"] for row in rows}
    order = [f"{name} · {p}" for name in names for p in precisions_of(rows)]
    parts = [part for _, part in PARTS]
    shown = {row["part"] for row in rows}
    bars = (
        alt.Chart()
        .mark_bar()
        .encode(
            y=alt.Y("line:N", sort=[n for n in order if n in have], title="workload · precision"),
            x=alt.X("mib:Q", title=X_TITLE, stack="zero"),
            color=alt.Color(
                "part:N",
                scale=alt.Scale(domain=parts),
                legend=alt.Legend(
                    title="part", columns=2, labelLimit=260, values=[p for p in parts if p in shown]
                ),
            ),
            order="order:Q",
            tooltip=[
                alt.Tooltip("line:N", title="workload"),
                alt.Tooltip("part:N"),
                alt.Tooltip("mib:Q", title="median (MiB)", format=".4~g"),
                alt.Tooltip("n:Q", title="workers"),
            ],
        )
    )
    chart = bars.properties(width=int(PANEL_WIDTH * 1.45), height=alt.Step(17)).facet(
        facet=panel_facet("panel", panels),
        columns=min(2, len(panels)),
        data=alt.NamedData(name="breakdown"),
    )
    largest = max(rows, key=lambda row: row["mib"])
    said = answers(data)
    return Drawing(
        chart.resolve_scale(x="independent"),
        "breakdown",
        rows,
        SOURCES,
        " ".join(said)
        or f"The largest part is {largest['mib']:.4g} MiB: {largest['part']} ({largest['line']}).",
        said,
    )
