"""Requests for operations that are queued: one round for the locks of all of them."""

from __future__ import annotations

from functools import partial

import pytest
from tests.core.transactions.one_member import BEN, MAP, ME, NOT_READY, UNKNOWN, Asked, One, key_in

from holdfast.core.model.operations import Op
from holdfast.core.model.partition_table import Assignment
from holdfast.core.model.topology import MappedOn
from holdfast.core.model.transaction_orders import TransactionFate
from holdfast.core.model.transactions import LockKeys, RollBackBranch
from holdfast.core.transactions import locks_ahead

DONE, NOT_DONE, ROLLED_BACK = TransactionFate.DONE, TransactionFate.NOT_DONE, TransactionFate.ROLLED_BACK
K1, K2, K3 = (key_in(partition) for partition in (1, 2, 3))


def begun(*, optimistic: bool = False, repeatable: bool = False) -> tuple[One, bytes]:
    one = One()
    tx = one.begin(optimistic=optimistic, repeatable=repeatable)
    one.slow()
    return one, tx


def served(one: One, *several: Asked) -> None:
    for asked in several:
        asked.serve()
        one.deliver()


@pytest.mark.rule("transactions/C-8")
def test_the_locks_of_several_writes_take_one_round_and_only_the_first_waits() -> None:
    one, tx = begun()
    tokens = [one.operate(tx, Op.SET, key, b"v") for key in (K1, K2, K3)]
    locks = one.take()
    steps = [asked.step for asked in locks]
    assert [step.keys for step in steps if isinstance(step, LockKeys)] == [
        [(MAP, K1)],
        [(MAP, K2)],
        [(MAP, K3)],
    ]
    assert [step.wait_ms > 0 for step in steps if isinstance(step, LockKeys)] == [True, False, False]
    served(one, locks[2], locks[1])
    assert [one.fate(token) for token in tokens] == [None] * 3, "the first one is not done"
    served(one, locks[0])
    assert [one.fate(token) for token in tokens] == [DONE] * 3
    assert one.take() == []
    one.prompt()
    assert one.fate(one.commit(tx)) is DONE
    assert [one.partitions.value(at, key) for at, key in ((1, K1), (2, K2), (3, K3))] == [b"v"] * 3
    one.pass_time(2500)
    assert (one.running, one.partitions.kept) == (0, 0)


@pytest.mark.rule("transactions/C-8")
def test_a_lock_that_another_transaction_has_is_requested_again_in_its_turn() -> None:
    one = One()
    other, tx = one.begin(), one.begin()
    one.do(other, Op.SET, K2, b"other")
    one.slow()
    first, second = (one.operate(tx, Op.SET, key, b"v") for key in (K1, K2))
    lock, ahead = one.take()
    served(one, ahead)
    assert list(one.transactions.deadlocks.waits()) == [], "it is not waited for"
    assert one.take() == []
    served(one, lock)
    assert (one.fate(first), one.fate(second)) == (DONE, None)
    one.prompt()
    one.next().serve()
    [wait] = one.transactions.deadlocks.waits()
    assert (wait.waiter, wait.holder) == (tx, other)
    assert one.fate(one.commit(other)) is DONE
    one.serve_waiting()
    one.deliver()
    assert one.fate(second) is DONE


def test_an_operation_waits_for_the_lock_that_was_requested_for_it() -> None:
    one, tx = begun()
    first, second = (one.operate(tx, Op.PUT, key, b"v") for key in (K1, K2))
    lock, ahead = one.take()
    served(one, lock)
    assert (one.fate(first), one.fate(second)) == (DONE, None)
    assert one.take() == [], "it is requested once"
    served(one, ahead)
    assert one.fate(second) is DONE


def test_no_key_is_requested_twice() -> None:
    one, tx = begun()
    tokens = [
        one.operate(tx, Op.PUT, key, value) for key, value in ((K1, b"1"), (K1, b"2"), (K2, b"3"), (K2, b"4"))
    ]
    locks = one.take()
    assert [asked.partition for asked in locks] == [1, 2]
    served(one, *locks)
    assert [one.answer(token).value for token in tokens] == [None, b"1", None, b"3"]


def test_values_that_need_no_lock_are_read_ahead() -> None:
    one, tx = begun()
    one.prompt()
    one.do(one.begin(), Op.GET, K1)
    writer = one.begin()
    for key, value in ((K1, b"1"), (K2, b"2")):
        one.do(writer, Op.SET, key, value)
    one.commit(writer)
    one.slow()
    tokens = [one.operate(tx, Op.GET, key) for key in (K1, K2, K3)]
    reads = one.take()
    assert [asked.request.op for asked in reads] == [Op.GET] * 3
    served(one, reads[2], reads[1])
    assert [one.fate(token) for token in tokens] == [None] * 3
    served(one, reads[0])
    assert [one.answer(token).value for token in tokens] == [b"1", b"2", None]
    again = one.operate(tx, Op.GET, K2)
    assert [asked.request.op for asked in one.take()] == [Op.GET], "a value is used once"
    assert one.fate(again) is None


def test_an_optimistic_transaction_compares_what_it_has_read_ahead() -> None:
    one, tx = begun(optimistic=True)
    first = one.operate(tx, Op.PUT, K1, b"v")
    second = one.operate(tx, Op.GET, K2)
    blind = one.operate(tx, Op.SET, K3, b"w")
    reads = one.take()
    assert [(asked.request.op, asked.partition) for asked in reads] == [(Op.GET, 1), (Op.GET, 2)]
    served(one, *reads)
    assert [one.fate(token) for token in (first, second, blind)] == [DONE] * 3
    one.prompt()
    other = one.begin()
    one.do(other, Op.SET, K2, b"changed")
    one.commit(other)
    assert one.fate(one.commit(tx)) is ROLLED_BACK


