"""A small campaign, made once for real in a clone of this repository; tests copy its folder."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

REPOSITORY = Path(__file__).resolve().parents[2]
TINY = {
    "name": "tiny",
    "title": "Tiny campaign of the tests",
    "measure": {
        "idle_s": 1,
        "warmup": {"min_steps": 2, "cv_steps": 3, "cv_max": 0.5, "max_s": 1},
        "window": {"min_s": 1, "min_steps": 5, "max_s": 20},
    },
    "report": {"formats": ["svg"]},
    "min_free_mib": 10,
    "experiments": [
        {
            "name": "tiny",
            "layouts": ["full"],
            "workloads": ["cnn", "distilbert"],
            "precisions": ["fp32"],
            "placements": ["solo"],
            "repeats": 1,
        }
    ],
}


@dataclass(frozen=True)
class Clone:
    """A clone of the repository with a campaign's config in it."""

    folder: Path

    def snakemake(self, *arguments: str, check: bool = False) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            self.command(*arguments),
            cwd=self.folder,
            env=self.environment(),
            capture_output=True,
            text=True,
            check=False,
        )
        assert not check or done.returncode == 0, done.stdout + done.stderr
        return done

    def command(self, *arguments: str) -> list[str]:
        snakemake = str(Path(sys.executable).parent / "snakemake")
        return [snakemake, *arguments, "--cores", "all", "--configfile", "tiny.yaml"]

    def environment(self) -> dict[str, str]:
        kept = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        return {**kept, "WATTSLICE_LEASE_DIR": str(self.folder / "leases")}

    def planned(self, *arguments: str) -> dict[str, int]:
        """Jobs that a dry run plans, by rule; the profile's `quiet` would hide their table."""
        done = self.snakemake("-n", *arguments, "--quiet", "rules", check=True)
        text = done.stdout + done.stderr
        table = text.partition("Job stats:")[2].partition("total")[0]
        counts = dict(re.findall(r"^(\w+)\s+(\d+)\s*$", table, flags=re.MULTILINE))
        assert counts or "Nothing to be done" in text, text
        return {rule: int(count) for rule, count in counts.items() if rule != "all"}

    def configure(self, config: dict[str, object]) -> None:
        (self.folder / "tiny.yaml").write_text(yaml.safe_dump(config))

    @property
    def results(self) -> Path:
        return self.folder / "results" / "tiny"


def make_clone(folder: Path) -> Clone:
    """Copy what git tracks or would track, and commit it."""
    listed = subprocess.run(
        ["git", "ls-files", "-coz", "--exclude-standard"],
        cwd=REPOSITORY,
        capture_output=True,
        check=True,
    ).stdout.decode()
    for name in filter(None, listed.split("\0")):
        source = REPOSITORY / name
        if source.is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, folder / name)
    author = ["-c", "user.name=test", "-c", "user.email=test@example.org"]
    for command in (["init", "-q"], ["add", "-A"], [*author, "commit", "-qm", "snapshot"]):
        subprocess.run(["git", *command], cwd=folder, check=True)
    clone = Clone(folder)
    clone.configure(TINY)
    return clone


@pytest.fixture
def clone(tmp_path: Path) -> Clone:
    """A clone in which nothing was run."""
    return make_clone(tmp_path / "clone")


@pytest.fixture(scope="session")
def finished_once(tmp_path_factory: pytest.TempPathFactory) -> Clone:
    made = make_clone(tmp_path_factory.mktemp("finished"))
    made.snakemake(check=True)
    return made


@pytest.fixture
def finished(finished_once: Clone, tmp_path: Path) -> Clone:
    """A copy of a clone in which the campaign has been made."""
    shutil.copytree(finished_once.folder, tmp_path / "copy", symlinks=True)
    return Clone(tmp_path / "copy")
