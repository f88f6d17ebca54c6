"""The spec of a run: all that is scientific about it, in canonical form with a digest.

This module is read by the training side; it imports nothing of the campaign's config, so that a
change of the config's documentation never counts as a change of a measurement.
"""

from __future__ import annotations

from typing import Any

from wattslice.files import canonical_json, sha256_text
from wattslice.records.base import Record

SPEC_VERSION = 1


class Assignment(Record):
    """Which workload trains on one slice of the layout."""

    slice_index: int
    workload: str
    definition: dict[str, Any]  # WorkloadConfig without its note, the data set in place of its name


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

    def canonical(self) -> str:
        return canonical_json(self.model_dump(mode="json"))

    def digest(self) -> str:
        return sha256_text(self.canonical())
