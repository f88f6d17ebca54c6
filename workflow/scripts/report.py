"""Write the campaign's report: one self-contained page, and its tables for a paper."""

import argparse
import json
from pathlib import Path

from wattslice.config.load import load_campaign
from wattslice.report.html import write_report

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--campaign", required=True, type=Path, help="campaign.json")
parser.add_argument("--out", required=True, type=Path, help="index.html")
arguments = parser.parse_args()
config = load_campaign(json.loads(arguments.campaign.read_text(encoding="utf-8"))["config"])
write_report(arguments.campaign.parent, config, arguments.out)
