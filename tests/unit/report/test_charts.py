"""Every figure builds, has units and labels, and states why where it has no data."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fixtures.records import Truth, campaign_truths, make_campaign, make_validation
from wattslice.report import charts
from wattslice.report.charts.base import (
    MODELLED,
    SIMULATED,
    FigureData,
    load,
    ordered_slots,
    slot_of,
)
from wattslice.report.figure_list import BY_NAME, FIGURES, NAMES
from wattslice.report.figures import page, save, svg, write_figures

CATEGORIES = {
    "workload",
    "layout · placement",
    "layout",
    "layout · placement · precision",
    "workload · precision",
    "slice",
    "check",
    None,
}
# Figures that have something to show of runs that all failed.
DRAWN_ANYWAY = ("outcomes", "oom_map", "quality_matrix")
MIX = Truth(
    layout="2x1c",
    placement="mix.both",
    workloads={0: "cnn", 1: "distilbert"},
    modelled=True,
)


def data_of(results: Path, truths: list[Truth]) -> FigureData:
    folder = make_campaign(results, truths)
    return load(folder / "tables", folder / "analysis", folder / "runs")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> FigureData:
    truths = [*campaign_truths(repeats=2, workloads=("cnn", "distilbert", "albert")), MIX]
    full = data_of(tmp_path_factory.mktemp("full"), truths)
    return replace(full, validation=make_validation())


@pytest.fixture(scope="module")
def failed(tmp_path_factory: pytest.TempPathFactory) -> FigureData:
    truths = [Truth(outcome="oom", reason="needs 12 GiB, has 5", window=None)]
    return data_of(tmp_path_factory.mktemp("failed"), truths)


def encodings(spec: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """All (channel, definition) of a spec, however deep."""
    if isinstance(spec, dict):
        for key, value in spec.items():
            if key == "encoding":
                yield from value.items()
            else:
                yield from encodings(value)
    elif isinstance(spec, list):
        for value in spec:
            yield from encodings(value)


@pytest.mark.parametrize("name", NAMES)
def test_every_axis_has_a_title_with_its_unit(data: FigureData, name: str) -> None:
    figure = charts.build(name, data)
    assert figure.empty is None
    axes = [(c, d) for c, d in encodings(figure.spec) if c in ("x", "y")]
    assert axes
    for channel, definition in axes:
        title = definition.get("title")
        if definition.get("type") == "quantitative" or "datum" in definition:
            assert title.endswith(")"), (channel, definition)
            assert "(" in title
        else:
            assert title in CATEGORIES, (channel, definition)


@pytest.mark.parametrize("name", NAMES)
def test_modelled_energy_is_said_in_the_title(data: FigureData, name: str) -> None:
    figure = charts.build(name, data)
    title = " ".join(figure.spec["title"]["text"])
    assert (MODELLED in title) == BY_NAME[name].energy
    if name in ("throughput", "pareto"):  # drawn as it is written
        assert (MODELLED in svg(figure)) == BY_NAME[name].energy
    assert (MODELLED in figure.alt) == BY_NAME[name].energy
    assert SIMULATED not in title


def test_measured_energy_is_not_called_modelled(tmp_path: Path) -> None:
    measured = data_of(tmp_path, campaign_truths(1, ("cnn",), modelled=False))
    for name in NAMES:
        assert MODELLED not in " ".join(charts.build(name, measured).spec["title"]["text"])
    scope = charts.build("samples_per_joule", measured).spec["title"]["subtitle"]
    assert "Energy scope: package" in scope


def test_simulated_is_said_in_every_title(tmp_path: Path) -> None:
    simulated = data_of(tmp_path, campaign_truths(1, ("cnn",), simulated=True, modelled=False))
    for name in NAMES:
        assert SIMULATED in " ".join(charts.build(name, simulated).spec["title"]["text"]), name


@pytest.mark.parametrize("name", NAMES)
def test_without_data_a_figure_says_why(failed: FigureData, name: str) -> None:
    figure = charts.build(name, failed)
    if name in DRAWN_ANYWAY:
        assert figure.empty is None
        return
    assert figure.empty is not None
    assert figure.empty.startswith("no data because ")
    if name in ("throughput", "samples_per_joule", "peak_memory", "pareto", "power_trace"):
        assert "needs 12 GiB, has 5" in figure.empty
    assert figure.empty in figure.alt


def test_what_failed_is_a_result(failed: FigureData) -> None:
    rows = {name: charts.build(name, failed).datasets for name in DRAWN_ANYWAY}
    assert rows["outcomes"]["outcomes"][0]["label"] == "0/1 oom"
    fits = rows["oom_map"]["memory"][0]
    assert (fits["status"], fits["label"], fits["failed"]) == ("does not fit", "OOM", 1)
    check = rows["quality_matrix"]["quality"][0]
    assert (check["check"], check["status"], check["label"]) == ("outcome", "rejected", "1/1")


def test_an_empty_figure_is_drawn_as_its_reason(failed: FigureData) -> None:
    assert "no data because" in svg(charts.build("throughput", failed))


def test_scaling_is_paired_with_the_whole_board(tmp_path: Path) -> None:
    truths = [
        Truth(step_s=0.1),
        Truth(layout="2x1c", placement="cnn.solo", workloads={0: "cnn"}, step_s=0.16),
        Truth(layout="2x1c", placement="cnn.fill", workloads={0: "cnn", 1: "cnn"}, step_s=0.25),
    ]
    data = data_of(tmp_path, truths)
    rows = [r for r in charts.build("slice_scaling", data).datasets["scaling"] if "state" in r]
    found = {row["state"]: (row["size"], row["throughput"], row["n"]) for row in rows}
    assert found["alone, the rest empty"] == (0.5, pytest.approx(0.625, rel=0.01), 1)
    assert found["all slices busy"] == (0.5, pytest.approx(0.4, rel=0.01), 2)
    predictions = charts.build("prediction", data).datasets["predictions"]
    assert predictions[0]["error"] == pytest.approx(0.16 / 0.25 - 1, rel=0.01)


def test_pareto_front_is_beaten_by_none(data: FigureData) -> None:
    rows = charts.build("pareto", data).datasets["pareto"]
    for row in rows:
        same = [r for r in rows if r["workload"] == row["workload"]]
        beaten = any(r["rate"] > row["rate"] and r["energy"] < row["energy"] for r in same)
        assert not (row["front"] and beaten)
    assert {row["workload"] for row in rows if row["front"]} == {"cnn", "distilbert", "albert"}


def test_no_runs_at_all(tmp_path: Path) -> None:
    nothing = data_of(tmp_path, [])
    for name in NAMES:
        assert (charts.build(name, nothing).empty or "").startswith("no data because")


def test_energy_missing_only(tmp_path: Path) -> None:
    truths = campaign_truths(
        1, ("cnn",), power_w=None, no_energy_reason="RAPL: EACCES", modelled=False
    )
    data = data_of(tmp_path, truths)
    assert charts.build("throughput", data).empty is None
    assert charts.build("samples_per_joule", data).empty == "no data because RAPL: EACCES"
    assert charts.build("power_trace", data).empty == "no data because RAPL: EACCES"
    assert charts.build("partition_gain", data).empty is None


@pytest.mark.parametrize("name", NAMES)
def test_spec_is_the_same_every_time(data: FigureData, name: str) -> None:
    assert charts.build(name, data) == charts.build(name, data)


def test_a_precision_keeps_its_colour(data: FigureData, tmp_path: Path) -> None:
    only = data_of(tmp_path, campaign_truths(1, ("cnn",), precision="bf16"))

    def domain(spec: Any) -> list[str]:
        return next(d["scale"]["domain"] for c, d in encodings(spec) if c == "color")

    both = charts.build("throughput", data).spec
    assert domain(both) == domain(charts.build("throughput", only).spec)


def test_numbers_in_the_figure_are_those_of_the_tables(data: FigureData) -> None:
    summary = data.tables["summary"]
    rows = charts.build("throughput", data).datasets["cells"]
    medians = [row for row in rows if row["role"] == "median"]
    assert len(medians) == len(summary)
    assert [row["throughput_samples_s"] for row in medians] == pytest.approx(
        summary["throughput_samples_s"].tolist(), rel=1e-6
    )


def test_a_workload_without_a_value_has_no_empty_panel(tmp_path: Path) -> None:
    truths = [
        Truth(),
        Truth(placement="vit.solo", workloads={0: "vit"}, outcome="oom", window=None),
    ]
    figure = charts.build("throughput", data_of(tmp_path, truths))
    assert figure.spec["transform"] == [{"filter": {"field": "workload", "oneOf": ["cnn"]}}]
    assert figure.spec["columns"] == 1
    assert "1 of 2 cells have no value; see Outcomes for why" in figure.spec["title"]["subtitle"]


def test_power_trace_has_samples_window_and_idle(data: FigureData) -> None:
    rows = charts.build("power_trace", data).datasets["traces"]
    panels = {row["panel"] for row in rows}
    assert len(panels) == 2
    for panel in panels:
        roles = [row["role"] for row in rows if row["panel"] == panel]
        assert {"sample", "window", "idle"} == set(roles)
    window = next(row for row in rows if row["role"] == "window")
    assert (window["t_s"], window["end_s"]) == pytest.approx((0.0, 10.0))


def test_files_are_made_and_alike(data: FigureData, tmp_path: Path) -> None:
    figure = charts.build("outcomes", data)
    formats = ("html", "svg", "png", "pdf")
    one, other = tmp_path / "a", tmp_path / "b"
    paths = save(figure, one, formats)
    save(figure, other, ("html", "svg", "png"))
    assert [path.suffix for path in paths] == [".html", ".svg", ".png", ".pdf"]
    for kind in ("html", "svg", "png"):
        assert (one / f"outcomes.{kind}").read_bytes() == (other / f"outcomes.{kind}").read_bytes()
    assert (one / "outcomes.pdf").read_bytes().startswith(b"%PDF")
    assert (one / "outcomes.png").read_bytes().startswith(b"\x89PNG")
    assert "<script src" not in page(figure)


def test_unknown_format_and_figure_are_named(data: FigureData, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="'gif' is not one of html, svg, png, pdf"):
        save(charts.build("outcomes", data), tmp_path, ["gif"])
    with pytest.raises(ValueError, match="no figure is named 'nope'; there are: throughput"):
        charts.build("nope", data)


def test_written_set_of_files_is_the_list(tmp_path: Path) -> None:
    folder = make_campaign(tmp_path, campaign_truths(1, ("cnn",)))
    out = tmp_path / "figures"
    charts.write_figures(
        folder / "tables", folder / "analysis", folder / "runs", out, formats=["svg"]
    )
    assert sorted(path.name for path in out.iterdir()) == sorted(f"{n}.svg" for n in NAMES)
    only = write_figures(
        folder / "tables",
        folder / "analysis",
        folder / "runs",
        out,
        ["svg"],
        names=["throughput"],
    )
    assert [path.name for path in only] == ["throughput.svg"]


def python(code: str) -> str:
    """What a fresh interpreter prints."""
    source = str(Path(charts.__file__).parents[3])
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": source},
    )
    return done.stdout.strip()


def test_list_of_figures_costs_no_library() -> None:
    code = (
        "import sys, wattslice.report.figure_list, wattslice.report.charts as c; "
        "assert c.FIGURES; "
        "print([m for m in ('altair', 'pandas', 'vl_convert', 'torch') if m in sys.modules])"
    )
    assert python(code) == "[]"


def test_report_knows_neither_torch_nor_nvml() -> None:
    code = (
        "import sys, wattslice.report.html, wattslice.analysis.metrics; "
        "print([m for m in ('torch', 'pynvml') if m in sys.modules])"
    )
    assert python(code) == "[]"


def test_names_are_files_and_captions() -> None:
    root = Path(__file__).parents[3]
    for figure in FIGURES:
        text = (root / "workflow" / "report" / f"{figure.name}.rst").read_text()
        flat = " ".join(text.split())
        assert figure.title in flat
        assert figure.question in flat
        assert figure.caption in flat
        assert ("modelled, not measured" in flat) == figure.energy


def test_order_of_slots() -> None:
    slots = ["2x1c · fill", "mix · x", "2x1c · solo", "full · solo", "2x1c · mix.a"]
    assert ordered_slots(slots)[:4] == ["full · solo", "2x1c · solo", "2x1c · fill", "2x1c · mix.a"]
    assert slot_of("2x1c", "cnn.solo.1c", "cnn") == "2x1c · solo.1c"
    assert json.dumps(slot_of("full", "mix.a", "cnn"), ensure_ascii=False) == '"full · mix.a"'
