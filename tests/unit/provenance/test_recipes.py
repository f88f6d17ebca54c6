"""All recipes of environments name the same versions."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
import yaml

import wattslice
from wattslice.provenance.recipes import CONDA, PYTHON, REQUIREMENTS, conda_text, read_pins

ROOT = Path(__file__).resolve().parents[3]
DOCKER = (ROOT / "Dockerfile").read_text(encoding="utf-8")
APPTAINER = (ROOT / "envs" / "wattslice.def").read_text(encoding="utf-8")
PINS = read_pins(ROOT / REQUIREMENTS)


def test_the_conda_environment_holds_the_pins_of_the_requirements() -> None:
    text = (ROOT / CONDA).read_text(encoding="utf-8")
    assert text == conda_text((ROOT / REQUIREMENTS).read_text(encoding="utf-8"))
    dependencies = yaml.safe_load(text)["dependencies"]
    assert dependencies[0] == f"python={PYTHON}"
    assert len(dependencies[-1]["pip"]) == len(PINS)


def test_the_analysis_subset_has_the_same_versions_and_no_torch() -> None:
    subset = read_pins(ROOT / "envs" / "requirements-analysis.txt")
    assert {name: PINS[name] for name in subset} == subset
    assert {"snakemake", "pandas", "pyarrow", "altair", "rocrate"} <= set(subset)
    assert not {"torch", "timm", "transformers", "nvidia-ml-py"} & set(subset)


def test_the_tests_requirements_do_not_pin_a_package_twice() -> None:
    assert not set(read_pins(ROOT / "envs" / "requirements-dev.txt")) & set(PINS)


def test_both_containers_are_made_of_the_same() -> None:
    base = re.search(r"^FROM (\S+)$", DOCKER, re.MULTILINE)
    assert base is not None
    assert f"From: {base[1]}\n" in APPTAINER
    assert base[1].startswith(f"python:{PYTHON}-")
    for recipe in (DOCKER, APPTAINER):
        assert f"VERSION={wattslice.__version__}\n" in recipe
        assert "pip install --no-cache-dir -r /opt/wattslice/envs/requirements.txt" in recipe
        assert 'WATTSLICE_IMAGE="wattslice:' in recipe
    packages = [
        set(re.search(r"--no-install-recommends ([a-z0-9 -]+)", recipe)[1].split())  # type: ignore[index]
        for recipe in (DOCKER, APPTAINER)
    ]
    assert packages[0] == packages[1]


def test_version_and_python_are_those_of_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["requires-python"] == f">={PYTHON}"
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == wattslice.__version__


def test_the_pins_satisfy_what_the_package_asks_for() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for requirement in [*project["dependencies"], *project["optional-dependencies"]["train"]]:
        name, _, least = requirement.partition(">=")
        pinned = PINS[name.lower()].split(".post")[0].split(".")
        assert [int(n) for n in pinned] >= [int(n) for n in least.split(".")], requirement


def test_what_is_not_pinned_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "requirements.txt"
    path.write_text("# a comment\n-r other.txt\nA_b==1.0\nloose>=2\n")
    with pytest.raises(ValueError, match="loose>=2"):
        read_pins(path)
