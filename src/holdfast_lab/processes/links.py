"""Links between members that can be cut: each member is reached through a proxy, which learns the sender from the
greeting.

A member listens at a hidden loopback address, and the proxy at the address that it announces (`member.public_host`).
Each connection between members carries packets in one direction only (`runtime/peering/member_frames.py`), and begins
with the sender's address, so each directed pair of members can be cut or slowed down separately.

A cut link holds what arrives, and new connections wait, while the kernel still acknowledges. When it heals, the held
bytes arrive late, or its connections break, depending on the cut.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Collection
from typing import Any, Self

import msgspec

from holdfast.config import parse_address
from holdfast.config.addresses import format_address
from holdfast.runtime.peering.member_frames import LENGTH_BYTES, REQUEST_BYTES_MAX
from holdfast.runtime.peering.member_handshake import OPENING_BYTES, HandshakeRequest
from holdfast_lab.processes.local_cluster import LocalCluster, ManagedMember

PIECE_BYTES = 65_536
OCTETS = range(20, 220)

Link = tuple[str, str]
"""From the member at the first address (`host:port`, as announced) to the second."""


class Links:
    """The proxies, on a thread of their own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="links", daemon=True)
        self._servers: list[asyncio.Server] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._cut: dict[Link, asyncio.Event] = {}
        self._late = True
        self._delay_s: dict[Link, float] = {}
        self.swallowed = 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _stop(self) -> None:
        for server in self._servers:
            server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # -- routes

    def to_member(self, public: str, real_host: str) -> None:
        """Other members reach the member at this host through `public` (`host:port`, the same port) from now
        on.
        """
        self._listen(public, real_host, self._member)

    def to_client(self, public: str, real_host: str) -> None:
        """The same for its client port; these links are never cut."""
        self._listen(public, real_host, self._client)

    def _listen(self, public: str, real_host: str, serve: Callable[..., Any]) -> None:
        host, port = parse_address(public, "links")

        async def listening() -> None:
            async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                task = asyncio.current_task()
                assert task is not None, "streams run their callbacks as tasks"
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
                await self._through(reader, writer, public, real_host, port, serve)

            self._servers.append(await asyncio.start_server(connected, host, port))

        asyncio.run_coroutine_threadsafe(listening(), self._loop).result()

    async def _through(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        public: str,
        host: str,
        port: int,
        serve: Callable[..., Any],
    ) -> None:
        there: asyncio.StreamWriter | None = None
        try:
            answers, there = await asyncio.open_connection(host, port)
            await serve(reader, there, answers, writer, public)
        except (OSError, asyncio.IncompleteReadError, msgspec.MsgspecError, asyncio.CancelledError):
            pass  # The other end sees that the connection has ended.
        finally:
            for end in (writer, there):
                if end is not None:
                    end.transport.abort()

    async def _client(
        self,
        asked: asyncio.StreamReader,
        there: asyncio.StreamWriter,
        answers: asyncio.StreamReader,
        back: asyncio.StreamWriter,
        public: str,
    ) -> None:
        await _first_of(_pump(asked, there), _pump(answers, back))

    async def _member(
        self,
        said: asyncio.StreamReader,
        there: asyncio.StreamWriter,
        answers: asyncio.StreamReader,
        back: asyncio.StreamWriter,
        public: str,
    ) -> None:
        back.write(await answers.readexactly(OPENING_BYTES))
        length = await said.readexactly(LENGTH_BYTES)
        body = await said.readexactly(min(int.from_bytes(length, "little"), REQUEST_BYTES_MAX))
        greeting = msgspec.msgpack.decode(body, type=HandshakeRequest)
        link = (format_address(greeting.host, greeting.port), public)
        await self._gate(link)
        there.write(length + body)
        await _first_of(
            _pump(said, there, lambda: self._gate(link)), _pump(answers, back, lambda: self._gate(link))
        )

    async def _gate(self, link: Link) -> None:
        """Wait until the link is whole. Raises ConnectionResetError if held bytes are lost."""
        if delay_s := self._delay_s.get(link):
            await asyncio.sleep(delay_s)
        healed = self._cut.get(link)
        if healed is not None:
            self.swallowed += 1
            await healed.wait()
            if not self._late:
                raise ConnectionResetError("lost while the link was cut")

    # -- faults

    def cut(self, links: Collection[Link], *, late: bool) -> None:
        """`late`: bytes sent until `heal` arrive afterwards; otherwise they are lost."""

        def deed() -> None:
            self._late = late
            for link in links:
                self._cut.setdefault(link, asyncio.Event())

        self._loop.call_soon_threadsafe(deed)

    def slow(self, links: Collection[Link], delay_s: float) -> None:
        """Delay each piece of up to 64 KiB on these links, until `heal`."""
        self._loop.call_soon_threadsafe(lambda: self._delay_s.update(dict.fromkeys(links, delay_s)))

    def heal(self) -> None:
        def deed() -> None:
            healed, self._cut = self._cut, {}
            self._delay_s.clear()
            for event in healed.values():
                event.set()

        self._loop.call_soon_threadsafe(deed)


async def _pump(
    source: asyncio.StreamReader, sink: asyncio.StreamWriter, gate: Callable[[], Any] | None = None
) -> None:
    while piece := await source.read(PIECE_BYTES):
        if gate is not None:
            await gate()
        sink.write(piece)
        await sink.drain()
    if gate is not None:
        await gate()  # The end of a stream does not pass a cut link either.


async def _first_of(*ways: Any) -> None:
    tasks = [asyncio.ensure_future(way) for way in ways]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class LinkedCluster(LocalCluster):
    """Members that reach each other, and are reached by clients, through proxies. `links` must be running."""

    def __init__(self, links: Links, members: int = 3, config: str = "", **options: Any) -> None:
        super().__init__(members, config, **options)
        self.links = links
        self._net = f"127.{OCTETS[os.getpid() % len(OCTETS)]}"
        self._proxied: set[str] = set()

    def host_of(self, name: str) -> str:
        return f"{self._net}.2.{name.removeprefix('m')}"

    def _real_host(self, name: str) -> str:
        return f"{self._net}.1.{name.removeprefix('m')}"

    def arguments(self, name: str) -> list[str]:
        return ["--set", f"member.host={self._real_host(name)}", "--public-host", self.host_of(name)]

    def _start(self, name: str, doors: tuple[str, str], *rest: Any, **options: Any) -> ManagedMember:
        if name not in self._proxied:
            self._proxied.add(name)
            self.links.to_member(doors[0], self._real_host(name))
            self.links.to_client(doors[1], self._real_host(name))
        return super()._start(name, doors, *rest, **options)


def between(these: Collection[str], those: Collection[str]) -> set[Link]:
    return {(one, other) for one in these for other in those if one != other}
