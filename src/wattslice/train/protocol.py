"""What launcher and workers say to each other.

The launcher writes a job (one JSON line) and then one-word commands to the worker's standard
input; the worker writes JSON lines to a pipe of its own. End of file on standard input means that
the launcher is gone.

    worker                     launcher
    ready   (model is built)
                               go        all are ready: train, nothing is measured yet
    warm    (step_s; steady or capped)
                               window    all are warm: the next step boundary opens the window
    opened  (t)
    enough  (min_steps done)
                               stop      all have enough: finish the step, report
    done    (result)
    failed  (outcome, reason)            at any time, instead of the next message

A worker that only tries a batch size says `ready` and then `done`, without a command.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from wattslice.config.models import Precision
from wattslice.records.base import Record
from wattslice.train.ddp import Rendezvous

Command = Literal["go", "window", "stop"]


class WorkerJob(Record):
    """What one worker has to do."""

    slice_index: int
    definition: dict[str, Any]  # the workload, see config.spec.Assignment
    workload: str
    precision: Precision
    seed: int
    device: Literal["cpu", "cuda"]
    device_uuid: str | None
    cores: tuple[int, ...]
    threads: int
    simulated_slice: str | None
    warmup: dict[str, Any]  # config.models.WarmupConfig
    min_steps: int
    parent_pid: int
    rendezvous: Rendezvous | None = None  # of a data-parallel job
    trial_steps: int = 0  # above 0: only see whether so many steps fit, and end with `done`


Jobs = Sequence[tuple[WorkerJob, Mapping[str, str]]]  # with the worker's environment variables


class LineReader:
    """Whole lines from a non-blocking file descriptor."""

    def __init__(self, descriptor: int) -> None:
        os.set_blocking(descriptor, False)
        self.descriptor = descriptor
        self.closed = False
        self._rest = b""

    def lines(self) -> Iterator[str]:
        """Lines that have arrived; sets `closed` at end of file."""
        while True:
            try:
                chunk = os.read(self.descriptor, 1 << 20)
            except BlockingIOError:
                break
            if not chunk:
                self.closed = True
                break
            self._rest += chunk
        *whole, self._rest = self._rest.split(b"\n")
        for line in whole:
            yield line.decode("utf-8")


def send(descriptor: int, message: str, **fields: Any) -> None:
    """Write one JSON line completely."""
    data = json.dumps({"message": message, **fields}).encode() + b"\n"
    while data:
        data = data[os.write(descriptor, data) :]
