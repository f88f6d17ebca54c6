"""Deterministic random data of any shape: for throughput at full size; the loss need not fall."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from wattslice.records.run import DataFingerprint
from wattslice.workloads.data.base import (
    CLS,
    SPECIAL_TOKENS,
    DataShape,
    ImageDataset,
    TokenDataset,
    digest,
    generator,
)


def shape_of(config: Mapping[str, Any]) -> DataShape:
    """Return the shape of a `synthetic-images` or `synthetic-tokens` entry."""
    if config["kind"] == "synthetic-images":
        return DataShape(
            sample_unit="image",
            classes=int(config["classes"]),
            image_size=int(config["image_size"]),
            channels=int(config["channels"]),
        )
    return DataShape(
        sample_unit="sequence",
        classes=int(config["classes"]),
        sequence_length=int(config["sequence_length"]),
        vocabulary=int(config["vocabulary"]),
    )


def load(config: Mapping[str, Any], name: str, seed: int) -> ImageDataset | TokenDataset:
    """Return `samples` random samples, uniform over bytes or ordinary tokens, and over classes."""
    shape = shape_of(config)
    samples = int(config["samples"])
    source = generator(seed, 0)
    labels = torch.randint(shape.classes, (samples,), generator=source)

    def fingerprint(data: torch.Tensor) -> DataFingerprint:
        return DataFingerprint(
            name=name,
            kind=str(config["kind"]),
            real=False,
            samples=samples,
            sha256=digest(data, labels),
            source=f"torch generator, seed {seed}",
        )

    if shape.sample_unit == "image":
        size = (samples, int(config["channels"]), int(config["image_size"]))
        images = torch.randint(256, (*size, size[-1]), generator=source, dtype=torch.uint8)
        return ImageDataset(shape, fingerprint(images), images, labels)
    vocabulary = int(config["vocabulary"])
    sequences = torch.randint(
        SPECIAL_TOKENS,
        vocabulary,
        (samples, int(config["sequence_length"])),
        generator=source,
        dtype=torch.int32,
    )
    sequences[:, 0] = CLS
    ordinary = (SPECIAL_TOKENS, vocabulary)
    return TokenDataset(shape, fingerprint(sequences), sequences, labels, ordinary)
