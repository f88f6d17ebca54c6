#!/usr/bin/env bash
# What to run once on a machine with an NVIDIA GPU: reads the boards, then trains four models in four
# precisions on the whole board with the real meter. Changes no setting, takes under eight minutes.
# Keep the output folder: its files are fixtures for the reading code, and campaign.tar.xz holds the
# records and raw samples of the runs.
#
#   benchmarks/gpu_check.sh OUT [CONFIG …]
#
# CONFIG: files in place of config/papers/paper-b.yaml and config/gpu-check.yaml, e.g. to rehearse it
# without a GPU: wattslice simulate --board a100-sxm4-80gb -- benchmarks/gpu_check.sh OUT SMALL.yaml
set -uo pipefail
cd "$(dirname "$0")/.."
out=${1:?a folder for the output}
shift
mkdir -p "$out"
export PYTHONPATH=$PWD/src${PYTHONPATH:+:$PYTHONPATH}
python=${PYTHON:-python3}
failed=0
step() { # name, seconds at most, command …
  local name=$1 limit=$2
  shift 2
  echo "== $name"
  timeout "$limit" "$@" || { echo "   exit code $?"; failed=$((failed + 1)); }
}
exec > >(tee "$out/log.txt") 2>&1
step probe 60 "$python" -m wattslice.boards.nvidia.probe --out "$out/probe.json"
step boards 30 "$python" -m wattslice boards --json
step measure-idle 30 "$python" -m wattslice measure --out "$out/idle.json" -- sleep 10
step measure-busy 60 "$python" -m wattslice measure --out "$out/busy.json" -- "$python" -c '
import time, torch
a = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
end = time.monotonic() + 10
while time.monotonic() < end:
    for _ in range(20):
        b = a @ a
    torch.cuda.synchronize()
'
step runs 430 "$python" benchmarks/gpu_runs.py "$out/campaign.tar.xz" --budget-s 400 ${1:+--config "$@"}
exit "$failed"
