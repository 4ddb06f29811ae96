"""What becomes of a request when the member that was asked says nothing: applied once, refused or unknown."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.core.routing.around import Around, Told

from holdfast.config import LimitSettings, MapSettings, PartitionSettings, Settings
from holdfast.config.schema import ReplicationSettings
from holdfast.core.effects import Send
from holdfast.core.journal.log import Log
from holdfast.core.messages import Answer, Forward, Replicate, Replicated
from holdfast.core.model.ids import SECOND, MemberId
from holdfast.core.model.map_moves import FillMap, NoMoves, encode_move
from holdfast.core.model.object_names import part_name
from holdfast.core.model.operations import Op, Outcome, Request, Status, Value
from holdfast.core.model.partition_table import Assignment
from holdfast.core.primary_backup.lane import Lane
from holdfast.core.primary_backup.primary_copy import SLICE_ENTRIES, PrimaryCopy
from holdfast.core.routing.gatherings import LATE_NS, RETRY_NS
from holdfast.core.routing.pending import FULL, Within
from holdfast.core.routing.router import Router
from holdfast.core.store.partition_copy import PartitionCopy
from holdfast.core.store.replica import Replica
from holdfast.core.store.service_state import ServiceState
from holdfast_lab.sim.ablations.switching import ablated

ME, OLD, NEW, ASKER, BEN = (MemberId(name) for name in ("me", "old", "new", "asker", "ben"))
WRITE = Request(Op.PUT, "m", [0], b"k", b"1")
READ = Request(Op.GET, "m", [0], b"k")


class Desk(Told):
    """A router with one partition, which belongs to `OLD`, or, after `serve`, to this member, with Ben as backup."""

    def __init__(
        self,
        *,
        me: MemberId = ME,
        limits: LimitSettings | None = None,
        changes_bytes: int = 0,
        **replication: object,
    ) -> None:
        super().__init__()
        settings = Settings(
            partitions=PartitionSettings(count=1),
            maps={"default": MapSettings(backups=1, changes_bytes=changes_bytes)},
            replication=msgspec.structs.replace(ReplicationSettings(), **replication),
            limits=limits or LimitSettings(),
        )
        self.rows = [Assignment(1, (OLD,))]
        self.lane = Lane(ME, settings, self.out, Log(self.out, on=False))
        self.lane.attach(self.rows)
        self.around = Around()
        self.router = Router(
            me,
            settings,
            self.out,
            self.rows,
            PrimaryCopy(settings, self.out, self.lane, NoMoves()),
            held={},
            neighbours=self.around,
            offers=self.around,
        )

    def sent(self) -> list[tuple[MemberId, object]]:
        self.lane.flush()
        return [(effect.to, effect.message) for effect in self.taken() if isinstance(effect, Send)]

    def ask(self, request: Request) -> None:
        self.router.execute(request, 1)

    def forwarded(self) -> Forward:
        ((_, message),) = self.sent()
        assert isinstance(message, Forward)
        return message

    def leaves(self, member: MemberId) -> None:
        self.around.absent.add(member)
        self.router.members_gone({member})

    def moved(self, *replicas: MemberId) -> None:
        self.rows[0] = Assignment(self.rows[0].version + 1, replicas)
        self.router.served(0)

    def serve(self) -> PartitionCopy:
        copy = PartitionCopy(0, 0)
        copy.term = 1
        self.rows[0] = Assignment(self.rows[0].version + 1, (ME, BEN))
        self.lane.leading[0] = copy
        self.lane.retarget(copy)
        return copy

    def acknowledge(self) -> None:
        for to, message in self.sent():
            if isinstance(message, Replicate):
                self.lane.on_replicated(to, Replicated(message.batches, [0]))

    def pass_time(self, time_ns: int) -> None:
        self.out.now_ns += time_ns
        self.router.on_timer()


# -- the member that asks


def test_a_write_that_is_sent_on_carries_an_id_and_a_read_does_not() -> None:
    desk = Desk()
    ids = []
    for _ in range(2):
        desk.ask(WRITE)
        ids.append(desk.forwarded().request.id)
    assert ids[0] and ids[1] and ids[0] != ids[1]
    desk.ask(READ)
    assert desk.forwarded().request == READ
    own_id = msgspec.structs.replace(WRITE, id=b"the caller's own")
    desk.ask(own_id)
    assert desk.forwarded().request == own_id


def test_two_members_never_give_the_same_id() -> None:
    first, second = Desk().router, Desk(me=NEW).router
    assert len({first.new_id(), first.new_id(), second.new_id(), second.new_id()}) == 4


@pytest.mark.rule("routing/R-2")
def test_when_the_member_that_was_asked_leaves_the_next_primary_is_asked_the_same() -> None:
    desk = Desk()
    desk.ask(WRITE)
    first = desk.forwarded()
    desk.leaves(OLD)
    assert desk.told == []
    desk.moved(NEW)
    again = desk.forwarded()
    assert again.request == first.request
    desk.router.on_answer(NEW, Answer(again.ticket, Outcome(Status.OK, b"0"), []))
    assert desk.told == [Outcome(Status.OK, b"0")]


@pytest.mark.rule("routing/R-2")
def test_who_does_not_want_that_is_told_that_it_is_unknown() -> None:
    for changed in ({"unknown_writes": "fail"}, {"request_ids": 0}):
        desk = Desk(**changed)
        desk.ask(WRITE)
        assert desk.forwarded().request.id == b""
        desk.leaves(OLD)
        assert [outcome.status for outcome in desk.told] == [Status.UNKNOWN]
        assert desk.told[0].detail == "member old left before it answered"


@pytest.mark.rule("routing/R-4")
def test_what_may_have_been_applied_is_not_refused_later() -> None:
    """A refusal says: certainly not applied. Of the second try that may be true, of the first it is not known."""
    desk = Desk()
    desk.ask(WRITE)
    desk.sent()
    desk.leaves(OLD)
    desk.pass_time(61 * SECOND)
    assert [outcome.status for outcome in desk.told] == [Status.UNKNOWN]
    assert "left before it answered" in desk.told[0].detail
    desk = Desk()
    desk.ask(WRITE)
    desk.sent()
    desk.router.refusals.passive = True
    desk.leaves(OLD)
    assert [outcome.status for outcome in desk.told] == [Status.UNKNOWN]


def test_a_read_is_sent_again_and_never_unknown() -> None:
    desk = Desk(unknown_writes="fail")
    desk.ask(READ)
    desk.sent()
    desk.leaves(OLD)
    assert desk.told == []
    desk.pass_time(61 * SECOND)
    assert [outcome.status for outcome in desk.told] == [Status.NOT_READY]


@pytest.mark.rule("routing/R-3")
@pytest.mark.parametrize(("request_", "status"), [(WRITE, Status.UNKNOWN), (READ, Status.NOT_READY)])
def test_who_never_answers_is_waited_for_as_long_as_the_call_timeout(
    request_: Request, status: Status
) -> None:
    desk = Desk()
    desk.ask(request_)
    late = desk.forwarded()
    desk.pass_time(59 * SECOND)
    assert desk.told == []
    desk.pass_time(2 * SECOND)
    assert [outcome.status for outcome in desk.told] == [status]
    assert "did not answer for 60 s" in desk.told[0].detail
    desk.router.on_answer(OLD, Answer(late.ticket, Outcome(Status.OK), []))
    assert len(desk.told) == 1
    assert sum(desk.router.leftovers.values()) == 0


def test_it_is_looked_often_for_what_is_parked_and_seldom_for_what_is_sent() -> None:
    desk = Desk()
    desk.ask(WRITE)
    timers = [(effect.name, effect.after_ns) for effect in desk.out.take() if hasattr(effect, "after_ns")]
    assert timers == [("route", LATE_NS)]
    desk.leaves(OLD)
    timers = [(effect.name, effect.after_ns) for effect in desk.out.take() if hasattr(effect, "after_ns")]
    assert timers == [("route", RETRY_NS)]


@pytest.mark.rule("routing/R-6")
def test_no_more_requests_wait_than_the_limits_allow() -> None:
    desk = Desk(limits=LimitSettings(waiting_requests=10, waiting_bytes=65_536))
    for _ in range(12):
        desk.ask(WRITE)
    assert [outcome.status for outcome in desk.told] == [Status.NOT_READY] * 2
    assert "limits.waiting_requests" in desk.told[0].detail
    for _, forward in desk.sent():
        assert isinstance(forward, Forward)
        desk.router.on_answer(OLD, Answer(forward.ticket, Outcome(Status.OK), []))
    desk.told.clear()
    for _ in range(12):
        desk.ask(msgspec.structs.replace(WRITE, value=bytes(20_000)))
    assert len(desk.told) == 9
    desk.leaves(OLD)
    desk.pass_time(61 * SECOND)
    assert len(desk.told) == 12
    desk.told.clear()
    desk.ask(Request(Op.SIZE, "m", [0]))
    for _ in range(9):
        desk.ask(READ)
    assert desk.told == []
    desk.ask(READ)
    desk.ask(Request(Op.SIZE, "m", [0]))
    assert [outcome.status for outcome in desk.told] == [Status.NOT_READY] * 2


@pytest.mark.rule("routing/R-6")
def test_a_move_goes_on_while_requests_that_wait_for_it_take_all_the_room() -> None:
    """Seed 52010 with zones: clients' requests on the paused map waited, and the last fills were rejected."""
    desk = Desk(limits=LimitSettings(waiting_requests=10, waiting_bytes=65_536))
    for _ in range(10):
        desk.ask(WRITE)
    desk.sent()
    fill = Request(Op.FILL, "m", [0], value=encode_move(FillMap(1, 1, 0, [b"k"], [bytes(100_000)], above=1)))
    machine = Outcomes()
    desk.router.execute(fill, Within(machine, 7))
    [(_, forward)] = desk.sent()
    assert isinstance(forward, Forward)
    assert forward.request.op is Op.FILL
    desk.router.on_answer(OLD, Answer(forward.ticket, Outcome(Status.OK, b""), []))
    assert machine.heard == [(7, Outcome(Status.OK, b""))]
    desk.router.execute(msgspec.structs.replace(fill), 99)
    assert desk.sent() == [], "a request of a session is counted, whatever its operation"
    desk.router.execute(WRITE, Within(machine, 8))
    assert desk.sent() == [], "another machine's request is counted, such as a step of a transaction"
    assert machine.heard[1:] == [(8, FULL)]


