"""Messages of the right types that no member can mean are refused where they are read."""

from __future__ import annotations

import random
from struct import pack

import msgspec
import pytest

from holdfast.core import messages as m
from holdfast.core.model.baseline import Baseline, BaselineMember
from holdfast.core.model.ids import MILLISECOND, MemberId
from holdfast.core.model.operations import EntryEvent, EventKind, Op, Outcome, Request, Status
from holdfast.core.model.partition_events import Kind, Loss, News
from holdfast.core.model.partition_table import Assignment
from holdfast.core.model.records import Change, Puts, Record, pack_puts
from holdfast.core.model.sync_request import Base, Demand
from holdfast.core.model.views import FilesGone, MemberInfo, View
from holdfast.core.primary_backup import packed_puts_cy
from holdfast.core.store.request_ids import mark_of, naming
from holdfast.engine.link import Link
from holdfast.errors import ProtocolError
from holdfast.runtime.data_lane import data_lane
from holdfast.wire.bounds import AreSound, message_problem
from holdfast.wire.codec import decode, encode

COUNT = 7
ANNA, BEN = MemberId("aa"), MemberId("bb")
INFO = MemberInfo(ANNA, 1, "127.0.0.1", 5701, "127.0.0.1", 5801, "anna")
VIEW = View(1, "cc", [INFO])
RECORD = Record("m", 1, Change.SET, b"k", b"v")
ENTRIES = m.FillEntries("m", 1, [b"k"], [b"v"])


def replace(what: object, **changes: object) -> object:
    return msgspec.structs.replace(what, **changes)  # type: ignore[type-var]


BASELINE = Baseline((BaselineMember("a", "g"), BaselineMember("b", "", True)), 5000, 1, ("h",))


def fill(**changes: object) -> m.Fill:
    return replace(m.Fill(0, 1, 1, 0, False, 0, True, 1, [ENTRIES]), **changes)  # type: ignore[return-value]


