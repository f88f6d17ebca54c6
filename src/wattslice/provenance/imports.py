"""What files of the package import, remembered beside their byte code.

Parsing the whole package takes half a second, at every call of Snakemake and twice in every job of
a cluster. As with byte code, what is remembered depends on a file's content alone, nothing breaks
without it, and PYTHONDONTWRITEBYTECODE keeps it from being written.
"""

from __future__ import annotations

import ast
import atexit
import contextlib
import hashlib
import json
import sys
from functools import cache
from pathlib import Path

from wattslice.files import sha256_file, write_text

PACKAGE = "wattslice"
_MEMORY = Path(__file__).resolve().parents[1] / "__pycache__" / "imports.json"
_MOST_ENTRIES = 2000  # then what this process did not ask for is forgotten


@cache
def imports(path: Path, module: str) -> tuple[str, ...]:
    """Modules of the package that a file imports (names may also be attributes of modules)."""
    content = path.read_bytes()
    is_package = path.name == "__init__.py"
    key = hashlib.sha256(f"{module}\0{is_package}\0".encode() + content).hexdigest()
    return _memory().look_up(key, content, module, is_package)


@cache
def _memory() -> Memory:
    memory = Memory(_MEMORY, sha256_file(Path(__file__)))
    if not sys.dont_write_bytecode:
        atexit.register(memory.save)
    return memory


class Memory:
    """Imports by what they follow from, kept in a file; `version` is that of this code."""

    def __init__(self, path: Path, version: str) -> None:
        self._path = path
        self._version = version
        self._known: dict[str, list[str]] = {}
        self._used: dict[str, list[str]] = {}
        with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
            found = json.loads(path.read_text(encoding="utf-8"))
            if found["version"] == version:
                self._known = dict(found["imports"])

    def look_up(self, key: str, content: bytes, module: str, is_package: bool) -> tuple[str, ...]:
        names = self._known.get(key)
        if names is None:
            names = list(_parse(content, module, is_package))
        self._used[key] = names
        return tuple(names)

    def save(self) -> None:
        """Write what is new, if anything; a folder that cannot be written is no error."""
        if self._used.keys() <= self._known.keys():
            return
        merged = self._known | self._used
        kept = self._used if len(merged) > _MOST_ENTRIES else merged
        with contextlib.suppress(OSError):
            write_text(self._path, json.dumps({"version": self._version, "imports": kept}))


def _parse(content: bytes, module: str, is_package: bool) -> tuple[str, ...]:
    found: list[str] = []
    for node in ast.walk(ast.parse(content)):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parts = module.split(".")
                keep = len(parts) - node.level + (1 if is_package else 0)
                base = ".".join([*parts[:keep], *([base] if base else [])])
            found.append(base)
            found += [f"{base}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.append(node.value)  # a module that is imported by name, e.g. from a registry
    return tuple(name for name in found if name.split(".")[0] == PACKAGE and " " not in name)
