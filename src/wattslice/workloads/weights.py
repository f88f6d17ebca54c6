"""Where pretrained weights come from: a local path, or the local hub cache. Nothing is downloaded.

`hub:<owner>/<name>` names a model that is used if some program has put it into the hub's cache of
this machine before, and that is random otherwise: a step takes the same time with either, and the
record says which it was. A path that is not there is an error instead: somebody meant it.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from wattslice.workloads.errors import WeightsError

HUB = "hub:"
_ANCHORS = ("config.json", "model.safetensors", "pytorch_model.bin")


class Located(NamedTuple):
    """A path of weights (None: random initial weights), and what the record says of it."""

    path: Path | None
    origin: str


def locate(weights: str | None) -> Located:
    """Return where weights are; see the module for the two forms of a name.

    Raises:
        WeightsError: a hub name that is not `hub:<owner>/<name>`. Paths are not looked at here.
    """
    if not weights:
        return Located(None, "random")
    if not weights.startswith(HUB):
        path = Path(weights).expanduser()
        return Located(path, f"{'file' if path.is_file() else 'folder'} {weights}")
    name = weights.removeprefix(HUB)
    folder = _cached(name)
    if folder is None:
        return Located(None, f"random ({weights} is not in the local hub cache)")
    return Located(folder, f"{weights}, revision {folder.name}")


def _cached(name: str) -> Path | None:
    """The snapshot folder of a hub model in the local cache, or None."""
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    try:
        for anchor in _ANCHORS:
            found = try_to_load_from_cache(name, anchor)
            if isinstance(found, str):
                return Path(found).parent
    except HFValidationError as error:
        raise WeightsError(f"weights: {HUB}{name} is not hub:<owner>/<name>: {error}") from error
    return None
