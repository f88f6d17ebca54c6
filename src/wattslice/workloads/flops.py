"""Floating-point operations of a model, by torch's own counter, without memory.

The model and one batch are on the meta device, so any model can be counted on any machine. The
counter knows matrix products, convolutions and attention; a multiply-add is two operations, and
element-wise work does not count. torch 2.14 ignores the groups in the backward pass of a
convolution (a step of EfficientNet-B0 would come out as 42 times its forward pass); here it is
counted as once the forward pass for each gradient that is asked for.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode, conv_flop_count

from wattslice.workloads.data.base import DataShape
from wattslice.workloads.workload import Batch, BuiltModel

SAMPLES = 2  # counted together; more would change nothing


def meta_batch(shape: DataShape, task: str, samples: int = SAMPLES) -> Batch:
    """Return a batch of the data's shape without values; see the data sets for its keys."""
    with torch.device("meta"):
        labels = torch.empty(samples, dtype=torch.int64)
        if shape.sample_unit == "image":
            edge = shape.image_size or 0
            images = torch.empty(samples, shape.channels or 3, edge, edge, dtype=torch.uint8)
            return {"images": images, "labels": labels}
        tokens = torch.empty(samples, shape.sequence_length or 0, dtype=torch.int64)
        return {"input_ids": tokens, "labels": labels if task == "text-classification" else tokens}


@contextlib.contextmanager
def no_look_at_values() -> Iterator[None]:
    """Keep transformers from looking for packed sequences in position ids, which have no values."""
    masking: Any = sys.modules.get("transformers.masking_utils")
    if masking is None:
        yield
        return
    before = masking.find_packed_sequence_indices
    masking.find_packed_sequence_indices = lambda _: None
    try:
        yield
    finally:
        masking.find_packed_sequence_indices = before


def forward_flops(built: BuiltModel, shape: DataShape, task: str) -> int:
    """Return the operations of one sample's forward pass and loss; the model is on meta."""
    with no_look_at_values(), torch.no_grad(), _counter() as counter:
        built.loss(built.model, meta_batch(shape, task))
    return int(counter.get_total_flops()) // SAMPLES


def training_flops(built: BuiltModel, shape: DataShape, task: str) -> int:
    """Return the operations of one sample's forward and backward pass; the model is on meta.

    The optimizer's are element-wise and not counted.
    """
    built.model.train()
    with no_look_at_values(), _counter() as counter:
        loss = built.loss(built.model, meta_batch(shape, task))
        loss.backward()  # type: ignore[no-untyped-call]
    return int(counter.get_total_flops()) // SAMPLES


def _counter() -> FlopCounterMode:
    backward = {torch.ops.aten.convolution_backward: _convolution_backward}
    return FlopCounterMode(display=False, custom_mapping=backward)


def _convolution_backward(  # noqa: PLR0917  (the arguments of the operator, with shapes for tensors)
    gradient: Any,
    entry: Any,
    weight: Any,
    _bias: Any,
    _stride: Any,
    _padding: Any,
    _dilation: Any,
    transposed: bool,
    _output_padding: Any,
    _groups: int,
    wanted: Any,
    out_shape: Any = None,
    **_: Any,
) -> int:
    """A forward pass for the gradient of the input, and one for that of the weight."""
    del out_shape
    once = conv_flop_count(list(entry), list(weight), list(gradient), transposed=transposed)
    return int(once) * sum(map(bool, wanted[:2]))
