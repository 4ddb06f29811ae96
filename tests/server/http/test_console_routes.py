"""What the console answers, without a member: entries as text, and pages that read slowly."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, cast

import pytest

from holdfast.core.model.operations import Outcome, Status
from holdfast.observe.cluster_events import ClusterEvents
from holdfast.server import access
from holdfast.server.http.console_routes import (
    KEYS,
    ConsoleMember,
    ConsoleRoutes,
    _entry_answer,
    _Listener,
    shown,
)
from holdfast.server.http.http_messages import Stream
from holdfast.server.http.routes import HttpMember
from holdfast.wire.values import to_stored


class SlowStream:
    """Takes what it is sent only as long as there is room."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.reads = True
        self.room: list[Callable[[], None]] = []
        self.over: list[Callable[[], None]] = []

    def send(self, data: bytes) -> bool:
        if self.reads:
            self.sent.append(data)
        return self.reads

    def on_room(self, tell: Callable[[], None]) -> None:
        self.room.append(tell)

    def on_closed(self, tell: Callable[[], None]) -> None:
        self.over.append(tell)

    def events(self) -> list[tuple[int, list[int]]]:
        """Of those that say what has happened: how many were missed, and the numbers."""
        told = [json.loads(data.split(b"data: ")[1]) for data in self.sent if b"event: happened" in data]
        return [(each["missed"], [line["number"] for line in each["lines"]]) for each in told]


class Happens:
    """What of a console a listener uses."""

    def __init__(self) -> None:
        self.cluster_events = ClusterEvents(kept=5)
        self.heard: list[Callable[[str], None]] = []

    def watch(self, heard: Callable[[str], None]) -> Callable[[], None]:
        self.heard.append(heard)
        return lambda: self.heard.remove(heard)

    def happen(self, count: int) -> None:
        for _ in range(count):
            self.cluster_events.add(1, "x", "y")
            for heard in self.heard:
                heard("happened")


@pytest.mark.rule("observe/E-1")
def test_a_page_that_reads_slowly_is_told_the_newest_and_how_many_it_missed() -> None:
    console, stream = Happens(), SlowStream()
    console.happen(2)
    _Listener(cast("ConsoleMember", console), cast("Stream", stream), 0)
    assert stream.events() == [(0, [1, 2])]
    stream.reads = False
    console.happen(9)
    assert len(stream.events()) == 1
    stream.reads = True
    for tell in stream.room:
        tell()
    assert stream.events()[1:] == [(4, [7, 8, 9, 10, 11])]
    for tell in stream.over:
        tell()
    assert console.heard == []


def test_a_page_that_comes_again_is_told_what_it_has_not_seen() -> None:
    console, stream = Happens(), SlowStream()
    console.happen(4)
    _Listener(cast("ConsoleMember", console), cast("Stream", stream), 3)
    assert stream.events() == [(0, [4])]
    # Of another life of the member: its numbers begin anew.
    later = SlowStream()
    _Listener(cast("ConsoleMember", console), cast("Stream", later), 99)
    assert later.events() == [(0, [1, 2, 3, 4])]


def test_what_each_route_needs_is_said() -> None:
    routes = ConsoleRoutes(cast("HttpMember", None), cast("ConsoleMember", None)).all()
    assert {route.name for route in routes} <= set(access.HTTP)


@pytest.mark.parametrize(
    ("kind", "text", "stored"),
    [
        ("string", "k", to_stored("k")),
        ("integer", "7", to_stored(7)),
        ("integer", str(2**40), to_stored(2**40)),
        ("long", "7", bytes.fromhex("fffffff8 0000000000000007")),
        ("json", '{"a": 1}', to_stored({"a": 1})),
        ("stored", "ff ff ff f9 00 00 00 07", to_stored(7)),
    ],
)
def test_keys_as_people_type_them(kind: str, text: str, stored: bytes) -> None:
    assert KEYS[kind](text) == stored


@pytest.mark.parametrize(
    ("stored", "kind", "text"),
    [
        (to_stored("<b>"), "text", "<b>"),
        (to_stored(7), "int", "7"),
        (to_stored(b"\x01\xff"), "bytes", "01 ff"),
        (to_stored({"a": 1}), "JSON", '{\n  "a": 1\n}'),
        (to_stored(None), "null", "null"),
        (b"\x00\x00\x00\x63abc", "of type 99, which only its writer knows", "00 00 00 63 61 62 63"),
        (to_stored("x")[:6], "text", ""),
    ],
)
def test_values_as_people_read_them(stored: bytes, kind: str, text: str) -> None:
    told = shown(stored)
    assert (told["kind"], told["text"], told["bytes"]) == (kind, text, len(stored))


def test_a_long_value_is_cut() -> None:
    told = shown(to_stored("x" * 50_000))
    assert (len(cast("str", told["text"])), told["cut"]) == (20_000, True)


def test_a_refusal_says_why() -> None:
    answer: Any = _entry_answer(Outcome(Status.NOT_READY, None, "wait"), 3, ["u"])
    assert (answer.status, json.loads(answer.body)["reason"]) == (409, "not ready: wait")
