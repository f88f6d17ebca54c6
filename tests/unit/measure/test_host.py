"""How much of a worker's cores others took, by a made-up and by the real /proc."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from wattslice.measure import host
from wattslice.measure.host import HostLoad, HostWorker

TICKS = os.sysconf("SC_CLK_TCK")


class Proc:
    """A /proc whose numbers are set by hand, and a clock that goes with them."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.now_s = folder, 100.0
        monkeypatch.setattr(host.time, "monotonic", lambda: self.now_s)

    def write(self, busy: dict[int, float], own: dict[int, float]) -> None:
        """Busy time of cores and CPU time of processes, s."""
        lines = ["cpu  1 2 3 4 5 6 7 8 9 0"]
        for core, seconds in busy.items():
            ticks = round(seconds * TICKS)
            # idle, iowait and guest time count for nothing
            lines.append(f"cpu{core} {ticks - 4} 1 1 999 999 1 1 0 77 7")
        (self.folder / "stat").write_text("\n".join([*lines, "intr 5 5", "ctxt 9"]))
        for pid, seconds in own.items():
            ticks = round(seconds * TICKS)
            (self.folder / str(pid)).mkdir(exist_ok=True)
            head = " ".join(["S", *["0"] * 10])
            text = f"{pid} (a ) name) {head} {ticks - 3} 1 1 1 20 0 1"
            (self.folder / str(pid) / "stat").write_text(text)


@pytest.fixture
def proc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Proc:
    return Proc(tmp_path, monkeypatch)


def _worker(pid: int, *cores: int) -> HostWorker:
    return HostWorker(pid, frozenset(cores))


def _over(proc: Proc, workers: dict[int, HostWorker], busy: dict, own: dict, span_s=10.0):
    load = HostLoad(workers, proc.folder)
    proc.write(dict.fromkeys(busy, 50.0), dict.fromkeys(own, 20.0))
    load.begin()
    proc.now_s += span_s
    proc.write({c: 50 + s for c, s in busy.items()}, {p: 20 + s for p, s in own.items()})
    load.end()
    return load.foreign()


def test_busy_time_of_its_cores_that_is_not_its_own_is_foreign(proc: Proc) -> None:
    workers = {0: _worker(7, 0, 1), 1: _worker(8, 2)}
    found = _over(proc, workers, {0: 10, 1: 8, 2: 9, 3: 10}, {7: 14, 8: 9})
    assert found[0].value == pytest.approx(0.2)  # 4 s of 2 cores x 10 s
    assert found[1].value == pytest.approx(0.0)


def test_rounding_below_zero_is_no_load(proc: Proc) -> None:
    assert _over(proc, {0: _worker(7, 0)}, {0: 9.98}, {7: 10})[0].value == 0.0


def test_workers_in_turns_on_one_set_of_cores_are_no_strangers(proc: Proc) -> None:
    workers = {0: _worker(7, 0, 1), 1: _worker(8, 0, 1)}
    found = _over(proc, workers, {0: 10, 1: 10}, {7: 9, 8: 10})
    assert found[0].value == found[1].value == pytest.approx(0.05)


@pytest.mark.parametrize(
    ("workers", "own", "span_s", "reason"),
    [
        ({0: _worker(7, 0), 1: _worker(8, 0, 1)}, {7: 1, 8: 1}, 10, "share some of their cores"),
        ({0: _worker(7, 5)}, {7: 1}, 10, "does not list"),
        ({0: _worker(9, 0)}, {}, 10, "process 9 is not readable"),
        ({0: _worker(7, 0)}, {7: 0.1}, 0.1, "too short"),
    ],
)
def test_what_is_not_known_is_null_with_the_reason(
    proc: Proc, workers: dict[int, HostWorker], own: dict[int, float], span_s: float, reason: str
) -> None:
    found = _over(proc, workers, {0: 5, 1: 5}, own, span_s)[0]
    assert found.value is None
    assert reason in (found.reason or "")


def test_without_proc_stat_or_without_an_end_there_is_a_reason(proc: Proc) -> None:
    load = HostLoad({0: _worker(7, 0)}, proc.folder)
    load.begin()
    load.end()
    assert "/proc/stat is not readable" in (load.foreign()[0].reason or "")
    proc.write({0: 1}, {7: 1})
    load = HostLoad({0: _worker(7, 0)}, proc.folder)
    load.begin()
    assert load.foreign()[0].value is None


@pytest.mark.skipif(not Path("/proc/stat").exists(), reason="no /proc")
def test_a_real_stranger_on_the_same_core_is_seen() -> None:
    core = max(os.sched_getaffinity(0))
    code = f"import os\nos.sched_setaffinity(0, [{core}])\nprint(flush=True)\nwhile True: pass"
    processes = [
        subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) for _ in range(2)
    ]
    try:
        for process in processes:
            assert process.stdout is not None
            process.stdout.readline()
        load = HostLoad({0: _worker(processes[0].pid, core)})
        load.begin()
        time.sleep(1.5)
        load.end()
    finally:
        for process in processes:
            process.kill()
            process.communicate()
    share = load.foreign()[0].value
    assert share is not None
    assert share > 0.25  # half, if nobody else is on the core
