"""The most that one turn does for one connection, whatever kind of request comes (server/F-3): counted, not timed.

A unit is a call of a function, in Python or C, so a kind of request that is added without a bound fails here too.
"""

from __future__ import annotations

import gc
import struct
from collections.abc import Callable, Iterator
from cProfile import Profile
from functools import partial

import pytest
from tests.server.hazelcast.one_member import OneMemberGrid
from tests.server.hazelcast.wire import Wire, error_of

from holdfast.config import LimitSettings
from holdfast.server.access import MAP_SERVICE
from holdfast.server.hazelcast.hazelcast_session import MESSAGES
from holdfast.server.hazelcast.names import name_of
from holdfast.wire.hazelcast import hazelcast_frames, layouts
from holdfast.wire.hazelcast.hazelcast_frames import (
    BEGIN,
    BEGIN_FRAGMENT,
    END,
    END_FRAGMENT,
    FRAME,
    INT,
    data,
    frame,
    message,
    text,
)
from holdfast.wire.hazelcast.named_processors import write_processor

TURN_CALLS = 50_000
"""Calls of one turn: some ms of work."""
SIZE = 300_000
"""Bytes of a message of empty frames. One of 16 MB, which is the most by default, is no other case."""
BEHIND = 100_000
"""Bytes of empty frames behind a request: some turns of them."""
SMALL = 300
"""Requests that come together: some turns of them."""
TURN_SHARE = 0.6
"""The most that one turn has of the calls for what takes at least three."""
ELEMENTS = 2500
"""Of a list whose elements cost something."""
READ = 256 * 1024
EMPTY = frame(b"")


def stored(value: int) -> bytes:
    return data(b"\xff\xff\xff\xf5" + struct.pack(">i", 4) + struct.pack(">i", value))


FIELD = BEGIN + frame(INT.pack(5)) + text("f") + END


def schema(number: int, fields: int = 1) -> bytes:
    return BEGIN + text(f"c{number}") + BEGIN + FIELD * fields + END + END


