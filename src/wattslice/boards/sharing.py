"""Several processes on one slice: in turns (time slicing) or at once under CUDA MPS.

These are the schemes that partitions are compared with. A board's one slice (`full`, `7g`) is
given to k workers, which the record lists as k slices of the same name and UUID.

- `time-slice` needs nothing: the driver (or on a CPU the kernel) gives the processes turns.
- `mps`: NVIDIA's Multi-Process Service lets kernels of different processes run at the same time.
  Its control daemon is started for one run and stopped after it. An active-thread percentage
  limits the share of SMs that a client may use (CUDA_MPS_ACTIVE_THREAD_PERCENTAGE; 100 is no
  limit). It is no partition: memory bandwidth and caches are shared, and an error of one client
  can end all.

Source of commands and variables: NVIDIA, Multi-Process Service, sections on the control daemon
and on environment variables.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from wattslice.boards.base import Board
from wattslice.boards.errors import BoardError
from wattslice.config.spec import Sharing
from wattslice.records.board import LayoutState

CONTROL = "nvidia-cuda-mps-control"
_START_S = 10.0
_STOP_S = 20.0
_ASK_S = 5.0
# Becomes the program that it is given, with SIGTERM (15) when the parent dies: PR_SET_PDEATHSIG is
# 1 (Linux, include/uapi/linux/prctl.h). A function between fork and exec is unsafe with threads.
_WITH_PARENT = (
    "import ctypes, os, sys; ctypes.CDLL(None).prctl(1, 15, 0, 0, 0); "
    "os.execv(sys.argv[1], sys.argv[1:])"
)


class SharingUnavailableError(BoardError):
    """The board cannot be shared in this way; the message says why. It is no fault of the run."""


class MpsError(BoardError):
    """The MPS control daemon does not start, answer or stop; the message has its last lines."""


def divided(state: LayoutState, workers: int) -> LayoutState:
    """The one slice of a layout, once for each of the workers that share it.

    Raises SharingUnavailableError where the layout has several slices.
    """
    if len(state.slices) != 1:
        raise SharingUnavailableError(
            f"layout {state.layout} has {len(state.slices)} slices; one slice can be shared, "
            "e.g. full or 7g"
        )
    (whole,) = state.slices
    slices = tuple(whole.model_copy(update={"index": index}) for index in range(workers))
    return state.model_copy(update={"slices": slices})


@dataclass(frozen=True, slots=True)
class MpsDaemon:
    """A control daemon that runs, and how to reach it."""

    pipe: Path
    log: Path
    env: Mapping[str, str]

    def ask(self, command: str) -> str:
        """What the daemon answers to a command, e.g. get_server_list. Raises MpsError."""
        try:
            done = subprocess.run(
                [CONTROL],
                input=command + "\n",
                env={**os.environ, **self.env},
                capture_output=True,
                text=True,
                timeout=_ASK_S,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise MpsError(f"{CONTROL} does not answer {command!r}: {error}") from error
        if done.returncode != 0:
            said = (done.stdout + done.stderr).strip()
            raise MpsError(f"{CONTROL} refused {command!r}: {said or _tail(self.log)}")
        return done.stdout.strip()

    def clients(self) -> frozenset[int]:
        """Process ids of all clients of all servers."""
        found: set[int] = set()
        for server in self.ask("get_server_list").split():
            listed = self.ask(f"get_client_list {server}").split()
            found.update(int(pid) for pid in listed if pid.isdigit())
        return frozenset(found)


@contextlib.contextmanager
def mps_daemon(uuid: str) -> Iterator[MpsDaemon]:
    """Run the MPS control daemon for one board (or MIG instance) and stop it at the end.

    Its pipe lies in a folder of its own, so that a daemon of someone else is neither used nor
    stopped. It runs in the foreground as a child and ends with this process.
    Raises SharingUnavailableError where the program is not installed, MpsError where it fails.
    """
    program = shutil.which(CONTROL)
    if program is None:
        raise SharingUnavailableError(
            f"{CONTROL} is not on PATH: CUDA MPS comes with the NVIDIA driver (packages named "
            "nvidia-compute-utils or cuda-compat), and must be made visible in a container"
        )
    folder = Path(tempfile.mkdtemp(prefix="wattslice-mps-"))
    pipe, log = folder / "pipe", folder / "log"
    pipe.mkdir()
    log.mkdir()
    env = {
        "CUDA_MPS_PIPE_DIRECTORY": str(pipe),
        "CUDA_MPS_LOG_DIRECTORY": str(log),
        "CUDA_VISIBLE_DEVICES": uuid,
    }
    daemon = MpsDaemon(pipe, log, env)
    try:
        process = subprocess.Popen(
            [sys.executable, "-c", _WITH_PARENT, program, "-f"],
            env={**os.environ, **env},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            _await_start(process, daemon)
            yield daemon
        finally:
            _stop(process, daemon)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _await_start(process: subprocess.Popen[bytes], daemon: MpsDaemon) -> None:
    deadline = time.monotonic() + _START_S
    while True:
        if (code := process.poll()) is not None:
            raise MpsError(f"{CONTROL} ended at once with code {code}: {_tail(daemon.log)}")
        try:
            daemon.ask("get_default_active_thread_percentage")
        except MpsError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
        else:
            return


def _stop(process: subprocess.Popen[bytes], daemon: MpsDaemon) -> None:
    """`quit` as the manual has it, then signals; whatever the run did, the daemon is gone."""
    if process.poll() is None:
        with contextlib.suppress(MpsError):
            daemon.ask("quit -t 5")
    for number in (None, signal.SIGTERM, signal.SIGKILL):
        if number is not None and process.poll() is None:
            process.send_signal(number)
        try:
            process.wait(timeout=_STOP_S / 2)
        except subprocess.TimeoutExpired:
            continue
        return


def _tail(log: Path, lines: int = 3) -> str:
    """The last lines of the daemon's log, which say why it failed."""
    try:
        text = (log / "control.log").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return "no log"
    return " | ".join(text.splitlines()[-lines:]) or "an empty log"


