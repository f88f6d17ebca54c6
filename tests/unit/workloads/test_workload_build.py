"""Every family and task trains for real; equal seeds give equal runs; bad names are named."""

from __future__ import annotations

import math
import subprocess
import sys

import pytest
import torch

from unit.workloads.definitions import (
    DIGITS,
    SMALL,
    TEXT,
    TINY_BERT,
    TINY_DISTILBERT,
    TINY_LLAMA,
    TINY_VIT,
    tokens,
    workload,
)
from wattslice.workloads import precision, registry
from wattslice.workloads.errors import (
    DataError,
    UnknownFieldError,
    UnknownModelError,
    WeightsError,
    WorkloadError,
)


def first_losses(definition, seed, steps=2):
    built = registry.build(definition, seed)
    optimizer = built.optimizer(built.model)
    losses = []
    for step in range(steps):
        loss = built.loss(built.model, built.batch(step))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("name", SMALL)
def test_each_family_and_task_takes_a_step(name):
    definition = SMALL[name]
    built = registry.build(definition, seed=1)
    before = [p.detach().clone() for p in built.model.parameters()]
    optimizer = built.optimizer(built.model)
    loss = built.loss(built.model, built.batch(0))
    loss.backward()
    optimizer.step()
    assert loss.ndim == 0
    assert built.model.training
    # A random model's loss is near that of a uniform guess.
    outcomes = built.dataset.classes
    if definition["task"] in ("masked-lm", "causal-lm"):
        outcomes = built.dataset.vocabulary
    assert loss.item() == pytest.approx(math.log(outcomes), rel=0.35)
    # Not all move: a residual branch whose last norm starts at 0 passes no gradient at first.
    moved = [not torch.equal(a, b) for a, b in zip(before, built.model.parameters(), strict=True)]
    assert sum(moved) > 0.8 * len(moved)
    assert built.parameters == built.trainable_parameters == sum(p.numel() for p in before)
    assert built.weights == "random"
    image = definition["task"] == "image-classification"
    assert built.sample_unit == ("image" if image else "sequence")
    assert built.tokens_per_sample == (None if image else definition["data"]["sequence_length"])
    assert built.real_data == (definition["data"]["kind"] in ("digits", "pydoc-text"))


REAL = {
    "cnn": workload("test_resnet", "image-classification", DIGITS, batch_size=32),
    "vit": workload(
        "vit_tiny_patch16_224",
        "image-classification",
        DIGITS,
        batch_size=32,
        model_args={**TINY_VIT, "embed_dim": 96},
    ),
    "mlm": workload("distilbert", "masked-lm", TEXT, batch_size=8, model_args=TINY_DISTILBERT),
    "classes": workload("bert", "text-classification", TEXT, batch_size=16, model_args=TINY_BERT),
    "causal": workload("llama", "causal-lm", TEXT, batch_size=8, model_args=TINY_LLAMA),
}


@pytest.mark.parametrize("kind", ["fp32", "bf16"])
@pytest.mark.parametrize("name", REAL)
def test_loss_falls_on_real_data(name, kind):
    built = registry.build(REAL[name], seed=3)
    optimizer = built.optimizer(built.model)
    losses = []
    with precision.apply(kind, "cpu") as context:
        for batch, _ in zip(built.batches(), range(40), strict=False):
            with context.autocast():
                loss = built.loss(built.model, batch)
            context.backward(loss)
            context.step(optimizer)
            optimizer.zero_grad(set_to_none=True)
            losses.append(loss.item())
    assert sum(losses[-10:]) < 0.98 * sum(losses[:10])


@pytest.mark.parametrize("name", ["vit", "distilbert-mlm", "bert-classes", "llama"])
def test_equal_seeds_give_equal_runs(name):
    definition = SMALL[name]
    one, two, other = (registry.build(definition, seed) for seed in (5, 5, 6))
    for step in (0, 1000):
        a, b, c = one.batch(step), two.batch(step), other.batch(step)
        assert all(torch.equal(a[key], b[key]) for key in a)
        assert not all(torch.equal(a[key], c[key]) for key in a)
    assert first_losses(definition, 5) == first_losses(definition, 5)
    assert first_losses(definition, 5) != first_losses(definition, 6)


def test_another_process_builds_the_same_workload():
    code = (
        "import sys, torch; from unit.workloads.definitions import SMALL; "
        "from wattslice.workloads import registry; torch.set_num_threads(1); "
        "w = registry.build(SMALL['distilbert-mlm'], 5); "
        "print(repr(w.loss(w.model, w.batch(0)).item()), w.data.sha256, "
        "*(name in sys.modules for name in ('torchvision', 'sklearn', 'datasets')))"
    )
    environment_path = [path for path in sys.path if path]
    printed = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path[:0] = {environment_path!r}; {code}"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.split()
    built = registry.build(SMALL["distilbert-mlm"], 5)
    assert float(printed[0]) == built.loss(built.model, built.batch(0)).item()
    assert printed[1] == built.data.sha256
    assert printed[2:] == ["False", "False", "False"]  # nothing is imported that is not needed


