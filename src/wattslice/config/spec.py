"""The spec of a run: all that is scientific about it, in canonical form with a digest.

This module is read by the training side; it imports nothing of the campaign's config, so that a
change of the config's documentation never counts as a change of a measurement.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import SerializerFunctionWrapHandler, model_serializer

from wattslice.files import canonical_json, sha256_text
from wattslice.records.base import Record

SPEC_VERSION = 1


class Assignment(Record):
    """Which workload trains on one slice of the layout."""

    slice_index: int
    workload: str
    definition: dict[str, Any]  # WorkloadConfig without its note, the data set in place of its name


class Sharing(Record):
    """How several workers share the one slice of a layout: no partitions, a baseline for them."""

    scheme: Literal["time-slice", "mps"]
    active_thread_percentages: tuple[int, ...] | None = None  # mps, per worker; None: no limits


class RunSpec(Record):
    """One run. Two runs with equal specs are the same run."""

    version: int = SPEC_VERSION
    board: dict[str, Any]  # kind, selection, MIG policy, power model
    layout: str
    assignments: tuple[Assignment, ...]  # slices that are not named stay empty
    precision: str
    repeat: int
    seed: int
    measure: dict[str, Any]  # MeasureConfig
    sharing: Sharing | None = None  # None: each worker has a slice of its own
    parallel: Literal["ddp"] | None = None  # ddp: the workers train one model together

    @model_serializer(mode="wrap")
    def _without_what_is_not_used(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """A key that was added later is left out at its default, so that old digests hold."""
        fields: dict[str, Any] = handler(self)
        for name in ("sharing", "parallel"):
            if fields.get(name) is None:
                fields.pop(name, None)
        return fields

    def canonical(self) -> str:
        return canonical_json(self.model_dump(mode="json"))

    def digest(self) -> str:
        return sha256_text(self.canonical())
