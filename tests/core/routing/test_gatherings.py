"""Operations on whole partitions: who is asked, what comes together, and what is told when something is missing."""

from __future__ import annotations

import pytest
from tests.core.routing.around import Around, Told

from holdfast.config import LimitSettings, MapSettings, PartitionSettings, Settings
from holdfast.core.effects import Send, SetTimer
from holdfast.core.messages import Answer, Forward
from holdfast.core.model.ids import SECOND, MemberId
from holdfast.core.model.operations import EntryEvent, EventKind, Op, Outcome, Request, Status, Value
from holdfast.core.model.partition_table import Assignment
from holdfast.core.outbox import Outbox
from holdfast.core.replication_engine import ReplicationEngineDelegate, ShareDone
from holdfast.core.routing.gatherings import PARTLY, PAUSE_NS, RETRY_NS, timed_out
from holdfast.core.routing.router import Router

ME, ANN, BEN = (MemberId(name) for name in ("me", "ann", "ben"))
MOVED = Outcome(Status.MOVED)


class Scripted:
    """A protocol that does its share when it is told to."""

    def __init__(self, out: Outbox) -> None:
        self.led: set[int] = set()
        self.crowded = self.refusing = self.decides_later = False
        self.running = 0
        self.wanted: list[tuple[Request, ShareDone]] = []
        self.events: list[EntryEvent] = []

    def serve(self, delegate: ReplicationEngineDelegate) -> None:
        pass

    def leads(self, partition: int) -> bool:
        return partition in self.led

    def joining(self, partition: int) -> MemberId | None:
        return None

    def submit_whole(self, request: Request, done: ShareDone) -> int:
        self.wanted.append((request, done))
        return 0

    def publish(self, event: EntryEvent) -> None:
        self.events.append(event)


class Desk(Told):
    """Four partitions: of this member, of Ann twice, and of Ben."""

    def __init__(self, maps: dict[str, MapSettings] | None = None, **limits: int) -> None:
        super().__init__()
        settings = Settings(
            partitions=PartitionSettings(count=4),
            limits=LimitSettings(**limits),  # type: ignore[arg-type]
            maps=maps or {},
        )
        self.rows = [Assignment(1, (owner,)) for owner in (ME, ANN, ANN, BEN)]
        self.around = Around()
        self.protocol = Scripted(self.out)
        self.protocol.led = {0}
        self.router = Router(
            ME,
            settings,
            self.out,
            self.rows,
            self.protocol,  # type: ignore[arg-type]
            held={},
            neighbours=self.around,
            offers=self.around,
        )

    def ask(self, op: Op = Op.SIZE, *partitions: int, value: bytes = b"") -> None:
        self.router.execute(Request(op, "m", list(partitions or range(4)), b"", value), 1)

    def asked(self) -> dict[MemberId, Forward]:
        """Who was sent what since the last time."""
        sent = {one.to: one.message for one in self.taken() if isinstance(one, Send)}
        return {to: message for to, message in sent.items() if isinstance(message, Forward)}

    def says(self, asked: Forward, value: Value | Outcome, missed: list[int] | None = None) -> None:
        outcome = value if isinstance(value, Outcome) else Outcome(Status.OK, value)
        self.router.on_answer(ANN, Answer(asked.ticket, outcome, missed or []))

    def does(self, value: Value, left: tuple[int, ...] = (), missed: tuple[int, ...] = ()) -> None:
        _, done = self.protocol.wanted.pop(0)
        done(Outcome(Status.OK, value), list(left), list(missed))

    def pass_time(self, time_ns: int = RETRY_NS) -> None:
        self.out.now_ns += time_ns
        self.router.on_timer()

    def idle(self) -> bool:
        return not any(self.router.leftovers.values())


def test_every_owner_is_asked_once_and_the_answer_is_all_together() -> None:
    desk = Desk()
    desk.ask(Op.CONTAINS_VALUE, value=b"v")
    asked = desk.asked()
    assert {to: one.request for to, one in asked.items()} == {
        ANN: Request(Op.CONTAINS_VALUE, "m", [1, 2], value=b"v"),
        BEN: Request(Op.CONTAINS_VALUE, "m", [3], value=b"v"),
    }
    assert [request for request, _ in desk.protocol.wanted] == [
        Request(Op.CONTAINS_VALUE, "m", [0], value=b"v")
    ]
    desk.says(asked[ANN], True)
    desk.says(asked[BEN], False)
    assert desk.told == [], "its own share waits for backups"
    desk.does(False)
    assert desk.told == [Outcome(Status.OK, True)]
    assert desk.idle()


