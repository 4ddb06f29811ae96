"""Frames between members: read in place whatever the pieces in which they come, and answered together."""

from __future__ import annotations

import asyncio
import random
from typing import Any, cast

import msgspec
import pytest
from tests.engine.test_driver import Pair

from holdfast.config import Settings
from holdfast.core.model.ids import Address, MemberId
from holdfast.engine.link import HEADER, Link
from holdfast.runtime.peering import incoming_connection, member_network, outgoing_connection
from holdfast.runtime.peering.incoming_connection import IncomingConnection
from holdfast.runtime.peering.member_frames import DATAGRAM, FRAME, FRAME_BYTES_MAX, PACKET
from holdfast.runtime.peering.member_handshake import HandshakeRequest, framed, request_of
from holdfast.runtime.peering.member_network import MemberNetwork
from holdfast.runtime.peering.outgoing_connection import OutgoingConnection

PEER = Address("127.0.0.1", 5999)
SETTINGS = Settings()


class Transport:
    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.aborted = False
        self.reading = True

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def is_closing(self) -> bool:
        return self.aborted

    def write(self, data: bytes) -> None:
        self.written.append(data)

    def writelines(self, parts: list[bytes]) -> None:
        self.written.append(b"".join(parts))

    def get_write_buffer_size(self) -> int:
        return 0

    def get_extra_info(self, name: str) -> None:
        return None

    def abort(self) -> None:
        self.aborted = True

    def close(self) -> None:
        self.aborted = True


class Hearing:
    """Stands for the driver: keeps what arrives, and answers each packet with two."""

    def __init__(self, network: MemberNetwork) -> None:
        self.network = network
        self.heard: list[bytes] = []
        self.followed: list[bool] = []
        """By packet: whether its read buffer had more."""

    def packet(self, sender: MemberId, packet: memoryview, *, more: bool = False) -> None:
        self.heard.append(bytes(packet))
        self.followed.append(more)
        self.network.carry(sender, b"one for %d" % len(packet))
        self.network.carry(sender, b"another " + bytes(packet))

    def datagram_received(self, address: Address, data: memoryview) -> None:
        self.heard.append(bytes(data))

    def end_buffer(self) -> None:
        """Nothing waits for it."""


class Side:
    """One member's end of a connection that another has opened, and its own connection to that one."""

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        secret: str = SETTINGS.security.member_secret,
        *,
        begun: bool = True,
    ) -> None:
        monkeypatch.setattr(incoming_connection, "READ_BYTES", 5000)
        monkeypatch.setattr(incoming_connection, "TURN_NS", 1 << 60)
        self.network = MemberNetwork(SETTINGS, "me", Address("127.0.0.1", 5998))
        self.driver = Hearing(self.network)
        if begun:
            self.network.begin(cast("Any", self.driver))
        self.network.open(MemberId("bee"), PEER)
        self.back, self.forth = Transport(), Transport()
        outgoing = OutgoingConnection(self.network, PEER)
        outgoing._transport = cast("Any", self.forth)
        self.network._outgoing[PEER] = outgoing
        self.incoming = IncomingConnection(self.network)
        self.incoming._transport = cast("Any", self.back)
        self.greeting = framed(request_of([secret], self.incoming._opening, ("bee", PEER.host, PEER.port)))

    def feed(self, data: bytes, piece: int) -> None:
        """As an event loop does: into the room that the connection offers, at most `piece` bytes at a time."""
        while data and not self.back.aborted:
            room = self.incoming.get_buffer(-1)
            assert len(room) > 0
            count = min(len(room), len(data), piece)
            room[:count] = data[:count]
            data = data[count:]
            self.incoming.buffer_updated(count)


def frame(body: bytes, kind: int = PACKET) -> bytes:
    return FRAME.pack(FRAME.size - 4 + len(body), kind) + body


def test_what_takes_long_is_left_to_the_next_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """One connection cannot keep the loop for as long as it has sent something; nothing more is read meanwhile."""

    async def scene(*, ends: bool) -> None:
        side = Side(monkeypatch)
        side.feed(side.greeting, 1 << 20)
        monkeypatch.setattr(incoming_connection, "TURN_NS", 0)
        bodies = [b"%d" % number * 100 for number in range(10)]
        side.feed(b"".join(map(frame, bodies)), 1 << 20)
        for handled in range(1, 10):
            assert side.driver.heard == bodies[:handled]
            assert len(side.forth.written) == handled, "what is answered leaves with each turn"
            assert side.back.reading is False
            await asyncio.sleep(0)
            if ends and handled == 4:
                side.back.abort()
                for _ in range(10):
                    await asyncio.sleep(0)
                assert side.driver.heard == bodies[:5], "what has ended has no more turns"
                return
        assert side.driver.heard == bodies
        assert side.back.reading is True
        side.feed(frame(b"more"), 3)
        assert side.driver.heard == [*bodies, b"more"]

    asyncio.run(scene(ends=False))
    asyncio.run(scene(ends=True))


