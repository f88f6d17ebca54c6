"""The probe of real boards, on a simulated one: every reading is a value or an error code."""

from __future__ import annotations

import json

from nvidia_sim import A100, H100, on_simulator

from wattslice.boards.nvidia import probe


@on_simulator(A100)
def test_every_reading_has_a_value_or_a_code_on_an_a100(sim):
    _check_board("NVIDIA A100", average_code=3)


@on_simulator(H100)
def test_every_reading_has_a_value_or_a_code_on_an_h100(sim):
    _check_board("NVIDIA H100", average_code=None)


def _check_board(name, average_code):
    found = json.loads(json.dumps(probe.probe(), allow_nan=False))
    assert found["simulated"] is True
    (board,) = found["boards"]
    assert board["name"]["value"].startswith(name)
    for reading in (*board["fields"].values(), board["power_w"], board["memory"]):
        assert ("value" in reading) != ("error" in reading)
    assert board["fields"]["186/gpu"]["value"] > 0
    # GA100 has no one-second average (nvml.h, field 185).
    assert board["fields"]["185/gpu"].get("error") == average_code
    assert board["profiles"]["19"]["placements"]["value"] == [[start, 1] for start in range(7)]
    assert board["mig_devices"] == []
