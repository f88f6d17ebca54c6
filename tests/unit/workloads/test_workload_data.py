"""Data sets: shapes, order, masking and digests."""

from __future__ import annotations

import pytest
import torch

from unit.workloads.definitions import DIGITS, SMALL, TEXT, images, tokens
from wattslice.workloads import data, registry
from wattslice.workloads.data.base import CLS, IGNORED_LABEL, MASK, normalise
from wattslice.workloads.errors import DataError


def test_digits_are_real_images_with_a_stable_digest():
    one, two = data.load(DIGITS, "digits", seed=0), data.load(DIGITS, "digits", seed=9)
    assert one.fingerprint == two.fingerprint  # the seed orders real data, it does not make them
    assert one.fingerprint.real
    assert one.fingerprint.samples == 1797
    assert one.fingerprint.source.startswith("scikit-learn")
    batch = one.batch(0, 5, 0, "image-classification")
    assert batch["images"].shape == (5, 1, 32, 32)
    assert batch["images"].dtype == torch.uint8
    assert batch["labels"].dtype == torch.int64
    values = normalise(batch["images"], 3)
    assert values.shape == (5, 3, 32, 32)
    assert values.is_contiguous()
    assert values.min() == -1.0
    assert values.max() <= 1.0
    other = data.load({**DIGITS, "image_size": 16}, "digits", seed=0)
    assert other.fingerprint.sha256 != one.fingerprint.sha256


def test_digits_match_scikit_learn():
    datasets = pytest.importorskip("sklearn.datasets")
    ours = data.load({**DIGITS, "image_size": 8}, "digits", seed=0)
    theirs = datasets.load_digits()
    pixels = torch.from_numpy(theirs.images).mul(255 / 16).round().to(torch.uint8)
    assert torch.equal(ours.images[:, 0], pixels)
    assert torch.equal(ours.labels, torch.from_numpy(theirs.target).to(torch.int64))


def test_an_epoch_holds_every_sample_once_and_batches_run_on():
    digits = data.load(DIGITS, "digits", seed=0)
    steps = [digits.indices(step, 100, seed=4) for step in range(36)]  # 3,600 > 2 x 1,797
    assert {len(step) for step in steps} == {100}
    order = torch.cat(steps)
    first, second = order[:1797], order[1797:3594]
    assert torch.equal(first.sort().values, torch.arange(1797))
    assert torch.equal(second.sort().values, torch.arange(1797))
    assert not torch.equal(first, second)
    tiny = data.load(tokens(50, 8), "tokens", seed=0)
    assert len(tiny.indices(3, 50, seed=0)) == 50  # a batch larger than the data set


@pytest.mark.parametrize(
    "loader", [None, {"num_workers": 3, "prefetch_factor": 2, "pin_memory": False}]
)
def test_batches_are_the_numbered_batches(loader):
    built = registry.build({**SMALL["distilbert-mlm"], "loader": loader}, seed=7)
    stream = built.batches(start=2)
    for step in range(2, 9):
        batch, numbered = next(stream), built.dataset.batch(step, 4, 7, "masked-lm")
        assert all(torch.equal(batch[key], numbered[key]) for key in numbered)


def test_text_is_readable_and_labelled_by_topic():
    text = data.load(TEXT, "text", seed=0)
    assert text.fingerprint.real
    assert text.classes == 4
    assert text.vocabulary == 264
    assert text.fingerprint == data.load(TEXT, "text", seed=1).fingerprint
    assert set(text.labels.tolist()) == {0, 1, 2, 3}
    assert bool((text.sequences[:, 0] == CLS).all())
    body = bytes((text.sequences[0, 1:] - 3).to(torch.uint8).tolist()).decode("utf-8")
    assert " " in body
    assert int(text.sequences[:, 1:].min()) >= 3


def test_text_that_is_too_short_is_refused():
    with pytest.raises(DataError, match=r"data\.sequence_length: topic .* use fewer classes"):
        data.load({**TEXT, "sequence_length": 8192, "classes": 32}, "text", seed=0)


def test_masking_follows_the_rule():
    text = data.load({**TEXT, "sequence_length": 128}, "text", seed=0)
    plain = text.batch(3, 256, 1, "causal-lm")["input_ids"]
    batch = text.batch(3, 256, 1, "masked-lm")
    chosen = batch["labels"] != IGNORED_LABEL
    assert set(chosen.sum(1).tolist()) == {round(0.15 * 127)}
    assert torch.equal(batch["labels"][chosen], plain[chosen])
    assert torch.equal(batch["input_ids"][~chosen], plain[~chosen])
    assert not chosen[:, 0].any()
    fed, original = batch["input_ids"][chosen], plain[chosen]
    masked, kept = (fed == MASK).float().mean(), (fed == original).float().mean()
    assert masked == pytest.approx(0.8, abs=0.02)
    assert kept == pytest.approx(0.1, abs=0.02)
    other = text.batch(4, 256, 1, "masked-lm")
    assert not torch.equal(chosen, other["labels"] != IGNORED_LABEL)


def test_a_short_sequence_has_a_masked_token():
    short = data.load(tokens(50, 2), "tokens", seed=0)
    batch = short.batch(0, 3, 0, "masked-lm")
    assert ((batch["labels"] != IGNORED_LABEL).sum(1) == 1).all()


@pytest.mark.parametrize("config", [tokens(500, 16), images(12, 5, channels=4)])
def test_synthetic_data_depend_on_the_seed_alone(config):
    one, two, other = (data.load(config, "x", seed=seed) for seed in (1, 1, 2))
    assert one.fingerprint == two.fingerprint
    assert one.fingerprint.sha256 != other.fingerprint.sha256
    assert not one.fingerprint.real
    assert data.shape_of(config) == one.shape


def test_synthetic_tokens_stay_in_the_vocabulary():
    made = data.load(tokens(8, 64), "x", seed=0)
    assert int(made.sequences[:, 1:].min()) >= 3
    assert int(made.sequences.max()) <= 7


def test_a_task_that_does_not_fit_is_refused():
    with pytest.raises(DataError, match="needs token sequences"):
        data.load(DIGITS, "digits", seed=0).batch(0, 1, 0, "causal-lm")
    with pytest.raises(DataError, match="needs images"):
        data.load(TEXT, "text", seed=0).batch(0, 1, 0, "image-classification")
