"""The optimisation step, as lean as a bare PyTorch loop."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping
from typing import Any


class StepLoop:
    """Repeats fetch, forward, backward, update; keeps each step's loss on the device."""

    def __init__(self, workload: Any, context: Any, device: Any) -> None:
        workload.model.to(device).train()
        self._workload = workload
        self._model = workload.model
        self._optimizer = workload.optimizer(workload.model)
        self._batches: Iterator[Mapping[str, Any]] = workload.batches()
        self._autocast = context.autocast
        self._scaler = context.scaler
        self._device = device
        self._losses: list[Any] = []

    def step(self) -> float:
        """One optimisation step; returns the time spent waiting for data, s."""
        begin = time.monotonic()
        batch = {k: v.to(self._device, non_blocking=True) for k, v in next(self._batches).items()}
        waited = time.monotonic() - begin
        self._optimizer.zero_grad(set_to_none=True)
        with self._autocast():
            loss = self._workload.loss(self._model, batch)
        if self._scaler is None:
            loss.backward()
            self._optimizer.step()
        else:
            self._scaler.scale(loss).backward()
            self._scaler.step(self._optimizer)
            self._scaler.update()
        self._losses.append(loss.detach())
        return waited

    def losses(self) -> list[float | None]:
        """Loss of every step so far, read from the device; null where it is not finite."""
        values = [float(loss) for loss in self._losses]
        return [value if math.isfinite(value) else None for value in values]
