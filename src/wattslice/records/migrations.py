"""Older versions of run.json, read as the present one.

A record on disk is never rewritten: its digests are those of the file as it was made. Reading it
brings it to the present schema, one version at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

RUN_SCHEMA_VERSION = 3
Content = dict[str, Any]


def _from_1(content: Content) -> Content:
    """Version 2 says in which container image a run was made."""
    container = {"kind": None, "reason": "not recorded by schema version 1"}
    return {**content, "container": container}


def _from_2(content: Content) -> Content:
    """Version 3 can be of several boards; before, a run was of one."""
    return {**content, "boards": []}


_STEPS: dict[int, Callable[[Content], Content]] = {1: _from_1, 2: _from_2}


def migrate_run(content: Mapping[str, Any]) -> Content:
    """The content of a run.json of any known version, as the present version.

    Raises ValueError for a version that this code does not know.
    """
    migrated = dict(content)
    version = migrated.get("schema_version", RUN_SCHEMA_VERSION)
    while version != RUN_SCHEMA_VERSION:
        step = _STEPS.get(version)
        if step is None:
            known = ", ".join(map(str, [*_STEPS, RUN_SCHEMA_VERSION]))
            raise ValueError(
                f"schema version {version!r} is not one that this wattslice reads ({known}); "
                "use the version of wattslice that made the record, or a newer one"
            )
        version += 1
        migrated = {**step(migrated), "schema_version": version}
    return migrated
