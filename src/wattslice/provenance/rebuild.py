"""Make what a campaign derived again, from its raw files, in another folder; and compare.

Nothing is read but the records, the raw samples and the idle powers; each step is the one that the
workflow runs.
"""

from __future__ import annotations

import csv
import json
import re
import zlib
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wattslice.analysis.aggregate import write_tables
from wattslice.analysis.claims import write_claims
from wattslice.analysis.frames import read_tables
from wattslice.analysis.metrics import write_metrics
from wattslice.analysis.ratios import write_analysis
from wattslice.config.load import load_campaign
from wattslice.config.models import CampaignConfig
from wattslice.files import write_json
from wattslice.provenance.manifest import VALIDATION, campaign_runs
from wattslice.provenance.snapshot import FOLDER as CODE
from wattslice.records.metrics import RunMetrics

if TYPE_CHECKING:
    import pandas as pd

# Other machines may round the last bits of a sum in another way.
TOLERANCE = 1e-9


class Rebuilt:
    """A campaign made again from raw files, step by step and only as far as it is asked for."""

    def __init__(self, campaign: Path, out: Path, runs: Iterable[str] | None = None) -> None:
        """Rebuild into the empty folder `out`; of the given runs only, or of all."""
        self.campaign = campaign
        self.out = out
        every = campaign_runs(campaign)
        self.runs = sorted(every if runs is None else runs)
        content = json.loads((campaign / "campaign.json").read_text(encoding="utf-8"))
        write_json(out / "campaign.json", content | {"runs": [every[run] for run in self.runs]})
        for name in ("inventory.json", "idle", "partitions", VALIDATION):
            if (campaign / name).exists():
                (out / name).parent.mkdir(exist_ok=True)
                (out / name).symlink_to((campaign / name).resolve())
        self._metrics: dict[str, RunMetrics] = {}

    @cached_property
    def config(self) -> CampaignConfig:
        content = json.loads((self.campaign / "campaign.json").read_text(encoding="utf-8"))
        return load_campaign(content["config"])

    def metrics(self, run_id: str) -> RunMetrics:
        """Figures of a run, from its raw files.

        Raises RawFileError where a raw file is missing or was changed, ValueError where the idle
        record does not belong to the run.
        """
        if run_id not in self._metrics:
            source, folder = self.campaign / "runs" / run_id, self.out / "runs" / run_id
            folder.mkdir(parents=True, exist_ok=True)
            for path in source.iterdir():
                if path.name != "metrics.json" and not (folder / path.name).exists():
                    (folder / path.name).symlink_to(path.resolve())
            layout = run_id.partition("/")[0]
            idle = self.campaign / "idle" / f"{layout}.json"
            self._metrics[run_id] = write_metrics(
                source, idle if idle.is_file() else None, folder / "metrics.json"
            )
        return self._metrics[run_id]

    @cached_property
    def tables(self) -> dict[str, pd.DataFrame]:
        """The tables of the runs; raises as `metrics`, and DigestMismatchError."""
        for run_id in self.runs:
            self.metrics(run_id)
        tables = self.out / "tables"
        write_tables(self.out, self.out / "campaign.json", tables, self.config.report.confidence)
        return read_tables(tables)

    @cached_property
    def analysis(self) -> Path:
        """Folder of ratios and claims; needs all runs."""
        assert self.tables
        tables, out = self.out / "tables", self.out / "analysis"
        write_analysis(tables, self.config, out)
        files = {name: self.campaign / CODE / name for name in self.config.claims}
        if all(path.is_file() for path in files.values()):
            write_claims(tables, self.config, files, out / "claims.json")
        return out

    def figures(self, formats: Sequence[str], names: Sequence[str] | None = None) -> Path:
        """Folder with figures; of all names unless some are given."""
        from wattslice.report.figure_list import NAMES
        from wattslice.report.figures import write_figures

        write_figures(
            self.out / "tables",
            self.analysis,
            self.out / "runs",
            self.out / "figures",
            formats,
            names=NAMES if names is None else names,
        )
        return self.out / "figures"

    @cached_property
    def report(self) -> Path:
        """Folder of the report: index.html, and tables/."""
        from wattslice.report.html import write_report

        assert self.analysis
        write_report(self.out, self.config, self.out / "report" / "index.html")
        return self.out / "report"


