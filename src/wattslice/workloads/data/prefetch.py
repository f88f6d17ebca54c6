"""Batches prepared ahead of the step by threads of the worker.

Threads, not processes: decoding and gathering run outside Python's lock, a slice's cores are the
worker's own anyway, and no batch has to be copied between processes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import torch

Batch = dict[str, torch.Tensor]


def prefetched(
    batch: Callable[[int], Batch], start: int, *, threads: int, ahead: int, pin_memory: bool = False
) -> Iterator[Batch]:
    """Yield `batch(start)`, `batch(start + 1)`, … in order and without end.

    Args:
        batch: a function of the step alone, safe to call from several threads.
        threads: threads that call it.
        ahead: batches per thread that are ready or in the making beyond the one handed out.
        pin_memory: hand out page-locked tensors, so that copies to a GPU need not wait.

    An exception of `batch` is raised where its batch would have been handed out.
    """

    def make(step: int) -> Batch:
        made = batch(step)
        return {key: value.pin_memory() for key, value in made.items()} if pin_memory else made

    pool = ThreadPoolExecutor(threads, thread_name_prefix="wattslice-data")
    waiting: deque[Future[Batch]] = deque()
    step = start
    try:
        while True:
            while len(waiting) <= threads * ahead:
                waiting.append(pool.submit(make, step))
                step += 1
            yield waiting.popleft().result()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
