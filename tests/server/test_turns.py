"""The most that one turn does for a connection of the own protocol, whatever question comes: counted, not timed."""

from __future__ import annotations

import struct
from typing import get_args

import msgspec
import pytest
from tests.server.hazelcast.test_turns import Meter
from tests.server.memory_cluster import MemoryCluster, MemoryMember, Wire
from tests.server.test_own_session import COUNT, at, text

from holdfast.actions.accept_loss import AcceptLoss
from holdfast.actions.show_status import ShowStatus
from holdfast.client.action_messages import request_of
from holdfast.core.model.operations import Op, Request
from holdfast.errors import ProtocolError
from holdfast.server.column_put import PUT_ROWS_MAX
from holdfast.server.flow import TURN_UNITS
from holdfast.wire import own

TURN_CALLS = 80_000
READ = 256 * 1024
TAGS = {kind.__name__: kind.__struct_config__.tag for kind in get_args(own.Question)}


@pytest.fixture
def member() -> MemoryMember:
    return MemoryCluster(2, COUNT).members[0]


@pytest.fixture
def wire(member: MemoryMember) -> Wire:
    found = Wire.to(member)
    found.hello()
    return found


def said(wire: Wire, body: bytes) -> Meter:
    """Send this as it would be read, turn by turn."""
    meter, flow = Meter(), wire.session._flow
    for begin in range(0, len(body), READ):
        while flow.halted:
            meter.turn(wire.session.resume)
        part = body[begin : begin + READ]
        meter.turn(lambda part=part: wire.session.receive(part))
    while flow.halted:
        meter.turn(wire.session.resume)
    return meter


def framed(body: bytes) -> bytes:
    return struct.pack("<I", len(body)) + body


def list_of(count: int, part: bytes) -> bytes:
    return b"\xdd" + struct.pack(">I", count) + part * count


