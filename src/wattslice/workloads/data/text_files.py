"""Text in local files: Hugging Face data sets on disk, GLUE, Alpaca and the like, plain text.

Each row becomes one text by the entry's `template`; texts are joined and cut into full sequences
(`pack`), or each becomes one sequence that is cut or padded. Nothing is downloaded. Recipes:

- SST-2 from GLUE's tsv or parquet files: template "{sentence}", label `label`, pack false;
- MNLI and other pairs: template "{premise} {hypothesis}", label `label`, classes 3, pack false;
- Alpaca's JSON: template "{instruction}\\n{input}\\n{output}".

Tokens are bytes, or come from a tokenizer.json (the `tokenizers` library). Files are read with
pyarrow and the standard library; the `datasets` package is not needed.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch

from wattslice.records.run import DataFingerprint
from wattslice.workloads.data.base import (
    CLS,
    MASK,
    PAD,
    SPECIAL_TOKENS,
    DataShape,
    TokenDataset,
    digest,
)
from wattslice.workloads.data.text import VOCABULARY
from wattslice.workloads.errors import DataError, near

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Tokens:
    """How text becomes ids: start and padding ids, the mask's (None: it has none), the rest."""

    encode: Callable[[str], list[int]]
    vocabulary: int
    start: int
    pad: int
    mask: int | None
    ordinary: tuple[int, int]  # ids that may stand in for another: first, last + 1
    source: str


def shape_of(config: Mapping[str, Any]) -> DataShape:
    """Return the shape of a `text-files` entry; a tokenizer is read for its vocabulary.

    Raises:
        DataError: no such tokenizer.
    """
    name = str(config["tokenizer"])
    return DataShape(
        sample_unit="sequence",
        classes=int(config["classes"]),
        sequence_length=int(config["sequence_length"]),
        vocabulary=VOCABULARY if name == "bytes" else _tokens(name).vocabulary,
    )


def load(config: Mapping[str, Any], name: str, seed: int) -> TokenDataset:
    """Return the texts of the files as token sequences.

    Raises:
        DataError: files, columns, labels or tokenizer that are not there or do not fit, or too
            little text for one sequence.
    """
    del seed  # real data: the same for every seed
    shape = shape_of(config)
    length = int(config["sequence_length"])
    tokens = _tokens(str(config["tokenizer"]))
    path = Path(str(config["path"])).expanduser()
    files = _files(path, config.get("split"))
    rows = islice(_rows(files), config.get("max_rows"))
    texts, labels = _texts(rows, str(config["template"]), config.get("label"), shape.classes)
    ids = [tokens.encode(text) for text in texts]
    lengths: torch.Tensor | None = None
    if config["pack"]:
        sequences, labels = _packed(ids, labels, length, tokens, str(path))
    else:
        sequences, lengths = _padded(ids, length, tokens)
    targets = torch.tensor(labels)
    fingerprint = DataFingerprint(
        name=name,
        kind="text-files",
        real=True,
        samples=len(targets),
        sha256=digest(sequences, targets),
        source=f"{path} ({len(files)} files), tokens: {tokens.source}",
    )
    return TokenDataset(
        shape,
        fingerprint,
        sequences,
        targets,
        tokens.ordinary,
        mask=tokens.mask,
        lengths=lengths,
    )


def _packed(
    ids: list[list[int]], labels: list[int], length: int, tokens: Tokens, where: str
) -> tuple[torch.Tensor, list[int]]:
    """Sequences of a start token and the next length - 1 tokens of the joined texts.

    Where rows are labelled only rows of one class are joined, so that a sequence has a class.
    """
    body = length - 1
    parts: list[np.ndarray[Any, np.dtype[np.int32]]] = []
    classes: list[int] = []
    for label in sorted(set(labels)):
        joined = [t for row, of in zip(ids, labels, strict=True) if of == label for t in row]
        count = len(joined) // body
        parts.append(np.asarray(joined[: count * body], dtype=np.int32).reshape(count, body))
        classes += [label] * count
    if not classes:
        raise DataError(f"data.sequence_length: {where!r} has too little text for {length} tokens")
    text = torch.from_numpy(np.concatenate(parts))
    start = torch.full((len(text), 1), tokens.start, dtype=torch.int32)
    return torch.cat([start, text], dim=1), classes


def _padded(ids: list[list[int]], length: int, tokens: Tokens) -> tuple[torch.Tensor, torch.Tensor]:
    sequences = np.full((len(ids), length), tokens.pad, dtype=np.int32)
    lengths = np.empty(len(ids), dtype=np.int64)
    for row, body in enumerate(ids):
        kept = [tokens.start, *body[: length - 1]]
        sequences[row, : len(kept)] = kept
        lengths[row] = len(kept)
    return torch.from_numpy(sequences), torch.from_numpy(lengths)


# -- rows ------------------------------------------------------------------------------------------


def _texts(
    rows: Iterable[Row], template: str, label: str | None, classes: int
) -> tuple[list[str], list[int]]:
    texts: list[str] = []
    labels: list[int] = []
    for row in rows:
        try:
            texts.append(template.format_map(row))
            value = 0 if label is None else int(row[label])
        except KeyError as error:
            missing = str(error.args[0])
            raise DataError(
                f"data: no column {missing!r}; there are {', '.join(map(str, row))}."
                f"{near(missing, map(str, row))}"
            ) from error
        except (TypeError, ValueError) as error:
            raise DataError(
                f"data.label: column {label!r} is not a class number: {error}"
            ) from error
        if not 0 <= value < classes:
            raise DataError(f"data.classes: a row has the label {value}, of {classes} classes")
        labels.append(value)
    if not texts:
        raise DataError("data.path: the files hold no rows")
    return texts, labels


