"""Which layout is best for jobs that run at once, and what does it gain over which baseline?"""

from __future__ import annotations

import textwrap

from wattslice.report.charts.base import Drawing, Empty, FigureData, Row, plain
from wattslice.report.charts.ratio_parts import RatioAxes, ratio_grid
from wattslice.report.job_sets import MEASURES, Gain, JobSet, headline, job_sets

BEST = "★ "
_HEADING = 38  # characters that a panel's heading has room for


def draw(data: FigureData) -> Drawing | Empty:
    """A panel per set of jobs and measure: layouts down, a mark for each baseline."""
    sets = job_sets(data)
    rows = [row for own in sets for measure in MEASURES for row in _rows(own, measure)]
    if not any(row["role"] == "median" for row in rows):
        return Empty(_why_none(data, sets))
    axes = RatioAxes(
        x_title="gain over the baseline (%)",
        series_title="against",
        series=list(dict.fromkeys(name for own in sets for name in own.baselines())),
        dataset="mixes",
        y_title="layout",
        none=0.0,
        number=".3~g",
        panel_lines=True,
    )
    without = sum(
        gain.value is None
        for own in sets
        for o in own.options.values()
        for gain in o.gains.values()
    )
    return ratio_grid(
        rows,
        axes,
        (
            f"{BEST}best by the first baseline; small marks are the repeats",
            *((f"{without} gains have no value; the table says why",) if without else ()),
        ),
        tuple(headline(own, data.ratios.confidence) for own in sets),
    )


def _rows(own: JobSet, measure: str) -> list[Row]:
    best = own.best(measure)
    heading = [*textwrap.wrap(own.title, _HEADING), f"{measure} (right is better)"]
    rows: list[Row] = []
    for label, option in own.options.items():
        line = (BEST if label == best else "") + label
        for baseline, gain in option.known(measure).items():
            labels = {"panel": " | ".join(heading), "line": line, "series": baseline}
            rows += [labels | row for row in _marks(gain)]
    return rows


def _marks(gain: Gain) -> list[Row]:
    median = {
        "role": "median",
        "ratio": plain(gain.value),
        "low": plain(gain.low),
        "high": plain(gain.high),
        "n": gain.n,
    }
    pairs = [
        {"role": "pair", "ratio": plain(value), "block": block}
        for block, value in gain.by_block.items()
    ]
    return [{key: value for key, value in median.items() if value is not None}, *pairs]


def _why_none(data: FigureData, sets: list[JobSet]) -> str:
    gains = [gain for own in sets for o in own.options.values() for gain in o.gains.values()]
    reasons = sorted({gain.reason for gain in gains if gain.reason is not None})
    if reasons:
        return "; ".join(reasons[:3])
    if (data.tables["runs"]["kind"] == "mix").any():
        return "no job of a mix was run alone on full or 7g, so there is nothing to compare with"
    return "no experiment of the campaign places a mix or a job list"
