"""One training process on one slice. Started by the launcher: see `wattslice.train.protocol`."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import traceback
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from wattslice.config.models import WarmupConfig
from wattslice.measure.steady import WarmupDetector
from wattslice.provenance import environment as environments
from wattslice.train.clock import CudaClock, HostClock, StepClock
from wattslice.train.ddp import Member
from wattslice.train.lifetime import die_with_parent
from wattslice.train.loop import StepLoop
from wattslice.train.protocol import LineReader, WorkerJob, send


class _StoppedError(Exception):
    """The launcher asked for the end, or is gone."""


class Worker:
    """The training loop with its phases: warm-up, waiting, window, end."""

    def __init__(self, job: WorkerJob, commands: LineReader, output: int) -> None:
        self._job = job
        self._commands = commands
        self._output = output
        self._member: Member | None = None
        self._rows: list[tuple[float, float, float]] = []  # start, end, wait for data; s

    # -- talking to the launcher ----------------------------------------------------------------

    def _command(self) -> str | None:
        """The launcher's next command; of a data-parallel job, once all its workers have it."""
        command = self._next_command()
        return command if self._member is None else self._member.agree(command)

    def _next_command(self) -> str | None:
        for line in self._commands.lines():
            return line
        if self._commands.closed:
            raise _StoppedError("the launcher is gone")
        return None

    def _wait_for(self, wanted: str) -> None:
        os.set_blocking(self._commands.descriptor, True)
        try:
            line = os.read(self._commands.descriptor, 4096).decode().strip()
        finally:
            os.set_blocking(self._commands.descriptor, False)
        if line != wanted:
            raise _StoppedError(f"expected {wanted!r}, got {line or 'end of file'!r}")

    # -- the work -------------------------------------------------------------------------------

    def run(self) -> None:
        import torch

        job = self._job
        torch.set_num_threads(job.threads)
        torch.set_num_interop_threads(1)
        from wattslice.workloads import precision as precisions
        from wattslice.workloads.registry import build

        reason = precisions.supported(job.precision, job.device)
        if reason is not None:
            send(self._output, "failed", outcome="unsupported_precision", reason=reason)
            return
        device = self._open_device(torch)
        if device is None:
            return
        rss_base_mib = _reset_peak_rss()
        member: Member | None = None
        if job.rendezvous is not None:
            member = self._member = Member(job.rendezvous, job.device)
        ranks = (0, 1) if member is None else (member.rank, member.world_size)
        workload = build(job.definition, job.seed, *ranks)
        context = precisions.apply(job.precision, job.device)
        loop = StepLoop(workload, context, device, member)
        clock: StepClock = HostClock() if job.device == "cpu" else CudaClock(torch)
        begin = clock.synchronise()
        breakdown = loop.profile_memory()
        middle = clock.synchronise()
        self._rows.append((begin, middle, loop.waited_s))
        phases = loop.profile_phases(clock)
        self._rows.append((middle, clock.synchronise(), loop.waited_s))
        if job.device == "cuda":  # the peak is that of the steps to come
            torch.cuda.reset_peak_memory_stats()
        send(
            self._output,
            "ready",
            facts={
                "device": self._device_name(torch),
                "threads": torch.get_num_threads(),
                "affinity": sorted(os.sched_getaffinity(0)),
                "variables": environments.variables(devices=True),
                "parameters": workload.parameters,
                "trainable_parameters": workload.trainable_parameters,
                "weights": workload.weights,
                "model": workload.description,
                "precision_flags": context.flags(),
                "batch_size": job.definition["batch_size"],
                "sample_unit": workload.sample_unit,
                "tokens_per_sample": workload.tokens_per_sample,
                "seed": job.seed,
                "data": workload.data.model_dump(mode="json"),
                "memory_breakdown": breakdown,
                "phases": phases,
                "data_parallel": None if member is None else member.description(),
            },
            torch=_torch_facts(torch),
        )
        if job.trial_steps:
            for _ in range(job.trial_steps):
                loop.step()
            clock.synchronise()
            send(self._output, "done", result=None)
            return
        self._wait_for("go")
        with self._activity():
            result = self._train(loop, clock)
        result["memory"] = {"rss_base_mib": rss_base_mib, **self._memory(torch)}
        send(self._output, "done", result=result)
        if member is not None:
            member.leave()

    def _open_device(self, torch: Any) -> Any:
        job = self._job
        if job.device == "cpu":
            return torch.device("cpu")
        if not torch.cuda.is_available():
            reason = "torch sees no CUDA device on the slice that the run was given"
            send(self._output, "failed", outcome="wrong_device", reason=reason)
            return None
        if torch.cuda.device_count() != 1:
            reason = f"torch sees {torch.cuda.device_count()} devices where the slice is one"
            send(self._output, "failed", outcome="wrong_device", reason=reason)
            return None
        torch.cuda.reset_peak_memory_stats()
        return torch.device("cuda", 0)

    def _device_name(self, torch: Any) -> str:
        if self._job.device == "cpu":
            return "cpu"
        properties = torch.cuda.get_device_properties(0)
        return f"cuda:0 {properties.name} {getattr(properties, 'uuid', self._job.device_uuid)}"

    @contextlib.contextmanager
    def _activity(self) -> Iterator[None]:
        """Tell a simulated board that this slice is busy; nothing on a real one."""
        if self._job.simulated_slice is None:
            yield
            return
        from wattslice.simulation.activity import set_activity

        set_activity(self._job.simulated_slice, 1.0)
        try:
            yield
        finally:
            set_activity(self._job.simulated_slice, 0.0)

    def _train(self, loop: StepLoop, clock: StepClock) -> dict[str, Any]:
        warmup = self._warm_up(loop, clock)
        opened = clock.synchronise()
        send(self._output, "opened", t_s=opened)
        waits: list[float] = []
        while True:  # the window: nothing here waits for the device but the step itself
            waits.append(loop.step())
            clock.mark()
            if len(waits) == self._job.min_steps:
                send(self._output, "enough")
            if self._command() == "stop":
                break
        ends = clock.collect()
        starts = [opened, *ends[:-1]]
        self._rows += zip(starts, ends, waits, strict=True)
        return {
            "warmup": warmup,
            "window_start_s": opened,
            "window_end_s": ends[-1],
            "start_s": [row[0] for row in self._rows],
            "end_s": [row[1] for row in self._rows],
            "data_s": [row[2] for row in self._rows],
            "loss": loop.losses(),
        }

    def _warm_up(self, loop: StepLoop, clock: StepClock) -> dict[str, Any]:
        """Steps that are synchronised one by one, until steady and until the others are, too."""
        detector = WarmupDetector(WarmupConfig.model_validate(self._job.warmup))
        warmup: dict[str, Any] = {}
        last = clock.synchronise()
        while True:
            waited = loop.step()
            now = clock.synchronise()
            self._rows.append((last, now, waited))
            if detector.add_step(now - last) and not warmup:
                warmup = asdict(detector.summary())
                send(self._output, "warm", step_s=detector.step_s)
            last = now
            command = self._command()
            if command == "window":
                return warmup
            if command == "stop":
                raise _StoppedError("stopped before the window")

    def _memory(self, torch: Any) -> dict[str, Any]:
        memory: dict[str, Any] = {"rss_mib": _peak_rss_mib()}
        if self._job.device == "cuda":
            memory["cuda_allocated_mib"] = torch.cuda.max_memory_allocated() / 2**20
            memory["cuda_reserved_mib"] = torch.cuda.max_memory_reserved() / 2**20
        return memory


