"""Snakemake that asks for its jobs every second, for tests: `python fast_polls.py ARGUMENTS`.

The executor plugin waits 10 s longer after each look at which no job had succeeded, and no option
lowers that. The jobs themselves start the plain command. It ends with the tests.
"""

from __future__ import annotations

import asyncio
import ctypes
import signal
import sys

from snakemake.cli import main
from snakemake_interface_executor_plugins.executors.remote import RemoteExecutor

_PR_SET_PDEATHSIG = 1  # Linux: include/uapi/linux/prctl.h


async def _sleep(self: RemoteExecutor) -> None:
    await asyncio.sleep(1.0)


ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL))
RemoteExecutor.sleep = _sleep
sys.argv[0] = "snakemake"
main()
