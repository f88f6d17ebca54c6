"""What a campaign was started with, as a file in its folder; one for every start.

A record says with what a run was made; a start says how it came to be asked for: the command, the
config files as they were, the git commit with all that differed from it, and the files behind the
digest of the measuring code.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from wattslice import __version__
from wattslice.files import sha256_file, sha256_text, write_json, write_text
from wattslice.provenance import environment as environments
from wattslice.provenance.code import code_files, digest_of_files
from wattslice.records.base import Record

START_SCHEMA_VERSION = 1
FOLDER = "starts"


class CodeFiles(Record):
    """A code digest, and the files that it is over."""

    digest: str
    files: dict[str, str]

    def holds(self) -> bool:
        """Whether the files' digests give the digest of them all."""
        return digest_of_files(self.files) == self.digest


class ConfigFile(Record):
    """A config file as it was read."""

    name: str
    sha256: str
    text: str


class Start(Record):
    """One start of a campaign."""

    schema_version: int = START_SCHEMA_VERSION
    campaign: str
    source: str
    started_utc: str
    argv: tuple[str, ...]
    directory: str
    wattslice: str
    git: dict[str, Any]
    config_digest: str
    config: dict[str, Any]
    config_files: tuple[ConfigFile, ...]
    train_code: CodeFiles
    environment: dict[str, Any]
    environment_digest: str
    container: dict[str, Any]
    host: dict[str, Any]
    slurm: dict[str, str]


@dataclass(frozen=True, slots=True)
class Request:
    """What a campaign asks for, as far as its start is concerned."""

    campaign: str
    source: str
    config: Mapping[str, Any]
    config_digest: str
    train: Sequence[str]  # entries of the measuring code


def record_start(
    folder: Path, root: Path, request: Request, config_files: Iterable[Path], argv: Sequence[str]
) -> Path:
    """Write starts/<UTC>.json below the campaign's folder, and the git diff beside it.

    `root` is the folder of the Snakefile. Raises OSError where the folder cannot be written.
    """
    now = datetime.now(UTC)
    stem = f"{now:%Y%m%dT%H%M%S}.{now.microsecond // 1000:03d}Z-{os.getpid()}"
    files = code_files(*request.train)
    software = environments.environment()
    git, diff = _git(root)
    if diff:
        write_text(folder / FOLDER / f"{stem}.diff", diff)
        git |= {"diff": f"{stem}.diff", "diff_sha256": sha256_text(diff)}
    start = Start(
        campaign=request.campaign,
        source=request.source,
        started_utc=now.isoformat(timespec="milliseconds"),
        argv=tuple(argv),
        directory=str(Path.cwd()),
        wattslice=__version__,
        git=git,
        config_digest=request.config_digest,
        config=dict(request.config),
        config_files=tuple(_config_file(Path(path), root) for path in config_files),
        train_code=CodeFiles(digest=digest_of_files(files), files=files),
        environment=software,
        environment_digest=environments.digest(software),
        container=environments.container(),
        host=environments.host(),
        slurm=environments.slurm(),
    )
    path = folder / FOLDER / f"{stem}.json"
    write_json(path, start.model_dump(mode="json"))
    return path


def _config_file(path: Path, root: Path) -> ConfigFile:
    name = path.relative_to(root) if path.is_relative_to(root) else path
    text = path.read_text(encoding="utf-8")
    return ConfigFile(name=name.as_posix(), sha256=sha256_text(text), text=text)


def _git(root: Path) -> tuple[dict[str, Any], str]:
    """Commit, dirty flag, untracked files with digests; and the diff of tracked files."""
    found: dict[str, Any] = environments.git(root)
    if found["commit"] is None:
        return found, ""
    try:
        diff = environments.run_git(root, "diff", "--binary", "HEAD") if found["dirty"] else ""
        listed = environments.run_git(root, "ls-files", "-oz", "--exclude-standard")
    except (OSError, subprocess.CalledProcessError, UnicodeDecodeError) as error:
        return found | {"reason": f"the difference from the commit is not known: {error}"}, ""
    names = [name for name in listed.split("\0") if name and (root / name).is_file()]
    return found | {"untracked": {name: sha256_file(root / name) for name in names}}, diff


def read_starts(folder: Path) -> dict[str, Start]:
    """The starts of a campaign by the name of their file, oldest first.

    Raises pydantic.ValidationError for a file that is no start.
    """
    return {
        path.name: Start.model_validate_json(path.read_bytes())
        for path in sorted((folder / FOLDER).glob("*.json"))
    }
