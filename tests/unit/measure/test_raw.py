"""The raw samples' file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from unit.measure.traces import Sensor, constant, meter, read, sampling_times
from wattslice.measure.raw import read_meter, read_power, write_power


def _samples() -> dict[str, list[object]]:
    times = sampling_times(10.0, 11.0, np.random.default_rng(0))
    samples = read(Sensor(constant(300.0)), times)
    samples["power_w"][3] = None
    samples["error"][3] = "power_w: NOT_SUPPORTED (3)"
    samples["event_reasons"] = [0x4] * len(times)
    return samples


def test_samples_come_back_as_they_were_with_null_for_what_was_not_had(tmp_path: Path) -> None:
    path = tmp_path / "run" / "power.parquet"
    write_power(path, _samples(), meter())
    assert read_power(path) == _samples()
    assert read_meter(path) == meter()
    assert [entry.name for entry in path.parent.iterdir()] == ["power.parquet"]


def test_units_are_in_the_names_and_the_source_is_in_the_metadata(tmp_path: Path) -> None:
    path = tmp_path / "power.parquet"
    write_power(path, _samples(), meter())
    schema = pq.read_schema(path)
    assert schema.field("energy_j").type == pa.float64()
    assert schema.field("event_reasons").type == pa.int64()
    assert b"update_period_s" in schema.metadata[b"wattslice"]


def test_no_samples_are_a_file_too(tmp_path: Path) -> None:
    path = tmp_path / "power.parquet"
    write_power(path, {name: [] for name in _samples()})
    assert read_power(path)["power_w"] == []
    assert read_meter(path) is None


def test_another_parquet_file_is_refused_by_name_of_what_it_lacks(tmp_path: Path) -> None:
    path = tmp_path / "steps.parquet"
    pq.write_table(pa.table({"t_s": [1.0]}), path)
    with pytest.raises(ValueError, match="not a power trace: no column call_s, energy_j"):
        read_power(path)
