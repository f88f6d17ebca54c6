"""Data sets in local files: every format gives the same texts; images are decoded as they are."""

from __future__ import annotations

import csv
import json
import pickle
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image
from tokenizers import Tokenizer, models, pre_tokenizers

from unit.workloads.definitions import TINY_BERT, workload
from wattslice.config.models import CifarData, ImageFolderData, TextFilesData
from wattslice.workloads import data, registry
from wattslice.workloads.errors import DataError

ROWS = [
    {"sentence": f"row {i} is {'good' if i % 2 else 'bad'}, a naïve one", "label": i % 2, "idx": i}
    for i in range(12)
]


def text_config(path: Path, **changes: object) -> dict[str, object]:
    fields = {"kind": "text-files", "path": str(path), "template": "{sentence}", "label": "label"}
    defaults = {"sequence_length": 16, "split": None}
    return TextFilesData.model_validate({**fields, **defaults, **changes}).model_dump(mode="json")


def write(folder: Path, suffix: str) -> Path:
    file = folder / f"train{suffix}"
    table = pa.Table.from_pylist(ROWS)
    if suffix == ".parquet":
        pq.write_table(table, file)
    elif suffix == ".arrow":
        with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
    elif suffix == ".json":
        file.write_text(json.dumps(ROWS))
    elif suffix == ".jsonl":
        file.write_text("\n".join(json.dumps(row) for row in ROWS))
    else:
        with file.open("w", newline="") as handle:
            delimiter = "\t" if suffix == ".tsv" else ","
            writer_ = csv.DictWriter(handle, ROWS[0], delimiter=delimiter)
            writer_.writeheader()
            writer_.writerows(ROWS)
    return file


@pytest.mark.parametrize("suffix", [".parquet", ".arrow", ".csv", ".tsv", ".json", ".jsonl"])
def test_every_format_gives_the_same_rows(tmp_path, suffix):
    write(tmp_path, suffix)
    (tmp_path / "validation.json").write_text("[]")  # of another split: not read
    loaded = data.load(text_config(tmp_path, split="train", pack=False), "sst", seed=0)
    assert loaded.labels.tolist() == [row["label"] for row in ROWS]
    first = bytes((loaded.sequences[0, 1:] - 3).tolist()).decode()
    assert first == ROWS[0]["sentence"][:15]
    assert loaded.fingerprint.real
    assert loaded.fingerprint.samples == 12


def test_a_saved_hugging_face_data_set_is_read_as_it_lies_on_disk(tmp_path):
    (tmp_path / "train").mkdir()
    write(tmp_path / "train", ".arrow").rename(tmp_path / "train" / "data-00000-of-00001.arrow")
    (tmp_path / "train" / "dataset_info.json").write_text("{}")
    (tmp_path / "train" / "state.json").write_text("{}")
    assert data.load(text_config(tmp_path, split="train"), "x", 0).fingerprint.real


def test_padding_is_masked_and_ignored(tmp_path):
    file = tmp_path / "x.jsonl"
    file.write_text('{"text": "abc", "label": 1}\n{"text": "a longer text than fits", "label": 0}')
    config = text_config(file, template="{text}", pack=False, sequence_length=8)
    loaded = data.load(config, "x", 0)
    batch = loaded.batch(0, 2, 0, "causal-lm")
    short = batch["attention_mask"].sum(1).argmin()
    assert batch["attention_mask"][short].tolist() == [1, 1, 1, 1, 0, 0, 0, 0]
    assert batch["labels"][short].tolist()[4:] == [-100] * 4
    assert batch["attention_mask"].sum().item() == 4 + 8
    classes = loaded.batch(0, 2, 0, "text-classification")
    assert set(classes) == {"input_ids", "labels", "attention_mask"}
    with pytest.raises(DataError, match="pack"):
        loaded.batch(0, 2, 0, "masked-lm")


def test_alpaca_like_text_is_packed_into_full_sequences(tmp_path):
    rows = [{"instruction": f"Say {i}.", "input": "", "output": str(i) * 5} for i in range(40)]
    file = tmp_path / "alpaca_data.json"
    file.write_text(json.dumps(rows))
    template = "{instruction}\n{output}\n"
    loaded = data.load(text_config(file, template=template, label=None), "alpaca", 0)
    joined = "".join(template.format_map(row) for row in rows).encode()
    body = (loaded.sequences[:, 1:] - 3).to(torch.uint8).flatten().tolist()
    assert bytes(body) == joined[: len(body)]
    assert len(joined) - len(body) < 15
    batch = loaded.batch(0, 4, 0, "causal-lm")
    assert set(batch) == {"input_ids", "labels"}