GOOD: list[m.Message] = [
    m.JoinRequest(INFO, "dev", {}),
    m.JoinAnswer(ANNA, True),
    m.Heartbeat(ANNA, 1, 1),
    m.ViewDecided(VIEW, [(0, Assignment(1, (ANNA, None, BEN), 0, (BEN,)))]),
    m.Promise(VIEW.number - 1, (1, ANNA), (1, ANNA), VIEW),
    m.Accept(VIEW.number - 1, (1, ANNA), VIEW),
    m.ViewDecided(VIEW, [(0, Assignment(1, (ANNA,), lost=("default", "m")))]),
    m.ResetLost(1, [0, 6], ["default", "m"]),
    m.BaselineWanted(1, "", ["a", "b"], -1),
    m.JoinRequest(INFO, "dev", {}, baseline=BASELINE),
    m.JoinRequest(INFO, "dev", {}, gone=FilesGone(3, {"files": 2})),
    m.ViewDecided(replace(VIEW, baseline=BASELINE)),  # type: ignore[arg-type]
    m.TableOffer(
        1, 1, 0, [(6, Assignment(1, (ANNA,)))], [News((1, 1), Kind.LOST, loss=Loss(0, 0, False, []))]
    ),
    m.Replicate([1], [m.Section(6, 1, [RECORD], 1)]),
    m.Replicate([1], [m.Section(6, 1, [replace(RECORD, request=naming(bytes(16)))], 1)]),  # type: ignore[list-item]
    m.Replicate([1], [m.Section(6, 1, [replace(RECORD, request=naming(bytes(16)) + mark_of(b"id", 1))], 1)]),  # type: ignore[list-item]
    m.Replicate(
        [1],
        [
            m.Section(
                6, 1, [], 1, [pack_puts("m", 0, [b"k"], [b"v"]), pack_puts("n", 2**63 - 2, [b""], [b""])]
            )
        ],
    ),
    m.Forward(1, Request(Op.GET, "m", [6], b"k")),
    m.MessageBatch(
        [
            m.Forward(1, Request(Op.GET, "m", [6], b"k")),
            m.Answer(2, Outcome(Status.OK, 1), [6]),
            m.Replicate([1], [m.Section(6, 1, [RECORD], 1)]),
            m.Replicated([1], [6]),
        ]
    ),
    m.ZoneForward(1, Request(Op.GET, "m", [6], b"k"), 1),
    m.Answer(1, Outcome(Status.OK, b"v"), [0]),
    m.ForwardFrames(1, 7, [(2, b"frames"), (0, b"")], 3),
    m.FramesAnswer(1, 4, [(0, b"a", b"", [1])], "why"),
    m.Events([EntryEvent(EventKind.ADDED, "m", "aa", b"k", key_hash=1 << 40)]),
    fill(),
    m.Filled(0, 1, 1, 0, Demand(0, [Base("m", [(1, 0)], 1, 1)])),
]
NONSENSE: list[m.Message] = [
    *(
        m.JoinRequest(replace(INFO, **change), "dev", {})  # type: ignore[arg-type]
        for change in (
            {"uuid": ""},
            {"uuid": "hello\nworld"},
            {"uuid": "f" * 33},
            {"attributes": {"disk": "x" * 1025}},
            {"attributes": {str(number): "x" for number in range(65)}},
            {"host": ""},
            {"host": "x" * 300},
            {"host": "a\nb"},
            {"port": 70_000},
            {"port": -1},
            {"client_port": 1 << 40},
            {"life": 1 << 31},
            {"name": "n" * 5000},
        )
    ),
    m.JoinRequest(INFO, "dev", {}, gone=FilesGone(3, {"files": -1})),
    m.JoinRequest(INFO, "dev", {}, gone=FilesGone(-3, {})),
    m.Heartbeat(ANNA, 1, -1),
    m.Heartbeat(MemberId("nobody"), 1, 1),
    m.ViewDecided(replace(VIEW, number=1 << 31)),  # type: ignore[arg-type]
    m.ViewDecided(replace(VIEW, members=[INFO, INFO])),  # type: ignore[arg-type]
    m.ViewDecided(VIEW, [(7, Assignment())]),
    m.ViewDecided(VIEW, [(0, Assignment(1, (ANNA,) * 2))]),
    m.ViewDecided(VIEW, [(0, Assignment(1, (None,) * 8))]),
    m.TableOffer(1, 1, 0, [(-1, Assignment())]),
    m.TableOffer(1, 1, 0, [], [News((1, 1), Kind.LOST, loss=Loss(7, 0, False, []))]),
    m.TableReport(1, [(7, Assignment())], []),
    m.Holdings(1, None, {}, [], [m.RetainedCopy(7, 0, [], True)]),
    m.Accepted(1, (1, ANNA), [(7, Assignment())]),
    m.Promise(1, (1, ANNA), None, VIEW),
    m.Promise(VIEW.number, (1, ANNA), (1, ANNA), VIEW),
    m.Accept(VIEW.number, (1, ANNA), VIEW),
    m.ViewDecided(VIEW, [(0, Assignment(1, (ANNA,), lost=("m", "m")))]),
    m.ViewDecided(VIEW, [(0, Assignment(1, (ANNA,), lost=("m" * 1025,)))]),
    m.BaselineWanted(1, "", ["a"], -2),
    m.BaselineWanted(-1, "", ["a"], 0),
    m.BaselineWanted(1, "x" * 1025, [], 0),
    m.BaselineWanted(1, "", ["m" * 1025], 0),
    *(
        message
        for change in (
            {"members": BASELINE.members[::-1]},
            {"members": (BaselineMember("m" * 1025),)},
            {"members": (BaselineMember("m", "g" * 1025),)},
            {"adjust_ms": -2},
            {"changes": 0},
            {"history": ()},
            {"changes": 70, "history": ("x",) * 65},
            {"history": ("x" * 1025,)},
        )
        for message in (
            m.JoinRequest(INFO, "dev", {}, baseline=replace(BASELINE, **change)),  # type: ignore[arg-type]
            m.ViewDecided(replace(VIEW, baseline=replace(BASELINE, **change))),  # type: ignore[arg-type]
        )
    ),
    m.ResetLost(1, [7], ["m"]),
    m.ResetLost(1, [0], ["m", "m"]),
    m.ResetLost(1, [0], ["m" * 1025]),
    m.MigrationReady(1, 7, 1),
    m.Replicate([1], [m.Section(7, 1, [])]),
    m.Replicate([1], [m.Section(-1, 1, [])]),
    m.Replicate([1], [m.Section(0, -1, [])]),
    m.Replicate([1], [m.Section(0, 1, [replace(RECORD, counter=0)])]),  # type: ignore[list-item]
    m.Replicate([1], [m.Section(0, 1, [replace(RECORD, ttl_ms=-5)])]),  # type: ignore[list-item]
    m.Replicate([1], [m.Section(0, 1, [replace(RECORD, request=b"\xff")])]),  # type: ignore[list-item]
    m.Replicate([1], [m.Section(0, 1, [replace(RECORD, request=b"\0")])]),  # type: ignore[list-item]
    m.Replicate([1], [m.Section(0, 1, [replace(RECORD, request=bytes(16))])]),  # type: ignore[list-item]
    m.Replicate([1], [m.Section(0, 1, [replace(RECORD, request=bytes(18))])]),  # type: ignore[list-item]
    *(
        m.Replicate([1], [m.Section(0, 1, [], 1, [pack_puts("m", 0, [b"k"], [b"v"]), puts])])
        for puts in (
            pack_puts("m", -1, [b"k"], [b"v"]),
            Puts("m", 0, b"", b""),
            Puts("m", 0, b"", b"kv"),
            Puts("m", 0, pack("<2I", 1, 1), b""),
            Puts("m", 0, pack("<2I", 1, 1), b"k"),
            Puts("m", 0, pack("<2I", 1, 1), b"kvv"),
            Puts("m", 0, pack("<3I", 1, 1, 0), b"kv"),
            Puts("m", 0, pack("<2I", 1, 1) + b"\0", b"kv"),
            Puts("m", 0, pack("<4I", 1, 2**32 - 1, 1, 1), b"kv"),
            pack_puts("m", 2**63 - 2, [b"k", b"k"], [b"v", b"v"]),
            pack_puts("m", 2**64 - 1, [b"k"], [b"v"]),
        )
    ),
    m.Replicate([1], [], [m.Ack(b"c", [1 << 63], [0])]),
    m.Replicated([1], [7]),
    m.Enlist([(7, 1, [])]),
    m.Enlisted([(0, -1, True)]),
    fill(partition=7),
    fill(sequence=-1),
    fill(index=7),
    fill(maps=[replace(ENTRIES, values=[])]),
    fill(maps=[replace(ENTRIES, ttls_ms=[1, 2])]),
    fill(records=[m.FillRecords("m", [(1, 2)], [RECORD])]),
    m.Filled(0, 1, 1, 0, Demand(0, [Base("m", [], 1, 1, [1] * 65)])),
    m.Summary(0, 1, [m.Summed("m", -1, 1, 0)]),
    m.Forward(1, Request(Op.GET, "m", [7], b"k")),
    m.MessageBatch(
        [m.Forward(1, Request(Op.GET, "m", [6], b"k")), m.Forward(1, Request(Op.GET, "m", [7], b"k"))]
    ),
    m.MessageBatch([m.Replicated([1], [6]), m.Replicate([1], [m.Section(7, 1, [RECORD], 1)])]),
    m.ZoneForward(1, Request(Op.GET, "m", [7], b"k"), 1),
    m.ZoneForward(1, Request(Op.SIZE, "m", [1, 2]), 1),
    m.ZoneForward(1, Request(Op.GET, "m", [6], b"k"), -1),
    m.Forward(1, Request(Op.GET, "m", [], b"k")),
    m.Forward(1, Request(Op.GET, "m", [0, 1], b"k")),
    m.Forward(1, Request(Op.SET, "m", [0], b"k", key_hash=1 << 31)),
    m.Forward(1, Request(Op.PUT_ALL, "m", [0], items=[b"k"])),
    m.Forward(1, Request(Op.SET, "m", [0], b"k", id=b"x" * 65)),
    m.Answer(1, Outcome(Status.OK), [7]),
    m.ForwardFrames(-1, 7, []),
    m.ForwardFrames(1, -7, []),
    m.ForwardFrames(1, 1 << 63, []),
    m.ForwardFrames(1, 7, [(7, b"frames")]),
    m.ForwardFrames(1, 7, [(-1, b"frames")]),
    m.FramesAnswer(1, -1, []),
    m.FramesAnswer(1, 1, [(-1, b"", b"", [])]),
    m.FramesAnswer(1, 1, [(0, b"", b"", [-1])]),
    m.Events([EntryEvent(EventKind.ADDED, "m", "me", b"k")]),
    m.Events([EntryEvent(EventKind.CLEAR_ALL, "m", "aa", count=1 << 40)]),
]
BYTES = {
    "nothing": b"",
    "no message": b"\x93\x01\x02\x03",
    "broken text": encode(GOOD[0]).replace(b"anna", b"\xff\xfe\xff\xfe"),
    "nested arrays": b"\x91" * 2000,
    "a tag that nobody knows": msgspec.msgpack.encode([99, 1]),
    "contradicting indices": msgspec.msgpack.encode([20, 1, [0, None, 3, 3, "aa", -1, -5], 1]),
}


