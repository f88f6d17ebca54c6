"""What is captured of the software and the machine."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path

import pytest

from wattslice.provenance import environment as environments


def test_every_installed_package_has_a_version_and_an_origin() -> None:
    found = environments.environment()
    versions, origins = found["packages"], found["origins"]
    assert isinstance(versions, dict)
    assert isinstance(origins, dict)
    assert versions["pydantic"] == metadata.version("pydantic")
    assert set(versions) == set(origins)
    assert all(origins.values())


def test_the_digest_of_equal_software_is_equal() -> None:
    first, second = environments.environment(), environments.environment()
    assert environments.digest(first) == environments.digest(second)


class _Package:
    def __init__(self, **files: str) -> None:
        self._files = files

    def read_text(self, name: str) -> str | None:
        return self._files.get(name.replace(".", "_"))


@pytest.mark.parametrize(
    ("files", "origin"),
    [
        ({"INSTALLER": "pip\n"}, "pip"),
        ({}, "unknown"),
        ({"direct_url_json": '{"url": "file:///home/a/b", "dir_info": {}}'}, "local file"),
        (
            {"direct_url_json": '{"url": "file:///a", "dir_info": {"editable": true}}'},
            "local folder, editable",
        ),
        (
            {
                "direct_url_json": '{"url": "https://example.org/x.git", "vcs_info": '
                '{"vcs": "git", "commit_id": "abc"}}'
            },
            "https://example.org/x.git@abc",
        ),
        ({"direct_url_json": '{"url": "https://example.org/x.whl"}'}, "https://example.org/x.whl"),
    ],
)
def test_the_origin_of_a_package(files: dict[str, str], origin: str) -> None:
    assert environments._origin(_Package(**files)) == origin  # type: ignore[arg-type]


def test_variables_of_numerical_libraries_count_and_the_choice_of_a_device_does_not() -> None:
    environ = {
        "OMP_NUM_THREADS": "2",
        "NVIDIA_TF32_OVERRIDE": "0",
        "CUDA_VISIBLE_DEVICES": "MIG-1",
        "HOME": "/root",
    }
    software = {"NVIDIA_TF32_OVERRIDE": "0", "OMP_NUM_THREADS": "2"}
    assert environments.variables(environ) == software
    seen = {"CUDA_VISIBLE_DEVICES": "MIG-1", **software}
    assert environments.variables(environ, devices=True) == seen


def test_secrets_in_variables_are_withheld() -> None:
    environ = {"NVIDIA_API_KEY": "hidden", "TORCH_PROXY": "http://user:hidden@host/"}
    withheld = dict.fromkeys(environ, "(withheld)")
    assert environments.variables({**environ, "HF_TOKEN": "hidden"}) == withheld


def test_containers_are_recognised(tmp_path: Path) -> None:
    nothing = environments.container({}, tmp_path)
    assert nothing["kind"] is None
    assert nothing["reason"]
    named = {"WATTSLICE_IMAGE": "wattslice:0.1.0"}
    assert environments.container(named, tmp_path)["image"] == "wattslice:0.1.0"
    sif = named | {"APPTAINER_CONTAINER": "/images/wattslice.sif"}
    assert environments.container(sif, tmp_path) == {
        "kind": "apptainer",
        "image": "wattslice:0.1.0",
        "file": "wattslice.sif",
    }
    (tmp_path / ".dockerenv").touch()
    assert environments.container(named, tmp_path)["kind"] == "docker"
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / ".containerenv").write_text('engine="podman"\nimage="a:1"\nimageid="9f"\n')
    assert environments.container({}, tmp_path) == {"kind": "podman", "image": "a:1", "id": "9f"}


def test_the_cpu_and_its_clock_settings(tmp_path: Path) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text("processor\t: 0\nmodel name\t: A CPU\nmicrocode\t: 0x1\ncpu MHz\t: 2000.5\n")
    frequency = tmp_path / "cpu0" / "cpufreq"
    frequency.mkdir(parents=True)
    (frequency / "scaling_governor").write_text("performance\n")
    (frequency / "scaling_max_freq").write_text("3000000\n")
    found = environments.cpu(cpuinfo, tmp_path)
    assert found["model"] == "A CPU"
    assert found["mhz_at_start"] == 2000.5
    assert found["governor"] == "performance"
    assert found["max_khz"] == 3_000_000
    assert found["boost"] is None
    assert environments.cpu(tmp_path / "none", tmp_path / "none")["model"] is None


def test_git_outside_a_repository_says_why(tmp_path: Path) -> None:
    found = environments.git(tmp_path)
    assert found["commit"] is None
    assert found["reason"]
