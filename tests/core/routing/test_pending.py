"""What waits for an answer: how much may wait, who asked, and when it is looked at."""

from __future__ import annotations

import pytest

from holdfast.config import LimitSettings, Settings
from holdfast.core.effects import Complete, Send, SetTimer
from holdfast.core.messages import Answer
from holdfast.core.model.ids import MemberId
from holdfast.core.model.operations import Op, Outcome, Request, Status
from holdfast.core.model.timer_name import TimerName
from holdfast.core.outbox import Outbox
from holdfast.core.routing.pending import FULL, REQUEST_BYTES, Parked, Peer, Waiting, Within, answer, size_of

A, B = MemberId("a"), MemberId("b")


@pytest.fixture
def out() -> Outbox:
    return Outbox()


def waiting(out: Outbox, *, requests: int = 3, bytes_most: int = 1_000) -> Waiting:
    return Waiting(Settings(limits=LimitSettings(waiting_requests=requests, waiting_bytes=bytes_most)), out)


@pytest.mark.rule("routing/R-6")
def test_as_many_requests_wait_as_may(out: Outbox) -> None:
    some = waiting(out, requests=2)
    assert [some.enter(1) for _ in range(3)] == [True, True, False]
    assert some.full
    some.leave(1)
    assert not some.full
    assert some.enter(1)


@pytest.mark.rule("routing/R-6")
def test_as_many_bytes_wait_as_may_and_not_one_more(out: Outbox) -> None:
    some = waiting(out, bytes_most=1_000)
    assert some.enter(600)
    assert not some.enter(401)
    assert FULL.status is Status.NOT_READY
    assert some.enter(400)
    some.leave(600)
    assert some.enter(600)


def test_only_a_counted_request_leaves(out: Outbox) -> None:
    some = waiting(out)
    with pytest.raises(AssertionError, match="only a counted request leaves"):
        some.leave(0)
    assert some.enter(5)
    with pytest.raises(AssertionError, match="only a counted request leaves"):
        some.leave(6)


def test_each_ticket_is_another_one(out: Outbox) -> None:
    some = waiting(out)
    assert [some.ticket() for _ in range(3)] == [1, 2, 3]
    assert some.tickets == 3


def test_a_timer_is_set_again_only_for_an_earlier_look(out: Outbox) -> None:
    some = waiting(out)
    for after_ns in (50, 50, 70, 30, 40):
        some.look_in(after_ns)
    assert out.take() == [SetTimer(TimerName.ROUTE, 50), SetTimer(TimerName.ROUTE, 30)]
    some.looked()
    some.look_in(70)
    assert out.take() == [SetTimer(TimerName.ROUTE, 70)]


def test_a_request_takes_what_it_carries_and_a_little_more() -> None:
    request = Request(
        Op.PUT_ALL, "m", [1], b"k" * 10, b"v" * 200, b"e" * 3000, items=[b"i" * 40000, b"j" * 500000]
    )
    assert size_of(request) == REQUEST_BYTES + 543_210


def test_who_asked_is_told_as_it_asked(out: Outbox) -> None:
    done = Outcome(Status.OK, b"v")
    answer(out, 7, done)
    answer(out, Peer(B, 9), done)
    assert out.take() == [Complete(7, done), Send(B, Answer(9, done, []))]


def test_a_machine_of_this_member_is_answered_at_once(out: Outbox) -> None:
    class Receiver:
        def __init__(self) -> None:
            self.answers: list[tuple[int, Outcome]] = []

        def answered(self, ticket: int, outcome: Outcome) -> None:
            self.answers.append((ticket, outcome))

    receiver, done = Receiver(), Outcome(Status.OK, b"v")
    answer(out, Within(receiver, 4), done)
    assert receiver.answers == [(4, done)]
    assert out.take() == []


def test_requests_with_an_id_are_numbered(out: Outbox) -> None:
    some = waiting(out)
    assert [some.number() for _ in range(3)] == [1, 2, 3]


def test_what_a_member_has_sent_is_told_from_what_a_session_has() -> None:
    request = Request(Op.GET, "m", [1], b"k")
    assert Parked(request, Peer(B, 1), 100).comes_from({B})
    assert not Parked(request, Peer(B, 1), 100).comes_from({A})
    fresh = Parked(request, 1, 100)
    assert not fresh.comes_from({A, B})
    assert fresh.request is request
    assert (fresh.deadline_ns, fresh.doubt, fresh.why, fresh.until_ns, fresh.size) == (100, "", "", 0, 0)
    assert (fresh.wait, fresh.since_ns) == (None, 0)
