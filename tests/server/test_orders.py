"""Orders, news and passive clusters, in a session of Holdfast's own protocol."""

from __future__ import annotations

import pytest
from tests.server.memory_cluster import MemoryCluster, MemoryMember, Wire

from holdfast.core.model.migration import NONE, Migration
from holdfast.core.model.partition_events import Kind, Loss, News
from holdfast.server import reply_channel
from holdfast.server.audit_events import order_of
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


def news(view: int, count: int) -> News:
    moved = Migration(count, "a", 0, NONE, "b", NONE, 0)
    return News((view, count), Kind.COMPLETED, (view, 0), 9, count, migration=moved, loss=None)


# -- orders


def test_an_order_is_answered_when_it_is_so_and_not_before(wire: Wire, member: MemoryMember) -> None:
    number = tell(wire, own.Order, own.Want.STATE, 5000, "frozen")
    assert wire.answers() == []
    assert wire.ask(own.AskStatus).status["members"] == 2  # others are answered meanwhile
    ((order, done),) = member.orders
    assert (order.want, order.timeout_ms, order.state) == (own.Want.STATE, 5000, "frozen")
    done(own.Fate.ACCEPTED, "not yet")
    assert wire.answers() == [own.Ordered(number, own.Fate.ACCEPTED, "not yet")]


def test_settings_in_an_order_have_the_names_that_all_builds_know(wire: Wire, member: MemoryMember) -> None:
    """A client of any build sends `limits.silent_ms`: here, and in the audit log, it is `limits.idle_timeout_ms`."""
    sent = {"limits.silent_ms": "60000", "log.level": "info"}
    wire.number += 1
    wire.session.receive(own.frame(own.Order(wire.number, own.Want.CONFIGURE, 5000, settings=sent)))
    ((order, _),) = member.orders
    assert order.settings == {"limits.idle_timeout_ms": "60000", "log.level": "info"}
    assert "limits.idle_timeout_ms" in order_of(own.Order(1, own.Want.CONFIGURE, 1, settings=sent), ())


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ((own.Want.STATE, 1, "asleep"), "active, no-migration, frozen, passive; not 'asleep'"),
        ((own.Want.STATE, 1), "not ''"),
        ((own.Want.LEAVE, -1), "the timeout of a command is"),
        ((own.Want.LEAVE, own.ORDER_MS_MAX + 1), "the timeout of a command is"),
        ((own.Want.REFILL, 1), "partitions are 0 to 6"),
        ((own.Want.REFILL, 1, "", COUNT), "partitions are 0 to 6"),
        ((own.Want.RESET_LOST, 1, "", -1, "", [COUNT]), "partitions are 0 to 6"),
        ((own.Want.RESET_LOST, 1, "", -1, "", [1, 1]), "a partition is named once"),
        ((own.Want.BASELINE, 1, "drop"), "set, add, remove, auto; not 'drop'"),
        ((own.Want.BASELINE, 1, "auto", -1, "", [], [], [], -2), "at most"),
        ((own.Want.BASELINE, 1, "auto", -1, "", [], [], [], own.ORDER_MS_MAX + 1), "at most"),
    ],
)
def test_orders_that_make_no_sense_are_refused(
    wire: Wire, member: MemoryMember, fields: tuple[object, ...], why: str
) -> None:
    fault = wire.ask(own.Order, *fields)
    assert fault.kind is own.FaultKind.MALFORMED
    assert why in fault.detail
    assert member.orders == []


def test_nobody_orders_who_has_not_said_who_it_is(member: MemoryMember) -> None:
    member.user = ("ada", "secret", None)
    for question in (own.Order(1, own.Want.END, 1000), own.Watch(1)):
        stranger = Wire.to(member)
        stranger.session.receive(own.frame(question))
        assert [answer.kind for answer in stranger.answers()] == [own.FaultKind.DENIED]
        assert stranger.closed_with
    stranger = Wire.to(member)
    assert stranger.hello(username="ada", password="guess").kind is own.FaultKind.DENIED
    assert member.orders == []


def test_orders_that_wait_are_limited(
    wire: Wire, member: MemoryMember, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reply_channel, "WAITING_MAX", 2)
    tell(wire, own.Order, own.Want.LEAVE, 1000)
    tell(wire, own.Order, own.Want.LEAVE, 1000)
    assert wire.ask(own.Order, own.Want.LEAVE, 1000).kind is own.FaultKind.NOT_READY
    member.orders[0][1](own.Fate.DONE, "gone")
    wire.answers()
    tell(wire, own.Order, own.Want.LEAVE, 1000)
    assert wire.answers() == []


def test_an_answer_to_a_connection_that_is_gone_is_dropped(wire: Wire, member: MemoryMember) -> None:
    tell(wire, own.Order, own.Want.LEAVE, 1000)
    wire.session.closed()
    member.orders[0][1](own.Fate.DONE, "gone")
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