def test_what_was_missed_is_asked_for_again_after_a_moment_and_of_who_owns_it_then() -> None:
    desk = Desk()
    desk.ask(Op.SIZE, 1, 2)
    asked = desk.asked()
    desk.says(asked[ANN], MOVED)
    assert desk.asked() == {}
    desk.rows[2] = Assignment(2, (BEN,))
    desk.pass_time()
    asked = desk.asked()
    assert [asked[to].request.partitions for to in (ANN, BEN)] == [[1], [2]]
    desk.says(asked[ANN], 5)
    desk.says(asked[BEN], 7)
    assert desk.told == [Outcome(Status.OK, 12)]
    assert desk.idle()


@pytest.mark.parametrize("own", [True, False])
def test_the_rest_of_a_share_is_asked_for_in_the_next_turn(*, own: bool) -> None:
    desk = Desk()
    if own:
        desk.protocol.led = {1, 2}
    desk.ask(Op.KEYS, 1, 2)
    if own:
        desk.does([b"a"], left=(2,))
    else:
        desk.says(desk.asked()[ANN], [b"a"], [2])
    assert any(isinstance(one, SetTimer) and one.after_ns == PAUSE_NS for one in desk.taken())
    desk.router.gatherings.take_turns()
    if own:
        assert desk.protocol.wanted[0][0].partitions == [2]
        desk.does([b"b"])
    else:
        (again,) = desk.asked().values()
        assert again.request.partitions == [2]
        desk.says(again, [b"b"])
    assert desk.told == [Outcome(Status.OK, [b"a", b"b"])]
    assert desk.idle()


@pytest.mark.parametrize("owner", [None, ME, BEN])
def test_a_partition_that_nobody_serves_is_waited_for(owner: MemberId | None) -> None:
    desk = Desk()
    desk.rows[3] = Assignment(2, (owner,))
    desk.around.absent.add(BEN)
    desk.ask(Op.SIZE, 3)
    assert (desk.asked(), desk.told) == ({}, [])
    desk.protocol.led = {3}
    desk.pass_time()
    desk.does(4)
    assert desk.told == [Outcome(Status.OK, 4)]


@pytest.mark.parametrize(
    ("op", "started", "status"),
    [
        (Op.SIZE, True, Status.NOT_READY),
        (Op.SIZE, False, Status.NOT_READY),
        (Op.CLEAR, True, Status.UNKNOWN),
        (Op.CLEAR, False, Status.NOT_READY),
    ],
)
def test_what_is_not_whole_in_time_is_refused_or_unknown(op: Op, status: Status, *, started: bool) -> None:
    desk = Desk()
    desk.rows[3] = Assignment(2, (None,))
    desk.ask(op, *([0, 3] if started else [3]))
    if started:
        desk.does(1)
    desk.pass_time(60 * SECOND - 1)
    assert desk.told == []
    desk.pass_time(1)
    assert [outcome.status for outcome in desk.told] == [status]
    assert (desk.told[0].detail == PARTLY) is (status is Status.UNKNOWN)
    assert desk.idle()


def test_a_member_that_does_not_answer_in_time_is_not_waited_for() -> None:
    desk = Desk()
    desk.ask(Op.SIZE, 0, 1)
    asked = desk.asked()
    desk.pass_time(60 * SECOND - 1)
    assert desk.told == []
    desk.pass_time(1)
    assert [outcome.status for outcome in desk.told] == [Status.NOT_READY]
    desk.says(asked[ANN], 1)
    desk.does(1)
    assert len(desk.told) == 1, "it is answered once"
    assert desk.idle()


