"""The command line: exit codes, signals, what it writes, what it refuses."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from unit.simulation.simulated import ROOT
from wattslice.simulation.boards import board_model, catalogue
from wattslice.simulation.build import SOURCE_VARIABLE, build_dir, ensure_built, source_dir
from wattslice.simulation.errors import SimulationError

WRAPPER = [sys.executable, "-m", "wattslice.simulation"]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
PYTHON = sys.executable


def simulate(*arguments: str | Path, **settings: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*WRAPPER, "simulate", *map(str, arguments)],
        env=ENVIRONMENT, capture_output=True, text=True, check=False, **settings,
    )  # fmt: skip


def test_exit_code_is_the_commands() -> None:
    assert simulate("--board", "a30", "--", "sh", "-c", "exit 7").returncode == 7
    assert simulate("--board", "a30", "--", "true").returncode == 0
    killed = simulate("--board", "a30", "--", "sh", "-c", "kill -9 $$")
    assert killed.returncode == 128 + 9
    missing = simulate("--board", "a30", "--", "no-such-command")
    assert missing.returncode == 127
    assert "command not found: no-such-command" in missing.stderr
    assert simulate("--board", "a30", "--", "/").returncode == 126


def test_command_runs_on_the_boards_and_is_marked() -> None:
    script = (
        "import os, pynvml as nv; from wattslice.simulation import is_simulated; nv.nvmlInit(); "
        "h = nv.nvmlDeviceGetHandleByIndex(2); print(nv.nvmlDeviceGetCount(), "
        "nv.nvmlDeviceGetName(h), nv.nvmlDeviceGetMigMode(h), is_simulated(), "
        "os.environ['WATTSLICE_SIMULATED'])"
    )
    boards = ["--board", "a30", "--board", "h200-sxm-141gb", "--count", "2", "--mig", "on"]
    done = simulate(*boards, "--", PYTHON, "-c", script)
    assert done.stdout == "4 NVIDIA H200 [1, 1] True 1\n", done.stderr


def test_a_process_without_the_library_is_not_simulated() -> None:
    code = "from wattslice.simulation import is_simulated; print(is_simulated())"
    done = subprocess.run(
        [PYTHON, "-c", code], check=False, capture_output=True, text=True, env=ENVIRONMENT
    )
    assert done.stdout == "False\n", done.stderr


def test_signals_reach_the_command() -> None:
    script = (
        "import signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(33))\n"
        "print('up', flush=True)\ntime.sleep(30)"
    )
    wrapper = subprocess.Popen(
        [*WRAPPER, "simulate", "--board", "a30", "--", PYTHON, "-c", script],
        env=ENVIRONMENT, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert wrapper.stdout is not None
    assert wrapper.stdout.readline() == "up\n"
    wrapper.send_signal(signal.SIGTERM)
    assert wrapper.wait(timeout=10) == 33


def test_true_energy_is_written(tmp_path) -> None:
    out = tmp_path / "energy.json"
    before = time.monotonic()
    simulate("--board", "a100-sxm4-80gb", "--energy-out", out, "--", "sleep", "0.3")
    report = json.loads(out.read_text())
    seconds = report["t1_monotonic_s"] - report["t0_monotonic_s"]
    assert report["simulated"] is True
    assert before < report["t0_monotonic_s"]
    assert 0.3 <= seconds < 5
    (board,) = report["boards"]
    assert board["model"] == "a100-sxm4-80gb"
    assert board["uuid"].startswith("GPU-51a7ed51-")
    assert board["true_energy_j"] == pytest.approx(50 * seconds, rel=1e-6)


def test_state_outlives_the_command_and_scenarios_apply(tmp_path) -> None:
    state, scenario = tmp_path / "state", tmp_path / "scenario.json"
    scenario.write_text(json.dumps({"options": [{"board": 1, "idle_w": 99}]}))
    count = "import pynvml as nv; nv.nvmlInit(); print(nv.nvmlDeviceGetCount())"
    boards = ["--board", "a30", "--count", "3"]
    done = simulate(*boards, "--state", state, "--", PYTHON, "-c", count)
    assert done.stdout == "3\n", done.stderr
    energy = tmp_path / "energy.json"
    again = simulate(
        "--state", state, "--faults", scenario, "--energy-out", energy, "--", "sleep", "0.1"
    )
    assert again.returncode == 0, again.stderr
    energies = [b["true_energy_j"] for b in json.loads(energy.read_text())["boards"]]
    assert energies[1] / energies[0] == pytest.approx(99 / 28)
    refused = simulate("--board", "a30", "--state", state, "--", "true")
    assert refused.returncode == 2
    assert "leave out --board" in refused.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--board", "a100", "--", "true"], "did you mean a100-sxm4-"),
        (["--", "true"], "no --board given"),
        (["--board", "a30"], "no command given"),
        (["--board", "a30", "--count", "0", "--", "true"], "at least 1"),
        (["--board", "a30", "--count", "17", "--", "true"], "1 to 16"),
        (["--board", "a30", "--faults", "/no/such", "--", "true"], "cannot read /no/such"),
    ],
)
def test_bad_usage_says_what_is_wrong(arguments, message) -> None:
    done = simulate(*arguments)
    assert done.returncode == 2
    assert message in done.stderr


def test_models_are_listed() -> None:
    done = simulate("--list", "--json")
    models = {m["model"]: m for m in json.loads(done.stdout)}
    assert set(models) == set(catalogue())
    assert models["a100-sxm4-80gb"]["max_limit_w"] == 400
    assert "a100-sxm4-80gb" in simulate("--list").stdout
    for wanted in (
        "a30",
        "a100-sxm4-40gb",
        "a100-sxm4-80gb",
        "h100-sxm5-80gb",
        "h100-nvl-94gb",
        "h100-96gb",
        "gh200-96gb",
        "gh200-144gb",
        "h200-sxm-141gb",
        "b200-180gb",
        "rtx-pro-6000",
    ):
        assert board_model(wanted).model == wanted


def test_ctl_steers_the_simulation_it_runs_in(tmp_path) -> None:
    steps, broken = tmp_path / "steps.csv", tmp_path / "broken.csv"
    steps.write_text("0,100\n0.5,300\n")
    broken.write_text("0;100\n")
    ctl = f"{PYTHON} -m wattslice.simulation ctl"
    script = f"""
