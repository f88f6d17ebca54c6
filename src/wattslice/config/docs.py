"""Generate the JSON schema and the documented defaults from the config models.

python -m wattslice.config.docs --write     # or `make docs`
"""

from __future__ import annotations

import argparse
import json
import sys
import types
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from wattslice.config import models
from wattslice.config.models import CampaignConfig
from wattslice.files import write_text

SCHEMA = Path("workflow/schemas/campaign.schema.json")
README = Path("config/README.md")
BEGIN = "<!-- generated from the config models: `make docs` -->"
END = "<!-- end of the generated part -->"


def schema_text() -> str:
    """The JSON schema of a campaign's config."""
    schema = CampaignConfig.model_json_schema()
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def _type_name(annotation: Any) -> str:
    """An annotation for a cell of a Markdown table."""
    inner = typing.get_args(annotation)
    match typing.get_origin(annotation):
        case None:
            return "None" if annotation is types.NoneType else str(annotation.__name__)
        case typing.Annotated:
            return _type_name(inner[0])
        case typing.Literal:
            return " \\| ".join(f"`{value}`" for value in inner)
        case typing.Union | types.UnionType:
            return " \\| ".join(_type_name(one) for one in inner)
        case origin if origin is tuple:
            return f"list of {_type_name(inner[0])}"
    return "mapping"


def _default(field: Any) -> str:
    if field.default_factory is not None:
        value = field.default_factory()
        return "see its own table" if isinstance(value, BaseModel) else f"`{json.dumps(value)}`"
    if field.default is PydanticUndefined:
        return "required"
    return f"`{json.dumps(field.default)}`"


def _sections() -> Iterator[tuple[str, type[BaseModel]]]:
    yield "campaign", CampaignConfig
    keys = {
        "BoardConfig": "board",
        "PowerModel": "board.power_model",
        "MeasureConfig": "measure",
        "WarmupConfig": "measure.warmup",
        "WindowConfig": "measure.window",
        "CooldownConfig": "measure.cooldown",
        "DigitsData": "data.<name>",
        "TextData": "data.<name>",
        "SyntheticImages": "data.<name>",
        "SyntheticTokens": "data.<name>",
        "ImageFolderData": "data.<name>",
        "CifarData": "data.<name>",
        "TextFilesData": "data.<name>",
        "WorkloadConfig": "workloads.<name>",
        "BatchSearchConfig": "workloads.<name>.batch_search",
        "LoraConfig": "workloads.<name>.adapter",
        "CompileConfig": "workloads.<name>.compile",
        "LoaderConfig": "workloads.<name>.loader",
        "OptimizerConfig": "workloads.<name>.optimizer",
        "ExperimentConfig": "experiments[]",
        "PlanConfig": "plan",
        "ReportConfig": "report",
    }
    for name, key in keys.items():
        yield key, getattr(models, name)


def table_text() -> str:
    """One Markdown table per section of the config."""
    lines = [BEGIN, ""]
    for key, model in _sections():
        kind = model.model_fields.get("kind")
        values = typing.get_args(kind.annotation) if kind else ()
        suffix = f", kind `{values[0]}`" if len(values) == 1 else ""
        summary = " ".join((model.__doc__ or "").split())
        lines += [f"### `{key}`{suffix}", "", summary, ""]
        lines += ["| key | type | default | meaning |", "| --- | --- | --- | --- |"]
        lines += [
            f"| `{name}` | {_type_name(field.annotation)} | {_default(field)} "
            f"| {field.description or ''} |"
            for name, field in model.model_fields.items()
        ]
        lines.append("")
    return "\n".join([*lines, END])


def readme_text(current: str) -> str:
    """The config README with its generated part renewed."""
    head, _, rest = current.partition(BEGIN)
    _, _, tail = rest.partition(END)
    return head + table_text() + (tail or "\n")


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--write", action="store_true", help="write the files (else: check them)")
    arguments = parser.parse_args(argv)
    wanted = {SCHEMA: schema_text(), README: readme_text(README.read_text(encoding="utf-8"))}
    if arguments.write:
        for path, text in wanted.items():
            write_text(path, text)
        return 0
    stale = [path for path, text in wanted.items() if path.read_text(encoding="utf-8") != text]
    for path in stale:
        print(f"{path} is stale: run `make docs`", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
