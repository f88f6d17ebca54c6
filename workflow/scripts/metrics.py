"""Write one run's figures from its raw files."""

import argparse
from pathlib import Path

from wattslice.analysis.metrics import write_metrics

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--record", required=True, type=Path, help="run.json")
parser.add_argument("--idle", required=True, type=Path, help="idle record of the run's layout")
parser.add_argument("--out", required=True, type=Path)
arguments = parser.parse_args()
write_metrics(arguments.record.parent, arguments.idle, arguments.out)
