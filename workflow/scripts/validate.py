"""Run the layout that is predicted best and some others; write predicted against measured."""

import argparse
import json
import sys
from pathlib import Path

from wattslice.boards.errors import BoardError
from wattslice.config.load import load_campaign
from wattslice.files import write_json
from wattslice.planner.errors import PlannerError
from wattslice.planner.trial import validate

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--campaign", type=Path, required=True, help="campaign.json")
parser.add_argument("--train-code", required=True, help="digest of the measuring code")
parser.add_argument("--out", type=Path, required=True)
arguments = parser.parse_args()
config = load_campaign(json.loads(arguments.campaign.read_text(encoding="utf-8"))["config"])
try:
    found = validate(config, arguments.campaign.parent, arguments.train_code)
except (PlannerError, BoardError) as error:
    sys.exit(f"validate: {error}")
write_json(arguments.out, found.model_dump(mode="json"))
for each in found.summary:
    print(
        f"{each.name}: predicted against measured, median error {each.median_error:+.1%}, "
        f"largest {each.largest_abs_error:.1%}, n={each.n}"
    )
