"""Building the simulated library: once, and again when its sources are newer."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from pathlib import Path

from wattslice.simulation.errors import SimulationError

#: Where the C sources are, when not beside ``src/`` in a checkout.
SOURCE_VARIABLE = "WATTSLICE_SIMULATOR"
LIBRARY_NAME = "libnvidia-ml.so.1"


def source_dir() -> Path:
    """The folder with the C sources and the board tables."""
    given = os.environ.get(SOURCE_VARIABLE)
    folder = Path(given) if given else Path(__file__).resolve().parents[3] / "simulator"
    if not (folder / "Makefile").is_file():
        raise SimulationError(
            f"the simulator's sources are not at {folder}: run from a checkout of wattslice, or "
            f"set {SOURCE_VARIABLE} to its simulator/ folder"
        )
    return folder


def build_dir() -> Path:
    """Where it is built: beside the sources, or in the user's cache if those are read-only."""
    source = source_dir()
    if os.access(source, os.W_OK):
        return source / "build"
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(cache) / "wattslice" / "simulator"


def _is_stale(library: Path) -> bool:
    if not library.is_file():
        return True
    built = library.stat().st_mtime
    source = source_dir()
    inputs = [source / "Makefile"]
    for pattern in ("src/*.[ch]", "include/*.h", "data/*.csv", "tools/*.awk"):
        inputs.extend(source.glob(pattern))
    return any(path.stat().st_mtime > built for path in inputs)


def ensure_built() -> Path:
    """The path of an up-to-date library, built first if need be.

    Processes that come at the same time wait for the one that builds.
    """
    folder = build_dir()
    library = folder / LIBRARY_NAME
    if not _is_stale(library):
        return library
    for tool, purpose in (("make", "runs the build"), ("awk", "makes the board tables")):
        if shutil.which(tool) is None:
            raise SimulationError(f"building the simulator needs {tool} ({purpose})")
    compiler = os.environ.get("CC", "cc")
    if shutil.which(compiler) is None:
        raise SimulationError(
            f"building the simulator needs a C compiler, and {compiler!r} is not on PATH; install "
            "one (for example gcc) or name it in CC"
        )
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if _is_stale(library):
            command = ["make", "-C", str(source_dir()), f"BUILD={folder}", f"CC={compiler}"]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                raise SimulationError(
                    "the simulator does not build:\n" + (done.stderr or done.stdout)[-2000:]
                )
            library.touch()  # newer than every input, whatever make thought of their times
    return library
