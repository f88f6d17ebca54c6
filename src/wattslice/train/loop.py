"""The optimisation step, as lean as a bare PyTorch loop."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from wattslice.train.clock import StepClock
    from wattslice.train.ddp import Member

Batch = Mapping[str, Any]


class StepLoop:
    """Repeats fetch, forward, backward, update; keeps each step's loss on the device.

    A step of several micro-batches (gradient_accumulation_steps) adds up their gradients, each
    weighted by its share; its loss is their mean. As `member` of a data-parallel job the gradients
    are averaged over the job's workers in the last of them.
    """

    def __init__(
        self, workload: Any, context: Any, device: Any, member: Member | None = None
    ) -> None:
        model = workload.model.to(device).train()
        context.prepare(model)
        self._workload = workload
        self._model = model
        self._optimizer = workload.optimizer(model)
        self._parallel: Any = None if member is None else member.wrap(model, device)
        self._compiled = workload.compile_config is not None
        self._called = workload.compiled(model if self._parallel is None else self._parallel)
        self._parts: int = workload.gradient_accumulation_steps
        self._batches: Iterator[Batch] = workload.batches()
        self._autocast = context.autocast if context.autocasts else contextlib.nullcontext
        self._scaler = context.scaler
        self._device = device
        self._losses: list[Any] = []
        self.waited_s = 0.0  # for the data of the last step

    # -- the step -------------------------------------------------------------------------------

    def step(self) -> float:
        """One optimisation step; returns the time spent waiting for data, s."""
        batch = self._fetch()
        self._optimizer.zero_grad(set_to_none=True)
        if self._parts == 1:
            loss = self._forward(batch)
            self._backward(loss)
        else:
            loss = self._accumulate(batch)
        self._update()
        self._losses.append(loss.detach())
        return self.waited_s

    def _fetch(self) -> Batch:
        begin, device = time.monotonic(), self._device
        batch = {k: v.to(device, non_blocking=True) for k, v in next(self._batches).items()}
        self.waited_s = time.monotonic() - begin
        return batch

    def _forward(self, batch: Batch) -> Any:
        with self._autocast():
            return self._workload.loss(self._called, batch)

    def _backward(self, loss: Any) -> None:
        if self._scaler is None:
            loss.backward()
        else:
            self._scaler.scale(loss).backward()

    def _accumulate(self, batch: Batch) -> Any:
        total = None
        for number, part in enumerate(self._micro_batches(batch), start=1):
            last = self._parallel is None or number == self._parts
            with contextlib.nullcontext() if last else self._parallel.no_sync():
                loss = self._forward(part) / self._parts
                self._backward(loss)
            total = loss.detach() if total is None else total + loss.detach()
        return total

    def _micro_batches(self, batch: Batch) -> Iterator[Batch]:
        chunks = {key: value.chunk(self._parts) for key, value in batch.items()}
        for number in range(self._parts):
            yield {key: parts[number] for key, parts in chunks.items()}

    def _update(self) -> None:
        if self._scaler is None:
            self._optimizer.step()
        else:
            self._scaler.step(self._optimizer)
            self._scaler.update()

    def losses(self) -> list[float | None]:
        """Loss of every step so far, read from the device; null where it is not finite."""
        values = [float(loss) for loss in self._losses]
        return [value if math.isfinite(value) else None for value in values]

    # -- before the warm-up: two steps that are looked at more closely -----------------------------

    def profile_memory(self) -> dict[str, Any]:
        """Make one step and return what it keeps: the fields of records.run.MemoryBreakdown.

        Of a step in several micro-batches, the activations are those of the first.
        """
        from wattslice.workloads import memory

        batch = self._fetch()
        self._optimizer.zero_grad(set_to_none=True)
        activations: dict[str, Any] = {}
        losses = []
        for number, part in enumerate(self._micro_batches(batch)):
            if number or self._compiled:
                loss = self._forward(part)
            else:
                saved = memory.SavedActivations(self._model)
                with saved:
                    loss = self._forward(part)
                activations["activations_mib"] = saved.bytes() / memory.MIB
            self._backward(loss / self._parts)
            losses.append(loss.detach())
            del loss  # and with it the saved activations
        self._losses.append(sum(losses) / self._parts)
        if self._compiled:
            activations["reason"] = (
                "activations are not counted: what a compiled model saves is the compiler's choice"
            )
        # The gradients are there until the update; the optimizer's state is there after it.
        gradients = memory.held_mib(self._model, self._optimizer)["gradients_mib"]
        self._update()
        held = memory.held_mib(self._model, self._optimizer)
        return {**held, "gradients_mib": gradients, **activations}

    def profile_phases(self, clock: StepClock) -> dict[str, float]:
        """Make one step, synchronised after each part: the fields of records.run.StepPhases."""
        batch = self._fetch()
        self._optimizer.zero_grad(set_to_none=True)
        forward_s = backward_s = 0.0
        losses = []
        for part in self._micro_batches(batch):
            begin = clock.synchronise()
            loss = self._forward(part)
            middle = clock.synchronise()
            self._backward(loss / self._parts)
            end = clock.synchronise()
            forward_s, backward_s = forward_s + middle - begin, backward_s + end - middle
            losses.append(loss.detach())
        self._losses.append(sum(losses) / self._parts)
        begin = clock.synchronise()
        self._update()
        return {
            "data_s": self.waited_s,
            "forward_s": forward_s,
            "backward_s": backward_s,
            "optimizer_s": clock.synchronise() - begin,
        }
