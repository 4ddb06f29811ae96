"""Orders, news and passive clusters, in a session of Holdfast's own protocol."""

from __future__ import annotations

import msgspec
import pytest
from tests.server.memory_cluster import MemoryCluster, MemoryMember, Wire

from holdfast.actions.drain import Drain
from holdfast.actions.operator_action import TIMEOUT_MS_MAX, OperatorAction
from holdfast.actions.set_state import SetState
from holdfast.actions.shut_down import ShutDown
from holdfast.client.action_messages import request_of
from holdfast.core.model.migration import NONE, Migration
from holdfast.core.model.partition_events import Kind, Loss, News
from holdfast.core.model.views import ClusterState
from holdfast.server import reply_channel
from holdfast.wire import own

COUNT = 7


@pytest.fixture
def member() -> MemoryMember:
    return MemoryCluster(2, COUNT).members[0]


@pytest.fixture
def wire(member: MemoryMember) -> Wire:
    found = Wire.to(member)
    assert isinstance(found.hello(), own.HelloOk)
    return found


def tell(wire: Wire, kind: type[own.Question], *fields: object) -> int:
    """Ask without waiting for the answer."""
    wire.number += 1
    wire.session.receive(own.frame(kind(wire.number, *fields)))  # type: ignore[arg-type]
    return wire.number


def act(wire: Wire, action: OperatorAction, timeout_s: float = 1) -> int:
    wire.number += 1
    wire.session.receive(own.frame(request_of(wire.number, action, timeout_s)))
    return wire.number


def news(view: int, count: int) -> News:
    moved = Migration(count, "a", 0, NONE, "b", NONE, 0)
    return News((view, count), Kind.COMPLETED, (view, 0), 9, count, migration=moved, loss=None)


# -- orders


def test_an_order_is_answered_when_it_is_so_and_not_before(wire: Wire, member: MemoryMember) -> None:
    number = act(wire, SetState(ClusterState.FROZEN), 5)
    assert wire.answers() == []
    assert len(wire.ask(own.AskTable).members) == 2  # others are answered meanwhile
    ((action, timeout_ms, done),) = member.actions
    assert (action, timeout_ms) == (SetState(ClusterState.FROZEN), 5000)
    done(own.Fate.ACCEPTED, "not yet")
    assert wire.answers() == [own.Acted(number, own.Fate.ACCEPTED, "not yet")]


NO_ACTIONS = [
    ("state", {"state": "asleep"}, 1, "Invalid enum value 'asleep'"),
    ("state", {}, 1, "missing required field `state`"),
    ("state", {"state": "frozen", "force": True}, 1, "unknown field `force`"),
    ("state", ["frozen"], 1, "Expected `object`"),
    ("explode", {}, 1, "there is no action 'explode'; known are accept-loss, "),
    ("x" * 5000, {}, 1, f"there is no action '{'x' * 100}'"),
    ("drain", {}, -1, "the timeout of an action is"),
    ("drain", {}, TIMEOUT_MS_MAX + 1, "the timeout of an action is"),
    ("refill", {"partition": -1, "member": "m"}, 1, ">= 0"),
    ("refill", {"partition": COUNT, "member": "m"}, 1, "partitions are 0 to 6"),
    ("reset-lost", {"partitions": [COUNT]}, 1, "partitions are 0 to 6"),
    ("reset-lost", {"partitions": [1, 1]}, 1, "a partition is named once"),
    ("reset-lost", {"partitions": [1] * 70_000}, 1, "length <= 65536"),
    ("baseline-drop", {}, 1, "there is no action"),
    ("baseline-auto", {"adjust_ms": -2}, 1, ">= -1"),
    ("baseline-auto", {"adjust_ms": TIMEOUT_MS_MAX + 1}, 1, "<= 86400000"),
    ("evict", {"members": []}, 1, "length >= 1"),
    ("configure", {"settings": {1: 2}}, 1, "Expected `str`"),
]


@pytest.mark.parametrize(("name", "fields", "timeout_ms", "why"), NO_ACTIONS)
def test_actions_that_make_no_sense_are_rejected(
    wire: Wire, member: MemoryMember, name: str, fields: object, timeout_ms: int, why: str
) -> None:
    fault = wire.ask(own.Act, name, msgspec.Raw(msgspec.msgpack.encode(fields)), timeout_ms)
    assert fault.kind is own.FaultKind.MALFORMED
    assert why in fault.detail
    assert member.actions == []
    assert isinstance(wire.ask(own.AskTable), own.TableIs), "the connection goes on"


@pytest.mark.parametrize(
    "fields", [b"\x91" * 50_000, b"\xc1", b"\xdf\xff\xff\xff\xff", b"\x81\xa1x" * 20_000]
)
def test_fields_that_are_no_messagepack_end_the_connection_at_most(
    wire: Wire, member: MemoryMember, fields: bytes
) -> None:
    wire.number += 1
    wire.session.receive(own.frame(own.Act(wire.number, "drain", msgspec.Raw(fields), 1)))
    assert [answer.kind for answer in wire.answers()] == [own.FaultKind.MALFORMED]
    assert member.actions == []
    assert member.faults == []


