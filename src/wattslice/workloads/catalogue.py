"""What a config's workloads are, with parameter counts, computed without memory for any model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from wattslice.records.base import Record
from wattslice.records.run import MemoryBreakdown
from wattslice.workloads.errors import WorkloadError


class Entry(Record):
    """One workload of a config. Counts are null, with `error`, where the model cannot be built."""

    name: str
    framework: str
    model: str
    task: str
    mode: str
    weights: str
    data: str
    batch_size: int | str
    sample_unit: str | None = None
    tokens_per_sample: int | None = None
    parameters: int | None = None
    trainable_parameters: int | None = None
    forward_flops_per_sample: int | None = None  # null: not asked for, as the next
    training_flops_per_sample: int | None = None
    memory: MemoryBreakdown | None = None  # of a step in float32; null: not asked for
    description: dict[str, object] | None = None
    error: str | None = None


def catalogue(
    definitions: Mapping[str, Mapping[str, Any]], *, flops: bool = False, memory: bool = False
) -> list[Entry]:
    """Return an entry per workload definition (see registry.build), in their order.

    `flops` counts the operations of a forward pass and of a training step, `memory` what a step
    keeps: each takes some seconds per model.
    """
    return [
        _entry(name, definition, flops=flops, memory=memory)
        for name, definition in definitions.items()
    ]


def _entry(name: str, definition: Mapping[str, Any], *, flops: bool, memory: bool) -> Entry:
    from wattslice.workloads import data, registry
    from wattslice.workloads.workload import count_parameters

    entry = Entry(
        name=name,
        framework=definition["framework"],
        model=definition["model"],
        task=definition["task"],
        mode=definition["mode"],
        weights=definition["weights"] or "random",
        data=definition["data_name"],
        batch_size=definition["batch_size"],
    )
    try:
        built = registry.build_model(definition, meta=True)
        shape = data.shape_of(definition["data"])
    except WorkloadError as error:
        return entry.model_copy(update={"error": str(error)})
    counted: dict[str, Any] = {}
    if flops:
        from wattslice.workloads.flops import forward_flops, training_flops

        counted["forward_flops_per_sample"] = forward_flops(built, shape, entry.task)
        counted["training_flops_per_sample"] = training_flops(built, shape, entry.task)
    if memory:
        from wattslice.workloads.footprint import footprint

        counted["memory"] = footprint(built, shape, definition, _micro_batch(definition))
    return entry.model_copy(
        update={
            "sample_unit": shape.sample_unit,
            "tokens_per_sample": shape.sequence_length,
            "parameters": count_parameters(built.model),
            "trainable_parameters": count_parameters(built.model, trainable=True),
            "description": built.description,
            **counted,
        }
    )


def _micro_batch(definition: Mapping[str, Any]) -> int:
    """Samples that are in memory at once; of `auto` one."""
    size = definition["batch_size"]
    return (
        1 if size == "auto" else int(size) // int(definition.get("gradient_accumulation_steps", 1))
    )


def table(entries: list[Entry]) -> str:
    """Return the entries as an aligned text table, errors below.

    GFLOP are those of one sample, MiB those of a step of the workload's batch in float32.
    """
    head = ["workload", "model", "task", "mode", "data", "batch", "parameters"]
    text = len(head) - 2  # columns that are set flush left
    rows = [
        [
            entry.name,
            f"{entry.framework}:{entry.model}",
            entry.task,
            entry.mode,
            entry.data,
            str(entry.batch_size),
            "-" if entry.parameters is None else f"{entry.parameters:,}",
        ]
        for entry in entries
    ]
    for title, values in _counted(entries).items():
        if any(value is not None for value in values):
            head.append(title)
            for row, value in zip(rows, values, strict=True):
                row.append("-" if value is None else f"{value:,.3f}")
    widths = [max(len(row[i]) for row in (head, *rows)) for i in range(len(head))]
    lines = [
        "  ".join(
            cell.ljust(width) if i < text else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in (head, *rows)
    ]
    lines += [f"{entry.name}: {entry.error}" for entry in entries if entry.error]
    return "\n".join(lines)


def _counted(entries: list[Entry]) -> dict[str, list[float | None]]:
    """Columns of what is counted on request; None where it was not."""

    def giga(flops: int | None) -> float | None:
        return None if flops is None else flops / 1e9

    return {
        "GFLOP forward": [giga(entry.forward_flops_per_sample) for entry in entries],
        "GFLOP training": [giga(entry.training_flops_per_sample) for entry in entries],
        "activations MiB": [e.memory.activations_mib if e.memory else None for e in entries],
        "step MiB": [e.memory.total_mib if e.memory else None for e in entries],
    }
