"""The best layout for jobs: its gain over each named baseline, how sure; page and table agree."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from fixtures.records import Truth, make_campaign, make_config, make_validation
from wattslice.analysis.mixes import MixLabel
from wattslice.analysis.ratios import Ratio
from wattslice.provenance.chain import Chain
from wattslice.provenance.trace import shown_values
from wattslice.report import charts
from wattslice.report.charts.base import FigureData, load
from wattslice.report.html import write_report
from wattslice.report.job_sets import ENERGY, SPEED, JobSet, headline, job_sets, sentences
from wattslice.report.numbers import number

BOTH = {0: "cnn", 1: "distilbert"}


def pair(layout: str, step_s: float, scheme: str = "", **more: Any) -> Truth:
    """Both jobs at once, each with a step of `step_s`."""
    placement = f"mix.pair.{scheme}" if scheme else "mix.pair"
    return Truth(layout=layout, placement=placement, workloads=BOTH, step_s=step_s, **more)


def block(repeat: int, slow: float = 1.0) -> list[Truth]:
    """Alone at 0.1 s; at once at 0.15 s on 2x1c (4/3 of the work), 0.25 s on 3x1c (0.8)."""
    truths = [
        Truth(step_s=0.1, power_w=40.0),
        Truth(placement="distilbert.solo", workloads={0: "distilbert"}, step_s=0.1, power_w=60.0),
        pair("2x1c", 0.15 * slow, power_w=54.0),
        pair("3x1c", 0.25 * slow, power_w=30.0),
        pair("full", 0.2 * slow, "time-slice", sharing="time-slice", power_w=50.0),
        pair("full", 0.1, "mps", sharing="mps", outcome="unsupported_layout", window=None),
    ]
    return [replace(truth, repeat=repeat) for truth in truths]


def data_of(results: Path, truths: list[Truth]) -> FigureData:
    folder = make_campaign(results, truths)
    return load(folder / "tables", folder / "analysis", folder / "runs")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> FigureData:
    truths = [truth for k, slow in ((1, 1.0), (2, 0.9), (3, 1.1)) for truth in block(k, slow)]
    return data_of(tmp_path_factory.mktemp("sets"), truths)


@pytest.fixture(scope="module")
def own(data: FigureData) -> JobSet:
    (found,) = job_sets(data)
    return found


def test_each_baseline_is_named_and_has_its_own_gain(own: JobSet) -> None:
    layout = own.options["2x1c"]
    speed, energy = layout.known(SPEED), layout.known(ENERGY)
    assert list(speed) == ["sequential on full", "time-slice on full"]
    sequential = speed["sequential on full"]
    assert sequential.value == pytest.approx(100 / 3, rel=1e-3)
    assert (sequential.low, sequential.high) == pytest.approx(
        (100 * (0.2 / 0.165 - 1), 100 * (0.2 / 0.135 - 1)), rel=1e-3
    )
    # Sequence does that work on 2/3 x 40 + 2/3 x 60 W, time slicing on 50 W per 1/2 + 1/2.
    assert energy["sequential on full"].value == pytest.approx(100 * (1 - 54 / (200 / 3)), rel=1e-3)
    assert speed["time-slice on full"].value == pytest.approx(100 / 3, rel=1e-3)
    assert energy["time-slice on full"].value == pytest.approx(
        100 * (1 - (54 / (200 / 3)) / (50 / 50)), rel=1e-3
    )
    assert own.options["full, time-slice"].known(SPEED)["sequential on full"].sure is None
    failed = layout.gains[SPEED, "mps on full"]
    assert failed.value is None
    assert failed.reason == "mix.pair.mps on full: outcome unsupported_layout"


def test_the_best_layout_and_how_sure(own: JobSet) -> None:
    ranking = own.ranking(SPEED)
    assert ranking is not None
    assert [option.label for option in ranking.options] == ["2x1c", "full, time-slice", "3x1c"]
    assert (ranking.first_in, ranking.repeats) == (3, 3)
    assert own.best(ENERGY) == "3x1c"
    text = sentences(own, 0.95)
    assert text == (
        "pair (cnn + distilbert) in fp32: 2x1c is the best of 3 ways (in 3 of 3 repeats), with a "
        "gain in work per time of 33.3 % (range 21.2 to 48.1, 3 repeats) against sequential on "
        "full, 33.3 % (range 33.3 to 33.3, 3 repeats) against time-slice on full; 3x1c saves most "
        "energy for the same work: 25.0 % (range 17.5 to 32.5, 3 repeats) against sequential on "
        "full, 25.0 % (range 25.0 to 25.0, 3 repeats) against time-slice on full. Fewer than 5 "
        "repeats give a direction, and nothing sure."
    )


def test_five_repeats_can_make_a_gain_or_a_loss_sure(tmp_path: Path) -> None:
    kept = [truth for k in range(1, 6) for truth in block(k) if truth.sharing is None]
    (own,) = job_sets(data_of(tmp_path / "gain", kept))
    assert own.options["2x1c"].known(SPEED)["sequential on full"].sure is True
    assert own.options["3x1c"].known(SPEED)["sequential on full"].sure is False
    assert sentences(own, 0.95).endswith("By the intervals it is faster than sequential on full.")
    slower = [truth for truth in kept if truth.layout != "2x1c"]
    (own,) = job_sets(data_of(tmp_path / "loss", slower))
    assert "the only way that was run, but surely slower than sequential on full" in headline(
        own, 0.95
    )


def test_runs_that_a_check_doubts_are_said(data: FigureData) -> None:
    runs = data.tables["runs"].assign(quality_flags="", quality_rejects=pd.NA)
    runs.loc[runs["run_id"] == "full/cnn.solo/fp32/rep2", "quality_flags"] = "foreign-host-load"
    (own,) = job_sets(replace(data, tables={**data.tables, "runs": runs}))
    expected = "; checks failed in its 9 runs: foreign-host-load (1)."
    assert headline(own, 0.95).endswith(expected)


def test_figure_table_and_sentence_have_the_same_numbers(data: FigureData, own: JobSet) -> None:
    figure = charts.build("mixes", data)
    assert figure.answers == (
        "pair (cnn + distilbert) in fp32: 2x1c gains 33.3 % (range 21.2 to 48.1, 3 repeats) in "
        "work per time and saves 19.0 % (range 10.9 to 27.1, 3 repeats) of the energy against "
        "sequential on full; it is the best of 3 ways (in 3 of 3 repeats), which fewer than 5 "
        "repeats cannot make sure; checks failed in its 9 runs: window-headline (9).",
    )
    rows = [row for row in figure.datasets["mixes"] if row["role"] == "median"]
    assert {row["line"] for row in rows} == {"★ 2x1c", "2x1c", "3x1c", "★ 3x1c", "full, time-slice"}
    ratios = {r.name: r for r in data.ratios.ratios if r.kind.startswith("mix_")}
    best: Ratio = ratios["mix_progress/2x1c/mix.pair/fp32/over time-slice on full"]
    shown = next(r for r in rows if r["line"] == "★ 2x1c" and r["series"] == "time-slice on full")
    assert shown["ratio"] == pytest.approx(100 * ((best.value or 0) - 1), rel=1e-6)


def test_page_and_table(tmp_path: Path) -> None:
    config = make_config()
    folder = make_campaign(tmp_path, [*block(1), *block(2)], config)
    analysis = folder / "analysis" / "validation.json"
    analysis.write_text(make_validation().model_dump_json())
    text = write_report(
        folder, config, folder / "report" / "index.html", pictures=False
    ).read_text()
    data = load(folder / "tables", folder / "analysis", folder / "runs")
    table = text[text.index('id="table-mixes"') :].partition("</table>")[0]
    cells = re.findall(r"<td[^>]*>([^<]*)</td>", table)
    for own in job_sets(data):
        assert sentences(own, 0.95) in re.sub(r"\s+", " ", text)
        for option in own.options.values():
            for gain in option.gains.values():
                assert number(gain.value) in cells
    planned = job_sets(data)[-1]
    assert planned.best(SPEED) == "2x1c"
    assert planned.options["2x1c"].known(SPEED)["predicted, sequential on full"].value == (
        pytest.approx(32.0)
    )
    assert "off in work of all jobs per time 15 % in the median, 20 % at most (1 of 2" in text
    assert "was the best of those that were run" in text


def test_the_error_of_the_planner_is_of_the_median_with_its_repeats(data: FigureData) -> None:
    found = make_validation()
    best = found.runs[0]
    slower = [
        figure.model_copy(update={"measured": 1.5, "error": figure.predicted / 1.5 - 1})
        for figure in best.figures
    ]
    again = best.model_copy(update={"figures": tuple(slower)})
    two = found.model_copy(update={"runs": (*found.runs, again)})
    figure = charts.build("planner_error", replace(data, validation=two))
    rows = figure.datasets["planner_error"]
    mine = [r for r in rows if r["line"] == "2x1c" and r["panel"] == "work of all jobs per time"]
    (middle,) = (row for row in mine if row["role"] == "median")
    # 1.32 predicted; 1.2 and 1.5 measured.
    assert (middle["ratio"], middle["n"]) == (pytest.approx(100 * (1.32 / 1.35 - 1), rel=1e-6), 2)
    repeats = [row["ratio"] for row in mine if row["role"] == "pair"]
    assert repeats == pytest.approx([10.0, -12.0])


def test_a_gain_in_percent_leads_to_the_runs_of_both_sides(tmp_path: Path) -> None:
    config = make_config()
    folder = make_campaign(tmp_path, block(1), config)
    runs = json.loads((folder / "expected.json").read_text())
    content = {"name": config.name, "config": config.model_dump(mode="json"), "runs": runs}
    (folder / "campaign.json").write_text(json.dumps(content))
    shown = [source for source in shown_values(Chain(folder)) if source.shows("33.3")]
    (sequential,) = (
        s
        for s in shown
        if s.place.endswith("on full value, as a gain in %") and "sequential" in s.place
    )
    assert sequential.runs == {
        "2x1c/mix.pair/fp32/rep1",
        "full/cnn.solo/fp32/rep1",
        "full/distilbert.solo/fp32/rep1",
    }


def test_parts_of_a_job_list_are_compared_part_by_part(tmp_path: Path) -> None:
    parts = [
        replace(pair("2x1c", 0.15), placement="mix.list.1of2"),
        replace(pair("2x1c", 0.2), placement="mix.list.2of2", workloads={0: "distilbert"}),
        replace(pair("full", 0.3, sharing="time-slice"), placement="mix.list.time-slice"),
    ]
    sets = {own.name: own for own in job_sets(data_of(tmp_path, [*block(1)[:2], *parts]))}
    assert set(sets) == {"list", "list, part 1 of 2", "list, part 2 of 2"}
    first, second = (sets[f"list, part {k} of 2"].options["2x1c"] for k in (1, 2))
    assert first.known(SPEED)["sequential on full"].value == pytest.approx(100 / 3, rel=1e-3)
    assert second.known(SPEED)["sequential on full"].value == pytest.approx(-50.0, rel=1e-3)
    for option in (first, second):
        refused = option.gains[SPEED, "time-slice on full"]
        assert refused.value is None
        assert refused.reason == "time-slice on full: all jobs at once, not this part"


def test_the_whole_board_is_the_first_baseline(tmp_path: Path) -> None:
    alone = [replace(truth, layout="7g", step_s=0.08) for truth in block(1)[:2]]
    (own,) = job_sets(data_of(tmp_path, [*block(1)[:3], *alone]))
    assert own.baselines() == ["sequential on full", "sequential on 7g"]
    known = own.options["2x1c"].known(SPEED)
    assert known["sequential on 7g"].value == pytest.approx(100 * (0.16 / 0.15 - 1), rel=1e-3)
    assert "in work per time and saves" in headline(own, 0.95)
    assert "against sequential on full" in headline(own, 0.95)


def test_equal_jobs_are_counted(tmp_path: Path) -> None:
    twins = Truth(layout="2x1c", placement="mix.twins", workloads={0: "cnn", 1: "cnn"}, step_s=0.15)
    (own,) = job_sets(data_of(tmp_path, [block(1)[0], twins]))
    assert own.title == "twins (2 x cnn) in fp32"
    gain = own.options["2x1c"].known(SPEED)["sequential on full"]
    assert gain.value == pytest.approx(100 / 3, rel=1e-3)


def test_a_missing_side_gives_a_reason_and_no_number(tmp_path: Path) -> None:
    data = data_of(tmp_path, [block(1)[0], pair("2x1c", 0.15)])
    (own,) = job_sets(data)
    assert own.best(SPEED) is None
    assert "distilbert was not run on full in the same repeat" in sentences(own, 0.95)
    figure = charts.build("mixes", data)
    assert figure.empty == "no data because distilbert was not run on full in the same repeat"
    nothing = charts.build("mixes", data_of(tmp_path / "none", [Truth()]))
    assert nothing.empty == (
        "no data because no experiment of the campaign places a mix or a job list"
    )


@pytest.mark.parametrize(
    ("placement", "found"),
    [
        ("mix.pair", MixLabel("pair", None, "partition")),
        ("mix.pair.time-slice", MixLabel("pair", None, "time-slice")),
        ("mix.pair.mps-50-50", MixLabel("pair", None, "mps-50-50")),
        ("mix.list.1of2", MixLabel("list", "1of2", "partition")),
        ("a.solo", None),
        ("a.fill", None),
    ],
)
def test_schemes_are_read_from_labels(placement: str, found: MixLabel | None) -> None:
    assert MixLabel.parse(placement) == found
