"""Clients that were not written here see the same boards, instances and power."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pynvml as nv

from unit.simulation.simulated import client, device, environment, make, mig_devices


def prepare():
    from wattslice.simulation.control import Control

    dev = device()
    make(dev, "3g.40gb", 4)
    make(dev, "2g.20gb", 0)
    make(dev, "1g.10gb", 2)
    uuid = nv.nvmlDeviceGetUUID(mig_devices(dev)[1])
    Control.from_environment().set_process(uuid, pid=1, activity=1.0, memory_mib=2048, fake=True)
    return nv.nvmlDeviceGetUUID(dev)


def test_gpustat_sees_boards_power_and_processes(simulate) -> None:
    sim = simulate("a100-sxm4-80gb", "h200-sxm-141gb", mig=True)
    uuid = client(sim, prepare)
    sim.control().set_waveform(1, "constant", low_w=432)
    done = subprocess.run(
        [sys.executable, "-c", "import time; time.sleep(1.2); import gpustat; "
         "gpustat.new_query().print_json()"],
        env=environment(sim), capture_output=True, text=True, check=True,
    )  # fmt: skip
    one, two = json.loads(done.stdout)["gpus"]
    assert (one["uuid"], one["name"]) == (uuid, "NVIDIA A100-SXM4-80GB")
    assert one["memory.total"] == 81920
    assert one["memory.used"] == 2048
    assert one["enforced.power.limit"] == 400
    assert one["utilization.gpu"] is None  # not supported with MIG on
    assert [p["pid"] for p in one["processes"]] == [1]
    assert (two["name"], two["power.draw"]) == ("NVIDIA H200", 432)


def test_nvitop_sees_instances(simulate) -> None:
    sim = simulate("a100-sxm4-80gb", mig=True)
    client(sim, prepare)
    done = subprocess.run(
        [sys.executable, "-m", "nvitop", "--once", "--ascii"],
        env=environment(sim), capture_output=True, text=True, check=True,
    )  # fmt: skip
    rows = re.findall(r"0:(\d)\s+(\S+) @ GI/CI:\s*(\d+)/(\d+)\s*\|\s*(\S+) /\s+(\S+)", done.stdout)
    assert [row[:4] for row in rows] == [
        ("0", "3g.40gb", "2", "0"),
        ("1", "2g.20gb", "3", "0"),
        ("2", "1g.10gb", "9", "0"),
    ]
    assert rows[1][4] == "2048MiB"
    power = re.search(r"(\d+)W / 400W", done.stdout)
    assert power is not None
    assert 60 < int(power[1]) < 400
    assert "580.999.01" in done.stdout
    assert "undefined symbol" not in done.stderr
