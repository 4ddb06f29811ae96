"""The primary copy of maps that are being moved, and of entries that transactions have locked."""

from __future__ import annotations

import pytest
from tests.core.primary_backup.test_primary_copy import ME, QUEUE, Primary

from holdfast.config import TRANSACTIONS_MAP
from holdfast.core.model.decisions import Wait
from holdfast.core.model.map_moves import (
    CLOSED,
    COUNTERS,
    NOT_DUE,
    EndMove,
    FillMap,
    MarkKind,
    MoveMark,
    MoveStep,
    PauseMap,
    ResumeMap,
    StreamSwitch,
    decode_move_answer,
    encode_move,
)
from holdfast.core.model.notices import MapEmptied, MapMarked
from holdfast.core.model.operations import Op, Outcome, Request, Status
from holdfast.core.model.topology import MappedOn, TopologyVersion
from holdfast.core.model.transactions import (
    LockKeys,
    PrepareBranch,
    RollBackBranch,
    StepFate,
    StepResult,
    TransactionalWrite,
    TransactionStep,
    ValueSeen,
    decode_result,
    encode,
    lock_key,
)
from holdfast.core.operations.move_steps import LOCKED, NOT_FORGOTTEN
from holdfast.core.operations.transaction_branches import LOCKED_TOO_LONG
from holdfast.core.store.move_marks import mark_in, switch_in

NUMBER = 7
TRANSACTION = b"t" * 16


class Moves:
    """What the view says: whether steps are due, and which maps move into zones."""

    def __init__(self, *, due: bool = True, leaving: str = "") -> None:
        self.due = due
        self.leaving = leaving

    def home(self, name: str) -> str:
        return ""

    def is_due(self, name: str, step: MoveStep) -> bool:
        return self.due and name == "m" and step.number == NUMBER

    def is_leaving(self, name: str) -> bool:
        return name == self.leaving


def moving(*, leaving: str = "") -> Primary:
    return Primary(moves=Moves(leaving=leaving))


def step(primary: Primary, what: MoveStep) -> None:
    op = Op.FILL if isinstance(what, FillMap) else Op.MOVE
    primary.protocol.submit(Request(op, "m", [0], value=encode_move(what)), primary.told.append)


def paused(*, leaving: str = "") -> Primary:
    primary = moving(leaving=leaving)
    primary.hold()
    step(primary, PauseMap(NUMBER, 1))
    primary.acknowledge()
    primary.told.clear()
    primary.notices.clear()
    return primary


def statuses(primary: Primary) -> list[Status]:
    found = [outcome.status for outcome in primary.told if isinstance(outcome, Outcome)]
    assert len(found) == len(primary.told)
    primary.told.clear()
    return found


# -- steps of a move


def test_a_step_is_answered_when_the_backup_holds_the_mark_and_observers_hear_of_it() -> None:
    primary = moving()
    step(primary, PauseMap(NUMBER, 1))
    assert primary.notices == [MapMarked(0)]
    assert primary.told == []
    primary.acknowledge()
    (outcome,) = primary.told
    assert isinstance(outcome, Outcome)
    assert isinstance(outcome.value, bytes)
    assert decode_move_answer(outcome.value).mark == MoveMark(NUMBER, MarkKind.PAUSED, 1)
    primary.notices.clear()
    primary.ask(Op.SET, b"w", "other")
    assert primary.notices == [], "an ordinary write marks nothing"


def test_a_step_of_another_phase_changes_nothing() -> None:
    primary = Primary(moves=Moves(due=False))
    step(primary, PauseMap(NUMBER, 1))
    assert primary.told == [NOT_DUE]
    assert mark_in(primary.copies[0].maps, "m") is None
    primary.told.clear()
    step(moving(), PauseMap(NUMBER + 1, 1))
    primary = moving()
    step(primary, PauseMap(NUMBER + 1, 1))
    assert primary.told == [NOT_DUE]


