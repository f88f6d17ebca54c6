"""Write the sha256 of every file of the campaign."""

import argparse
import json
from pathlib import Path

from wattslice import __version__
from wattslice.provenance.manifest import Manifest, campaign_files, entries, write_manifest

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--out", required=True, type=Path, help="manifest.json of the campaign")
arguments = parser.parse_args()
folder = arguments.out.parent
name = json.loads((folder / "campaign.json").read_text(encoding="utf-8"))["name"]
files = entries(folder, campaign_files(folder))
write_manifest(
    arguments.out, Manifest(kind="campaign", campaign=name, wattslice=__version__, files=files)
)
