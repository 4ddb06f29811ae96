"""A queue for asyncio programs."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Generic, Self, TypeVar

from holdfast.aio.queue_takers import QueueTakers
from holdfast.client_core import message_decoding as views
from holdfast.client_core import request_forms as forms
from holdfast.serialization.serializers import Serializers

V = TypeVar("V")
_DRAINED = 1000


class Queue(Generic[V]):
    """One queue of one client; `V` is for type checkers. `async for` takes items without end.

    Operations raise Refused (certainly not applied) or Unknown: the item may have been added, or taken and lost, as
    when a connection breaks before the response. They are not repeated then. `size` and `peek` never raise Unknown.

        jobs: Queue[str] = client.queue("jobs")
        await jobs.offer("resize 17.png")
        async for job in jobs:
            print(job)
    """

    def __init__(self, takers: QueueTakers, serializers: Serializers) -> None:
        self.name = takers.name
        self._takers = takers
        self._dump: Callable[[object], bytes] = serializers.dump_value
        self._load: Callable[[bytes | None], Any] = serializers.load

    async def offer(self, item: V, timeout_s: float = 0) -> bool:
        """Add an item; if the queue is full, wait for room for `timeout_s`. Returns whether it was added. A cancelled
        call may have added it, or add it up to a second later. Raises TypeError, ValueError.
        """
        return await self._takers.offer(self._dump(item), _checked(timeout_s))

    async def put(self, item: V) -> None:
        """Add an item; wait for room without end. Cancelling it is as with `offer`."""
        await self._takers.offer(self._dump(item), math.inf)

    async def poll(self, timeout_s: float = 0) -> V | None:
        """Take the first item; wait for one for `timeout_s`. None: there was none.

        If the call is cancelled, its request may still take an item, up to a second later. The item goes to the next
        task of this client that takes one. `Client.close` returns it to the end of the queue. It is lost if the process
        ends before, or the connection.
        """
        found: V | None = self._load(await self._takers.poll(_checked(timeout_s)))
        return found

    async def take(self) -> V:
        """Take the first item; wait for one without end. Cancelling it is as with `poll`."""
        stored = await self._takers.poll(math.inf)
        found: V = self._load(stored)
        return found

    async def peek(self) -> V | None:
        """The first item, which stays in the queue, or None."""
        found: V | None = self._load(views.value_or_none(await self._takers.ask(forms.QUEUE_PEEK)))
        return found

    async def size(self) -> int:
        """Items in the queue."""
        return views.count_in(await self._takers.ask(forms.QUEUE_SIZE))

    async def items(self) -> list[V]:
        """All items in their order, which stay in the queue."""
        return list(map(self._load, views.values(await self._takers.ask(forms.QUEUE_ITEMS))))

    async def drain(self, max_items: int = _DRAINED) -> list[V]:
        """Take up to `max_items` items that are there; members accept up to 2,000. Cancelling it is as with `poll`.
        Raises ValueError.
        """
        if not 1 <= max_items < 2**31:
            raise ValueError(f"max_items is 1 or more, not {max_items!r}")
        return list(map(self._load, await self._takers.drain(max_items)))

    async def clear(self) -> None:
        """Remove all items."""
        await self._takers.ask(forms.QUEUE_CLEAR)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> V:
        return await self.take()


def _checked(timeout_s: float) -> float:
    """Raises TypeError, ValueError."""
    if isinstance(timeout_s, bool) or not isinstance(timeout_s, int | float):
        raise TypeError(f"timeout_s is a number of seconds, not {type(timeout_s).__name__}")
    if not timeout_s >= 0:
        raise ValueError(f"timeout_s is 0 or more seconds, not {timeout_s!r}")
    return timeout_s
