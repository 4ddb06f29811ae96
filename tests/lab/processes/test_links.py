"""Links that can be cut: what passes, what waits, what is lost, and for whom."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import msgspec
import pytest

from holdfast.runtime.peering.member_handshake import NONCE_BYTES, HandshakeRequest, opening_of
from holdfast_lab.processes.links import Links, between
from holdfast_lab.processes.local_cluster import free_ports

PUBLIC, REAL = "127.0.0.1", "127.0.0.2"
ONE, OTHER = "10.0.0.1:1", "10.0.0.2:1"
HEAD = opening_of("uuid", bytes(NONCE_BYTES))
SOON_S, NEVER_S = 20.0, 0.3


class Door:
    """The door of a member, or of its clients: what comes in after the greeting is sent back."""

    def __init__(self, links: Links, *, members: bool) -> None:
        (port,) = free_ports(1)
        self.public = f"{PUBLIC}:{port}"
        self._server = socket.create_server((REAL, port))
        self._members = members
        self._calls: list[Call] = []
        threading.Thread(target=self._accept, daemon=True).start()
        (links.to_member if members else links.to_client)(self.public, REAL)

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._server.accept()
            except OSError:
                return
            threading.Thread(target=self._echo, args=(connection,), daemon=True).start()

    def _echo(self, connection: socket.socket) -> None:
        with connection:
            if self._members:
                connection.sendall(HEAD)
            try:
                while said := connection.recv(1000):
                    connection.sendall(said)
            except OSError:
                pass

    def call(self, sender: str = "") -> Call:
        self._calls.append(Call(self.public, sender))
        return self._calls[-1]

    def close(self) -> None:
        for call in self._calls:
            call.socket.close()
        self._server.close()


class Call:
    """A connection to it, through the proxy."""

    def __init__(self, public: str, sender: str) -> None:
        host, _, port = public.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), SOON_S)
        if sender:
            assert self.hear(len(HEAD)) == HEAD
            host, _, port = sender.rpartition(":")
            greeting = msgspec.msgpack.encode(HandshakeRequest("uuid", host, int(port), b"nonce", [b"proof"]))
            self.say(len(greeting).to_bytes(4, "little") + greeting)

    def say(self, words: bytes) -> None:
        self.words = words
        self.socket.sendall(words)

    def hear(self, length: int, timeout_s: float = SOON_S) -> bytes:
        """So many bytes; fewer when the connection ends. Raises TimeoutError."""
        self.socket.settimeout(timeout_s)
        heard = b""
        while len(heard) < length and (piece := self.socket.recv(length - len(heard))):
            heard += piece
        return heard

    def answered(self, timeout_s: float = SOON_S) -> bool:
        try:
            return self.hear(len(self.words), timeout_s) == self.words
        except (TimeoutError, ConnectionResetError):
            return False


@pytest.fixture
def links() -> Iterator[Links]:
    with Links() as running:
        yield running


@pytest.fixture
def door(links: Links) -> Iterator[Door]:
    made = Door(links, members=True)
    yield made
    made.close()


def test_only_the_link_that_is_cut_waits_and_what_it_has_swallowed_arrives_late(
    links: Links, door: Door
) -> None:
    cut, whole = door.call(ONE), door.call(OTHER)
    assert cut.answered()
    assert whole.answered()
    links.cut(between([ONE], [door.public]), late=True)
    cut.say(b"from one")
    whole.say(b"from the other")
    assert whole.answered()
    assert not cut.answered(NEVER_S)
    late = door.call(ONE)
    assert not late.answered(NEVER_S), "nor does a new connection help"
    links.heal()
    assert cut.answered()
    assert late.answered()
    assert links.swallowed >= 2


def test_or_it_is_lost(links: Links, door: Door) -> None:
    cut = door.call(ONE)
    assert cut.answered()
    links.cut(between([ONE], [door.public]), late=False)
    cut.say(b"lost")
    assert not cut.answered(NEVER_S)
    links.heal()
    assert not cut.answered()
    assert door.call(ONE).answered(), "a new connection is whole"


def test_the_other_direction_is_another_link(links: Links, door: Door) -> None:
    call = door.call(ONE)
    links.cut(between([door.public], [ONE]), late=True)
    assert call.answered()


def test_a_slow_link_carries_everything(links: Links, door: Door) -> None:
    links.slow(between([ONE], [door.public]), 0.2)
    call = door.call(ONE)
    assert call.answered()
    call.say(b"slow")
    assert call.answered()


def test_clients_are_never_cut_off(links: Links) -> None:
    door = Door(links, members=False)
    links.cut(between([ONE, OTHER], [door.public]), late=True)
    call = door.call()
    call.say(b"anything")
    assert call.answered()
    door.close()


def test_between_leaves_out_who_would_speak_to_itself() -> None:
    assert between(["a", "b"], ["b", "c"]) == {("a", "b"), ("a", "c"), ("b", "c")}
