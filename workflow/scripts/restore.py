"""Put the board back into the state that it had before the campaign."""

import argparse
import sys
from pathlib import Path

from wattslice.boards.discover import selected_boards
from wattslice.boards.errors import BoardError
from wattslice.boards.session import begin_session, end_session
from wattslice.config.models import BoardConfig

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--board", required=True, help="the campaign's board, JSON")
parser.add_argument("--campaign", required=True, type=Path, help="folder of the campaign")
parser.add_argument("--begin", action="store_true", help="save the state instead")
arguments = parser.parse_args()
try:
    board = selected_boards(BoardConfig.model_validate_json(arguments.board))
    if arguments.begin:
        begin_session(arguments.campaign, board)
    elif end_session(arguments.campaign, board):
        print("the board is as it was before the campaign")
except BoardError as error:
    sys.exit(f"{type(error).__name__}: {error}")