set -e
{ctl} waveform square --low-w 100 --high-w 300 --period-s 0.1
{ctl} option idle_w 77
{ctl} fault nvmlDeviceGetName IN_USE --to-call 1
{ctl} process $({PYTHON} -c 'import pynvml as n; n.nvmlInit(); print(
    n.nvmlDeviceGetUUID(n.nvmlDeviceGetHandleByIndex(0)))') --pid 5 --fake
{ctl} remove 5
{ctl} xid 31
{ctl} clear
{ctl} trace {steps}
! {ctl} trace {broken}
{ctl} waveform none
{ctl} reset
{ctl} energy $({PYTHON} -c 'import time; t = time.monotonic(); print(t - 20, t - 10)')
"""
    done = simulate("--board", "a100-sxm4-80gb", "--", "sh", "-c", script)
    assert done.returncode == 0, done.stderr
    fault, energy = done.stdout.splitlines()
    assert fault == "1"
    assert json.loads(energy) == {"board": 0, "true_energy_j": pytest.approx(500)}


def test_ctl_outside_a_simulation_says_so() -> None:
    done = subprocess.run(
        [*WRAPPER, "ctl", "clear"], env=ENVIRONMENT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "not on simulated boards" in done.stderr


def test_build_is_not_repeated_and_errors_are_clear(monkeypatch, tmp_path) -> None:
    library = ensure_built()
    built = library.stat().st_mtime_ns
    assert ensure_built() == library
    assert library.stat().st_mtime_ns == built
    assert build_dir() == source_dir() / "build"
    monkeypatch.setenv(SOURCE_VARIABLE, str(tmp_path))
    with pytest.raises(SimulationError, match="not at"):
        ensure_built()
    for part in ("src", "include", "data", "tools"):
        (tmp_path / part).mkdir()
    (tmp_path / "Makefile").write_text("all:\n\techo broken >&2; exit 1\n")
    monkeypatch.setenv("CC", "no-such-compiler")
    with pytest.raises(SimulationError, match="needs a C compiler"):
        ensure_built()
    monkeypatch.setenv("CC", "true")
    with pytest.raises(SimulationError, match="does not build:\nbroken"):
        ensure_built()