# --- comparing -----------------------------------------------------------------------------------


def same_file(path: Path, again: Path) -> str | None:
    """None where two files say the same, else how they differ.

    Tables may differ in how another version of a library stores equal values; a PDF in the order,
    the numbers and the names of its objects, which are not fixed.
    """
    if not again.is_file():
        return "is not made any more"
    one, two = path.read_bytes(), again.read_bytes()
    if one == two or (path.suffix == ".pdf" and _pdf_content(one) == _pdf_content(two)):
        return None
    compare = _COMPARE.get(path.suffix)
    return "is not what the raw files give" if compare is None else compare(path, again)


_PDF_STREAM = re.compile(rb"stream\r?\n(.*?)\r?\nendstream", re.DOTALL)
# What is numbered anew each time: references, objects, names of resources, lengths.
_PDF_NUMBERED = re.compile(rb"/Length \d+|\b\d+ \d+ (?=R\b|obj\b)|(?<=/)[A-Za-z]+\d+\b")


def _pdf_content(data: bytes) -> Counter[bytes]:
    """The lines of a PDF, streams unpacked, without their order and without numbering."""
    parts: list[bytes] = []

    def unpack(match: re.Match[bytes]) -> bytes:
        try:
            parts.append(zlib.decompress(match[1]))
        except zlib.error:
            parts.append(match[1])
        return b"stream"

    parts.append(_PDF_STREAM.sub(unpack, data).partition(b"\nxref")[0])
    return Counter(line for part in parts for line in _PDF_NUMBERED.sub(b"", part).splitlines())


def _differing_parquet(path: Path, again: Path) -> str | None:
    import pyarrow.parquet as pq

    one, two = (pq.read_table(p, partitioning=None) for p in (path, again))
    if one.schema.names != two.schema.names:
        return "has other columns than the raw files give"
    return differing_values(one.to_pylist(), two.to_pylist())


def _differing_csv(path: Path, again: Path) -> str | None:
    one, two = (
        [[_number(cell) for cell in row] for row in csv.reader(p.read_text("utf-8").splitlines())]
        for p in (path, again)
    )
    return differing_values(one, two)


def _differing_json(path: Path, again: Path) -> str | None:
    return differing_values(json.loads(path.read_bytes()), json.loads(again.read_bytes()))


_COMPARE = {".parquet": _differing_parquet, ".csv": _differing_csv, ".json": _differing_json}


def _number(cell: str) -> float | str:
    try:
        return float(cell)
    except ValueError:
        return cell


def differing_values(one: Any, two: Any, where: str = "") -> str | None:
    """None where two values of JSON are equal (numbers within TOLERANCE), else the first place."""
    place = where or "the value"
    if isinstance(one, dict) and isinstance(two, dict):
        if one.keys() != two.keys():
            return f"{place} has other keys: {', '.join(sorted(one.keys() ^ two.keys()))}"
        pairs = [(f"{where}.{key}" if where else str(key), one[key], two[key]) for key in one]
    elif isinstance(one, list) and isinstance(two, list):
        if len(one) != len(two):
            return f"{place} has {len(one)} entries, the raw files give {len(two)}"
        pairs = [(f"{where}[{i}]", a, b) for i, (a, b) in enumerate(zip(one, two, strict=True))]
    else:
        return None if equal(one, two) else f"{place} is {one!r}, the raw files give {two!r}"
    return next(
        (found for name, a, b in pairs if (found := differing_values(a, b, name)) is not None), None
    )


def equal(one: Any, two: Any) -> bool:
    """Whether two values are equal; numbers within TOLERANCE, a missing one only to itself."""
    if isinstance(one, bool) or isinstance(two, bool):
        return one is two
    if isinstance(one, int | float) and isinstance(two, int | float):
        return one == two or abs(one - two) <= TOLERANCE * max(abs(one), abs(two))
    return bool(one == two)
