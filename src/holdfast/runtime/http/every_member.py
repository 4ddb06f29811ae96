"""Answers of all members to a query, collected by one of them for a browser, which can reach only that one.

Threads ask the others on their client ports, with the credentials of the requester, so a user learns no more
than these permit. A result is shared by all requests for a moment.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any, Final

import msgspec

from holdfast.actions.operator_action import OperatorQuery
from holdfast.client.connection import Credentials
from holdfast.client.operator import ask
from holdfast.core.model.ids import Address
from holdfast.core.model.member_status import RESTARTED, MemberStatus
from holdfast.core.model.views import MemberInfo
from holdfast.errors import HoldfastError
from holdfast.runtime.http.member_http import HttpHost
from holdfast.wire.answers import Fate

FRESH_S: Final = 1.0
PATIENCE_S: Final = 2.0
"""A member that takes longer is shown as not responding."""
SHARED_MAX: Final = 32

Done = Callable[[bytes], None]


class MemberAnswer(msgspec.Struct, frozen=True):
    uuid: str
    name: str
    answer: Any
    error: str


class EveryMember:
    def __init__(self, host: HttpHost, loop: asyncio.AbstractEventLoop, threads: Executor) -> None:
        self._host = host
        self._loop = loop
        self._threads = threads
        self._made: dict[object, tuple[float, bytes]] = {}
        self._waiting: dict[object, list[Done]] = {}

    def ask(self, query: OperatorQuery, credentials: Credentials, done: Done) -> None:
        """`done` gets `{"at_ms": …, "members": [MemberAnswer, …]}` as JSON."""
        key = (
            query.declared.name,
            msgspec.msgpack.encode(query),
            credentials.username,
            credentials.password,
            credentials.token,
        )
        made_s, body = self._made.get(key, (0.0, b""))
        if body and time.monotonic() - made_s < FRESH_S:
            done(body)
            return
        waiting = self._waiting.setdefault(key, [])
        waiting.append(done)
        if len(waiting) == 1:
            self._loop.create_task(self._gather(query, credentials)).add_done_callback(
                lambda task: self._came(key, b"" if task.cancelled() else task.result())
            )

    async def _gather(self, query: OperatorQuery, credentials: Credentials) -> bytes:
        at_ms, members = self._host.wall_ms(), list(self._host.member.picture.members())
        answers = await asyncio.gather(*(self._one(info, query, credentials) for info in members))
        return msgspec.json.encode({"at_ms": at_ms, "members": answers})

    async def _one(self, info: MemberInfo, query: OperatorQuery, credentials: Credentials) -> MemberAnswer:
        def elsewhere() -> Any:
            address = Address(info.client_host, info.client_port)
            return ask(address, credentials, query, timeout_s=PATIENCE_S)

        try:
            if info.uuid == self._host.member_uuid:
                return MemberAnswer(info.uuid, info.name, *await self._here(query))
            found = await self._loop.run_in_executor(self._threads, elsewhere)
        except (HoldfastError, OSError) as error:
            return MemberAnswer(info.uuid, info.name, None, str(error))
        except Exception as error:  # noqa: BLE001  (an error of ours is shown as that of this member)
            self._host.faulty(f"the query {query.declared.name}", error)
            return MemberAnswer(info.uuid, info.name, None, f"{type(error).__name__}: {error}")
        if isinstance(found, MemberStatus) and found.uuid != info.uuid:
            return MemberAnswer(info.uuid, info.name, None, RESTARTED)
        return MemberAnswer(info.uuid, info.name, found, "")

    async def _here(self, query: OperatorQuery) -> tuple[Any, str]:
        answered: asyncio.Future[tuple[Any, str]] = self._loop.create_future()

        def done(fate: Fate, message: str, value: msgspec.Struct | None = None, _error: str = "") -> None:
            if not answered.done():
                answered.set_result((value, "" if fate is Fate.DONE else message))

        self._host.driver.enter()
        self._host.act(query, round(1000 * PATIENCE_S), done)
        return await answered

    def _came(self, key: object, body: bytes) -> None:
        if len(self._made) >= SHARED_MAX:
            self._made.pop(next(iter(self._made)))
        self._made[key] = time.monotonic(), body
        for done in self._waiting.pop(key):
            done(body)
