"""CIFAR-10 and CIFAR-100 from the folders that their authors distribute.

Source of the formats: Krizhevsky, https://www.cs.toronto.edu/~kriz/cifar.html. Binary files hold
rows of one label byte (two in CIFAR-100: coarse, fine) and 3,072 bytes of a 3x32x32 image; Python
files hold a pickled mapping with `data` and `labels` (or `fine_labels`).
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from wattslice.records.run import DataFingerprint
from wattslice.workloads.data.base import DataShape, ImageDataset, digest
from wattslice.workloads.errors import DataError

EDGE = 32  # pixels
PIXELS = 3 * EDGE * EDGE
_BATCHES = tuple(f"data_batch_{number}" for number in range(1, 6))


def shape_of(config: Mapping[str, Any]) -> DataShape:
    """Return the shape of a `cifar` entry: keys classes (10 or 100) and image_size (pixels)."""
    return DataShape(
        sample_unit="image",
        classes=int(config["classes"]),
        image_size=int(config["image_size"]),
        channels=3,
    )


def load(config: Mapping[str, Any], name: str, seed: int) -> ImageDataset:
    """Return the training images, resized bilinearly to image_size and stored as bytes.

    Raises:
        DataError: the folder or one of its files is not there, or a file is not CIFAR's.
    """
    del seed  # real data: the same for every seed
    shape = shape_of(config)
    path = Path(str(config["path"])).expanduser()
    names = _BATCHES if shape.classes == 10 else ("train",)
    parts = [_read(path, file, shape.classes) for file in names]
    pixels = torch.from_numpy(np.concatenate([part[0] for part in parts]))
    labels = torch.from_numpy(np.concatenate([part[1] for part in parts])).to(torch.int64)
    if int(labels.max()) >= shape.classes:
        raise DataError(f"data.path: {str(path)!r} has labels above {shape.classes - 1}")
    images = pixels.reshape(-1, 3, EDGE, EDGE)
    edge = int(config["image_size"])
    if edge != EDGE:
        parts_ = [_resize(images[i : i + 256], edge) for i in range(0, len(images), 256)]
        images = torch.cat(parts_)
    fingerprint = DataFingerprint(
        name=name,
        kind="cifar",
        real=True,
        samples=len(labels),
        sha256=digest(images, labels),
        source=str(path),
    )
    return ImageDataset(shape, fingerprint, images, labels)


def _resize(pixels: torch.Tensor, edge: int) -> torch.Tensor:
    large = functional.interpolate(
        pixels.to(torch.float32), size=(edge, edge), mode="bilinear", align_corners=False
    )
    return large.round_().clamp_(0, 255).to(torch.uint8)


def _read(path: Path, name: str, classes: int) -> tuple[Any, Any]:
    """Pixels uint8 [n, 3072] and labels [n] of one file, in either form."""
    binary, pickled = path / f"{name}.bin", path / name
    if binary.is_file():
        heads = 1 if classes == 10 else 2
        raw = np.fromfile(binary, dtype=np.uint8)
        if raw.size % (heads + PIXELS):
            raise DataError(f"data.path: {str(binary)!r} has no whole number of CIFAR rows")
        rows = raw.reshape(-1, heads + PIXELS)
        return rows[:, heads:].copy(), rows[:, heads - 1].copy()
    if pickled.is_file():
        held = _Unpickler(io.BytesIO(pickled.read_bytes()), encoding="bytes").load()
        key = b"labels" if classes == 10 else b"fine_labels"
        return held[b"data"], np.asarray(held[key])
    raise DataError(
        f"data.path: {str(path)!r} has neither {binary.name} nor {pickled.name}; give the unpacked "
        "folder of CIFAR's binary or Python version"
    )


class _Unpickler(pickle.Unpickler):
    """A pickle may run any code; CIFAR's needs numpy's arrays only."""

    def find_class(self, module: str, name: str) -> Any:
        allowed = {"_reconstruct", "ndarray", "dtype"}
        if module.split(".", maxsplit=1)[0] == "numpy" and name in allowed:
            return super().find_class(module.replace("numpy.core", "numpy._core"), name)
        if (module, name) == ("_codecs", "encode"):  # bytes, as Python 3 writes them
            return super().find_class(module, name)
        raise DataError(
            f"data.path: a CIFAR file asks for {module}.{name}, which it has no use for"
        )