class Outcomes:
    def __init__(self) -> None:
        self.heard: list[tuple[int, Outcome]] = []

    def answered(self, ticket: int, outcome: Outcome) -> None:
        self.heard.append((ticket, outcome))


# -- the primary


def test_a_request_that_comes_again_is_applied_once() -> None:
    desk = Desk()
    copy = desk.serve()
    request = msgspec.structs.replace(WRITE, id=b"one")
    desk.ask(request)
    desk.ask(request)
    assert desk.told == [], "the second waits for the backups of the first"
    desk.acknowledge()
    assert desk.told == [Outcome(Status.OK, None)] * 2
    assert copy.maps["m"].counter == 1
    desk.ask(request)
    assert desk.told[2:] == [Outcome(Status.OK, None)]
    desk.ask(msgspec.structs.replace(WRITE, id=b"two"))
    desk.acknowledge()
    assert desk.told[3:] == [Outcome(Status.OK, b"1")]
    assert copy.maps["m"].counter == 2


@ablated("apply-once")
def test_without_the_rule_it_is_applied_twice() -> None:
    desk = Desk()
    copy = desk.serve()
    for _ in range(2):
        desk.ask(msgspec.structs.replace(WRITE, id=b"one"))
        desk.acknowledge()
    assert copy.maps["m"].counter == 2
    assert desk.told == [Outcome(Status.OK, None), Outcome(Status.OK, b"1")]


