"""What a training step keeps in memory, counted on the tensors themselves.

The parts are exact sums of the bytes of distinct storages: parameters, buffers, gradients after the
backward pass, the optimizer's state after its first step, and the activations that autograd saves
for the backward pass. The last are seen by saved-tensor hooks around the forward pass; a storage
counts once however often it is saved, not at all if it belongs to a parameter or a buffer, and only
if it is still there when the forward pass ends. Activations that are recomputed (checkpointing)
are therefore not among them, but the inputs from which they are recomputed are; so are the copies
of weights in half precision that autocast keeps.
"""

from __future__ import annotations

from collections.abc import Iterable
from types import TracebackType
from typing import Any, Self

import torch
from torch.multiprocessing.reductions import StorageWeakRef

MIB = 2**20


class SavedActivations:
    """Counts the bytes that autograd saves while the context is open (the forward pass)."""

    def __init__(self, model: torch.nn.Module) -> None:
        constants = (*model.parameters(), *model.buffers())
        self._constant = {t.untyped_storage()._cdata for t in constants}
        # Weak references keep a freed storage's place from being taken by a new one.
        self._seen: dict[Any, int] = {}
        self._hooks = torch.autograd.graph.saved_tensors_hooks(self._pack, _unpack)

    def _pack(self, tensor: torch.Tensor) -> torch.Tensor:
        if tensor.layout is torch.strided:
            storage = tensor.untyped_storage()
            if storage._cdata not in self._constant:
                self._seen[_weak(storage)] = storage.nbytes()
        # Not the tensor itself: a saved output would refer to its own node, and never be freed.
        return tensor.detach()

    def __enter__(self) -> Self:
        self._hooks.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._hooks.__exit__(kind, error, trace)

    def bytes(self) -> int:
        """Bytes that are saved now: call it between the forward and the backward pass."""
        return sum(size for storage, size in self._seen.items() if not storage.expired())


def _weak(storage: Any) -> Any:
    return StorageWeakRef(storage)  # type: ignore[no-untyped-call]


def _unpack(tensor: torch.Tensor) -> torch.Tensor:
    return tensor


def storage_bytes(tensors: Iterable[Any]) -> int:
    """Bytes of the distinct storages behind tensors; what is not a tensor does not count."""
    sizes = {
        t.untyped_storage()._cdata: t.untyped_storage().nbytes()
        for t in tensors
        if isinstance(t, torch.Tensor)
    }
    return sum(sizes.values())


def held_mib(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, float]:
    """Parameters, buffers, gradients and optimizer state that exist now, MiB."""
    state = (value for entry in optimizer.state.values() for value in entry.values())
    parts = {
        "parameters_mib": model.parameters(),
        "buffers_mib": model.buffers(),
        "gradients_mib": (p.grad for p in model.parameters()),
        "optimizer_mib": state,
    }
    return {name: storage_bytes(tensors) / MIB for name, tensors in parts.items()}
