"""How much may calls about many entries do in one turn of the event loop? Others who use it have theirs in between.

An entry costs some microseconds (to be written or read as a value, looked up, stored, recorded for the backups), so
`TURN` of them are a few milliseconds. All calls of a member share one turn, and go on in the order in which they came.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Coroutine, Iterator, Sequence

from holdfast.errors import RequestError

TURN = 500
"""Small entries in one turn, of all calls together."""
ENTRY_BYTES = 512
"""So many bytes count as one entry more."""
REQUEST = 16
"""What a request costs beside its entries."""
PIECE = 250
"""Of one request: what its entries cost at most, unless a single one costs more."""
PORTION = 25
"""Of what is done before it is known what it costs: so much, and then it is counted."""
AT_ONCE, SMALL_AT_ONCE = 8, 64
"""Requests of one call that are under way at the same time; and small ones, about one entry each."""


def cost_of(parts: Sequence[bytes], entries: int) -> int:
    """What so many entries cost, of which these are keys and values."""
    return entries + sum(map(len, parts)) // ENTRY_BYTES


class BulkTurns:
    """One turn after another, each with room for `TURN`; for all calls of one member."""

    def __init__(self) -> None:
        self._spent = self._granted = 0
        """In this turn; and to those who are let go on in the next one."""
        self._scheduled = False
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    async def take(self, cost: int) -> None:
        """Returns in a turn that has room for this. What costs more than a whole turn has one for itself."""
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
        """A new turn begins. Those who wait are let go on, and do so in the next one."""
        waiting = self._waiting
        self._scheduled = False
        self._spent, self._granted = self._granted, 0
        if waiting or self._spent:
            self._schedule()  # Before anybody goes on, so that the next turn begins with it.
        while waiting:
            cost, future = waiting[0]
            if not future.done():
                if self._granted and self._granted + cost > TURN:
                    break
                self._granted += cost
                future.set_result(None)
            waiting.popleft()  # Also of a call that was cancelled.


async def work_off(
    works: Iterator[Coroutine[None, None, None]], at_once: int = AT_ONCE
) -> list[RequestError | None]:
    """Do all of these, so many at a time; answers what has failed of each. Other errors are raised."""
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
