"""sha256 of every file of a campaign or an archive, in a file that checks itself.

A manifest is canonical: its bytes follow from its content, and its content holds a digest of
itself. So a change of any byte, of a file or of the manifest, is found and named.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import ValidationError

from wattslice.files import canonical_json, sha256_file, sha256_text, write_json
from wattslice.records.base import Record

MANIFEST = "manifest.json"
ARCHIVE = "archive.json"
CRATE = "ro-crate-metadata.json"
# The planner's check: from runs on the board that the campaign itself does not ask for.
VALIDATION = "analysis/validation.json"
MANIFEST_SCHEMA_VERSION = 1
# What a campaign leaves in its folder that is no result: logs, and the state of a campaign at work.
NO_RESULTS = frozenset(
    {"logs", "progress.jsonl", "preflight.json", "board-before.json", MANIFEST, ARCHIVE}
)
# Below these folders only what the campaign still asks for counts.
_BY_RUN = "runs"
_BY_LAYOUT = frozenset({"partitions", "idle"})
RUN_DEPTH = 4  # layout/placement/precision/rep<k>

Kind = Literal["campaign", "raw", "derived"]


class ManifestError(ValueError):
    """The manifest is missing, unreadable, or was changed; `path` is its file."""

    def __init__(self, path: Path, problem: str) -> None:
        super().__init__(f"{path} {problem}")
        self.path = path


class FileEntry(Record):
    """One file."""

    sha256: str
    bytes: int


class Manifest(Record):
    """The files of a campaign (`campaign`) or of an archive (`raw`, `derived`)."""

    schema_version: int = MANIFEST_SCHEMA_VERSION
    kind: Kind
    campaign: str
    wattslice: str
    files: dict[str, FileEntry]

    def digest(self) -> str:
        return sha256_text(canonical_json(self.model_dump(mode="json")))


@dataclass(frozen=True, slots=True)
class Problem:
    """A file that is not what the manifest says."""

    path: str
    problem: str

    def __str__(self) -> str:
        return f"{self.path}: {self.problem}"


def is_raw(name: str) -> bool:
    """Whether a file of a campaign holds raw samples."""
    return name.startswith((f"{_BY_RUN}/", "validation/")) and name.endswith(".parquet")


def campaign_runs(folder: Path) -> dict[str, dict[str, Any]]:
    """The runs of campaign.json by their id."""
    content = json.loads((folder / "campaign.json").read_text(encoding="utf-8"))
    return {row["run_id"]: row for row in content["runs"]}


def campaign_files(folder: Path) -> list[str]:
    """Files of a campaign, relative to its folder and sorted; what an older config left is not."""
    runs = campaign_runs(folder)
    layouts = {run_id.split("/")[0] for run_id in runs}
    return sorted(name for name in _files_below(folder) if _belongs(name, runs.keys(), layouts))


def _files_below(folder: Path) -> Iterator[str]:
    for path in folder.rglob("*"):
        relative = path.relative_to(folder)
        hidden = any(part.startswith(".") for part in relative.parts)
        if path.is_file() and not hidden and "__pycache__" not in relative.parts:
            yield relative.as_posix()


def _belongs(name: str, runs: Iterable[str], layouts: Iterable[str]) -> bool:
    parts = name.split("/")
    if parts[0] in NO_RESULTS:
        return False
    if parts[0] == _BY_RUN:
        return "/".join(parts[1 : 1 + RUN_DEPTH]) in runs
    if parts[0] in _BY_LAYOUT:
        return parts[-1].removesuffix(".json") in layouts
    return True


def entries(folder: Path, names: Iterable[str]) -> dict[str, FileEntry]:
    """Digest and size of files below a folder."""
    return {
        name: FileEntry(sha256=sha256_file(folder / name), bytes=(folder / name).stat().st_size)
        for name in names
    }


def write_manifest(path: Path, manifest: Manifest) -> None:
    write_json(path, manifest.model_dump(mode="json") | {"digest": manifest.digest()})


def read_manifest(path: Path) -> Manifest:
    """Read a manifest. Raises ManifestError where it is missing or any byte of it was changed."""
    try:
        data = path.read_bytes()
    except FileNotFoundError as fault:
        raise ManifestError(path, "is missing") from fault
    except OSError as fault:
        raise ManifestError(path, f"cannot be read: {fault.strerror}") from fault
    try:
        content = json.loads(data)
        digest = content.pop("digest")
        manifest = Manifest.model_validate(content)
        again = json.dumps(content | {"digest": digest}, indent=2, sort_keys=True) + "\n"
    except (ValueError, KeyError, TypeError, AttributeError, ValidationError) as fault:
        raise ManifestError(path, "was changed: it is not a manifest any more") from fault
    if digest != manifest.digest() or again.encode() != data:
        raise ManifestError(path, "was changed: its own digest does not hold")
    return manifest


def check_files(folder: Path, manifest: Manifest) -> list[Problem]:
    """Files that are missing or changed, in order of their names."""
    problems = []
    for name, entry in sorted(manifest.files.items()):
        path = folder / name
        if not path.is_file():
            problems.append(Problem(name, "is missing"))
            continue
        found = sha256_file(path)
        if found != entry.sha256:
            size = path.stat().st_size
            more = "" if size == entry.bytes else f" ({size} bytes, not {entry.bytes})"
            problems.append(
                Problem(name, f"was changed: sha256 is {found}, not {entry.sha256}{more}")
            )
    return problems
