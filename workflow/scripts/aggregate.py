"""Write the campaign's tidy tables; refuse records of another version of the campaign."""

import argparse
import json
from pathlib import Path

from wattslice.analysis.aggregate import write_tables

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--campaign", required=True, type=Path, help="campaign.json")
arguments = parser.parse_args()
folder = arguments.campaign.parent
config = json.loads(arguments.campaign.read_text(encoding="utf-8"))["config"]
write_tables(folder, arguments.campaign, folder / "tables", config["report"]["confidence"])