def _files(path: Path, split: str | None) -> list[Path]:
    """The file, or the readable files below the folder that belong to the split, by name."""
    if path.is_file():
        return [path]
    found = sorted(file for file in path.rglob("*") if file.suffix in _READERS and file.is_file())
    # Metadata beside a saved data set.
    found = [file for file in found if file.name not in ("dataset_info.json", "state.json")]
    chosen = [
        file
        for file in found
        if split is None or any(p.startswith(split) for p in file.relative_to(path).parts)
    ]
    if not chosen:
        some = f"; there are {', '.join(file.name for file in found[:5])}" if found else ""
        wanted = "file" if split is None else f"file of the split {split!r}"
        raise DataError(
            f"data.path: {str(path)!r} holds no {wanted} with one of {', '.join(_READERS)}{some}"
        )
    return chosen


def _rows(files: Iterable[Path]) -> Iterator[Row]:
    for file in files:
        reader = _READERS.get(file.suffix)
        if reader is None:
            raise DataError(f"data.path: {str(file)!r} is not one of {', '.join(_READERS)}")
        try:
            yield from reader(file)
        except (OSError, ValueError) as error:  # pyarrow's and json's errors are ValueErrors
            raise DataError(f"data.path: {str(file)!r} cannot be read: {error}") from error


def _parquet(file: Path) -> Iterator[Row]:
    import pyarrow.parquet

    for batch in pyarrow.parquet.ParquetFile(file).iter_batches():
        yield from batch.to_pylist()


def _arrow(file: Path) -> Iterator[Row]:
    """Arrow's stream (as `save_to_disk` writes it) or file format."""
    import pyarrow

    with pyarrow.memory_map(str(file)) as source:
        try:
            batches: Any = pyarrow.ipc.open_stream(source)
        except pyarrow.ArrowInvalid:
            reader = pyarrow.ipc.open_file(source)
            batches = (reader.get_batch(i) for i in range(reader.num_record_batches))
        for batch in batches:
            yield from batch.to_pylist()


def _csv(file: Path) -> Iterator[Row]:
    with file.open(encoding="utf-8", newline="") as handle:
        yield from csv.DictReader(handle)


def _tsv(file: Path) -> Iterator[Row]:
    """GLUE's tables: tabs, and quotation marks are text."""
    with file.open(encoding="utf-8", newline="") as handle:
        yield from csv.DictReader(handle, delimiter="\t", quoting=csv.QUOTE_NONE)


def _json(file: Path) -> Iterator[Row]:
    held = json.loads(file.read_text(encoding="utf-8"))
    if isinstance(held, dict):  # {"data": [...]} and the like
        held = next((value for value in held.values() if isinstance(value, list)), [])
    yield from held


def _jsonl(file: Path) -> Iterator[Row]:
    with file.open(encoding="utf-8") as handle:
        for line in handle:
            if line.strip():
                yield json.loads(line)


def _txt(file: Path) -> Iterator[Row]:
    with file.open(encoding="utf-8") as handle:
        for line in handle:
            yield {"text": line}


_READERS: Mapping[str, Callable[[Path], Iterator[Row]]] = {
    ".parquet": _parquet,
    ".arrow": _arrow,
    ".csv": _csv,
    ".tsv": _tsv,
    ".json": _json,
    ".jsonl": _jsonl,
    ".txt": _txt,
}

# -- tokens ----------------------------------------------------------------------------------------


def _tokens(name: str) -> Tokens:
    if name == "bytes":
        return Tokens(
            encode=lambda text: [byte + SPECIAL_TOKENS for byte in text.encode("utf-8")],
            vocabulary=VOCABULARY,
            start=CLS,
            pad=PAD,
            mask=MASK,
            ordinary=(SPECIAL_TOKENS, SPECIAL_TOKENS + 256),
            source="bytes",
        )
    from tokenizers import Tokenizer

    path = Path(name).expanduser()
    file = path / "tokenizer.json" if path.is_dir() else path
    if not file.is_file():
        raise DataError(
            f"data.tokenizer: {name!r} is neither 'bytes' nor a folder with a tokenizer.json"
        )
    try:
        tokenizer = Tokenizer.from_file(str(file))
    except Exception as error:  # the library raises Exception itself
        raise DataError(f"data.tokenizer: {str(file)!r} cannot be read: {error}") from error
    tokenizer.no_truncation()
    tokenizer.no_padding()

    def first(*names: str) -> int | None:
        found = (tokenizer.token_to_id(name) for name in names)
        return next((id_ for id_ in found if id_ is not None), None)

    vocabulary = int(tokenizer.get_vocab_size(with_added_tokens=True))
    special = [id_ for id_, token in tokenizer.get_added_tokens_decoder().items() if token.special]
    start = first("[CLS]", "<s>", "<|endoftext|>")
    return Tokens(
        encode=lambda text: list(tokenizer.encode(text, add_special_tokens=False).ids),
        vocabulary=vocabulary,
        start=start if start is not None else 0,
        pad=first("[PAD]", "<pad>") or 0,
        mask=first("[MASK]", "<mask>"),
        ordinary=_ordinary(vocabulary, special),
        source=str(file),
    )


def _ordinary(vocabulary: int, special: list[int]) -> tuple[int, int]:
    """The longest range of ids without a special one."""
    edges = [-1, *sorted(i for i in special if i < vocabulary), vocabulary]
    pairs = [(low + 1, high) for low, high in pairwise(edges)]
    return max(pairs, key=lambda pair: pair[1] - pair[0])