@pytest.mark.rule("model/M-1")
def test_a_paused_map_is_neither_read_nor_changed_and_others_are() -> None:
    primary = paused()
    for op in (Op.GET, Op.CONTAINS_KEY, Op.SET, Op.REMOVE):
        primary.ask(op, b"w")
    assert primary.told == [CLOSED] * 4
    primary.told.clear()
    primary.ask(Op.GET, name="other")
    primary.ask(Op.SET, b"w", "other")
    primary.ask(Op.CALL, b"+item", QUEUE)
    primary.acknowledge()
    assert statuses(primary) == [Status.OK] * 3
    step(primary, ResumeMap(NUMBER, 1))
    primary.acknowledge()
    assert statuses(primary) == [Status.OK]
    primary.ask(Op.GET)
    assert primary.told == [Outcome(Status.OK, b"v")]


def test_a_request_that_was_applied_before_the_pause_is_answered_again() -> None:
    primary = moving()
    primary.ask(Op.PUT, b"w", id=b"once")
    primary.acknowledge()
    step(primary, PauseMap(NUMBER, 1))
    primary.acknowledge()
    primary.told.clear()
    primary.ask(Op.PUT, b"w", id=b"once")
    assert primary.told == [Outcome(Status.OK, None)]
    primary.ask(Op.PUT, b"w", id=b"another")
    assert primary.told[1:] == [CLOSED]


@pytest.mark.parametrize("keep", [True, False])
def test_a_map_that_has_moved_away_is_reported_empty_when_the_backup_knows(*, keep: bool) -> None:
    primary = paused()
    step(primary, EndMove(NUMBER, keep=keep))
    assert MapEmptied(0, "m") not in primary.notices
    primary.acknowledge()
    assert statuses(primary) == [Status.OK]
    assert (MapEmptied(0, "m") in primary.notices) is not keep
    assert bool(primary.copies[0].maps["m"].state.entries) is keep


def test_a_map_whose_end_is_not_known_everywhere_is_not_reported_empty() -> None:
    primary = paused()
    step(primary, EndMove(NUMBER, keep=False))
    primary.lose()
    assert statuses(primary) == [Status.UNKNOWN]
    assert MapEmptied(0, "m") not in primary.notices


@pytest.mark.parametrize("emptied", [False, True])
def test_a_map_that_was_here_before_is_forgotten_before_it_moves_here_again(*, emptied: bool) -> None:
    primary = Primary(moves=Moves(), changes_bytes=100_000)
    primary.hold()
    if emptied:
        primary.ask(Op.REMOVE)
    primary.acknowledge()
    primary.told.clear()
    fill = FillMap(NUMBER, 1, 0, [b"k"], [b"moved"], above=2 * COUNTERS)
    step(primary, fill)
    primary.acknowledge()
    (outcome,) = primary.told
    assert isinstance(outcome, Outcome)
    assert isinstance(outcome.value, bytes)
    assert decode_move_answer(outcome.value).refused == NOT_FORGOTTEN
    assert MapEmptied(0, "m") in primary.notices
    assert primary.copies[0].maps["m"].state.entries == {}


@pytest.mark.rule("model/M-3")
def test_updates_of_a_map_that_moves_here_are_numbered_above_those_of_its_source() -> None:
    primary = moving()
    step(primary, FillMap(NUMBER, 1, 0, [b"k"], [b"moved"], above=1000))
    primary.acknowledge()
    assert statuses(primary) == [Status.OK]
    assert MapEmptied(0, "m") not in primary.notices
    held = primary.copies[0].maps["m"]
    assert held.state.entries == {b"k": b"moved"}
    assert held.updates.lwm > 1000
    primary.ask(Op.GET)
    assert primary.told == [CLOSED], "more is to come"


@pytest.mark.rule("model/M-4")
@pytest.mark.parametrize("above", [0, 1000])
def test_readers_of_a_change_stream_go_on_after_the_last_fill(above: int) -> None:
    primary = Primary(moves=Moves(), changes_bytes=100_000)
    switch = StreamSwitch(5, [(2, 0)])
    step(primary, FillMap(NUMBER, 1, 0, [b"k"], [b"moved"], round=1, above=above, switch=switch))
    primary.acknowledge()
    assert statuses(primary) == [Status.OK]
    kept = switch_in(primary.copies[0].maps, "m")
    assert kept is not None
    assert kept.start == primary.copies[0].maps["m"].counter > above


