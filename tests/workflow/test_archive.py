"""Results made again from an archive: no training, no torch, no GPU, equal bytes."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from wattslice.cli import main
from wattslice.provenance.archive import ArchiveError, pack
from wattslice.provenance.manifest import ARCHIVE, MANIFEST, is_raw, read_manifest
from wattslice.provenance.verify import verify
from workflow.conftest import TINY, Clone

NOT_NEEDED = ("torch", "torchvision", "timm", "transformers", "safetensors", "pynvml", "sklearn")
BLOCK = """\
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {names!r}:
            raise ImportError(f"{{name}} must not be needed")

sys.meta_path.insert(0, Blocked())
"""


@pytest.fixture(scope="module")
def archive(finished_once: Clone, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("archive") / "tiny.tar.gz"
    assert main(["archive", str(finished_once.results), "-o", str(path)]) == 0
    return path


def _unpack(archive: Path, folder: Path) -> Path:
    with tarfile.open(archive) as tar:
        tar.extractall(folder, filter="data")
    return folder / "tiny"


@pytest.fixture
def unpacked(archive: Path, tmp_path: Path) -> Path:
    return _unpack(archive, tmp_path / "stranger")


def _without_torch(folder: Path) -> dict[str, str]:
    """The environment of a machine on which what training needs is not installed."""
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(BLOCK.format(names=NOT_NEEDED))
    kept = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    return {**kept, "PYTHONPATH": str(folder), "PYTHON": sys.executable}


def _digests(folder: Path) -> dict[str, str]:
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def test_a_strangers_path(unpacked: Path, tmp_path: Path) -> None:
    """Unpack in an empty folder, one command, same tables, claims, figures and report."""
    environment = _without_torch(tmp_path / "block")
    blocked = subprocess.run(
        [sys.executable, "-c", "import torch"], env=environment, capture_output=True, check=False
    )
    assert blocked.returncode != 0
    done = subprocess.run(
        ["./reproduce.sh"],
        cwd=unpacked,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "everything holds" in done.stdout
    made = unpacked / "reproduced" / "results" / "tiny"
    for folder in ("tables", "analysis", "figures", "report"):
        assert _digests(made / folder) == _digests(unpacked / folder)
        assert _digests(made / folder)
    assert (made / "campaign.json").read_bytes() == (unpacked / "campaign.json").read_bytes()
    assert verify(made).holds()


def _planned(clone: Clone, *arguments: str) -> tuple[int, str]:
    done = clone.snakemake("-n", *arguments)
    return done.returncode, done.stdout + done.stderr


def _from(folder: Path) -> tuple[str, ...]:
    return ("--config", "source=archive", f"archive={folder}")


def test_the_dag_has_no_job_that_measures(clone: Clone, unpacked: Path) -> None:
    planned = clone.planned(*_from(unpacked))
    assert planned["from_archive"] == 1
    assert planned["metrics"] == 2
    assert not {"train", "partition", "idle", "inventory"} & set(planned)


@pytest.mark.parametrize("name", ["run.json", "power.parquet", "steps.parquet"])
def test_a_missing_file_is_a_clear_error(name: str, clone: Clone, unpacked: Path) -> None:
    path = next(unpacked.glob(f"runs/*/*/*/*/{name}"))
    path.unlink()
    code, said = _planned(clone, *_from(unpacked))
    assert code != 0
    assert f"the file {path} is missing" in said


def test_a_changed_file_is_a_clear_error_before_anything_is_run(
    clone: Clone, unpacked: Path
) -> None:
    path = next(unpacked.glob("runs/*/*/*/*/power.parquet"))
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    done = clone.snakemake(*_from(unpacked))
    said = done.stdout + done.stderr
    assert done.returncode != 0
    assert path.relative_to(unpacked).as_posix() in said
    assert "was changed" in said
    assert not (clone.results / "tables").exists()


def test_a_changed_manifest_is_a_clear_error(clone: Clone, unpacked: Path) -> None:
    path = unpacked / ARCHIVE
    path.write_text(path.read_text().replace('"raw"', '"derived"'))
    code, said = _planned(clone, *_from(unpacked))
    assert code != 0
    assert "was changed" in said


def test_another_config_than_that_of_the_archive_is_a_clear_error(
    clone: Clone, unpacked: Path
) -> None:
    experiment = TINY["experiments"][0] | {"precisions": ["bf16"]}  # type: ignore[index]
    clone.configure({**TINY, "experiments": [experiment]})
    code, said = _planned(clone, *_from(unpacked))
    assert code != 0
    assert "has no run full/" in said
    clone.configure({**TINY, "seed": 1})
    code, said = _planned(clone, *_from(unpacked))
    assert code != 0
    assert "its spec differs" in said
    assert "--replace-workflow-config" in said


def test_no_archive_or_a_packed_one_is_a_clear_error(
    clone: Clone, archive: Path, tmp_path: Path
) -> None:
    for folder, message in (
        (tmp_path / "nothing", "archive.json is missing"),
        (archive, "is a file: unpack it"),
    ):
        code, said = _planned(clone, *_from(folder))
        assert code != 0
        assert message in said
    code, said = _planned(clone, "--config", "source=archive")
    assert code != 0
    assert "config key 'archive'" in said


def test_equal_campaigns_give_equal_archives(
    finished_once: Clone, archive: Path, tmp_path: Path
) -> None:
    copy = Path(shutil.copytree(finished_once.results, tmp_path / "copy" / "tiny"))
    for path in copy.rglob("*"):
        os.utime(path)
    pack(copy, tmp_path / "again.tar.gz")
    assert (tmp_path / "again.tar.gz").read_bytes() == archive.read_bytes()


def test_an_archive_verifies_and_a_flipped_byte_in_it_is_named(unpacked: Path) -> None:
    assert verify(unpacked, again=False).holds()
    names = [*read_manifest(unpacked / ARCHIVE).files, ARCHIVE]
    assert {"reproduce.sh", "config.json", MANIFEST, "code/LICENSE"} <= set(names)
    for name in (ARCHIVE, "reproduce.sh", "config.json", MANIFEST, "analysis/ratios.json"):
        path = unpacked / name
        data = path.read_bytes()
        path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
        assert name in {failure.label for failure in verify(unpacked, again=False).failures()}
        path.write_bytes(data)


def test_a_derived_archive_is_for_reading(
    finished_once: Clone, clone: Clone, tmp_path: Path
) -> None:
    path = tmp_path / "derived.tar.gz"
    assert main(["archive", str(finished_once.results), "--derived", "-o", str(path)]) == 0
    folder = _unpack(path, tmp_path / "derived")
    assert not list(folder.glob("runs/**/*.parquet"))
    assert (folder / "report" / "index.html").is_file()
    node = verify(folder)
    assert node.holds(), list(node.failures())
    assert "without its 4 raw files" in node.children[-1].text
    (folder / "tables" / "runs.csv").write_text("")
    assert [f.label for f in verify(folder).failures()] == ["tables/runs.csv"]
    code, said = _planned(clone, *_from(folder))
    assert code != 0
    assert "packed with --derived" in said


def test_what_is_not_whole_is_not_packed(
    finished: Clone, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out.tar.gz"
    raw = next(name for name in read_manifest(finished.results / MANIFEST).files if is_raw(name))
    with (finished.results / raw).open("ab") as handle:
        handle.write(b"more")
    assert main(["archive", str(finished.results), "-o", str(out)]) == 1
    assert raw in capsys.readouterr().err
    assert not out.exists()
    (finished.results / MANIFEST).unlink()
    with pytest.raises(ArchiveError, match="finish the campaign first"):
        pack(finished.results, out)
    assert main(["archive", str(finished.results), "-o", str(tmp_path / "out.zip")]) == 2


def test_the_config_in_an_archive_is_the_whole_config(unpacked: Path) -> None:
    config = json.loads((unpacked / "config.json").read_text())
    assert config["name"] == TINY["name"]
    assert not {"source", "archive"} & set(config)