def test_the_memory_ends() -> None:
    desk = Desk()
    copy = desk.serve()
    copy.requests.most = 2
    for name in (b"one", b"two", b"three", b"one"):
        desk.ask(msgspec.structs.replace(WRITE, id=name))
        desk.acknowledge()
    assert copy.maps["m"].counter == 4


def test_what_a_backup_has_not_acknowledged_in_time_is_unknown_and_asked_again_it_is_not_done_before_it_has() -> (
    None
):
    desk = Desk()
    desk.serve()
    request = msgspec.structs.replace(WRITE, id=b"one")
    desk.ask(request)
    held_back = desk.sent()
    desk.out.now_ns += 6 * SECOND
    desk.lane.on_timer()
    assert [outcome.status for outcome in desk.told] == [Status.UNKNOWN]
    assert "backup ben" in desk.told[0].detail
    desk.ask(request)
    assert len(desk.told) == 1
    for to, message in held_back:
        assert isinstance(message, Replicate)
        desk.lane.on_replicated(to, Replicated(message.batches, [0]))
    assert desk.told[1:] == [Outcome(Status.OK, None)]


CASES: list[tuple[Request, Value, Value]] = [
    (Request(Op.PUT, "m", [0], b"k", b"2"), b"1", b"2"),
    (Request(Op.SET, "m", [0], b"k", b"2"), None, None),
    (Request(Op.PUT_IF_ABSENT, "m", [0], b"new", b"2"), None, b"2"),
    (Request(Op.PUT_IF_ABSENT, "m", [0], b"k", b"2"), b"1", b"1"),
    (Request(Op.REPLACE_IF_SAME, "m", [0], b"k", b"2", b"1"), True, False),
    (Request(Op.REMOVE, "m", [0], b"k"), b"1", None),
    (Request(Op.DELETE, "m", [0], b"k"), True, False),
    (Request(Op.PUT_ALL, "m", [0], items=[b"a", b"1", b"b", b"2"]), None, None),
    (Request(Op.SET_TTL, "m", [0], b"k", ttl_ms=60_000), True, True),
    (Request(Op.CALL, "counter", [0], value=b"+"), b"1", b"2"),
]


