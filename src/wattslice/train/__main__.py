"""`python -m wattslice.train`: one run, and a line about it."""

import sys
from pathlib import Path

from wattslice.records.run import RunRecord
from wattslice.train.launcher import main


def describe(record: RunRecord, run_dir: Path) -> str:
    from wattslice.analysis.line import line  # late: the analysis takes time to import

    return line(record, run_dir)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], describe))