def test_a_map_that_is_paused_is_left_out_of_operations_on_whole_partitions() -> None:
    primary = paused()
    primary.whole(Op.KEYS, 0, 1)
    primary.whole(Op.CLEAR, 0, 1)
    primary.acknowledge()
    assert [left for _, left, _ in primary.shares] == [[0], [0]]
    assert primary.copies[0].maps["m"].state.entries == {b"k": b"v"}


# -- steps of transactions


def transact(primary: Primary, what: TransactionStep, op: Op = Op.TRANSACT) -> StepResult:
    primary.told.clear()
    primary.protocol.submit(Request(op, "m", [0], value=encode(what)), primary.told.append)
    primary.acknowledge()
    (outcome,) = primary.told
    assert isinstance(outcome, Outcome)
    assert isinstance(outcome.value, bytes)
    primary.told.clear()
    return decode_result(outcome.value)


def lock(name: str = "m", **more: object) -> LockKeys:
    return LockKeys(TRANSACTION, ME, [(name, b"k")], 0, **more)  # type: ignore[arg-type]


def prepare(name: str = "m", *, locked: bool = False, reads: bool = False, **more: object) -> PrepareBranch:
    writes = [] if reads else [TransactionalWrite(name, b"k", b"w")]
    seen = [ValueSeen(name, b"k", b"v")] if reads else []
    return PrepareBranch(TRANSACTION, ME, [0], writes, seen, locked, **more)  # type: ignore[arg-type]


ROLLBACK = RollBackBranch(TRANSACTION, ME, [0], False)


def test_steps_of_transactions_are_carried_out() -> None:
    primary = moving()
    primary.hold()
    assert transact(primary, lock()).values == [b"v"]
    assert list(primary.copies[0].locks.held) == [lock_key("m", b"k")]
    assert TRANSACTIONS_MAP not in primary.copies[0].maps, "no backup needs to know"
    assert transact(primary, ROLLBACK, Op.SETTLE).fate is StepFate.DONE
    assert not primary.copies[0].locks.held
    assert transact(primary, prepare()).fate is StepFate.DONE
    assert primary.copies[0].maps["m"].state.entries == {b"k": b"w"}


@pytest.mark.rule("operations/V-3")
def test_a_transaction_begins_nothing_in_a_map_that_is_being_moved() -> None:
    why = "the map 'm' is being moved: roll the transaction back"
    for primary in (paused(), moving(leaving="m")):
        for begun in (lock(), prepare(), prepare(reads=True)):
            result = transact(primary, begun)
            assert (result.fate, result.why) == (StepFate.REFUSED, why)
        assert transact(primary, lock("other")).fate is StepFate.DONE
        assert transact(primary, ROLLBACK, Op.SETTLE).fate is StepFate.DONE
        assert transact(primary, prepare("other")).fate is StepFate.DONE


@pytest.mark.rule("operations/V-3")
def test_a_map_is_not_paused_while_a_transaction_has_locked_an_entry() -> None:
    primary = moving()
    transact(primary, lock("other"))
    transact(primary, lock())
    for released in (False, True):
        step(primary, PauseMap(NUMBER, 1))
        primary.acknowledge()
        (outcome,) = primary.told
        assert isinstance(outcome, Outcome)
        assert isinstance(outcome.value, bytes)
        assert decode_move_answer(outcome.value).refused == ("" if released else LOCKED)
        transact(primary, ROLLBACK, Op.SETTLE)


@pytest.mark.rule("operations/V-3")
def test_a_transaction_with_locks_from_before_the_move_may_end() -> None:
    primary = moving()
    primary.hold()
    assert transact(primary, lock()).fate is StepFate.DONE
    primary.protocol._moves.leaving = "m"  # type: ignore[attr-defined]
    assert transact(primary, lock(confirm=True)).fate is StepFate.DONE, "it has only read the entry"
    assert transact(primary, prepare(locked=True)).fate is StepFate.DONE
    assert primary.copies[0].maps["m"].state.entries == {b"k": b"w"}
    assert transact(paused(leaving="m"), prepare(locked=True)).fate is StepFate.REFUSED, "it is paused"