class Counting:
    """A service's share that counts its updates."""

    def __init__(self) -> None:
        self.count = 0

    def apply(self, update: bytes) -> bytes:
        self.count += 1
        return b"%d" % self.count

    def ask(self, question: bytes) -> bytes:
        return b"%d" % self.count

    def supply(self) -> list[bytes]:
        return []

    def receive(self, piece: bytes) -> None:
        raise AssertionError(piece)


@pytest.mark.parametrize(("request_", "first", "second"), CASES, ids=lambda case: getattr(case, "op", None))
@pytest.mark.parametrize("promoted", [False, True])
def test_each_operation_answers_the_second_time_what_it_answered_the_first(
    request_: Request, first: Value, second: Value, promoted: bool
) -> None:
    """Also on the backup, when it is the primary: what has changed anything, it knows by the records."""
    desk = Desk()
    copy = desk.serve()
    copy.services[part_name("counter")] = Replica(part_name("counter"), ServiceState(Counting()))
    desk.lane.set(copy, "m", b"k", b"1", 0, 0, 0)
    desk.lane.retarget(copy)
    request = msgspec.structs.replace(request_, id=b"one")
    desk.ask(request)
    backup = PartitionCopy(0, 0)
    backup.services[part_name("counter")] = Replica(part_name("counter"), ServiceState(Counting()))
    for to, message in desk.sent():
        assert isinstance(message, Replicate)
        for record in message.sections[0].all_records():
            held = backup.find(record) or backup.open(record.map)
            held.apply(record, 0)
            backup.requests.note(record.request)
        desk.lane.on_replicated(to, Replicated(message.batches, [0]))
    if promoted:
        backup.term = 2
        desk.lane.leading[0] = backup
        desk.lane.retarget(backup)
    changed = any(held.counter for held in backup)
    desk.ask(request)
    desk.acknowledge()
    assert [outcome.value for outcome in desk.told] == [first, first]
    assert changed
    forgetful = Desk()
    fresh = forgetful.serve()
    fresh.services[part_name("counter")] = Replica(part_name("counter"), ServiceState(Counting()))
    forgetful.lane.set(fresh, "m", b"k", b"1", 0, 0, 0)
    forgetful.lane.retarget(fresh)
    with ablated("apply-once"):
        for _ in range(2):
            forgetful.ask(request)
            forgetful.acknowledge()
    assert [outcome.value for outcome in forgetful.told] == [first, second]


@pytest.mark.rule("routing/R-10")
def test_what_was_asked_in_an_earlier_life_is_not_done_in_a_later_one() -> None:
    """Whoever has asked asks again when one of the two leaves, if only for a moment. The second time nothing was
    changed, and of that no id is kept: so the first one, if it still waited here, would be done after the answer.
    """
    desk = Desk()
    desk.rows[0] = Assignment(2, (ME, BEN))
    add = Request(Op.PUT_IF_ABSENT, "m", [0], b"k", b"mine", id=b"one")
    desk.router.on_forward(ASKER, Forward(1, add))
    desk.router.on_forward(BEN, Forward(2, Request(Op.SET, "m", [0], b"k", b"of ben", id=b"two")))
    assert desk.sent() == [], "both wait until this member serves the partition"
    desk.router.askers_gone({ASKER})
    copy = desk.serve()
    desk.router.served(0)
    desk.acknowledge()
    desk.router.on_forward(ASKER, Forward(3, add))
    desk.router.on_forward(BEN, Forward(4, Request(Op.REMOVE, "m", [0], b"k", id=b"three")))
    desk.acknowledge()
    answers = [message for _, message in desk.sent() if isinstance(message, Answer)]
    assert [answer.outcome.value for answer in answers if answer.ticket == 3] == [b"of ben"]
    assert all(answer.ticket != 1 for answer in answers)
    assert b"k" not in copy.maps["m"].state.entries, "nobody has put it back"
    assert sum(desk.router.leftovers.values()) == 0


