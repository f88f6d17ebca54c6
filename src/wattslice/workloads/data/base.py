"""What every data set offers, and the two forms of data: images and token sequences."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal

import torch

from wattslice.records.run import DataFingerprint
from wattslice.workloads.errors import DataError

Batch = dict[str, torch.Tensor]
TOKEN_TASKS = ("text-classification", "masked-lm", "causal-lm")

# Special tokens of every token data set; all other ids are ordinary.
PAD, CLS, MASK = 0, 1, 2
SPECIAL_TOKENS = 3
IGNORED_LABEL = -100  # torch's default ignore_index of the cross entropy
MASKED_SHARE = 0.15  # of the ordinary positions; BERT (Devlin et al. 2019), section 3.1


@dataclass(frozen=True)
class DataShape:
    """What a model has to know of its data. Image fields are null for sequences, and vice versa."""

    sample_unit: Literal["image", "sequence"]
    classes: int
    image_size: int | None = None  # edge of the square image, pixels
    channels: int | None = None
    sequence_length: int | None = None  # tokens
    vocabulary: int | None = None  # number of token ids


@dataclass(frozen=True, slots=True)
class Shard:
    """Which part of every step's samples a worker takes: part `index` of `count` equal ones."""

    index: int
    count: int

    def rows(self, batch_size: int) -> slice:
        """Its rows among the batch_size x count samples of a step."""
        return slice(self.index * batch_size, (self.index + 1) * batch_size)


WHOLE = Shard(0, 1)


class Dataset(ABC):
    """Samples with an order. Most are in memory: a batch costs one gather (and masked-lm's masks).

    The order is a fresh permutation per epoch. Batches run on across the end of an epoch, so every
    batch is full whatever the number of samples.
    """

    def __init__(self, shape: DataShape, fingerprint: DataFingerprint) -> None:
        self.shape = shape
        self.fingerprint = fingerprint
        self._epoch: tuple[int, int, torch.Tensor] | None = None  # seed, epoch, permutation

    @property
    def sample_unit(self) -> Literal["image", "sequence"]:
        return self.shape.sample_unit

    @property
    def classes(self) -> int:
        return self.shape.classes

    @property
    def vocabulary(self) -> int | None:
        return self.shape.vocabulary

    @abstractmethod
    def batch(
        self, step: int, batch_size: int, seed: int, task: str, shard: Shard = WHOLE
    ) -> Batch:
        """Return the CPU tensors of step `step` (from 0): a function of the arguments alone.

        Several threads may call it at the same time. The shards of a step are together the batch
        of batch_size x shard.count samples of one worker.
        """

    def indices(self, step: int, batch_size: int, seed: int, shard: Shard = WHOLE) -> torch.Tensor:
        """Return the sample indices of a step, int64 [batch_size]."""
        if shard.count > 1:
            whole = self.indices(step, batch_size * shard.count, seed)
            return whole[shard.rows(batch_size)]
        samples = self.fingerprint.samples
        position, left = step * batch_size, batch_size
        parts: list[torch.Tensor] = []
        while left:
            epoch, offset = divmod(position, samples)
            part = self._permutation(seed, epoch)[offset : offset + left]
            parts.append(part)
            position += len(part)
            left -= len(part)
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def _permutation(self, seed: int, epoch: int) -> torch.Tensor:
        kept = self._epoch  # read once: another thread may be in another epoch
        if kept is None or kept[:2] != (seed, epoch):
            order = torch.randperm(self.fingerprint.samples, generator=generator(seed, 1, epoch))
            kept = self._epoch = (seed, epoch, order)
        return kept[2]


class Images(Dataset):
    """Images as bytes with labels.

    A batch is {"images": uint8 [batch, stored channels, edge, edge], "labels": int64 [batch]}.
    Bytes keep the gather and the copy to a GPU small; `normalise` turns them into what the model
    takes on the model's own device, as timm's prefetching loader does. Grey images are stored once
    and repeated over the channels there.
    """

    def __init__(
        self,
        shape: DataShape,
        fingerprint: DataFingerprint,
        labels: torch.Tensor,
    ) -> None:
        super().__init__(shape, fingerprint)
        self.labels = labels

    def batch(
        self, step: int, batch_size: int, seed: int, task: str, shard: Shard = WHOLE
    ) -> Batch:
        if task != "image-classification":
            raise DataError(f"task: {task!r} needs token sequences, but the data are images")
        index = self.indices(step, batch_size, seed, shard)
        return {"images": self._pixels(index, step, seed, shard), "labels": self.labels[index]}

    def _pixels(self, index: torch.Tensor, step: int, seed: int, shard: Shard) -> torch.Tensor:
        """The images of a batch by their numbers, uint8."""
        raise NotImplementedError


class ImageDataset(Images):
    """Images in memory."""

    def __init__(
        self,
        shape: DataShape,
        fingerprint: DataFingerprint,
        images: torch.Tensor,
        labels: torch.Tensor,
    ) -> None:
        super().__init__(shape, fingerprint, labels)
        self.images = images

    def _pixels(self, index: torch.Tensor, step: int, seed: int, shard: Shard) -> torch.Tensor:
        del step, seed, shard
        return self.images[index]


