"""Operations per sample: published numbers, and ALBERT's two layers for DistilBERT's one."""

from __future__ import annotations

import pytest

from unit.workloads.definitions import images, tokens, workload
from wattslice.workloads import data, registry
from wattslice.workloads.catalogue import catalogue
from wattslice.workloads.flops import forward_flops


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
