"""Locks of transactions on a primary, and what a new primary finds of them."""

from __future__ import annotations

import pytest

from holdfast.config import TRANSACTIONS_MAP
from holdfast.core.model.decisions import LockChanges
from holdfast.core.model.ids import MemberId
from holdfast.core.model.transactions import (
    BranchState,
    KeyLock,
    TransactionalWrite,
    TransactionBranch,
    branch_key,
    encode,
    lock_key,
)
from holdfast.core.store import key_locks as under_test
from holdfast.core.store.key_locks import KeyLocks
from holdfast.core.store.partition_copy import PartitionCopy

ME = MemberId("me")
T1, T2 = b"1" * 16, b"2" * 16
A, B, C = lock_key("m", b"a"), lock_key("m", b"b"), lock_key("n", b"c")


def held_by(locks: KeyLocks) -> dict[bytes, bytes]:
    return {kept: lock.transaction for kept, lock in locks.held.items()}


def test_a_transaction_releases_its_own_locks_and_no_others() -> None:
    locks = KeyLocks()
    locks.change(LockChanges([(A, KeyLock(T1, ME)), (B, KeyLock(T1, ME))]))
    locks.change(LockChanges([(A, KeyLock(T2, ME)), (C, KeyLock(T2, ME))]))
    assert held_by(locks) == {A: T1, B: T1, C: T2}, "the lock of another is not replaced"
    assert (locks.of(T1), locks.of(T2), locks.of(b"3" * 16)) == ([A, B], [C], [])
    assert (locks.guards("m"), locks.guards("n"), locks.guards("")) == (True, True, False)
    before = locks.changes
    locks.change(LockChanges(released=b"3" * 16))
    assert locks.changes == before, "nothing was released"
    locks.change(LockChanges(released=T1))
    assert held_by(locks) == {C: T2}
    assert locks.changes == before + 1
    assert not locks.guards("m")
    locks.clear()
    assert (locks.held, locks.of(T2), locks.changes) == ({}, [], before + 2)


@pytest.mark.rule("store/K-1")
def test_a_new_primary_finds_stored_locks_and_those_of_prepared_branches() -> None:
    write = TransactionalWrite("m", b"a", b"value")
    entries = {
        B: encode(KeyLock(T2, ME)),
        branch_key(T1): encode(TransactionBranch(BranchState.PREPARED, ME, [1, 2], [write], [("n", b"c")])),
    }
    locks = KeyLocks()
    locks.change(LockChanges([(lock_key("m", b"of before"), KeyLock(T1, ME))]))
    locks.restore(entries)
    assert held_by(locks) == {A: T1, B: T2, C: T1}
    assert locks.held[A].owner == ME
    for state in (BranchState.COMMITTED, BranchState.ROLLED_BACK):
        locks.restore({branch_key(T1): encode(TransactionBranch(state, ME, [1, 2], [write]))})
        assert not locks.held, "its outcome is known"


@pytest.mark.rule("store/K-1")
def test_a_copy_has_locks_only_while_it_leads() -> None:
    copy = PartitionCopy(1, 0)
    copy.lead(3)
    copy.locks.change(LockChanges([(A, KeyLock(T1, ME))]))
    copy.follow()
    assert (copy.term, copy.locks.held) == (0, {})
    kept = copy.open(TRANSACTIONS_MAP).state
    kept.store(B, encode(KeyLock(T2, ME)), 0, 0, 0, 0)
    copy.lead(5)
    assert copy.term == 5
    assert held_by(copy.locks) == {B: T2}


