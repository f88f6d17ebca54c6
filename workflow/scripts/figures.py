"""Draw the campaign's figures."""

import argparse
from pathlib import Path

from wattslice.report.charts import write_figures

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--campaign", required=True, type=Path, help="campaign.json")
parser.add_argument("--formats", required=True, nargs="+")
arguments = parser.parse_args()
folder = arguments.campaign.parent
write_figures(
    folder / "tables", folder / "analysis", folder / "runs", folder / "figures", arguments.formats
)
