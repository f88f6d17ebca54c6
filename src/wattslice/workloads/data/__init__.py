"""Data sets behind one interface: `load` makes one, `shape_of` says its shape without making it."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from wattslice.workloads.errors import DataError, near

if TYPE_CHECKING:
    from wattslice.workloads.data.base import Dataset, DataShape

# By full name: the digest of the measuring code follows module names in strings.
_MODULES = {
    "cifar": "wattslice.workloads.data.cifar",
    "digits": "wattslice.workloads.data.digits",
    "image-folder": "wattslice.workloads.data.image_folder",
    "pydoc-text": "wattslice.workloads.data.text",
    "synthetic-images": "wattslice.workloads.data.synthetic",
    "synthetic-tokens": "wattslice.workloads.data.synthetic",
    "text-files": "wattslice.workloads.data.text_files",
}


def load(config: Mapping[str, Any], name: str, seed: int) -> Dataset:
    """Return the data set of a `data` entry (keys of its config model, `kind` among them).

    `name` is its key in the config; `seed` is used by synthetic data only: real data are the same
    for every seed, and their order is a matter of `Dataset.batch`.

    Raises:
        DataError: unknown kind, a missing source, or a shape that the source cannot fill.
    """
    return cast("Dataset", _module(config).load(config, name, seed))


def shape_of(config: Mapping[str, Any]) -> DataShape:
    """Return what a model has to know of a data set, without reading any data."""
    return cast("DataShape", _module(config).shape_of(config))


def _module(config: Mapping[str, Any]) -> Any:
    kind = str(config.get("kind"))
    if kind not in _MODULES:
        valid = ", ".join(_MODULES)
        raise DataError(f"data.kind: {kind!r} is unknown; valid: {valid}.{near(kind, _MODULES)}")
    return importlib.import_module(_MODULES[kind])
