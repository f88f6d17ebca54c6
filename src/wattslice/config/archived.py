"""The runs of an unpacked archive, for campaigns that do not measure."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from wattslice.config.errors import ConfigError
from wattslice.config.expand import Run
from wattslice.provenance.archive import ArchiveError, check_archive, read_archive
from wattslice.provenance.manifest import VALIDATION, Manifest, campaign_runs

_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Archived:
    """An archive that holds every run of a campaign."""

    folder: Path
    manifest: Manifest
    files: tuple[str, ...]  # records, raw samples, idle powers: what the analysis starts from
    code_digest: str

    @classmethod
    def of(cls, folder: Path, runs: Sequence[Run]) -> Archived:
        """The archive in `folder`, if it has the runs. Raises ConfigError that says what is wrong.

        Only the manifest is read here; the files are checked by `check` and again when copied.
        """
        try:
            manifest = read_archive(folder)
            rows = campaign_runs(folder)
        except ArchiveError as error:
            raise ConfigError([f"config key 'archive': {error}"]) from error
        except (OSError, ValueError, KeyError) as error:
            raise ConfigError(
                [f"config key 'archive': {folder}/campaign.json cannot be read: {error}"]
            ) from error
        problems = [*_missing_runs(folder, rows, runs)]
        wanted = frozenset(run.run_id for run in runs)
        files = [name for name in manifest.files if _needed(name, wanted)]
        problems += [
            f"config key 'archive': the file {folder / name} is missing; unpack the archive again"
            for name in files
            if not (folder / name).is_file()
        ]
        codes = sorted({str(rows[run.run_id]["code_digest"]) for run in runs if run.run_id in rows})
        if len(codes) > 1:
            problems.append(f"config key 'archive': {folder} holds runs of several codes: {codes}")
        if problems:
            raise ConfigError(problems)
        return cls(folder, manifest, tuple(files), codes[0])

    def check(self) -> None:
        """Check every file against its digest. Raises ConfigError naming those that differ."""
        try:
            check_archive(self.folder, self.manifest)
        except ArchiveError as error:
            raise ConfigError([str(error)]) from error

    @property
    def expected(self) -> str:
        """The digests of the files as canonical text: what a copy of them depends on."""
        return json.dumps({name: self.manifest.files[name].sha256 for name in self.files})


def _missing_runs(
    folder: Path, rows: dict[str, dict[str, object]], runs: Sequence[Run]
) -> list[str]:
    missing = [run.run_id for run in runs if run.run_id not in rows]
    other = [
        run.run_id
        for run in runs
        if run.run_id in rows and rows[run.run_id]["spec_digest"] != run.spec.digest()
    ]
    problems = []
    for ids, what in (
        (missing, "has no run"),
        (other, "has a run of another config (its spec differs) as"),
    ):
        if ids:
            shown = ", ".join(ids[:_SHOWN]) + (", …" if len(ids) > _SHOWN else "")
            problems.append(
                f"config key 'archive': {folder} {what} {shown} ({len(ids)} of {len(runs)}); use "
                f"the config that the archive was made with: --configfile {folder}/config.json "
                "--replace-workflow-config"
            )
    return problems


def _needed(name: str, wanted: Collection[str]) -> bool:
    """Whether the analysis starts from a file: what it makes itself is made again."""
    parts = name.split("/")
    if parts[0] == "runs":
        return "/".join(parts[1:-1]) in wanted and parts[-1] != "metrics.json"
    return name == VALIDATION or parts[0] in ("idle", "partitions", "starts", "inventory.json")