@pytest.mark.parametrize("message", GOOD, ids=lambda message: type(message).__name__)
def test_what_members_mean_is_read(message: m.Message) -> None:
    assert decode(encode(message), COUNT) == message


@pytest.mark.parametrize("message", NONSENSE, ids=lambda message: type(message).__name__)
def test_what_no_member_can_mean_is_refused(message: m.Message) -> None:
    with pytest.raises(ProtocolError, match=type(message).__name__):
        decode(encode(message), COUNT)


def _compiled() -> AreSound | None:
    puts = data_lane().ways.puts
    return puts.are_sound if puts is not packed_puts_cy else None


WAYS = {"plain": packed_puts_cy.are_sound, "compiled": _compiled()}


@pytest.mark.parametrize("way", WAYS)
def test_the_quick_check_of_packed_stores_agrees_with_the_thorough_one(way: str) -> None:
    are_sound = WAYS[way]
    if are_sound is None:
        pytest.skip("the compiled check is not built here")
    draw = random.Random(7)
    odd = [-1, 0, 1, COUNT - 1, COUNT, 2**31, 2**63 - 3, 2**63 - 1, 2**63, 2**64 - 1]
    sound = refused = 0
    for _ in range(4000):
        keys = [bytes(draw.randrange(256) for _ in range(draw.choice([0, 1, 5, 300])))]
        keys *= draw.randrange(4)
        puts = pack_puts("m", draw.randrange(100), keys, [key * 2 for key in keys])
        section = m.Section(draw.randrange(COUNT), draw.randrange(9), [], draw.randrange(9), [puts])
        match draw.randrange(9):
            case 0:
                changed = msgspec.structs.replace(puts, start=draw.choice(odd))
                section = msgspec.structs.replace(section, puts=[changed])
            case 1:
                changed = msgspec.structs.replace(puts, sizes=puts.sizes[: draw.randrange(9)])
                section = msgspec.structs.replace(section, puts=[puts, changed])
            case 2:
                changed = msgspec.structs.replace(puts, data=puts.data + bytes(draw.randrange(2)))
                section = msgspec.structs.replace(section, puts=[changed])
            case 3:
                sizes = pack("<II", 2**32 - draw.randrange(1, 9), draw.randrange(9))
                section = msgspec.structs.replace(section, puts=[Puts("m", 0, sizes, puts.data)])
            case 4:
                name = draw.choice(["partition", "version", "term"])
                section = msgspec.structs.replace(section, **{name: draw.choice(odd)})
            case 5:
                section = msgspec.structs.replace(section, records=[Record("m", 1, Change.SET)])
        plain = message_problem(m.Replicate([1], [section]), COUNT)
        quick = are_sound([section], COUNT)
        assert quick is (not plain and not section.records), (section, plain)
        assert message_problem(m.Replicate([1], [section]), COUNT, are_sound) == plain
        sound, refused = sound + quick, refused + bool(plain)
    assert sound > 500
    assert refused > 500
    wrong_ack = m.Replicate([1], [section], [m.Ack(b"", [], [COUNT])])
    assert message_problem(wrong_ack, COUNT, lambda sections, count: True), "the rest is checked all the same"


