"""Check that this machine can do what a campaign asks of its board and of the model libraries."""

import argparse
import sys
from pathlib import Path

from wattslice.boards.errors import BoardError
from wattslice.boards.inventory import problems
from wattslice.boards.request import BoardRequest
from wattslice.config.start import PREFLIGHT
from wattslice.files import sha256_text, write_json
from wattslice.workloads.preflight import model_problems

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--request", required=True, help="what the campaign asks for, JSON")
parser.add_argument("--campaign", required=True, type=Path, help="folder of the campaign")
arguments = parser.parse_args()
request = BoardRequest.model_validate_json(arguments.request)
try:
    found = [
        problem
        for board, layouts in request.find()
        for problem in problems(board, layouts, request.precisions)
    ]
except BoardError as error:
    sys.exit(f"{type(error).__name__}: {error}")
found += model_problems(request.workloads)
if found:
    sys.exit("\n".join(found))
write_json(arguments.campaign / PREFLIGHT, {"request_digest": sha256_text(arguments.request)})