def normalise(images: torch.Tensor, channels: int) -> torch.Tensor:
    """Map bytes 0…255 to float32 -1…1 and repeat a grey image over `channels`.

    uint8 [batch, 1 or channels, edge, edge] → float32 [batch, channels, edge, edge], contiguous.
    """
    values = images.to(torch.float32).mul_(2.0 / 255.0).sub_(1.0)
    if values.shape[1] != channels:
        values = values.expand(-1, channels, -1, -1).contiguous()
    return values


class TokenDataset(Dataset):
    """Token sequences, each beginning with CLS, with a class label each.

    They are full, without padding or mask, unless `lengths` (tokens before the padding) are given:
    then every batch has an attention_mask, int64 [b, t].

    Batches by task (b = batch, t = tokens):

    - text-classification: input_ids int64 [b, t], labels int64 [b];
    - causal-lm: input_ids and labels int64 [b, t], equal (the models shift the labels themselves);
    - masked-lm: input_ids int64 [b, t] with masked positions, labels int64 [b, t], -100 elsewhere.
      Exactly 15 % of the ordinary positions (at least one) are chosen per sequence; of those 80 %
      become MASK, 10 % a random ordinary token, 10 % stay. A fixed number keeps the work of all
      steps equal.
    """

    def __init__(
        self,
        shape: DataShape,
        fingerprint: DataFingerprint,
        sequences: torch.Tensor,
        labels: torch.Tensor,
        ordinary: tuple[int, int],
        *,
        mask: int | None = MASK,
        lengths: torch.Tensor | None = None,
    ) -> None:
        super().__init__(shape, fingerprint)
        self.sequences = sequences
        self.labels = labels
        self.ordinary = ordinary  # ids that may replace a token: first, last + 1
        self.mask = mask  # id of a masked position; None: the tokens have none
        self.lengths = lengths

    def batch(
        self, step: int, batch_size: int, seed: int, task: str, shard: Shard = WHOLE
    ) -> Batch:
        index = self.indices(step, batch_size, seed, shard)
        tokens = self.sequences[index].to(torch.int64)
        if self.lengths is None:
            return self._batch(tokens, index, task, generator(seed, 2, step), shard)
        if task == "masked-lm":
            raise DataError("task: 'masked-lm' needs full sequences; set data.pack to true")
        length = tokens.shape[1]
        inside = torch.arange(length) < self.lengths[index].unsqueeze(1)
        batch = self._batch(tokens, index, task, generator(seed, 2, step), shard)
        if task == "causal-lm":
            batch["labels"] = tokens.masked_fill(~inside, IGNORED_LABEL)
        return {**batch, "attention_mask": inside.to(torch.int64)}

    def _batch(
        self,
        tokens: torch.Tensor,
        index: torch.Tensor,
        task: str,
        source: torch.Generator,
        shard: Shard,
    ) -> Batch:
        if task == "text-classification":
            return {"input_ids": tokens, "labels": self.labels[index]}
        if task == "causal-lm":
            return {"input_ids": tokens, "labels": tokens}
        if task == "masked-lm":
            return self._masked(tokens, source, shard)
        raise DataError(f"task: {task!r} needs images, but the data are token sequences")

    def _masked(self, tokens: torch.Tensor, source: torch.Generator, shard: Shard) -> Batch:
        if self.mask is None:
            raise DataError("task: 'masked-lm' needs a mask token, which the tokenizer lacks")
        batch, length = tokens.shape
        everything = batch * shard.count  # drawn for all workers of the step, as for one
        rows = shard.rows(batch)
        chosen_per_sequence = max(1, round(MASKED_SHARE * (length - 1)))
        order = torch.rand(everything, length - 1, generator=source).argsort(dim=1)[rows]
        positions = order[:, :chosen_per_sequence] + 1  # never CLS
        original = tokens.gather(1, positions)
        labels = torch.full_like(tokens, IGNORED_LABEL).scatter_(1, positions, original)
        size = (everything, chosen_per_sequence)
        fate = torch.rand(size, generator=source)[rows]
        random = torch.randint(*self.ordinary, size, generator=source)[rows]
        replaced = torch.where(fate < 0.8, torch.full_like(original, self.mask), original)
        replaced = torch.where(fate >= 0.9, random, replaced)
        return {"input_ids": tokens.scatter(1, positions, replaced), "labels": labels}


def generator(seed: int, *stream: int) -> torch.Generator:
    """Return a CPU generator for one use of a seed; different streams are independent."""
    text = ",".join(str(part) for part in (seed, *stream))
    digest = hashlib.sha256(text.encode("ascii")).digest()
    source = torch.Generator()
    source.manual_seed(int.from_bytes(digest[:8], "little") >> 1)
    return source


def digest(*tensors: torch.Tensor) -> str:
    """Return one sha256 over dtype, shape and bytes of CPU tensors, in order."""
    state = hashlib.sha256()
    for tensor in tensors:
        state.update(f"{tensor.dtype}{tuple(tensor.shape)}".encode("ascii"))
        state.update(tensor.contiguous().numpy().reshape(-1).view("uint8").data)
    return state.hexdigest()
