#!/usr/bin/env bash
# What to run once on a machine with an NVIDIA GPU: reads the boards, changes no setting, takes
# under five minutes. Keep the output folder: its files are fixtures for the reading code.
#
#   benchmarks/gpu_check.sh OUT
set -uo pipefail
cd "$(dirname "$0")/.."
out=${1:?a folder for the output}
mkdir -p "$out"
export PYTHONPATH=$PWD/src${PYTHONPATH:+:$PYTHONPATH}
python=${PYTHON:-python3}
failed=0
step() { # name, command …
  local name=$1
  shift
  echo "== $name"
  timeout 120 "$@" >"$out/$name.txt" 2>&1 || { failed=$((failed + 1)); echo "   exit code $?"; }
  tail -n 5 "$out/$name.txt"
}
step probe "$python" -m wattslice.boards.nvidia.probe --out "$out/probe.json"
step boards "$python" -m wattslice boards --json
step measure-idle "$python" -m wattslice measure --out "$out/idle.json" -- sleep 20
step measure-busy "$python" -m wattslice measure --out "$out/busy.json" -- "$python" -c '
import time, torch
a = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
end = time.monotonic() + 20
while time.monotonic() < end:
    for _ in range(20):
        b = a @ a
    torch.cuda.synchronize()
'
exit "$failed"
