"""From the merged YAML config to a checked campaign."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from wattslice.config.errors import ConfigError, did_you_mean, explain
from wattslice.config.layout import Layout, LayoutSyntaxError
from wattslice.config.models import (
    CampaignConfig,
    DigitsData,
    ExperimentConfig,
    SyntheticImages,
    WorkloadConfig,
)


class _StrictLoader(yaml.SafeLoader):
    """YAML loader that refuses a key given twice (PyYAML keeps the last one silently)."""


def _unique_mapping(loader: _StrictLoader, node: yaml.MappingNode) -> dict[Any, Any]:
    loader.flatten_mapping(node)
    counts = Counter(loader.construct_object(key) for key, _ in node.value)
    twice = [str(key) for key, n in counts.items() if n > 1]
    if twice:
        line = node.start_mark.line + 1
        raise ConfigError(
            [
                f"{node.start_mark.name}: key {key!r} is given twice (mapping at line {line})"
                for key in twice
            ]
        )
    return {
        loader.construct_object(key, deep=True): loader.construct_object(value, deep=True)
        for key, value in node.value
    }


_StrictLoader.add_constructor("tag:yaml.org,2002:map", _unique_mapping)


def read_yaml(path: Path) -> dict[str, Any]:
    """Read one config file. Raises ConfigError for bad YAML and for duplicated keys."""
    try:
        with path.open(encoding="utf-8") as handle:
            loaded = yaml.load(handle, Loader=_StrictLoader)
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
        elif isinstance(data, DigitsData | SyntheticImages) != _wants_images(workload):
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


def _wants_images(workload: WorkloadConfig) -> bool:
    return workload.task == "image-classification"


def _experiment_problems(campaign: CampaignConfig) -> Iterable[str]:
    names = Counter(experiment.name for experiment in campaign.experiments)
    for name, count in names.items():
        if count > 1:
            yield f"config key 'experiments': the name {name!r} is given {count} times"
    for mix, members in campaign.mixes.items():
        for workload in members:
            if workload is not None and workload not in campaign.workloads:
                hint = did_you_mean(workload, campaign.workloads)
                yield f"config key 'mixes.{mix}': {workload!r} is not a workload; {hint}"
        if all(member is None for member in members):
            yield f"config key 'mixes.{mix}': at least one slice must have a workload"
    for index, experiment in enumerate(campaign.experiments):
        yield from _one_experiment(f"experiments[{index}]", experiment, campaign)


def _one_experiment(
    where: str, experiment: ExperimentConfig, campaign: CampaignConfig
) -> Iterable[str]:
    layouts: list[Layout] = []
    for text in experiment.layouts:
        try:
            layouts.append(Layout.parse(text))
        except LayoutSyntaxError as error:
            yield f"config key '{where}.layouts': {error}"
    lists: dict[str, Iterable[str]] = {
        "layouts": map(str, layouts),
        "workloads": experiment.workloads,
        "precisions": experiment.precisions,
        "placements": experiment.placements,
    }
    for key, values in lists.items():
        for value, count in Counter(values).items():
            if count > 1:
                yield f"config key '{where}.{key}': {value!r} is given {count} times"
    for workload in experiment.workloads:
        if workload not in campaign.workloads:
            hint = did_you_mean(workload, campaign.workloads)
            yield f"config key '{where}.workloads': value {workload!r} is unknown; {hint}"
    for placement in experiment.placements:
        if placement in ("solo", "fill"):
            if not experiment.workloads:
                yield f"config key '{where}.workloads' is empty, but {placement!r} needs some"
        else:
            yield from _mix_problems(f"{where}.placements", placement, layouts, campaign)


def _mix_problems(
    where: str, mix: str, layouts: Iterable[Layout], campaign: CampaignConfig
) -> Iterable[str]:
    members = campaign.mixes.get(mix)
    if members is None:
        hint = did_you_mean(mix, ["solo", "fill", *campaign.mixes])
        yield f"config key '{where}': value {mix!r} is unknown; {hint}"
        return
    for layout in layouts:
        if len(members) != len(layout.slices):
            yield (
                f"config key '{where}': the mix {mix!r} names {len(members)} slices, but the "
                f"layout {layout} has {len(layout.slices)}"
            )
