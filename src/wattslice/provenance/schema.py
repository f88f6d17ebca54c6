"""Generate the JSON schema of run.json from its model.

python -m wattslice.provenance.schema --write     # or `make docs`
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from wattslice.files import write_text
from wattslice.records.migrations import RUN_SCHEMA_VERSION
from wattslice.records.run import RunRecord

SCHEMA = Path("workflow/schemas/run.schema.json")


def schema_text() -> str:
    """The JSON schema of run.json as this version writes it; older ones are migrated on reading."""
    schema = RunRecord.model_json_schema()
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    schema["$id"] = f"run.schema.json?version={RUN_SCHEMA_VERSION}"
    schema["title"] = f"run.json, schema version {RUN_SCHEMA_VERSION}"
    schema["properties"]["schema_version"] = {"const": RUN_SCHEMA_VERSION}
    schema["required"] = [*schema["required"], "schema_version", "container"]
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--write", action="store_true", help="write the file (else: check it)")
    if parser.parse_args(argv).write:
        write_text(SCHEMA, schema_text())
        return 0
    if SCHEMA.is_file() and SCHEMA.read_text(encoding="utf-8") == schema_text():
        return 0
    print(f"{SCHEMA} is stale: run `make docs`", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
