"""Transactions that are repeated after a rollback."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Protocol, Self, TypeVar

from holdfast.errors import RolledBack

Answer = TypeVar("Answer")
PAUSE_S = 0.01
PAUSE_MAX_S = 1.0


class Transacting(Protocol):
    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


T = TypeVar("T", bound=Transacting)


async def transact(
    begin: Callable[[], T],
    work: Callable[[T], Awaitable[Answer]],
    attempts: int,
    sleep: Callable[[float], Awaitable[None]],
    draw: Callable[[], float],
) -> Answer:
    """Run `work` in a transaction and return its result; repeat it after a rollback, up to `attempts` times. Raises
    RolledBack after the last attempt, and any other error at once. `sleep`: for seconds; `draw`: a random number from
    0 to 1.
    """
    if attempts < 1:
        raise ValueError("attempts must be at least 1")
    pause_s = PAUSE_S
    for attempt in range(attempts):
        try:
            async with begin() as transaction:
                return await work(transaction)
        except RolledBack:
            if attempt + 1 == attempts:
                raise
            # A random delay, so that conflicting transactions do not collide again.
            await sleep(pause_s * (0.5 + draw()))
            pause_s = min(PAUSE_MAX_S, pause_s * 2)
    raise AssertionError("the last attempt answers or raises")