def test_nobody_orders_who_has_not_said_who_it_is(member: MemoryMember) -> None:
    member.user = ("ada", "secret", None)
    for question in (request_of(1, ShutDown(), 1), own.Watch(1)):
        stranger = Wire.to(member)
        stranger.session.receive(own.frame(question))
        assert [answer.kind for answer in stranger.answers()] == [own.FaultKind.DENIED]
        assert stranger.closed_with
    stranger = Wire.to(member)
    assert stranger.hello(username="ada", password="guess").kind is own.FaultKind.DENIED
    assert member.actions == []


def test_orders_that_wait_are_limited(
    wire: Wire, member: MemoryMember, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reply_channel, "WAITING_MAX", 2)
    act(wire, Drain())
    act(wire, Drain())
    assert wire.ask(own.Act, "drain", msgspec.Raw(b"\x80"), 1000).kind is own.FaultKind.NOT_READY
    member.actions[0][2](own.Fate.DONE, "gone")
    wire.answers()
    act(wire, Drain())
    assert wire.answers() == []


def test_an_answer_to_a_connection_that_is_gone_is_dropped(wire: Wire, member: MemoryMember) -> None:
    act(wire, Drain())
    wire.session.closed()
    member.actions[0][2](own.Fate.DONE, "gone")
    assert wire.answers() == []


# -- news


def test_a_watch_begins_with_the_newest_number_and_waits(wire: Wire, member: MemoryMember) -> None:
    member.tell_news(news(3, 1))
    heard = wire.ask(own.Watch)
    assert heard == own.Heard(heard.id, [], (3, 1), complete=True)
    number = tell(wire, own.Watch, heard.last)
    assert wire.answers() == []
    member.tell_news(news(3, 2))
    assert wire.answers() == [own.Heard(number, [news(3, 2)], (3, 2), complete=True)]
    member.tell_news(news(3, 3))  # nobody has asked again yet
    assert wire.answers() == []
    heard = wire.ask(own.Watch, (3, 2))
    assert [each.number for each in heard.news] == [(3, 3)]
    assert member.news_listeners == []


def test_news_that_the_client_has_from_elsewhere_are_not_told_again(wire: Wire, member: MemoryMember) -> None:
    number = tell(wire, own.Watch, (3, 5))
    member.tell_news(news(3, 4))
    assert wire.answers() == []
    member.tell_news(news(3, 6))
    assert wire.answers() == [own.Heard(number, [news(3, 6)], (3, 6), complete=True)]


def test_a_member_that_was_not_there_says_so(wire: Wire, member: MemoryMember) -> None:
    member.complete = False
    member.tell_news(news(3, 1))
    assert wire.ask(own.Watch, (2, 1)).complete is False


def test_much_news_come_in_pieces(wire: Wire, member: MemoryMember, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own, "NEWS_MAX", 2)
    for count in range(1, 6):
        member.tell_news(news(1, count))
    found, last = [], (1, 0)
    while len(found) < 5:
        heard = wire.ask(own.Watch, last)
        assert len(heard.news) <= 2
        found += heard.news
        last = heard.last
    assert [each.number[1] for each in found] == [1, 2, 3, 4, 5]


def test_a_new_watch_ends_the_one_before(wire: Wire, member: MemoryMember) -> None:
    first = tell(wire, own.Watch, (1, 0))
    second = tell(wire, own.Watch, (1, 0))
    assert wire.answers() == [own.Heard(first, [], (1, 0), complete=True)]
    assert wire.ask(own.Watch).news == []  # a question for the number ends none
    member.tell_news(news(1, 1))
    assert [answer.id for answer in wire.answers()] == [second]


def test_the_end_of_a_connection_ends_its_watch(wire: Wire, member: MemoryMember) -> None:
    tell(wire, own.Watch, (1, 0))
    assert len(member.news_listeners) == 1
    wire.session.closed()
    assert member.news_listeners == []
    member.tell_news(news(1, 1))
    assert wire.answers() == []


def test_news_survive_the_wire() -> None:
    lost = News((4, 2), Kind.LOST, loss=Loss(5, 1, True, ["default"], True))
    for each in (news(1, 2), lost):
        answer = own.Heard(1, [each], each.number, complete=True)
        assert own.read_answer(own.frame(answer)[own.LENGTH_BYTES :]) == answer


# -- a passive cluster


def test_a_passive_member_answers_scans_and_digests_and_takes_no_columns(
    wire: Wire, member: MemoryMember
) -> None:
    partition = next(p for p in range(COUNT) if member.lane.serving[p] is not None)
    copy = member.lane.serving[partition]
    assert copy is not None
    copy.open("m").state.store(b"key", b"value", 0, 0, 0, 0)
    member.be_passive()
    page = wire.ask(own.Scan, "m", partition)
    assert page.columns.split() == ([b"key"], [b"value"])
    (digest,) = wire.ask(own.AskDigests, [partition]).held
    assert digest.serving
    columns = own.ColumnBatch.of([b"key"], [b"other"])
    fault = wire.ask(own.PutColumns, "m", [partition], [1], columns)
    assert fault.kind is own.FaultKind.PASSIVE
    assert copy.open("m").state.entries == {b"key": b"value"}
