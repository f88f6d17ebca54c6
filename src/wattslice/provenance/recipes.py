"""Recipes of environments that say the same as the pinned requirements.

python -m wattslice.provenance.recipes --write     # or `make docs`

Snakemake copies a conda environment's file elsewhere before it is used, so that the file cannot
refer to requirements.txt but has to hold the pins itself.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from wattslice.files import write_text

REQUIREMENTS = Path("envs/requirements.txt")
CONDA = Path("envs/wattslice.yaml")
PYTHON = "3.11"
_HEAD = f"""\
# Generated from requirements.txt: `make docs`.
channels:
  - conda-forge
dependencies:
  - python={PYTHON}
  - pip
  - pip:
"""


def read_pins(path: Path) -> dict[str, str]:
    """Versions by normalised name of the package. Raises ValueError for a line that is no pin."""
    pins = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        text = line.partition("#")[0].strip()
        if not text or text.startswith("-r "):
            continue
        name, mark, version = text.partition("==")
        if not mark:
            raise ValueError(f"{path}: {text!r} is not pinned; write name==version")
        pins[name.lower().replace("_", "-").replace(".", "-")] = version
    return pins


def conda_text(requirements: str) -> str:
    """The conda environment of a requirements file."""
    lines = [line.partition("#")[0].strip() for line in requirements.splitlines()]
    return _HEAD + "".join(f"      - {line}\n" for line in lines if line)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--write", action="store_true", help="write the file (else: check it)")
    wanted = conda_text(REQUIREMENTS.read_text(encoding="utf-8"))
    if parser.parse_args(argv).write:
        write_text(CONDA, wanted)
        return 0
    if CONDA.is_file() and CONDA.read_text(encoding="utf-8") == wanted:
        return 0
    print(f"{CONDA} is stale: run `make docs`", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