def test_a_local_tokenizer_gives_ids_and_vocabulary(tmp_path):
    words = {"[PAD]": 0, "[CLS]": 1, "[MASK]": 2, "[UNK]": 3}
    words |= {word: i for i, word in enumerate(["row", "is", "good", "bad", "a", "one"], start=4)}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.add_special_tokens(["[PAD]", "[CLS]", "[MASK]", "[UNK]"])
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    file = write(tmp_path, ".csv")
    config = text_config(file, tokenizer=str(tmp_path))
    assert data.shape_of(config).vocabulary == 10
    loaded = data.load(config, "x", 0)
    assert bool((loaded.sequences[:, 0] == 1).all())
    assert int(loaded.sequences.max()) < 10
    assert loaded.ordinary == (4, 10)
    definition = workload("bert", "masked-lm", config, model_args=TINY_BERT, batch_size=2)
    built = registry.build(definition, seed=0)
    assert built.model.config.vocab_size == 10
    assert torch.isfinite(built.loss(built.model, built.batch(0)))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"template": "{sentense}"}, ["'sentense'", "Did you mean sentence?"]),
        ({"label": "sentence"}, ["data.label"]),
        ({"split": "test"}, ["'test'", "train.csv"]),
        ({"tokenizer": "/nonexistent"}, ["data.tokenizer"]),
        ({"sequence_length": 4096}, ["too little text"]),
        ({"path": "/nonexistent"}, ["/nonexistent"]),
    ],
)
def test_wrong_text_files_are_explained(tmp_path, changes, words):
    write(tmp_path, ".csv")
    with pytest.raises(DataError) as caught:
        data.load(
            text_config(tmp_path, **changes)
            if "path" not in changes
            else text_config(Path(changes["path"])),
            "x",
            0,
        )
    assert all(word in str(caught.value) for word in words)


def image_folder(root: Path) -> dict[str, object]:
    generator = np.random.default_rng(0)
    for label, name in enumerate(("cat", "dog")):
        (root / name).mkdir()
        for i in range(3):
            pixels = generator.integers(0, 256, (40, 60, 3), dtype=np.uint8)
            pixels[..., 0] = 255 * label
            Image.fromarray(pixels).save(root / name / f"{i}.png")
    config = {"kind": "image-folder", "path": str(root), "image_size": 32, "classes": 2}
    return ImageFolderData.model_validate(config).model_dump(mode="json")


def test_image_folders_are_decoded_in_the_step(tmp_path):
    config = image_folder(tmp_path)
    loaded = data.load(config, "pets", 0)
    assert loaded.fingerprint.samples == 6
    batch = loaded.batch(0, 6, 1, "image-classification")
    assert batch["images"].shape == (6, 3, 32, 32)
    assert batch["images"].dtype == torch.uint8
    # The red channel tells the class.
    red = batch["images"][:, 0].float().mean((1, 2))
    assert torch.equal(red > 127, batch["labels"] == 1)
    again = loaded.batch(0, 6, 1, "image-classification")
    assert torch.equal(batch["images"], again["images"])
    halves = [
        loaded.batch(0, 3, 1, "image-classification", data.base.Shard(i, 2)) for i in range(2)
    ]
    assert torch.equal(torch.cat([half["images"] for half in halves]), batch["images"])
    definition = workload("test_resnet", "image-classification", config, batch_size=2)
    loader = {"num_workers": 2, "prefetch_factor": 2, "pin_memory": False}
    built = registry.build({**definition, "loader": loader}, seed=0)
    stream = built.batches()
    for step in range(5):
        assert torch.equal(next(stream)["images"], built.batch(step)["images"])
    with pytest.raises(DataError, match="3 asked"):
        data.load({**config, "classes": 3}, "pets", 0)
    (tmp_path / "cat" / "0.png").write_bytes(b"not an image")
    broken = data.load(config, "pets", 0)
    with pytest.raises(DataError, match="cannot be read"):
        broken.batch(0, 6, 1, "image-classification")


@pytest.mark.parametrize("classes", [10, 100])
@pytest.mark.parametrize("form", ["binary", "python"])
def test_cifar_is_read_in_both_forms(tmp_path, classes, form):
    generator = np.random.default_rng(0)
    names = [f"data_batch_{i}" for i in range(1, 6)] if classes == 10 else ["train"]
    pixels = generator.integers(0, 256, (4, 3072), dtype=np.uint8)
    labels = generator.integers(0, classes, (4, 1), dtype=np.uint8)
    for name in names:
        if form == "binary":
            heads = [labels] if classes == 10 else [labels * 0, labels]
            np.concatenate([*heads, pixels], axis=1).tofile(tmp_path / f"{name}.bin")
        else:
            key = b"labels" if classes == 10 else b"fine_labels"
            held = {b"data": pixels, key: labels.flatten().tolist()}
            (tmp_path / name).write_bytes(pickle.dumps(held))
    config = CifarData.model_validate({"kind": "cifar", "path": str(tmp_path), "classes": classes})
    loaded = data.load(config.model_dump(mode="json"), "cifar", 0)
    assert loaded.images.shape == (4 * len(names), 3, 32, 32)
    assert torch.equal(loaded.images[:4].reshape(4, -1), torch.from_numpy(pixels))
    assert loaded.labels[:4].tolist() == labels.flatten().tolist()
    large = data.load({**config.model_dump(mode="json"), "image_size": 64}, "cifar", 0)
    assert large.images.shape[-1] == 64


def test_a_pickle_cannot_run_code(tmp_path):
    class Harm:
        def __reduce__(self):
            return print, ("harm",)

    (tmp_path / "train").write_bytes(pickle.dumps({b"data": Harm()}))
    config = {"kind": "cifar", "path": str(tmp_path), "classes": 100, "image_size": 32}
    with pytest.raises(DataError, match="asks for"):
        data.load(config, "x", 0)
    with pytest.raises(DataError, match="neither"):
        data.load({**config, "classes": 10}, "x", 0)
