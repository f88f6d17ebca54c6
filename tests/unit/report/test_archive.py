"""From an archive of real records to claims, figures and report; numbers are those of the tables.

The archive holds raw files and records of a rehearsal (a simulated A100, training on the CPU), as
the pipeline wrote them.
"""

from __future__ import annotations

import json
import re
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from wattslice.analysis.aggregate import write_tables
from wattslice.analysis.claims import ClaimTable, write_claims
from wattslice.analysis.frames import read_tables
from wattslice.analysis.metrics import write_metrics
from wattslice.analysis.ratios import write_analysis
from wattslice.config.load import load_campaign
from wattslice.report import charts
from wattslice.report.charts.base import load
from wattslice.report.figure_list import NAMES
from wattslice.report.html import write_report
from wattslice.report.numbers import number

ROOT = Path(__file__).parents[3]
ARCHIVE = ROOT / "tests" / "fixtures" / "rehearsal.tar.xz"


@pytest.fixture(scope="module")
def campaign(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, ClaimTable, str]]:
    folder = tmp_path_factory.mktemp("archive") / "rehearsal"
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(folder, filter="data")
    manifest = json.loads((folder / "campaign.json").read_text())
    for run in manifest["runs"]:
        run_dir = folder / "runs" / run["run_id"]
        idle = folder / "idle" / f"{run['run_id'].split('/', 1)[0]}.json"
        write_metrics(run_dir, idle, run_dir / "metrics.json")
    config = load_campaign(manifest["config"])
    write_tables(folder, folder / "campaign.json", folder / "tables")
    write_analysis(folder / "tables", config, folder / "analysis")
    claims = write_claims(
        folder / "tables",
        config,
        {"config/claims.yaml": ROOT / "config" / "claims.yaml"},
        folder / "analysis" / "claims.json",
    )
    page = write_report(folder, config, folder / "report" / "index.html", pictures=False)
    yield folder, claims, page.read_text(encoding="utf-8")


def test_no_claim_is_judged_from_a_rehearsal(campaign: tuple[Path, ClaimTable, str]) -> None:
    _, claims, page = campaign
    assert claims.count() == {"not measurable here": 16, "rehearsed only": 4}
    assert {c.id for c in claims.claims if c.verdict == "rehearsed only"} == {
        "A1",
        "A2",
        "A9",
        "A10",
    }
    assert "4 rehearsed only" in page
    assert "v-reproduced" not in page.split("</style>", 1)[1]


def test_numbers_of_the_page_are_those_of_the_tables(
    campaign: tuple[Path, ClaimTable, str],
) -> None:
    folder, claims, page = campaign
    summary = read_tables(folder / "tables")["summary"]
    cells = set(re.findall(r"<td[^>]*>([^<]*)</td>", page))
    for column in ("throughput_samples_s", "samples_per_j", "mean_power_w", "idle_w"):
        for value in summary[column].dropna():
            assert number(float(value)) in cells, column
    for claim in claims.claims:
        if claim.value.value is not None:
            assert number(claim.value.value) in page


def test_every_figure_and_page_says_simulated(campaign: tuple[Path, ClaimTable, str]) -> None:
    folder, _, page = campaign
    data = load(folder / "tables", folder / "analysis", folder / "runs")
    for name in NAMES:
        figure = charts.build(name, data)
        assert "simulated" in " ".join(figure.spec["title"]["text"]), name
    drawn = [name for name in NAMES if charts.build(name, data).empty is None]
    assert set(NAMES) - set(drawn) == {"prediction", "planner_error"}
    assert "No number here is a measurement of hardware." in page
    # What the checks reject is shown, as the board is simulated; the page says so.
    assert "rejecting checks: window-minimum (15)" in page
