"""Every number of a campaign traces back, and every changed byte is found."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from wattslice.cli import main
from wattslice.files import write_json
from wattslice.provenance.manifest import (
    CRATE,
    MANIFEST,
    Manifest,
    campaign_files,
    entries,
    read_manifest,
    write_manifest,
)
from wattslice.provenance.start import read_starts
from wattslice.provenance.trace import trace
from wattslice.provenance.tree import Node
from wattslice.provenance.verify import verify
from workflow.conftest import REPOSITORY, Clone

TABLES = ("runs", "slices", "attribution", "cells", "summary")


@pytest.fixture(scope="module")
def campaign(finished_once: Clone) -> Path:
    return finished_once.results


@pytest.fixture
def copy(campaign: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(campaign, tmp_path / "results" / "tiny"))


def _labels(node: Node) -> set[str]:
    return {node.label}.union(*(_labels(child) for child in node.children), set())


# --- trace ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["csv", "parquet"])
@pytest.mark.parametrize("table", TABLES)
def test_every_row_of_every_table_is_made_again_from_raw_samples(
    table: str, kind: str, campaign: Path
) -> None:
    for row in range(len(pd.read_parquet(campaign / "tables" / f"{table}.parquet"))):
        node = trace(f"{campaign}/tables/{table}.{kind}#{row}")
        assert node.holds(), list(node.failures())
        labels = _labels(node)
        assert "made again from raw samples" in labels
        assert {"spec", "config", "code", "environment", "board", "meter"} <= labels
        assert any(label.endswith("power.parquet") for label in labels)
        assert any(label.endswith("steps.parquet") for label in labels)


def test_figures_are_drawn_again_from_raw_samples(campaign: Path) -> None:
    figures = sorted((campaign / "figures").iterdir())
    for path in random.Random(8).sample(figures, 5):
        node = trace(str(path))
        assert node.holds(), list(node.failures())
        again = [child for child in node.children if child.label.startswith("drawn again")]
        assert [child.state for child in again] == ["ok"]


def test_a_row_is_found_by_its_values(campaign: Path) -> None:
    node = trace(f"{campaign}/tables/runs.parquet?workload=distilbert&precision=fp32&repeat=1")
    assert node.holds()
    assert [c.label for c in node.children if c.label.startswith("row")] == ["row 1"]


def test_a_number_of_the_report_leads_to_its_runs(campaign: Path) -> None:
    summary = pd.read_parquet(campaign / "tables" / "summary.parquet")
    from wattslice.report.numbers import number

    said = number(float(summary["throughput_samples_s"].iloc[0]))
    node = trace(f"{campaign}/report/index.html#{said}")
    assert node.holds(), list(node.failures())
    sources = next(child for child in node.children if child.label == "sources")
    assert any("throughput_samples_s" in child.label for child in sources.children)
    assert any(child.label.startswith("run ") for child in node.children)


def test_a_run_leads_to_config_code_and_how_it_was_started(campaign: Path) -> None:
    run = next(campaign.glob("runs/*/*/*/*/run.json")).parent
    node = trace(str(run))
    assert node.holds()
    child = next(child for child in node.children if child.label.startswith("run "))
    by_label = {grandchild.label: grandchild for grandchild in child.children}
    assert "workloads." in by_label["config"].text
    assert any("files give this digest" in c.text for c in by_label["code"].children)
    assert any("same measuring code" in c.text for c in by_label["code"].children)
    started = next(c for c in node.children if c.label == "campaign").children[-1]
    assert "snakemake" in started.text


def test_ratios_and_claims_are_traced_by_name_and_by_place(campaign: Path) -> None:
    content = json.loads((campaign / "analysis" / "claims.json").read_text())
    first = content["claims"][0]["id"]
    for target in (f"claims.json#{first}", "claims.json#0", "ratios.json"):
        node = trace(f"{campaign}/analysis/{target}")
        assert node.holds(), list(node.failures())


WRONG = {
    "tables/runs.csv#99": "no row '99'",
    "tables/runs.csv?model=x": "no column 'model'",
    "tables/runs.csv?workload=nothing": "no row with workload = nothing",
    "analysis/claims.json#nothing": "no entry 'nothing'",
    "runs": "is no run of the campaign",
    "campaign.json": "nothing that can be traced",
    "report/index.html#123456789": "does not say",
}


@pytest.mark.parametrize("target", WRONG)
def test_what_cannot_be_traced_says_why(
    target: str, campaign: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["trace", f"{campaign}/{target}"]) == 2
    assert WRONG[target] in capsys.readouterr().err


def test_a_path_outside_of_a_campaign_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["trace", str(tmp_path)]) == 2
    assert "campaign.json" in capsys.readouterr().err
    assert main(["verify", str(tmp_path)]) == 2
    assert main(["trace", str(tmp_path / "nothing")]) == 2


def test_json_and_exit_codes(campaign: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trace", "--json", f"{campaign}/tables/summary.csv#0"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["holds"] is True
    assert main(["verify", "--json", "--digests-only", str(campaign)]) == 0
    assert json.loads(capsys.readouterr().out)["holds"] is True


# --- verify --------------------------------------------------------------------------------------


def test_a_whole_campaign_holds(campaign: Path) -> None:
    node = verify(campaign)
    assert node.holds(), list(node.failures())
    made = next(child for child in node.children if child.label == "made again from raw samples")
    assert {child.label for child in made.children} == {
        "tables/",
        "analysis/",
        "figures/",
        "report/",
    }
    assert {child.state for child in made.children} == {"ok"}


def test_a_flipped_byte_in_any_file_is_found_and_the_file_is_named(copy: Path) -> None:
    chance = random.Random(8)
    listed = list(read_manifest(copy / MANIFEST).files)
    code = [name for name in listed if name.startswith("code/")]
    files = [name for name in listed if name not in code] + chance.sample(code, 8) + [MANIFEST]
    assert {"campaign.json", CRATE, "inventory.json"} <= set(files)
    for name in files:
        path = copy / name
        data = path.read_bytes()
        if not data:
            continue
        place = chance.randrange(len(data))
        path.write_bytes(data[:place] + bytes([data[place] ^ 0x01]) + data[place + 1 :])
        failures = list(verify(copy, again=False).failures())
        path.write_bytes(data)
        assert [name] == sorted({failure.label for failure in failures}), (name, place)
    assert verify(copy, again=False).holds()


@pytest.mark.parametrize("flip", [0x01, 0x20, 0x80])
def test_any_byte_of_the_manifest_counts(flip: int, copy: Path) -> None:
    """Also a space that becomes another character that JSON does not see."""
    path = copy / MANIFEST
    data = path.read_bytes()
    for place in range(0, len(data), 997):
        path.write_bytes(data[:place] + bytes([data[place] ^ flip]) + data[place + 1 :])
        assert [f.label for f in verify(copy, again=False).failures()] == [MANIFEST]
    path.write_bytes(data.replace(b"\n", b"\r\n", 1))
    assert not verify(copy, again=False).holds()


def test_a_missing_file_is_named(copy: Path) -> None:
    (copy / "tables" / "runs.csv").unlink()
    assert [f.label for f in verify(copy).failures()] == ["tables/runs.csv"]


def _edit_json(path: Path, edit: Callable[[dict[str, Any]], None]) -> None:
    content = json.loads(path.read_text())
    edit(content)
    write_json(path, content)


def _seal(folder: Path) -> None:
    """What somebody would do who covers a change."""
    old = read_manifest(folder / MANIFEST)
    files = entries(folder, campaign_files(folder))
    again = Manifest(kind=old.kind, campaign=old.campaign, wattslice=old.wattslice, files=files)
    write_manifest(folder / MANIFEST, again)


def test_a_number_that_was_changed_together_with_the_manifest_is_found(copy: Path) -> None:
    path = next(copy.glob("runs/*/*/*/*/metrics.json"))
    _edit_json(path, lambda content: content["throughput_samples_s"].update(value=1e6))
    _seal(copy)
    assert verify(copy, again=False).holds()
    failures = [f"{f.label} {f.text}" for f in verify(copy).failures()]
    assert any("metrics.json" in text and "throughput_samples_s" in text for text in failures)


def test_a_table_and_a_figure_that_were_changed_together_with_the_manifest_are_found(
    copy: Path,
) -> None:
    table, figure = copy / "tables" / "summary.csv", copy / "figures" / "throughput.svg"
    table.write_text(table.read_text().replace("cnn", "cnm", 1))
    figure.write_text(figure.read_text().replace("</svg>", "<g></g></svg>"))
    _seal(copy)
    failures = {failure.label for failure in verify(copy).failures()}
    assert {"tables/summary.csv", "figures/throughput.svg"} <= failures
    assert main(["trace", str(figure)]) == 1
    assert main(["trace", f"{table}#0"]) == 1


@pytest.mark.parametrize(
    ("key", "label"),
    [("spec", "spec"), ("environment", "environment"), ("code_digest", "code")],
)
def test_digests_inside_of_a_record_are_checked(key: str, label: str, copy: Path) -> None:
    path = next(copy.glob("runs/*/*/*/*/run.json"))

    def edit(content: dict[str, Any]) -> None:
        if key == "code_digest":
            content[key] = "0" * 64
        else:
            content[key]["seed" if key == "spec" else "python"] = 0

    _edit_json(path, edit)
    _seal(copy)
    assert label in {failure.label for failure in verify(copy, again=False).failures()}


def test_results_that_other_code_made_are_told_apart(copy: Path) -> None:
    """The copy of the code stands for a campaign of an older version."""
    older = copy / "code" / "src" / "wattslice" / "report" / "html.py"
    older.write_text(older.read_text() + "# older")
    page = copy / "report" / "index.html"
    page.write_text(page.read_text() + "<!-- older -->")
    _seal(copy)
    node = verify(copy)
    assert [failure.label for failure in node.failures()] == ["report/index.html"]
    assert "wattslice/report/html.py" in node.children[-1].text


# --- starts and crate ----------------------------------------------------------------------------


def test_a_start_says_with_what_the_campaign_was_started(campaign: Path) -> None:
    (start,) = read_starts(campaign).values()
    assert "--configfile" in start.argv
    assert start.git["commit"]
    names = [file.name for file in start.config_files]
    assert "config/config.yaml" in names
    assert any(name.endswith("tiny.yaml") for name in names)
    content = json.loads((campaign / "campaign.json").read_text())
    assert start.config_digest == content["config_digest"]
    assert start.train_code.holds()
    assert {row["code_digest"] for row in content["runs"]} == {start.train_code.digest}
    assert start.environment["packages"]
    assert start.host["cpus"]


def _validate(crate: Path, severity: str = "REQUIRED") -> dict[str, Any]:
    """Validate with the tools of envs/requirements-crate.txt, which `make` installs apart."""
    subprocess.run(["make", "--silent", "crate-tools"], cwd=REPOSITORY, check=True)
    done = subprocess.run(
        [
            REPOSITORY / ".venv" / "crate" / "bin" / "python",
            REPOSITORY / "tests" / "fixtures" / "crate" / "validate.py",
            crate,
            "provenance-run-crate",
            severity,
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    found = json.loads(done.stdout)
    assert isinstance(found, dict)
    return found


def test_the_crate_passes_all_required_checks_offline(campaign: Path) -> None:
    found = _validate(campaign)
    assert found["issues"] == []
    assert found["passed"]
    assert found["checks"] >= 91
    assert len(found["contexts"]) == 2


def test_the_validation_finds_a_fault(copy: Path) -> None:
    def edit(content: dict[str, Any]) -> None:
        for entity in content["@graph"]:
            if entity["@id"] == "#organize":
                del entity["instrument"]

    _edit_json(copy / CRATE, edit)
    found = _validate(copy)
    assert not found["passed"]
    assert any("OrganizeAction" in issue for issue in found["issues"])


def test_the_crate_can_be_read_by_runcrate(campaign: Path) -> None:
    subprocess.run(["make", "--silent", "crate-tools"], cwd=REPOSITORY, check=True)
    runcrate = REPOSITORY / ".venv" / "crate" / "bin" / "runcrate"
    done = subprocess.run(
        [runcrate, "report", campaign], capture_output=True, text=True, check=True
    )
    actions = done.stdout.count("\naction: ") + done.stdout.startswith("action: ")
    assert actions >= 11
    assert "step: code/Snakefile#train" in done.stdout


def test_the_crate_holds_licence_citation_and_what_runs_took(campaign: Path) -> None:
    graph = json.loads((campaign / CRATE).read_text())["@graph"]
    by_id = {entity["@id"]: entity for entity in graph}
    parts = {part["@id"] for part in by_id["./"]["hasPart"]}
    assert {"code/LICENSE", "code/CITATION.cff", "code/Snakefile", MANIFEST} <= parts
    for name in parts:
        assert (campaign / name).exists(), name
    trains = [e for e in graph if str(e.get("name", "")).startswith("train full/")]
    assert len(trains) == 2
    for action in trains:
        usage = [by_id[item["@id"]] for item in action["resourceUsage"]]
        assert {entry["unitText"] for entry in usage} == {"s", "J"}
        assert "modelled" in next(e for e in usage if e["name"] == "energy")["description"]
        assert any(
            "environment digest" in item["@id"].replace("-", " ")
            for item in action["additionalProperty"]
        )


def test_the_manifest_leaves_out_what_an_older_config_left(finished: Clone) -> None:
    stale = finished.results / "runs" / "full" / "old.solo" / "fp32" / "rep1"
    stale.mkdir(parents=True)
    (stale / "run.json").write_text("{}")
    assert not [name for name in campaign_files(finished.results) if "old.solo" in name]
