"""A request on its way to a primary that changes: it waits where it is, and is not sent about."""

from __future__ import annotations

from holdfast.config import Settings
from holdfast.core.journal.log import Log
from holdfast.core.machine import SECOND, MemberId, Outbox, Send
from holdfast.core.messages import Answer, Forward
from holdfast.core.placement.table import Row
from holdfast.core.replication.lane import Lane
from holdfast.core.routing.router import RETRY_NS, Router
from holdfast.core.rules import Rules
from holdfast.core.store.operations import Op, Outcome, Request, Status

ME, OLD, NEW, ASKER = MemberId("me"), MemberId("old"), MemberId("new"), MemberId("asker")
READ = Request(Op.GET, "m", [0], b"k")


class Desk:
    """A router with one partition, which belongs to `OLD`."""

    def __init__(self) -> None:
        self.out = Outbox()
        self.rows = [Row(1, (OLD,))]
        self.coming = False
        lane = Lane(ME, Settings(), self.out, Rules(), Log(self.out, on=False))
        lane.attach(self.rows)
        self.router = Router(
            ME,
            Settings(),
            self.out,
            self.rows,
            lane,
            present=lambda _: True,
            coming=lambda _: self.coming,
            held={},
            heard=lambda _: True,
            rules=Rules(),
        )
        self.told: list[Outcome] = []

    def sent(self) -> list[tuple[MemberId, object]]:
        return [(effect.to, effect.message) for effect in self.out.take() if isinstance(effect, Send)]

    def moved(self, owner: MemberId) -> None:
        self.rows[0] = Row(self.rows[0].version + 1, (owner,))
        self.router.served(0)

    def tick(self) -> None:
        self.out.now_ns += RETRY_NS
        self.router.on_timer()


def test_a_member_that_is_about_to_be_the_primary_keeps_what_others_send_it() -> None:
    desk = Desk()
    desk.coming = True
    desk.router.on_forward(ASKER, Forward(7, READ))
    assert desk.sent() == []
    desk.moved(ME)
    assert desk.sent() == []  # until it has taken office


def test_a_member_that_will_not_be_says_so() -> None:
    desk = Desk()
    desk.router.on_forward(ASKER, Forward(7, READ))
    ((to, message),) = desk.sent()
    assert to == ASKER
    assert isinstance(message, Answer)
    assert message.outcome.status is Status.MOVED


def test_what_was_refused_by_an_old_owner_goes_to_the_new_one_as_soon_as_that_is_known() -> None:
    desk = Desk()
    desk.router.execute(READ, desk.told.append)
    assert [to for to, _ in desk.sent()] == [OLD]
    desk.router.on_answer(OLD, Answer(1, Outcome(Status.MOVED), []))
    assert desk.sent() == []
    desk.moved(NEW)
    assert [to for to, _ in desk.sent()] == [NEW]


def test_what_was_refused_goes_at_once_when_another_owner_is_known_by_then() -> None:
    desk = Desk()
    desk.router.execute(READ, desk.told.append)
    desk.moved(NEW)
    desk.sent()
    desk.router.on_answer(OLD, Answer(1, Outcome(Status.MOVED), []))
    assert [to for to, _ in desk.sent()] == [NEW]


def test_a_request_that_nobody_takes_is_refused_in_time() -> None:
    desk = Desk()
    desk.router.execute(READ, desk.told.append)
    for ticket in range(1, 1 + 60 * SECOND // RETRY_NS + 2):
        desk.sent()
        desk.router.on_answer(OLD, Answer(ticket, Outcome(Status.MOVED), []))
        desk.tick()
        if desk.told:
            break
    assert [outcome.status for outcome in desk.told] == [Status.NOT_READY]
    assert desk.out.now_ns <= 60 * SECOND + RETRY_NS
