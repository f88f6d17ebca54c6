"""Fine-tuning from local weights: what is loaded, what is new, what is refused."""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import save_file

from unit.workloads.definitions import SMALL, TINY_ALBERT, tokens, workload
from wattslice.workloads import registry
from wattslice.workloads.errors import WeightsError
from wattslice.workloads.workload import count_parameters


@pytest.mark.parametrize("suffix", ["safetensors", "pth"])
@pytest.mark.parametrize("classes", [7, 10])
def test_timm_loads_a_local_file_and_replaces_the_head(tmp_path, suffix, classes):
    source = {**SMALL["synthetic-images"], "data": {**SMALL["synthetic-images"]["data"]}}
    source["data"]["classes"] = classes
    state = registry.build_model(source, seed=11).model.state_dict()
    path = tmp_path / f"model.{suffix}"
    if suffix == "pth":
        torch.save(state, path)
    else:
        save_file(state, path)
    definition = {**SMALL["cnn"], "mode": "finetune", "weights": str(path)}
    built = registry.build(definition, seed=0)
    loaded = built.model.state_dict()
    heads = {key for key in state if key.startswith("fc.") or key.startswith("head.fc.")}
    assert heads
    for key, value in loaded.items():
        if key not in heads or classes == 10:
            assert torch.equal(value, state[key]), key
        else:
            assert value.shape[0] == 10
    assert str(path) in built.weights
    assert "state_dict" not in built.model.pretrained_cfg  # no second copy of the weights in memory
    assert built.loss(built.model, built.batch(0)).isfinite()


def test_transformers_loads_a_local_folder(tmp_path):
    source = workload("albert", "masked-lm", tokens(300, 32), model_args=TINY_ALBERT)
    model = registry.build_model(source, seed=11).model
    model.save_pretrained(tmp_path / "albert")
    definition = {**SMALL["albert-classes"], "mode": "finetune"}
    definition |= {"weights": str(tmp_path / "albert"), "model_args": {}}
    built = registry.build(definition, seed=0)
    assert built.model.config.num_labels == 4
    assert built.model.config.vocab_size == 300
    word = "albert.embeddings.word_embeddings.weight"
    assert torch.equal(built.model.state_dict()[word], model.state_dict()[word])
    assert built.loss(built.model, built.batch(0)).isfinite()
    # Counting needs the folder's config, not its weights.
    (tmp_path / "albert" / "model.safetensors").unlink()
    counted = registry.build_model(definition, meta=True).model
    assert count_parameters(counted) == built.parameters


def test_weights_of_another_model_are_refused(tmp_path):
    source = workload("albert", "masked-lm", tokens(300, 32), model_args=TINY_ALBERT)
    registry.build_model(source).model.save_pretrained(tmp_path)
    definition = {**SMALL["llama"], "mode": "finetune", "weights": str(tmp_path)}
    with pytest.raises(WeightsError, match="'albert' model, not 'llama'"):
        registry.build(definition, seed=0)


def test_a_damaged_file_is_refused(tmp_path):
    path = tmp_path / "model.safetensors"
    path.write_bytes(b"not a tensor")
    with pytest.raises(WeightsError, match="cannot be read"):
        registry.build({**SMALL["cnn"], "mode": "finetune", "weights": str(path)}, seed=0)
    save_file({"other.weight": torch.zeros(2)}, path)
    with pytest.raises(WeightsError, match="does not fit"):
        registry.build({**SMALL["cnn"], "mode": "finetune", "weights": str(path)}, seed=0)
