"""An asyncio client of a cluster: members, owners, and requests on their way to them.

It keeps one connection to each member and sends what concerns one key to the member that owns its partition. What
members certainly did not apply is sent again until `patience_s` is over; what may have been applied raises Unknown,
unless it only reads.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Sequence
from itertools import cycle
from types import TracebackType
from typing import Self, TypeVar
from uuid import uuid4

from holdfast.aio.asyncio_map import Map
from holdfast.aio.member_line import LineBroken, LineClosed, MemberLine
from holdfast.aio.member_views import (
    MAYBE_APPLIED,
    NOT_APPLIED,
    RequestForm,
    Welcome,
    error_of,
    nothing,
    read_error,
    read_members,
    read_owners,
    read_welcome,
)
from holdfast.errors import ConfigError, Denied, HoldfastError, NotReady, ProtocolError, Unknown
from holdfast.version import __version__
from holdfast.wire.doors import HAZELCAST_CLIENT
from holdfast.wire.hazelcast_frames import BEGIN, END, IS_FINAL, REQUEST, UNFRAGMENTED, message, text, uuid

AUTHENTICATE, CLUSTER_VIEW, PING = 0x000100, 0x000300, 0x000B00
MEMBERS_VIEW, PARTITIONS_VIEW = 0x000302, 0x000303
KIND_AT = 6
"""Where the type of a message stands in it."""
BEAT_S = 1.0
PING_AFTER_S = 5.0
SILENCE_S = 60.0
"""A member that says nothing for so long is given up, as official clients do."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.01, 1.0
_KIND = struct.Struct("<i")

Answer = TypeVar("Answer")


