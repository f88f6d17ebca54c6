"""The raw files of a run, read back only after their digests were checked."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq
from pydantic import ValidationError

from wattslice.files import sha256_file
from wattslice.records.run import RunRecord

FloatArray = npt.NDArray[np.float64]
STEP_COLUMNS = ("slice_index", "step", "start_s", "end_s", "data_s", "samples")
CLOCK_NOISE_S = 1e-6


class RawFileError(ValueError):
    """A raw file is missing, unreadable, or not the one that the record names."""


@dataclass(frozen=True, slots=True)
class Steps:
    """The steps of one worker in order of time; times in s on CLOCK_MONOTONIC."""

    begin_s: FloatArray
    end_s: FloatArray
    data_s: FloatArray
    samples: FloatArray

    def __len__(self) -> int:
        return int(self.end_s.size)


def read_run(run_dir: Path) -> RunRecord:
    """Read run.json. Raises RawFileError naming the file and the first fault in it."""
    path = run_dir / "run.json"
    try:
        return RunRecord.model_validate_json(path.read_bytes())
    except FileNotFoundError as fault:
        raise RawFileError(f"{path} is missing: the run has not been made") from fault
    except ValidationError as fault:
        first = fault.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "the file"
        raise RawFileError(f"{path} is not a run record: {where}: {first['msg']}") from fault


def verify_raw(run_dir: Path, record: RunRecord) -> None:
    """Check every raw file of a record against its sha256. Raises RawFileError."""
    for raw in record.raw:
        path = run_dir / raw.name
        if not path.is_file():
            raise RawFileError(
                f"{record.run_id}: raw file {path} is missing; copy it back, or repeat the run"
            )
        found = sha256_file(path)
        if found != raw.sha256:
            raise RawFileError(
                f"{record.run_id}: raw file {path} was changed after the run: sha256 is {found}, "
                f"run.json says {raw.sha256}; copy the original back, or repeat the run"
            )


def read_steps(path: Path) -> dict[int, Steps]:
    """Read steps.parquet, by index of the slice.

    Step ends are step boundaries: while a worker trains without a pause, a step starts where the
    one before it ended.
    """
    try:
        table = pq.read_table(path, columns=list(STEP_COLUMNS), partitioning=None)
    except (OSError, ValueError, KeyError) as fault:
        raise RawFileError(f"{path} cannot be read as steps: {fault}") from fault
    columns = {name: np.asarray(table[name].to_numpy(), np.float64) for name in STEP_COLUMNS}
    workers: dict[int, Steps] = {}
    for index in np.unique(columns["slice_index"]):
        own = np.flatnonzero(columns["slice_index"] == index)
        own = own[np.argsort(columns["end_s"][own], kind="stable")]
        begin, end = columns["start_s"][own], columns["end_s"][own]
        if not (end > begin).all():
            raise RawFileError(f"{path}: slice {int(index)} has a step that takes no time")
        if not (begin[1:] >= end[:-1] - CLOCK_NOISE_S).all():
            raise RawFileError(f"{path}: slice {int(index)} has steps that overlap")
        workers[int(index)] = Steps(begin, end, columns["data_s"][own], columns["samples"][own])
    return workers
