"""The raw samples of a run as a Parquet file that explains itself.

One column per field of `Sample`, named like it (the unit is the end of the name); null means
"not had". The file's metadata holds the source's description and the meter's record as JSON under
the key `wattslice`, so that the file can be read without the run's other files.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wattslice.files import canonical_json, replacing
from wattslice.measure.meter import SAMPLE_FIELDS

if TYPE_CHECKING:
    import pyarrow as pa

    from wattslice.records.run import MeterRecord

METADATA_KEY = b"wattslice"
_TEXT = ("error",)
_INTEGERS = ("event_reasons",)


def write_power(
    path: Path, samples: Mapping[str, Sequence[Any]], record: MeterRecord | None = None
) -> None:
    """Write samples (columns, as from `Meter.samples`) in one piece; None becomes null."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.table(
        {name: pa.array(samples[name], type=_type(name)) for name in SAMPLE_FIELDS}
    ).replace_schema_metadata(
        {METADATA_KEY: canonical_json(record.model_dump(mode="json") if record else {}).encode()}
    )
    with replacing(path) as temporary:
        pq.write_table(table, temporary, compression="zstd")


def read_power(path: Path) -> dict[str, list[Any]]:
    """The columns of a file from `write_power`; null comes back as None.

    Raises ValueError naming the columns where the file is not one of ours.
    """
    import pyarrow.parquet as pq

    # ParquetFile, as read_table would take parts of our folder names for partition keys.
    with pq.ParquetFile(path) as file:
        missing = sorted(set(SAMPLE_FIELDS) - set(file.schema_arrow.names))
        if missing:
            raise ValueError(f"{path} is not a power trace: no column {', '.join(missing)}")
        table = file.read(columns=list(SAMPLE_FIELDS))
    return {name: table.column(name).to_pylist() for name in SAMPLE_FIELDS}


def read_meter(path: Path) -> MeterRecord | None:
    """The meter's record in a file from `write_power`, or None where it was written without."""
    import pyarrow.parquet as pq

    from wattslice.records.run import MeterRecord

    metadata = pq.read_schema(path).metadata or {}
    content = json.loads(metadata.get(METADATA_KEY, b"{}"))
    return MeterRecord.model_validate(content) if content else None


def _type(name: str) -> pa.DataType:
    import pyarrow as pa

    if name in _TEXT:
        return pa.string()
    return pa.int64() if name in _INTEGERS else pa.float64()