def test_importing_the_registry_imports_no_framework():
    code = (
        f"import sys; sys.path[:0] = {[p for p in sys.path if p]!r}; "
        "from wattslice.workloads import cli, outcomes, registry; "
        "sys.exit(any(m in sys.modules for m in ('torch', 'timm', 'transformers')))"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("definition", "error", "words"),
    [
        (
            workload("resnet10", "image-classification", DIGITS),
            UnknownModelError,
            ["model", "'resnet10'", "resnet10t"],
        ),
        (
            workload("org/resnet10t", "image-classification", DIGITS),
            UnknownModelError,
            ["'org/resnet10t'"],
        ),
        (
            workload("distillbert", "masked-lm", TEXT),
            UnknownModelError,
            ["model", "'distillbert'", "distilbert"],
        ),
        (
            workload("llama", "masked-lm", TEXT),
            UnknownModelError,
            ["no masked-lm model of type 'llama'"],
        ),
        (
            workload("llama", "causal-lm", TEXT, framework="transformer"),
            UnknownModelError,
            ["framework", "'transformer'", "Did you mean transformers?"],
        ),
        (
            workload("distilbert", "masked-lm", TEXT, model_args={"n_layer": 3}),
            UnknownFieldError,
            ["model_args.n_layer", "DistilBertConfig", "Did you mean n_layers", "hidden_dim"],
        ),
        (
            workload("resnet10t", "image-classification", DIGITS, model_args={"widht": 3}),
            UnknownFieldError,
            ["model_args.widht", "resnet10t"],
        ),
        (
            workload("distilbert", "masked-lm", TEXT, model_args={"dim": "wide"}),
            WorkloadError,
            ["model_args", "dim"],
        ),
        (
            workload("distilbert", "masked-lm", TEXT, model_args={"attn_implementation": "x"}),
            WorkloadError,
            ["attn_implementation"],
        ),
        (
            workload("llama", "causal-lm", TEXT, model_args={**TINY_LLAMA, "vocab_size": 100}),
            DataError,
            ["vocab_size", "100", "264"],
        ),
        (
            workload("bert", "masked-lm", TEXT, model_args={"max_position_embeddings": 32}),
            DataError,
            ["max_position_embeddings", "32", "64"],
        ),
        (
            workload("resnet10t", "image-classification", TEXT),
            DataError,
            ["data", "pydoc-text", "image-classification"],
        ),
        (
            workload("resnet10t", "masked-lm", TEXT, framework="timm"),
            WorkloadError,
            ["task", "timm"],
        ),
        (
            workload("llama", "causal-lm", {**TEXT, "kind": "pydoc"}),
            DataError,
            ["data.kind", "'pydoc'", "Did you mean pydoc-text?"],
        ),
        (
            workload("llama", "causal-lm", TEXT, mode="finetune"),
            WorkloadError,
            ["weights", "finetune"],
        ),
        (
            workload("llama", "causal-lm", TEXT, weights="/nonexistent"),
            WeightsError,
            ["weights", "'/nonexistent'"],
        ),
        (
            workload("resnet10t", "image-classification", DIGITS, weights="/nonexistent"),
            WeightsError,
            ["weights", "'/nonexistent'"],
        ),
    ],
)
def test_a_wrong_definition_is_explained(definition, error, words):
    with pytest.raises(error) as caught:
        registry.build(definition, seed=0)
    for word in words:
        assert word in str(caught.value)


def test_attention_is_chosen_and_read_back():
    definition = SMALL["llama"]
    assert registry.build_model(definition).description["attn_implementation"] == "sdpa"
    eager = {**definition["model_args"], "attn_implementation": "eager"}
    built = registry.build_model({**definition, "model_args": eager})
    assert built.description["attn_implementation"] == "eager"
    assert built.description["activation"] == "silu"


@pytest.mark.parametrize(("model", "args"), [("bert", TINY_BERT), ("llama", TINY_LLAMA)])
def test_a_causal_model_does_not_look_ahead(model, args):
    """Equal beginnings give equal predictions, whatever follows."""
    built = registry.build(workload(model, "causal-lm", TEXT, model_args=args), seed=0)
    one = built.batch(0)["input_ids"][:1]
    two = one.clone()
    two[:, 40:] = 5
    built.model.eval()
    with torch.no_grad():
        a, b = (built.model(input_ids=ids).logits[:, :40] for ids in (one, two))
    assert torch.allclose(a, b, atol=1e-5)


def test_positions_grow_to_the_sequence_length():
    long = workload("gpt2", "causal-lm", tokens(300, 2048), model_args={"n_embd": 12, "n_head": 2})
    assert registry.build_model(long, meta=True).model.config.n_positions == 2048


def test_sgd_takes_its_momentum():
    sgd = {"name": "sgd", "lr": 0.1, "weight_decay": 0.0, "momentum": 0.9}
    built = registry.build({**SMALL["cnn"], "optimizer": sgd}, seed=0)
    optimizer = built.optimizer(built.model)
    assert type(optimizer).__name__ == "SGD"
    assert optimizer.param_groups[0]["momentum"] == 0.9
