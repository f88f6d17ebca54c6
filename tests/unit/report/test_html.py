"""The page is self-contained, labelled, and says what the tables hold."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from fixtures.records import Truth, campaign_truths, make_campaign, make_config
from wattslice.analysis.frames import read_tables
from wattslice.config.models import CampaignConfig
from wattslice.report.charts.base import MODELLED, SIMULATED, load
from wattslice.report.figure_list import FIGURES
from wattslice.report.findings import findings
from wattslice.report.html import write_report
from wattslice.report.numbers import number

POWER_MODEL = {"idle_w": 20, "active_w_per_core": 8, "source": "assumed <for> the test"}


class Page(HTMLParser):
    """The elements of a page that matter here."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self._hidden = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self._hidden = tag in ("script", "style")

    def handle_endtag(self, tag: str) -> None:
        if tag in ("script", "style"):
            self._hidden = False

    def handle_data(self, data: str) -> None:
        if not self._hidden:
            self.text.append(data)

    @property
    def words(self) -> str:
        return " ".join(" ".join(self.text).split())


def report_of(
    results: Path,
    truths: list[Truth],
    config: CampaignConfig | None = None,
    *,
    pictures: bool = False,
) -> Path:
    config = config or make_config(board={"kind": "cpu", "power_model": POWER_MODEL})
    folder = make_campaign(results, truths, config)
    return write_report(folder, config, folder / "report" / "index.html", pictures=pictures)


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    truths = campaign_truths(repeats=2, workloads=("cnn", "albert", "distilbert"))
    # One run of the campaign did not fit.
    truths[-1] = replace(truths[-1], outcome="oom", reason="no room for <8> GiB", window=None)
    return report_of(tmp_path_factory.mktemp("report"), truths, pictures=True)


@pytest.fixture(scope="module")
def page(report: Path) -> Page:
    return Page(report.read_text(encoding="utf-8"))


def test_nothing_is_loaded(page: Page, report: Path) -> None:
    for tag, attributes in page.elements:
        for name in ("src", "href", "data", "srcset", "poster", "action"):
            value = attributes.get(name)
            assert value is None or value.startswith(("#", "data:")), (tag, name, value)
    text = report.read_text(encoding="utf-8")
    style = re.search(r"<style>(.*?)</style>", text, re.S)
    assert style is not None
    assert "url(" not in style[1]
    assert "@import" not in style[1]
    assert "default-src 'none'" in text


def test_size(report: Path) -> None:
    assert report.stat().st_size < 4_000_000


def test_modelled_is_said_wherever_energy_shows(page: Page, report: Path) -> None:
    text = report.read_text(encoding="utf-8")
    figures = re.findall(r"<figure.*?</figure>", text, re.S)
    assert len(figures) == len(FIGURES)
    for figure, known in zip(figures, FIGURES, strict=True):
        badge = f'<span class="badge">{MODELLED}</span>'
        assert (badge in figure) == known.energy, known.name
    findings_part = text[text.index('id="h-findings"') : text.index('id="h-figures"')]
    for item in re.findall(r"<li>(.*?)</li>", findings_part, re.S):
        assert ("badge" in item) == ("joule" in item or "energy" in item or "/J" in item), item
    assert "P = 20 W + 8 W × busy cores; source: assumed <for> the test." in page.words
    assert SIMULATED not in page.words.split("Provenance")[0].split("Figures")[0]


def test_simulated_is_said(tmp_path: Path) -> None:
    truths = campaign_truths(1, ("cnn",), simulated=True, modelled=False)
    text = report_of(tmp_path, truths, make_config()).read_text(encoding="utf-8")
    assert "The board of this campaign is simulated." in text
    for figure in re.findall(r"<figure.*?</figure>", text, re.S):
        assert f'<span class="badge">{SIMULATED}</span>' in figure
    assert MODELLED not in Page(text).words


