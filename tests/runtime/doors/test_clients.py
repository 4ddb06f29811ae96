"""When a client's answers are written."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, cast

import pytest
from tests.server.hazelcast.one_member import OneMemberGrid

from holdfast.config import LimitSettings
from holdfast.core.model.ids import SECOND
from holdfast.runtime.doors import clients
from holdfast.runtime.doors.clients import Connection, Door
from holdfast.server.door import DoorMember


class Wire:
    """A transport that notes what happens to it."""

    def __init__(self, story: list[str], name: str) -> None:
        self.story = story
        self.name = name

    def set_write_buffer_limits(self, high: int) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0

    def get_extra_info(self, name: str) -> tuple[str, int] | None:
        return ("127.0.0.1", 40_000) if name == "peername" else None

    def is_closing(self) -> bool:
        return False

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass

    def write(self, data: bytes) -> None:
        self.story.append(f"{self.name} writes {data.decode()}")

    def close(self) -> None:
        self.story.append(f"{self.name} closes")


class Echo:
    """A session that answers with what it is sent, in capitals; `q` ends it."""

    admitted = True
    coming = 0
    unanswered = False
    silent_for_ns = 0

    def __init__(self, story: list[str], send: Callable[[bytes], None], close: Callable[[str], None]) -> None:
        self.story = story
        self.send = send
        self.close = close

    def receive(self, data: bytes) -> None:
        self.story.append(f"reads {data.decode()}")
        self.send(data.upper())
        if data == b"q":
            self.close("asked")

    def closed(self) -> None:
        self.story.append("closed")

    def silent_ns(self) -> int:
        return self.silent_for_ns


def ours(error: Exception) -> None:
    """An error that is the member's own: none is expected."""
    raise error


def run(story: Callable[[list[str], Door], Coroutine[Any, Any, None]]) -> list[str]:
    """What happened."""
    happened: list[str] = []

    async def whole() -> None:
        door = Door(
            cast("Any", OneMemberGrid()), LimitSettings(), DoorMember(lambda: None, lambda: None, ours)
        )
        door.sessions = {b"ECH": lambda send, close, flow, admit, peer: Echo(happened, send, close)}
        await story(happened, door)

    asyncio.run(whole())
    return happened


def connect(happened: list[str], door: Door, name: str) -> Connection:
    connection = Connection(door)
    connection.connection_made(cast("Any", Wire(happened, name)))
    connection.data_received(b"ECH")
    return connection


def test_answers_are_written_when_all_that_has_come_is_read() -> None:
    async def story(happened: list[str], door: Door) -> None:
        one, two = connect(happened, door, "one"), connect(happened, door, "two")
        one.data_received(b"a")
        two.data_received(b"b")
        one.data_received(b"c")
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        one.data_received(b"d")
        await asyncio.sleep(0)
        for connection in (one, two):
            connection.connection_lost(None)

    assert run(story) == [
        *("reads a", "reads b", "reads c", "one writes AC", "two writes B", "reads d", "one writes D"),
        *("closed", "closed"),
    ]


def test_what_was_said_is_written_before_the_end() -> None:
    async def story(happened: list[str], door: Door) -> None:
        connection = connect(happened, door, "one")
        connection.data_received(b"q")
        connection.connection_lost(None)
        await asyncio.sleep(0)

    assert run(story) == ["reads q", "one writes Q", "one closes", "closed"]


def test_nothing_is_written_to_a_lost_connection() -> None:
    async def story(happened: list[str], door: Door) -> None:
        connection = connect(happened, door, "one")
        connection.data_received(b"a")
        connection.connection_lost(None)
        await asyncio.sleep(0)

    assert run(story) == ["reads a", "closed"]


def test_the_first_bytes_may_come_one_by_one_and_with_a_request() -> None:
    async def story(happened: list[str], door: Door) -> None:
        connection = Connection(door)
        connection.connection_made(cast("Any", Wire(happened, "one")))
        for piece in (b"E", b"C", b"Ha"):
            connection.data_received(piece)
        await asyncio.sleep(0)
        connection.connection_lost(None)

    assert run(story) == ["reads a", "one writes A", "closed"]


def test_what_comes_is_counted() -> None:
    async def story(happened: list[str], door: Door) -> None:
        counted: list[int] = []
        door.came = counted.append
        connection = connect(happened, door, "a")
        connection.data_received(b"ECH" + bytes(1000))
        connection.data_received(bytes(20_000))
        await asyncio.sleep(0)
        assert sum(counted) == 3 + 21_003

    run(story)


class Waiter(Echo):
    """A session that answers nothing before its member leaves."""

    def receive(self, data: bytes) -> None:
        self.unanswered, self.silent_for_ns = data == b"ask", 0 if data == b"chat" else SECOND


def test_connections_of_clients_that_wait_for_nothing_are_closed_first() -> None:
    async def story(happened: list[str], door: Door) -> None:
        door.sessions = {b"ECH": lambda send, close, flow, admit, peer: Waiter(happened, send, close)}
        connections = {
            name: connect(happened, door, name) for name in ("asks", "chats", "sleeps", "operates")
        }
        connections["asks"].data_received(b"ask")
        connections["chats"].data_received(b"chat")
        connections["sleeps"].data_received(b"zzz")
        connections["operates"].data_received(b"zzz")
        connections["operates"].operates = True
        happened.append(f"{door.close_quiet(SECOND, 'the member leaves')} are left")
        connections["sleeps"].connection_lost(None)
        connections["asks"].data_received(b"zzz")
        happened.append(f"{door.close_quiet(SECOND, 'the member leaves')} are left")
        for name in ("asks", "chats"):
            connections[name].connection_lost(None)
        happened.append(f"{door.close_quiet(SECOND, 'the member leaves')} are left")
        connections["operates"].connection_lost(None)

    assert run(story) == [
        *(
            "sleeps closes",
            "2 are left",
            "closed",
            "asks closes",
            "1 are left",
            "closed",
            "closed",
            "0 are left",
        ),
        "closed",
    ]


class Silent(Echo):
    """A client that has sent nothing for a second."""

    silent_for_ns = SECOND


@pytest.mark.parametrize("late", [True, False], ids=["a request was not read", "a response was not written"])
def test_a_connection_with_unread_input_or_unwritten_responses_is_not_quiet(late: bool) -> None:
    async def story(happened: list[str], door: Door) -> None:
        door.sessions = {b"ECH": lambda send, close, flow, admit, peer: Silent(happened, send, close)}
        connection = connect(happened, door, "one")
        door.late = late
        connection.data_received(b"a")
        happened.append(f"{door.close_quiet(SECOND, 'the member leaves')} are left")
        for _ in range(4):
            await asyncio.sleep(0)
        happened.append(f"{door.close_quiet(SECOND, 'the member leaves')} are left")
        connection.connection_lost(None)

    read, left = "reads a", "1 are left"
    told = ["one writes A", "one closes", "0 are left", "closed"]
    assert run(story) == [*((left, read) if late else (read, left)), *told]


def test_a_client_that_waits_for_good_does_not_keep_a_member(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients, "LAST_WORDS_LOOK_S", 0.001)
    monkeypatch.setattr(clients, "UNANSWERED_S", 0.01)

    async def story(happened: list[str], door: Door) -> None:
        door.sessions = {b"ECH": lambda send, close, flow, admit, peer: Waiter(happened, send, close)}
        asking = connect(happened, door, "asks")
        asking.data_received(b"ask")
        await door.close_unused()
        happened.append("leaves")
        asking.connection_lost(None)

    assert run(story) == ["leaves", "closed"]
