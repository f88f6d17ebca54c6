"""The raw samples of a run as a Parquet file that explains itself.

One column per field of `Sample`, named like it (the unit is the end of the name); null means "not
had". A run on several boards has the rows of all in one file, and the column `board_uuid`. The
file's metadata holds the source's description and the meter's record as JSON under
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
_BOARD = "board_uuid"


def write_power(
    path: Path, samples: Mapping[str, Sequence[Any]], record: MeterRecord | None = None
) -> None:
    """Write samples (columns, as from `Meter.samples`) in one piece; None becomes null."""
    _write(path, _table(samples), record)


def write_powers(
    path: Path, boards: Mapping[str, Mapping[str, Sequence[Any]]], record: MeterRecord
) -> None:
    """As `write_power` for the samples of several boards, by UUID; `record` is that of them all."""
    import pyarrow as pa

    tables = [
        (table := _table(samples)).append_column(_BOARD, pa.repeat(uuid, table.num_rows))
        for uuid, samples in boards.items()
    ]
    _write(path, pa.concat_tables(tables), record)


def _table(samples: Mapping[str, Sequence[Any]]) -> pa.Table:
    import pyarrow as pa

    return pa.table({name: pa.array(samples[name], type=_type(name)) for name in SAMPLE_FIELDS})


def _write(path: Path, table: pa.Table, record: MeterRecord | None) -> None:
    import pyarrow.parquet as pq

    metadata = canonical_json(record.model_dump(mode="json") if record else {}).encode()
    table = table.replace_schema_metadata({METADATA_KEY: metadata})
    with replacing(path) as temporary:
        pq.write_table(table, temporary, compression="zstd")


def read_power(path: Path, board_uuid: str | None = None) -> dict[str, list[Any]]:
    """The columns of a file from `write_power`; null comes back as None.

    `board_uuid` picks the rows of one board from a file of several.
    Raises ValueError naming the columns where the file is not one of ours.
    """
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    # ParquetFile, as read_table would take parts of our folder names for partition keys.
    with pq.ParquetFile(path) as file:
        columns = [*SAMPLE_FIELDS, *([] if board_uuid is None else [_BOARD])]
        missing = sorted(set(columns) - set(file.schema_arrow.names))
        if missing:
            raise ValueError(f"{path} is not a power trace: no column {', '.join(missing)}")
        table = file.read(columns=columns)
    if board_uuid is not None:
        table = table.filter(pc.equal(table[_BOARD], board_uuid))
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