@pytest.mark.parametrize("name", BYTES)
def test_whatever_is_wrong_with_the_bytes_is_one_error(name: str) -> None:
    with pytest.raises(ProtocolError):
        decode(BYTES[name], COUNT)


def test_a_packet_that_cannot_be_read_has_not_come() -> None:
    """Else the message that should have come in its place would be missing for ever."""
    here, there = Link[m.Message](1), Link[m.Message](1)
    good = here.send(encode(GOOD[2]), 0)
    bad = good[:24] + BYTES["broken text"]
    with pytest.raises(ProtocolError):
        there.receive(bad, 0, decode)
    assert not there.due(1000 * MILLISECOND)
    assert there.receive(good, 0, decode) == [GOOD[2]]
    early = here.send(b"", 0), here.send(encode(GOOD[1]), 0)
    with pytest.raises(ProtocolError):
        there.receive(early[1][:24] + b"\xc1", 0, decode)
    assert there.receive(early[1], 0, decode) == []
    assert there.receive(early[0][:24] + encode(GOOD[0]), 0, decode) == [GOOD[0], GOOD[1]]


def test_what_was_never_sent_is_not_acknowledged() -> None:
    """A packet with such an acknowledgement would make the other side forget what it has to repeat."""
    here, there = Link[bytes](1), Link[bytes](1)
    here.send(b"important", 0)
    forged = there.send(b"x", 0)
    with pytest.raises(ProtocolError, match="acknowledged"):
        here.receive(forged[:16] + (99).to_bytes(8, "little") + b"x", 0, bytes)
    assert here.unacknowledged == 1
