"""ImageNet-style folders: one folder of images per class, decoded while training.

Every image is resized so that its shorter edge is image_size / 0.875, cut at the centre, and
flipped at random (from seed and step, so that a batch repeats). Decoding is the work that real
training waits for: give the workload a `loader`, or see it in the share of time spent on data.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from wattslice.records.run import DataFingerprint
from wattslice.workloads.data.base import DataShape, Images, Shard, generator
from wattslice.workloads.errors import DataError

CROP_SHARE = 0.875  # 224 of 256: He et al. 2015, section 3.4


def shape_of(config: Mapping[str, Any]) -> DataShape:
    """Return the shape of an `image-folder` entry: keys image_size (pixels) and classes."""
    return DataShape(
        sample_unit="image",
        classes=int(config["classes"]),
        image_size=int(config["image_size"]),
        channels=int(config["channels"]),
    )


def load(config: Mapping[str, Any], name: str, seed: int) -> ImageFolder:
    """Return the images below `path`; only their names are read now.

    Raises:
        DataError: no such folder, a class without images, or another number of classes.
    """
    del seed  # real data: the same for every seed
    from torchvision.datasets import ImageFolder as Listing

    path = Path(str(config["path"])).expanduser()
    try:
        listing = Listing(str(path))
    except FileNotFoundError as error:
        raise DataError(
            f"data.path: {str(path)!r} holds no class folders with images: {error}"
        ) from error
    shape = shape_of(config)
    if len(listing.classes) != shape.classes:
        raise DataError(
            f"data.classes: {shape.classes} asked, {str(path)!r} has {len(listing.classes)} folders"
        )
    files = [Path(file) for file, _ in listing.samples]
    fingerprint = DataFingerprint(
        name=name,
        kind="image-folder",
        real=True,
        samples=len(files),
        sha256=_digest(files, path),
        source=f"{path} (digest of names and sizes, not of the pixels)",
    )
    return ImageFolder(shape, fingerprint, files, torch.tensor(listing.targets))


class ImageFolder(Images):
    """Images on disk, of three channels."""

    def __init__(
        self,
        shape: DataShape,
        fingerprint: DataFingerprint,
        files: list[Path],
        labels: torch.Tensor,
    ) -> None:
        super().__init__(shape, fingerprint, labels)
        self.files = files

    def _pixels(self, index: torch.Tensor, step: int, seed: int, shard: Shard) -> torch.Tensor:
        count = len(index)
        everything = torch.rand(count * shard.count, generator=generator(seed, 3, step))
        flips = (everything[shard.rows(count)] < 0.5).tolist()
        edge = int(self.shape.image_size or 0)
        images = torch.empty(count, 3, edge, edge, dtype=torch.uint8)
        for row, (sample, flip) in enumerate(zip(index.tolist(), flips, strict=True)):
            images[row] = read_image(self.files[sample], edge, flip=flip)
        return images


def read_image(file: Path, edge: int, *, flip: bool) -> torch.Tensor:
    """Return an image file as uint8 [3, edge, edge], resized and cut at the centre.

    Raises:
        DataError: the file is not a readable image.
    """
    from PIL import Image, UnidentifiedImageError

    short = round(edge / CROP_SHARE)
    try:
        with Image.open(file) as image:
            image.draft("RGB", (short, short))  # JPEG: decode at a smaller scale where possible
            picture = image.convert("RGB")
    except (OSError, UnidentifiedImageError) as error:
        raise DataError(f"data: {str(file)!r} cannot be read: {error}") from error
    width, height = picture.size
    scale = short / min(width, height)
    size = (max(short, round(width * scale)), max(short, round(height * scale)))
    picture = picture.resize(size, Image.Resampling.BILINEAR)
    left, top = (size[0] - edge) // 2, (size[1] - edge) // 2
    picture = picture.crop((left, top, left + edge, top + edge))
    pixels = np.asarray(picture)
    if flip:
        pixels = pixels[:, ::-1]
    return torch.from_numpy(np.ascontiguousarray(pixels.transpose(2, 0, 1)))


def _digest(files: list[Path], root: Path) -> str:
    state = hashlib.sha256()
    for file in files:
        state.update(f"{file.relative_to(root).as_posix()}\0{file.stat().st_size}\n".encode())
    return state.hexdigest()
