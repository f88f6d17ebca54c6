"""Other monitors of GPUs, which change what is measured."""

from __future__ import annotations

import ast
import shutil
import subprocess
from pathlib import Path

import wattslice
from wattslice.measure.monitors import running_monitors

SOURCES = Path(wattslice.__file__).parent


def test_t33_other_monitors_on_the_host_are_listed(tmp_path: Path) -> None:
    for pid, name in ((30, "dcgm-exporter"), (4, "nv-hostengine"), (5, "python"), (6, "nvtop")):
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "comm").write_text(f"{name}\n")
    (tmp_path / "7").mkdir()  # it ended meanwhile
    (tmp_path / "self").mkdir()
    assert running_monitors(tmp_path) == ("4 nv-hostengine", "6 nvtop", "30 dcgm-exporter")
    assert running_monitors(tmp_path / "missing") == ()


def test_t33_a_real_process_is_known_by_its_name(tmp_path: Path) -> None:
    program = tmp_path / "nvtop"
    shutil.copy(shutil.which("cat") or "/bin/cat", program)
    pipe = subprocess.PIPE
    with subprocess.Popen([program], stdin=pipe, stdout=pipe) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"started\n")
        process.stdin.flush()
        assert process.stdout.readline() == b"started\n"  # the kernel has given it its name
        assert f"{process.pid} nvtop" in running_monitors()


def test_t30_nothing_imports_or_starts_dcgm() -> None:
    """Its profiling counters would shut out profilers, and the other way round."""
    forbidden = {"pydcgm", "dcgm_agent", "dcgm_structs", "dcgm_fields", "DcgmReader"}
    for path in SOURCES.rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            names: set[str] = set()
            if isinstance(node, ast.Import):
                names = {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                names = {(node.module or "").split(".")[0]}
            assert not names & forbidden, path
            if isinstance(node, ast.Call):  # subprocess.run(["dcgmi", ...])
                started = {
                    word.value
                    for argument in node.args
                    if isinstance(argument, ast.List)
                    for word in argument.elts[:1]
                    if isinstance(word, ast.Constant)
                }
                assert not started & {"dcgmi", "nv-hostengine"}, path
