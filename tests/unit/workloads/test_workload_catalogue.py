"""Parameter counts without memory, against published ones; the command that shows them."""

from __future__ import annotations

import argparse
import json

import pytest
import yaml

from unit.workloads.definitions import DIGITS, SMALL, TEXT, images, tokens, workload
from wattslice.workloads import cli, registry
from wattslice.workloads.catalogue import catalogue, table
from wattslice.workloads.workload import count_parameters

ALBERT_BASE = {"hidden_size": 768, "num_attention_heads": 12, "intermediate_size": 3072}
TINYLLAMA = {
    "hidden_size": 2048,
    "intermediate_size": 5632,
    "num_hidden_layers": 22,
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
}
GPT2_XL = {"n_embd": 1600, "n_layer": 48, "n_head": 25}
# Sources: the models' published shapes, counted by hand; timm's results-imagenet.csv, in millions.
PUBLISHED = [
    ("distilbert", "masked-lm", tokens(30522), {}, "distilbert", 66_362_880),
    ("albert", "text-classification", tokens(30000), ALBERT_BASE, "albert", 11_683_584),
    ("llama", "causal-lm", tokens(32000), TINYLLAMA, None, 1_100_048_384),
    ("gpt2", "causal-lm", tokens(50257), GPT2_XL, None, 1_557_611_200),
    ("gpt2", "causal-lm", tokens(50257), {}, None, 124_439_808),
    ("bert", "text-classification", tokens(30522), {}, "bert", 109_482_240),
    ("resnet50", "image-classification", images(224), {}, None, 25.56),
    ("densenet169", "image-classification", images(224), {}, None, 14.15),
    ("inception_v3", "image-classification", images(299), {}, None, 23.83),
    ("efficientnet_b0", "image-classification", images(224), {}, None, 5.29),
    ("vgg16", "image-classification", images(224), {}, None, 138.36),
    ("tf_efficientnetv2_b3", "image-classification", images(300), {}, None, 14.36),
]


@pytest.mark.parametrize(("model", "task", "data", "args", "part", "expected"), PUBLISHED)
def test_full_size_models_have_the_published_size(model, task, data, args, part, expected):
    built = registry.build_model(workload(model, task, data, model_args=args), meta=True).model
    assert all(p.is_meta for p in built.parameters())
    count = count_parameters(built if part is None else getattr(built, part))
    if isinstance(expected, int):
        assert count == expected
    else:
        assert count / 1e6 == pytest.approx(expected, abs=0.006)


@pytest.mark.parametrize("name", SMALL)
def test_meta_counts_equal_real_counts(name):
    real = registry.build_model(SMALL[name]).model
    meta = registry.build_model(SMALL[name], meta=True).model
    assert count_parameters(meta) == count_parameters(real)


def test_a_model_that_cannot_be_built_is_an_entry_with_its_error():
    entries = catalogue(
        {
            "good": SMALL["cnn"],
            "bad": workload("distillbert", "masked-lm", TEXT),
        }
    )
    assert entries[0].error is None
    assert entries[0].parameters
    assert entries[1].parameters is None
    assert "distilbert" in entries[1].error
    text = table(entries)
    assert f"{entries[0].parameters:,}" in text
    assert "bad: model: 'distillbert'" in text


@pytest.fixture
def config(tmp_path):
    campaign = {
        "name": "trial",
        "title": "Trial",
        "data": {"digits": DIGITS, "text": TEXT},
        "workloads": {
            "cnn": {
                "framework": "timm",
                "model": "test_resnet",
                "task": "image-classification",
                "data": "digits",
                "batch_size": 4,
            },
        },
        "experiments": [
            {"name": "one", "layouts": ["full"], "workloads": ["cnn"], "precisions": ["fp32"]}
        ],
    }
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump(campaign))
    return path, campaign


def run(*arguments):
    parser = argparse.ArgumentParser()
    cli.add_parser(parser.add_subparsers())
    parsed = parser.parse_args(["workloads", *map(str, arguments)])
    return parsed.func(parsed)


def test_the_command_prints_a_table_or_json(config, capsys):
    path, _ = config
    assert run("--config", path) == 0
    assert "timm:test_resnet" in capsys.readouterr().out
    assert run("--config", path, "--json") == 0
    listed = json.loads(capsys.readouterr().out)["workloads"]
    assert [entry["name"] for entry in listed] == ["cnn"]
    assert listed[0]["sample_unit"] == "image"


def test_exit_codes_tell_what_is_wrong(config, capsys):
    path, campaign = config
    campaign["workloads"]["cnn"]["model"] = "test_resnett"
    path.write_text(yaml.safe_dump(campaign))
    assert run("--config", path) == 1
    assert "test_resnet" in capsys.readouterr().out
    assert run("--config", path.with_name("missing.yaml")) == 2
    assert "missing.yaml" in capsys.readouterr().err
