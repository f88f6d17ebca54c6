"""Whether every digest of a campaign holds, and whether its raw files give its results."""

from __future__ import annotations

from pathlib import Path

from wattslice.provenance.chain import Chain, NotACampaignError
from wattslice.provenance.manifest import (
    ARCHIVE,
    MANIFEST,
    Manifest,
    ManifestError,
    campaign_files,
    check_files,
    read_manifest,
)
from wattslice.provenance.rebuild import Rebuilt, same_file
from wattslice.provenance.trace import FAULTS, rebuilding
from wattslice.provenance.tree import Node

_DERIVED = ("tables", "analysis", "figures", "report")


def verify(folder: Path, *, again: bool = True) -> Node:
    """Check a campaign's folder, or an unpacked archive.

    With `again` everything derived is made again from raw samples. Raises NotACampaignError where
    the folder is none of a campaign.
    """
    if not (folder / "campaign.json").is_file() and not (folder / MANIFEST).is_file():
        raise NotACampaignError(
            f"{folder} is no campaign: it has neither campaign.json nor {MANIFEST}"
        )
    node = Node(str(folder))
    left_out = _archive(node, folder)
    manifest = _files(node, folder, left_out)
    if manifest is None or not node.holds():
        node.add("made again", "not tried: a file was changed, so that it would say nothing")
        return node
    chain = Chain(folder)
    chain.campaign(node.add("campaign", chain.content["name"]))
    if left_out:
        text = f"not possible: this archive was packed without its {len(left_out)} raw files"
        node.add("made again", text)
        return node
    with rebuilding(chain) as rebuilt:
        runs = node.add("runs", str(len(chain.runs)))
        runs.few = 0
        for run_id in sorted(chain.runs):
            chain.run(runs, run_id, rebuilt if again else None)
        if again:
            _again(node, chain, rebuilt, manifest)
            if not node.holds():
                chain.tell_code(node)
    return node


def _archive(node: Node, folder: Path) -> set[str]:
    """Check archive.json, where there is one; returns the files that were left out of it."""
    if not (folder / ARCHIVE).is_file():
        return set()
    try:
        manifest = read_manifest(folder / ARCHIVE)
    except ManifestError as error:
        node.add(ARCHIVE, str(error), "bad")
        return set()
    problems = check_files(folder, manifest)
    for problem in problems:
        node.add(problem.path, problem.problem, "bad")
    if not problems:
        node.add(ARCHIVE, f"{len(manifest.files)} files hold ({manifest.kind})", "ok")
    if manifest.kind != "derived" or not (folder / MANIFEST).is_file():
        return set()
    try:
        every = read_manifest(folder / MANIFEST).files
    except ManifestError:
        return set()
    return {name for name in every if name not in manifest.files}


def _files(node: Node, folder: Path, left_out: set[str]) -> Manifest | None:
    try:
        manifest = read_manifest(folder / MANIFEST)
    except ManifestError as error:
        node.add(MANIFEST, str(error), "bad")
        return None
    kept = {name: entry for name, entry in manifest.files.items() if name not in left_out}
    problems = check_files(folder, manifest.model_copy(update={"files": kept}))
    known = {child.label for child in node.children}
    for problem in problems:
        if problem.path not in known:
            node.add(problem.path, problem.problem, "bad")
    if not problems:
        node.add(MANIFEST, f"{len(kept)} files hold", "ok", sha256=manifest.digest())
        more = [name for name in campaign_files(folder) if name not in manifest.files]
        if more and not (folder / ARCHIVE).is_file():
            node.add("more files", f"made after {MANIFEST}: {', '.join(more[:5])}", files=more)
    return manifest


def _again(node: Node, chain: Chain, rebuilt: Rebuilt, manifest: Manifest) -> None:
    made = node.add("made again from raw samples")
    formats = sorted({Path(n).suffix[1:] for n in manifest.files if n.startswith("figures/")})
    try:
        assert rebuilt.analysis
        if formats:
            rebuilt.figures(formats)
        assert rebuilt.report
    except FAULTS as fault:
        made.add("stopped", f"{type(fault).__name__}: {fault}", "bad")
        return
    for folder in _DERIVED:
        names = [name for name in manifest.files if name.startswith(f"{folder}/")]
        same, other = [], 0
        for name in names:
            if not (rebuilt.out / name).is_file() or (rebuilt.out / name).is_symlink():
                other += 1
            elif (differs := same_file(chain.folder / name, rebuilt.out / name)) is not None:
                made.add(name, differs, "bad")
            else:
                same.append(name)
        more = f"; {other} more are checked by their digest" if other else ""
        made.add(f"{folder}/", f"{len(same)} files are equal{more}", "ok" if same else "info")


def compare(folder: Path, other: Path) -> Node:
    """Whether two campaign folders have the same results, byte by byte for tables.

    Raises NotACampaignError where one of them has no tables.
    """
    for base in (folder, other):
        if not (base / "tables").is_dir():
            raise NotACampaignError(f"{base} has no tables: it is no campaign")
    node = Node(f"{folder} against {other}")
    for name in _DERIVED:
        one, two = (
            {p.relative_to(base).as_posix() for p in (base / name).rglob("*") if p.is_file()}
            for base in (folder, other)
        )
        for lonely in sorted(one ^ two):
            where = folder if lonely in one else other
            node.add(lonely, f"is in {where} only", "bad")
        different = 0
        for both in sorted(one & two):
            if (differs := _differs(folder / both, other / both)) is not None:
                node.add(both, differs, "bad")
                different += 1
        same = len(one & two) - different
        node.add(f"{name}/", f"{same} files are the same", "ok" if same else "info")
    return node


def _differs(one: Path, two: Path) -> str | None:
    if one.suffix in (".parquet", ".csv"):
        return None if one.read_bytes() == two.read_bytes() else "differs"
    return None if same_file(one, two) is None else "differs"
