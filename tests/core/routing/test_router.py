"""A request on its way to a primary that changes: it waits where it is, and is not sent about."""

from __future__ import annotations

from typing import Any

import pytest
from tests.core.routing.around import Around, Told

from holdfast.config import Settings
from holdfast.core.effects import Send
from holdfast.core.journal.log import Log
from holdfast.core.messages import Answer, Forward
from holdfast.core.model.ids import SECOND, MemberId
from holdfast.core.model.map_moves import NoMoves
from holdfast.core.model.operations import Op, Outcome, Request, Status
from holdfast.core.model.partition_table import Assignment
from holdfast.core.model.views import Room
from holdfast.core.primary_backup import primary_copy
from holdfast.core.primary_backup.lane import Lane
from holdfast.core.primary_backup.primary_copy import PrimaryCopy
from holdfast.core.routing import gatherings
from holdfast.core.routing.gatherings import RETRY_NS
from holdfast.core.routing.router import Router
from holdfast.core.store.partition_copy import PartitionCopy

ME, OLD, NEW, ASKER = MemberId("me"), MemberId("old"), MemberId("new"), MemberId("asker")
READ = Request(Op.GET, "m", [0], b"k")


class Desk(Told):
    """A router with one partition, which belongs to `OLD`."""

    def __init__(self) -> None:
        super().__init__()
        self.rows = [Assignment(1, (OLD,))]
        self.around = Around()
        self.lane = lane = Lane(ME, Settings(), self.out, Log(self.out, on=False))
        lane.attach(self.rows)
        self.router = Router(
            ME,
            Settings(),
            self.out,
            self.rows,
            PrimaryCopy(Settings(), self.out, lane, NoMoves()),
            held={},
            neighbours=self.around,
            offers=self.around,
        )

    def sent(self) -> list[tuple[MemberId, object]]:
        return [(effect.to, effect.message) for effect in self.taken() if isinstance(effect, Send)]

    def moved(self, owner: MemberId) -> None:
        self.rows[0] = Assignment(self.rows[0].version + 1, (owner,))
        self.router.served(0)

    def tick(self) -> None:
        self.out.now_ns += RETRY_NS
        self.router.on_timer()


def test_a_member_that_is_about_to_be_the_primary_keeps_what_others_send_it() -> None:
    desk = Desk()
    desk.around.stored = Assignment(2, (ME,))
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
    desk.router.execute(READ, 1)
    assert [to for to, _ in desk.sent()] == [OLD]
    desk.router.on_answer(OLD, Answer(1, Outcome(Status.MOVED), []))
    assert desk.sent() == []
    desk.moved(NEW)
    assert [to for to, _ in desk.sent()] == [NEW]


def test_what_was_refused_goes_at_once_when_another_owner_is_known_by_then() -> None:
    desk = Desk()
    desk.router.execute(READ, 1)
    desk.moved(NEW)
    desk.sent()
    desk.router.on_answer(OLD, Answer(1, Outcome(Status.MOVED), []))
    assert [to for to, _ in desk.sent()] == [NEW]


