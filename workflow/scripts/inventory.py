"""Write inventory.json: what the campaign's board is, and what it can do."""

import argparse
import sys
from pathlib import Path

from wattslice.boards.discover import board_of
from wattslice.boards.errors import BoardError
from wattslice.boards.inventory import take_inventory
from wattslice.config.models import BoardConfig
from wattslice.files import write_json
from wattslice.provenance.environment import host

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--board", required=True, help="the campaign's board, JSON")
parser.add_argument("--out", required=True, type=Path)
arguments = parser.parse_args()
try:
    board = board_of(BoardConfig.model_validate_json(arguments.board))
    inventory = take_inventory(board, host())
except BoardError as error:
    sys.exit(f"{type(error).__name__}: {error}")
write_json(arguments.out, inventory.model_dump(mode="json"))
