"""Manifests that check themselves; comparing what was made again; trees of statements."""

from __future__ import annotations

import json
import zlib
from pathlib import Path

import pytest

from wattslice.provenance.manifest import (
    Manifest,
    ManifestError,
    check_files,
    entries,
    read_manifest,
    write_manifest,
)
from wattslice.provenance.rebuild import differing_values, equal, same_file
from wattslice.provenance.tree import Node, render


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "a.txt").write_text("a")
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "c.txt").write_text("c")
    files = entries(tmp_path, ["a.txt", "b/c.txt"])
    manifest = Manifest(kind="campaign", campaign="x", wattslice="0", files=files)
    write_manifest(tmp_path / "manifest.json", manifest)
    return tmp_path


def test_a_manifest_holds_and_names_what_differs(folder: Path) -> None:
    manifest = read_manifest(folder / "manifest.json")
    assert check_files(folder, manifest) == []
    (folder / "a.txt").write_text("b")
    (folder / "b" / "c.txt").unlink()
    assert [(p.path, p.problem.split(":")[0]) for p in check_files(folder, manifest)] == [
        ("a.txt", "was changed"),
        ("b/c.txt", "is missing"),
    ]


def test_every_byte_of_a_manifest_counts(folder: Path) -> None:
    path = folder / "manifest.json"
    data = path.read_bytes()
    for place in range(len(data)):
        for flip in (0x01, 0x20):
            path.write_bytes(data[:place] + bytes([data[place] ^ flip]) + data[place + 1 :])
            with pytest.raises(ManifestError, match="was changed"):
                read_manifest(path)


@pytest.mark.parametrize("text", ["", "[]", "{}", "null", '{"digest": 1}', "\xff"])
def test_what_is_no_manifest_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "manifest.json"
    path.write_text(text, encoding="latin-1")
    with pytest.raises(ManifestError):
        read_manifest(path)


def test_a_digest_that_was_made_again_by_another_rule_is_refused(folder: Path) -> None:
    path = folder / "manifest.json"
    content = json.loads(path.read_text())
    content["campaign"] = "y"
    path.write_text(json.dumps(content, indent=2, sort_keys=True) + "\n")
    with pytest.raises(ManifestError):
        read_manifest(path)


@pytest.mark.parametrize(
    ("one", "two", "same"),
    [
        (1.0, 1.0, True),
        (1.0, 1.0 + 1e-12, True),
        (1.0, 1.0 + 1e-6, False),
        (0.0, 1e-30, False),
        (1, True, False),
        (None, 0.0, False),
        (None, None, True),
        ("a", "b", False),
    ],
)
def test_equality_of_values(one: object, two: object, same: bool) -> None:
    assert equal(one, two) is same


def test_the_first_difference_is_named() -> None:
    one = {"a": [1, {"b": 2.0}], "c": None}
    assert differing_values(one, {"a": [1, {"b": 2.0}], "c": None}) is None
    assert "a[1].b is 2.0" in str(differing_values(one, {"a": [1, {"b": 3.0}], "c": None}))
    assert "other keys: d" in str(differing_values({"d": 1}, {}))
    assert "2 entries" in str(differing_values([1, 2], [1]))


def test_files_are_compared_by_what_they_say(tmp_path: Path) -> None:
    for name, one, two, same in (
        ("a.csv", "x\n1.0\n", "x\n1.00\n", True),
        ("b.csv", "x\n1.0\n", "x\n1.1\n", False),
        ("a.json", '{"x": 1}', '{ "x": 1 }', True),
        ("a.pdf", "1\n2\n3", "3\n1\n2", True),
        ("b.pdf", "1\n2\n3", "3\n1\n4", False),
        ("a.svg", "<svg/>", "<svg />", False),
    ):
        left, right = tmp_path / "l" / name, tmp_path / "r" / name
        for path, text in ((left, one), (right, two)):
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
        assert (same_file(left, right) is None) is same, name
    assert same_file(left, tmp_path / "nothing") == "is not made any more"


def _pdf(*objects: tuple[int, str, str]) -> bytes:
    """Something of the form of a PDF: (number, name of a font, drawing)."""
    body = b"%PDF-1.7\n"
    for number, font, drawing in objects:
        packed = zlib.compress(f"/{font} 8 Tf\n{drawing}\n".encode())
        body += b"%d 0 obj\n<< /Length %d /F %d 0 R >>\nstream\n" % (number, len(packed), number)
        body += packed + b"\nendstream\nendobj\n"
    return body + b"xref\n0000000015 00000 n\n%%EOF\n"


def test_a_pdf_is_compared_without_order_and_numbers_of_its_objects(tmp_path: Path) -> None:
    one, same, other = (tmp_path / f"{name}.pdf" for name in ("one", "same", "other"))
    one.write_bytes(_pdf((1, "fo0", "10 20 m"), (2, "fo1", "30.5 40 l")))
    same.write_bytes(_pdf((7, "fo1", "30.5 40 l"), (3, "fo0", "10 20 m")))
    other.write_bytes(_pdf((1, "fo0", "10 20 m"), (2, "fo1", "30.6 40 l")))
    assert same_file(one, same) is None
    assert same_file(one, other) == "is not what the raw files give"


def test_many_runs_that_hold_take_a_line_each() -> None:
    node = Node("table")
    for index in range(5):
        run = node.add(f"run {index}", "ok", "ok")
        run.folds = True
        run.add("spec", "holds", "bad" if index == 3 else "ok")
    text = render(node)
    assert text.count("everything holds") == 4
    assert text.count("spec") == 1
    assert not node.holds()
    assert [failure.label for failure in node.failures()] == ["spec"]
