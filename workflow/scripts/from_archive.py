"""Copy records and raw samples out of an unpacked archive, each checked against its digest."""

import argparse
import json
import shutil
import sys
from pathlib import Path

from wattslice.config.archived import Archived
from wattslice.config.campaign import Campaign
from wattslice.config.errors import ConfigError
from wattslice.files import replacing, sha256_file

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--manifest", required=True, type=Path, help="archive.json of the archive")
parser.add_argument("--config", required=True, help="the checked config, JSON")
parser.add_argument("--inventory", required=True, type=Path, help="inventory.json to write")
arguments = parser.parse_args()
try:
    archived = Archived.of(arguments.manifest.parent, Campaign(json.loads(arguments.config)).runs)
except ConfigError as error:
    sys.exit(str(error))
for name in archived.files:
    with replacing(arguments.inventory.parent / name) as temporary:
        shutil.copyfile(archived.folder / name, temporary)
        if sha256_file(temporary) != archived.manifest.files[name].sha256:
            sys.exit(f"{archived.folder / name} was changed after it was packed; unpack it again")
