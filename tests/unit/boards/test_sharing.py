"""Sharing schemes; MPS against a stand-in for its control daemon that keeps to its manual."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from wattslice.boards import sharing
from wattslice.boards.cpu.board import CpuBoard
from wattslice.config.layout import Layout
from wattslice.config.spec import Sharing
from wattslice.records.board import LayoutState, SliceState

DAEMON = """#!{python}
import os, pathlib, signal, sys, time
pipe = pathlib.Path(os.environ["CUDA_MPS_PIPE_DIRECTORY"])
log = pathlib.Path(os.environ["CUDA_MPS_LOG_DIRECTORY"])
if sys.argv[1:] == ["-f"]:
    (log / "control.log").write_text("started\\nno such device")
    if {broken}:
        sys.exit(3)
    (pipe / "control").write_text(str(os.getpid()))
    while not (pipe / "quit").exists():
        time.sleep(0.01)
    sys.exit(0)
command = sys.stdin.read().strip()
if not (pipe / "control").exists():
    sys.exit("Cannot find MPS control daemon process")
if command.startswith("quit"):
    if {deaf}:
        sys.exit(0)
    (pipe / "quit").touch()
elif command == "get_server_list":
    print(4242)
elif command.startswith("get_client_list"):
    print("\\n".join({clients}))
else:
    print("100.0")
"""


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    def make(*, broken: bool = False, deaf: bool = False, clients: tuple[str, ...] = ()) -> None:
        program = tmp_path / sharing.CONTROL
        program.write_text(
            DAEMON.format(python=sys.executable, broken=broken, deaf=deaf, clients=list(clients))
        )
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")

    return make


def _board(kind: str = "nvidia", simulated: bool = False) -> Any:
    return SimpleNamespace(identity=SimpleNamespace(kind=kind, simulated=simulated, name="a board"))


WHOLE = LayoutState(
    layout="full", slices=(SliceState(index=0, name="full", profile="full", uuid="GPU-1"),)
)


def _alive(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


def test_the_one_slice_of_a_layout_is_listed_once_per_worker() -> None:
    state = sharing.divided(WHOLE, 3)
    assert [s.index for s in state.slices] == [0, 1, 2]
    assert {s.uuid for s in state.slices} == {"GPU-1"}
    two = CpuBoard(cores=(0, 1)).ensure(Layout.parse("2x1c"))
    with pytest.raises(sharing.SharingUnavailableError, match="2x1c has 2 slices"):
        sharing.divided(two, 2)


def test_on_a_cpu_board_time_slicing_gives_every_worker_all_cores() -> None:
    board = CpuBoard(cores=(0, 1))
    state = sharing.divided(board.ensure(Layout.parse("full")), 2)
    placements = [board.placement(slice_) for slice_ in state.slices]
    assert [p.cores for p in placements] == [(0, 1), (0, 1)]
    assert [p.threads for p in placements] == [2, 2]
    with sharing.shared(Sharing(scheme="time-slice"), board, state, 2) as scheme:
        assert scheme.env == ({}, {})
        assert scheme.check([1, 2]) is None


@pytest.mark.parametrize(
    ("board", "message"),
    [
        (_board("cpu"), "needs an NVIDIA board"),
        (_board(simulated=True), "simulated board has no CUDA MPS"),
        (_board(), "nvidia-cuda-mps-control is not on PATH"),
    ],
)
def test_where_there_is_no_mps_the_reason_is_given(
    board: Any, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    with (
        pytest.raises(sharing.SharingUnavailableError, match=message),
        sharing.shared(Sharing(scheme="mps"), board, WHOLE, 2),
    ):
        pass


def test_the_daemon_runs_for_the_run_and_its_clients_are_limited(install: Any) -> None:
    install(clients=("11", "12"))
    percentages = Sharing(scheme="mps", active_thread_percentages=(70, 30))
    with sharing.shared(percentages, _board(), WHOLE, 2) as scheme:
        assert [e["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] for e in scheme.env] == ["70", "30"]
        pipe = Path(scheme.env[0]["CUDA_MPS_PIPE_DIRECTORY"])
        pid = int((pipe / "control").read_text())
        assert _alive(pid)
        assert scheme.check([11, 12]) is None
        assert "2 of 3 workers" in str(scheme.check([11, 12, 13]))
    assert not _alive(pid)
    assert not pipe.exists()


def test_a_run_that_fails_stops_the_daemon_too(install: Any) -> None:
    install()
    pid = 0
    with pytest.raises(RuntimeError, match="training"), sharing.mps_daemon("GPU-1") as daemon:
        pid = int((daemon.pipe / "control").read_text())
        raise RuntimeError("training")
    assert not _alive(pid)


def test_a_daemon_that_does_not_start_is_named_with_its_log(install: Any) -> None:
    install(broken=True)
    with (
        pytest.raises(sharing.MpsError, match="code 3: started \\| no such device"),
        sharing.mps_daemon("GPU-1"),
    ):
        pass


def test_a_daemon_that_will_not_quit_is_ended(
    install: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sharing, "_STOP_S", 0.4)
    install(deaf=True)
    with sharing.mps_daemon("GPU-1") as daemon:
        pid = int((daemon.pipe / "control").read_text())
    assert not _alive(pid)


def test_the_daemon_ends_with_a_launcher_that_is_killed(install: Any, tmp_path: Path) -> None:
    install()
    code = (
        "import sys; from wattslice.boards.sharing import mps_daemon\n"
        "with mps_daemon('GPU-1') as daemon:\n"
        "    print((daemon.pipe / 'control').read_text(), flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": "src", "TMPDIR": str(tmp_path)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as launcher:
        assert launcher.stdout is not None
        pid = int(launcher.stdout.readline())
        launcher.send_signal(signal.SIGKILL)
        launcher.wait()
    deadline = time.monotonic() + 5
    while _alive(pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not _alive(pid)
