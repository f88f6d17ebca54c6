"""Judge the campaign's claims."""

import argparse
import json
import sys
from pathlib import Path

from wattslice.analysis.claim_files import ClaimFileError
from wattslice.analysis.claims import write_claims
from wattslice.config.load import load_campaign

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--campaign", required=True, type=Path, help="campaign.json")
parser.add_argument("--claims", nargs="*", default=[], help="files of claims")
parser.add_argument("--out", required=True, type=Path, help="claims.json")
arguments = parser.parse_args()
root = Path(__file__).resolve().parents[2]
config = load_campaign(json.loads(arguments.campaign.read_text(encoding="utf-8"))["config"])
files = {name: root / name for name in arguments.claims}
try:
    write_claims(arguments.campaign.parent / "tables", config, files, arguments.out)
except (ClaimFileError, ValueError) as error:
    sys.exit(str(error))
