"""Python's own help topics as byte tokens: real English text that comes with every Python.

Source: the module pydoc_data.topics of the running interpreter (the text behind `help()`, made from
the language reference). It changes a little between Python releases; the fingerprint shows it.
"""

from __future__ import annotations

import importlib
import platform
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from wattslice.records.run import DataFingerprint
from wattslice.workloads.data.base import CLS, SPECIAL_TOKENS, DataShape, TokenDataset, digest
from wattslice.workloads.errors import DataError

# 3 special tokens + 256 bytes, rounded up to a multiple of 8: matrix products with such an edge use
# tensor cores in half precision. The last ids are never seen.
VOCABULARY = 264


def shape_of(config: Mapping[str, Any]) -> DataShape:
    """Return the shape of a `pydoc-text` entry: keys sequence_length (tokens) and classes."""
    return DataShape(
        sample_unit="sequence",
        classes=int(config["classes"]),
        sequence_length=int(config["sequence_length"]),
        vocabulary=VOCABULARY,
    )


def load(config: Mapping[str, Any], name: str, seed: int) -> TokenDataset:
    """Return the `classes` longest topics cut into full sequences; the label is the topic.

    A sequence is CLS and sequence_length - 1 bytes (token = byte + 3). The rest of a topic that
    does not fill a sequence is dropped, so no step has padding.

    Raises:
        DataError: the text is not installed, or a topic is too short for one sequence.
    """
    del seed  # real data: the same for every seed
    shape = shape_of(config)
    length = int(config["sequence_length"]) - 1
    topics = _topics()
    if shape.classes > len(topics):
        raise DataError(f"data.classes: {shape.classes} topics asked, there are {len(topics)}")
    parts: list[np.ndarray[Any, np.dtype[np.uint8]]] = []
    labels: list[int] = []
    for label, (topic, text) in enumerate(topics[: shape.classes]):
        count = len(text) // length
        if count == 0:
            raise DataError(
                f"data.sequence_length: topic {label + 1} of {shape.classes} ({topic!r}) has only "
                f"{len(text)} bytes; use fewer classes or sequences of at most {len(text) + 1}"
            )
        parts.append(np.frombuffer(text, dtype=np.uint8)[: count * length].reshape(count, length))
        labels += [label] * count
    body = torch.from_numpy(np.concatenate(parts)).to(torch.int16) + SPECIAL_TOKENS
    start = torch.full((len(body), 1), CLS, dtype=torch.int16)
    sequences, targets = torch.cat([start, body], dim=1), torch.tensor(labels)
    fingerprint = DataFingerprint(
        name=name,
        kind="pydoc-text",
        real=True,
        samples=len(targets),
        sha256=digest(sequences, targets),
        source=f"pydoc_data.topics of Python {platform.python_version()}",
    )
    ordinary = (SPECIAL_TOKENS, SPECIAL_TOKENS + 256)
    return TokenDataset(shape, fingerprint, sequences, targets, ordinary)


def _topics() -> list[tuple[str, bytes]]:
    """Return (name, text) of all topics, longest first, equal lengths by name."""
    try:
        module = importlib.import_module("pydoc_data.topics")
    except ImportError as error:
        raise DataError(
            "data.kind: 'pydoc-text' needs Python's module pydoc_data.topics, which this Python "
            "installation has left out"
        ) from error
    texts = ((name, str(text).encode("utf-8")) for name, text in module.topics.items())
    return sorted(texts, key=lambda item: (-len(item[1]), item[0]))
