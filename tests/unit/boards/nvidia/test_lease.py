"""A lease holds a board for one process, and only as long as that lives."""

import os
import signal
import stat
import subprocess
import sys
import time

import pytest

from wattslice.boards.errors import BoardBusyError, BoardPermissionError
from wattslice.boards.lease import board_lease, lease_dir, lease_holder, lease_path

HOLD = (
    "import sys, time\nfrom wattslice.boards.lease import board_lease\n"
    "with board_lease('GPU-x'):\n    print('held', flush=True)\n    time.sleep(60)\n"
)


@pytest.fixture(autouse=True)
def _directory(tmp_path, monkeypatch):
    monkeypatch.setenv("WATTSLICE_LEASE_DIR", str(tmp_path / "leases"))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))


@pytest.fixture
def other():
    env = {**os.environ, "WATTSLICE_CAMPAIGN": "night-run"}
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD], stdout=subprocess.PIPE, text=True, env=env
    )
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


def test_the_holder_is_named_with_its_campaign(other):
    with pytest.raises(BoardBusyError) as caught, board_lease("GPU-x", 0.1):
        pass
    assert f"process {other.pid}" in str(caught.value)
    assert "campaign night-run" in str(caught.value)
    assert f"process {other.pid}" in lease_holder("GPU-x")


def test_another_board_is_free(other):
    with board_lease("GPU-y", 0):
        assert lease_holder("GPU-z") is None


def test_kill_9_frees_the_board(other):
    other.send_signal(signal.SIGKILL)
    other.wait()
    with board_lease("GPU-x", 5):
        pass


def test_waiting_ends_when_the_holder_ends(other):
    begin = time.monotonic()
    subprocess.Popen(["sh", "-c", f"sleep 0.3; kill {other.pid}"]).wait()
    with board_lease("GPU-x", None):
        assert time.monotonic() - begin < 5


def test_a_child_of_the_holder_does_not_keep_the_board():
    with board_lease("GPU-x"):
        child = subprocess.Popen(["sleep", "30"])
    try:
        with board_lease("GPU-x", 0):
            pass
    finally:
        child.kill()
        child.wait()


def test_the_files_are_for_all_users():
    with board_lease("GPU-x"):
        assert stat.S_IMODE(lease_path("GPU-x").stat().st_mode) == 0o666
        assert stat.S_IMODE(lease_dir().stat().st_mode) == 0o1777


def test_the_directory_does_not_follow_the_jobs_tmpdir(monkeypatch, tmp_path):
    monkeypatch.delenv("WATTSLICE_LEASE_DIR")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    assert not str(lease_dir()).startswith(str(tmp_path))


def test_a_link_in_the_shared_directory_is_not_followed(tmp_path):
    lease_dir().mkdir()
    victim = tmp_path / "victim"
    victim.write_text("precious")
    lease_path("GPU-x").symlink_to(victim)
    with pytest.raises(BoardPermissionError, match="WATTSLICE_LEASE_DIR"), board_lease("GPU-x"):
        pass
    assert victim.read_text() == "precious"


def test_names_of_boards_make_no_paths():
    assert lease_path("../../etc/passwd").parent == lease_dir()
