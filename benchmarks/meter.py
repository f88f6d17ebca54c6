"""What measuring costs, and how right it is: our meter beside five other tools, in one run.

    python benchmarks/meter.py --peers VENV/bin/python [--out docs/meter-benchmark.md]

All measure the same simulated board (power changes every 0.37 s; the counter ticks every 100 ms),
around a sleep. VENV is a throw-away virtual environment, never this project's own:

    python -m venv VENV
    VENV/bin/pip install codecarbon zeus perun 'jpwr[pynvml]' carbontracker

CPU time is that of the process and its descendants within the window, from 2 s after its start on,
so that imports and start-up do not count; these are in start and stop. Regularity comes from
separate runs in which every NVML reading notes its time. Wall-clock slow-down of a workload is not
compared: it differs more from run to run on a shared machine than any of the tools could cause.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import platform
import resource
import statistics
import struct
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

BOARD = "a100-sxm4-80gb"
# Steps like a training's, 0.37 s at high power and 0.37 s at low.
LOW_W, HIGH_W, PERIOD_S = 100.0, 380.0, 0.74
# Lengths of the windows, s. No multiples of the counter's 100 ms, for then even a difference of
# two readings taken anywhere would be right.
WINDOWS_S = (6.03, 8.08, 10.05)
# CPU time is counted from this long after the start on, when all is imported and running.
SETTLE_S = 2.0
KWH_J = 3.6e6
ROOT = Path(__file__).resolve().parents[1]
# Around the table in the page.
BEGIN, END = "<!-- table -->", "<!-- end of table -->"


# -- the tools: each is run by a child process as `--child NAME`, in its own environment ---------


def _cpu_s(process: int | None = None) -> float:
    """CPU time of a process (this one by default) with all its living descendants, s.

    From the kernel's run times in ns; clock ticks of 10 ms would be too coarse.
    """
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                children.setdefault(parent, []).append(int(entry.name))
    total_s, todo = 0.0, [process or os.getpid()]
    if process is None:
        # Of this process by the kernel's sum, which has the threads that have ended too, without
        # the thread that does this here and else sleeps.
        own = resource.getrusage(resource.RUSAGE_SELF)
        total_s += own.ru_utime + own.ru_stime - time.thread_time()
    while todo:
        pid = todo.pop()
        todo += children.get(pid, [])
        if pid == os.getpid():
            continue
        for task in Path(f"/proc/{pid}/task").glob("*/schedstat"):
            with contextlib.suppress(OSError):
                total_s += int(task.read_text().split()[0]) * 1e-9
    return total_s


@dataclass
class Measured:
    """What a child reports; times CLOCK_MONOTONIC, s."""

    start_s: float = 0.0  # time that starting took
    stop_s: float = 0.0
    window: tuple[float, float] = (0.0, 0.0)  # what the tool was asked to measure
    cpu_s: float = 0.0  # in the window
    energy_j: float | None = None
    more: dict[str, Any] = field(default_factory=dict)


def _around(
    seconds: float, start: Callable[[], Any], stop: Callable[[Any], float | None]
) -> Measured:
    """Start a tool, sleep, stop it."""
    before = time.monotonic()
    state = start()
    opened = time.monotonic()
    time.sleep(SETTLE_S)
    cpu_s = -_cpu_s()
    time.sleep(seconds - SETTLE_S)
    cpu_s += _cpu_s()
    closed = time.monotonic()
    joules = stop(state)
    after = time.monotonic()
    return Measured(
        start_s=opened - before,
        stop_s=after - closed,
        window=(opened, closed),
        cpu_s=cpu_s,
        energy_j=joules,
    )


def ours(seconds: float) -> Measured:
    from wattslice.boards.nvidia.board import discover
    from wattslice.measure.energy import energy
    from wattslice.measure.meter import Meter

    (board,) = discover()
    meter = Meter(board.power_source(), 10)

    def start() -> None:
        meter.start()
        meter.mark("start")

    def stop(_: None) -> None:
        meter.mark("end")
        meter.stop()

    found = _around(seconds, start, stop)
    result = energy(meter.samples(), *found.window, meter.record(), simulated=True)
    found.energy_j = result.gross_j
    found.more = {"thread_cpu_s": meter.record().cpu_s, "uncertainty_j": result.uncertainty_j}
    return found


# What is read besides power and counter, with the arguments.
_SLOW_CALLS = (
    ("nvmlDeviceGetTemperature", 0),
    ("nvmlDeviceGetClockInfo", 1),
    ("nvmlDeviceGetClockInfo", 2),
    ("nvmlDeviceGetUtilizationRates",),
    ("nvmlDeviceGetCurrentClocksEventReasons",),
)


def _plain(seconds: float, *, by_fields: bool, slow_period_s: float | None = None) -> Measured:
    """The least that sampling can cost: a thread, a loop, a sleep, and the same library.

    Power and counter by two calls, or as fields by one; the slow values each `slow_period_s`.
    """
    import pynvml

    pynvml.nvmlInit()
    device = pynvml.nvmlDeviceGetHandleByIndex(0)
    slow_calls = [(getattr(pynvml, name), arguments) for name, *arguments in _SLOW_CALLS]
    samples: list[tuple[float, float, float]] = []
    slow_due_s = 0.0

    def read() -> None:
        nonlocal slow_due_s
        now = time.monotonic()
        if by_fields:
            values = pynvml.nvmlDeviceGetFieldValues(device, [(186, 0), (83, 0)])
            watts, joules = (value.value.ullVal / 1e3 for value in values)
        else:
            watts = pynvml.nvmlDeviceGetPowerUsage(device) / 1e3
            joules = pynvml.nvmlDeviceGetTotalEnergyConsumption(device) / 1e3
        if slow_period_s is not None and now >= slow_due_s:
            slow_due_s = now + slow_period_s
            for call, arguments in slow_calls:
                call(device, *arguments)
        samples.append((now, watts, joules))

    def start() -> Any:
        ended = threading.Event()

        def loop() -> None:
            while not ended.is_set():
                read()
                time.sleep(0.1)

        thread = threading.Thread(target=loop)
        thread.start()
        return ended, thread

    def stop(state: Any) -> float:
        ended, thread = state
        ended.set()
        thread.join()
        return samples[-1][2] - samples[0][2]

    return _around(seconds, start, stop)


def plain(seconds: float) -> Measured:
    return _plain(seconds, by_fields=False)


def plain_calls(seconds: float) -> Measured:
    """The same values as ours as often as ours, where the plain call gives instant power."""
    return _plain(seconds, by_fields=False, slow_period_s=0.95)


def plain_fields(seconds: float) -> Measured:
    """The same calls as ours, as often as ours: slow ones once a second."""
    return _plain(seconds, by_fields=True, slow_period_s=0.95)


def plain_often(seconds: float) -> Measured:
    """All values with every sample, as a thread has it that does not know what is slow."""
    return _plain(seconds, by_fields=True, slow_period_s=0.0)


def zeus(seconds: float) -> Measured:
    def start() -> Any:
        from zeus.monitor import ZeusMonitor  # type: ignore[import-not-found,unused-ignore]

        monitor = ZeusMonitor(gpu_indices=[0])
        monitor.begin_window("w", sync_execution=False)
        return monitor

    return _around(
        seconds,
        start,
        lambda monitor: float(
            sum(monitor.end_window("w", sync_execution=False).gpu_energy.values())
        ),
    )


def codecarbon(seconds: float) -> Measured:
    def start() -> Any:
        from codecarbon import (  # type: ignore[import-not-found,unused-ignore]
            OfflineEmissionsTracker,
        )

        tracker = OfflineEmissionsTracker(
            country_iso_code="DEU", measure_power_secs=1, save_to_file=False, log_level="error"
        )
        tracker.start()
        return tracker

    def stop(tracker: Any) -> float:
        tracker.stop()
        return float(tracker.final_emissions_data.gpu_energy) * KWH_J

    return _around(seconds, start, stop)


def jpwr(seconds: float) -> Measured:
    def start() -> Any:
        from jpwr.ctxmgr import get_power  # type: ignore[import-not-found,unused-ignore]
        from jpwr.gpu.pynvml import power  # type: ignore[import-not-found,unused-ignore]

        manager = get_power([power()], 100, {"ignore_measure_errors": False})
        manager.__enter__()
        return manager

    def stop(manager: Any) -> float:
        manager.__exit__(None, None, None)
        frame, _ = manager.energy()  # Wh by column
        return float(frame.sum()) * 3600.0

    return _around(seconds, start, stop)


def carbontracker(seconds: float) -> Measured:
    def start() -> Any:
        from carbontracker.tracker import (  # type: ignore[import-not-found,unused-ignore]
            CarbonTracker,
        )

        tracker = CarbonTracker(
            epochs=1, components="gpu", update_interval=1, verbose=0, ignore_errors=True
        )
        thread = tracker.tracker  # it is taken away at the end of the last epoch
        tracker.epoch_start()
        return tracker, thread

    def stop(state: Any) -> float:
        from carbontracker import constants  # type: ignore[import-not-found,unused-ignore]

        tracker, thread = state
        tracker.epoch_end()
        # Its figures include the overhead of a data centre, which is no part of a measurement.
        energy_kwh = float(sum(thread.total_energy_per_epoch()))
        return energy_kwh / float(constants.PUE_2023) * KWH_J

    return _around(seconds, start, stop)


def perun(seconds: float) -> Measured:
    """perun measures a script; start and stop are the time of its command without the script."""
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "job.py"
        script.write_text(
            "import json, time\n"
            f"open({folder + '/begun'!r}, 'w').close()\n"
            "a = time.monotonic()\n"
            f"time.sleep({seconds})\n"
            f"json.dump([a, time.monotonic()], open({folder + '/window.json'!r}, 'w'))\n"
        )
        before = time.monotonic()
        command = subprocess.Popen(
            [
                str(Path(sys.executable).with_name("perun")),
                *("monitor", "--sampling-period", "0.1", "--format", "json"),
                *("--data_out", folder, str(script)),
            ],
            cwd=folder,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        while not (Path(folder) / "begun").exists() and command.poll() is None:
            time.sleep(0.01)
        time.sleep(SETTLE_S)
        cpu_s = -_cpu_s(command.pid)
        time.sleep(seconds - SETTLE_S - 0.1)
        cpu_s += _cpu_s(command.pid)
        command.wait()
        after = time.monotonic()
        window = json.loads((Path(folder) / "window.json").read_text())
        (result,) = (p for p in Path(folder).rglob("*.json") if p.name != "window.json")
        metrics = json.loads(result.read_text())["metrics"]
        return Measured(
            start_s=window[0] - before,
            stop_s=after - window[1],
            window=tuple(window),
            cpu_s=cpu_s,
            energy_j=metrics["gpu_energy"]["sum"],
        )


# name -> (function, label, whether it lives in the peers' environment)
TOOLS: dict[str, tuple[Callable[[float], Measured], str, bool]] = {
    "plain": (plain, "plain thread, power and counter, 10 Hz", False),
    "plain-calls": (plain_calls, "plain thread, the same values, by single calls", False),
    "plain-fields": (plain_fields, "plain thread, the same values, by the same calls", False),
    "plain-often": (plain_often, "plain thread, all values at 10 Hz", False),
    "ours": (ours, "wattslice, 10 Hz", False),
    "zeus": (zeus, "Zeus, window of the counter", True),
    "codecarbon": (codecarbon, "CodeCarbon, 1 s", True),
    "perun": (perun, "perun command, 0.1 s", True),
    "jpwr": (jpwr, "jpwr, 0.1 s", True),
    "carbontracker": (carbontracker, "carbontracker, 1 s", True),
}


def child(name: str, seconds: float) -> None:
    stdout = os.dup(1)
    os.dup2(2, 1)  # tools write to stdout as they like
    result = TOOLS[name][0](seconds)
    os.write(stdout, json.dumps(vars(result)).encode() + b"\n")
    os._exit(0)  # some leave threads behind that never end


# -- the benchmark ------------------------------------------------------------------------------

# Put before every child's path for the runs that note the time of each reading. The library's own
# functions are wrapped, so that nothing which goes through them is missed.
_NOTE_READINGS = """
import os, struct, time
try:
    import pynvml
