"""The breakdown of memory is exact: checked against sums that can be worked out by hand."""

from __future__ import annotations

import copy

import pytest
import torch

from unit.workloads.definitions import (
    DIGITS,
    SMALL,
    TINY_ALBERT,
    TINY_GPT2,
    images,
    tokens,
    workload,
)
from wattslice.records.run import MemoryBreakdown, StepPhases
from wattslice.train.clock import HostClock
from wattslice.train.loop import StepLoop
from wattslice.workloads import precision, registry
from wattslice.workloads.errors import WorkloadError
from wattslice.workloads.memory import MIB, SavedActivations, storage_bytes

CPU = torch.device("cpu")
GPT2_DROPOUT = ("embd_pdrop", "attn_pdrop", "resid_pdrop")
ADAMW = {"name": "adamw", "lr": 1e-3, "weight_decay": 0.01, "momentum": 0.0}


def loop(definition, kind="fp32", seed=0):
    return StepLoop(registry.build(definition, seed), precision.apply(kind, "cpu"), CPU)


def test_saved_activations_are_counted_once_and_without_parameters():
    model = torch.nn.Sequential(torch.nn.Linear(100, 50), torch.nn.ReLU(), torch.nn.Linear(50, 10))
    entry = torch.randn(8, 100)
    saved = SavedActivations(model)
    with saved:
        out = model(entry).sum()
    # The first layer saves its input; the ReLU saves its output, which is the next layer's input.
    assert saved.bytes() == 4 * (8 * 100 + 8 * 50)
    out.backward()
    del out
    plain = copy.deepcopy(model)
    plain.zero_grad()
    plain(entry).sum().backward()
    for a, b in zip(model.parameters(), plain.parameters(), strict=True):
        assert torch.equal(a.grad, b.grad)  # looking changes nothing


def test_what_is_freed_before_the_end_of_the_forward_pass_does_not_count():
    model = torch.nn.Linear(10, 10)
    saved = SavedActivations(model)
    with saved:
        dropped = model(torch.randn(1000, 10)).exp()
        assert saved.bytes() > 40_000
        del dropped
    assert saved.bytes() == 0


def test_a_breakdown_adds_up():
    definition = SMALL["bert-classes"]
    trained = loop(definition)
    parts = MemoryBreakdown.model_validate(trained.profile_memory())
    model = trained._model
    parameters = sum(p.numel() for p in model.parameters()) * 4 / MIB
    assert parts.parameters_mib == pytest.approx(parameters)
    assert parts.gradients_mib == pytest.approx(parameters)
    assert parts.optimizer_mib == pytest.approx(2 * parameters, rel=1e-3)  # and a count of steps
    assert parts.activations_mib is not None
    assert parts.activations_mib > 0
    phases = StepPhases.model_validate(trained.profile_phases(HostClock()))
    assert phases.forward_s > 0
    assert phases.backward_s > 0
    assert len(trained.losses()) == 2


def activations(**changes) -> float:
    definition = workload("albert", "text-classification", tokens(300, 64), batch_size=8)
    parts = loop({**definition, "model_args": TINY_ALBERT, **changes}).profile_memory()
    return parts["activations_mib"]


def test_shared_layers_save_activations_each_time_they_are_applied():
    """Why ALBERT needs memory: as many activations as layers run, whatever the parameters."""
    two, four, six = (
        activations(model_args={**TINY_ALBERT, "num_hidden_layers": n}) for n in (2, 4, 6)
    )
    assert six - four == pytest.approx(four - two)
    checkpointed = [
        activations(model_args={**TINY_ALBERT, "num_hidden_layers": n}, gradient_checkpointing=True)
        for n in (2, 6)
    ]
    assert checkpointed[0] < two
    # Per layer only its input stays: 8 x 64 x 48 numbers.
    assert checkpointed[1] - checkpointed[0] == pytest.approx(4 * 8 * 64 * 48 * 4 / MIB)
    assert activations(batch_size=4) == pytest.approx(two / 2, rel=0.02)


