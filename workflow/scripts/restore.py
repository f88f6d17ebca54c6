"""Put the board back into the state that it had before the campaign."""

import argparse
import sys
from pathlib import Path

from wattslice.boards.errors import BoardError
from wattslice.boards.request import BoardRequest
from wattslice.boards.session import begin_session, end_session

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--request", required=True, help="what the campaign asks of the board, JSON")
parser.add_argument("--campaign", required=True, type=Path, help="folder of the campaign")
parser.add_argument("--begin", action="store_true", help="save the state instead")
arguments = parser.parse_args()
request = BoardRequest.model_validate_json(arguments.request)
try:
    if arguments.begin:
        begin_session(arguments.campaign, request.find())
    elif end_session(arguments.campaign, request.find()):
        print("the board is as it was before the campaign")
except BoardError as error:
    sys.exit(f"{type(error).__name__}: {error}")
