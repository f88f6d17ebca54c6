"""run.json: its schema, and reading what older versions wrote."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from pydantic import ValidationError

from fixtures.records import Truth, make_run
from wattslice.analysis.raw import read_run
from wattslice.provenance.schema import SCHEMA, schema_text
from wattslice.records.migrations import RUN_SCHEMA_VERSION
from wattslice.records.run import RunRecord

REPOSITORY = Path(__file__).resolve().parents[3]
VERSION_1 = REPOSITORY / "tests" / "fixtures" / "run-version-1.json"


@pytest.fixture
def content(tmp_path: Path) -> dict[str, Any]:
    loaded = json.loads((make_run(tmp_path, Truth()) / "run.json").read_text())
    assert isinstance(loaded, dict)
    return loaded


def test_the_schema_in_the_repository_is_that_of_the_model() -> None:
    assert (REPOSITORY / SCHEMA).read_text(encoding="utf-8") == schema_text()


def test_a_record_fits_the_schema(content: dict[str, Any]) -> None:
    jsonschema.validate(content, json.loads(schema_text()))


@pytest.mark.parametrize("key", ["spec_digest", "container", "raw", "schema_version"])
def test_the_schema_asks_for_what_a_number_is_traced_by(key: str, content: dict[str, Any]) -> None:
    del content[key]
    with pytest.raises(jsonschema.ValidationError, match=key):
        jsonschema.validate(content, json.loads(schema_text()))


def test_a_record_of_version_1_is_read_as_the_present_version() -> None:
    old = json.loads(VERSION_1.read_text())
    assert old["schema_version"] == 1
    assert "container" not in old
    record = RunRecord.model_validate_json(VERSION_1.read_bytes())
    assert record.schema_version == RUN_SCHEMA_VERSION
    assert record.container == {"kind": None, "reason": "not recorded by schema version 1"}
    migrated = record.model_dump(mode="json")
    jsonschema.validate(migrated, json.loads(schema_text()))
    assert _known_to(old, migrated) | {"schema_version": 1} == old


def _known_to(old: Any, new: Any) -> Any:
    """The part of a migrated record that the old one has too."""
    if isinstance(old, dict):
        return {key: _known_to(value, new[key]) for key, value in old.items()}
    if isinstance(old, list):
        return [_known_to(a, b) for a, b in zip(old, new, strict=True)]
    return new


def test_reading_a_record_does_not_change_it(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_bytes(VERSION_1.read_bytes())
    assert read_run(tmp_path).schema_version == RUN_SCHEMA_VERSION
    assert (tmp_path / "run.json").read_bytes() == VERSION_1.read_bytes()


@pytest.mark.parametrize("version", [RUN_SCHEMA_VERSION + 1, 0, "two", None])
def test_a_version_that_is_not_known_is_refused(version: object, content: dict[str, Any]) -> None:
    unknown = copy.deepcopy(content) | {"schema_version": version}
    with pytest.raises(ValidationError, match="schema version"):
        RunRecord.model_validate(unknown)