def test_reads_of_a_repeatable_transaction_lock_ahead() -> None:
    one, tx = begun(repeatable=True)
    for key in (K1, K2):
        one.operate(tx, Op.GET, key)
    assert [type(asked.step) for asked in one.take()] == [LockKeys, LockKeys]


def test_a_read_that_failed_ahead_is_asked_again() -> None:
    one, tx = begun()
    first, second = (one.operate(tx, Op.GET, key) for key in (K1, K2))
    read, ahead = one.take()
    ahead.answer(NOT_READY)
    served(one, read)
    assert (one.fate(first), one.fate(second)) == (DONE, None)
    served(one, one.next())
    assert one.fate(second) is DONE


def test_a_lock_whose_outcome_is_unknown_ends_the_transaction() -> None:
    one, tx = begun()
    tokens = [one.operate(tx, Op.SET, key, b"v") for key in (K1, K2)]
    lock, ahead = one.take()
    ahead.serve(UNKNOWN)
    one.deliver()
    assert [one.answer(token).why for token in tokens] == ["an entry could not be locked: nobody knows"] * 2
    releases = one.take()
    assert [asked.step for asked in releases] == [RollBackBranch(tx, ME, [1, 2], True)] * 2
    served(one, *releases, lock)
    assert [one.partitions.branches(at).lock(MAP, key) for at, key in ((1, K1), (2, K2))] == [None, None]
    assert one.transactions.coordinator.running.of_ticket == {}


def test_a_lock_that_was_mapped_on_an_old_topology_is_mapped_again_in_its_turn() -> None:
    one, tx = begun()
    one.partitions.copies[2].term = 9
    first, second = (one.operate(tx, Op.SET, key, b"v") for key in (K1, K2))
    lock, ahead = one.take()
    served(one, ahead, lock)
    assert (one.fate(first), one.fate(second)) == (DONE, None)
    one.table.apply(2, Assignment(9, (BEN,)))
    again = one.next()
    assert isinstance(again.step, LockKeys)
    assert again.step.mapped is not None and again.step.mapped.holds
    served(one, again)
    assert one.fate(second) is DONE


def test_the_first_lock_is_mapped_again_while_another_one_is_held() -> None:
    one, tx = begun()
    one.partitions.copies[1].term = 9
    first, second = (one.operate(tx, Op.SET, key, b"v") for key in (K1, K2))
    lock, ahead = one.take()
    served(one, lock, ahead)
    assert (one.fate(first), one.fate(second)) == (None, None)
    one.table.apply(1, Assignment(9, (BEN,)))
    one.pass_time(5)
    again = one.next()
    assert isinstance(again.step, LockKeys)
    assert again.step.mapped == MappedOn(one.transactions.mapping.version, 9, True)
    served(one, again)
    assert (one.fate(first), one.fate(second)) == (DONE, DONE)


def test_nothing_is_committed_while_a_lock_may_still_come() -> None:
    """An operation is refused in its turn, because others have used the room meanwhile."""
    one, tx = begun()
    first, second = (one.operate(tx, Op.SET, key, b"v") for key in (K1, K2))
    lock, ahead = one.take()
    one.transactions.coordinator.running.size_most = 501 + len(K1)
    served(one, lock)
    assert (one.fate(first), one.fate(second)) == (DONE, NOT_DONE)
    assert one.answer(one.commit(tx)).why == "an operation of it is under way"
    served(one, ahead)
    one.prompt()
    assert one.fate(one.commit(tx)) is DONE
    one.pass_time(1000)
    assert (one.running, one.partitions.kept) == (0, 0)


def test_what_cannot_be_done_requests_nothing_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    one, tx = begun()
    one.operate(tx, Op.SET, K1, b"v")
    one.operate(tx, Op.SET, b"k" * 100_000, b"v")
    one.operate(tx, Op.SIZE, b"")
    monkeypatch.setattr(locks_ahead, "AHEAD_MOST", 1)
    for key in (K2, K3):
        one.operate(tx, Op.SET, key, b"v")
    assert [asked.partition for asked in one.take()] == [1, 2]


@pytest.mark.parametrize("end", ["time", "owner"])
def test_locks_that_come_after_the_rollback_are_not_taken(end: str) -> None:
    one, tx = begun()
    for key in (K1, K2):
        one.operate(tx, Op.SET, key, b"v")
    locks = one.take()
    deed = partial(one.pass_time, 120_000) if end == "time" else partial(one.roll_back, tx)
    deed()
    releases = one.take()
    assert [asked.step for asked in releases] == [RollBackBranch(tx, ME, [1, 2], True)] * 2
    served(one, *releases)
    served(one, *locks)
    assert [one.partitions.branches(at).lock(MAP, key) for at, key in ((1, K1), (2, K2))] == [None, None]
    assert one.transactions.steps.waiting == 0


def test_a_value_that_was_read_for_a_refused_operation_is_not_used_later() -> None:
    one, tx = begun()
    first, second = (one.operate(tx, Op.GET, key) for key in (K1, K2))
    read, ahead = one.take()
    served(one, ahead)
    running = one.transactions.coordinator.running
    most, running.size_most = running.size_most, 0
    served(one, read)
    assert (one.fate(first), one.fate(second)) == (DONE, NOT_DONE)
    running.size_most = most
    one.operate(tx, Op.GET, K2)
    assert [asked.request.op for asked in one.take()] == [Op.GET], "it is read again"
