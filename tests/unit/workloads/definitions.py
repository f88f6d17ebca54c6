"""Small workload definitions, as a run's spec holds them."""

from __future__ import annotations

from typing import Any

DIGITS = {"kind": "digits", "image_size": 32, "channels": 3}
TEXT = {"kind": "pydoc-text", "sequence_length": 64, "classes": 4}


def tokens(vocabulary: int, sequence_length: int = 128) -> dict[str, Any]:
    return {
        "kind": "synthetic-tokens",
        "sequence_length": sequence_length,
        "vocabulary": vocabulary,
        "classes": 2,
        "samples": 8,
    }


def images(image_size: int, classes: int = 1000, channels: int = 3) -> dict[str, Any]:
    return {
        "kind": "synthetic-images",
        "image_size": image_size,
        "channels": channels,
        "classes": classes,
        "samples": 8,
    }


def workload(model: str, task: str, data: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return {
        "framework": "timm" if task == "image-classification" else "transformers",
        "model": model,
        "task": task,
        "data": data,
        "data_name": "data",
        "batch_size": 4,
        "model_args": {},
        "optimizer": {"name": "adamw", "lr": 1e-3, "weight_decay": 0.01, "momentum": 0.0},
        "mode": "train",
        "weights": None,
        **changes,
    }


TINY_VIT = {
    "patch_size": 8,
    "embed_dim": 48,
    "depth": 2,
    "num_heads": 3,
    "class_token": False,
    "global_pool": "avg",
}
TINY_BERT = {
    "hidden_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 96,
}
TINY_DISTILBERT = {"dim": 48, "n_layers": 1, "n_heads": 2, "hidden_dim": 96, "dropout": 0.0}
TINY_ALBERT = {**TINY_BERT, "embedding_size": 32}
TINY_LLAMA = {**TINY_BERT, "num_key_value_heads": 1}
TINY_GPT2 = {"n_embd": 48, "n_layer": 2, "n_head": 2}

# name: definition. One per family and task, each a fraction of a second.
SMALL = {
    "cnn": workload("test_resnet", "image-classification", DIGITS),
    "grey-cnn": workload("test_resnet", "image-classification", {**DIGITS, "channels": 1}),
    "vit": workload("vit_tiny_patch16_224", "image-classification", DIGITS, model_args=TINY_VIT),
    "synthetic-images": workload("test_resnet", "image-classification", images(40, 7)),
    "distilbert-mlm": workload("distilbert", "masked-lm", TEXT, model_args=TINY_DISTILBERT),
    "albert-mlm": workload("albert", "masked-lm", TEXT, model_args=TINY_ALBERT),
    "albert-classes": workload("albert", "text-classification", TEXT, model_args=TINY_ALBERT),
    "bert-classes": workload("bert", "text-classification", TEXT, model_args=TINY_BERT),
    "llama": workload("llama", "causal-lm", TEXT, model_args=TINY_LLAMA),
    "llama-classes": workload("llama", "text-classification", TEXT, model_args=TINY_LLAMA),
    "gpt2": workload("gpt2", "causal-lm", tokens(300, 32), model_args=TINY_GPT2),
}
