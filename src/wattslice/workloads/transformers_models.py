"""Language models of transformers, by `model_type`: classification, masked and causal LM.

Start-up, transformers 5.24 with torch 2.14 on a 2-core machine, from a bare interpreter, three
runs each: torch alone 1.3 s; a model's own module 3.7-4.1 s; the Auto classes and a model built
through them 4.2-4.6 s. With torchvision, scipy and scikit-learn hidden during the import
(transformers' losses for object detection would import them) the last two take 3.4 s and
3.4-3.5 s: the Auto mappings are lazy and cost nothing, so they are used. 0.9 s of the rest is
torch._dynamo, which the first torch optimizer would import anyway.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from wattslice.workloads.data.base import PAD, DataShape
from wattslice.workloads.errors import (
    DataError,
    UnknownFieldError,
    UnknownModelError,
    WeightsError,
    WorkloadError,
    near,
)
from wattslice.workloads.weights import locate
from wattslice.workloads.workload import Batch, BuiltModel

_MAPPINGS = {
    "text-classification": "MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING",
    "masked-lm": "MODEL_FOR_MASKED_LM_MAPPING",
    "causal-lm": "MODEL_FOR_CAUSAL_LM_MAPPING",
}
# The layer to recompute, of models for which transformers has no checkpointing of its own.
_CHECKPOINTED = {"albert": "AlbertLayer"}
_UNUSED_PACKAGES = ("torchvision", "scipy", "sklearn")
# Fields of every config class that say nothing about the model.
_PLUMBING = {"transformers_version", "architectures", "id2label", "label2id", "return_dict"}


def build(definition: Mapping[str, Any], shape: DataShape, read_weights: bool = True) -> BuiltModel:
    """Return a language model for the data's vocabulary, sequence length and classes.

    `model_args` are fields of the model's config class and win over what the data say;
    `attn_implementation` among them chooses the attention (default: sdpa, eager for a model that
    has none). Without `read_weights` a pretrained folder gives its config only.

    Raises:
        UnknownModelError, UnknownFieldError, DataError, WeightsError: see the errors module.
        WorkloadError: transformers refuses the arguments.
    """
    with _hidden(_UNUSED_PACKAGES):
        configurations = importlib.import_module("transformers.models.auto.configuration_auto")
        models = importlib.import_module("transformers.models.auto.modeling_auto")
        model_type, task = str(definition["model"]), str(definition["task"])
        names = configurations.CONFIG_MAPPING_NAMES
        if model_type not in names:
            raise UnknownModelError(
                f"model: {model_type!r} is not a model_type of transformers "
                f"{_version()}.{near(model_type, names)}"
            )
        config_class = configurations.CONFIG_MAPPING[model_type]
        mapping = getattr(models, _MAPPINGS[task])
        if config_class not in mapping:
            known = getattr(models, f"{_MAPPINGS[task]}_NAMES")
            raise UnknownModelError(
                f"model: transformers {_version()} has no {task} model of type {model_type!r}."
                f"{near(model_type, known)}"
            )
        found = mapping[config_class]
        model_class = found[0] if isinstance(found, tuple) else found
        folder, origin = locate(definition.get("weights"))
        fields, attention = _config_fields(definition, config_class, shape, folder is not None)
        if folder is not None:
            _check_folder(folder, config_class.model_type)

        def make(attention: str) -> Any:
            if folder is None:
                return model_class(config_class(**fields, attn_implementation=attention))
            config = config_class.from_pretrained(
                str(folder), local_files_only=True, attn_implementation=attention, **fields
            )
            if not read_weights:
                return model_class(config)
            return model_class.from_pretrained(
                str(folder),
                config=config,
                local_files_only=True,
                dtype=torch.float32,
                ignore_mismatched_sizes="num_labels" in fields,
            )

        strict = importlib.import_module("huggingface_hub.errors").StrictDataclassError
        try:
            model = _with_attention(attention, make)
        except (ValueError, TypeError, KeyError, ImportError, OSError, strict) as error:
            if folder is not None:
                raise WeightsError(f"weights: {str(folder)!r} cannot be loaded: {error}") from error
            raise WorkloadError(
                f"model_args: transformers refuses {model_class.__name__} with {fields}: {error}"
            ) from error
    config: Any = model.config
    _check_size(config, shape)
    activation = next(
        (
            getattr(config, k)
            for k in ("hidden_act", "activation", "activation_function")
            if getattr(config, k, None) is not None
        ),
        None,
    )
    recomputed: dict[str, object] = {}
    if definition.get("gradient_checkpointing"):
        recomputed["gradient_checkpointing"] = _checkpoint(model)
    _skip_padding_check(model)
    adapter = definition.get("adapter")
    name = type(model).__name__
    return BuiltModel(
        model=model if adapter is None else _adapted(model, adapter, str(definition["task"])),
        loss=_loss,
        weights=origin,
        description={
            "library": f"transformers {_version()}",
            "model_class": name,
            "attn_implementation": config._attn_implementation,
            "activation": activation,
            **recomputed,
            **({} if adapter is None else {"adapter": f"peft {_peft_version()}"}),
        },
    )


def _skip_padding_check(model: Any) -> None:
    """Switch off the search for padding tokens in every batch, which is only there to warn.

    It reads a value from the device, so that the host waits for the device in every forward pass.
    Our sequences are full, or come with an attention mask.
    """
    for module in model.modules():
        if hasattr(module, "warn_if_padding_and_no_attention_mask"):
            module.warn_if_padding_and_no_attention_mask = _nothing


def _nothing(*_: object) -> None:
    pass


def _checkpoint(model: Any) -> str:
    """Have activations recomputed layer by layer in the backward pass; say by whose means."""
    layer = _CHECKPOINTED.get(model.config.model_type)
    if layer is not None:
        for module in model.modules():
            if type(module).__name__ == layer:
                module.forward = functools.partial(checkpoint, module.forward, use_reentrant=False)
        return f"torch.utils.checkpoint around {layer}"
    kwargs = {"use_reentrant": False}
    try:
        if hasattr(model, "activation_checkpointing_enable"):  # the name since transformers 5.24
            model.activation_checkpointing_enable(activation_checkpointing_kwargs=kwargs)
        else:
            model.gradient_checkpointing_enable(gradient_checkpointing_kwargs=kwargs)
    except (ValueError, NotImplementedError) as error:
        raise WorkloadError(
            f"gradient_checkpointing: {type(model).__name__} cannot recompute its activations: "
            f"{error}"
        ) from error
    return "transformers"


def _adapted(model: Any, adapter: Mapping[str, Any], task: str) -> nn.Module:
    """Freeze a model and put trainable low-rank adapters beside its layers (peft)."""
    peft = importlib.import_module("peft")
    targets = adapter.get("target_modules")
    config = peft.LoraConfig(
        # With a task type peft keeps a new classifier trainable beside the adapters.
        task_type={"text-classification": "SEQ_CLS", "causal-lm": "CAUSAL_LM"}.get(task),
        r=adapter["r"],
        lora_alpha=adapter["lora_alpha"],
        lora_dropout=adapter["lora_dropout"],
        target_modules=None if targets is None else list(targets),
        fan_in_fan_out=model.config.model_type == "gpt2",  # its layers hold transposed weights
    )
    try:
        adapted = peft.get_peft_model(model, config)
    except ValueError as error:
        raise WorkloadError(f"adapter: peft refuses {type(model).__name__}: {error}") from error
    assert isinstance(adapted, nn.Module)
    return adapted


def _peft_version() -> str:
    return str(sys.modules["peft"].__version__)


def _loss(model: nn.Module, batch: Batch) -> torch.Tensor:
    """Return the model's own loss; it shifts the labels of a causal LM itself."""
    output = model(**batch)
    loss = output.loss
    assert isinstance(loss, torch.Tensor)
    return loss


