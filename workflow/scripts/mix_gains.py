"""Write the gains of mixes against each named baseline."""

import argparse
import json
from pathlib import Path

from wattslice.config.models import CampaignConfig
from wattslice.files import write_json
from wattslice.planner.gains import read_gains


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--campaign", type=Path, required=True, help="campaign.json")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    content = json.loads(arguments.campaign.read_text(encoding="utf-8"))
    config = CampaignConfig.model_validate(content["config"])
    found = read_gains(arguments.campaign.parent / "tables", config.report.confidence)
    write_json(arguments.out, found.model_dump(mode="json"))


main()
