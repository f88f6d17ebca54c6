"""Write inventory.json; stop the campaign if the board cannot do what it asks for."""

import argparse
import sys
from pathlib import Path

from wattslice.boards.errors import BoardError
from wattslice.boards.inventory import problems, take_inventory
from wattslice.boards.request import BoardRequest
from wattslice.files import write_json
from wattslice.provenance.environment import host
from wattslice.workloads.preflight import model_problems

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--request", required=True, help="what the campaign asks of the board, JSON")
parser.add_argument("--out", required=True, type=Path)
arguments = parser.parse_args()
request = BoardRequest.model_validate_json(arguments.request)
try:
    board = request.find()
    found = [
        *problems(board, request.layouts, request.precisions),
        *model_problems(request.workloads),
    ]
except BoardError as error:
    sys.exit(f"{type(error).__name__}: {error}")
if found:
    sys.exit("\n".join(found))
write_json(arguments.out, take_inventory(board, host()).model_dump(mode="json"))
