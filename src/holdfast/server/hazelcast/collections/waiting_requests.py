"""Requests that wait: for an item, for room, or for a lock.

A request that has to wait does so at the primary of its partition, for half of the call timeout. Then it is made again,
until the client's timeout is over.
"""

from __future__ import annotations

from collections.abc import Callable, Generator

from holdfast.core.model.collections import FOREVER_MS
from holdfast.core.model.ids import MILLISECOND
from holdfast.core.model.operations import Request, Value
from holdfast.server.hazelcast.conversation import Conversation, Made
from holdfast.server.hazelcast.maps import Answering
from holdfast.wire.hazelcast.layouts import Call


def is_none(value: Value) -> bool:
    """Neither an item nor room was there."""
    return value is None or value is False


def ask_until(
    talk: Conversation,
    call: Call,
    request: Callable[[int], Request],
    timeout_ms: int,
    answer: Answering,
    lacks: Callable[[Value], bool] = is_none,
) -> None:
    """Make a request until it succeeds, or `timeout_ms` are over (0: once; `FOREVER_MS`: without end). `request` makes
    it, with the time that it may wait. `lacks`: whether a value means that it has not
    succeeded yet.
    """
    endless = timeout_ms == FOREVER_MS
    end_ns = talk.grid.now_ns() + timeout_ms * MILLISECOND

    def left_ms() -> int:
        left_ns = end_ns - talk.grid.now_ns()
        return FOREVER_MS if endless else max(0, -(-left_ns // MILLISECOND))

    def ask(wait_ms: int) -> None:
        talk.execute_waiting(call, request(min(wait_ms, FOREVER_MS)), answered)

    def answered(value: Value) -> Made:
        wait_ms = left_ms() if timeout_ms > 0 and lacks(value) else 0
        return _once_more(lambda: ask(wait_ms)) if wait_ms else answer(call, value)

    ask(timeout_ms)


def _once_more(ask: Callable[[], None]) -> Generator[None, None, None]:
    yield
    ask()
