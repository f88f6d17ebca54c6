from __future__ import annotations

import os
from pathlib import Path

import pytest

from wattslice.config.campaign import TRAIN
from wattslice.provenance.code import SOURCE_ROOT, closure, code_digest
from wattslice.provenance.imports import Memory


@pytest.fixture
def package(tmp_path: Path) -> Path:
    files = {
        "__init__.py": "",
        "run.py": "from wattslice.sub import used\n\ndef f():\n    import wattslice.lazy\n",
        "lazy.py": "from . import relative\nBY_NAME = {'x': 'wattslice.named'}\n",
        "named.py": "",
        "relative.py": "import json\n",
        "other.py": "X = 1\n",
        "sub/__init__.py": "",
        "sub/used.py": "from .deep import name\n",
        "sub/deep.py": "name = open('rules.yaml')\n",
        "sub/unused.py": "",
        "sub/data/rules.yaml": "a: 1\n",
        "sub/data/unnamed.yaml": "a: 1\n",
    }
    for name, text in files.items():
        path = tmp_path / "wattslice" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def test_the_closure_follows_lazy_relative_parent_and_named_imports(package: Path) -> None:
    names = {
        str(path.relative_to(package / "wattslice"))
        for path in closure(("wattslice.run",), package)
    }
    assert names == {
        "__init__.py",
        "run.py",
        "lazy.py",
        "named.py",
        "relative.py",
        "sub/__init__.py",
        "sub/used.py",
        "sub/deep.py",
        "sub/data/rules.yaml",
    }


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("sub/deep.py", True),
        ("sub/data/rules.yaml", True),
        ("other.py", False),
        ("sub/unused.py", False),
        ("sub/data/unnamed.yaml", False),
    ],
)
def test_only_files_of_the_closure_change_the_digest(
    package: Path, name: str, changes: bool
) -> None:
    before = code_digest("wattslice.run", root=package)
    path = package / "wattslice" / name
    path.write_text(path.read_text() + "# edited\n")
    assert (code_digest("wattslice.run", root=package) != before) is changes


def test_touching_and_moving_change_nothing(package: Path) -> None:
    before = code_digest("wattslice.run", root=package)
    for path in package.rglob("*.py"):
        os.utime(path, (1, 1))
    moved = package.rename(package.parent / "elsewhere")
    assert code_digest("wattslice.run", root=moved) == before


def test_an_entry_that_does_not_exist_is_an_error(package: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"wattslice\.gone"):
        closure(("wattslice.gone",), package)


def test_what_measures_and_what_only_shows_are_apart() -> None:
    names = {str(path.relative_to(SOURCE_ROOT / "wattslice")) for path in closure(TRAIN)}
    assert {"measure/meter.py", "train/worker.py", "boards/cpu/rapl.py"} <= names
    assert {"workloads/timm_models.py", "workloads/transformers_models.py"} <= names
    assert not any(name.startswith(("analysis/", "report/")) for name in names)
    assert "measure/energy.py" not in names  # a reading of raw samples, not a measurement


def test_imports_are_remembered_by_content_and_a_damaged_memory_is_none(tmp_path: Path) -> None:
    path = tmp_path / "imports.json"
    source = b"from . import sibling\nimport wattslice.files\n"
    wanted = ("wattslice.a", "wattslice.a.sibling", "wattslice.files")
    for damage in (None, "{", '{"version": "other", "imports": {"key": ["wrong"]}}', "[]"):
        if damage is not None:
            path.write_text(damage)
        memory = Memory(path, "version")
        assert memory.look_up("key", source, "wattslice.a.module", False) == wanted
        memory.save()
        # Only a memory that holds it can answer for a source that does not parse.
        assert Memory(path, "version").look_up("key", b"(", "", False) == wanted
    written = path.stat().st_mtime_ns
    again = Memory(path, "version")
    again.look_up("key", source, "wattslice.a.module", False)
    again.save()
    assert path.stat().st_mtime_ns == written
