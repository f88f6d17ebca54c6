"""One workload, ready to train: the interface between the model libraries and the step loop."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import nn

from wattslice.records.run import DataFingerprint
from wattslice.workloads.data.base import Dataset

Batch = dict[str, torch.Tensor]
LossFunction = Callable[[nn.Module, Batch], torch.Tensor]


@dataclass(frozen=True)
class BuiltModel:
    """What a model library's builder hands back.

    `loss` maps (model, batch on the model's device) to a scalar tensor; `weights` is "random" or
    says where the weights came from; `description` holds what a result depends on beside the
    definition (library version, class, attention implementation, activation).
    """

    model: nn.Module
    loss: LossFunction
    weights: str
    description: dict[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class Workload:
    """Model, data and optimizer of one worker; all tensors stay on the CPU until it moves them.

    The batches depend only on the definition and the seed: `batch(i)` is the same in every process.
    """

    built: BuiltModel
    dataset: Dataset
    batch_size: int
    task: str
    optimizer_config: Mapping[str, Any]
    seed: int

    @property
    def model(self) -> nn.Module:
        return self.built.model

    @property
    def weights(self) -> str:
        """'random', or where the initial weights came from."""
        return self.built.weights

    @property
    def description(self) -> dict[str, object]:
        """Model class, library version, attention implementation and the like."""
        return self.built.description

    @property
    def data(self) -> DataFingerprint:
        return self.dataset.fingerprint

    @property
    def real_data(self) -> bool:
        """True: the loss has to fall."""
        return self.dataset.fingerprint.real

    @property
    def sample_unit(self) -> Literal["image", "sequence"]:
        return self.dataset.shape.sample_unit

    @property
    def tokens_per_sample(self) -> int | None:
        """Tokens of one sequence; null for images."""
        return self.dataset.shape.sequence_length

    @property
    def parameters(self) -> int:
        """Number of parameters; tied weights count once."""
        return count_parameters(self.model)

    @property
    def trainable_parameters(self) -> int:
        """Number of parameters that take a gradient; tied weights count once."""
        return count_parameters(self.model, trainable=True)

    def batch(self, step: int) -> Batch:
        """Return the CPU tensors of one step, counted from 0; see the data set for shapes."""
        return self.dataset.batch(step, self.batch_size, self.seed, self.task)

    def batches(self, start: int = 0) -> Iterator[Batch]:
        """Yield the batches from step `start` on, without end."""
        return self.dataset.batches(self.batch_size, self.seed, self.task, start)

    def loss(self, model: nn.Module, batch: Batch) -> torch.Tensor:
        """Return the scalar training loss (mean over the batch) with its graph.

        `model` is this workload's model or a wrapper of it (compiled, data parallel), on the same
        device as the batch. Call it under the precision's autocast.
        """
        return self.built.loss(model, batch)

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        """Return the optimizer over the trainable parameters of `model`.

        Create it after the model is on its device. Library defaults decide between the fused,
        foreach and for-loop implementation.
        """
        config = self.optimizer_config
        parameters = [p for p in model.parameters() if p.requires_grad]
        if config["name"] == "adamw":
            return torch.optim.AdamW(
                parameters, lr=config["lr"], weight_decay=config["weight_decay"]
            )
        if config["name"] == "sgd":
            return torch.optim.SGD(
                parameters,
                lr=config["lr"],
                momentum=config["momentum"],
                weight_decay=config["weight_decay"],
            )
        raise ValueError(f"optimizer.name: {config['name']!r} is not one of adamw, sgd")


def count_parameters(model: nn.Module, trainable: bool = False) -> int:
    """Return the number of parameters of a model, meta or not; tied weights count once."""
    return sum(p.numel() for p in model.parameters() if p.requires_grad or not trainable)
