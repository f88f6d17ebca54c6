"""Measure the board's idle power in a layout."""

import argparse
import json
import os
import signal
import sys
from pathlib import Path

from wattslice.boards.discover import board_of
from wattslice.boards.errors import BoardError
from wattslice.config.layout import Layout
from wattslice.config.models import BoardConfig, MeasureConfig
from wattslice.files import write_json
from wattslice.measure.idle import measure_idle
from wattslice.train.lifetime import die_with_parent

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--settings", required=True, help="board and measure settings, JSON")
parser.add_argument("--code", required=True, help="digest of the measuring code")
parser.add_argument("--layout", required=True)
parser.add_argument("--out", required=True, type=Path)
arguments = parser.parse_args()
die_with_parent(os.getppid(), signal.SIGTERM)
settings = json.loads(arguments.settings)
try:
    layout = Layout.parse(arguments.layout)
    record = measure_idle(
        board_of(BoardConfig.model_validate(settings["board"]), layout.boards),
        layout,
        MeasureConfig.model_validate(settings["measure"]),
        settings,
        arguments.code,
    )
except BoardError as error:
    sys.exit(f"{type(error).__name__}: {error}")
write_json(arguments.out, record.model_dump(mode="json"))
