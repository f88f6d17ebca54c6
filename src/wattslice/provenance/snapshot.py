"""A copy of the code beside the results: what the workflow needs to make them again."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator
from pathlib import Path

from wattslice.files import sha256_file

FOLDER = "code"
_FILES = (
    "CITATION.cff",
    "LICENSE",
    "Makefile",
    "README.md",
    "Snakefile",
    "pyproject.toml",
)
_FOLDERS = ("config", "envs", "profiles", "src/wattslice", "workflow")
_NOT = ("__pycache__",)


def snapshot_files(root: Path) -> list[str]:
    """Files of the copy, relative to the folder of the Snakefile, sorted."""
    return sorted(_listed(root))


def _listed(root: Path) -> Iterator[str]:
    yield from (name for name in _FILES if (root / name).is_file())
    for folder in _FOLDERS:
        for path in (root / folder).rglob("*"):
            parts = path.relative_to(root).parts
            hidden = any(part.startswith(".") or part in _NOT for part in parts)
            if path.is_file() and not hidden and not path.name.endswith((".pyc", ".pyo")):
                yield "/".join(parts)


def snapshot_digest(root: Path) -> str:
    """sha256 over names and contents of the files."""
    digest = hashlib.sha256()
    for name in snapshot_files(root):
        digest.update(f"{name}\0{sha256_file(root / name)}\n".encode())
    return digest.hexdigest()


def write_snapshot(root: Path, out: Path) -> None:
    """Copy the files into `out`, in place of what is there."""
    shutil.rmtree(out, ignore_errors=True)
    for name in snapshot_files(root):
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(root / name, out / name)
