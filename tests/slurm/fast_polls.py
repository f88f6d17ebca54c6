"""Snakemake that asks for its jobs every second, for tests: `python fast_polls.py ARGUMENTS`.

The executor plugin waits 10 s longer after each look at which no job had succeeded, and no option
lowers that. The jobs themselves start the plain command.
"""

from __future__ import annotations

import asyncio
import sys

from snakemake.cli import main
from snakemake_interface_executor_plugins.executors.remote import RemoteExecutor


async def _sleep(self: RemoteExecutor) -> None:
    await asyncio.sleep(1.0)


RemoteExecutor.sleep = _sleep
sys.argv[0] = "snakemake"
main()