def test_nor_is_a_share_of_a_whole_map() -> None:
    desk = Desk()
    copy = desk.serve()
    desk.router.on_forward(ASKER, Forward(1, Request(Op.SET, "m", [0], b"k", b"v", id=b"one")))
    desk.router.gatherings._spent = SLICE_ENTRIES  # Others have had all of this turn.
    desk.router.on_forward(ASKER, Forward(2, Request(Op.CLEAR, "m", [0])))
    desk.router.askers_gone({ASKER})
    desk.router.gatherings.take_turns()
    assert b"k" in copy.maps["m"].state.entries
    assert sum(desk.router.leftovers.values()) == 0


# -- a primary that keeps too much for its backups


def test_a_primary_that_keeps_too_much_refuses_writes_and_answers_reads() -> None:
    desk = Desk(limits=LimitSettings(backlog_bytes=65_536))
    desk.serve()
    big = msgspec.structs.replace(WRITE, value=bytes(40_000))
    for _ in range(4):
        desk.ask(big)
    assert desk.lane.backlog.refusing
    assert desk.told == []
    desk.ask(big)
    desk.ask(READ)
    desk.ask(Request(Op.CLEAR, "m", [0]))
    assert [outcome.status for outcome in desk.told] == [Status.NOT_READY, Status.OK]
    assert "limits.backlog_bytes" in desk.told[0].detail
    desk.acknowledge()
    assert not desk.lane.backlog.refusing
    desk.pass_time(RETRY_NS)
    desk.acknowledge()
    assert [outcome.status for outcome in desk.told[2:]] == [Status.OK] * 5, "the clearing has waited"


def test_a_write_of_another_member_is_to_come_later() -> None:
    desk = Desk(limits=LimitSettings(backlog_bytes=65_536))
    desk.serve()
    for _ in range(2):
        desk.ask(msgspec.structs.replace(WRITE, value=bytes(40_000)))
    assert desk.lane.backlog.crowded
    assert not desk.lane.backlog.refusing
    desk.sent()
    desk.router.on_forward(ASKER, Forward(7, msgspec.structs.replace(WRITE, id=b"one")))
    desk.router.on_forward(ASKER, Forward(8, Request(Op.CLEAR, "m", [0])))
    answers = [message for _, message in desk.sent() if isinstance(message, Answer)]
    assert [(answer.ticket, answer.outcome.status, answer.missed) for answer in answers] == [
        (7, Status.NOT_READY, []),
        (8, Status.OK, [0]),
    ]


def test_and_that_member_asks_again_until_its_time_is_over() -> None:
    desk = Desk()
    desk.ask(WRITE)
    crowded = Outcome(Status.NOT_READY, None, "too much for its backups")
    tries = 0
    while not desk.told:
        for _, message in desk.sent():
            assert isinstance(message, Forward)
            tries += 1
            desk.router.on_answer(OLD, Answer(message.ticket, crowded, []))
        desk.pass_time(SECOND)
    assert tries == 60
    assert desk.told[0].status is Status.NOT_READY
    assert "too much for its backups" in desk.told[0].detail


# -- whatever comes


@pytest.mark.rule("routing/R-1")
@given(
    st.sampled_from([WRITE, READ]),
    st.lists(st.sampled_from(["answered", "moved", "refused", "left", "owned", "late"]), max_size=8),
)
def test_whatever_becomes_of_it_a_request_is_answered_once(request: Request, story: list[str]) -> None:
    desk = Desk()
    asked: list[Forward] = []

    def listen() -> None:
        for to, message in desk.sent():
            if isinstance(message, Forward):
                asked.append(message)
            elif isinstance(message, Replicate):
                desk.lane.on_replicated(to, Replicated(message.batches, [0]))

    desk.ask(request)
    for event in story:
        listen()
        owner = desk.rows[0].owner or OLD
        match event:
            case "answered" | "refused" if asked:
                status = Status.OK if event == "answered" else Status.MOVED
                desk.router.on_answer(owner, Answer(asked[-1].ticket, Outcome(status), []))
            case "moved":
                desk.moved(NEW if owner == OLD else OLD)
            case "left":
                desk.leaves(owner)
            case "owned":
                if 0 not in desk.lane.leading:
                    desk.serve()
                    desk.router.served(0)
            case "late" if asked:
                desk.router.on_answer(OLD, Answer(asked[0].ticket, Outcome(Status.OK), []))
            case _:
                pass
        assert len(desk.told) <= 1
    listen()
    desk.pass_time(100 * SECOND)
    listen()
    desk.pass_time(100 * SECOND)
    assert len(desk.told) == 1, (story, desk.told)
    assert desk.router.leftovers == dict.fromkeys(desk.router.leftovers, 0)
