"""Plan a layout, try it on the board, record what came out, and put the board back."""

import argparse
import sys
from pathlib import Path

from wattslice.boards.discover import board_of
from wattslice.boards.errors import BoardError
from wattslice.boards.partition import try_layout
from wattslice.config.layout import Layout
from wattslice.config.models import BoardConfig
from wattslice.files import write_json

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--board", required=True, help="the campaign's board, JSON")
parser.add_argument("--layout", required=True)
parser.add_argument("--out", required=True, type=Path)
arguments = parser.parse_args()
try:
    layout = Layout.parse(arguments.layout)
    board = board_of(BoardConfig.model_validate_json(arguments.board), layout.boards)
    record = try_layout(board, layout)
except BoardError as error:
    sys.exit(f"{type(error).__name__}: {error}")
write_json(arguments.out, record.model_dump(mode="json"))
