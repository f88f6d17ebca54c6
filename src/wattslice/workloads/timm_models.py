"""Image classifiers of timm, by timm's own names.

timm needs torchvision at import; both together take about 1.7 s after torch on one core, most of it
torch._dynamo, which any torch optimizer imports as well.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import timm
import torch
from timm.models import load_state_dict
from torch import nn
from torch.nn import functional

from wattslice.workloads.data.base import DataShape, normalise
from wattslice.workloads.errors import (
    UnknownFieldError,
    UnknownModelError,
    WeightsError,
    WorkloadError,
    near,
)
from wattslice.workloads.weights import locate
from wattslice.workloads.workload import Batch, BuiltModel, LossFunction

WEIGHT_FILES = ("model.safetensors", "pytorch_model.bin", "model.pth")


def build(definition: Mapping[str, Any], shape: DataShape, read_weights: bool = True) -> BuiltModel:
    """Return a timm classifier for the data's classes, channels and image size.

    `model_args` go to timm.create_model and win over what the data say. Without `read_weights` the
    model is random even where the definition names a weights file.

    Raises:
        UnknownModelError, UnknownFieldError, WeightsError: see wattslice.workloads.errors.
        WorkloadError: timm refuses the arguments.
    """
    name = str(definition["model"])
    if ":" in name or "/" in name or not timm.is_model(name.partition(".")[0]):
        raise UnknownModelError(
            f"model: {name!r} is not a timm {timm.__version__} model."
            f"{near(name, timm.list_models())}"
        )
    default = timm.get_pretrained_cfg(name) or timm.get_pretrained_cfg(name.partition(".")[0])
    arguments: dict[str, Any] = {"num_classes": shape.classes, "in_chans": shape.channels}
    if default is not None and default.fixed_input_size:
        arguments["img_size"] = shape.image_size
    arguments.update(definition["model_args"])
    path, origin = locate(definition.get("weights"))
    if path is not None and read_weights:
        arguments["pretrained"] = True
        arguments["pretrained_cfg_overlay"] = _local_weights(path, default)
    model = _create(name, arguments)
    if path is not None and read_weights:
        state = arguments["pretrained_cfg_overlay"]["state_dict"]
        origin = f"{origin}, {_check_loaded(model, state, str(path))}"
    if definition.get("gradient_checkpointing"):
        _checkpoint(model, name)
    memory_format = getattr(torch, definition.get("memory_format", "contiguous_format"))
    model.to(memory_format=memory_format)
    return BuiltModel(
        model=model,
        loss=_loss_function(int(arguments["in_chans"]), memory_format),
        weights=origin,
        description={
            "library": f"timm {timm.__version__}",
            "model_class": type(model).__name__,
            "arguments": {k: v for k, v in arguments.items() if not k.startswith("pretrained")},
        },
    )


def _create(name: str, arguments: dict[str, Any]) -> nn.Module:
    try:
        model = timm.create_model(name, **arguments)
    except TypeError as error:
        text = str(error)
        if "unexpected keyword argument" in text:
            field = text.rpartition("argument")[2].strip(" '\"")
            raise UnknownFieldError(
                f"model_args.{field}: timm's {name} does not take it"
            ) from error
        raise WorkloadError(f"model_args: timm refuses {name} with {arguments}: {error}") from error
    except (ValueError, AssertionError) as error:
        raise WorkloadError(f"model_args: timm refuses {name} with {arguments}: {error}") from error
    assert isinstance(model, nn.Module)
    return model


def _checkpoint(model: Any, name: str) -> None:
    """Have timm recompute activations block by block in the backward pass."""
    try:
        model.set_grad_checkpointing(True)
    except (AttributeError, AssertionError) as error:
        raise WorkloadError(
            f"gradient_checkpointing: timm's {name} cannot recompute its activations: {error}"
        ) from error


def _loss_function(channels: int, memory_format: torch.memory_format) -> LossFunction:
    def loss(model: nn.Module, batch: Batch) -> torch.Tensor:
        images = normalise(batch["images"], channels).contiguous(memory_format=memory_format)
        logits = model(images)
        return functional.cross_entropy(logits, batch["labels"])

    return loss


def _local_weights(path: Path, default: Any) -> dict[str, Any]:
    """Return the overlay of timm's pretrained_cfg that makes it load a local file.

    timm then adapts what it can: input channels, position embeddings, and a new random classifier
    where the number of classes differs.
    """
    file = path
    if path.is_dir():
        file = next((path / name for name in WEIGHT_FILES if (path / name).is_file()), path)
    if not file.is_file():
        raise WeightsError(
            f"weights: {str(path)!r} is neither a weights file nor a folder with one of "
            f"{', '.join(WEIGHT_FILES)}"
        )
    logging.getLogger("timm").setLevel(logging.ERROR)
    try:
        state = load_state_dict(str(file), device="cpu", weights_only=True)
    except Exception as error:
        raise WeightsError(f"weights: {str(file)!r} cannot be read: {error}") from error
    overlay: dict[str, Any] = {"state_dict": state, "source": "timm"}
    classifier = getattr(default, "classifier", None)
    names = (classifier,) if isinstance(classifier, str) else tuple(classifier or ())
    heads = [state[f"{name}.weight"] for name in names if f"{name}.weight" in state]
    if heads:
        overlay["num_classes"] = int(heads[0].shape[0])
    return overlay


def _check_loaded(model: Any, state: Mapping[str, torch.Tensor], weights: str) -> str:
    """Return how much of the model came from the file, and let go of the file's tensors.

    timm loads what fits and keeps the rest random; a parameter counts as loaded if a tensor of the
    file has its size and its first values.

    Raises:
        WeightsError: next to nothing came from the file.
    """

    def mark(tensor: torch.Tensor) -> tuple[int, tuple[float, ...]]:
        return tensor.numel(), tuple(tensor.flatten()[:8].float().tolist())

    known = {mark(tensor) for tensor in state.values()}
    parameters = list(model.parameters())
    total = sum(p.numel() for p in parameters)
    loaded = sum(p.numel() for p in parameters if mark(p.detach()) in known)
    if loaded < 0.1 * total:
        raise WeightsError(
            f"weights: {weights!r} does not fit: only {loaded:,} of {total:,} parameters are in it"
        )
    if isinstance(model.pretrained_cfg, dict):
        model.pretrained_cfg.pop("state_dict", None)
    return f"{loaded:,} of {total:,} parameters"
