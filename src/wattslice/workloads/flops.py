"""Floating-point operations of a model's forward pass, by torch's own counter, without memory.

The model and one batch are on the meta device, so any model can be counted on any machine. The
counter knows matrix products, convolutions and attention; a multiply-add is two operations, and
element-wise work does not count. A training step takes about three times the forward pass. It is
not counted: torch 2.14 ignores the groups in the backward pass of a convolution, so that a step of
EfficientNet-B0 would come out as 42 times its forward pass.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

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
def _no_look_at_values() -> Iterator[None]:
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
    with _no_look_at_values(), torch.no_grad(), FlopCounterMode(display=False) as counter:
        built.loss(built.model, meta_batch(shape, task))
    return int(counter.get_total_flops()) // SAMPLES
