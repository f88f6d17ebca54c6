"""Processes that end with their parent."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1  # Linux: include/uapi/linux/prctl.h


def die_with_parent(parent_pid: int, number: signal.Signals) -> None:
    """Have the kernel send a signal to this process when its parent dies.

    Exits at once if the parent is already gone, as the signal would then never come.
    """
    if sys.platform != "linux":
        return
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, int(number), 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")
    if os.getppid() != parent_pid:
        sys.exit(f"parent process {parent_pid} is gone")
