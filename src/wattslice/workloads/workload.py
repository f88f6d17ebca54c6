"""One workload, ready to train: the interface between the model libraries and the step loop."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, cast

import torch
from torch import nn

from wattslice.records.run import DataFingerprint
from wattslice.workloads.data.base import WHOLE, Dataset, Shard

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
    gradient_accumulation_steps: int = 1
    compile_config: Mapping[str, Any] | None = None
    loader_config: Mapping[str, Any] | None = None
    shard: Shard = WHOLE

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
        """Return the CPU tensors of one step, counted from 0; see the data set for shapes.

        Of a data-parallel job it is this worker's part of the step: `batch_size` samples of
        `shard.count` times as many.
        """
        return self.dataset.batch(step, self.batch_size, self.seed, self.task, self.shard)

    def batches(self, start: int = 0) -> Iterator[Batch]:
        """Yield the batches from step `start` on, without end; with a loader, prepared ahead."""
        if self.loader_config is None:
            return (self.batch(step) for step in itertools.count(start))
        from wattslice.workloads.data.prefetch import prefetched

        return prefetched(
            self.batch,
            start,
            threads=int(self.loader_config["num_workers"]),
            ahead=int(self.loader_config["prefetch_factor"]),
            pin_memory=bool(self.loader_config["pin_memory"]),
        )

    def compiled(self, model: nn.Module) -> nn.Module:
        """Return what the step calls: `model` itself, or torch.compile's wrapper of it."""
        if self.compile_config is None:
            return model
        return cast("nn.Module", torch.compile(model, **self.compile_config))

    def loss(self, model: nn.Module, batch: Batch) -> torch.Tensor:
        """Return the scalar training loss (mean over the batch) with its graph.

        `model` is this workload's model or a wrapper of it (compiled, data parallel), on the same
        device as the batch. Call it under the precision's autocast.
        """
        return self.built.loss(model, batch)

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        """Return the optimizer over the trainable parameters of `model`.

        Create it after the model is on its device. Where the definition does not say `fused` or
        `foreach`, torch chooses the implementation.
        """
        config = self.optimizer_config
        chosen = {k: config[k] for k in ("fused", "foreach") if config.get(k) is not None}
        parameters = [p for p in model.parameters() if p.requires_grad]
        if config["name"] == "adamw":
            return torch.optim.AdamW(
                parameters, lr=config["lr"], weight_decay=config["weight_decay"], **chosen
            )
        if config["name"] == "sgd":
            return torch.optim.SGD(
                parameters,
                lr=config["lr"],
                momentum=config["momentum"],
                weight_decay=config["weight_decay"],
                **chosen,
            )
        raise ValueError(f"optimizer.name: {config['name']!r} is not one of adamw, sgd")


def count_parameters(model: nn.Module, trainable: bool = False) -> int:
    """Return the number of parameters of a model, meta or not; tied weights count once."""
    return sum(p.numel() for p in model.parameters() if p.requires_grad or not trainable)