Make = Callable[[int], bytes]
SINGLE: dict[str, bytes] = {
    "name": text("m"),
    "key": stored(1),
    "value": stored(2),
    "expected": stored(3),
    "predicate": stored(4),
    "filter": stored(4),
    "processor": frame(bytes(4) + write_processor("sell", b"")),
    "version": frame(bytes(25)),
    "cluster_name": text("dev"),
    "username": text("u"),
    "password": text("p"),
    "credentials": frame(b"t"),
    "client_type": text("PYH"),
    "client_version": text("5"),
    "client_name": text("c"),
    "service": text(MAP_SERVICE),
    "pointers": frame(struct.pack("<ii", 0, -1)),
    "group": BEGIN + frame(bytes(16)) + text("g") + END,
    "value_or_null": stored(1),
    "expected_or_null": stored(2),
}
"""One of each parameter that is one frame."""
LISTS: dict[str, dict[str, Make]] = {
    "keys": {"keys": stored, "the same key": lambda _: stored(1), "empty frames": lambda _: EMPTY},
    "entries": {
        "entries": lambda at: stored(at) + stored(1),
        "the same entry": lambda _: stored(1) + stored(1),
    },
    "items": {"items": stored, "the same item": lambda _: stored(1), "empty frames": lambda _: EMPTY},
    "collections": {
        "keys without values": lambda at: stored(at) + BEGIN + END,
        "keys with values": lambda at: stored(at) + BEGIN + stored(1) + stored(2) + END,
    },
    "names": {"names": lambda at: text(f"m{at}"), "short names": lambda _: text("m")},
    "proxies": {
        "maps": lambda at: text(f"m{at}") + text(MAP_SERVICE),
        "other structures": lambda _: text("n") + text("s"),
    },
    "schemas": {
        "schemas": schema,
        "long schemas": lambda at: schema(at, 50),
        "no fields": lambda at: schema(at, 0),
    },
}
"""Lists, and what may be in them."""
DEEP: dict[str, dict[str, bytes]] = {
    "schema": {
        "fields": schema(1, SIZE // len(FIELD)),
        "unknown frames of a field": BEGIN
        + text("c")
        + BEGIN
        + BEGIN
        + frame(INT.pack(5))
        + text("f")
        + EMPTY * (SIZE // 6),
        "unknown frames": BEGIN + text("c") + BEGIN + END + EMPTY * (SIZE // 6) + END,
        "structures in structures": BEGIN
        + text("c")
        + BEGIN
        + END
        + BEGIN * (SIZE // 12)
        + END * (SIZE // 12 + 1),
        "a long name": BEGIN + text("c" * SIZE) + BEGIN + FIELD + END + END,
    },
    "group": {
        "unknown frames": BEGIN + frame(bytes(16)) + text("g") + EMPTY * (SIZE // 6) + END,
        "structures in structures": BEGIN
        + frame(bytes(16))
        + text("g")
        + BEGIN * (SIZE // 12)
        + END * (SIZE // 12 + 1),
        "a long name": BEGIN + frame(bytes(16)) + text("g" * SIZE) + END,
    },
}
"""Structures that are read in one go."""


def fixed_of(declaration: str) -> bytes:
    codes = "".join(layouts.FIXED[name] for name in declaration.partition("|")[0].split())
    return bytes(struct.calcsize("<" + codes)) if "batch" not in declaration else INT.pack(1000)


def parameters(declaration: str) -> Iterator[tuple[str, Callable[[], list[bytes]]]]:
    """What may come of a kind of request with this layout: in words, and what makes its frames."""
    names = declaration.partition("|")[2].split()
    plain = {name: b"".join((BEGIN, END)) for name in LISTS} | SINGLE | {"schema": schema(1)}
    frames = [plain[name] for name in names]
    yield "empty frames behind", lambda: [*frames, EMPTY * (BEHIND // len(EMPTY))]
    for at, name in enumerate(names):
        for what, make in LISTS.get(name, {}).items():
            yield what, partial(in_place, frames, at, partial(listed, make))
        for what, deep in DEEP.get(name, {}).items():
            yield what, partial(in_place, frames, at, lambda deep=deep: [deep])


def in_place(frames: list[bytes], at: int, make: Callable[[], list[bytes]]) -> list[bytes]:
    """These frames, with others for one of them."""
    return [*frames[:at], *make(), *frames[at + 1 :]]


def listed(make: Make) -> list[bytes]:
    """A list of many of these."""
    count = min(SIZE // len(make(100_000)), SIZE if make(0) == EMPTY else ELEMENTS)
    return [BEGIN, *map(make, range(100_000, 100_000 + count)), END]


def request(kind: int, frames: list[bytes], correlation: int = 9) -> bytes:
    first = frame(struct.pack("<iqi", kind, correlation, -1) + fixed_of(MESSAGES[kind].layout.declaration))
    whole = b"".join((first[:4], struct.pack("<H", BEGIN_FRAGMENT | END_FRAGMENT), first[6:], *frames))
    return finished(whole)


def finished(whole: bytes) -> bytes:
    """With its last frame flagged final."""
    at = 0
    while True:
        length = FRAME.unpack_from(whole, at)[0]
        if at + length == len(whole):
            return whole[:at] + message([whole[at:]])
        at += length


def in_fragments(whole: bytes) -> list[bytes]:
    """The same request as two fragments."""
    at = FRAME.unpack_from(whole, 0)[0]
    at += FRAME.unpack_from(whole, at)[0] if at < len(whole) else 0
    pieces = []
    for part, flags in ((whole[:at], BEGIN_FRAGMENT), (whole[at:], END_FRAGMENT)):
        if part:
            number = FRAME.pack(14, flags) + struct.pack("<q", 1)
            pieces.append(number + finished(part))
    return pieces


class Meter:
    """Counts calls, in Python and C, of whatever it is wrapped around."""

    def __init__(self) -> None:
        self.turns: list[int] = []

    def turn(self, deed: Callable[[], object]) -> None:
        profile = Profile()
        profile.enable()
        try:
            deed()
        finally:
            profile.disable()
        calls = sum(entry.callcount for entry in profile.getstats())
        self.turns.append(calls)


def said(wire: Wire, pieces: list[bytes]) -> Meter:
    """Send this as it would be read, turn by turn."""
    meter, flow = Meter(), wire.session._flow
    for piece in pieces:
        for begin in range(0, len(piece), READ):
            while flow.halted:  # The door reads nothing more before that.
                meter.turn(wire.session.resume)
            part = piece[begin : begin + READ]
            meter.turn(lambda part=part: wire.session.receive(part))
    while flow.halted:
        meter.turn(wire.session.resume)
    return meter


def cases() -> list[tuple[int, str]]:
    return [
        (kind, what)
        for kind, known in sorted(MESSAGES.items())
        for what, _ in parameters(known.layout.declaration)
    ]


def logged_in(limits: LimitSettings | None = None) -> Wire:
    wire = Wire(OneMemberGrid(), limits=limits)
    wire.login()
    wire.take()
    return wire


@pytest.mark.rule("server/F-3")
@pytest.mark.parametrize(
    ("kind", "what"), cases(), ids=lambda each: name_of(each) if isinstance(each, int) else each
)
def test_no_request_takes_more_than_a_turn(kind: int, what: str) -> None:
    make = dict(parameters(MESSAGES[kind].layout.declaration))[what]
    whole = request(kind, make())
    meter = said(logged_in(), [whole])
    assert max(meter.turns) <= TURN_CALLS
    if what == "empty frames behind":
        assert max(meter.turns) <= TURN_SHARE * sum(meter.turns)


@pytest.mark.rule("server/F-3")
@pytest.mark.parametrize("how", ["fragments", "small pieces", "too large", "behind another one"])
def test_frames_are_bounded_however_they_come(how: str) -> None:
    whole = request(0x012300, [text("m"), BEGIN, EMPTY * (SIZE // 6), END])
    limits = LimitSettings(frame_bytes=SIZE // 2) if how == "too large" else None
    pieces = [whole]
    if how == "fragments":
        pieces = in_fragments(whole)
    elif how == "small pieces":
        pieces = [whole[begin : begin + 1000] for begin in range(0, len(whole), 1000)]
    elif how == "behind another one":
        pieces = [request(0x000B00, []) + whole]
    wire = logged_in(limits)
    ping = request(0x000B00, [], correlation=77)
    meter = said(wire, [*pieces, ping])
    assert max(meter.turns) <= TURN_CALLS
    answers = wire.take()
    assert answers[-1].get_correlation_id() == 77, "the connection goes on"
    refused = error_of(answers[-2])
    assert refused is not None
    assert ("too large" in str(refused) or "larger than" in str(refused)) is (how == "too large")
    assert sum(meter.turns) < 6 * (SIZE // 6), "no frame is looked at again and again"


@pytest.mark.rule("server/F-3")
@pytest.mark.parametrize("kind", sorted(set(MESSAGES) - {0x000100, 0x000200}), ids=name_of)
def test_many_small_requests_have_several_turns(kind: int) -> None:
    names = MESSAGES[kind].layout.declaration.partition("|")[2].split()
    plain = dict.fromkeys(LISTS, BEGIN + END) | SINGLE | {"schema": schema(1)}
    one = request(kind, [plain[name] for name in names])
    meter = said(logged_in(), [one * SMALL])
    assert max(meter.turns) <= min(TURN_CALLS, TURN_SHARE * sum(meter.turns))


def test_schemas_have_a_limit_and_are_kept_up_to_it() -> None:
    for count, kept in ((3000, True), (4000, False)):
        wire = logged_in()
        fields = b"".join(BEGIN + frame(INT.pack(5)) + text("f") + END for _ in range(count))
        said(wire, [request(0x001300, [BEGIN, text("c"), BEGIN, fields, END, END])])
        (answer,) = wire.take()
        refused = error_of(answer)
        assert (refused is None) is kept
        if refused is not None:
            assert "the schema of 'c' is too large" in str(refused)


def test_all_schemas_of_a_long_message_are_stored() -> None:
    wire = logged_in()
    said(wire, [request(0x001500, [BEGIN, b"".join(map(schema, range(3000))), END])])
    (answer,) = wire.take()
    assert error_of(answer) is None
    assert len([one for one in wire.grid.requests if one.map == "__schemas"]) == 3000


KEYS = 40_000
SEEN_MAX = 20_000
"""Objects that are in lists and the like which a slice of a long request may keep."""


def seen_by_the_collector(wire: Wire) -> int:
    """How many references it follows in what has come to be since it was frozen: each costs it time."""
    wire.grid.requests.clear()
    return sum(len(each) for each in gc.get_objects() if isinstance(each, list | set | dict | tuple))


@pytest.mark.rule("server/F-3")
@pytest.mark.parametrize("kind", [0x012300, 0x012C00], ids=name_of)
def test_the_collector_has_little_to_look_at_of_a_long_request(
    kind: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It goes through all elements of a list in one go, which is 20 ms for a million keys, and takes as long whenever a
    set of these outgrows its room.
    """
    monkeypatch.setattr(hazelcast_frames, "MANY_BYTES", 100_000)
    parts = [stored(at) + (stored(1) if kind == 0x012C00 else b"") for at in range(KEYS)]
    whole = request(kind, [text("m"), BEGIN, *parts, END])
    del parts
    wire = logged_in()
    flow = wire.session._flow
    gc.collect()
    gc.freeze()
    try:
        wire.session.receive(whole)
        most, turns = 0, 0
        while flow.halted:
            wire.session.resume()
            most, turns = max(most, seen_by_the_collector(wire)), turns + 1
    finally:
        gc.unfreeze()
    assert turns > KEYS // 2000
    assert most < SEEN_MAX
    assert error_of(wire.take()[-1]) is None
