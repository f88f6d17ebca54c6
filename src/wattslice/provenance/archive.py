"""Pack a campaign with a manifest, so that somebody else can make its results again.

An archive is the campaign's folder as it is (an RO-Crate with a copy of the code), its config, a
manifest over all of it and a script that makes tables, figures and report again. Equal campaigns
give archives of equal bytes.
"""

from __future__ import annotations

import gzip
import io
import json
import tarfile
import tempfile
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Literal

from wattslice import __version__
from wattslice.files import replacing, write_json, write_text
from wattslice.provenance.manifest import (
    ARCHIVE,
    MANIFEST,
    Manifest,
    ManifestError,
    check_files,
    entries,
    is_raw,
    read_manifest,
    write_manifest,
)

SUFFIXES = (".tar.gz", ".tgz")
CONFIG = "config.json"
SCRIPT = "reproduce.sh"
README = "README.md"
_ADDED = (CONFIG, SCRIPT, README)
Kind = Literal["raw", "derived"]


class ArchiveError(ValueError):
    """The campaign cannot be packed, or the archive cannot be used; every problem is listed."""


def pack(campaign: Path, out: Path, kind: Kind = "raw") -> Manifest:
    """Write an archive of a campaign's folder to `out` (.tar.gz).

    Raises ArchiveError where the campaign is not finished or a file of it does not hold.
    """
    if not out.name.endswith(SUFFIXES):
        raise ArchiveError(f"{out} does not end in {' or '.join(SUFFIXES)}")
    try:
        whole = read_manifest(campaign / MANIFEST)
    except ManifestError as error:
        raise ArchiveError(f"{error}; finish the campaign first (snakemake --cores all)") from error
    problems = check_files(campaign, whole)
    if problems:
        raise ArchiveError("\n".join(map(str, problems)))
    names = [name for name in whole.files if kind == "raw" or not is_raw(name)]
    with tempfile.TemporaryDirectory(prefix="wattslice-") as folder:
        added = Path(folder)
        _write_added(campaign, added, whole.campaign, kind)
        listed = {name: whole.files[name] for name in names}
        listed |= entries(campaign, [MANIFEST]) | entries(added, _ADDED)
        manifest = Manifest(
            kind=kind,
            campaign=whole.campaign,
            wattslice=__version__,
            files=dict(sorted(listed.items())),
        )
        write_manifest(added / ARCHIVE, manifest)
        sources = {name: campaign / name for name in (*names, MANIFEST)}
        sources |= {name: added / name for name in (*_ADDED, ARCHIVE)}
        with replacing(out) as temporary:
            _write_tar(temporary, sources, whole.campaign)
    return manifest


def _write_added(campaign: Path, folder: Path, name: str, kind: Kind) -> None:
    content = json.loads((campaign / "campaign.json").read_text(encoding="utf-8"))
    write_json(folder / CONFIG, content["config"])
    templates = files("wattslice.provenance") / "templates"
    for template, file in (("reproduce.sh", SCRIPT), (f"archive-{kind}.md", README)):
        text = (templates / template).read_text(encoding="utf-8")
        write_text(folder / file, text.replace("@CAMPAIGN@", name))


def _write_tar(path: Path, sources: Mapping[str, Path], top: str) -> None:
    """A tar whose bytes follow from names and contents alone."""
    with (
        path.open("wb") as raw,
        gzip.GzipFile(filename="", fileobj=raw, mode="wb", mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        for name, source in sorted(sources.items()):
            data = source.read_bytes()
            info = tarfile.TarInfo(f"{top}/{name}")
            info.size, info.mode = len(data), 0o755 if name == SCRIPT else 0o644
            tar.addfile(info, io.BytesIO(data))


# --- using one -----------------------------------------------------------------------------------


def read_archive(folder: Path) -> Manifest:
    """The manifest of an unpacked archive that holds raw files. Raises ArchiveError."""
    if folder.is_file():
        raise ArchiveError(
            f"{folder} is a file: unpack it (tar -xf {folder}) and name the folder that comes out"
        )
    try:
        manifest = read_manifest(folder / ARCHIVE)
    except ManifestError as error:
        raise ArchiveError(
            f"{error}; `archive` in the config has to name the folder of an unpacked archive from "
            "`wattslice archive`"
        ) from error
    if manifest.kind != "raw":
        raise ArchiveError(
            f"{folder} was packed with --derived: it has no raw samples to start from; its tables, "
            "figures and report are there to be read and verified"
        )
    return manifest


def check_archive(folder: Path, manifest: Manifest) -> None:
    """Raise ArchiveError naming every file of an archive that is missing or was changed."""
    problems = check_files(folder, manifest)
    if problems:
        listed = "\n".join(f"  {problem}" for problem in problems[:20])
        more = f"\n  and {len(problems) - 20} more" if len(problems) > 20 else ""
        raise ArchiveError(
            f"{len(problems)} files of the archive {folder} are not what was packed; unpack it "
            f"again:\n{listed}{more}"
        )
