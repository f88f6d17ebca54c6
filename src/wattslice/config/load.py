"""From the merged YAML config to a checked campaign."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from wattslice import strict_yaml
from wattslice.config.errors import ConfigError, did_you_mean, explain
from wattslice.config.layout import Layout, LayoutSyntaxError
from wattslice.config.models import (
    CampaignConfig,
    CifarData,
    DigitsData,
    ExperimentConfig,
    ImageFolderData,
    SyntheticImages,
    WorkloadConfig,
)

_KINDS = ("solo", "fill", "ddp")
_IMAGES = DigitsData | SyntheticImages | ImageFolderData | CifarData


def read_yaml(path: Path) -> dict[str, Any]:
    """Read one config file. Raises ConfigError for bad YAML and for duplicated keys."""
    try:
        loaded = strict_yaml.load(path.read_text(encoding="utf-8"))
    except strict_yaml.DuplicateKeyError as error:
        raise ConfigError([f"{path}: {error}"]) from error
    except yaml.YAMLError as error:
        raise ConfigError([f"{path} is not YAML: {error}"]) from error
    if not isinstance(loaded, dict):
        raise ConfigError([f"{path}: the top level must be a mapping, not {type(loaded).__name__}"])
    return loaded


def merge(base: Mapping[str, Any], overlay: Mapping[str, Any]) -> dict[str, Any]:
    """Overlay one config on another as Snakemake does: mappings merge, all else is replaced."""
    merged = dict(base)
    for key, value in overlay.items():
        old = merged.get(key)
        both = isinstance(old, Mapping) and isinstance(value, Mapping)
        merged[key] = merge(old, value) if both else value  # type: ignore[arg-type]
    return merged


def load_files(paths: Iterable[Path]) -> CampaignConfig:
    """Read config files, later ones over earlier ones, and check the result."""
    merged: dict[str, Any] = {}
    for path in paths:
        merged = merge(merged, read_yaml(path))
    return load_campaign(merged)


def load_campaign(raw: Mapping[str, Any]) -> CampaignConfig:
    """Check a merged config. Raises ConfigError listing every problem."""
    try:
        campaign = CampaignConfig.model_validate(raw)
    except ValidationError as error:
        raise explain(error, CampaignConfig) from error
    problems = [*_workload_problems(campaign), *_experiment_problems(campaign)]
    if problems:
        raise ConfigError(problems)
    return campaign


def _workload_problems(campaign: CampaignConfig) -> Iterable[str]:
    for name, workload in campaign.workloads.items():
        where = f"config key 'workloads.{name}"
        data = campaign.data.get(workload.data)
        if data is None:
            hint = did_you_mean(workload.data, campaign.data)
            yield f"{where}.data': value {workload.data!r} is not a data set; {hint}"
        elif isinstance(data, _IMAGES) != _wants_images(workload):
            wants = "images" if _wants_images(workload) else "text or tokens"
            yield (
                f"{where}.data': value {workload.data!r} (kind {data.kind}) does not fit the task "
                f"{workload.task!r}, which trains on {wants}"
            )
        if workload.mode == "finetune" and workload.weights is None:
            yield f"{where}.weights' is missing: mode finetune starts from pretrained weights"
        if workload.framework == "timm" and not _wants_images(workload):
            yield (
                f"{where}.task': value {workload.task!r} is not one that timm models train on; "
                "valid: image-classification"
            )
        yield from _option_problems(where, workload)


def _option_problems(where: str, workload: WorkloadConfig) -> Iterable[str]:
    yield from _batch_problems(where, workload)
    if workload.adapter is not None and workload.framework != "transformers":
        yield f"{where}.adapter': adapters are for transformers models"
    if workload.memory_format == "channels_last" and not _wants_images(workload):
        yield f"{where}.memory_format': value 'channels_last' is for image models"
    if workload.optimizer.fused and workload.optimizer.foreach:
        yield f"{where}.optimizer': fused and foreach cannot both be true"


def _batch_problems(where: str, workload: WorkloadConfig) -> Iterable[str]:
    parts, search = workload.gradient_accumulation_steps, workload.batch_search
    if workload.batch_size != "auto":
        if workload.batch_size % parts:
            yield (
                f"{where}.gradient_accumulation_steps': value {parts} does not divide the "
                f"batch_size {workload.batch_size}"
            )
        if search is not None:
            yield f"{where}.batch_search' is for batch_size: auto, not {workload.batch_size}"
    elif search is not None and search.max < max(search.min, parts):
        yield (
            f"{where}.batch_search.max': value {search.max} is below the smallest batch, "
            f"{max(search.min, parts)}"
        )


def _wants_images(workload: WorkloadConfig) -> bool:
    return workload.task == "image-classification"


def _experiment_problems(campaign: CampaignConfig) -> Iterable[str]:
    names = Counter(experiment.name for experiment in campaign.experiments)
    for name, count in names.items():
        if count > 1:
            yield f"config key 'experiments': the name {name!r} is given {count} times"
    yield from _job_problems(campaign)
    for index, experiment in enumerate(campaign.experiments):
        yield from _one_experiment(f"experiments[{index}]", experiment, campaign)


def _job_problems(campaign: CampaignConfig) -> Iterable[str]:
    """Names in mixes, job lists and the plan."""
    for mix, members in campaign.mixes.items():
        for workload in members:
            if workload is not None and workload not in campaign.workloads:
                hint = did_you_mean(workload, campaign.workloads)
                yield f"config key 'mixes.{mix}': {workload!r} is not a workload; {hint}"
        if all(member is None for member in members):
            yield f"config key 'mixes.{mix}': at least one slice must have a workload"
    for name, jobs in campaign.job_lists.items():
        if name in campaign.mixes or name in _KINDS:
            yield f"config key 'job_lists.{name}': the name is taken"
        if not jobs:
            yield f"config key 'job_lists.{name}' is empty"
        for workload in jobs:
            if workload not in campaign.workloads:
                hint = did_you_mean(workload, campaign.workloads)
                yield f"config key 'job_lists.{name}': {workload!r} is not a workload; {hint}"
    for workload in campaign.plan.jobs:
        if workload not in campaign.workloads:
            hint = did_you_mean(workload, campaign.workloads)
            yield f"config key 'plan.jobs': {workload!r} is not a workload; {hint}"


def _one_experiment(
    where: str, experiment: ExperimentConfig, campaign: CampaignConfig
) -> Iterable[str]:
    layouts: list[Layout] = []
    for text in experiment.layouts:
        try:
            layouts.append(Layout.parse(text))
        except LayoutSyntaxError as error:
            yield f"config key '{where}.layouts': {error}"
    yield from _repeats(where, experiment, layouts)
    for workload in experiment.workloads:
        if workload not in campaign.workloads:
            hint = did_you_mean(workload, campaign.workloads)
            yield f"config key '{where}.workloads': value {workload!r} is unknown; {hint}"
    for placement in experiment.placements:
        if placement in _KINDS:
            if not experiment.workloads:
                yield f"config key '{where}.workloads' is empty, but {placement!r} needs some"
        else:
            yield from _mix_problems(where, placement, layouts, campaign, experiment)
    yield from _sharing_problems(where, experiment, campaign)
    for layout in layouts:
        yield from _several_boards_problems(where, layout, experiment, campaign)


def _repeats(where: str, experiment: ExperimentConfig, layouts: Iterable[Layout]) -> Iterable[str]:
    lists: dict[str, Iterable[str]] = {
        "layouts": map(str, layouts),
        "workloads": experiment.workloads,
        "precisions": experiment.precisions,
        "placements": experiment.placements,
        "sharing": experiment.sharing,
    }
    for key, values in lists.items():
        for value, count in Counter(values).items():
            if count > 1:
                yield f"config key '{where}.{key}': {value!r} is given {count} times"


def _several_boards_problems(
    where: str, layout: Layout, experiment: ExperimentConfig, campaign: CampaignConfig
) -> Iterable[str]:
    if layout.boards == 1:
        return
    other = [placement for placement in experiment.placements if placement != "ddp"]
    if other:
        yield (
            f"config key '{where}.placements': {', '.join(other)} is of one board, but the layout "
            f"{layout} has {layout.boards}; valid: ddp"
        )
    select = campaign.board.select
    named = 1 if isinstance(select, str) else len(select or ())
    if campaign.board.kind == "cpu":
        yield f"config key '{where}.layouts': {layout} is of several boards, and the CPU is one"
    elif named < layout.boards:
        yield (
            f"config key 'board.select' names {named} board(s), but the layout {layout} of "
            f"'{where}.layouts' has {layout.boards}; list as many, by UUID or PCI address"
        )


def _jobs_of(experiment: ExperimentConfig, campaign: CampaignConfig) -> Iterable[str]:
    """Workloads of the mixes and job lists of an experiment, each once."""
    placed = [{**campaign.mixes, **campaign.job_lists}.get(p, ()) for p in experiment.placements]
    return dict.fromkeys(name for jobs in placed for name in jobs if name is not None)


def _sharing_problems(
    where: str, experiment: ExperimentConfig, campaign: CampaignConfig
) -> Iterable[str]:
    if set(experiment.sharing) != {"partition"} and {*_KINDS} & set(experiment.placements):
        yield (
            f"config key '{where}.sharing': {', '.join(experiment.sharing)} is for mixes and job "
            "lists; take solo and fill into an experiment of their own"
        )
    if set(experiment.sharing) & {"time-slice", "mps"}:
        for name in _jobs_of(experiment, campaign):
            workload = campaign.workloads.get(name)
            if workload is not None and workload.batch_size == "auto":
                yield (
                    f"config key 'workloads.{name}.batch_size': value 'auto' has no meaning where "
                    f"jobs share one memory ('{where}.sharing'); give a number"
                )
    if experiment.mps_percentages and "mps" not in experiment.sharing:
        yield f"config key '{where}.mps_percentages' is given, but 'sharing' has no 'mps'"


def _mix_problems(
    where: str,
    mix: str,
    layouts: Iterable[Layout],
    campaign: CampaignConfig,
    experiment: ExperimentConfig,
) -> Iterable[str]:
    members: tuple[str | None, ...] | None = campaign.mixes.get(mix)
    jobs = campaign.job_lists.get(mix, members)
    if jobs is None:
        known = [*_KINDS, *campaign.mixes, *campaign.job_lists]
        hint = did_you_mean(mix, known)
        yield f"config key '{where}.placements': value {mix!r} is unknown; {hint}"
        return
    limits, count = experiment.mps_percentages, sum(job is not None for job in jobs)
    if limits and len(limits) != count:
        yield (
            f"config key '{where}.mps_percentages' has {len(limits)} values, but {mix!r} has "
            f"{count} jobs"
        )
    shared = [scheme for scheme in experiment.sharing if scheme != "partition"]
    for layout in layouts:
        if shared and len(layout.slices) != 1:
            yield (
                f"config key '{where}.sharing': {', '.join(shared)} shares one slice, such as full "
                f"or 7g, but the layout {layout} has {len(layout.slices)}"
            )
    if members is None or "partition" not in experiment.sharing:
        return
    where = f"{where}.placements"
    for layout in layouts:
        if len(members) != len(layout.slices):
            yield (
                f"config key '{where}': the mix {mix!r} names {len(members)} slices, but the "
                f"layout {layout} has {len(layout.slices)}"
            )