@pytest.mark.parametrize(
    "definition",
    [
        workload(
            "vit_tiny_patch16_224",
            "image-classification",
            DIGITS,
            model_args={**SMALL["vit"]["model_args"]},
        ),
        workload(
            "albert",
            "text-classification",
            tokens(300, 32),
            model_args={**TINY_ALBERT, "classifier_dropout_prob": 0.0},
        ),
        workload(
            "gpt2",
            "causal-lm",
            tokens(300, 32),
            model_args={**TINY_GPT2, **dict.fromkeys(GPT2_DROPOUT, 0.0)},
        ),
    ],
    ids=["vit", "albert", "gpt2"],
)
@pytest.mark.parametrize(
    "option",
    [{"gradient_checkpointing": True}, {"gradient_accumulation_steps": 2}],
    ids=lambda option: next(iter(option)),
)
def test_options_that_save_memory_train_the_same_model(definition, option):
    definition = {**definition, "optimizer": ADAMW}
    one, other = loop(definition), loop({**definition, **option})
    for _ in range(4):
        one.step()
        other.step()
    assert other.losses() == pytest.approx(one.losses(), abs=2e-4)


def test_compiled_channels_last_fused_and_adapted_models_train():
    compiled = {"backend": "eager", "mode": "default", "fullgraph": False, "dynamic": None}
    fused = {**ADAMW, "fused": True}
    cnn = loop({**SMALL["cnn"], "compile": compiled, "optimizer": fused})
    parts = cnn.profile_memory()
    assert parts.get("activations_mib") is None
    assert "compiler" in parts["reason"]
    assert cnn._optimizer.defaults["fused"] is True
    last = loop({**SMALL["cnn"], "memory_format": "channels_last"})
    last.step()
    weights = next(p for p in last._model.parameters() if p.ndim == 4 and p.shape[1] > 1)
    assert weights.is_contiguous(memory_format=torch.channels_last)
    adapter = {
        "kind": "lora",
        "r": 4,
        "lora_alpha": 8,
        "lora_dropout": 0.0,
        "target_modules": ["c_attn"],
    }
    built = registry.build({**SMALL["gpt2"], "adapter": adapter}, 0)
    # Per layer r x (in + out) of c_attn, which maps 48 to 144.
    assert built.trainable_parameters == 2 * 4 * (48 + 144)
    assert built.parameters > 10 * built.trainable_parameters
    assert str(built.description["adapter"]).startswith("peft ")
    tuned = StepLoop(built, precision.apply("fp32", "cpu"), CPU)
    tuned.step()
    tuned.step()
    assert None not in tuned.losses()


def test_models_without_checkpointing_and_bad_parts_are_explained():
    with pytest.raises(WorkloadError, match="gradient_checkpointing"):
        definition = workload("inception_v3", "image-classification", images(299))
        registry.build_model({**definition, "gradient_checkpointing": True}, meta=True)
    with pytest.raises(WorkloadError, match="does not divide"):
        registry.build({**SMALL["cnn"], "gradient_accumulation_steps": 3}, 0)


def test_a_hub_model_that_is_not_cached_is_random_and_says_so(monkeypatch, tmp_path):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    name = "hub:somebody/some-model"
    built = registry.build_model({**SMALL["gpt2"], "mode": "finetune", "weights": name})
    assert built.weights == f"random ({name} is not in the local hub cache)"


def test_a_hub_model_in_the_cache_is_used(monkeypatch, tmp_path):
    from wattslice.workloads import weights

    made = registry.build_model(SMALL["gpt2"], seed=3).model
    folder = tmp_path / "0123abc"
    made.save_pretrained(folder)
    monkeypatch.setattr(weights, "_cached", lambda name: folder)
    hub = {**SMALL["gpt2"], "weights": "hub:somebody/some-model"}
    built = registry.build_model(hub, seed=4)
    assert built.weights == "hub:somebody/some-model, revision 0123abc"
    for a, b in zip(made.parameters(), built.model.parameters(), strict=True):
        assert torch.equal(a, b)


def test_storages_count_once():
    base = torch.zeros(100)
    assert storage_bytes([base, base[:10], base.view(10, 10), 3, None]) == 400
