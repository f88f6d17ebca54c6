"""What a config's workloads are, with parameter counts, computed without memory for any model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from wattslice.records.base import Record
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
    forward_flops_per_sample: int | None = None  # null: not asked for
    description: dict[str, object] | None = None
    error: str | None = None


def catalogue(definitions: Mapping[str, Mapping[str, Any]], flops: bool = False) -> list[Entry]:
    """Return an entry per workload definition (see registry.build), in their order.

    `flops` counts the operations of a forward pass, too: about a second per model.
    """
    return [_entry(name, definition, flops) for name, definition in definitions.items()]


def _entry(name: str, definition: Mapping[str, Any], flops: bool) -> Entry:
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
    counted: dict[str, int] = {}
    if flops:
        from wattslice.workloads.flops import forward_flops

        counted["forward_flops_per_sample"] = forward_flops(built, shape, entry.task)
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


def table(entries: list[Entry]) -> str:
    """Return the entries as an aligned text table (GFLOP: one sample, forward), errors below."""
    head = ("workload", "model", "task", "mode", "data", "batch", "parameters", "GFLOP")
    rows = [
        (
            entry.name,
            f"{entry.framework}:{entry.model}",
            entry.task,
            entry.mode,
            entry.data,
            str(entry.batch_size),
            "-" if entry.parameters is None else f"{entry.parameters:,}",
            "-"
            if entry.forward_flops_per_sample is None
            else f"{entry.forward_flops_per_sample / 1e9:.3f}",
        )
        for entry in entries
    ]
    widths = [max(len(row[i]) for row in (head, *rows)) for i in range(len(head))]
    right = {5, 6, 7}
    lines = [
        "  ".join(
            cell.rjust(width) if i in right else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in (head, *rows)
    ]
    lines += [f"{entry.name}: {entry.error}" for entry in entries if entry.error]
    return "\n".join(lines)
