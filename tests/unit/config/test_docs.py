"""The generated schema and documentation are those of the models."""

from __future__ import annotations

from pathlib import Path

import jsonschema
import pytest
import yaml

from wattslice.config import docs


@pytest.mark.parametrize(
    ("path", "text"),
    [
        (docs.SCHEMA, docs.schema_text()),
        (docs.README, docs.readme_text(docs.README.read_text(encoding="utf-8"))),
    ],
    ids=["schema", "readme"],
)
def test_generated_files_are_fresh(path: Path, text: str) -> None:
    assert path.read_text(encoding="utf-8") == text, "run `make docs`"


def test_the_default_config_fits_the_schema() -> None:
    config = yaml.safe_load(Path("config/config.yaml").read_text(encoding="utf-8"))
    jsonschema.validate(config, yaml.safe_load(docs.schema_text()))


def test_every_field_is_documented() -> None:
    undocumented = [
        f"{key}.{name}"
        for key, model in docs._sections()
        for name, field in model.model_fields.items()
        if not field.description
    ]
    assert undocumented == []
