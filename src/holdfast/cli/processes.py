"""Distributes work to processes, item by item; results come in any order."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from typing import TypeVar

Item = TypeVar("Item")
Answer = TypeVar("Answer")

QUEUED_PER_WORKER = 2
"""Items handed out ahead, so that no worker waits and an interrupted campaign ends soon."""


def spread(
    items: Iterable[Item], work: Callable[[Item], Answer], workers: int
) -> Generator[Answer, None, None]:
    """Yield `work(item)` for every item, in any order; with one worker in this process, and in order."""
    if workers == 1:
        for item in items:
            yield work(item)
        return
    ahead = iter(items)
    # Spawned workers start clean, so that a run behaves in a worker as it does alone.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, mp_context=context) as pool:
        running: set[Future[Answer]] = set()
        try:
            while True:
                while (
                    len(running) < workers * QUEUED_PER_WORKER
                    and (following := next(ahead, None)) is not None
                ):
                    running.add(pool.submit(work, following))
                if not running:
                    return
                done, running = wait(running, return_when=FIRST_COMPLETED)
                for future in done:
                    yield future.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
