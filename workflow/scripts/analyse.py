"""Write the campaign's ratios with their intervals."""

import argparse
import json
from pathlib import Path

from wattslice.analysis.ratios import write_analysis
from wattslice.config.load import load_campaign

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--campaign", required=True, type=Path, help="campaign.json")
parser.add_argument("--out", required=True, type=Path, help="ratios.json")
arguments = parser.parse_args()
config = load_campaign(json.loads(arguments.campaign.read_text(encoding="utf-8"))["config"])
write_analysis(arguments.campaign.parent / "tables", config, arguments.out.parent)
