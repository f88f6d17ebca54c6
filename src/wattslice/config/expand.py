"""From experiments to the deduplicated list of runs."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace

from wattslice.config.layout import Layout
from wattslice.config.models import CampaignConfig, ExperimentConfig
from wattslice.config.spec import Assignment, RunSpec


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a campaign: where it lives and what it is."""

    layout: str
    placement: str
    precision: str
    repeat: int
    spec: RunSpec
    experiments: tuple[str, ...]

    @property
    def run_id(self) -> str:
        """Folder of the run below `runs/`."""
        return f"{self.layout}/{self.placement}/{self.precision}/rep{self.repeat}"


def expand(campaign: CampaignConfig) -> list[Run]:
    """All runs, each once: experiments that ask for the same spec share it.

    The order is the one to run them in: by layout, then by repeat (a block), and shuffled inside
    a block, so that a slow drift of the board does not fall on one workload. The shuffle depends
    on the campaign's seed alone.
    """
    runs: dict[str, Run] = {}
    for experiment in campaign.experiments:
        for run in _runs_of(campaign, experiment):
            digest = run.spec.digest()
            known = runs.get(digest)
            if known is None:
                runs[digest] = run
            elif experiment.name not in known.experiments:
                runs[digest] = replace(known, experiments=(*known.experiments, experiment.name))
    layouts = list(dict.fromkeys(run.layout for run in runs.values()))
    return sorted(
        runs.values(),
        key=lambda run: (layouts.index(run.layout), run.repeat, _shuffle(campaign.seed, run)),
    )


def _shuffle(seed: int, run: Run) -> str:
    return hashlib.sha256(f"{seed}/{run.run_id}".encode()).hexdigest()


def _runs_of(campaign: CampaignConfig, experiment: ExperimentConfig) -> Iterator[Run]:
    for text in experiment.layouts:
        layout = Layout.parse(text)
        for placement, workloads in _placements(campaign, experiment, layout):
            assignments = tuple(
                Assignment(slice_index=index, workload=name, definition=definition(campaign, name))
                for index, name in enumerate(workloads)
                if name is not None
            )
            for precision in experiment.precisions:
                for repeat in range(1, experiment.repeats + 1):
                    spec = RunSpec(
                        board=campaign.board.model_dump(mode="json"),
                        layout=str(layout),
                        assignments=assignments,
                        precision=precision,
                        repeat=repeat,
                        seed=campaign.seed + 1000 * repeat,
                        measure=campaign.measure.model_dump(mode="json"),
                    )
                    yield Run(str(layout), placement, precision, repeat, spec, (experiment.name,))


def _placements(
    campaign: CampaignConfig, experiment: ExperimentConfig, layout: Layout
) -> Iterator[tuple[str, tuple[str | None, ...]]]:
    """(label, workload per slice). On a single slice `fill` and `solo` are the same thing."""
    kinds = tuple(dict.fromkeys(layout.slices))
    for placement in experiment.placements:
        if placement in campaign.mixes:
            yield f"mix.{placement}", campaign.mixes[placement]
            continue
        for workload in experiment.workloads:
            if placement == "fill" and len(layout.slices) > 1:
                yield f"{workload}.fill", (workload,) * len(layout.slices)
                continue
            for kind in kinds:
                first = layout.slices.index(kind)
                label = f"{workload}.solo" if len(kinds) == 1 else f"{workload}.solo.{kind}"
                yield (
                    label,
                    tuple(
                        workload if index == first else None for index in range(len(layout.slices))
                    ),
                )


def definition(campaign: CampaignConfig, name: str) -> dict[str, object]:
    """A workload as a run's spec holds it: without its note, its data set in place of the name."""
    workload = campaign.workloads[name]
    fields = workload.model_dump(mode="json", exclude={"note"})
    data = campaign.data[workload.data].model_dump(mode="json")
    return {**fields, "data": data, "data_name": workload.data}
