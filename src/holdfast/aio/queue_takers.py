"""Requests for one queue, and the items of cancelled calls.

- aio/Q-1: An item that a cancelled call took goes to the next task of this client that takes one; when the client is
  closed, to the end of the queue.

Example: a task waits in `take` and is cancelled. Its request still waits at the member, for `SLICE_S` at most, and may
get an item there. If the answer were ignored, that item would be lost. So `QueueTakers` keeps the request, and another
task adopts it, or finds the item when it comes.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from typing import Any, Protocol

from holdfast.client_core import message_decoding as views
from holdfast.client_core import request_forms as forms
from holdfast.client_core.request_forms import RequestForm, last
from holdfast.core.model.collections import FOREVER_MS, partition_of_name
from holdfast.core.model.operations import MAP_NAME_MAX
from holdfast.errors import ConfigError, HoldfastError, Refused, Unknown
from holdfast.serialization.serializers import Serializers
from holdfast.wire.hazelcast.hazelcast_frames import INT, LONG, message, text

SLICE_S = 1.0
"""`take` and `put` ask again after so long. So a cancelled one leaves no request for longer."""
SETTLE_S = 3.0
"""Longest time for which `Client.close` waits for the requests of cancelled calls, and returns their items."""


class Asking(Protocol):
    serializers: Serializers
    unsettled: set[QueueTakers]

    @property
    def partition_count(self) -> int: ...

    async def ask(self, form: RequestForm, partition: int, rest: bytes) -> Any:
        """See `Client.ask`."""


class QueueTakers:
    """Requests that take items of one queue. They go on when their task is cancelled (aio/Q-1)."""

    def __init__(self, client: Asking, name: str) -> None:
        """Raises ConfigError for an invalid name."""
        given: object = name  # Callers without a type checker pass anything.
        if not isinstance(given, str) or not 1 <= len(given) <= MAP_NAME_MAX:
            raise ConfigError(
                f"{name!r} cannot be a queue's name: it is a text of 1 to {MAP_NAME_MAX} characters"
            )
        self.name = name
        self._client = client
        self._named = text(name)
        self._named_last = message([self._named])
        self._kept: deque[bytes] = deque()
        """Items that cancelled calls took."""
        self._abandoned: deque[asyncio.Task[list[bytes]]] = deque()
        """Requests of cancelled calls, without an answer yet."""
        self._kept_more: asyncio.Future[None] | None = None

    async def ask(self, kind: int, fixed: bytes = b"", stored: bytes | None = None) -> bytes:
        """The whole response. Raises Refused, Unknown."""
        partition = partition_of_name(self.name, self._client.partition_count or 1)
        if stored is None:
            form, rest = forms.form(kind, fixed), self._named_last
        else:
            form, rest = forms.form(kind, fixed, self._named), last(stored)
        answer: bytes = await self._client.ask(form, partition, rest)
        return answer

    async def offer(self, stored: bytes, timeout_s: float) -> bool:
        loop = asyncio.get_running_loop()
        end_s = loop.time() + timeout_s
        left_s = timeout_s
        while True:
            fixed = _milliseconds(min(left_s, SLICE_S))
            if views.truth(await self.ask(forms.QUEUE_OFFER, fixed, stored)):
                return True
            left_s = end_s - loop.time()
            if left_s <= 0:
                return False

    async def poll(self, timeout_s: float) -> bytes | None:
        """An item; None after `timeout_s`, which may be infinite."""
        loop = asyncio.get_running_loop()
        end_s = loop.time() + timeout_s
        while not self._kept:
            left_s = max(0.0, end_s - loop.time())
            adopted = bool(self._abandoned and left_s)
            request = self._adopt() if adopted else self._begin(min(left_s, SLICE_S))
            await self._wait(request, left_s if adopted and left_s < math.inf else None)
            if not request.done():
                self._abandon(request)
            elif items := request.result():
                return items[0]
            if not self._kept and loop.time() >= end_s:
                return None
        return self._pop(1)[0]

    async def drain(self, most: int) -> list[bytes]:
        taken = self._pop(most)
        if len(taken) == most:
            return taken
        request = asyncio.ensure_future(self._drain(most - len(taken)))
        try:
            await self._wait(request, None, until_kept=False)
            return taken + request.result()
        except BaseException:
            self._keep(taken)
            raise

    async def _wait(
        self, request: asyncio.Task[list[bytes]], timeout_s: float | None, *, until_kept: bool = True
    ) -> None:
        waited: set[asyncio.Future[Any]] = {request}
        if until_kept:
            if self._kept_more is None or self._kept_more.done():
                self._kept_more = asyncio.get_running_loop().create_future()
            waited.add(self._kept_more)
        try:
            await asyncio.wait(waited, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            self._abandon(request)
            raise

    def _begin(self, timeout_s: float) -> asyncio.Task[list[bytes]]:
        return asyncio.ensure_future(self._poll(timeout_s))

    async def _poll(self, timeout_s: float) -> list[bytes]:
        found = views.value_or_none(await self.ask(forms.QUEUE_POLL, _milliseconds(timeout_s)))
        return [] if found is None else [found]

    async def _drain(self, most: int) -> list[bytes]:
        return views.values(await self.ask(forms.QUEUE_DRAIN, INT.pack(most)))

    # -- requests and items of cancelled calls

    def _abandon(self, request: asyncio.Task[list[bytes]]) -> None:
        self._abandoned.append(request)
        self._client.unsettled.add(self)
        request.add_done_callback(self._on_answer)

    def _adopt(self) -> asyncio.Task[list[bytes]]:
        request = self._abandoned.popleft()
        self._check_settled()
        return request

    def _on_answer(self, request: asyncio.Task[list[bytes]]) -> None:
        if request not in self._abandoned:
            return  # Another task has adopted it.
        self._abandoned.remove(request)
        error = None if request.cancelled() else request.exception()
        if isinstance(error, Unknown):
            self._report(f"a cancelled call may have lost items of queue {self.name!r}", error)
        self._keep(request.result() if error is None and not request.cancelled() else [])

    def _keep(self, items: list[bytes]) -> None:
        self._kept.extend(items)
        if self._kept:
            self._client.unsettled.add(self)
            if self._kept_more is not None and not self._kept_more.done():
                self._kept_more.set_result(None)
        self._check_settled()

    def _pop(self, most: int) -> list[bytes]:
        popped = [self._kept.popleft() for _ in range(min(most, len(self._kept)))]
        self._check_settled()
        return popped

    def _check_settled(self) -> None:
        if not self._kept and not self._abandoned:
            self._client.unsettled.discard(self)

    async def settle(self) -> None:
        """Wait for the requests of cancelled calls, and return their items to the end of the queue."""
        try:
            async with asyncio.timeout(SETTLE_S):
                while self._abandoned:
                    await asyncio.wait(list(self._abandoned))
                    await asyncio.sleep(0)  # The callbacks run.
                while self._kept:
                    if not await self.offer(self._kept[0], 0):
                        raise Refused("the queue is full")
                    self._kept.popleft()
        except (HoldfastError, TimeoutError) as error:
            if self._kept:
                self._report(f"{len(self._kept)} items of queue {self.name!r} are lost", error)

    def _report(self, what: str, error: BaseException) -> None:
        asyncio.get_running_loop().call_exception_handler({"message": what, "exception": error})


def _milliseconds(timeout_s: float) -> bytes:
    return LONG.pack(round(min(timeout_s * 1000, FOREVER_MS)))
