"""From a definition (a run spec's assignment) to a workload; one builder per model library."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from wattslice.workloads import data
from wattslice.workloads.errors import DataError, UnknownModelError, WorkloadError, near

if TYPE_CHECKING:
    from wattslice.workloads.workload import BuiltModel, Workload

Definition = Mapping[str, Any]

_BUILDERS = {
    "timm": "wattslice.workloads.timm_models",
    "transformers": "wattslice.workloads.transformers_models",
}


def build(definition: Definition, seed: int, rank: int = 0, world_size: int = 1) -> Workload:
    """Return the workload of a definition, with its model in training mode on the CPU.

    Args:
        definition: the fields of WorkloadConfig without `note`, with `data` the data set's own
            fields and `data_name` its name.
        seed: of initial weights, synthetic data, data order and masking. torch's global generators
            are seeded with it, so that dropout repeats too.
        rank, world_size: of a data-parallel job. All its workers have the same seed and weights;
            each takes its own part of every batch and has its own dropout.

    Raises:
        UnknownModelError: framework or model that the installed libraries do not know.
        UnknownFieldError: a key of `model_args` that the model does not take.
        DataError: data that cannot be made or that do not fit the task.
        WeightsError: weights that are not there or do not fit.
    """
    from wattslice.workloads.data.base import Shard
    from wattslice.workloads.workload import Workload

    check(definition)
    dataset = data.load(definition["data"], str(definition["data_name"]), seed)
    built = build_model(definition, seed)
    built.model.train()
    if rank:
        import torch

        torch.manual_seed(seed + rank)
    return Workload(
        built=built,
        dataset=dataset,
        batch_size=int(definition["batch_size"]),
        task=str(definition["task"]),
        optimizer_config=definition["optimizer"],
        seed=seed,
        gradient_accumulation_steps=int(definition.get("gradient_accumulation_steps", 1)),
        compile_config=definition.get("compile"),
        loader_config=definition.get("loader"),
        shard=Shard(rank, world_size),
    )


def build_model(definition: Definition, seed: int = 0, meta: bool = False) -> BuiltModel:
    """Return the model of a definition without its data.

    With `meta` its tensors have shapes and no memory: parameters of any model can be counted on any
    machine. Local weights are not read then, only the config beside them.
    """
    import torch

    check(definition)
    builder = importlib.import_module(_BUILDERS[str(definition["framework"])])
    shape = data.shape_of(definition["data"])
    torch.manual_seed(seed)
    if meta:
        with torch.device("meta"):
            return cast("BuiltModel", builder.build(definition, shape, read_weights=False))
    return cast("BuiltModel", builder.build(definition, shape))


def check(definition: Definition) -> None:
    """Raise WorkloadError where framework, task, data and mode do not go together."""
    framework = str(definition["framework"])
    if framework not in _BUILDERS:
        raise UnknownModelError(
            f"framework: {framework!r} is unknown; valid: {', '.join(_BUILDERS)}."
            f"{near(framework, _BUILDERS)}"
        )
    task = str(definition["task"])
    images = task == "image-classification"
    if images != (framework == "timm"):
        valid = (
            "image-classification"
            if framework == "timm"
            else "text-classification, masked-lm, causal-lm"
        )
        raise WorkloadError(f"task: {framework} trains {valid}, not {task!r}")
    unit = data.shape_of(definition["data"]).sample_unit
    if images != (unit == "image"):
        raise DataError(
            f"data: {definition['data_name']!r} ({definition['data']['kind']}) holds {unit}s, "
            f"which task {task!r} cannot use"
        )
    if definition.get("mode") == "finetune" and not definition.get("weights"):
        raise WorkloadError("weights: mode 'finetune' needs a local folder or file of weights")
    parts, size = int(definition.get("gradient_accumulation_steps", 1)), definition["batch_size"]
    if size != "auto" and int(size) % parts:
        raise WorkloadError(
            f"gradient_accumulation_steps: {parts} does not divide the batch_size {size}"
        )
    if definition.get("adapter") is not None and framework != "transformers":
        raise WorkloadError(f"adapter: adapters are for transformers models, not for {framework}")
