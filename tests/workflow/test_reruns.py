"""What is repeated after which change, and what is not."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from workflow.conftest import TINY, Clone, make_clone

# The crate holds a copy of the code, so that it follows every edit.
LAST = {"crate", "manifest"}
FIGURES = {"figures", "report", *LAST}
# `aggregate` and what follows see new records, `metrics` are made anew for each.
MEASURING = {"train", "metrics", "aggregate", "analyse", "figures", "report"}


def _append(path: Path, text: str = "\n# edited\n") -> None:
    path.write_text(path.read_text() + text)


def _touch_sources(clone: Clone) -> None:
    for path in clone.folder.rglob("*"):
        if path.is_file() and not {"results", ".snakemake", ".git"} & set(path.parts):
            os.utime(path)


def test_a_second_call_plans_nothing(finished: Clone) -> None:
    assert finished.planned() == {}


def test_touching_every_source_repeats_nothing(finished: Clone) -> None:
    _touch_sources(finished)
    assert finished.planned() == {}


def test_a_fresh_clone_with_the_results_repeats_nothing(finished: Clone, tmp_path: Path) -> None:
    other = make_clone(tmp_path / "other")
    shutil.copytree(finished.results, other.results)
    _touch_sources(other)
    assert other.planned() == {}


def test_a_moved_folder_repeats_nothing(finished: Clone, tmp_path: Path) -> None:
    moved = Clone(finished.folder.rename(tmp_path / "moved"))
    assert moved.planned() == {}


def test_editing_a_chart_makes_figures_and_report_only(finished: Clone) -> None:
    _append(finished.folder / "src/wattslice/report/charts/__init__.py")
    assert set(finished.planned()) == FIGURES


def test_editing_the_pages_template_makes_the_report_only(finished: Clone) -> None:
    template = next((finished.folder / "src/wattslice/report/templates").glob("*.j2"))
    _append(template, "\n")
    assert set(finished.planned()) == {"report", *LAST}


@pytest.mark.parametrize(
    "module", ["measure/meter.py", "train/loop.py", "workloads/precision.py", "boards/cpu/rapl.py"]
)
def test_editing_what_measures_repeats_every_run(module: str, finished: Clone) -> None:
    _append(finished.folder / "src/wattslice" / module)
    planned = finished.planned()
    assert planned["train"] == 2
    assert set(planned) >= MEASURING


def test_editing_the_energy_formula_repeats_no_run(finished: Clone) -> None:
    _append(finished.folder / "src/wattslice/measure/energy.py")
    planned = finished.planned()
    assert "train" not in planned
    assert planned["metrics"] == 2


def test_changing_one_workload_repeats_its_runs_alone(finished: Clone) -> None:
    finished.configure({**TINY, "workloads": {"cnn": {"batch_size": 8}}})
    assert finished.planned()["train"] == 1


def test_more_repeats_add_only_the_new_runs(finished: Clone) -> None:
    experiment = TINY["experiments"][0] | {"repeats": 2}  # type: ignore[index]
    finished.configure({**TINY, "experiments": [experiment]})
    assert finished.planned()["train"] == 2


def test_a_new_title_repeats_no_run(finished: Clone) -> None:
    finished.configure({**TINY, "title": "Another title"})
    planned = finished.planned()
    assert not {"train", "metrics", "idle"} & set(planned)
    assert "report" in planned


def test_a_deleted_record_repeats_its_run_alone(finished: Clone) -> None:
    next(finished.results.glob("runs/*/*/*/*/run.json")).unlink()
    assert finished.planned()["train"] == 1
