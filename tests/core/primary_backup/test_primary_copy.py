"""The primary copy on its own: what a caller is told of each kind of request, and when."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.core.operations.queues import QueueShare

from holdfast.config import TRANSACTIONS_MAP, LimitSettings, MapSettings, PartitionSettings, Settings
from holdfast.core.effects import Send
from holdfast.core.journal.log import Log
from holdfast.core.messages import Replicate, Replicated
from holdfast.core.model.decisions import Wait
from holdfast.core.model.ids import MILLISECOND, MemberId
from holdfast.core.model.levels import PRIMARY_LOCKS
from holdfast.core.model.map_moves import MovesInForce, NoMoves
from holdfast.core.model.notices import Notice
from holdfast.core.model.object_names import part_name
from holdfast.core.model.operations import EntryEvent, EventKind, Op, Outcome, Request, Status
from holdfast.core.model.partition_table import Assignment
from holdfast.core.model.transactions import (
    LockKeys,
    PrepareBranch,
    RollBackBranch,
    StepFate,
    TransactionalWrite,
    decode_result,
    encode,
    lock_key,
)
from holdfast.core.outbox import Outbox
from holdfast.core.primary_backup import primary_copy
from holdfast.core.primary_backup.lane import Lane
from holdfast.core.primary_backup.primary_copy import PrimaryCopy, position_of
from holdfast.core.store.map_state import MapState
from holdfast.core.store.partition_copy import PartitionCopy
from holdfast.core.store.replica import Replica
from holdfast.core.store.request_ids import id_of
from holdfast.core.store.service_state import ServiceState

ME, BEN = MemberId("me"), MemberId("ben")
QUEUE = "queue"


class Primary:
    """The primary of two partitions, whose only backup is Ben."""

    def __init__(
        self,
        *,
        answer_bytes: int = 1 << 20,
        backups: int = 1,
        moves: MovesInForce | None = None,
        **chosen: object,
    ) -> None:
        self.out = Outbox(self)
        self.notices: list[Notice] = []
        self.settings = Settings(
            partitions=PartitionSettings(count=2),
            maps={
                "default": MapSettings(backups=backups),
                "m": MapSettings(backups=backups, **chosen),  # type: ignore[arg-type]
                "alone": MapSettings(backups=0, changes_bytes=1000),
            },
            limits=LimitSettings(answer_bytes=answer_bytes),
        )
        self.lane = Lane(ME, self.settings, self.out, Log(self.out, on=False))
        self.lane.attach([Assignment(1, (ME, BEN))] * 2)
        self.copies = [PartitionCopy(partition, 0) for partition in (0, 1)]
        for copy in self.copies:
            copy.term = 3
            name = part_name(QUEUE)
            copy.services[name] = Replica(name, ServiceState(QueueShare()))
            self.lane.retarget(copy)
        self.lane.leading[:] = self.copies
        self.protocol = PrimaryCopy(self.settings, self.out, self.lane, moves or NoMoves())
        self.protocol.serve(self)
        self.woken: list[int] = []
        self.when_woken: Callable[[], None] = lambda: None
        self.told: list[Outcome | Wait] = []
        self.shares: list[tuple[Outcome, list[int], list[int]]] = []

    def on_notice(self, notice: Notice) -> None:
        self.notices.append(notice)

    def rejection(self, request: Request) -> Outcome | None:
        return None

    def collection_changed(self, partition: int, name: str, key: bytes) -> None: ...

    def changed(self, partition: int) -> None:
        self.woken.append(partition)
        self.when_woken()

    def ask(self, op: Op, value: bytes = b"", name: str = "m", *, late: bool = False, **more: object) -> None:
        key = b"" if op in (Op.CALL, Op.ASK) else b"k"
        request = Request(op, name, [0], key, value, **more)  # type: ignore[arg-type]
        self.protocol.submit(request, self.told.append, late=late)

    def whole(self, op: Op, *partitions: int, value: bytes = b"") -> int:
        def done(outcome: Outcome, left: object, missed: object) -> None:
            self.shares.append((outcome, list(left), list(missed)))  # type: ignore[call-overload]

        return self.protocol.submit_whole(Request(op, "m", list(partitions), b"", value), done)

    def sent(self) -> list[Replicate]:
        self.lane.flush()
        taken = [one.message for one in self.out.take() if isinstance(one, Send)]
        return [one for one in taken if isinstance(one, Replicate)]

    def acknowledge(self) -> None:
        for message in self.sent():
            self.lane.on_replicated(BEN, Replicated(message.batches, [0, 1]))

    def hold(self, count: int = 1, partition: int = 0) -> None:
        for number in range(count):
            self.lane.set(self.copies[partition], "m", b"k%d" % number if number else b"k", b"v", 0, 0, 0)
        self.lane.close_batch(lambda known: None)
        self.acknowledge()

    def lose(self) -> None:
        """It is the primary no more, before Ben has answered."""
        self.sent()
        self.lane.abandon(0)


# -- when is who answered


def test_a_write_is_answered_when_the_backup_holds_it() -> None:
    primary = Primary()
    primary.ask(Op.PUT, b"1")
    assert primary.told == []
    primary.acknowledge()
    primary.ask(Op.PUT, b"2")
    primary.acknowledge()
    assert primary.told == [Outcome(Status.OK), Outcome(Status.OK, b"1")]


@pytest.mark.rule("primary_backup/P-7")
@pytest.mark.parametrize(("op", "answer"), [(Op.REMOVE, None), (Op.REPLACE, None), (Op.TRY_REMOVE, False)])
def test_an_answer_that_changed_nothing_waits_like_a_write(op: Op, answer: object) -> None:
    primary = Primary()
    primary.lane.open(primary.copies[0], "m")
    primary.ask(op)
    assert primary.told == []
    primary.acknowledge()
    assert primary.told == [Outcome(Status.OK, answer)]  # type: ignore[arg-type]


T1, T2 = b"1" * 16, b"2" * 16


def locking(transaction: bytes, key: bytes = b"k", *, confirm: bool = False) -> dict[str, object]:
    """A request for the lock of an entry of map `m`."""
    step = LockKeys(transaction, ME, [("m", key)], 1000, None, confirm)
    return {"op": Op.TRANSACT, "value": encode(step), "name": TRANSACTIONS_MAP}


@pytest.mark.rule("operations/T-5")
def test_a_lock_waits_for_the_writes_that_its_answer_shows_and_for_nothing_else() -> None:
    primary = Primary()
    primary.hold()
    primary.ask(**locking(T1))  # type: ignore[arg-type]
    assert len(primary.told) == 1, "nothing is asked of the backup"
    assert primary.sent() == []
    primary.ask(**locking(T1, confirm=True))  # type: ignore[arg-type]
    assert len(primary.told) == 1, "the backup has to confirm that this is the primary"
    primary.acknowledge()
    assert len(primary.told) == 2
    primary = Primary()
    primary.ask(Op.SET, b"1")
    [message] = primary.sent()
    primary.ask(**locking(T1))  # type: ignore[arg-type]
    assert primary.sent() == []
    assert primary.told == []
    primary.lane.on_replicated(BEN, Replicated(message.batches, [0, 1]))
    assert len(primary.told) == 2
    outcome = primary.told[1]
    assert isinstance(outcome, Outcome)
    assert isinstance(outcome.value, bytes)
    assert decode_result(outcome.value).values == [b"1"]


@pytest.mark.rule("operations/T-5")
def test_a_lock_that_may_show_a_lost_write_is_not_answered() -> None:
    primary = Primary()
    primary.ask(Op.SET, b"1")
    primary.sent()
    primary.ask(**locking(T1))  # type: ignore[arg-type]
    primary.lose()
    assert [outcome.status for outcome in primary.told] == [Status.UNKNOWN, Status.NOT_READY]  # type: ignore[union-attr]


@pytest.mark.parametrize("maps", [("m", "alone"), ("alone", "m"), ("m", "m", "alone")])
def test_a_backup_remembers_a_commit_whichever_of_its_maps_was_written_last(maps: tuple[str, str]) -> None:
    """The primary crashes, and the commit is repeated: its backup must not answer that the locks are lost."""
    primary = Primary()
    writes = [TransactionalWrite(name, b"k%d" % at, b"1") for at, name in enumerate(maps)]
    step = PrepareBranch(T1, ME, [0], writes, [], locked=False)
    primary.ask(Op.TRANSACT, encode(step), TRANSACTIONS_MAP, id=b"request")
    [message] = primary.sent()
    [section] = message.sections
    *others, last = section.records
    assert (last.map, id_of(last.request)) == ("m", b"request")
    assert not any(record.request for record in others)


@pytest.mark.rule("operations/T-7")
def test_a_prepare_of_several_partitions_comes_again_and_is_not_remembered() -> None:
    """The branch shows that it was done, so its record carries no id, and its answer waits for the backup again."""
    primary = Primary()
    writes = [TransactionalWrite("m", b"k", b"1")]
    step = PrepareBranch(T1, ME, [0, 1], writes, [], locked=False)
    primary.ask(Op.TRANSACT, encode(step), TRANSACTIONS_MAP, id=b"request")
    primary.ask(Op.TRANSACT, encode(step), TRANSACTIONS_MAP, id=b"request")
    [message] = primary.sent()
    [section] = message.sections
    assert (section.records, [puts.count for puts in section.puts]) == ([], [1])
    assert not primary.copies[0].requests.knows(b"request")
    assert primary.told == []
    primary.lane.on_replicated(BEN, Replicated(message.batches, [0, 1]))
    first, again = primary.told
    assert first == again
    assert isinstance(first, Outcome)
    assert isinstance(first.value, bytes)
    assert decode_result(first.value).fate is StepFate.DONE


@pytest.mark.rule("operations/T-6")
def test_backups_hold_locks_while_members_of_an_older_build_are_there() -> None:
    primary = Primary()
    primary.out.level = PRIMARY_LOCKS - 1
    primary.ask(**locking(T1))  # type: ignore[arg-type]
    assert primary.told == []
    primary.acknowledge()
    assert len(primary.told) == 1
    assert list(primary.copies[0].maps[TRANSACTIONS_MAP].state.entries) == [lock_key("m", b"k")]


@pytest.mark.rule("store/K-1")
def test_before_a_handover_locks_become_entries_that_backups_hold() -> None:
    primary = Primary()
    primary.protocol.store_locks(0)
    assert primary.sent() == [], "there are none"
    primary.ask(**locking(T1))  # type: ignore[arg-type]
    primary.protocol.store_locks(0)
    assert primary.lane.unfinished(0)
    [message] = primary.sent()
    assert list(primary.copies[0].maps[TRANSACTIONS_MAP].state.entries) == [lock_key("m", b"k")]
    primary.protocol.store_locks(0)
    assert primary.sent() == [], "they are stored"
    primary.lane.on_replicated(BEN, Replicated(message.batches, [0, 1]))
    assert not primary.lane.unfinished(0)


@pytest.mark.rule("store/K-2")
def test_locks_are_stored_in_slices_until_none_is_left() -> None:
    primary = Primary()
    for number in range(5):
        primary.ask(**locking(T1, b"k%d" % number))  # type: ignore[arg-type]

    def stored() -> int:
        held = primary.copies[0].maps.get(TRANSACTIONS_MAP)
        return len(held.state.entries) if held is not None else 0

    primary.protocol.store_locks(0, 2)
    assert stored() == 2
    primary.protocol.store_locks(0, 2)
    assert stored() == 4
    for number in range(5, 9):
        primary.ask(**locking(T1, b"k%d" % number))  # type: ignore[arg-type]
    primary.protocol.store_locks(0)
    assert stored() == 9


def test_a_question_whether_an_entry_is_locked_is_answered() -> None:
    primary = Primary()
    kept = lock_key("m", b"k")
    for locked in (False, True):
        request = Request(Op.CONTAINS_KEY, TRANSACTIONS_MAP, [0], kept)
        primary.protocol.submit(request, primary.told.append)
        assert primary.told.pop() == Outcome(Status.OK, locked)
        primary.ask(**locking(T1))  # type: ignore[arg-type]
        primary.told.pop()


def test_a_request_that_waits_for_a_lock_looks_again_when_it_is_released() -> None:
    primary = Primary()
    primary.ask(**locking(T1))  # type: ignore[arg-type]
    primary.ask(**locking(T2))  # type: ignore[arg-type]
    assert isinstance(primary.told.pop(), Wait)
    primary.protocol.wake()
    assert primary.woken == []
    released = encode(RollBackBranch(T1, ME, [0], fence=False))
    primary.ask(Op.SETTLE, released, TRANSACTIONS_MAP)
    assert primary.sent() == []
    primary.protocol.wake()
    assert primary.woken == [0]


@pytest.mark.parametrize("op", [Op.ASK, Op.CALL])
def test_a_question_to_a_service_is_answered_at_once_and_a_call_when_the_backup_holds_it(op: Op) -> None:
    primary = Primary()
    primary.ask(op, b"+item", QUEUE)
    assert len(primary.told) == (op is Op.ASK)
    primary.acknowledge()
    assert primary.told == [Outcome(Status.OK, b"1" if op is Op.CALL else b"0")]


@pytest.mark.parametrize("op", [Op.CALL, Op.ASK])
def test_a_service_that_is_not_there_answers_nothing(op: Op) -> None:
    primary = Primary()
    primary.ask(op, b"x", "other")
    primary.acknowledge()
    assert primary.told == [Outcome(Status.OK, None)]


@pytest.mark.parametrize(("reads", "waits"), [("confirmed", True), ("primary", False)])
def test_reads_wait_where_they_are_confirmed(reads: str, *, waits: bool) -> None:
    primary = Primary(reads=reads)
    primary.hold()
    primary.ask(Op.GET)
    primary.whole(Op.KEYS, 0)
    assert (len(primary.told), len(primary.shares)) == ((0, 0) if waits else (1, 1))
    primary.acknowledge()
    assert primary.told == [Outcome(Status.OK, b"v")]
    assert primary.shares == [(Outcome(Status.OK, [b"k"]), [], [])]


def test_what_is_not_known_is_unknown_if_it_changed_something_and_else_refused() -> None:
    primary = Primary(reads="confirmed")
    primary.hold()
    for op in (Op.SET, Op.PUT_IF_ABSENT, Op.GET):
        primary.ask(op, b"w")
    primary.whole(Op.KEYS, 0)
    primary.whole(Op.CLEAR, 0)
    primary.lose()
    statuses = [outcome.status for outcome in primary.told if isinstance(outcome, Outcome)]
    assert statuses == [Status.UNKNOWN, Status.NOT_READY, Status.NOT_READY]
    shares = {outcome.status for outcome, _, _ in primary.shares}
    assert shares == {Status.NOT_READY, Status.UNKNOWN}, "of the keys, and of the clearing"
    for outcome in [*primary.told, *(outcome for outcome, _, _ in primary.shares)]:
        assert isinstance(outcome, Outcome)
        assert outcome.value is None
        assert outcome.detail


# -- a request that comes again


def test_a_request_that_comes_again_is_answered_the_same_and_not_before_the_first() -> None:
    primary = Primary(read_backups=True)
    primary.hold()
    for _ in range(2):
        primary.ask(Op.PUT, b"w", id=b"once")
        primary.ask(Op.PUT, b"x", id=b"")
    assert primary.told == []
    primary.acknowledge()
    values = [(one.status, one.value) for one in primary.told if isinstance(one, Outcome)]
    assert sorted(values, key=str) == sorted(
        [(Status.OK, b"v"), (Status.OK, b"w"), (Status.OK, b"v"), (Status.OK, b"x")], key=str
    )
    assert primary.copies[0].maps["m"].counter == 4, "it was applied once"
    assert all(one.position[0] == 3 for one in primary.told if isinstance(one, Outcome))


# -- who waits for a change


def test_who_has_to_wait_is_told_when_the_partition_has_changed() -> None:
    primary = Primary(backups=0)
    primary.ask(Op.CALL, b"-100", QUEUE)
    assert primary.told == [Wait(100, b"")]
    primary.protocol.wake()
    assert primary.woken == [], "nothing has changed"
    stood = primary.lane.awaited[0]
    primary.ask(Op.CALL, b"+item", QUEUE)
    primary.ask(Op.CALL, b"-100", QUEUE)
    primary.ask(Op.CALL, b"-100", QUEUE)
    assert primary.lane.awaited[0] is stood, "who came first counts"
    primary.protocol.wake()
    assert (primary.woken, primary.lane.awaited) == ([0], {})
    primary.protocol.wake()
    assert primary.woken == [0]


def test_who_has_waited_long_enough_is_answered() -> None:
    primary = Primary()
    primary.ask(Op.CALL, b"-100", QUEUE, late=True)
    assert primary.lane.awaited == {}
    primary.acknowledge()
    assert primary.told == [Outcome(Status.OK, b"")]


@pytest.mark.parametrize("successor", [None, PartitionCopy(0, 0)])
def test_nobody_is_told_of_a_copy_that_is_not_led_any_more(successor: PartitionCopy | None) -> None:
    primary = Primary()
    primary.ask(Op.CALL, b"-100", QUEUE)
    primary.lane.leading[0] = successor
    primary.protocol.wake()
    assert (primary.woken, primary.lane.awaited) == ([], {})


def test_what_is_changed_by_who_was_told_is_told_too() -> None:
    primary = Primary()

    def changed() -> None:
        if len(primary.woken) < 3:
            primary.ask(Op.CALL, b"-100", QUEUE, late=False)
            primary.ask(Op.SET, b"again")

    primary.when_woken = changed
    primary.ask(Op.CALL, b"-100", QUEUE)
    primary.ask(Op.SET, b"once")
    primary.protocol.wake()
    assert primary.woken == [0, 0, 0]


# -- reads


@pytest.mark.parametrize("limit", [2, 1])
def test_an_answer_lists_no_more_than_it_may(limit: int) -> None:
    primary = Primary(answer_bytes=limit)
    primary.hold()
    primary.ask(Op.GET_ALL, items=[b"k"])
    primary.whole(Op.ENTRIES, 0, 1)
    status = Status.OK if limit == 2 else Status.TOO_LARGE
    value = [b"k", b"v"] if limit == 2 else None
    ((outcome, left, missed),) = primary.shares
    assert primary.told == [outcome]
    assert (outcome.status, outcome.value, left, missed) == (status, value, [], [])
    assert outcome.detail == (
        ""
        if limit == 2
        else "the answer would have more than 1 bytes of keys and "
        "values (limits.answer_bytes); ask for fewer entries at a time"
    )


def test_a_read_counts_as_a_use_and_takes_out_what_is_over() -> None:
    primary = Primary()
    primary.lane.set(primary.copies[0], "m", b"k", b"v", 0, 5, 0)
    primary.lane.close_batch(lambda known: None)
    primary.acknowledge()
    for now_ms in (4, 8, 13):
        primary.out.now_ns = now_ms * MILLISECOND
        primary.ask(Op.GET)
    assert primary.told == [Outcome(Status.OK, b"v"), Outcome(Status.OK, b"v"), Outcome(Status.OK, None)]
    assert primary.lane.opened == 0, "its end is on its way"
    assert len(primary.sent()) == 1


@pytest.mark.rule("routing/R-5")
def test_answers_say_where_a_map_stands_that_is_read_from_backups() -> None:
    primary = Primary(backups=0, read_backups=True)
    primary.ask(Op.GET)
    primary.ask(Op.SET, b"v")
    primary.ask(Op.GET)
    primary.ask(Op.REPLACE_IF_SAME, b"w", expected=b"other")
    primary.ask(Op.SET, b"v", "other")
    positions = [one.position for one in primary.told if isinstance(one, Outcome)]
    assert positions == [(0, 0), (3, 1), (3, 1), (3, 1), (0, 0)]
    assert position_of(primary.copies[0], "m", primary.settings) == (3, 1)
    assert position_of(primary.copies[0], "other", primary.settings) == (0, 0)


# -- whole partitions


def test_a_share_is_done_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    primary = Primary(backups=0)
    for partition in (0, 1):
        primary.hold(3, partition)
    assert primary.whole(Op.KEYS, 0, 1) == 6
    monkeypatch.setattr(primary_copy, "SLICE_ENTRIES", 3)
    assert primary.whole(Op.KEYS, 0, 1) == 3
    monkeypatch.setattr(primary_copy, "SLICE_ENTRIES", 4)
    monkeypatch.setattr(primary_copy, "SLICE_BYTES", 5)
    assert primary.whole(Op.KEYS, 0, 1) == 4, "by bytes it was all that a slice may take"
    keys = [b"k", b"k1", b"k2"]
    assert primary.shares == [
        (Outcome(Status.OK, keys * 2), [], []),
        (Outcome(Status.OK, keys), [1], []),
        (Outcome(Status.OK, keys), [1], []),
    ]


def test_a_map_is_cleared_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    primary = Primary(backups=0)
    for partition in (0, 1):
        primary.hold(3, partition)
    monkeypatch.setattr(primary_copy, "SLICE_ENTRIES", 20)
    monkeypatch.setattr(primary_copy, "COUNT_ENTRIES", 1)
    monkeypatch.setattr(primary_copy, "CLEAR_ENTRIES", 7)
    assert primary.whole(Op.CLEAR, 0, 1) == 22
    assert primary.whole(Op.CLEAR, 1) == 22
    assert primary.shares == [(Outcome(Status.OK, 3), [1], []), (Outcome(Status.OK, 3), [], [])]
    state = MapState("m")
    state.touched = {b"gone": b"v", b"too": b"v"}
    told = primary_copy._effort(Request(Op.CLEAR, "m", [0]), state)
    assert told == 1 + 2 * primary_copy.TOLD_ENTRIES, "what observers have not heard of takes its time, too"


def test_counting_takes_little_unless_some_may_have_ended() -> None:
    primary = Primary(backups=0)
    primary.hold(3)
    assert primary.whole(Op.SIZE, 0) == primary_copy.COUNT_ENTRIES
    assert primary.whole(Op.IS_EMPTY, 0) == primary_copy.COUNT_ENTRIES
    assert primary.whole(Op.CONTAINS_VALUE, 0, value=b"v") == 3
    primary.lane.set(primary.copies[0], "m", b"k", b"v", 5, 0, 0)
    assert primary.whole(Op.SIZE, 0) == 3
    assert [outcome.value for outcome, _, _ in primary.shares] == [3, False, True, 3]


def test_partitions_that_are_not_led_here_are_named_and_those_that_are_empty_count() -> None:
    primary = Primary(backups=0)
    primary.hold(2, 1)
    primary.lane.leading[0] = None
    assert not primary.protocol.leads(0)
    assert primary.protocol.leads(1)
    primary.whole(Op.SIZE, 0, 1)
    primary.whole(Op.SIZE, 0)
    primary.lane.leading[0] = primary.copies[0]
    primary.whole(Op.VALUES, 0)
    assert primary.shares == [
        (Outcome(Status.OK, 2), [], [0]),
        (Outcome(Status.OK, 0), [], [0]),
        (Outcome(Status.OK, []), [], []),
    ]


def test_a_map_with_a_change_stream_is_cleared_entry_by_entry_and_others_at_once() -> None:
    for changes_bytes, records in ((0, 1), (10_000, 3)):
        primary = Primary(changes_bytes=changes_bytes)
        primary.hold(3)
        primary.whole(Op.CLEAR, 0)
        told = [
            record for one in primary.sent() for section in one.sections for record in section.all_records()
        ]
        assert len(told) == records
        assert primary.shares == []


def test_a_map_with_a_change_stream_is_read_like_others() -> None:
    primary = Primary(changes_bytes=100_000)
    primary.hold(2)
    assert primary.whole(Op.SIZE, 0) == primary_copy.COUNT_ENTRIES
    primary.whole(Op.KEYS, 0)
    assert [outcome.value for outcome, _, _ in primary.shares] == [2, [b"k", b"k1"]]
    assert primary.whole(Op.CLEAR, 0) == 0, "the effort is of later steps"


def test_clearing_an_empty_map_waits_for_who_might_know_otherwise() -> None:
    primary = Primary()
    primary.lane.open(primary.copies[0], "m")
    primary.whole(Op.CLEAR, 0)
    assert primary.shares == []
    primary.acknowledge()
    assert primary.shares == [(Outcome(Status.OK, 0), [], [])]


def test_what_happens_to_all_of_a_map_is_heard_by_who_listens_to_it() -> None:
    primary = Primary()
    heard: list[EntryEvent] = []
    primary.lane.heard = heard.append
    primary.lane.listening["m"] = 1
    for name in ("other", "m"):
        primary.protocol.publish(EntryEvent(EventKind.CLEAR_ALL, name, ME))
    assert [event.map for event in heard] == ["m"]


def test_who_is_being_filled_is_known() -> None:
    primary = Primary()
    primary.lane.joining[1] = (BEN, 1)
    assert [primary.protocol.joining(partition) for partition in (0, 1)] == [None, BEN]


def test_only_the_maps_that_say_so_confirm_their_reads() -> None:
    """And an answer that is none of a map waits for nobody."""
    primary = Primary(reads="confirmed", answer_bytes=1)
    primary.hold()
    primary.lane.open(primary.copies[0], "other")
    primary.ask(Op.GET, name="other")
    assert primary.told == [Outcome(Status.OK, None)]
    primary.protocol.submit_whole(
        Request(Op.SIZE, "other", [0]), lambda *share: primary.told.append(share[0])
    )
    assert len(primary.told) == 2
    primary.ask(Op.GET_ALL, items=[b"k"])
    assert len(primary.told) == 3, "it is refused at once"


@pytest.mark.rule("primary_backup/P-7")
def test_an_answer_of_a_service_that_changed_nothing_rests_on_the_service() -> None:
    primary = Primary()
    primary.ask(Op.CALL, b"-100", QUEUE, late=True)
    assert primary.told == []
    primary.lane.flush()
    primary.acknowledge()
    assert primary.told == [Outcome(Status.OK, b"")]


def test_a_slice_that_answers_too_much_leaves_nothing_to_be_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(primary_copy, "SLICE_ENTRIES", 1)
    primary = Primary(answer_bytes=1)
    primary.hold()
    primary.whole(Op.ENTRIES, 0, 1)
    assert [(outcome.status, left) for outcome, left, _ in primary.shares] == [(Status.TOO_LARGE, [])]


def test_a_single_value_may_be_longer_than_a_list() -> None:
    primary = Primary(answer_bytes=1, backups=0)
    primary.ask(Op.SET, b"long")
    primary.ask(Op.GET)
    primary.ask(Op.ENTRY_VIEW, name="never written")
    assert [one.value for one in primary.told if isinstance(one, Outcome)] == [None, b"long", None]


def test_a_failed_read_is_noted() -> None:
    out = Outbox()
    outcome = primary_copy.failed(out, Request(Op.GET, "m", [0], b"k"), KeyError("x"))
    assert outcome == Outcome(Status.FAILED, None, "KeyError: 'x'")
    (noted,) = out.take()
    assert "read failed" in str(noted)
    assert "GET" in str(noted)