@dataclass(frozen=True, slots=True)
class Shared:
    """How the workers of a shared slice are started, and checked once they compute."""

    env: tuple[Mapping[str, str], ...]  # per worker, beside what the board's placement asks for
    daemon: MpsDaemon | None = None

    def check(self, pids: Sequence[int]) -> str | None:
        """Why the scheme does not hold for the workers, or None if it does.

        In a container the daemon may know other process ids, so the number of clients counts.
        """
        if self.daemon is None:
            return None
        clients = self.daemon.clients()
        if len(clients) >= len(pids):
            return None
        return f"{len(clients)} of {len(pids)} workers are clients of the MPS server"


@contextlib.contextmanager
def shared(sharing: Sharing, board: Board, state: LayoutState, workers: int) -> Iterator[Shared]:
    """The scheme, for as long as the run lasts.

    Raises SharingUnavailableError where the board or the machine has no such scheme, MpsError.
    """
    if sharing.scheme == "time-slice":
        yield Shared(({},) * workers)
        return
    if board.identity.kind != "nvidia":
        raise SharingUnavailableError(
            f"CUDA MPS needs an NVIDIA board; this is {board.identity.name}"
        )
    if board.identity.simulated:
        raise SharingUnavailableError("a simulated board has no CUDA MPS")
    uuid = state.slices[0].uuid
    if uuid is None:
        raise SharingUnavailableError(f"slice {state.slices[0].profile} has no UUID")
    percentages = sharing.active_thread_percentages or (None,) * workers
    with mps_daemon(uuid) as daemon:
        base = {k: v for k, v in daemon.env.items() if k.startswith("CUDA_MPS_")}
        limits = [
            {} if percentage is None else {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": str(percentage)}
            for percentage in percentages
        ]
        yield Shared(tuple({**base, **limit} for limit in limits), daemon)
