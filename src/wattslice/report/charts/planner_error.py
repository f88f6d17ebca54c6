"""How far are the planner's predictions from what was then measured?"""

from __future__ import annotations

from statistics import median

from wattslice.planner.records import Compared, Validation
from wattslice.report.charts.base import Drawing, Empty, FigureData, Row, plain
from wattslice.report.charts.ratio_parts import RatioAxes, ratio_grid
from wattslice.report.job_sets import validated_layouts

PANELS = {
    "throughput": "throughput of each job",
    "progress": "work of all jobs per time",
    "energy_ratio": "energy for the same work",
    "mean_power": "mean power of the board",
}
ROLES = {"best": "predicted best", "random": "drawn at random"}


def draw(data: FigureData) -> Drawing | Empty:
    """Predicted over measured, less 1, with the bounds of the prediction."""
    validation = data.validation
    if validation is None:
        return Empty(
            "no layout that the planner proposes was run; the target validate does so, and the "
            "next run of the workflow shows it here"
        )
    rows = _rows(validation)
    if not rows:
        reasons = {f.reason for run in validation.runs for f in run.figures if f.reason}
        return Empty("; ".join(sorted(reasons)) or "no layout was run")
    axes = RatioAxes(
        x_title="predicted / measured - 1 (%)",
        series_title="layout was",
        series=list(ROLES.values()),
        dataset="planner_error",
        y_title="layout",
        none=0.0,
        number=".3~g",
        panel_lines=True,
    )
    notes = (
        "Lines are the bounds of the prediction: they cross 0 where the measured median is inside",
        "Small marks are the repeats",
    )
    return ratio_grid(rows, axes, notes, (error_sentence(validation),))


def error_sentence(validation: Validation) -> str:
    """The errors of all runs, and whether the best layout was found."""
    parts = [
        f"{PANELS[each.name]} {100 * each.median_abs_error:.3g} % in the median, "
        f"{100 * each.largest_abs_error:.3g} % at most ({each.inside} of {each.n} within bounds)"
        for each in validation.summary
    ]
    best = {
        True: "The layout that was predicted best was the best of those that were run",
        False: "The layout that was predicted best was not the best of those that were run",
        None: "Whether the best layout was found cannot be told from these runs",
    }[validation.best_is_best]
    return (
        f"Over {len(validation.runs)} runs of layouts for {' + '.join(validation.jobs)}, the "
        f"planner was off in {'; '.join(parts)}. {best}."
    )


def _rows(validation: Validation) -> list[Row]:
    """Per layout and figure a `median` row over repeats, and a `pair` row for each repeat."""
    rows: list[Row] = []
    for label, runs in validated_layouts(validation).items():
        groups: dict[tuple[str, str], list[Compared]] = {}
        for figure in (figure for run in runs for figure in run.figures):
            if figure.error is not None:
                key = (PANELS[figure.name], _line(label, figure))
                groups.setdefault(key, []).append(figure)
        for (panel, line), repeats in groups.items():
            labels = {"panel": panel, "line": line, "series": ROLES[runs[0].role]}
            rows += [labels | row for row in _marks(repeats)]
    return rows


def _marks(repeats: list[Compared]) -> list[Row]:
    first = repeats[0]
    measured = median(figure.measured or 0.0 for figure in repeats)
    ends = {"ratio": first.predicted, "low": first.low, "high": first.high}
    middle = {name: plain(100 * (value / measured - 1.0)) for name, value in ends.items()}
    pairs = [
        {"role": "pair", "ratio": plain(100 * (figure.error or 0.0)), "block": f"repeat {number}"}
        for number, figure in enumerate(repeats, start=1)
    ]
    return [{"role": "median", "n": len(repeats), **middle}, *pairs]


def _line(label: str, figure: Compared) -> str:
    if figure.workload is None:
        return label
    return f"{label.partition(':')[0]}, {figure.workload} on {figure.slice}"
