"""What a training step keeps in memory, worked out without that memory: on torch's fake tensors.

Fake tensors have a device but no values, so the CPU's own kernels are chosen (its fused attention
saves less than the plain one that the meta device has) and the counts are those of a real step in
float32 on a CPU. A GPU's kernels may save something else, and no count has the work space, the
allocator's rounding and the CUDA context: a slice needs more than this.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from wattslice.records.run import MemoryBreakdown
from wattslice.workloads.data.base import DataShape
from wattslice.workloads.flops import meta_batch, no_look_at_values
from wattslice.workloads.memory import MIB, SavedActivations, storage_bytes
from wattslice.workloads.workload import BuiltModel

# States of the size of the trainable parameters that the optimizers of `torch.optim` keep.
_ADAMW_STATES = 2


def footprint(
    built: BuiltModel, shape: DataShape, definition: Mapping[str, Any], batch_size: int
) -> MemoryBreakdown:
    """Memory that one step of `batch_size` samples keeps, MiB, float32. The model is on meta."""
    model = built.model.train()
    trainable = [p for p in model.parameters() if p.requires_grad]
    held = storage_bytes(trainable) / MIB
    optimizer = definition["optimizer"]
    states = _ADAMW_STATES if optimizer["name"] == "adamw" else int(optimizer["momentum"] > 0)
    with FakeTensorMode(), _fake(model), no_look_at_values():
        shapes = meta_batch(shape, str(definition["task"]), batch_size)
        batch = {name: torch.empty(t.shape, dtype=t.dtype) for name, t in shapes.items()}
        saved = SavedActivations(model)
        with saved:
            loss = built.loss(model, batch)
        activations = saved.bytes() / MIB
        del loss
    return MemoryBreakdown(
        parameters_mib=storage_bytes(model.parameters()) / MIB,
        buffers_mib=storage_bytes(model.buffers()) / MIB,
        gradients_mib=held,
        optimizer_mib=states * held,
        activations_mib=activations,
    )


@contextmanager
def _fake(model: nn.Module) -> Iterator[None]:
    """Parameters and buffers of a model on meta as fake tensors of the CPU; tied ones stay tied."""
    made: dict[int, torch.Tensor] = {}
    before: list[tuple[dict[str, Any], str, torch.Tensor]] = []
    for module in model.modules():
        owners: tuple[dict[str, Any], ...] = (module._parameters, module._buffers)
        for owner in owners:
            before += [(owner, name, t) for name, t in owner.items() if t is not None]
    for owner, name, tensor in before:
        if id(tensor) not in made:
            made[id(tensor)] = _of_the_same_shape(tensor)
        owner[name] = made[id(tensor)]
    try:
        yield
    finally:
        for owner, name, tensor in before:
            owner[name] = tensor


def _of_the_same_shape(tensor: torch.Tensor) -> torch.Tensor:
    empty = torch.empty(tensor.shape, dtype=tensor.dtype)
    if isinstance(tensor, nn.Parameter):
        return nn.Parameter(empty, requires_grad=tensor.requires_grad)
    return empty
