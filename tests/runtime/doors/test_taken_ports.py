"""Ports that two processes want at the same moment."""

from __future__ import annotations

import asyncio
import gc
import socket
from collections.abc import Awaitable, Callable
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
import uvloop
from tests.runtime.certificates import Authority

from holdfast.config import load
from holdfast.errors import ConfigError
from holdfast.runtime.doors.polled_door import PolledDoor
from holdfast.runtime.doors.taken_ports import begin, listen, loop_server, polled_door, serve
from holdfast.runtime.in_process.embedded import Member

HOST = "127.0.0.1"


def bound_elsewhere() -> socket.socket:
    """Somebody else's socket, at which nobody listens yet: others may be bound to its port too."""
    other = socket.socket()
    other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    other.bind((HOST, 0))
    return other


async def of_the_loop(host: str, port: int) -> asyncio.Server:
    return await loop_server(asyncio.Protocol, host, port)


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
@pytest.mark.parametrize("make", [of_the_loop, polled_door])
def test_who_comes_second_is_told_and_does_not_stand_there_deaf(
    new_loop: Callable[[], asyncio.AbstractEventLoop],
    make: Callable[[str, int], Awaitable[asyncio.Server | PolledDoor]],
) -> None:
    async def both() -> None:
        with bound_elsewhere() as other:
            port = other.getsockname()[1]
            server, taken = await listen(make, HOST, port, given=False, key="member.member_port")  # type: ignore[type-var]
            assert taken == port, "nobody listens there"
            other.listen()
            with pytest.raises(
                ConfigError, match=r"member\.member_port: another process .* start this one again"
            ):
                await begin(server, "member.member_port")
            server.close()

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(both())


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_port_that_is_lost_between_two_steps_is_passed_over(
    new_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    async def both() -> None:
        with bound_elsewhere() as other:
            port = other.getsockname()[1]

            async def slow(host: str, candidate: int) -> asyncio.Server:
                server = await of_the_loop(host, candidate)
                other.listen()
                await serve(server)
                return server

            server, taken = await listen(slow, HOST, port, given=False, key="http.port")
            assert taken > port
            with pytest.raises(ConfigError, match="cannot listen"):
                await listen(slow, HOST, port, given=True, key="http.port")
            server.close()

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(both())


@pytest.mark.parametrize("turns", range(5))
@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_no_connection_that_comes_while_a_member_stops_is_left_open(
    new_loop: Callable[[], asyncio.AbstractEventLoop], turns: int, tmp_path: Path, *, tls: bool
) -> None:
    ours = Authority(tmp_path, "ours")
    shown = ours.sign()
    secured = {"tls.ca": ours.file, "tls.certificate": shown.certificate, "tls.key": shown.key} if tls else {}
    free: dict[str, object] = {"http.enabled": True, "http.port": 0} | {
        "member.member_port": 0,
        "member.client_port": 0,
        "member.sockets": "loop",
    }

    async def story(ends: ExitStack) -> list[socket.socket]:
        member = Member(load(None, {}, free | secured))
        await member.start()
        node = member._node
        assert node.client_address is not None
        assert node._http.address is not None
        ports = [node._network.address.port, node.client_address.port, node._http.address.port]
        strangers = [ends.enter_context(socket.create_connection((HOST, port))) for port in ports]
        for _ in range(turns):
            await asyncio.sleep(0)
        await member.crash()
        return strangers

    with ExitStack() as ends:
        with asyncio.Runner(loop_factory=new_loop) as runner:
            strangers = runner.run(story(ends))
        for stranger in strangers:
            stranger.settimeout(10)
            with suppress(ConnectionError):
                while stranger.recv(1024):
                    pass
        gc.collect()  # A transport that nobody closed warns here, and warnings are errors.
