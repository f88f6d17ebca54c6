"""Write campaign.json: the config and every run that the campaign consists of."""

import argparse
import json
from pathlib import Path

from wattslice.config.campaign import Campaign
from wattslice.files import write_json

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--config", required=True, help="the checked config, JSON")
parser.add_argument("--train-code", required=True, help="digest of the measuring code of the runs")
parser.add_argument("--out", required=True, type=Path)
arguments = parser.parse_args()
write_json(arguments.out, Campaign(json.loads(arguments.config)).manifest(arguments.train_code))