class Client:
    """One client of one cluster; use it from one event loop. An asynchronous context manager."""

    def __init__(
        self,
        addresses: Sequence[str] = ("127.0.0.1:5701",),
        *,
        cluster_name: str = "dev",
        username: str | None = None,
        password: str | None = None,
        connect_timeout_s: float = 10.0,
        patience_s: float = 120.0,
        message_bytes: int = 256 * 1024 * 1024,
    ) -> None:
        """`addresses`: doors for clients, as `host:port`; one that answers is enough. `connect_timeout_s`: for how long
        `connect` tries. `patience_s`: for how long a request that was not applied is sent again. `message_bytes`: the
        longest answer that is taken. Raises ConfigError.
        """
        self._seeds = [_parse(address) for address in addresses]
        if not self._seeds:
            raise ConfigError("addresses: name at least one member, as host:port")
        self._cluster_name = cluster_name
        self._username = username
        self._password = password
        self._connect_timeout_s = connect_timeout_s
        self._patience_s = patience_s
        self._limit = message_bytes
        self._uuid = uuid(str(uuid4()))
        self.partition_count = 0
        """How many partitions the cluster has; 0 before `connect`."""
        self._cluster = b""
        self._members: dict[bytes, tuple[str, int]] = {}
        self._owners: list[bytes] = []
        self._lines: dict[bytes, MemberLine] = {}
        self._route: list[MemberLine | None] = []
        """The connection to the owner of each partition."""
        self._turns: cycle[MemberLine | None] = cycle([None])
        self._viewer: MemberLine | None = None
        """The connection on which members and owners are told."""
        self._opening: set[MemberLine] = set()
        self._changed = asyncio.Event()
        """Set when a connection or a member comes or goes."""
        self._keeper: asyncio.Task[None] | None = None
        self._closed = False

    # -- beginning and end

    async def connect(self) -> Self:
        """Connect to the cluster. Raises Denied when name or credentials are refused, NotReady when nobody answers."""
        if self._closed or self._keeper is not None:
            raise ConfigError("a client is connected once; make another one")
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._connect_timeout_s
        pause_s = FIRST_PAUSE_S
        try:
            while not (self._lines and self._members):
                told = await self._open_missing()
                if self._lines and loop.time() < deadline:
                    await self._wait_changed(0.1)
                    continue
                if denied := next((error for error in told if isinstance(error, Denied)), None):
                    raise denied
                if loop.time() > deadline:
                    raise NotReady("no member could be reached: " + "; ".join(map(str, told)))
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
        except BaseException:
            await self.close()
            raise
        self._keeper = loop.create_task(self._keep(), name="holdfast.aio keeps connections")
        return self

    async def close(self) -> None:
        """End all connections; what is in flight fails, writes as Unknown. Nothing is left behind."""
        self._closed = True
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.gather(self._keeper, return_exceptions=True)
        for line in [*self._lines.values(), *self._opening]:
            line.end("the client is closed")
        self._changed.set()
        await asyncio.sleep(0)

    async def __aenter__(self) -> Self:
        return await self.connect()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def connected(self) -> list[str]:
        """The members that there is a connection to, as `host:port`."""
        return sorted(f"{line.address[0]}:{line.address[1]}" for line in self._lines.values())

    def map(self, name: str) -> Map:
        """The map of this name; it comes into being when it is first written to."""
        return Map(self, name)

    # -- requests

    async def ask(
        self, form: RequestForm, rest: bytes, partition: int, decode: Callable[[bytes], Answer]
    ) -> Answer:
        """Send a request to the owner of the partition (-1: to any member); answers what `decode` makes of the answer.

        `rest`: the frames that follow those of the form, the last one flagged final. Raises Refused, Unknown.
        """
        first_bytes = REQUEST.size + len(form.fixed)
        tail = form.fixed + form.before + rest
        tries = 0
        deadline = 0.0
        while True:
            line = self._line_for(partition)
            why = "no member is connected"
            if line is not None:
                try:
                    if not line.room.is_set():
                        await line.room.wait()
                    correlation, future = line.begin(first_bytes, UNFRAGMENTED, form.kind, partition, tail)
                    try:
                        answer = await future
                    finally:
                        line.pending.pop(correlation, None)
                    if _KIND.unpack_from(answer, KIND_AT)[0] == form.kind + 1:
                        return decode(answer)
                    code, why = _refusal(answer)
                    if code not in NOT_APPLIED and not (form.reads and code in MAYBE_APPLIED):
                        raise error_of(code, why)
                except LineClosed as closed:
                    why = str(closed)
                except LineBroken as broken:
                    why = str(broken)
                    if not form.reads:
                        raise Unknown(f"{broken}: the request may or may not have been applied") from broken
                except ProtocolError as broken:
                    line.end(
                        f"{line.address[0]}:{line.address[1]} sent what is no answer of this protocol: {broken}"
                    )
                    if not form.reads:
                        raise Unknown(
                            f"{line.ended}: the request may or may not have been applied"
                        ) from broken
                    why = line.ended
            if self._closed:
                raise NotReady("the client is closed")
            now = asyncio.get_running_loop().time()
            deadline = deadline or now + self._patience_s
            if now >= deadline:
                raise NotReady(f"given up after {self._patience_s:g} s: {why}")
            await self._wait_changed(min(FIRST_PAUSE_S * 2 ** min(tries, 7), LONGEST_PAUSE_S, deadline - now))
            tries += 1

    def _line_for(self, partition: int) -> MemberLine | None:
        if partition >= 0 and partition < len(self._route):
            line = self._route[partition]
            if line is not None:
                return line
        return next(self._turns)

    # -- connections

    async def _open(self, address: tuple[str, int]) -> None:
        """Connect and be let in. Raises HoldfastError, OSError."""
        loop = asyncio.get_running_loop()
        line = MemberLine(self._limit, self._heard, self._lost)
        line.address = address
        self._opening.add(line)
        try:
            async with asyncio.timeout(self._connect_timeout_s):
                await loop.create_connection(lambda: line, *address)
                welcome = await self._greet(line)
                self._admit(line, welcome)
                if self._viewer is None:
                    self._viewer = line
                    await self._control(line, CLUSTER_VIEW)
        except TimeoutError as late:
            line.end("no answer in time")
            raise NotReady(f"{address[0]}:{address[1]} does not answer") from late
        except BaseException as failed:
            line.end(str(failed) or "the client is closed")
            raise
        finally:
            self._opening.discard(line)

    async def _control(self, line: MemberLine, kind: int) -> None:
        """A request of the client's own, without parameters. Raises HoldfastError."""
        _, future = line.begin(REQUEST.size, UNFRAGMENTED | IS_FINAL, kind, -1, b"")
        answer = await future
        if _KIND.unpack_from(answer, KIND_AT)[0] != kind + 1:
            raise error_of(*read_error(answer))
        nothing(answer)

    async def _greet(self, line: MemberLine) -> Welcome:
        host, port = line.address
        line.greet(HAZELCAST_CLIENT)
        fixed = self._uuid + b"\x01"
        names = [text(self._cluster_name), text(self._username), text(self._password)]
        about = [text("PYH"), text(__version__), text("holdfast.aio"), BEGIN, END]
        _, future = line.begin(
            REQUEST.size + len(fixed), UNFRAGMENTED, AUTHENTICATE, -1, fixed + message([*names, *about])
        )
        answer = await future
        if _KIND.unpack_from(answer, KIND_AT)[0] != AUTHENTICATE + 1:
            code, reason = read_error(answer)
            raise NotReady(f"{host}:{port} lets nobody in now: {reason} (error {code})")
        welcome = read_welcome(answer)
        if welcome.status:
            raise Denied(
                f"{host}:{port} does not let this client in (status {welcome.status}): "
                f"check cluster_name ({self._cluster_name!r}), username and password"
            )
        return welcome

    def _admit(self, line: MemberLine, welcome: Welcome) -> None:
        """Take the connection into use. Raises HoldfastError when it is of no use."""
        if self._closed:
            raise NotReady("the client is closed")
        if welcome.partitions < 1 or (self.partition_count and welcome.partitions != self.partition_count):
            raise ProtocolError(
                f"a cluster of {welcome.partitions} partitions; it had {self.partition_count} before"
            )
        if self._lines and welcome.cluster != self._cluster:
            raise NotReady("the member belongs to another cluster than those that are connected")
        if welcome.member in self._lines:
            raise NotReady("there is a connection to this member already")
        self._cluster = welcome.cluster
        self.partition_count = welcome.partitions
        line.member = welcome.member
        self._lines[line.member] = line
        self._reroute()

    def _lost(self, line: MemberLine) -> None:
        if self._viewer is line:
            self._viewer = None
        if self._lines.get(line.member) is line:
            del self._lines[line.member]
            self._reroute()

    def _reroute(self) -> None:
        self._route = [self._lines.get(owner) for owner in self._owners]
        self._turns = cycle(list(self._lines.values()) or [None])
        self._wake()

    def _wake(self) -> None:
        """Who waits for a change looks again."""
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def _wait_changed(self, seconds: float) -> None:
        changed = self._changed
        try:
            async with asyncio.timeout(seconds):
                await changed.wait()
        except TimeoutError:
            pass

    def _heard(self, kind: int, _: int, whole: bytes) -> None:
        if kind == MEMBERS_VIEW:
            if members := read_members(whole):
                self._members = members
                for line in [line for uuid, line in self._lines.items() if uuid not in members]:
                    line.end("the member has left the cluster")
                self._wake()
        elif kind == PARTITIONS_VIEW:
            self._owners = read_owners(whole, self.partition_count)
            self._reroute()

    # -- keeping them

    async def _open_missing(self) -> list[Exception]:
        """Connect to each member that lacks a connection, and answers why that failed. While nobody is connected, the
        addresses that were given are tried too.
        """
        missing = [address for uuid, address in self._members.items() if uuid not in self._lines]
        if not self._lines:
            missing += self._seeds
        told: list[Exception] = []
        if self._lines:
            results = await asyncio.gather(*map(self._open, missing), return_exceptions=True)
            told += [result for result in results if isinstance(result, Exception)]
            return told
        for address in dict.fromkeys(missing):
            try:
                await self._open(address)
            except (HoldfastError, OSError) as failed:
                told.append(failed)
            else:
                break
        return told

    async def _keep(self) -> None:
        """Connect anew, move the listener, say that we are alive and hang up on who is silent."""
        while True:
            await self._open_missing()
            viewer = next(iter(self._lines.values()), None)
            if self._viewer is None and viewer is not None:
                self._viewer = viewer
                try:
                    await self._control(viewer, CLUSTER_VIEW)
                except HoldfastError as failed:
                    viewer.end(f"members and owners are not told: {failed}")
            for line in list(self._lines.values()):
                now = line.loop.time()
                if now - line.heard_s > SILENCE_S:
                    line.end(f"{line.address[0]}:{line.address[1]} was silent for {SILENCE_S:g} s")
                elif now - line.said_s > PING_AFTER_S or now - line.heard_s > PING_AFTER_S:
                    _, future = line.begin(REQUEST.size, UNFRAGMENTED | IS_FINAL, PING, -1, b"")
                    future.add_done_callback(_heed)
            await self._wait_changed(BEAT_S)


def _heed(pinged: asyncio.Future[bytes]) -> None:
    """Nobody waits for the answer to a ping; that it never came is told by the end of the connection."""
    if not pinged.cancelled():
        pinged.exception()


def _refusal(answer: bytes) -> tuple[int, str]:
    """The error that an answer is. Raises ProtocolError when it is something else."""
    if _KIND.unpack_from(answer, KIND_AT)[0]:
        raise ProtocolError("the answer is one to another kind of request")
    return read_error(answer)


def _parse(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise ConfigError(f"{address!r} is no address: write host:port, as 127.0.0.1:5701")
    return host, int(port)
