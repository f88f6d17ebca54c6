"""A small valid campaign that tests change in one place."""

from __future__ import annotations

import copy
from typing import Any

_BASE: dict[str, Any] = {
    "name": "test",
    "title": "Test",
    "board": {"kind": "cpu"},
    "data": {"digits": {"kind": "digits"}, "text": {"kind": "pydoc-text"}},
    "workloads": {
        "resnet": {
            "framework": "timm",
            "model": "resnet10t",
            "task": "image-classification",
            "data": "digits",
            "batch_size": 4,
        },
        "albert": {
            "framework": "transformers",
            "model": "albert",
            "task": "masked-lm",
            "data": "text",
            "batch_size": 4,
        },
    },
    "experiments": [
        {
            "name": "main",
            "layouts": ["full", "2x1c"],
            "workloads": ["resnet", "albert"],
            "precisions": ["fp32", "bf16"],
            "placements": ["solo", "fill"],
            "repeats": 2,
        }
    ],
}


def campaign(**changes: Any) -> dict[str, Any]:
    """The base config; `experiments__0__layouts=[...]` sets a nested key."""
    raw = copy.deepcopy(_BASE)
    for path, value in changes.items():
        target: Any = raw
        *parents, last = [int(p) if p.isdigit() else p for p in path.split("__")]
        for part in parents:
            target = target[part]
        target[last] = value
    return raw
