"""Operators are served while a primary does not read from clients, because its backups are behind."""

from __future__ import annotations

import asyncio

import pytest
from tests.runtime.in_process.test_embedded import cluster, run

from holdfast.client.blocking import Client


@pytest.mark.parametrize("sockets", ["poll", "loop"])
def test_an_operator_is_answered_while_clients_wait(sockets: str) -> None:
    async def story() -> None:
        async with cluster(1, member__sockets=sockets) as (one,):
            door = one._node._door

            def ask_twice(operates: bool) -> list[bool]:
                with Client(one.client_address, operates=operates, timeout_s=120) as client:
                    return [client.status().backlog.throttled for _ in range(2)]

            door.backlog.crowded = True
            waiting = asyncio.create_task(asyncio.to_thread(ask_twice, False))
            for _ in range(2):
                assert await asyncio.to_thread(ask_twice, True) == [True, True]
            assert not waiting.done()
            door.backlog.crowded = False
            door.backlog_changed()
            await waiting

    run(story())
