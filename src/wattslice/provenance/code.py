"""Digest of the code that a rule's result depends on.

The digest covers the file that is run and every module of the package that it imports, directly
or not, also inside functions or by a name in a string. So editing a chart does not touch the
digest of a training run, and editing the meter does, without a list that somebody has to keep.
Modification times play no part.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path

from wattslice.files import sha256_file
from wattslice.provenance.imports import imports

SOURCE_ROOT = Path(__file__).resolve().parents[2]
# Files that a module reads lie in these folders beside it.
_DATA_FOLDERS = ("data", "templates")
_DATA_SUFFIXES = (".yaml", ".csv", ".j2", ".css", ".js", ".json")


def _module_file(name: str, root: Path) -> Path | None:
    path = root.joinpath(*name.split("."))
    for candidate in (path.with_suffix(".py"), path / "__init__.py"):
        if candidate.is_file():
            return candidate
    return None


@lru_cache(maxsize=1024)
def _data_files(path: Path) -> tuple[Path, ...]:
    """Data files that a module names, in a data folder beside it or one level up."""
    text = path.read_text(encoding="utf-8")
    return tuple(
        found
        for folder in _DATA_FOLDERS
        for parent in (path.parent, path.parent.parent)
        for found in (parent / folder).glob("*")
        if found.suffix in _DATA_SUFFIXES and found.name in text
    )


def _with_parents(name: str) -> Iterator[str]:
    parts = name.split(".")
    for count in range(1, len(parts) + 1):
        yield ".".join(parts[:count])


def closure(entries: tuple[str | Path, ...], root: Path = SOURCE_ROOT) -> tuple[Path, ...]:
    """Files that the entries (module names or files) reach through imports, sorted.

    Raises FileNotFoundError for an entry that does not exist.
    """
    files: set[Path] = set()
    seen: set[str] = set()
    waiting: list[str] = []

    def add_file(path: Path, module: str) -> None:
        files.add(path)
        waiting.extend(imports(path, module))
        files.update(_data_files(path))

    for entry in entries:
        if isinstance(entry, Path):
            if not entry.is_file():
                raise FileNotFoundError(f"no such file: {entry}")
            add_file(entry, "")
        elif _module_file(entry, root) is None:
            raise FileNotFoundError(f"no module {entry!r} below {root}")
        else:
            waiting.append(entry)
    while waiting:
        for name in _with_parents(waiting.pop()):
            if name in seen:
                continue
            seen.add(name)
            path = _module_file(name, root)
            if path is not None:
                add_file(path, name)
    return tuple(sorted(files))


def code_files(*entries: str | Path, root: Path = SOURCE_ROOT) -> dict[str, str]:
    """Name and sha256 of every file of the closure of the entries, in order of their paths.

    Names are relative to `root`; a file outside of it (a script) is known by its name alone.
    """
    return {
        (path.relative_to(root) if path.is_relative_to(root) else Path(path.name)).as_posix(): (
            sha256_file(path)
        )
        for path in closure(entries, root)
    }


def digest_of_files(files: Mapping[str, str]) -> str:
    """sha256 over names and contents, from `code_files`."""
    digest = hashlib.sha256()
    for name, sha256 in files.items():
        digest.update(f"{name}\0".encode())
        digest.update(bytes.fromhex(sha256))
    return digest.hexdigest()


def code_digest(*entries: str | Path, root: Path = SOURCE_ROOT) -> str:
    """sha256 over names and contents of the closure of the entries."""
    return digest_of_files(code_files(*entries, root=root))