def _status_mib(key: str) -> float:
    with open("/proc/self/status", encoding="ascii", errors="replace") as handle:  # noqa: PTH123
        for line in handle:
            if line.startswith(key):
                return int(line.split()[1]) / 1024
    raise OSError(f"{key} is not in /proc/self/status")


def _reset_peak_rss() -> float:
    """Restart the kernel's high-water mark; returns the resident size now, MiB."""
    with contextlib.suppress(OSError), open("/proc/self/clear_refs", "w") as handle:  # noqa: PTH123
        handle.write("5")
    return _status_mib("VmRSS")


def _peak_rss_mib() -> float:
    return _status_mib("VmHWM")


def _be_killed_first() -> None:
    """A try that takes the host's memory must not take the launcher with it (proc(5))."""
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as handle:  # noqa: PTH123
        handle.write("1000")


def _torch_facts(torch: Any) -> dict[str, Any]:
    """The build of torch, which the list of packages does not tell."""
    cudnn = torch.backends.cudnn.version() if torch.cuda.is_available() else None
    return {
        "version": torch.__version__,
        "cuda": torch.version.cuda,
        "cudnn": cudnn,
        "git": torch.version.git_version,
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
    }


def main() -> int:
    commands = LineReader(0)
    os.set_blocking(0, True)
    line = sys.stdin.readline()
    os.set_blocking(0, False)
    job = WorkerJob.model_validate_json(line)
    die_with_parent(job.parent_pid, signal.SIGKILL)
    if job.cores:
        os.sched_setaffinity(0, job.cores)
    if job.trial_steps:
        _be_killed_first()
    output = int(os.environ["WATTSLICE_WORKER_FD"])
    try:
        Worker(job, commands, output).run()
    except _StoppedError as stopped:
        print(f"stopped: {stopped}", file=sys.stderr)
        return 1
    except Exception as error:
        traceback.print_exc()
        from wattslice.workloads.outcomes import classify

        outcome, reason = classify(error)
        if outcome == "oom":
            reason = f"{reason} (batch_size {job.definition['batch_size']} requested)"
        send(output, "failed", outcome=outcome, reason=reason)
        return 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
