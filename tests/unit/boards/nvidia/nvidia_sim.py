"""Runs a test's body in a child process whose NVML is the simulated library.

nvidia-ml-py loads its library once per process, by the loader's path, so a test on simulated
boards needs a process of its own; the body's assertions come back with their traceback.
"""

from __future__ import annotations

import ctypes
import functools
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[4]
LIBRARY = ROOT / "simulator" / "build" / "libnvidia-ml.so.1"
A100 = "a100-sxm4-80gb"
H100 = "h100-sxm5-80gb"


class Sim:
    """The simulator's control interface."""

    def __init__(self, state: Path) -> None:
        self.state = state
        self.lib = ctypes.CDLL(str(LIBRARY))
        self.lib.wattsim_set_option.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_double]
        self.lib.wattsim_set_activity.argtypes = [ctypes.c_char_p, ctypes.c_double, ctypes.c_int]
        self.lib.wattsim_set_process.argtypes = [
            ctypes.c_char_p,
            ctypes.c_double,
            ctypes.c_int,
            ctypes.c_uint64,
            ctypes.c_int,
            ctypes.c_int,
        ]
        self.lib.wattsim_add_fault.argtypes = [
            ctypes.c_int,
            ctypes.c_char_p,
            ctypes.c_int,
            ctypes.c_uint,
            ctypes.c_uint64,
            ctypes.c_uint64,
            ctypes.c_double,
            ctypes.c_double,
            ctypes.c_double,
            ctypes.POINTER(ctypes.c_uint),
        ]

    def create(self, models: str, mig_on: bool) -> None:
        code = self.lib.wattsim_create(str(self.state).encode(), models.encode(), int(mig_on))
        assert code == 0, f"the simulator refused {models}: {code}"

    def open(self) -> None:
        assert self.lib.wattsim_open(str(self.state).encode()) == 0

    def uuid(self, board: int = 0) -> str:
        buffer = ctypes.create_string_buffer(96)
        assert self.lib.wattsim_board_uuid(board, buffer, len(buffer)) == 0
        return buffer.value.decode()

    def option(self, name: str, value: float, board: int = -1) -> None:
        assert self.lib.wattsim_set_option(board, name.encode(), value) == 0, name

    def process(self, uuid: str, pid: int, fake: bool = True) -> None:
        code = self.lib.wattsim_set_process(uuid.encode(), 0.5, pid, 1 << 30, int(fake), 0)
        assert code == 0

    def no_process(self, pid: int) -> None:
        assert self.lib.wattsim_remove_process(pid) == 0

    def fault(
        self,
        function: str,
        code: int,
        from_call: int = 1,
        to_call: int = 0,
        board: int = -1,
        delay_ms: float = 0.0,
    ) -> None:
        number = ctypes.c_uint()
        assert (
            self.lib.wattsim_add_fault(
                board, function.encode(), 0, code, from_call, to_call, 0.0, 0.0, delay_ms, number
            )
            == 0
        )

    def clear_faults(self) -> None:
        assert self.lib.wattsim_clear_faults(-1) == 0


def build() -> None:
    """Build the library if it is not there; skip the test where that cannot be."""
    if LIBRARY.exists():
        return
    if shutil.which("cc") is None or shutil.which("make") is None:
        pytest.skip("the simulated NVML library is not built, and there is no C compiler")
    subprocess.run(["make", "-s", "-C", str(ROOT / "simulator")], check=True)


def environment(directory: Path) -> dict[str, str]:
    """The environment of a process that sees the boards of a directory's state file."""
    return {
        **{k: v for k, v in os.environ.items() if not k.startswith(("SLURM_", "CUDA_VISIBLE"))},
        "LD_LIBRARY_PATH": str(LIBRARY.parent),
        "WATTSIM_STATE": str(directory / "boards.state"),
        "WATTSLICE_LEASE_DIR": str(directory / "leases"),
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(Path(__file__).parent)]),
    }


def start(directory: Path, models: str = A100, mig_on: bool = True) -> dict[str, str]:
    """New boards in a directory, and the environment that shows them."""
    build()
    Sim(directory / "boards.state").create(models, mig_on)
    return environment(directory)


def on_simulator(models: str = A100, mig_on: bool = True) -> Callable[[Callable], Callable]:
    """Run the decorated test on fresh simulated boards; it gets the `Sim` that controls them."""

    def decorate(body: Callable[[Sim], None]) -> Callable:
        def test(tmp_path: Path) -> None:
            env = start(tmp_path, models, mig_on)
            code = (
                f"import nvidia_sim, {body.__module__} as m; "
                f"nvidia_sim.run_body(m.{body.__name__}.body)"
            )
            done = subprocess.run(
                [sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False
            )
            if done.returncode:
                pytest.fail(f"{done.stdout}\n{done.stderr}", pytrace=False)

        functools.update_wrapper(test, body)
        del test.__wrapped__  # or pytest would take the body's arguments for fixtures
        test.body = body
        return test

    return decorate


def run_body(body: Callable[[Sim], None]) -> None:
    """In the child: open the state that the environment names and run the body."""
    sim = Sim(Path(os.environ["WATTSIM_STATE"]))
    sim.open()
    body(sim)
