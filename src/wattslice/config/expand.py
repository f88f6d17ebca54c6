"""From experiments to the deduplicated list of runs."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from wattslice.config.layout import Layout
from wattslice.config.models import CampaignConfig, ExperimentConfig
from wattslice.config.spec import Assignment, RunSpec, Sharing


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
        for placement, workloads, sharing in _placements(campaign, experiment, layout):
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
                        measure=spec_measure(campaign),
                        sharing=sharing,
                        parallel="ddp" if placement.endswith(".ddp") else None,
                    )
                    yield Run(str(layout), placement, precision, repeat, spec, (experiment.name,))


def spec_measure(campaign: CampaignConfig) -> dict[str, object]:
    """How to measure; a key that was added later is left out at its default (digests hold)."""
    later = set() if campaign.measure.allow_partial else {"allow_partial"}
    return campaign.measure.model_dump(mode="json", exclude=later)


_Placement = tuple[str, tuple[str | None, ...], Sharing | None]


def _placements(
    campaign: CampaignConfig, experiment: ExperimentConfig, layout: Layout
) -> Iterator[_Placement]:
    """(label, workload per worker, scheme). On a single slice `fill` and `solo` are the same."""
    for placement in experiment.placements:
        if placement in campaign.mixes or placement in campaign.job_lists:
            yield from _jobs_together(campaign, experiment, layout, placement)
            continue
        for workload in experiment.workloads:
            if placement == "ddp":
                yield f"{workload}.ddp", (workload,) * len(layout.slices), None
            elif placement == "fill" and len(layout.slices) > 1:
                yield f"{workload}.fill", (workload,) * len(layout.slices), None
            else:
                yield from _alone(workload, layout)


def _alone(workload: str, layout: Layout) -> Iterator[_Placement]:
    """The workload on one slice of each kind, the others empty."""
    kinds = tuple(dict.fromkeys(layout.slices))
    for kind in kinds:
        first = layout.slices.index(kind)
        label = f"{workload}.solo" if len(kinds) == 1 else f"{workload}.solo.{kind}"
        slices = range(len(layout.slices))
        yield label, tuple(workload if index == first else None for index in slices), None


def _jobs_together(
    campaign: CampaignConfig, experiment: ExperimentConfig, layout: Layout, name: str
) -> Iterator[_Placement]:
    """A mix or a job list under each sharing scheme; baselines bear the scheme in their label."""
    packed = name in campaign.job_lists
    members = campaign.job_lists[name] if packed else campaign.mixes[name]
    jobs = tuple(member for member in members if member is not None)
    for scheme in experiment.sharing:
        if scheme == "partition" and not packed:
            yield f"mix.{name}", members, None
        elif scheme == "partition":
            parts = pack(jobs, len(layout.slices))
            for number, part in enumerate(parts, start=1):
                label = f"mix.{name}" if len(parts) == 1 else f"mix.{name}.{number}of{len(parts)}"
                yield label, part, None
        elif scheme == "sequential":
            # One job after another is each of them alone: the runs are those of `solo`.
            for workload in dict.fromkeys(jobs):
                yield from _alone(workload, layout)
        elif scheme == "time-slice":
            yield f"mix.{name}.time-slice", jobs, Sharing(scheme=scheme)
        else:
            limits = experiment.mps_percentages
            label = "-".join(["mps", *map(str, limits)])
            sharing = Sharing(scheme=scheme, active_thread_percentages=limits or None)
            yield f"mix.{name}.{label}", jobs, sharing


def pack(jobs: Sequence[str], slices: int) -> list[tuple[str | None, ...]]:
    """A job list on the slices of a layout: job i on slice i, in as many parts as are needed."""
    parts = []
    for begin in range(0, len(jobs), slices):
        part = jobs[begin : begin + slices]
        parts.append((*part, *(None,) * (slices - len(part))))
    return parts


def definition(campaign: CampaignConfig, name: str) -> dict[str, object]:
    """A workload as a run's spec holds it: without its note, its data set in place of the name."""
    workload = campaign.workloads[name]
    fields = workload.model_dump(mode="json", exclude={"note"})
    data = campaign.data[workload.data].model_dump(mode="json")
    return {**fields, "data": data, "data_name": workload.data}