@pytest.mark.rule("server/F-3")
@pytest.mark.parametrize("name", sorted(TAGS))
@pytest.mark.parametrize(
    "part", [b"\xc0", b"\x90", b"\xa1x", b"\xc4\x00", b"\x81\x01\x02", b"\xcd\x01\x02"], ids=bytes.hex
)
@pytest.mark.parametrize("behind", [False, True], ids=["as a field", "behind all fields"])
def test_a_question_of_many_parts_is_refused_unread(
    wire: Wire, name: str, part: bytes, behind: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(own, "PARTS_MAX", 50_000)
    many = list_of(70_000, part)
    body = b"\xdc\x00\x40" + bytes((TAGS[name], 1)) + (b"\xc0" * 61 if behind else b"") + many
    body += b"\xc0" * (61 if not behind else 0)
    monkeypatch.setattr(own, "read_question", pytest.fail)
    said(wire, framed(body))
    (fault,) = wire.answers()
    assert isinstance(fault, own.Fault)
    assert fault.detail == "a question has at most 50000 parts"


def test_what_the_count_of_parts_lets_pass_can_be_read() -> None:
    whole = [
        1,
        -1,
        2**40,
        1.5,
        None,
        True,
        "x" * 300,
        b"y" * 70_000,
        [1] * 20,
        {"a": [2]},
        "",
        b"",
        {},
        [],
        "z" * 20,
    ]
    body = msgspec.msgpack.encode(whole)
    assert list(own.count_parts(body)) == []
    for wrong in (body[:-1], body[:1], b""):
        with pytest.raises(ProtocolError, match="cut short"):
            list(own.count_parts(wrong))
    for ext in (b"\xd4\x01\x02", b"\xc7\x02\x01ab", b"\xd8\x01" + bytes(16)):
        assert list(own.count_parts(b"\x92" + ext + b"\x01")) == []
    with pytest.raises(ProtocolError, match="at most"):
        list(own.count_parts(b"\xdf\xff\xff\xff\xff"))


def example(kind: type) -> own.Question:
    """A question of this kind that is short and costs as much as it can."""
    every = list(range(COUNT))
    made = {
        own.Hello: lambda: own.Hello(1, own.VERSION),
        own.Execute: lambda: own.Execute(1, own_request()),
        own.Scan: lambda: own.Scan(1, "m", 0),
        own.NextPage: lambda: own.NextPage(1, 7),
        own.PutColumns: lambda: own.PutColumns(1, "m", [0], [0], own.ColumnBatch.of([], [])),
        own.AskDigests: lambda: own.AskDigests(1, every),
        own.Act: lambda: request_of(1, AcceptLoss(), 1),
        own.Watch: lambda: own.Watch(1, None),
        own.AskRanges: lambda: own.AskRanges(1, 0, "m"),
        own.Cut: lambda: own.Cut(1, bytes(16), ["m"], every, 1000),
        own.HoldCut: lambda: own.HoldCut(1, bytes(16), 0, every),
        own.AskHeads: lambda: own.AskHeads(1, "m", every),
        own.AskChanges: lambda: own.AskChanges(1, "m", 0, 0, 0, 1),
    }
    if kind in made:
        return made[kind]()
    return msgspec.convert([TAGS[kind.__name__], 1, *REST[kind]], type=kind, strict=False)


REST: dict[type, list[object]] = {
    own.AskTable: [],
    own.OrderTransaction: [[3, bytes(16)]],
}


def own_request() -> Request:
    key = text("k")
    return Request(Op.PUT, "m", [at(key)], key=key, value=text("v"))


@pytest.mark.rule("server/F-3")
@pytest.mark.parametrize("kind", get_args(own.Question), ids=lambda kind: kind.__name__)
def test_many_small_questions_have_several_turns(wire: Wire, kind: type) -> None:
    one = own.frame(example(kind))
    meter = said(wire, one * min(READ // len(one), 4 * TURN_UNITS // 40))
    assert max(meter.turns) <= TURN_CALLS


def test_a_client_waits_while_its_session_has_requests_for_later_turns(wire: Wire) -> None:
    question = own.frame(own.AskTable(1))
    assert not wire.session.unanswered
    wire.session.receive(question[:5])
    assert wire.session.unanswered, "a part of a request has come"
    wire.session.receive(question[5:])
    assert not wire.session.unanswered
    wire.session.receive(question * 5000)
    assert wire.session.unanswered
    while wire.session._flow.halted:
        wire.session.resume()
    assert not wire.session.unanswered
    assert len(wire.answers()) == 5001


@pytest.mark.rule("server/F-3")
def test_few_statuses_are_made_in_a_turn(wire: Wire) -> None:
    """Each takes a ms on a member with its files and sockets, which are not here."""
    meter = said(wire, own.frame(request_of(1, ShowStatus(), 1)) * 50)
    assert len(wire.answers()) == 50
    assert len(meter.turns) >= 10


@pytest.mark.rule("server/F-3")
def test_many_rows_are_read_slice_by_slice(wire: Wire) -> None:
    keys = [text(f"{number:05}") for number in range(16_000)]
    keys.sort(key=at)
    counts = [sum(at(key) == partition for key in keys) for partition in range(COUNT)]
    put = own.PutColumns(1, "m", list(range(COUNT)), counts, own.ColumnBatch.of(keys, keys))
    meter = said(wire, own.frame(put))
    (done,) = wire.answers()
    assert isinstance(done, own.PutDone)
    assert len(meter.turns) > 10
    assert max(meter.turns) <= TURN_CALLS


@pytest.mark.rule("server/F-3")
def test_too_many_rows_are_refused(wire: Wire) -> None:
    rows = PUT_ROWS_MAX + 1
    put = own.PutColumns(1, "m", [0], [rows], own.ColumnBatch.of([b""] * rows, [b""] * rows))
    said(wire, own.frame(put))
    (fault,) = wire.answers()
    assert isinstance(fault, own.Fault)
    assert (fault.kind, fault.detail) == (
        own.FaultKind.MALFORMED,
        f"PutColumns has at most {PUT_ROWS_MAX} rows: send several",
    )