@pytest.mark.rule("routing/R-3")
def test_a_request_that_nobody_takes_is_refused_in_time() -> None:
    desk = Desk()
    desk.router.execute(READ, 1)
    for ticket in range(1, 1 + 60 * SECOND // RETRY_NS + 2):
        desk.sent()
        desk.router.on_answer(OLD, Answer(ticket, Outcome(Status.MOVED), []))
        desk.tick()
        if desk.told:
            break
    assert [outcome.status for outcome in desk.told] == [Status.NOT_READY]
    assert desk.out.now_ns <= 60 * SECOND + RETRY_NS


# -- primary_backup/A-1: errors in this member


def serving() -> Desk:
    desk = Desk()
    desk.rows[0] = Assignment(1, (ME,))
    copy = PartitionCopy(0, 0)
    desk.lane.serving[0] = desk.lane.leading[0] = copy
    desk.lane.set(copy, "m", b"k", b"v", 0, 0, 0)
    desk.lane.close_batch(lambda known: None)
    return desk


def broken(*_: object, **__: object) -> None:
    raise ZeroDivisionError("a fault of ours")


READS_OF_ALL = Request(Op.ENTRIES, "m", [0])


@pytest.mark.rule("primary_backup/A-1")
@pytest.mark.parametrize(("request_", "fault"), [(READ, "decide"), (READS_OF_ALL, "decide_whole")])
def test_an_error_in_a_read_is_an_answer(
    monkeypatch: pytest.MonkeyPatch, request_: Request, fault: str
) -> None:
    desk = serving()
    monkeypatch.setattr(primary_copy, fault, broken)
    desk.router.execute(request_, 1)
    assert [outcome.status for outcome in desk.told] == [Status.FAILED]
    assert "a fault of ours" in desk.told[0].detail
    desk.router.on_forward(ASKER, Forward(7, request_))
    ((_, message),) = desk.sent()
    assert isinstance(message, Answer)
    assert message.outcome.status is Status.FAILED
    monkeypatch.undo()
    desk.router.execute(request_, 1)
    assert desk.told[1].status is Status.OK
    assert not desk.router.leftovers["forwarded requests"]


def test_an_error_of_another_member_is_an_answer_to_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    desk = Desk()
    desk.router.execute(READS_OF_ALL, 1)
    ((_, asked),) = desk.sent()
    assert isinstance(asked, Forward)
    desk.router.on_answer(OLD, Answer(asked.ticket, Outcome(Status.FAILED, None, "theirs"), []))
    assert [outcome.detail for outcome in desk.told] == ["theirs"]


@pytest.mark.rule("primary_backup/A-1")
def test_an_error_in_a_write_leaves_the_state_in_doubt(monkeypatch: pytest.MonkeyPatch) -> None:
    desk = serving()
    monkeypatch.setattr(primary_copy, "decide", broken)
    with pytest.raises(ZeroDivisionError):
        desk.router.execute(Request(Op.SET, "m", [0], b"k", b"w"), 1)


def test_an_error_in_a_read_that_has_begun_to_change_something_leaves_it_in_doubt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A read may find that an entry is over, and take it out."""
    desk = serving()

    copy = desk.lane.leading[0]
    assert copy is not None
    copy.maps["m"].state.schedule(b"k", 1, 0, desk.out.now_ns)
    desk.out.now_ns += SECOND
    monkeypatch.setattr(desk.lane, "carry_out", broken)
    with pytest.raises(ZeroDivisionError):
        desk.router.execute(READ, 1)


@pytest.mark.parametrize("value", [5, [1, 2], [None], True, b"x"])
def test_an_answer_that_is_none_is_asked_for_again(value: Any) -> None:
    desk = Desk()
    desk.router.execute(READS_OF_ALL, 1)
    ((_, asked),) = desk.sent()
    assert isinstance(asked, Forward)
    desk.router.on_answer(OLD, Answer(asked.ticket, Outcome(Status.OK, value), []))
    assert desk.told == []
    desk.tick()
    ((_, again),) = desk.sent()
    assert isinstance(again, Forward)
    desk.router.on_answer(OLD, Answer(again.ticket, Outcome(Status.OK, [b"k", b"v"]), []))
    assert [outcome.value for outcome in desk.told] == [[b"k", b"v"]]


def test_operations_on_whole_maps_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred that come at once are not all done in one step: others must be served in between."""
    monkeypatch.setattr(primary_copy, "SLICE_ENTRIES", 50)
    monkeypatch.setattr(gatherings, "SLICE_ENTRIES", 50)
    desk = Desk()
    desk.moved(ME)
    copy = desk.lane.serving[0] = desk.lane.leading[0] = PartitionCopy(0, 0)
    for number in range(30):
        desk.lane.set(copy, "m", b"k%d" % number, b"v", 0, 0, 0)
    desk.lane.close_batch(lambda known: None)
    for _ in range(100):
        desk.router.execute(Request(Op.KEYS, "m", [0]), 1)
    steps = [len(desk.told)]
    while len(desk.told) < 100:
        desk.router.gatherings.take_turns()
        steps.append(len(desk.told) - sum(steps))
    assert max(steps) <= 2
    assert all(outcome.status is Status.OK for outcome in desk.told)
    desk.router.gatherings.take_turns()
    assert not any(desk.router.leftovers.values())


def test_what_is_gathered_for_long_answers_is_bounded_for_all_together() -> None:
    desk = Desk()
    desk.router.gatherings._answer_bytes = 1000
    desk.rows[0] = Assignment(1, (OLD,))
    for _ in range(4):
        desk.router.execute(Request(Op.VALUES, "m", [0]), 1)
    tickets = [message.ticket for _, message in desk.sent() if isinstance(message, Forward)]
    while len(tickets) < 4:
        desk.router.gatherings.take_turns()
        tickets += [message.ticket for _, message in desk.sent() if isinstance(message, Forward)]
    # Each has got most of its answer, and waits for the rest.
    for ticket in tickets:
        desk.router.on_answer(OLD, Answer(ticket, Outcome(Status.OK, [bytes(900)]), [0]))
    assert [outcome.status for outcome in desk.told] == [Status.NOT_READY, Status.NOT_READY]
    assert desk.router.gatherings._listed == 1800


# -- memory that is nearly full


@pytest.mark.rule("routing/R-7")
@pytest.mark.parametrize("short", [ME, OLD, NEW])
def test_where_the_memory_of_a_holder_is_short_nothing_grows_and_reads_and_removes_go_on(
    short: MemberId,
) -> None:
    desk = Desk()
    desk.rows[0] = Assignment(2, (ME, OLD))
    desk.router.refusals.short = {short: Room.LITTLE}
    write, remove = Request(Op.PUT, "m", [0], b"k", b"1"), Request(Op.REMOVE, "m", [0], b"k")
    of_ours = Request(Op.PUT, "__ours", [0], b"k", b"1")
    refused = desk.router.refusals.rejection(write)
    assert (refused is not None) is (short != NEW), "who holds nothing of the partition does not matter"
    assert refused is None or refused.status is Status.NO_MEMORY
    assert [desk.router.refusals.rejection(one) for one in (READ, remove, of_ours)] == [None] * 3
    desk.lane.joining[0] = (NEW, 1)
    assert desk.router.refusals.rejection(write) is not None, "who is being filled will have to keep it"
    desk.lane.joining.clear()
    desk.router.refusals.short = {short: Room.NONE}
    assert (desk.router.refusals.rejection(of_ours) is not None) is (short != NEW)


@pytest.mark.rule("routing/R-10")
def test_what_was_passed_on_for_a_member_that_has_gone_is_forgotten_too() -> None:
    """A member that is in exile would ask for it again when it is back, long after it was done for who asked."""
    desk = Desk()
    desk.around.stored = Assignment(2, (ME,))
    desk.router.on_forward(ASKER, Forward(7, Request(Op.DELETE, "m", [0], b"k")))
    desk.around.stored = None
    desk.router.served(0)
    assert [to for to, _ in desk.sent()] == [OLD], "it was passed on"
    desk.router.askers_gone({ASKER, OLD})
    desk.around.absent |= {OLD}
    desk.router.members_gone({ASKER, OLD})
    assert not any(desk.router.leftovers.values())
    desk.moved(NEW)
    assert desk.sent() == []
