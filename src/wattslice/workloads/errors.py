"""What can be wrong with a workload's definition. All are found before the first step."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class WorkloadError(Exception):
    """A workload that cannot be built; the message names the key, the value and what is valid."""


class UnknownModelError(WorkloadError):
    """A framework or model name that the installed libraries do not know."""


class UnknownFieldError(WorkloadError):
    """A key of `model_args` that the model does not take."""


class DataError(WorkloadError):
    """A data set that cannot be made, or that does not fit the task or the model."""


class WeightsError(WorkloadError):
    """Local pretrained weights that are missing or do not fit the model."""


def near(value: str, valid: Iterable[str], limit: int = 3) -> str:
    """Return a sentence with the valid names nearest to `value`, or '' where none is near."""
    names = list(valid)
    matches = difflib.get_close_matches(value, names, n=limit, cutoff=0.6)
    if not matches and len(value) >= 4:
        matches = sorted((name for name in names if value in name), key=len)[:limit]
    return f" Did you mean {', '.join(matches)}?" if matches else ""
