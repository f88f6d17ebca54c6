"""A campaign's run records with their figures, checked against what the campaign asks for."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from pydantic import ValidationError

from wattslice.analysis.raw import read_run
from wattslice.config.spec import RunSpec
from wattslice.files import sha256_file
from wattslice.records.metrics import RunMetrics
from wattslice.records.run import RunRecord


class Expected(NamedTuple):
    """A run that the campaign asks for, and the digests that its record must have."""

    run_id: str
    spec_digest: str
    code_digest: str


class DigestMismatchError(ValueError):
    """A record on disk is not of the run that the campaign asks for."""


@dataclass(frozen=True, slots=True)
class CollectedRun:
    """A run's record with its figures."""

    record: RunRecord
    metrics: RunMetrics
    spec: RunSpec


def read_expected(path: Path) -> list[Expected]:
    """Read the runs of campaign.json, or a JSON list of {run_id, spec_digest, code_digest}."""
    content = json.loads(path.read_text(encoding="utf-8"))
    rows = content["runs"] if isinstance(content, dict) else content
    return [
        Expected(row["run_id"], row["spec_digest"], row["code_digest"])
        if isinstance(row, dict)
        else Expected(*row)
        for row in rows
    ]


def collect(campaign_dir: Path, expected: Sequence[Expected]) -> list[CollectedRun]:
    """Read the expected runs of results/<campaign>, in the order of their ids.

    Raises DigestMismatchError where a record was made of another spec or by other code, or its
    metrics.json of another run.json; RawFileError or FileNotFoundError where a file is missing.
    """
    runs = []
    for want in sorted(expected):
        run_dir = campaign_dir / "runs" / want.run_id
        record = read_run(run_dir)
        if record.run_id != want.run_id:
            raise DigestMismatchError(f"{run_dir}/run.json is the record of {record.run_id}")
        _check_digest(want.run_id, "spec digest", record.spec_digest, want.spec_digest)
        _check_digest(want.run_id, "code digest", record.code_digest, want.code_digest)
        spec = RunSpec.model_validate(record.spec)
        _check_digest(want.run_id, "spec in run.json", spec.digest(), record.spec_digest)
        metrics = _read_metrics(run_dir / "metrics.json")
        run_sha256 = sha256_file(run_dir / "run.json")
        if metrics.run_sha256 != run_sha256:
            raise DigestMismatchError(
                f"{want.run_id}: metrics.json was made of a run.json with sha256 "
                f"{metrics.run_sha256}, the one on disk has {run_sha256}; delete metrics.json so "
                "that it is made again"
            )
        runs.append(CollectedRun(record, metrics, spec))
    return runs


def _check_digest(run_id: str, which: str, found: str, wanted: str) -> None:
    if found == wanted:
        return
    raise DigestMismatchError(
        f"{run_id}: the {which} of the record is {found}, the campaign asks for {wanted}; the "
        f"record is of another version of the campaign: delete the folder runs/{run_id} to repeat "
        "the run, or check out the config and code that made it"
    )


def _read_metrics(path: Path) -> RunMetrics:
    try:
        return RunMetrics.model_validate_json(path.read_bytes())
    except FileNotFoundError as fault:
        raise FileNotFoundError(f"{path} is missing: make the run's metrics first") from fault
    except ValidationError as fault:
        raise ValueError(f"{path} is not a metrics record; delete it: {fault}") from fault
