"""Check before any training that a campaign's models can be built."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from wattslice.workloads.errors import WorkloadError
from wattslice.workloads.registry import build_model
from wattslice.workloads.weights import HUB


def model_problems(workloads: Mapping[str, Mapping[str, Any]]) -> Iterable[str]:
    """One line for each workload whose model is unknown, does not fit, or lacks its weights.

    Models are built on the meta device: shapes without memory.
    """
    for name, definition in workloads.items():
        where = f"config key 'workloads.{name}"
        try:
            build_model(definition, meta=True)
        except WorkloadError as error:
            yield f"{where}': {error}"
        weights = definition.get("weights")
        if weights and not weights.startswith(HUB) and not Path(weights).expanduser().exists():
            yield f"{where}.weights': value {weights!r} does not exist"
