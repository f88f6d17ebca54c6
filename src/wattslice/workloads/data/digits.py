"""Handwritten digits that come with scikit-learn: 1,797 real grey images of 8x8 pixels, 10 classes.

Source: the test set of the UCI "Optical Recognition of Handwritten Digits" collection (Alpaydin and
Kaynak 1998). The packaged file is read with numpy: importing sklearn.datasets would cost about 1 s
of every run's start, reading the file costs 0.03 s.
"""

from __future__ import annotations

import gzip
import importlib.metadata
import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from wattslice.records.run import DataFingerprint
from wattslice.workloads.data.base import DataShape, ImageDataset, digest
from wattslice.workloads.errors import DataError

CLASSES = 10
EDGE = 8  # pixels
WHITE = 16.0  # brightest value in the file


def shape_of(config: Mapping[str, Any]) -> DataShape:
    """Return the shape of a `digits` entry: keys image_size (pixels) and channels."""
    return DataShape(
        sample_unit="image",
        classes=CLASSES,
        image_size=int(config["image_size"]),
        channels=int(config["channels"]),
    )


def load(config: Mapping[str, Any], name: str, seed: int) -> ImageDataset:
    """Return the digits, resized bilinearly to image_size x image_size and stored as bytes.

    Raises:
        DataError: scikit-learn or its data file is not there.
    """
    del seed  # real data: the same for every seed
    shape = shape_of(config)
    rows, version = _read()
    labels = torch.from_numpy(rows[:, EDGE * EDGE]).to(torch.int64)
    pixels = torch.from_numpy(rows[:, : EDGE * EDGE]).reshape(-1, 1, EDGE, EDGE)
    edge = int(config["image_size"])
    parts = [_resize(pixels[i : i + 128], edge) for i in range(0, len(pixels), 128)]
    images = torch.cat(parts)
    fingerprint = DataFingerprint(
        name=name,
        kind="digits",
        real=True,
        samples=len(labels),
        sha256=digest(images, labels),
        source=f"scikit-learn {version}, sklearn/datasets/data/digits.csv.gz",
    )
    return ImageDataset(shape, fingerprint, images, labels)


def _resize(pixels: torch.Tensor, edge: int) -> torch.Tensor:
    large = functional.interpolate(pixels, size=(edge, edge), mode="bilinear", align_corners=False)
    return large.mul_(255.0 / WHITE).round_().to(torch.uint8)


def _read() -> tuple[np.ndarray[Any, np.dtype[np.float32]], str]:
    spec = importlib.util.find_spec("sklearn")
    folders = spec.submodule_search_locations if spec else None
    for folder in folders or ():
        path = Path(folder) / "datasets" / "data" / "digits.csv.gz"
        if path.is_file():
            with gzip.open(path, "rt", encoding="ascii") as handle:
                rows = np.loadtxt(handle, delimiter=",", dtype=np.float32)
            return rows, importlib.metadata.version("scikit-learn")
    raise DataError("data.kind: 'digits' needs scikit-learn with its packaged data files")
