"""The command line as a whole: every command helps with an example and answers as JSON."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

import pytest

from wattslice import __version__
from wattslice.cli import main, parser

PARTED = """\
version: v1
mig-configs:
  mixed:
    - device-filter: "0x233510DE"
      devices: all
      mig-enabled: true
      mig-devices: {"1g.18gb": 2, "2g.35gb": 1, "3g.71gb": 1}
    - device-filter: "0x20B210DE"
      devices: all
      mig-enabled: false
"""


def _leaves(top: argparse.ArgumentParser, path: str = "") -> dict[str, argparse.ArgumentParser]:
    groups = [a for a in top._actions if isinstance(a, argparse._SubParsersAction)]
    if not groups:
        return {path: top}
    return {
        leaf: found
        for group in groups
        for name, sub in group.choices.items()
        for leaf, found in _leaves(sub, f"{path} {name}".strip()).items()
    }


LEAVES = _leaves(parser())


@pytest.mark.parametrize("command", LEAVES)
def test_every_command_helps_with_an_example(command: str) -> None:
    text = LEAVES[command].format_help()
    assert "example" in text.lower()
    assert "wattslice" in text


def test_the_version_and_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["--version"])
    assert stopped.value.code == 0
    assert __version__ in capsys.readouterr().out
    with pytest.raises(SystemExit) as stopped:
        main(["no-such-command"])
    assert stopped.value.code == 2


def test_help_needs_no_heavy_import() -> None:
    code = (
        "import sys; from wattslice.cli import parser; parser().format_help();"
        "heavy = ('torch', 'timm', 'transformers', 'altair', 'pynvml');"
        "print([m for m in heavy if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": "src"},
    )
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("board", "layout"),
    [("h200-sxm-141gb", "3g.71gb+2g.35gb+2x1g.18gb"), ("a100-sxm4-80gb", "full")],
)
def test_a_mig_parted_file_is_read_as_a_layout(
    board: str, layout: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "mig.yaml"
    path.write_text(PARTED)
    assert main(["layout", "read", str(path), "mixed", "--board", board, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"layout": layout}


def test_a_label_that_is_not_in_the_file_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "mig.yaml"
    path.write_text(PARTED)
    assert main(["layout", "read", str(path), "mixd", "--board", "a30"]) == 1
    assert "mixd" in capsys.readouterr().err


def test_the_state_of_simulated_boards_is_exported_and_read_back(tmp_path: Path) -> None:
    from wattslice.simulation.session import simulation

    def wattslice(*arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "wattslice", *arguments],
            capture_output=True,
            text=True,
            check=True,
            env={**board.environment(), "PYTHONPATH": "src"},
        )
        return done.stdout

    make = (
        "from wattslice.boards.nvidia.board import discover;"
        "from wattslice.config.layout import Layout;"
        "board = discover('managed')[0];"
        "lease = board.lease(); lease.__enter__(); board.ensure(Layout.parse('4g+2g+1g'))"
    )
    with simulation(["a100-sxm4-80gb"], mig=True) as board:
        environment = {**board.environment(), "PYTHONPATH": "src"}
        subprocess.run([sys.executable, "-c", make], check=True, env=environment)
        path = tmp_path / "mig.yaml"
        path.write_text(wattslice("layout", "export"))
        read = wattslice("layout", "read", str(path), "current").strip()
    assert read == "4g.40gb+2g.20gb+1g.10gb"
