"""A lease on a physical board: one campaign at a time, freed by the kernel when its holder dies."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import getpass
import json
import os
import re
import socket
import stat
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from wattslice.boards.errors import BoardBusyError, BoardPermissionError

LEASE_DIR_VARIABLE = "WATTSLICE_LEASE_DIR"
CAMPAIGN_VARIABLE = "WATTSLICE_CAMPAIGN"
# flock has no time-out of its own; a poll this short is invisible beside a training run.
_POLL_S = 0.05


def lease_dir() -> Path:
    """The directory of the lease files, shared by all users of this machine.

    `WATTSLICE_LEASE_DIR` overrides it. `TMPDIR` is not followed, because schedulers set it per
    job, and two jobs must meet at the same file.
    """
    override = os.environ.get(LEASE_DIR_VARIABLE)
    if override:
        return Path(override)
    shared = Path("/tmp") if os.name == "posix" else Path(tempfile.gettempdir())
    return shared / "wattslice-leases"


def lease_path(board_uuid: str) -> Path:
    """The lease file of a board."""
    return lease_dir() / (re.sub(r"[^A-Za-z0-9_.-]", "_", board_uuid) + ".lock")


@contextlib.contextmanager
def board_lease(board_uuid: str, timeout_s: float | None = None) -> Iterator[None]:
    """Hold a physical board for this process.

    `timeout_s` is how long to wait in seconds; None waits for ever, 0 tries once. The lock is the
    kernel's: it ends with the process that took it, however that process ends. The descriptor is
    not inherited by programs this process starts, so a leftover worker cannot hold the board.
    A process that holds the board and asks again waits for itself.

    Raises BoardBusyError naming the holder when the time-out passes, BoardPermissionError when
    the lease file cannot be opened.
    """
    path = lease_path(board_uuid)
    descriptor = _open(path)
    try:
        _lock(descriptor, board_uuid, path, timeout_s)
        _write_holder(descriptor, board_uuid)
        try:
            yield
        finally:
            # The file stays: removing it would let two processes lock two different inodes.
            with contextlib.suppress(OSError):
                os.ftruncate(descriptor, 0)
    finally:
        os.close(descriptor)


def lease_holder(board_uuid: str) -> str | None:
    """Who holds the board, in words, or None when nobody does."""
    try:
        descriptor = os.open(lease_path(board_uuid), os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return _describe_holder(descriptor)
    else:
        return None
    finally:
        os.close(descriptor)


def _open(path: Path) -> int:
    try:
        make_lease_dir()
        # A link planted in a world-writable directory must not lead a privileged user astray.
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            descriptor = os.open(path, flags, 0o666)
        except PermissionError:
            # The kernel may forbid O_CREAT on another user's file in a sticky directory
            # (fs.protected_regular), although plain opening is allowed.
            descriptor = os.open(path, flags & ~os.O_CREAT)
    except OSError as error:
        raise BoardPermissionError(
            f"cannot open the lease file {path}: {error.strerror}; make it writable for you, or "
            f"set {LEASE_DIR_VARIABLE} to a directory that all users of the board share"
        ) from error
    # The umask may have taken the group's and others' bits; only the owner can repair that.
    with contextlib.suppress(OSError):
        os.fchmod(descriptor, 0o666)
    return descriptor


def make_lease_dir() -> None:
    """Make the directory of leases for all users, sticky as /tmp is. Raises OSError."""
    directory = lease_dir()
    directory.mkdir(parents=True, exist_ok=True)
    wanted = 0o1777
    if directory.stat().st_uid == os.getuid() and stat.S_IMODE(directory.stat().st_mode) != wanted:
        with contextlib.suppress(OSError):
            directory.chmod(wanted)


def _lock(descriptor: int, board_uuid: str, path: Path, timeout_s: float | None) -> None:
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                raise
        else:
            return
        if deadline is not None and time.monotonic() >= deadline:
            raise BoardBusyError(
                f"board {board_uuid} is held by {_describe_holder(descriptor)}; wait until it "
                f"ends, or stop it (lease file {path})"
            )
        time.sleep(_POLL_S)


def _write_holder(descriptor: int, board_uuid: str) -> None:
    holder = {
        "pid": os.getpid(),
        "user": _user(),
        "host": socket.gethostname(),
        "command": " ".join([Path(sys.argv[0]).name, *sys.argv[1:]])[:500],
        "campaign": os.environ.get(CAMPAIGN_VARIABLE),
        "board": board_uuid,
        "since": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, (json.dumps(holder) + "\n").encode(), 0)


def _describe_holder(descriptor: int) -> str:
    try:
        holder = json.loads(os.pread(descriptor, 65536, 0).decode())
    except (OSError, ValueError):
        return "another process (it has not written who it is)"
    campaign = f", campaign {holder['campaign']}" if holder.get("campaign") else ""
    return (
        f"process {holder.get('pid')} of {holder.get('user')} on {holder.get('host')}"
        f" ({holder.get('command')}{campaign}) since {holder.get('since')}"
    )


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid {os.getuid()}"