def test_headings_do_not_jump(page: Page) -> None:
    levels = [int(tag[1]) for tag, _ in page.elements if re.fullmatch(r"h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in itertools.pairwise(levels))


def test_pictures_have_text_and_tables_headers(page: Page) -> None:
    images = [attributes for tag, attributes in page.elements if tag == "img"]
    assert images
    assert all(len(image["alt"] or "") > 40 for image in images)
    assert all(a.get("scope") for tag, a in page.elements if tag == "th")
    regions = [a for tag, a in page.elements if a.get("class") == "scroll"]
    assert regions
    assert all(a.get("tabindex") == "0" and a.get("aria-labelledby") for a in regions)
    ids = [a["id"] for _, a in page.elements if a.get("id")]
    assert len(ids) == len(set(ids))
    assert ("html", {"lang": "en"}) in page.elements


def test_numbers_are_those_of_the_tables(page: Page, report: Path) -> None:
    summary = read_tables(report.parents[1] / "tables")["summary"]
    for value in summary["throughput_samples_s"].dropna():
        assert number(float(value)) in page.words


def test_text_of_records_is_escaped(page: Page, report: Path) -> None:
    assert "no room for <8> GiB" in page.words
    assert "no room for <8> GiB" not in report.read_text(encoding="utf-8")
    assert "1 oom" in page.words


def test_provenance(page: Page) -> None:
    for text in ("0123456789abcdef", "e" * 64, "c0de" * 16, "torch", "2.14.1", "3.11.2"):
        assert text in page.words
    assert re.search(r"config digest \(sha256\) [0-9a-f]{64}", page.words)


def test_every_finding_has_a_number(report: Path) -> None:
    folder = report.parents[1]
    data = load(folder / "tables", folder / "analysis", folder / "runs")
    topics = findings(data)
    assert [topic.title for topic in topics] == [
        "Runs",
        "Throughput",
        "Precision",
        "Partition",
        "Workloads compared",
        "Energy",
    ]
    for topic in topics:
        for finding in topic.findings:
            assert re.search(r"\d", finding.text), finding.text
            assert finding.text.endswith(".")


def test_findings_give_the_interval(page: Page) -> None:
    assert re.search(
        r"On full · solo, bf16 gives [\d.]+× \(range [\d.]+ to [\d.]+, 2 pairs\) the "
        r"throughput of fp32 for cnn, the most",
        page.words,
    )


def test_nothing_worked(tmp_path: Path) -> None:
    truths = [Truth(repeat=k, outcome="oom", reason="too big", window=None) for k in (1, 2)]
    text = Page(report_of(tmp_path, truths).read_text(encoding="utf-8")).words
    assert "0 of 2 runs ended without a fault; the others: 2 oom." in text
    assert "no data because outcome oom: too big" in text
    assert "no two cells of the campaign can be compared" in text


def test_no_runs(tmp_path: Path) -> None:
    text = Page(report_of(tmp_path, []).read_text(encoding="utf-8")).words
    assert "The campaign has 0 runs." in text
    assert "no data because the campaign has no runs" in text


def test_no_energy(tmp_path: Path) -> None:
    truths = campaign_truths(
        1,
        ("cnn",),
        power_w=None,
        outcome="energy_unavailable",
        no_energy_reason="RAPL: EACCES",
        modelled=False,
    )
    text = Page(report_of(tmp_path, truths, make_config()).read_text(encoding="utf-8")).words
    assert "No run has energy: RAPL: EACCES." in text
    assert "6 energy_unavailable" in text
    assert MODELLED not in text


def test_page_is_the_same_every_time(tmp_path: Path) -> None:
    truths = campaign_truths(1, ("cnn",))
    one = report_of(tmp_path / "a", truths).read_bytes()
    assert one == report_of(tmp_path / "b", truths).read_bytes()


def test_tables_for_papers(report: Path) -> None:
    folder = report.parent / "tables"
    names = sorted(path.name for path in folder.iterdir())
    assert names == sorted(
        f"{name}.{kind}"
        for name in (
            "claims",
            "summary",
            "energy",
            "mixes",
            "slices",
            "attribution",
            "ratios",
            "quality",
            "outcomes",
        )
        for kind in ("csv", "md", "tex")
    )
    off = (folder / "attribution.md").read_text(encoding="utf-8")
    assert "slice-share" in off  # two halves with equal jobs: fill and solo are all its subsets
    assert "no activity reading of slice 0" in off
    latex = (folder / "energy.tex").read_text(encoding="utf-8")
    assert "\\toprule" in latex
    assert "S[table-format=" in latex
    assert MODELLED in latex
    assert "{modelled" not in latex
    for line in latex.splitlines():
        if line.endswith("\\\\") and "multicolumn" not in line:
            assert line.count("&") - line.count("\\&") == 9
    markdown = (folder / "summary.md").read_text(encoding="utf-8")
    rows = [line for line in markdown.splitlines() if line.startswith("|")]
    assert len({row.count("|") for row in rows}) == 1