except ImportError:
    pynvml = None
if pynvml is not None:
    _file = os.open(os.environ["READINGS_FILE"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    _load = pynvml._LoadNvmlLibrary
    def _noting(function):
        def call(*arguments):
            os.write(_file, struct.pack("d", time.monotonic()))
            return function(*arguments)
        return call
    def _load_and_wrap():
        fresh = pynvml.nvmlLib is None
        _load()
        if fresh:
            name = os.environ["READING"]
            setattr(pynvml.nvmlLib, name, _noting(getattr(pynvml.nvmlLib, name)))
    pynvml._LoadNvmlLibrary = _load_and_wrap
"""
# The call that a tool's regular sample is made of.
_READINGS = {
    "ours": "nvmlDeviceGetFieldValues",
    "plain-fields": "nvmlDeviceGetFieldValues",
    "plain-often": "nvmlDeviceGetFieldValues",
    "zeus": "nvmlDeviceGetTotalEnergyConsumption",
    "codecarbon": "nvmlDeviceGetTotalEnergyConsumption",
}


@dataclass
class Row:
    """One tool's figures: medians over the repeats."""

    label: str
    start_s: float
    stop_s: float
    cpu_ms_per_s: float
    errors: list[float]
    gaps: str


def _run_child(
    name: str, seconds: float, peers: Path, environment: dict[str, str]
) -> dict[str, Any]:
    python = str(peers) if TOOLS[name][2] else sys.executable
    environment = dict(environment)
    environment.pop("PYTHONPATH", None)
    paths = [environment.pop("SITE", "")]
    if not TOOLS[name][2]:
        paths.append(str(ROOT / "src"))
    environment["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
    done = subprocess.run(
        [python, str(Path(__file__).resolve()), "--child", name, "--seconds", str(seconds)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    if not done.stdout.strip():
        raise RuntimeError(f"{name} gave nothing:\n{done.stderr[-2000:]}")
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def _gaps(times: list[float], window: tuple[float, float]) -> str:
    """Percentiles of the distances of a tool's readings, without the bursts at its start."""
    margin_s = 1.6
    inside = sorted(t for t in times if window[0] + margin_s < t < window[1] - 0.1)
    if len(inside) < 5:
        return "-"
    gaps = sorted(b - a for a, b in itertools.pairwise(inside))
    low, middle, high = (gaps[round(q * (len(gaps) - 1))] * 1e3 for q in (0.02, 0.5, 0.98))
    return f"{low:.0f} / {middle:.0f} / {high:.0f}"


def benchmark(peers: Path, repeats: int) -> list[Row]:
    sys.path.insert(0, str(ROOT / "src"))
    from wattslice.simulation.session import simulation

    rows = []
    with simulation([BOARD]) as boards, tempfile.TemporaryDirectory() as folder:
        control = boards.control()
        control.set_waveform(0, "square", low_w=LOW_W, high_w=HIGH_W, period_s=PERIOD_S)
        environment = boards.environment()
        environment["WATTSLICE_LEASE_DIR"] = folder
        # Some tools believe in a GPU only where this command is.
        smi = Path(folder) / "nvidia-smi"
        smi.write_text("#!/bin/sh\nexit 0\n")
        smi.chmod(0o755)
        environment["PATH"] = f"{folder}{os.pathsep}{environment['PATH']}"
        (Path(folder) / "sitecustomize.py").write_text(textwrap.dedent(_NOTE_READINGS))
        runs: dict[str, list[dict[str, Any]]] = {name: [] for name in TOOLS}
        # Interleaved, so that a busy minute of the machine does not hit one tool alone.
        for _ in range(repeats):
            for name in TOOLS:
                for seconds in WINDOWS_S:
                    run = _run_child(name, seconds, peers, environment)
                    run["seconds"] = seconds
                    run["true_j"] = control.true_energy_j(0, *run["window"])
                    runs[name].append(run)
                    print(f"{name} {seconds:g} s: {run}", file=sys.stderr, flush=True)
        for name, (_, label, _) in TOOLS.items():
            file = Path(folder) / f"{name}.readings"
            noting = environment | {
                "SITE": folder,
                "READINGS_FILE": str(file),
                "READING": _READINGS.get(name, "nvmlDeviceGetPowerUsage"),
            }
            run = _run_child(name, WINDOWS_S[-1], peers, noting)
            data = file.read_bytes() if file.exists() else b""
            times = [value for (value,) in struct.iter_unpack("d", data)]
            rows.append(_row(label, runs[name], _gaps(times, tuple(run["window"]))))
    return rows


def _row(label: str, runs: list[dict[str, Any]], gaps: str) -> Row:
    return Row(
        label=label,
        start_s=statistics.median(r["start_s"] for r in runs),
        stop_s=statistics.median(r["stop_s"] for r in runs),
        cpu_ms_per_s=statistics.median(r["cpu_s"] / (r["seconds"] - SETTLE_S) for r in runs) * 1e3,
        errors=[
            abs(r["energy_j"] - r["true_j"]) / r["true_j"]
            for r in runs
            if r["energy_j"] is not None
        ],
        gaps=gaps,
    )


def _machine() -> str:
    from wattslice.boards.cpu.board import cpu_name

    load = os.getloadavg()[1]
    return (
        f"{cpu_name()}, {os.cpu_count()} cores, {platform.system()} {platform.release()}, "
        f"Python {platform.python_version()}; load over 5 min {load:.1f}"
    )


def _versions(peers: Path) -> str:
    code = (
        "import importlib.metadata as m; print(', '.join(f'{n} {m.version(n)}' for n in "
        "('codecarbon', 'zeus', 'perun', 'jpwr', 'carbontracker', 'nvidia-ml-py')))"
    )
    done = subprocess.run([str(peers), "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def table(rows: list[Row]) -> str:
    lines = [
        "| tool | CPU ms per s | start s | stop s | error, median | error, largest "
        "| gaps of readings, ms: 2 % / median / 98 % |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        errors = (
            f"{statistics.median(row.errors):.3%} | {max(row.errors):.3%}"
            if row.errors
            else "none given | none given"
        )
        lines.append(
            f"| {row.label} | {row.cpu_ms_per_s:.2f} | {row.start_s:.2f} | {row.stop_s:.2f} "
            f"| {errors} | {row.gaps} |"
        )
    return "\n".join(lines)


def cost(rows: list[Row]) -> str:
    """CPU time of ours over that of each plain thread."""
    by_label = {row.label: row.cpu_ms_per_s for row in rows}
    own = by_label[TOOLS["ours"][1]]
    parts = [
        f"{own / by_label[label]:.2f} x {label!r}"
        for name, (_, label, _) in TOOLS.items()
        if name.startswith("plain")
    ]
    return f"CPU time of wattslice: {', '.join(parts)}."


def _has_table(page: Path) -> bool:
    """Asked first: the benchmark takes minutes."""
    content = page.read_text(encoding="utf-8") if page.is_file() else ""
    return f"{BEGIN}\n" in content and END in content.partition(BEGIN)[2]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peers", type=Path, help="python of the environment with the others")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", type=Path, help="Markdown file whose table is replaced")
    parser.add_argument("--child", choices=sorted(TOOLS), help=argparse.SUPPRESS)
    parser.add_argument("--seconds", type=float, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        child(arguments.child, arguments.seconds)
    if arguments.peers is None:
        parser.error("--peers is needed (see --help)")
    if arguments.out is not None and not _has_table(arguments.out):
        parser.error(f"--out {arguments.out}: needs a file with the lines {BEGIN!r} and {END!r}")
    rows = benchmark(arguments.peers, arguments.repeats)
    versions = _versions(arguments.peers)
    text = "\n\n".join(
        (f"Machine: {_machine()}.", f"Versions: {versions}.", table(rows), f"{cost(rows)}\n")
    )
    print(text)
    if arguments.out is not None:
        head, rest = arguments.out.read_text(encoding="utf-8").split(f"{BEGIN}\n", 1)
        tail = rest.split(END, 1)[1]
        arguments.out.write_text(f"{head}{BEGIN}\n{text}{END}{tail}", "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
