"""`wattslice measure -- COMMAND`."""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from wattslice.measure import cli
from wattslice.records.energy import EnergyResult
from wattslice.simulation import SimulationError
from wattslice.simulation.session import simulation

PROGRAM = (
    "import argparse, sys; from wattslice.measure.cli import add_parser; "
    "parser = argparse.ArgumentParser(); add_parser(parser.add_subparsers()); "
    "arguments = parser.parse_args(); sys.exit(arguments.func(arguments))"
)


def _start(*arguments: str, environment: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
    base = dict(os.environ if environment is None else environment)
    base["PYTHONPATH"] = os.pathsep.join(sys.path)
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, "measure", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=base,
        start_new_session=True,
    )


def _run(*arguments: str, **options: Any) -> tuple[int, str, str]:
    child = _start(*arguments, **options)
    out, errors = child.communicate(timeout=60)
    return child.returncode, out, errors


def test_t62_the_childs_exit_code_and_output_are_kept(tmp_path: Path) -> None:
    out_file = tmp_path / "result.json"
    code, out, errors = _run(
        "--board", "cpu", "--out", str(out_file), "--", "sh", "-c", "echo its output; exit 7"
    )
    assert code == 7
    assert out == "its output\n"
    assert "exit code 7" in errors
    report = json.loads(out_file.read_text(encoding="utf-8"))
    assert report["exit_code"] == 7
    assert report["command"] == ["sh", "-c", "echo its output; exit 7"]


def test_energy_that_cannot_be_had_is_null_with_a_reason_and_the_command_still_runs() -> None:
    code, out, _ = _run("--board", "cpu", "--json", "--", "sh", "-c", "echo first; exit 0")
    first, last = out.splitlines()
    assert (code, first) == (0, "first")
    report = json.loads(last)
    result = EnergyResult.model_validate(report["boards"][0]["energy"])
    assert (result.gross_j is None) == (result.reason is not None)
    assert (report["total_gross_j"] is None) == (report["total_reason"] is not None)


def test_an_interrupt_reaches_the_child_and_the_result_is_printed() -> None:
    script = "trap 'echo interrupted; exit 5' INT; echo ready; while :; do sleep 0.05; done"
    child = _start("--board", "cpu", "--json", "--", "sh", "-c", script)
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    os.kill(child.pid, signal.SIGINT)
    out, _ = child.communicate(timeout=30)
    assert child.returncode == 5
    assert out.splitlines()[0] == "interrupted"
    assert json.loads(out.splitlines()[1])["exit_code"] == 5


def test_ctrl_c_on_a_terminal_reaches_both_and_the_result_is_printed() -> None:
    script = "trap 'exit 5' INT; echo ready; while :; do sleep 0.05; done"
    child = _start("--board", "cpu", "--json", "--", "sh", "-c", script)
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    os.killpg(child.pid, signal.SIGINT)
    out, _ = child.communicate(timeout=30)
    assert child.returncode == 5
    assert json.loads(out)["exit_code"] == 5


def test_a_child_killed_by_a_signal_gives_128_and_its_number() -> None:
    child = _start("--board", "cpu", "--", "sh", "-c", "echo ready; exec sleep 30")
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    time.sleep(0.1)
    child.terminate()
    _, errors = child.communicate(timeout=30)
    assert child.returncode == 128 + signal.SIGTERM
    assert "exit code 143" in errors


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        ((), 2, "no command given"),
        (("--rate-hz", "0", "--", "true"), 2, "--rate-hz 0"),
        (("--board", "cpu", "--", "no-such-command"), 127, "command not found"),
        (("--board", "cpu", "--", "/"), 126, "cannot run /"),
        (("--board", "GPU-none", "--", "touch", "ran"), 2, "no NVIDIA board"),
    ],
)
def test_nothing_is_run_where_it_cannot_be_measured_as_asked(
    arguments: tuple[str, ...],
    code: int,
    text: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    parser = argparse.ArgumentParser()
    cli.add_parser(parser.add_subparsers())
    parsed = parser.parse_args(["measure", *arguments])
    assert parsed.func(parsed) == code
    assert text in capsys.readouterr().err
    assert not (tmp_path / "ran").exists()


def test_on_a_simulated_board_the_energy_is_right_and_labelled(tmp_path: Path) -> None:
    try:
        context = simulation(["h100-sxm5-80gb"] * 2)
        with context as boards:
            control = boards.control()
            control.set_waveform(1, "constant", low_w=300.0)
            environment = boards.environment() | {
                "CUDA_VISIBLE_DEVICES": control.board_uuid(1),
                "WATTSLICE_LEASE_DIR": str(tmp_path),
            }
            code, out, _ = _run("--json", "--", "sleep", "3", environment=environment)
            report = json.loads(out)
            _, _, table = _run("--", "true", environment=environment)
    except SimulationError as error:
        pytest.skip(f"the simulated library cannot be built here: {error}")
    assert code == 0
    (board,) = report["boards"]
    assert report["simulated"]
    assert report["duration_s"] == pytest.approx(3.0, abs=0.5)
    assert report["total_gross_j"] == pytest.approx(300 * report["duration_s"], rel=0.005)
    assert board["energy"]["scope"] == "board"
    assert board["board"]["uuid"] == environment["CUDA_VISIBLE_DEVICES"]
    assert "SIMULATED" in table