@pytest.mark.rule("transactions/P-1")
@pytest.mark.parametrize(
    ("row", "holds", "fate"),
    [(2, False, StepFate.REMAP), (3, False, StepFate.DONE), (2, True, StepFate.DONE)],
)
def test_a_transaction_that_was_mapped_under_another_primary_is_mapped_again(
    row: int, fate: StepFate, *, holds: bool
) -> None:
    mapped = MappedOn(TopologyVersion(1, 0), row, holds)
    for begun in (lock(mapped=mapped), prepare(mapped=mapped)):
        primary = moving()
        result = transact(primary, begun)
        assert result.fate is fate
        assert result.row == (3 if fate is StepFate.REMAP else 0)


def test_who_writes_a_locked_entry_waits_and_who_reads_it_does_not() -> None:
    primary = moving()
    primary.hold()
    transact(primary, lock())
    wait_ms = primary.settings.limits.call_timeout_ms
    primary.protocol.submit(Request(Op.SET, "m", [0], b"k", b"w"), primary.told.append)
    assert primary.told == [Wait(wait_ms, refused=LOCKED_TOO_LONG, holder=TRANSACTION, key=("m", b"k"))]
    primary.told.clear()
    primary.ask(Op.GET)
    assert primary.told == [Outcome(Status.OK, b"v")]
    primary.told.clear()
    primary.ask(Op.SET, b"w", late=True)
    assert primary.told == [Outcome(Status.NOT_READY, None, LOCKED_TOO_LONG)]
    primary.told.clear()
    primary.ask(Op.TRY_PUT, b"w")
    primary.ask(Op.SET, b"w", "other")
    primary.acknowledge()
    assert primary.told == [Outcome(Status.OK, False), Outcome(Status.OK)]
    assert primary.copies[0].maps["m"].state.entries == {b"k": b"v"}


def test_a_partition_with_a_locked_entry_is_cleared_later_and_read_now() -> None:
    primary = moving()
    for partition in (0, 1):
        primary.hold(partition=partition)
    transact(primary, lock())
    primary.whole(Op.KEYS, 0, 1)
    primary.whole(Op.CLEAR, 0, 1)
    primary.acknowledge()
    assert [(outcome.value, left) for outcome, left, _ in primary.shares] == [([b"k", b"k"], []), (1, [0])]
    assert primary.copies[0].maps["m"].state.entries == {b"k": b"v"}
    primary = moving()
    primary.hold()
    transact(primary, lock("other"))
    primary.whole(Op.CLEAR, 0)
    primary.acknowledge()
    assert [left for _, left, _ in primary.shares] == [[]], "the lock is of another map"


def test_a_map_that_was_destroyed_is_reported_empty_where_it_is() -> None:
    primary = moving()
    for partition in (0, 1):
        primary.hold(partition=partition)
    transact(primary, lock())
    primary.notices.clear()
    primary.whole(Op.CLEAR, 0, 1)
    primary.acknowledge()
    assert primary.notices == [], "it exists, without entries"
    primary.whole(Op.DESTROY, 0, 1)
    assert primary.notices == []
    primary.acknowledge()
    assert primary.notices == [MapEmptied(1, "m")], "partition 0 is left"
    assert [(outcome.status, left) for outcome, left, _ in primary.shares] == [(Status.OK, [0])] * 2
    primary = moving()
    primary.lane.leading[1] = None
    primary.whole(Op.DESTROY, 0, 1)
    primary.acknowledge()
    assert primary.notices == [MapEmptied(0, "m")], "partition 1 is led elsewhere"
    primary = moving()
    primary.hold()
    primary.whole(Op.DESTROY, 0)
    primary.lose()
    assert primary.notices == [], "the backup does not know"