@pytest.mark.rule("store/K-2")
def test_handover_gets_each_lock_once_also_those_that_are_taken_meanwhile() -> None:
    locks = KeyLocks()
    keys = [lock_key("m", b"%d" % number) for number in range(5)]
    locks.change(LockChanges([(kept, KeyLock(T1, ME)) for kept in keys[:3]]))
    assert locks.unstored == 3
    [(first, _)] = locks.take_unstored(1)
    assert locks.unstored == 2
    locks.change(LockChanges([(keys[3], KeyLock(T2, ME)), (first, KeyLock(T2, ME))]))
    assert locks.unstored == 3, "a lock that is held is not taken again"
    rest = dict(locks.take_unstored(9))
    assert {*rest, first} == set(keys[:4])
    assert (rest[keys[3]].transaction, locks.unstored, locks.take_unstored(9)) == (T2, 0, [])
    locks.change(LockChanges([(keys[4], KeyLock(T2, ME))]))
    assert locks.take_unstored(9) == [(keys[4], KeyLock(T2, ME))]


@pytest.mark.rule("store/K-2")
def test_released_lock_is_not_stored_by_a_handover() -> None:
    locks = KeyLocks()
    locks.change(LockChanges([(A, KeyLock(T1, ME)), (B, KeyLock(T2, ME)), (C, KeyLock(T2, ME))]))
    [(kept, lock)] = locks.take_unstored(1)
    other = T1 if lock.transaction == T2 else T2
    locks.change(LockChanges(released=other))
    assert {kept for kept, _ in locks.take_unstored(9)} == set(locks.of(lock.transaction)) - {kept}
    locks.change(LockChanges(released=lock.transaction))
    locks.change(LockChanges([(kept, KeyLock(other, ME))]))
    assert locks.take_unstored(9) == [(kept, KeyLock(other, ME))], "it was stored for another transaction"


@pytest.mark.rule("store/K-2")
@pytest.mark.parametrize("how", ["end_storing", "clear"])
def test_handover_that_is_given_up_begins_again_with_all_locks(how: str) -> None:
    locks = KeyLocks()
    locks.change(LockChanges([(A, KeyLock(T1, ME)), (B, KeyLock(T2, ME))]))
    locks.take_unstored(1)
    getattr(locks, how)()
    if how == "clear":
        assert locks.unstored == 0
        locks.change(LockChanges([(A, KeyLock(T1, ME)), (B, KeyLock(T2, ME))]))
    assert locks.unstored == 2
    assert {kept for kept, _ in locks.take_unstored(9)} == {A, B}


@pytest.mark.rule("store/K-3")
def test_new_primary_reads_the_locks_that_it_was_left_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(under_test, "READ_AT_ONCE", 2)
    entries = {lock_key("m", b"%d" % number): encode(KeyLock(T1, ME)) for number in range(5)}
    locks = KeyLocks()
    locks.begin_restoring(entries)
    assert (len(locks.held), locks.restored) == (2, False)
    assert not locks.restore_more()
    assert locks.restore_more()
    assert (set(locks.held), locks.restored) == (set(entries), True)
    assert locks.restore_more(), "nothing is left"
    locks.begin_restoring(entries)
    assert (len(locks.held), locks.restored) == (2, False)
    locks.clear()
    assert (locks.held, locks.restored) == ({}, True)
    locks.restore(entries)
    assert (set(locks.held), locks.restored) == (set(entries), True), "leaders of zones read all at once"


@pytest.mark.rule("store/K-3")
def test_few_locks_are_read_at_once() -> None:
    locks = KeyLocks()
    assert locks.restored
    locks.begin_restoring({A: encode(KeyLock(T1, ME))})
    assert (held_by(locks), locks.restored) == ({A: T1}, True)
    locks.begin_restoring({})
    assert (held_by(locks), locks.restored) == ({}, True)


def test_one_lock_stands_for_each_transaction() -> None:
    locks = KeyLocks()
    locks.change(LockChanges([(A, KeyLock(T1, ME)), (B, KeyLock(T1, ME)), (C, KeyLock(T2, ME))]))
    assert list(locks.one_of_each()) == [KeyLock(T1, ME), KeyLock(T2, ME)]
    locks.change(LockChanges(released=T1))
    assert list(locks.one_of_each()) == [KeyLock(T2, ME)]
