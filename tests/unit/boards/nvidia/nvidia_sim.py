"""Runs a test's body in a child process whose NVML is the simulated library.

nvidia-ml-py loads its library once per process, by the loader's path, so a test on simulated
boards needs a process of its own; the body's assertions come back with their traceback.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from wattslice.simulation import SimulationError
from wattslice.simulation.build import ensure_built
from wattslice.simulation.control import Control
from wattslice.simulation.session import create

A100 = "a100-sxm4-80gb"
H100 = "h100-sxm5-80gb"


class Sim:
    """The control of the boards that a test's body runs on."""

    def __init__(self, control: Control) -> None:
        self.control = control
        self.clear_faults = control.clear_faults
        self.no_process = control.remove_process

    def uuid(self, board: int = 0) -> str:
        return self.control.board_uuid(board)

    def option(self, name: str, value: float) -> None:
        self.control.set_option(None, name, value)

    def process(self, uuid: str, pid: int, fake: bool = True) -> None:
        self.control.set_process(uuid, pid=pid, activity=0.5, memory_mib=1024, fake=fake)

    def fault(
        self, function: str, code: int, first: int = 1, last: int = 0, delay_ms: float = 0.0
    ) -> None:
        self.control.add_fault(function, code, from_call=first, to_call=last, delay_ms=delay_ms)


def start(
    body: Callable[..., None],
    directory: Path,
    models: str = A100,
    mig_on: bool = True,
    arguments: Mapping[str, Any] | None = None,
) -> subprocess.Popen[str]:
    """Start a function of a test module on the boards of a directory, made if there are none."""
    try:
        library = ensure_built()
    except SimulationError as error:
        pytest.skip(str(error))
    env = {
        **{k: v for k, v in os.environ.items() if not k.startswith(("SLURM_", "CUDA_VISIBLE"))},
        "LD_LIBRARY_PATH": str(library.parent),
        "WATTSIM_STATE": str(directory / "boards.state"),
        "WATTSLICE_LEASE_DIR": str(directory / "leases"),
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path]),
    }
    job = {
        "module": body.__module__.rpartition(".")[2],  # its folder is on the path
        "name": body.__name__,
        "models": models,
        "mig_on": mig_on,
        "arguments": dict(arguments or {}),
    }
    return subprocess.Popen(
        [sys.executable, __file__, json.dumps(job)],
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def finish(process: subprocess.Popen[str]) -> None:
    """Wait for a body; its failure is the test's."""
    output, _ = process.communicate()
    if process.returncode:
        pytest.fail(output, pytrace=False)


def on_simulator(models: str = A100, mig_on: bool = True) -> Callable[[Callable], Callable]:
    """Run the decorated test on fresh simulated boards; it gets the `Sim` that controls them.

    Further arguments of the test come from `pytest.mark.parametrize` and must be JSON values.
    """

    def decorate(body: Callable[..., None]) -> Callable:
        def test(tmp_path: Path, **arguments: Any) -> None:
            finish(start(body, tmp_path, models, mig_on, arguments))

        functools.update_wrapper(test, body)
        del test.__wrapped__  # or pytest would take the body's arguments for fixtures
        given = list(inspect.signature(body).parameters.values())[1:]
        path = inspect.Parameter("tmp_path", inspect.Parameter.POSITIONAL_OR_KEYWORD)
        test.__signature__ = inspect.Signature([path, *given])
        test.body = body
        return test

    return decorate


def _main() -> None:
    job = json.loads(sys.argv[1])
    state = Path(os.environ["WATTSIM_STATE"])
    if not state.exists():
        create(job["models"].split(","), state, mig=job["mig_on"])
    function = getattr(importlib.import_module(job["module"]), job["name"])
    body = getattr(function, "body", function)
    body(Sim(Control.from_environment()), **job["arguments"])


if __name__ == "__main__":
    _main()
