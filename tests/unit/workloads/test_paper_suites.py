"""The suites of both papers: published parameter counts, and every model trains for real."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import pytest
import torch

from wattslice.config.expand import Run, definition, expand
from wattslice.config.load import load_files
from wattslice.config.models import CampaignConfig
from wattslice.train.loop import StepLoop
from wattslice.workloads import precision, registry
from wattslice.workloads.workload import count_parameters

SUITES = {name: Path(f"config/papers/{name}.yaml") for name in ("paper-a", "paper-b")}


@functools.cache
def campaign(suite: str) -> CampaignConfig:
    return load_files([SUITES[suite]])


def cases() -> list[tuple[str, str]]:
    return [(suite, name) for suite in SUITES for name in campaign(suite).workloads]


# Parameters of the model as published, and how many its head adds or the publication leaves out.
PUBLISHED = {
    # torchvision's model tables (docs.pytorch.org/vision/stable/models.html), num_params
    "densenet169": (14_149_480, 0),
    "resnet50": (25_557_032, 0),
    "resnet50-finetune": (25_557_032, 0),
    "vgg16": (138_357_544, 0),
    "efficientnet-b0": (5_288_548, 0),
    # torchvision counts 27,161,264 with the auxiliary classifier; timm's model has none. timm's
    # table (results/results-imagenet.csv) says 23.83 M.
    "inception-v3": (27_161_264, -3_326_696),
    # google-bert/bert-base-uncased (Devlin et al. 2019: 110 M), and 768 x 2 + 2 of a classifier
    "bert-finetune": (109_482_240, 1_538),
    # openai-community/gpt2 and gpt2-xl, tied head; Radford et al. 2019 say 117 M (sic) and 1,542 M
    "gpt2": (124_439_808, 0),
    "gpt2-xl-finetune": (1_557_611_200, 0),
    # and per layer a pair of matrices of rank 8 beside c_attn (1,600 to 4,800)
    "gpt2-xl-lora": (1_557_611_200, 48 * 8 * (1_600 + 4_800)),
    # distilbert/distilbert-base-uncased (Sanh et al. 2019: 66 M), and a classifier of two layers
    "distilbert-base": (66_362_880, 590_592 + 1_538),
    # albert/albert-base-v2 with pooler (Lan et al. 2020: 12 M), and a classifier
    "albert-base": (11_683_584, 1_538),
    "albert-base-6": (11_683_584, 1_538),
    "albert-base-checkpointing": (11_683_584, 1_538),
    "albert-base-gelu": (11_683_584, 1_538),
    # "1.1B" (Zhang et al. 2024); the exact number follows from the published config: 22 layers,
    # width 2048, feed-forward 5632, 32 heads over 4 of keys and values, 32,000 tokens, untied head
    "tinyllama": (1_100_048_384, 0),
}


@pytest.mark.parametrize(("suite", "name"), cases())
def test_parameters_are_those_that_were_published(suite: str, name: str) -> None:
    built = registry.build_model(definition(campaign(suite), name), meta=True)
    model, more = PUBLISHED[name]
    assert count_parameters(built.model) == model + more


def test_paper_a_goes_from_14_million_to_one_and_a_half_billion() -> None:
    counts = [PUBLISHED[name][0] for name in campaign("paper-a").workloads]
    assert 13.5e6 < min(counts) < 14.5e6
    assert 1.45e9 < max(counts) < 1.6e9
    modes = {workload.mode for workload in campaign("paper-a").workloads.values()}
    assert modes == {"train", "finetune"}


@pytest.mark.parametrize("suite", SUITES)
def test_a_suite_is_the_same_alone_and_over_the_default(suite: str) -> None:
    def keys(runs: list[Run]) -> list[str]:
        return [run.spec.digest() for run in runs]

    over = load_files([Path("config/config.yaml"), SUITES[suite]])
    assert keys(expand(over)) == keys(expand(campaign(suite)))


def test_the_suites_ask_for_what_the_papers_compare() -> None:
    a, b = expand(campaign("paper-a")), expand(campaign("paper-b"))
    layouts = {run.layout for run in a}
    assert {"full", "7g", "2x3g", "3x2g", "7x1g", "4g+2g+1g", "3g+2g+2x1g"} == layouts
    assert {run.layout for run in b} == {"full"}
    assert {run.precision for run in b} == {"fp32", "fp32-default", "tf32", "bf16"}
    six = campaign("paper-b").experiments[0]
    assert len(six.workloads) == 6
    four = load_files([SUITES["paper-b"], Path("config/papers/paper-b-four-gpus.yaml")])
    sides = {(run.layout, run.spec.parallel, len(run.spec.assignments)) for run in expand(four)}
    assert sides == {("full", None, 1), ("4xfull", "ddp", 4)}
    assert {e.workloads for e in four.experiments} == {six.workloads}


# Smaller siblings: the same family, task and options at a size that trains in a second.
_BERT = {"hidden_size": 48, "intermediate_size": 96, "num_attention_heads": 2}
SMALLER: dict[str, dict[str, Any]] = {
    "bert": {**_BERT, "num_hidden_layers": 2},
    "albert": {**_BERT, "embedding_size": 16},
    "distilbert": {"dim": 48, "hidden_dim": 96, "n_heads": 2},
    "gpt2": {"n_embd": 48, "n_layer": 2, "n_head": 2},
    "llama": {**_BERT, "num_hidden_layers": 2, "num_key_value_heads": 1},
}


def reduced(full: dict[str, Any]) -> dict[str, Any]:
    """Fewer and shorter samples, and a narrower model where the full one is too large to test."""
    data = {**full["data"], "samples": 4}
    if "sequence_length" in data:
        data["sequence_length"], data["vocabulary"] = 16, 512
    else:
        data["image_size"] = 75 if full["model"] == "inception_v3" else 64
        data["classes"] = 10
    arguments = {**full["model_args"], **SMALLER.get(full["model"], {})}
    if full["model"] == "vgg16":
        # 138 million parameters: without the two states per parameter that AdamW keeps
        full = {**full, "optimizer": {**full["optimizer"], "name": "sgd", "momentum": 0.0}}
    changed = {"data": data, "model_args": arguments, "batch_size": 2, "weights": None}
    return {**full, **changed, "mode": "train"}


@pytest.mark.parametrize("suite", SUITES)
def test_every_model_takes_two_steps(suite: str) -> None:
    done = set()
    for name in campaign(suite).workloads:
        small = reduced(dict(definition(campaign(suite), name)))
        key = (small["model"], str(small.get("adapter")), str(small["model_args"]), str(small))
        if key in done:
            continue
        done.add(key)
        built = registry.build(small, seed=0)
        trained = [p for p in built.model.parameters() if p.requires_grad][:8]
        before = [p.detach().clone() for p in trained]
        with precision.apply("fp32-default", "cpu") as context:
            loop = StepLoop(built, context, torch.device("cpu"))
            loop.step()
            loop.step()
        assert None not in loop.losses(), name
        assert any(not torch.equal(a, b) for a, b in zip(before, trained, strict=True)), name
