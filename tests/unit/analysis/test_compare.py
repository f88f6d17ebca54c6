"""Two campaigns side by side, with a known difference between them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from fixtures.records import Truth, make_campaign
from wattslice.analysis.compare import CompareError, compare
from wattslice.cli import main


def campaign(folder: Path, speed: float, seed: int, **changes: object) -> Path:
    rng = np.random.default_rng(seed)
    truths = [
        Truth(
            placement=f"{name}.solo",
            workloads={0: name},
            repeat=k,
            step_s=0.1 / gain * (1 + 0.01 * rng.standard_normal()),
            power_w=40.0 + 0.1 * rng.standard_normal(),
            memory_mib=500.0,
            **changes,  # type: ignore[arg-type]
        )
        for name, gain in (("cnn", speed), ("vit", 1.0))
        for k in range(1, 5)
    ]
    return make_campaign(folder, truths)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("pair")
    return campaign(folder / "a", 1.0, 1), campaign(folder / "b", 1.2, 2, modelled=True)


def test_the_difference_is_found_and_nothing_else(pair: tuple[Path, Path]) -> None:
    found = compare(*pair)
    changes = {(c.workload, c.figure): c for c in found.changes}
    speed = changes["cnn", "throughput_samples_s"]
    assert speed.verdict == "better"
    assert speed.ratio == pytest.approx(1.2, rel=0.02)
    assert speed.low is not None
    assert speed.high is not None
    assert speed.low < 1.2 < speed.high
    assert speed.p is not None
    assert speed.p < 0.01
    assert (speed.n_a, speed.n_b) == (4, 4)
    assert changes["vit", "throughput_samples_s"].verdict == "no difference shown"
    assert changes["cnn", "peak_memory_mib"].verdict == "no difference shown"
    assert changes["cnn", "samples_per_j"].modelled
    assert not speed.modelled
    assert {c.workload for c in found.significant} == {"cnn"}


def test_swapped_it_is_worse_by_the_inverse(pair: tuple[Path, Path]) -> None:
    there, back = compare(*pair), compare(*reversed(pair))
    one, other = there.changes[0], back.changes[0]
    assert one.ratio == pytest.approx(1 / (other.ratio or 0))
    assert {c.verdict for c in back.significant} == {"worse"}


def test_command(
    pair: tuple[Path, Path], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    a, b = map(str, pair)
    page = tmp_path / "compare.html"
    assert main(["compare", a, b, "--html", str(page)]) == 0
    printed = capsys.readouterr().out
    assert "2 of 8 figures differ at 95 %" in printed
    assert "better (modelled, not measured)" in printed
    html = page.read_text()
    assert "2 of 8 figures differ" in html
    assert "modelled, not measured" in html
    assert "src=" not in html
    assert main(["compare", a, b, "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert content["schema_version"] == 1
    assert len(content["changes"]) == 8
    assert main(["compare", b, a, "--check"]) == 1
    assert main(["compare", a, b, "--check"]) == 0


def test_wrong_usage(
    pair: tuple[Path, Path], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["compare", str(pair[0]), str(tmp_path)]) == 2
    assert "has no tables/cells.parquet" in capsys.readouterr().err
    assert main(["compare", *map(str, pair), "--confidence", "95"]) == 2
    with pytest.raises(CompareError):
        compare(tmp_path, pair[0])


def test_nothing_in_common(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a = make_campaign(tmp_path / "a", [Truth()])
    b = make_campaign(tmp_path / "b", [Truth(precision="bf16")])
    assert main(["compare", str(a), str(b)]) == 1
    assert "no cell in common" in capsys.readouterr().err
    found = compare(a, b)
    assert (len(found.only_a), len(found.only_b)) == (1, 1)