def test_the_shares_of_a_member_that_is_gone_are_asked_for_elsewhere() -> None:
    desk = Desk()
    desk.ask(Op.SIZE, 1, 3)
    asked = desk.asked()
    desk.around.absent.add(ANN)
    desk.router.members_gone({ANN})
    desk.says(asked[ANN], 100)
    desk.says(asked[BEN], 1)
    desk.rows[1] = Assignment(2, (BEN,))
    desk.pass_time()
    desk.says(desk.asked()[BEN], 2)
    assert desk.told == [Outcome(Status.OK, 3)]


@pytest.mark.parametrize(
    ("op", "kind"), [(Op.CLEAR, EventKind.CLEAR_ALL), (Op.EVICT_ALL, EventKind.EVICT_ALL)]
)
def test_who_listens_hears_once_how_many_went(op: Op, kind: EventKind) -> None:
    desk = Desk()
    desk.ask(op, 0, 3)
    desk.does(2)
    assert desk.protocol.events == []
    desk.says(desk.asked()[BEN], 3)
    assert desk.protocol.events == [EntryEvent(kind, "m", ME, count=5)]
    assert desk.told == [Outcome(Status.OK, 5)]
    desk.ask(Op.SIZE, 0)
    desk.does(0)
    assert len(desk.protocol.events) == 1


@pytest.mark.parametrize(("size", "status"), [(1024, Status.OK), (1025, Status.TOO_LARGE)])
def test_an_answer_of_many_shares_has_a_bound(size: int, status: Status) -> None:
    desk = Desk(answer_bytes=1024)
    desk.ask(Op.VALUES, 0, 3)
    asked = desk.asked()
    desk.does([bytes(size - 24)])
    desk.says(asked[BEN], [bytes(24)])
    assert [outcome.status for outcome in desk.told] == [status]
    desk.ask(Op.VALUES, 0)
    desk.does([bytes(1024)])
    assert desk.told[1].status is Status.OK, "nothing of it counts any more"


def test_while_the_backlog_is_full_changes_wait_and_reads_do_not() -> None:
    desk = Desk()
    desk.protocol.refusing = True
    desk.ask(Op.CLEAR, 0)
    assert desk.protocol.wanted == []
    desk.ask(Op.SIZE, 0)
    desk.does(1)
    desk.protocol.refusing = False
    desk.pass_time()
    desk.does(2)
    assert [outcome.value for outcome in desk.told] == [1, 2]


@pytest.mark.parametrize("started", [True, False])
def test_what_must_not_be_taken_any_more_is_refused_unless_some_was_done(*, started: bool) -> None:
    desk = Desk()
    desk.rows[3] = Assignment(2, (None,))
    desk.ask(Op.CLEAR, *([0, 3] if started else [3]))
    if started:
        desk.does(1)
    desk.router.refusals.passive = True
    desk.pass_time()
    assert [one.status for one in desk.told] == [Status.UNKNOWN if started else Status.PASSIVE]


def test_the_share_of_another_member_says_what_it_lacks_in_order() -> None:
    desk = Desk()
    desk.router.on_forward(BEN, Forward(7, Request(Op.SIZE, "m", [0, 1, 2])))
    desk.does(5, left=(2,), missed=(1, 2))
    sent = [(one.to, one.message) for one in desk.taken() if isinstance(one, Send)]
    assert sent == [(BEN, Answer(7, Outcome(Status.OK, 5), [1, 2]))]


def test_what_has_found_nobody_says_where_and_why() -> None:
    one, many = Request(Op.GET, "m", [3]), Request(Op.SIZE, "m", [3, 4])
    assert timed_out(one, 5 * SECOND) == Outcome(
        Status.NOT_READY, None, "partition 3 had no serving primary for 5 s; nothing was changed there"
    )
    assert timed_out(many, 5 * SECOND, "why").detail == "some partition had no serving primary for 5 s; why"


def test_no_more_wait_than_may() -> None:
    desk = Desk(waiting_requests=1)
    for _ in range(2):
        desk.ask(Op.SIZE, 0)
    assert [outcome.status for outcome in desk.told] == [Status.NOT_READY]
    desk.does(1)
    assert desk.told[1] == Outcome(Status.OK, 1)
    desk.ask(Op.SIZE, 0)
    desk.does(2)
    assert desk.told[2] == Outcome(Status.OK, 2), "there is room again"
