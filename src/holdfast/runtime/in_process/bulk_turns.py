"""A budget of work per event-loop turn for calls on many entries, so that the program's other tasks keep running.

An entry costs some microseconds to serialize, look up, store and record for backups; `TURN` of them take a few
milliseconds. All calls of a member share the budget, in order of arrival. Example: calls of cost 300, 300 and 100
arrive in one turn. The first runs now; the others wait for the next turn, and run there together.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Coroutine, Iterator, Sequence

from holdfast.errors import RequestError

TURN = 500
ENTRY_BYTES = 512
"""So much data costs as much as one entry."""
REQUEST = 16
PIECE = 250
"""Maximum cost of the entries of one request, unless a single one costs more."""
PORTION = 25
"""Work whose cost is not known in advance is counted after this much."""
AT_ONCE, SMALL_AT_ONCE = 8, 64


def cost_of(parts: Sequence[bytes], entries: int) -> int:
    return entries + sum(map(len, parts)) // ENTRY_BYTES


class BulkTurns:
    def __init__(self) -> None:
        self._spent = self._granted = 0
        self._scheduled = False
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    async def take(self, cost: int) -> None:
        """Return in a turn with room for this. A larger cost than the budget gets its own turn."""
        self._schedule()
        if self._waiting or (self._spent and self._spent + cost > TURN):
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append((cost, future))
            await future
        else:
            self._spent += cost

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._next)

    def _next(self) -> None:
        waiting = self._waiting
        self._scheduled = False
        self._spent, self._granted = self._granted, 0
        if waiting or self._spent:
            self._schedule()  # Before a caller resumes, so that the next turn begins with this call.
        while waiting:
            cost, future = waiting[0]
            if not future.done():
                if self._granted and self._granted + cost > TURN:
                    break
                self._granted += cost
                future.set_result(None)
            waiting.popleft()  # Granted, or cancelled by its caller.


async def work_off(
    works: Iterator[Coroutine[None, None, None]], at_once: int = AT_ONCE
) -> list[RequestError | None]:
    """Run all, `at_once` at a time; returns each one's RequestError or None, raises others."""
    told: list[RequestError | None] = []

    async def worker() -> None:
        for work in works:
            try:
                await work
                told.append(None)
            except RequestError as error:
                told.append(error)

    workers = [asyncio.create_task(worker()) for _ in range(at_once)]
    try:
        await asyncio.gather(*workers)
    except BaseException:
        for one in workers:
            one.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
        raise
    return told
