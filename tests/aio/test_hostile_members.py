"""Members that say what is wrong: nothing worse than the end of that connection comes of it."""

from __future__ import annotations

import asyncio
import random
import struct
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from holdfast.aio import BlockingClient, Client, NearCache, NearCacheOptions, Serializers
from holdfast.aio.entry_listening import EntryListening
from holdfast.aio.member_line import MemberLine
from holdfast.aio.near_cache_feed import NearCacheFeed
from holdfast.aio.topic import TopicListening
from holdfast.client_core.answer_stream import AnswerStream, OtherAnswer
from holdfast.client_core.message_decoding import answer_in, read_members, read_owners, reader_of
from holdfast.client_core.request_forms import CODES, GET, GET_ALL, SET, form
from holdfast.errors import HoldfastError, NotReady, ProtocolError, RequestError, Unknown
from holdfast.wire.hazelcast.hazelcast_frames import FRAME, RESPONSE, data, event, frame, message, response
from holdfast_lab.processes.local_cluster import LocalCluster

pytestmark = [
    pytest.mark.interop,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


class Waiter:
    def __init__(self) -> None:
        self.told: list[object] = []

    def done(self) -> bool:
        return False

    def set_result(self, result: object, /) -> None:
        self.told.append(result)

    def set_exception(self, error: BaseException, /) -> None:
        self.told.append(error)


STORED = Serializers().dump("value")
ANSWERS = [
    (GET, message([response(GET + 1, 0), data(STORED)]), STORED),
    (GET, message([response(GET + 1, 0), data(None)]), None),
    (SET, message([response(SET + 1, 0)]), False),
    (0x010600, message([response(0x010601, 0, b"\1")]), True),
    (GET_ALL, message([response(GET_ALL + 1, 0), data(STORED), data(STORED)]), None),
]


def asked(stream: AnswerStream) -> tuple[bytes, list[tuple[Waiter, object]]]:
    """A request of each kind, and the answers to all of them as the member sends them."""
    whole, waiters = b"", []
    for kind, answer, found in ANSWERS:
        stream.count += 256
        correlation = stream.count | CODES.get(kind, 0)
        mine = answer[:10] + struct.pack("<q", correlation) + answer[18:]
        stream.pending[correlation] = waiter = Waiter()
        waiters.append((waiter, mine if kind == GET_ALL else found))
        whole += mine
    return whole, waiters


def unheard(*_: Any) -> None:
    pass


def pieces(whole: bytes, sizes: Iterator[int]) -> Iterator[bytes]:
    at = 0
    while at < len(whole):
        size = next(sizes)
        yield whole[at : at + size]
        at += size


def test_answers_are_the_same_however_they_are_cut() -> None:
    drawn = random.Random(1)
    for size in [*range(1, 60), 10_000]:
        for sizes in (iter(lambda size=size: size, None), iter(lambda: drawn.randint(1, 40), None)):
            stream = AnswerStream(1000, unheard)
            whole, waiters = asked(stream)
            for piece in pieces(whole, sizes):  # type: ignore[arg-type]
                stream.feed(piece)
            assert [waiter.told for waiter, _ in waiters] == [[found] for _, found in waiters]
            assert not stream.pending
            stream.feed(whole)  # Once more: nobody waits, and it was asked for.
            assert [waiter.told for waiter, _ in waiters] == [[found] for _, found in waiters]


def test_spoiled_answers_break_the_connection_or_are_told() -> None:
    drawn = random.Random(2)
    for _ in range(20_000):
        stream = AnswerStream(1000, unheard)
        whole, waiters = asked(stream)
        spoiled = bytearray(whole)
        for _ in range(drawn.randint(1, 4)):
            spoiled[drawn.randrange(len(spoiled))] = drawn.choice([0, 1, 0xFF, drawn.randrange(256)])
        try:
            stream.feed(bytes(spoiled[: drawn.randint(1, len(spoiled))]))
        except ProtocolError:
            pass
        assert len(stream._held) <= len(whole)
        for waiter, _ in waiters:
            assert len(waiter.told) <= 1
            for each in waiter.told:
                if isinstance(each, OtherAnswer):
                    try:
                        answer_in(form(GET), each.whole)
                    except HoldfastError:
                        pass


def test_a_message_that_is_too_large_is_not_gathered() -> None:
    for first in (
        FRAME.pack(2**31 - 1, 0xC000) + bytes(40),
        RESPONSE.pack(19, 0xC000, GET + 1, 257, 0) + FRAME.pack(5000, 0x2000),
        RESPONSE.pack(19, 0xC000, GET_ALL + 1, 256, 0) + frame(bytes(400)) * 3,
    ):
        stream = AnswerStream(1000, unheard)
        stream.count = 256
        with pytest.raises(ProtocolError, match="larger than the limit"):
            stream.feed(first)
    stream = AnswerStream(1000, unheard)
    with pytest.raises(ProtocolError, match="never sent"):
        stream.feed(message([response(GET + 1, 257), data(STORED)]))


def test_spoiled_events_raise_nothing_else() -> None:
    asyncio.run(spoiled_events())


async def spoiled_events() -> None:
    drawn = random.Random(3)
    client = Client()
    client.partition_count, client.route = 3, [None] * 3
    feed = NearCacheFeed("m", NearCache(NearCacheOptions(), time.monotonic), client)
    listening = EntryListening("m", client, unheard, 10)
    messages = TopicListening("t", client, unheard, 10)
    line = MemberLine(1000, unheard, unheard)
    key = data(STORED)
    uuids = frame(bytes(34))
    begin, end = FRAME.pack(6, 0x1000), FRAME.pack(6, 0x0800)
    events: list[tuple[Callable[[bytes], object], bytes]] = [
        (
            lambda whole: feed.heard(line, 0x013F02, whole),
            message([event(0x013F02, 1, bytes(42)), key]),
        ),
        (
            lambda whole: feed.heard(line, 0x013F03, whole),
            message([event(0x013F03, 1, b""), begin, key, key, end, uuids, uuids, frame(bytes(16))]),
        ),
        (
            lambda whole: listening.heard(line, 0x011902, whole),
            message(
                [event(0x011902, 1, struct.pack("<i17si", 1, bytes(17), 1)), key, key, data(None), data(None)]
            ),
        ),
        (
            lambda whole: messages.heard(line, 0x040202, whole),
            message([event(0x040202, 1, struct.pack("<q17s", 1, bytes(17))), key]),
        ),
        (
            lambda whole: read_owners(reader_of(whole), 3),
            message([event(0x000303, 1, bytes(4)), begin, frame(bytes(4)), end, frame(bytes(17))]),
        ),
        (
            lambda whole: read_members(reader_of(whole)),
            message([event(0x000302, 1, bytes(4)), begin, begin, frame(bytes(18)), end, end]),
        ),
    ]
    for hear, whole in events[:-1]:
        hear(whole)
    for _ in range(20_000):
        hear, whole = drawn.choice(events)
        spoiled = bytearray(whole)
        for _ in range(drawn.randint(1, 4)):
            at = drawn.randrange(FRAME.unpack_from(whole)[0], len(spoiled))
            spoiled[at] = drawn.choice([0, 1, 0xFF, drawn.randrange(256)])
        stream = AnswerStream(10_000, lambda kind, correlation, found, hear=hear: hear(found))
        try:
            stream.feed(bytes(spoiled))
        except ProtocolError:
            pass


# -- between the client and a real member stands one who spoils what comes


Spoil = Callable[[bytes], bytes | list[bytes]]


async def with_one_between(
    cluster: LocalCluster, spoil: Spoil, run: Callable[[str, asyncio.Event], Awaitable[None]]
) -> None:
    """`run` is given the address of the one between, who begins to spoil when the event is set."""
    host, _, port = cluster.client_addresses()[0].rpartition(":")
    wicked = asyncio.Event()
    tasks: set[asyncio.Task[None]] = set()

    async def between(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        near, far = await asyncio.open_connection(host, int(port))

        async def there() -> None:
            try:
                while came := await reader.read(65536):
                    far.write(came)
            finally:
                far.transport.abort()

        task = asyncio.create_task(there())
        tasks.add(task)
        try:
            while came := await near.read(65536):
                told = spoil(came) if wicked.is_set() else came
                for piece in [told] if isinstance(told, bytes) else told:
                    writer.write(piece)
                    await writer.drain()
                    if not isinstance(told, bytes):
                        await asyncio.sleep(0)
        except OSError:
            pass
        finally:
            writer.transport.abort()
            task.cancel()

    server = await asyncio.start_server(between, "127.0.0.1", 0)
    try:
        await run(f"127.0.0.1:{server.sockets[0].getsockname()[1]}", wicked)
    finally:
        server.close()
        await asyncio.sleep(0.05)
        await asyncio.gather(*tasks, return_exceptions=True)


def twice(came: bytes) -> bytes:
    return came + came


def dripping(came: bytes) -> list[bytes]:
    return [came[at : at + 1] for at in range(len(came))]


@pytest.mark.parametrize("spoil", [twice, dripping])
def test_answers_that_come_twice_or_slowly_are_no_harm(cluster: LocalCluster, spoil: Spoil) -> None:
    async def run(door: str, wicked: asyncio.Event) -> None:
        async with Client([door], near_caches={"m": NearCacheOptions()}) as client:
            while len(client.connected) < 3 or not all(client.route):  # noqa: ASYNC110 - it has no event
                await asyncio.sleep(0.02)
            wicked.set()
            ours = client.map("m")
            await asyncio.gather(*(ours.set(n, str(n)) for n in range(200)))
            assert await asyncio.gather(*(ours.get(n) for n in range(200))) == [str(n) for n in range(200)]
            assert await ours.size() == 200
            assert len(client.connected) == 3
            await ours.clear()

    asyncio.run(with_one_between(cluster, spoil, run))


def test_random_damage_of_one_connection(cluster: LocalCluster) -> None:
    """Requests fail as they may, or are answered; the client lives, and the other connections stand."""
    drawn = random.Random(4)

    def damaged(came: bytes) -> bytes:
        spoiled = bytearray(came)
        if drawn.random() < 0.2:
            spoiled[drawn.randrange(len(spoiled))] = drawn.randrange(256)
        return bytes(spoiled)

    async def run(door: str, wicked: asyncio.Event) -> None:
        async with Client([door], patience_s=1, message_bytes=1 << 20) as client:
            while len(client.connected) < 3 or not all(client.route):  # noqa: ASYNC110 - it has no event
                await asyncio.sleep(0.02)
            (bad,) = (line for line in client.lines() if line.address[1] == int(door[10:]))
            others = set(client.lines()) - {bad}
            wicked.set()
            ours = client.map("damaged")
            for n in range(1500):
                try:
                    async with asyncio.timeout(
                        2
                    ):  # A damaged correlation id leaves its request without answer.
                        await (ours.set(n, n) if n % 2 else ours.get(n - 1))
                except (RequestError, ProtocolError, TimeoutError):
                    pass
                if bad.ended:
                    break
            assert bad.ended
            wicked.clear()
            assert others <= set(client.lines())
            await ours.set("k", 1)
            assert await ours.get("k") == 1

    asyncio.run(with_one_between(cluster, damaged, run))


def test_the_blocking_client_drops_a_connection_that_says_nonsense(cluster: LocalCluster) -> None:
    def nonsense(came: bytes) -> bytes:
        return b"HTTP/1.1 400 Bad Request\r\n\r\n"

    async def run(door: str, wicked: asyncio.Event) -> None:
        def use() -> None:
            with BlockingClient([door], patience_s=0.5) as client:
                ours = client.map("nonsense")
                while len(client.connected) < 3 or not all(client._client.route):
                    pass
                bad = next(line for line in client._client.lines() if line.address[1] == int(door[10:]))
                of_loop = client._client.map("nonsense")
                key = next(
                    n
                    for n in range(9999)
                    if client._client.route[of_loop._partition(of_loop._dump(n))] is bad
                )
                ours.set(key, 1)
                loop.call_soon_threadsafe(wicked.set)
                while not wicked.is_set():
                    pass
                with pytest.raises(Unknown, match=r"cannot be|begins with"):
                    ours.set(key, 2)
                with pytest.raises(NotReady):
                    ours.get(key)
                loop.call_soon_threadsafe(wicked.clear)
                while wicked.is_set():
                    pass
                assert ours.get(key) in (1, 2)

        loop = asyncio.get_running_loop()
        await asyncio.to_thread(use)

    asyncio.run(with_one_between(cluster, nonsense, run))