def _config_fields(
    definition: Mapping[str, Any], config_class: Any, shape: DataShape, from_weights: bool
) -> tuple[dict[str, Any], str | None]:
    """Return the config's fields (user's over data's) and the attention asked for, if any."""
    given: dict[str, Any] = dict(definition["model_args"])
    attention = given.pop("attn_implementation", None)
    valid = {field.name for field in dataclasses.fields(config_class)}
    aliases: dict[str, str] = dict(config_class.attribute_map)
    length = aliases.get("max_position_embeddings", "max_position_embeddings")
    for key in given:
        if key not in valid and key not in aliases:
            offered = sorted((valid | set(aliases)) - _PLUMBING)
            raise UnknownFieldError(
                f"model_args.{key}: {config_class.__name__} has no such field."
                f"{near(key, offered)} Valid: attn_implementation, {', '.join(offered)}"
            )
    fields: dict[str, Any] = {}
    if definition["task"] == "text-classification":
        fields["num_labels"] = shape.classes
    if definition["task"] == "causal-lm" and "is_decoder" in valid:
        fields["is_decoder"] = True  # BERT and its like look ahead otherwise
    if not from_weights:
        if "vocab_size" in valid or "vocab_size" in aliases:
            fields[aliases.get("vocab_size", "vocab_size")] = shape.vocabulary
        if "pad_token_id" in valid:
            fields["pad_token_id"] = PAD
        default = getattr(config_class(), length, None) if length in valid else None
        if isinstance(default, int) and shape.sequence_length is not None:
            fields[length] = max(default, shape.sequence_length)
    if "use_cache" in valid:
        fields["use_cache"] = False  # keys and values of earlier tokens serve generation only
    fields.update({aliases.get(key, key): value for key, value in given.items()})
    return fields, attention


