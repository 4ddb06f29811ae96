"""Ports of a member: the configured one, or the next free one if none was configured; plain or with TLS."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

from holdfast.config.addresses import format_address
from holdfast.errors import ConfigError
from holdfast.runtime.doors.polled_door import BACKLOG, PolledDoor, bound
from holdfast.runtime.doors.tls_handshake import TlsEntrance
from holdfast.runtime.doors.tls_wire import TlsWire

PORTS_TRIED = 100
Server = TypeVar("Server", asyncio.Server, PolledDoor)


async def listen(
    make: Callable[[str, int], Awaitable[Server]], host: str, port: int, *, given: bool, key: str
) -> tuple[Server, int]:
    """Bind the port or, if it is only a default and in use, the next free one; `start_serving` opens it."""
    for candidate in range(port, min(65_536, port + (1 if given or port == 0 else PORTS_TRIED))):
        try:
            server = await make(host, candidate)
        except OSError as error:
            if given or port == 0:
                raise ConfigError(
                    f"{key} = {candidate}: cannot listen on {format_address(host, candidate)}: {error}"
                ) from None
            continue
        return server, int(server.sockets[0].getsockname()[1])
    raise ConfigError(f"{key}: none of the ports {port} to {port + PORTS_TRIED - 1} is free on {host}")


async def serve(server: asyncio.Server | PolledDoor) -> None:
    """Start listening. Raises OSError if another process listens at the port: two can bind it until one
    listens, and the loop's own server then reports nothing and drops its sockets.
    """
    try:
        await server.start_serving()
        sockets: Iterable[socket.socket | None] = server.sockets
        if any(each is None or each.fileno() < 0 for each in sockets):
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
    except OSError:
        server.close()
        raise


async def close(server: asyncio.Server | PolledDoor) -> None:
    """Stop listening. When this returns, connections accepted before have their protocols, so that their owner can
    close them; otherwise their sockets would stay open, and uvloop would wait for them for good when it is closed.

    asyncio accepts a connection in one turn of the loop and makes its transport in the next one, which fails if the
    server has been closed between the two.
    """
    if isinstance(server, asyncio.Server):
        loop = asyncio.get_running_loop()
        for listening in server.sockets:
            loop.remove_reader(listening.fileno())
        await _protocols_made()
    server.close()
    await _protocols_made()


async def _protocols_made() -> None:
    for _ in range(2):  # the transport, then connection_made
        await asyncio.sleep(0)


async def begin(server: asyncio.Server | PolledDoor, key: str) -> None:
    """`serve` for a port that others know already. Raises ConfigError."""
    try:
        await serve(server)
    except OSError as error:
        raise ConfigError(
            f"{key}: another process has started to listen at this port ({error.strerror}): start this one again"
        ) from None


async def loop_server(make: Callable[[], asyncio.BaseProtocol], host: str, port: int) -> asyncio.Server:
    loop = asyncio.get_running_loop()
    return await loop.create_server(make, host, port, backlog=BACKLOG, start_serving=False)


async def polled_door(host: str, port: int, entrance: TlsEntrance | None = None) -> PolledDoor:
    return PolledDoor(await bound(host, port), entrance)


def secured(
    make: Callable[[], asyncio.BaseProtocol], entrance: TlsEntrance
) -> Callable[[], asyncio.BaseProtocol]:
    """Wrap connections of the loop in TLS."""
    return lambda: TlsWire(entrance, make)
