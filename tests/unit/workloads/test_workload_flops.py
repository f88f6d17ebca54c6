"""Operations per sample: published numbers, and ALBERT's two layers for DistilBERT's one."""

from __future__ import annotations

import pytest
import torch

from unit.workloads.definitions import SMALL, TINY_GPT2, images, tokens, workload
from wattslice.records.run import MemoryBreakdown
from wattslice.train.loop import StepLoop
from wattslice.workloads import data, precision, registry
from wattslice.workloads.catalogue import catalogue
from wattslice.workloads.flops import forward_flops

CPU = torch.device("cpu")


def flops(definition):
    built = registry.build_model(definition, meta=True)
    return forward_flops(built, data.shape_of(definition["data"]), definition["task"])


def test_resnet50_has_the_published_operations():
    # 4.09 GMAC: torchvision's table of ResNet50_Weights (GFLOPS there are multiply-adds)
    found = flops(workload("resnet50", "image-classification", images(224)))
    assert found / 2e9 == pytest.approx(4.09, abs=0.005)


def test_albert_base_computes_exactly_twice_distilberts_encoder():
    def albert(layers):
        args = {"hidden_size": 768, "intermediate_size": 3072, "num_attention_heads": 12}
        return flops(
            workload(
                "albert",
                "text-classification",
                tokens(30000),
                model_args={**args, "num_hidden_layers": layers},
            )
        )

    def distilbert(layers):
        args = {"n_layers": layers}
        return flops(workload("distilbert", "text-classification", tokens(30522), model_args=args))

    twelve = 2 * (albert(12) - albert(6))
    six = 2 * (distilbert(6) - distilbert(3))
    assert twelve == 2 * six
    assert albert(12) / distilbert(6) == pytest.approx(2.0, abs=0.005)  # with embeddings and head


@pytest.mark.parametrize("model", ["gpt2", "llama"])
def test_causal_models_are_counted_too(model):
    args = {"gpt2": {"n_layer": 2}, "llama": {"num_hidden_layers": 2, "hidden_size": 256}}[model]
    if model == "llama":
        args |= {"num_attention_heads": 4, "intermediate_size": 512}
    definition = workload(model, "causal-lm", tokens(1000, 64), model_args=args)
    assert flops(definition) > 1e7


def test_the_catalogue_counts_when_asked():
    definition = workload("test_resnet", "image-classification", images(40))
    plain, counted = catalogue({"x": definition}), catalogue({"x": definition}, flops=True)
    assert plain[0].forward_flops_per_sample is None
    assert counted[0].forward_flops_per_sample > 1e6


@pytest.mark.parametrize("model", ["test_resnet", "test_efficientnet"])
def test_training_is_three_forward_passes_also_of_grouped_convolutions(model):
    definition = workload(model, "image-classification", images(40))
    (entry,) = catalogue({"x": definition}, flops=True)
    # A little less: nobody asks for the gradient of the images.
    assert 2.7 < entry.training_flops_per_sample / entry.forward_flops_per_sample < 3.0


@pytest.mark.parametrize("name", ["bert-classes", "gpt2-tied", "resnet"])
def test_the_memory_of_a_step_is_known_without_it(name):
    definition = {
        "bert-classes": SMALL["bert-classes"],
        "gpt2-tied": workload("gpt2", "causal-lm", tokens(300, 32), model_args=TINY_GPT2),
        "resnet": workload("test_resnet", "image-classification", images(40)),
    }[name]
    definition = {**definition, "batch_size": 6, "gradient_accumulation_steps": 2}
    loop = StepLoop(registry.build(definition, 0), precision.apply("fp32", "cpu"), CPU)
    real = MemoryBreakdown.model_validate(loop.profile_memory())
    (entry,) = catalogue({"x": definition}, memory=True)
    # A micro-batch is a view, so that the whole batch's tokens and labels are kept.
    assert entry.memory.activations_mib == pytest.approx(real.activations_mib, rel=2e-3)
    assert entry.memory.parameters_mib == pytest.approx(real.parameters_mib)
    assert entry.memory.gradients_mib == pytest.approx(real.gradients_mib)
    # The real optimizer also counts its steps, a number per parameter.
    assert entry.memory.optimizer_mib == pytest.approx(real.optimizer_mib, rel=2e-3)
