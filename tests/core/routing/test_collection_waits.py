"""Requests that wait for a collection: in which order they are answered, what wakes them, and when they end."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest
from tests.core.routing.around import Around, Told

from holdfast.config import LimitSettings, MapSettings, PartitionSettings, Settings
from holdfast.core.collections import collection_steps, ordered_steps, queue_steps
from holdfast.core.effects import Send
from holdfast.core.journal.log import Log
from holdfast.core.messages import Answer, Forward, Message, Replicate, Replicated, Withdrawals
from holdfast.core.model.collections import CollectionKind, CollectionStep, StepKind, decode_step, encode_step
from holdfast.core.model.decisions import LockChanges
from holdfast.core.model.ids import MILLISECOND, MemberId
from holdfast.core.model.map_moves import NoMoves
from holdfast.core.model.operations import EntryEvent, EventKind, Op, Outcome, Request, Status, Value
from holdfast.core.model.partition_table import Assignment
from holdfast.core.model.records import Change
from holdfast.core.model.transactions import KeyLock, lock_key
from holdfast.core.primary_backup import clearings
from holdfast.core.primary_backup.lane import Lane
from holdfast.core.primary_backup.primary_copy import PrimaryCopy
from holdfast.core.routing import collection_waits
from holdfast.core.routing.pending import FULL
from holdfast.core.routing.request_refusals import PASSIVE
from holdfast.core.routing.router import WITHDRAWN, Router
from holdfast.core.store.partition_copy import PartitionCopy
from holdfast.core.store.request_ids import KEPT_BYTES

ME, BEN, OTHER = MemberId("me"), MemberId("ben"), MemberId("other")
QUEUE = CollectionKind.QUEUE
LONG_MS = 100_000


def request(kind: StepKind, *items: bytes, name: str = "q", id: bytes = b"", **step: int) -> Request:  # noqa: A002
    value = encode_step(CollectionStep(kind, **step))
    return Request(kind.op, QUEUE.map_of(name), [0], value=value, items=list(items), id=id)


def poll(wait_ms: int = LONG_MS, **more: str) -> Request:
    return request(StepKind.POLL, wait_ms=wait_ms, **more)  # type: ignore[arg-type]


def offer(item: bytes, **step: int) -> Request:
    return request(StepKind.ADD, item, **step)


class Stage(Told):
    """A router on a member that is the primary of the only partition, with Ben as its backup."""

    def __init__(self, *, limits: LimitSettings | None = None, backups: int = 0, leads: bool = True) -> None:
        super().__init__()
        settings = Settings(
            partitions=PartitionSettings(count=1),
            maps={"default": MapSettings(backups=backups)},
            limits=limits or LimitSettings(),
        )
        self.rows = [Assignment(1, (ME, BEN))]
        self.lane = Lane(ME, settings, self.out, Log(self.out, on=False))
        self.lane.attach(self.rows)
        self.engine = PrimaryCopy(settings, self.out, self.lane, NoMoves())
        self.around = Around()
        self.router = Router(
            ME,
            settings,
            self.out,
            self.rows,
            self.engine,
            held={},
            neighbours=self.around,
            offers=self.around,
        )
        self.asked = 0
        if leads:
            self.lead()
        else:
            self.rows[0] = Assignment(1, (OTHER,))

    def lead(self, copy: PartitionCopy | None = None) -> PartitionCopy:
        copy = copy or PartitionCopy(0, 0)
        copy.term = 1
        self.rows[0] = Assignment(self.rows[0].version + 1, (ME, BEN))
        self.lane.leading[0] = copy
        self.lane.retarget(copy)
        return copy

    def ask(self, some: Request) -> int:
        """Returns the token."""
        self.asked += 1
        self.router.execute(some, self.asked)
        self.end_step()
        return self.asked

    def end_step(self) -> None:
        if self.engine.must_wake:
            self.engine.wake()

    def sent(self) -> list[tuple[MemberId, Message]]:
        self.lane.flush()
        return [(effect.to, effect.message) for effect in self.taken() if isinstance(effect, Send)]

    def pass_ms(self, ms: int) -> None:
        self.out.now_ns += ms * MILLISECOND
        self.router.on_timer()
        self.end_step()

    @property
    def values(self) -> list[Value]:
        return [one.value if one.status is Status.OK else one.status for one in self.told]


@pytest.fixture
def decisions(monkeypatch: pytest.MonkeyPatch) -> list[StepKind]:
    """Each step that is decided."""
    found: list[StepKind] = []

    def watched(
        state: object,
        some: Request,
        *times: int,
        decide: Callable[..., object] = collection_steps.decide_step,
        behind: bool,
    ) -> object:
        found.append(decode_step(some.value).kind)
        return decide(state, some, *times, behind=behind)

    monkeypatch.setattr("holdfast.core.primary_backup.primary_copy.decide_step", watched)
    return found


@pytest.mark.rule("routing/R-20")
def test_polls_are_answered_in_the_order_of_arrival() -> None:
    stage = Stage()
    for _ in range(3):
        stage.ask(poll())
    assert stage.values == []
    stage.ask(offer(b"a"))
    stage.ask(offer(b"b"))
    assert stage.values == [True, b"a", True, b"b"]
    stage.ask(offer(b"c"))
    assert stage.values[-1] == b"c"


@pytest.mark.rule("routing/R-20")
def test_a_change_decides_as_many_requests_as_it_serves_and_one_more(decisions: list[StepKind]) -> None:
    stage = Stage()
    for _ in range(1000):
        stage.ask(poll())
    other = [stage.ask(poll(name="other")) for _ in range(3)]
    decisions.clear()
    stage.ask(request(StepKind.ADD, b"a", b"b"))
    assert stage.values == [True, b"a", b"b"]
    # Two succeed. The third waits; it is decided again because the polls themselves have changed the queue.
    assert decisions.count(StepKind.POLL) <= 2 + 2
    decisions.clear()
    stage.ask(Request(Op.SET, "plain", [0], b"k", b"v"))
    assert decisions == []
    assert stage.router.leftovers["requests that wait for a change"] == 998 + len(other)


@pytest.mark.rule("routing/R-20")
def test_the_next_ones_are_decided_before_backups_have_acknowledged_the_first() -> None:
    stage = Stage(backups=1)
    for _ in range(3):
        stage.ask(poll())
    stage.ask(request(StepKind.ADD, b"a", b"b"))
    assert stage.router.leftovers["requests that wait for a change"] == 1
    assert stage.told == []


@pytest.mark.rule("routing/R-20")
def test_a_request_that_still_waits_keeps_its_place() -> None:
    stage = Stage()
    first = stage.ask(poll())
    stage.ask(poll())
    for _ in range(3):
        # The first is decided again, and has to wait again.
        stage.engine._changed_collections.note(0, QUEUE.map_of("q"))
        stage.end_step()
    stage.ask(offer(b"a"))
    stage.ask(offer(b"b"))
    assert stage.values == [True, b"a", True, b"b"]
    assert first == 1


@pytest.mark.rule("routing/R-20")
def test_offers_wait_for_room_and_polls_make_it() -> None:
    stage = Stage()
    full = {"max_size": 1, "wait_ms": LONG_MS}
    for item in (b"a", b"b", b"c"):
        stage.ask(offer(item, **full))
    assert stage.values == [True]
    stage.ask(poll())
    assert stage.values == [True, b"a", True]
    stage.ask(poll())
    assert stage.values[3:] == [b"b", True]
    stage.ask(request(StepKind.CLEAR))
    stage.ask(offer(b"d", max_size=1))
    assert stage.values[5:] == [None, True]


@pytest.mark.rule("routing/R-23")
def test_a_change_of_a_locked_queue_decides_one_request() -> None:
    stage = Stage(leads=False)
    copy = stage.lead()
    for _ in range(20):
        stage.ask(poll())
    copy.locks.change(LockChanges([(lock_key(QUEUE.map_of("q"), b""), KeyLock(b"t" * 16, OTHER))]))
    stage.engine._changed_collections.note(0, QUEUE.map_of("q"))
    stage.end_step()
    waits = [parked.number for parked in stage.router._collections if parked.wait and parked.wait.holder]
    assert waits == [1], "the others have not been looked at"
    copy.locks.change(LockChanges(released=b"t" * 16))
    stage.ask(request(StepKind.ADD, b"a", b"b"))
    assert stage.values == [True, b"a", b"b"]


@pytest.mark.rule("routing/R-24")
@pytest.mark.parametrize("kind", [StepKind.POLL, StepKind.AWAIT_ITEM])
def test_so_many_requests_are_woken_in_one_step(monkeypatch: pytest.MonkeyPatch, kind: StepKind) -> None:
    """The polls change the queue, which wakes the next ones."""
    monkeypatch.setattr(collection_waits, "WOKEN_ITEMS", 4 * collection_waits.REQUEST_ITEMS)
    stage = Stage()
    for _ in range(10):
        stage.ask(request(kind, wait_ms=LONG_MS))
    items = [b"%d" % number for number in range(10)]
    stage.ask(request(StepKind.ADD, *items))
    assert len(stage.values) == 1 + 4
    stage.pass_ms(1)
    assert len(stage.values) == 1 + 8
    stage.pass_ms(1)
    assert stage.values[1:] == (items if kind is StepKind.POLL else [True] * 10)
    assert stage.router.leftovers["requests that wait for a change"] == 0
    stage.ask(request(StepKind.CLEAR))
    stage.ask(poll())
    stage.ask(offer(b"z"))
    assert stage.values[11:] == [None, True, b"z"]


@pytest.mark.rule("collections/C-2")
def test_a_queue_is_cleared_by_one_record_unless_items_have_listeners() -> None:
    stage = Stage(backups=1)
    stage.ask(offer(b"a"))
    stage.ask(offer(b"b"))
    stage.sent()
    stage.ask(request(StepKind.CLEAR))
    sections = [
        part for _, message in stage.sent() if isinstance(message, Replicate) for part in message.sections
    ]
    assert [record.change for part in sections for record in part.all_records()] == [Change.CLEAR]


@pytest.mark.rule("primary_backup/L-1")
def test_listeners_get_each_item_of_a_cleared_queue_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clearings, "SLICE_BYTES", 1)
    stage = Stage()
    stage.lane.listening[QUEUE.map_of("q")] = 1
    for item in (b"a", b"b"):
        stage.ask(offer(item, max_size=2))
    stage.ask(offer(b"c", max_size=2, wait_ms=LONG_MS))
    heard: list[EntryEvent] = []
    monkeypatch.setattr(stage.lane, "heard", heard.append)
    stage.ask(request(StepKind.CLEAR))
    assert stage.values == [True, True, True], "room is there after the first slice"
    stage.engine.on_timer()
    assert stage.values == [True, True, True, None]
    assert [event.old for event in heard if event.kind is EventKind.REMOVED] == [b"a", b"b"]
    assert len(stage.lane.leading[0].maps[QUEUE.map_of("q")].state.entries) == 1  # type: ignore[union-attr]


@pytest.mark.rule("primary_backup/L-3")
def test_a_clearing_that_cannot_end_is_answered_as_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clearings, "SLICE_BYTES", 1)
    stage = Stage()
    stage.lane.listening[QUEUE.map_of("q")] = 1
    for item in (b"a", b"b"):
        stage.ask(offer(item))
    stage.ask(request(StepKind.CLEAR))
    stage.lane.leading[0] = None
    stage.engine.on_timer()
    assert stage.values[2:] == [Status.UNKNOWN]


@pytest.mark.rule("collections/C-2")
def test_a_drain_of_too_many_items_takes_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_steps, "REMOVED_MAX", 2)
    stage = Stage()
    for item in (b"a", b"b", b"c"):
        stage.ask(offer(item))
    stage.ask(request(StepKind.DRAIN))
    assert stage.told[-1].status is Status.TOO_LARGE
    assert "this one would take 3: drain fewer" in stage.told[-1].detail
    stage.ask(request(StepKind.DRAIN, end=2))
    assert stage.values[-1] == [b"a", b"b"]
    monkeypatch.setattr(ordered_steps, "LOOKED_MAX", 0)
    stage.ask(request(StepKind.ITEMS))
    assert stage.values[-1] is Status.TOO_LARGE


def test_destroying_a_full_queue_makes_room() -> None:
    stage = Stage()
    for item in (b"a", b"b"):
        stage.ask(offer(item, max_size=1, wait_ms=LONG_MS))
    stage.ask(Request(Op.DESTROY, QUEUE.map_of("q"), [0]))
    assert [value is True for value in stage.values] == [True, False, True]


@pytest.mark.rule("routing/R-11")
def test_a_wait_ends_at_its_time_and_no_later_than_half_the_call_timeout() -> None:
    stage = Stage(limits=LimitSettings(call_timeout_ms=10_000))
    stage.ask(poll(3000))
    stage.ask(poll())
    stage.pass_ms(2999)
    assert stage.values == []
    stage.pass_ms(1)
    assert stage.values == [None]
    stage.pass_ms(2000)
    assert stage.values == [None, None]
    assert not any(stage.router.leftovers.values())
    stage.ask(offer(b"a"))
    assert stage.values == [None, None, True], "nothing waits for it"


@pytest.mark.rule("routing/R-21")
def test_a_client_that_has_gone_takes_nothing() -> None:
    stage = Stage()
    gone, stays = stage.ask(poll()), stage.ask(poll())
    stage.router.withdraw(gone)
    stage.router.withdraw(99)
    assert stage.values == [None]
    stage.ask(offer(b"a"))
    assert stage.values == [None, True, b"a"]
    stage.router.withdraw(stays)
    assert not any(stage.router.leftovers.values())


@pytest.mark.rule("routing/R-21")
def test_a_forwarded_request_is_withdrawn_where_it_waits() -> None:
    stage = Stage(leads=False)
    gone = stage.ask(poll())
    [(to, forward)] = stage.sent()
    assert isinstance(forward, Forward)
    stage.router.withdraw(gone)
    assert stage.sent() == [(OTHER, Withdrawals([forward.ticket]))]
    stage.router.on_answer(to, Answer(forward.ticket, Outcome(Status.OK), []))
    stage.router.withdraw(gone)
    assert stage.sent() == []
    assert stage.values == [None]

    primary = Stage()
    primary.router.on_forward(OTHER, forward)
    primary.router.on_withdrawals(OTHER, Withdrawals([forward.ticket + 1]))
    assert primary.sent() == []
    primary.router.on_withdrawals(OTHER, Withdrawals([forward.ticket]))
    assert primary.sent() == [(OTHER, Answer(forward.ticket, Outcome(Status.OK), []))]
    primary.ask(offer(b"a"))
    primary.ask(request(StepKind.SIZE))
    assert primary.values == [True, 1]


@pytest.mark.rule("routing/R-10")
def test_requests_of_a_member_that_has_left_take_nothing() -> None:
    stage = Stage()
    for ticket in range(3):
        stage.router.on_forward(OTHER, Forward(ticket, poll()))
    stage.router.askers_gone({OTHER})
    stage.ask(offer(b"a"))
    assert (stage.sent(), stage.values) == ([], [True])
    assert not any(stage.router.leftovers.values())


@pytest.mark.rule("routing/R-11")
def test_waiting_requests_go_where_the_partition_goes_for_the_rest_of_their_time() -> None:
    stage = Stage(limits=LimitSettings(call_timeout_ms=60_000))
    stage.ask(poll(20_000))
    stage.ask(poll(25_000))
    stage.pass_ms(5000)
    stage.lane.leading[0] = None
    stage.rows[0] = Assignment(9, (OTHER,))
    stage.router.served(0)
    (_, first), (_, second) = stage.sent()
    assert isinstance(first, Forward)
    assert isinstance(second, Forward)
    left = [decode_step(one.request.value).wait_ms for one in (first, second)]
    assert left == [15_000, 20_000]
    assert first.request.id
    assert first.request.id != second.request.id


def test_waiting_requests_are_bounded() -> None:
    stage = Stage(limits=LimitSettings(waiting_requests=4))
    for _ in range(3):
        stage.ask(poll())
    assert stage.told == [FULL]
    assert LimitSettings().waiting_requests >= 2 * 10_000


def test_a_passive_cluster_and_one_without_memory_reject_steps() -> None:
    stage = Stage()
    stage.ask(poll())
    stage.router.refusals.passive = True
    stage.router.restrict()
    stage.ask(offer(b"a"))
    stage.ask(request(StepKind.SIZE))
    assert stage.told == [PASSIVE, PASSIVE, Outcome(Status.OK, 0)]


def test_an_item_that_is_too_large_is_rejected() -> None:
    stage = Stage(limits=LimitSettings(value_bytes=100, key_bytes=50))
    stage.ask(offer(bytes(101)))
    stage.ask(offer(bytes(100)))
    add = encode_step(CollectionStep(StepKind.ADD))
    stage.ask(
        Request(Op.ADD_TO_COLLECTION, CollectionKind.SET.map_of("s"), [0], value=add, items=[bytes(51)])
    )
    assert stage.values == [Status.TOO_LARGE, True, Status.TOO_LARGE]
    assert "limits.value_bytes is 100" in stage.told[0].detail
    assert "limits.key_bytes is 50" in stage.told[2].detail


def test_more_items_than_fit_into_an_answer_are_not_taken() -> None:
    stage = Stage(limits=LimitSettings(answer_bytes=65_536))
    for _ in range(2):
        stage.ask(offer(bytes(40_000)))
    for kind in (StepKind.DRAIN, StepKind.ITEMS):
        stage.ask(request(kind))
    stage.ask(request(StepKind.SIZE))
    assert stage.values == [True, True, Status.TOO_LARGE, Status.TOO_LARGE, 2]


def crash_of_the_primary(stage: Stage, some: Request) -> PartitionCopy:
    """What the backup of this primary holds after the request was applied, and not answered."""
    backup = PartitionCopy(0, 0)
    stage.router.on_forward(OTHER, Forward(7, some))
    stage.end_step()
    for _, message in stage.sent():
        if not isinstance(message, Replicate):
            continue
        for section in message.sections:
            for record in section.records:
                backup.open(record.map).apply(record, 0)
                backup.requests.note(record.request)
    return backup


@pytest.mark.rule("store/Q-1")
@pytest.mark.parametrize("kind", [StepKind.POLL, StepKind.DRAIN])
def test_a_repeated_poll_gets_the_items_that_it_took(kind: StepKind) -> None:
    before = Stage(backups=1)
    for item in (b"a", b"b"):
        before.ask(offer(item))
    some = request(kind, id=b"x")
    backup = crash_of_the_primary(before, some)
    taken = b"a" if kind is StepKind.POLL else [b"a", b"b"]

    after = Stage(backups=0)
    after.lead(backup)
    after.ask(some)
    after.ask(request(StepKind.SIZE))
    assert after.values == [taken, 1 if kind is StepKind.POLL else 0]


@pytest.mark.rule("store/Q-1")
def test_a_repeated_poll_whose_answer_is_not_kept_is_unknown_and_takes_nothing() -> None:
    stage = Stage()
    large = KEPT_BYTES // 2 + 1
    for _ in range(3):
        stage.ask(offer(bytes(large)))
    polls = [msgspec.structs.replace(poll(), id=name) for name in (b"first", b"second")]
    for some in (*polls, *polls):
        stage.ask(some)
    stage.ask(request(StepKind.SIZE))
    assert [one if isinstance(one, Status | int) else len(one or b"") for one in stage.values[3:]] == [  # type: ignore[arg-type]
        large,
        large,
        Status.UNKNOWN,
        large,
        1,
    ]
    assert "too large" in stage.told[5].detail


def test_an_offer_is_answered_when_the_backup_holds_it() -> None:
    stage = Stage(backups=1)
    stage.ask(offer(b"a"))
    stage.ask(poll())
    assert stage.values == []
    for to, message in stage.sent():
        assert isinstance(message, Replicate)
        stage.lane.on_replicated(to, Replicated(message.batches, [0]))
    assert stage.values == [True, b"a"]


@pytest.mark.rule("routing/R-21")
def test_a_request_that_waits_for_a_primary_is_withdrawn() -> None:
    stage = Stage(leads=False)
    stage.rows[0] = Assignment(1, (None,))
    gone = stage.ask(poll())
    stage.router.withdraw(gone)
    stage.rows[0] = Assignment(2, (OTHER,))
    stage.router.served(0)
    assert stage.sent() == []
    assert stage.told == [WITHDRAWN]
    assert not any(stage.router.leftovers.values())


@pytest.mark.rule("routing/R-21")
def test_a_request_of_another_member_that_waits_for_its_primary_is_withdrawn() -> None:
    stage = Stage(leads=False)
    stage.rows[0] = Assignment(2, (ME,))
    stage.router.on_forward(OTHER, Forward(5, poll()))
    stage.router.on_withdrawals(OTHER, Withdrawals([5]))
    stage.lead()
    stage.router.served(0)
    assert stage.sent() == [(OTHER, Answer(5, WITHDRAWN, []))]
    stage.ask(offer(b"a"))
    stage.ask(request(StepKind.SIZE))
    assert stage.values == [True, 1]


@pytest.mark.rule("routing/R-21")
@pytest.mark.parametrize("crash", [False, True])
def test_a_withdrawn_request_is_not_sent_to_the_next_primary(*, crash: bool) -> None:
    """Example: the partition moves while the withdrawal is on its way, so its receiver knows no such request."""
    stage = Stage(leads=False)
    gone = stage.ask(poll())
    [(to, forward)] = stage.sent()
    assert isinstance(forward, Forward)
    stage.router.withdraw(gone)
    stage.sent()
    stage.rows[0] = Assignment(2, (BEN,))
    if crash:
        stage.router.members_gone({OTHER})
    else:
        stage.router.on_answer(to, Answer(forward.ticket, Outcome(Status.MOVED), []))
    assert stage.sent() == []
    assert stage.values == [Status.UNKNOWN if crash else Status.NOT_READY]
    assert not any(stage.router.leftovers.values())
    assert not stage.router._collections.elsewhere


@pytest.mark.rule("routing/R-11")
def test_a_request_waits_no_longer_than_the_member_that_forwarded_it() -> None:
    """Example: a partition has no primary for 50 s. A request that waits for it, and then as long as ever at the next
    primary, would take an item when the client had its error already.
    """
    stage = Stage(leads=False, limits=LimitSettings(call_timeout_ms=60_000))
    stage.rows[0] = Assignment(1, (None,))
    stage.ask(poll())
    stage.pass_ms(50_000)
    stage.rows[0] = Assignment(2, (OTHER,))
    stage.router.served(0)
    [(_, forward)] = stage.sent()
    assert isinstance(forward, Forward)
    assert decode_step(forward.request.value).wait_ms == 0

    other = Stage(leads=False, limits=LimitSettings(call_timeout_ms=60_000))
    other.rows[0] = Assignment(2, (ME,))
    other.router.on_forward(OTHER, Forward(5, poll()))
    other.pass_ms(50_000)
    other.lead()
    other.router.served(0)
    other.pass_ms(1)
    assert other.sent() == [(OTHER, Answer(5, Outcome(Status.OK), []))]


def test_a_forwarded_request_that_waits_for_an_item_is_not_slow() -> None:
    stage = Stage(leads=False)
    stage.ask(poll())
    slow = stage.ask(poll(0))
    assert slow == 2
    stage.pass_ms(10_000)
    assert [one.kind for one in stage.router.open_since(stage.out.now_ns - 1)] == ["take_from_collection"]


@pytest.mark.rule("routing/R-6")
def test_requests_that_wait_for_items_leave_room_for_others() -> None:
    stage = Stage(leads=False, limits=LimitSettings(waiting_requests=10))
    for _ in range(8):
        stage.ask(poll())
    assert stage.told == [FULL] * 3
    for _ in range(5):
        stage.ask(poll(0))
    assert stage.told == [FULL] * 3
    stage.ask(poll(0))
    assert stage.told == [FULL] * 4
