"""Copy the code beside the results, and describe all of it as an RO-Crate."""

import argparse
from importlib.metadata import version
from pathlib import Path

from wattslice.provenance.crate import write_crate
from wattslice.provenance.snapshot import FOLDER, write_snapshot

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--out", required=True, type=Path, help="ro-crate-metadata.json")
arguments = parser.parse_args()
folder = arguments.out.parent
write_snapshot(Path(__file__).resolve().parents[2], folder / FOLDER)
write_crate(folder, Path(".snakemake/metadata"), folder.as_posix(), version("snakemake"))