@pytest.mark.parametrize("seed", range(40))
def test_frames_are_whole_and_in_order_whatever_the_pieces(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    draw = random.Random(seed)
    side = Side(monkeypatch)
    bodies = [draw.randbytes(draw.choice([0, 1, 100, 4000, 4987, 5000, 70_000])) for _ in range(20)]
    data = side.greeting + b"".join(frame(body, draw.choice([PACKET, DATAGRAM])) for body in bodies)
    side.feed(data, draw.choice([1, 7, 1000, 5000, 1 << 20]) if len(data) < 100_000 else 1000)
    assert side.driver.heard == bodies
    assert not side.back.aborted


def test_the_room_of_a_long_frame_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    side = Side(monkeypatch)
    side.feed(side.greeting + frame(b"x" * 70_000), 1 << 20)
    assert len(side.incoming.get_buffer(-1)) == 5000


def test_room_is_made_for_what_has_come_and_not_for_what_was_announced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    side = Side(monkeypatch)
    announced = FRAME.pack(FRAME_BYTES_MAX, PACKET)
    for come in (0, 4000, 30_000, 100_000):
        side.feed((side.greeting + announced if not come else b"") + bytes(come), 1000)
        assert len(side.incoming._buffer) <= 2 * max(5000, 134_000)
    assert not side.back.aborted


@pytest.mark.parametrize("small", [True, False], ids=["small", "large"])
def test_what_arrives_together_is_answered_together(monkeypatch: pytest.MonkeyPatch, small: bool) -> None:
    side = Side(monkeypatch)
    if not small:
        monkeypatch.setattr(member_network, "APART_BYTES", 1)
    side.feed(side.greeting + frame(b"a") + frame(b"bc"), 1 << 20)
    answers = [b"one for 1", b"another a", b"one for 2", b"another bc"]
    assert side.forth.written == [b"".join(map(frame, answers))]
    side.network.carry(MemberId("bee"), b"later")
    assert side.forth.written[1:] == [frame(b"later")]


def test_packets_know_whether_their_read_buffer_has_more(monkeypatch: pytest.MonkeyPatch) -> None:
    side = Side(monkeypatch)
    side.feed(side.greeting + frame(b"a") + frame(b"b"), 1 << 20)
    assert side.driver.followed == [True, False]
    side.feed(frame(b"c") + frame(b"d")[:-1], 1 << 20)
    assert side.driver.followed[2:] == [True], "a part of another one"


@pytest.mark.parametrize(
    "bad",
    [b"\0\0\0\0", b"\xff\xff\xff\xff"],
    ids=["too short", "too long"],
)
def test_a_frame_that_cannot_be_ends_the_connection(monkeypatch: pytest.MonkeyPatch, bad: bytes) -> None:
    side = Side(monkeypatch)
    side.feed(side.greeting + frame(b"good") + bad, 1 << 20)
    assert side.driver.heard == [b"good"]
    assert side.back.aborted


def test_before_the_greeting_nothing_long_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    side = Side(monkeypatch)
    side.feed((4097).to_bytes(4, "little"), 4)
    assert side.back.aborted
    stranger = Side(monkeypatch, secret="another")
    stranger.feed(stranger.greeting + frame(b"x"), 1 << 20)
    assert stranger.back.aborted
    assert stranger.driver.heard == []


class Ear:
    """Stands for the driver: remembers what it was told."""

    def __init__(self) -> None:
        self.whispers: list[bytes] = []

    def datagram_received(self, address: Address, data: bytes) -> None:
        self.whispers.append(data)


def test_what_comes_before_the_member_is_there_is_lost_and_harms_nothing() -> None:
    greeting = HandshakeRequest(MemberId("other"), PEER.host, PEER.port, b"", [])
    made = MemberNetwork(SETTINGS, "me", PEER)
    made.on_frame(greeting, DATAGRAM, b"anyone?")
    ear = Ear()
    made.begin(cast("Any", ear))
    made.on_frame(greeting, DATAGRAM, b"anyone now?")
    assert ear.whispers == [b"anyone now?"]


def test_a_connection_that_is_there_before_the_member_keeps_working(monkeypatch: pytest.MonkeyPatch) -> None:
    """The port is open while the member reads its files; another one may connect meanwhile."""
    side = Side(monkeypatch, begun=False)
    side.feed(side.greeting + frame(b"too early"), 1 << 20)
    side.network.begin(cast("Any", side.driver))
    side.feed(frame(b"in time"), 1 << 20)
    assert side.driver.heard == [b"in time"]
    assert not side.back.aborted


# -- bytes that end nothing but their connection


def greeting(uuid: str = "bee", host: str = PEER.host, port: int = PEER.port) -> bytes:
    return msgspec.msgpack.encode(HandshakeRequest(uuid, host, port, b"", []))


BAD_GREETINGS = {
    "nothing": b"",
    "broken text": greeting().replace(b"bee", b"\xff\xfe\xff"),
    "nested arrays": b"\x91" * 2000,
    "other types": msgspec.msgpack.encode([1, 2, 3, 4]),
    "nobody": greeting(uuid="hello"),
    "a long host": greeting(host="x" * 300),
    "a host with a newline": greeting(host="a\nCRITICAL all is lost"),
    "a port that is none": greeting(port=1 << 40),
    "a wrong secret": greeting(),
}


@pytest.mark.parametrize("name", BAD_GREETINGS)
def test_a_bad_greeting_ends_its_connection_alone(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    side = Side(monkeypatch, secret="another")
    stopped: list[Exception] = []
    side.network.failed = stopped.append
    body = BAD_GREETINGS[name]
    side.feed(len(body).to_bytes(4, "little") + body, 1 << 20)
    assert side.back.aborted
    assert not stopped
    assert side.network.connection_log.counts.total() == 1
    assert all("\n" not in message for message in caplog.messages)


def test_whoever_is_refused_is_not_heard_any_further(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many greetings at once would be many guesses; and the connection of the second is not known any more."""
    side = Side(monkeypatch)
    guess = framed(request_of(["a guess"], side.incoming._opening, ("bee", PEER.host, PEER.port)))
    side.feed(guess + side.greeting + frame(b"said behind it", DATAGRAM), 1 << 20)
    assert side.back.aborted
    assert not side.incoming.member
    assert not side.driver.heard
    assert not side.network.proved


BAD_FRAMES = [b"", b"\xc1", b"\x91" * 2000, b"\x93\x01\xa2\xff\xfe\x00", msgspec.msgpack.encode([1] * 9)]


@pytest.mark.parametrize("body", BAD_FRAMES, ids=range(len(BAD_FRAMES)))
@pytest.mark.parametrize("kind", [DATAGRAM, PACKET, 7])
def test_a_bad_frame_ends_its_connection_alone(
    monkeypatch: pytest.MonkeyPatch, kind: int, body: bytes
) -> None:
    """Also from one that has shown the secret."""
    side = Side(monkeypatch)
    pair = Pair()
    there = MemberId("bee")
    link = pair.driver.links[there] = Link(1)
    side.network.begin(pair.driver)
    stopped: list[Exception] = []
    side.network.failed = stopped.append
    packet = HEADER.pack(1, 1, 0) + body
    side.feed(side.greeting + frame(packet if kind == PACKET else body, kind), 1 << 20)
    assert side.back.aborted
    assert not stopped
    assert not link.open
    assert not pair.driver.stopped


def test_a_member_whose_process_has_ended_is_reported_soon() -> None:
    """Requests wait meanwhile."""
    assert sum(outgoing_connection.RETRY_S[: member_network.REFUSALS_TO_SILENCE - 1]) <= 0.05


def test_an_address_that_nobody_can_have_is_given_up_and_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """ConnectionLog may name any address, and answers go there."""
    monkeypatch.setattr(outgoing_connection, "RETRY_S", (0.001, 0.001))

    async def story() -> None:
        network = MemberNetwork(SETTINGS, "aa", PEER)
        network.begin(cast("Any", Ear()))
        for host, port in (("x" * 300, 1), ("a\0b", 1), ("127.0.0.1", 1 << 20), ("..", 1)):
            network.send_datagram(Address(host, port), b"hello")
        tasks = [outgoing._task for outgoing in network._outgoing.values() if outgoing._task is not None]
        assert len(tasks) == 4
        assert await asyncio.gather(*tasks, return_exceptions=True) == [None] * 4
        assert not network._outgoing

    asyncio.run(story())
