"""The worker processes of one run, seen from the launcher."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from wattslice.train.protocol import Command, Jobs, LineReader, WorkerJob

_THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
# Of this control group, or (where that is the host's root, which has no such file) of the host.
_OOM_COUNTERS = (Path("/sys/fs/cgroup/memory.events"), Path("/proc/vmstat"))


class WorkerFailedError(Exception):
    """A worker ended or reported a failure before its time."""

    def __init__(self, slice_index: int, outcome: str, reason: str) -> None:
        super().__init__(f"slice {slice_index}: {outcome}: {reason}")
        self.slice_index = slice_index
        self.outcome = outcome
        self.reason = reason


def _oom_kills() -> int | None:
    """How often the kernel has killed a process for want of memory; None where it does not say."""
    for counter in _OOM_COUNTERS:
        with contextlib.suppress(OSError, ValueError):
            for line in counter.read_text().splitlines():
                if line.startswith("oom_kill "):
                    return int(line.split()[1])
    return None


class WorkerProcess:
    """One worker: its process, its two pipes, and what it has said so far."""

    def __init__(self, job: WorkerJob, env: Mapping[str, str]) -> None:
        self.job = job
        self.said: dict[str, dict[str, Any]] = {}
        reading, writing = os.pipe()
        threads = str(job.threads)
        environment = {
            **os.environ,
            # Fixed per slice: Snakemake sets these from the rule's threads.
            **dict.fromkeys(_THREAD_VARIABLES, threads),
            "HF_HUB_OFFLINE": "1",
            "TOKENIZERS_PARALLELISM": "false",
            **env,
            "WATTSLICE_WORKER_FD": str(writing),
        }
        try:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "wattslice.train.worker"],
                stdin=subprocess.PIPE,
                stdout=sys.stderr,  # the rule's log
                env=environment,
                pass_fds=(writing,),
            )
        finally:
            os.close(writing)
        self.reader = LineReader(reading)
        self._write(job.model_dump_json())

    def _write(self, line: str) -> None:
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(line.encode() + b"\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # it has ended: its exit is reported where messages are awaited

    def command(self, command: Command) -> None:
        self._write(command)

    def end(self) -> None:
        """End the process; what it has written can still be read."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def kill(self) -> None:
        self.end()
        os.close(self.reader.descriptor)


class WorkerGroup:
    """All workers of a run, moved from phase to phase together.

    A worker that fails, dies or hangs is lost: it is ended, and the others go on without it.
    """

    def __init__(self, jobs: Jobs) -> None:
        self._oom_kills = _oom_kills()
        self._selector = selectors.DefaultSelector()
        self.workers: list[WorkerProcess] = []
        self.losses: list[WorkerFailedError] = []  # in the order in which they were noticed
        try:
            for job, env in jobs:
                worker = WorkerProcess(job, env)
                self.workers.append(worker)
                self._selector.register(worker.reader.descriptor, selectors.EVENT_READ, worker)
        except BaseException:
            self.close()
            raise

    @property
    def survivors(self) -> list[WorkerProcess]:
        """Workers that are not lost."""
        return [worker for worker in self.workers if "failed" not in worker.said]

    def command(self, command: Command) -> None:
        for worker in self.survivors:
            worker.command(command)

    def all_said(self, message: str) -> bool:
        """Whether every survivor has said a message."""
        return all(message in worker.said for worker in self.survivors)

    def wait(self, message: str, timeout_s: float, phase: str) -> None:
        """Wait until every survivor has said a message; who is late (time in s) is lost.

        Raises WorkerFailedError, the first one, when no worker is left.
        """
        deadline = time.monotonic() + timeout_s
        while not self.all_said(message):
            left = deadline - time.monotonic()
            if left > 0:
                self.listen(left)
                continue
            late = [worker for worker in self.survivors if message not in worker.said]
            for worker in late:
                why = f"no {message!r} within {timeout_s:g} s ({phase})"
                self._lose(worker, "error:timeout", why)
            self._check()

    def listen(self, timeout_s: float) -> None:
        """Take in what workers say for at most this long; returns after the first news.

        Raises WorkerFailedError, the first one, when no worker is left.
        """
        for key, _ in self._selector.select(max(timeout_s, 0.0)):
            worker: WorkerProcess = key.data
            failure: dict[str, Any] | None = None
            for line in worker.reader.lines():
                message = json.loads(line)
                name = message.pop("message")
                if name == "failed":
                    failure = message
                else:
                    worker.said[name] = message
            if failure is not None:
                self._lose(worker, failure["outcome"], failure["reason"])
            elif worker.reader.closed:
                if "done" in worker.said:
                    self._selector.unregister(worker.reader.descriptor)
                else:
                    self._lose(worker, *self._ending(worker))
        self._check()

    def _check(self) -> None:
        if not self.survivors:
            raise self.losses[0]

    def _lose(self, worker: WorkerProcess, outcome: str, reason: str) -> None:
        """Go on without a worker. It is ended, so that it holds no part of the board."""
        worker.said["failed"] = {"outcome": outcome, "reason": reason}
        self.losses.append(WorkerFailedError(worker.job.slice_index, outcome, reason))
        self._selector.unregister(worker.reader.descriptor)
        worker.end()

    def _ending(self, worker: WorkerProcess) -> tuple[str, str]:
        """Outcome and reason of a worker that ended without a word."""
        code = worker.process.wait()
        if code == -signal.SIGKILL:
            now = _oom_kills()
            if now is not None and self._oom_kills is not None and now > self._oom_kills:
                self._oom_kills = now  # one kill explains one worker
                return "oom", "the kernel killed it for want of memory"
            return "error:killed", "the worker was killed with SIGKILL"
        if code < 0:
            return "error:killed", f"the worker died of {signal.Signals(-code).name}"
        return "error:ended", f"the worker ended with exit code {code}"

    def close(self) -> None:
        """End every worker that is still there."""
        for worker in self.workers:
            worker.kill()
        self._selector.close()