def _with_attention(attention: str | None, make: Callable[[str], Any]) -> nn.Module:
    """Make the model with the attention asked for, or with sdpa, or eager where it has no sdpa."""
    try:
        model = make(attention or "sdpa")
    except ValueError as error:
        if attention is not None or "scaled_dot_product_attention" not in str(error):
            raise
        model = make("eager")
    assert isinstance(model, nn.Module)
    return model


def _check_folder(folder: Path, model_type: str) -> None:
    try:
        written = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise WeightsError(
            f"weights: {str(folder)!r} is not a folder with a readable config.json: {error}"
        ) from error
    found = written.get("model_type")
    if found != model_type:
        raise WeightsError(f"weights: {str(folder)!r} holds a {found!r} model, not {model_type!r}")


def _check_size(config: Any, shape: DataShape) -> None:
    size = getattr(config, "vocab_size", None)
    if size is not None and shape.vocabulary is not None and size < shape.vocabulary:
        raise DataError(f"vocab_size: the model has {size} tokens, the data use {shape.vocabulary}")
    positions = getattr(config, "max_position_embeddings", None)
    rotary = getattr(config, "rope_parameters", None) is not None  # any position has an angle
    length = shape.sequence_length
    if isinstance(positions, int) and length is not None and positions < length and not rotary:
        raise DataError(
            f"max_position_embeddings: the model has {positions} positions, "
            f"the data's sequences have {length} tokens"
        )


def _version() -> str:
    return str(sys.modules["transformers"].__version__)


@contextlib.contextmanager
def _hidden(packages: tuple[str, ...]) -> Iterator[None]:
    """Make transformers think that packages are not installed, while it is imported.

    A None in sys.modules is Python's own way to say so. transformers remembers the answer: its
    image processors are not to be used afterwards in this process. Nothing is hidden where a
    package is imported already.
    """
    hidden = [name for name in packages if name not in sys.modules]
    if "transformers" in sys.modules:
        hidden = []
    for name in hidden:
        sys.modules[name] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        for name in hidden:
            if sys.modules.get(name, hidden) is None:
                del sys.modules[name]
