"""Locks and branches whose owner may have gone: who is asked, and what is done about them."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from tests.core.transactions.one_member import BEN, CAT, MAP, ME, One, key_in

from holdfast.core.messages import OwnersAsked, OwnersGone
from holdfast.core.model.ids import MILLISECOND, MemberId
from holdfast.core.model.operations import Op
from holdfast.core.model.transactions import (
    AskBranch,
    CommitBranch,
    LockKeys,
    PrepareBranch,
    RollBackBranch,
    TransactionalWrite,
    TransactionId,
    TransactionStep,
)
from holdfast.core.transactions import orphans
from holdfast.core.transactions.orphans import Orphans

GONE = MemberId("gone")
T1, T2, T3 = b"1" * 16, b"2" * 16, b"3" * 16


class Primary(One):
    """The primary of all partitions, in which other members' transactions keep something."""

    def __init__(self) -> None:
        super().__init__()
        self.slow()

    @property
    def orphans(self) -> Orphans:
        return self.transactions.orphans

    def lock(self, partition: int, transaction: TransactionId, owner: MemberId) -> None:
        self.partitions.decide(partition, LockKeys(transaction, owner, [(MAP, key_in(partition))], 1000))

    def prepare(
        self, partition: int, transaction: TransactionId, owner: MemberId, participants: list[int]
    ) -> None:
        writes = [TransactionalWrite(MAP, key_in(partition), b"v")]
        self.partitions.decide(
            partition, PrepareBranch(transaction, owner, participants, writes, [], locked=False)
        )

    def look(self) -> bool:
        more = self.orphans.look()
        self.deliver()
        return more

    def asks(self) -> list[tuple[MemberId, list[TransactionId]]]:
        """Take what other members were asked."""
        sent, self.sent = self.sent, []
        found = []
        for to, message in sent:
            assert isinstance(message, OwnersAsked)
            found.append((to, message.transactions))
        return found

    def steps(self) -> list[tuple[int, TransactionStep]]:
        """Take what partitions are told."""
        return [(asked.partition, asked.step) for asked in self.take()]


def rolled_back(
    transaction: TransactionId, owner: MemberId, partitions: Sequence[int], *, fence: bool = False
) -> list[tuple[int, TransactionStep]]:
    step = RollBackBranch(transaction, owner, list(partitions), fence, only_locks=not fence)
    return [(partition, step) for partition in partitions]


# -- transactions of members that have gone


def test_locks_of_a_member_that_has_gone_are_released_at_once() -> None:
    one = Primary()
    for partition in (4, 1):
        one.lock(partition, T1, GONE)
    one.lock(2, T2, BEN)
    assert one.look() is False
    assert one.orphans.count == 1
    assert one.steps() == rolled_back(T1, GONE, [1, 4])
    assert one.asks() == [], "Ben's was seen just now"


def test_a_prepared_branch_of_a_member_that_has_gone_asks_the_others() -> None:
    one = Primary()
    one.prepare(1, T1, GONE, [1, 2, 5])
    one.lock(3, T1, GONE)
    one.look()
    assert one.steps() == [(each, AskBranch(T1, GONE, [1, 2, 5])) for each in (1, 2, 5)]


@pytest.mark.parametrize("prepared", [1, 2])
def test_a_branch_that_has_an_outcome_counts_more_than_one_that_is_prepared(prepared: int) -> None:
    """Whichever partition is looked at first."""
    committed = 3 - prepared
    one = Primary()
    for partition in (1, 2):
        one.prepare(partition, T1, GONE, [1, 2, 5])
    one.lock(6, T1, GONE)
    one.partitions.decide(committed, CommitBranch(T1))
    one.look()
    assert one.steps() == [
        *((each, CommitBranch(T1)) for each in (1, 2, 5)),
        (6, RollBackBranch(T1, GONE, [1, 2, 5], False)),
    ], "and its locks are released where it has no branch"


@pytest.mark.rule("transactions/F-3")
def test_committed_by_somebody_who_has_gone_it_is_kept_for_two_call_timeouts() -> None:
    one = Primary()
    for partition in (1, 2):
        one.prepare(partition, T1, GONE, [1, 2])
    one.partitions.decide(1, CommitBranch(T1))
    one.look()
    one.serve()
    one.prompt()
    one.pass_time(19_999)
    assert one.partitions.kept == 2
    one.pass_time(1)
    assert one.partitions.kept == 0
    assert [one.partitions.value(each, key_in(each)) for each in (1, 2)] == [b"v"] * 2


def test_a_fence_that_somebody_has_left_is_kept_for_two_call_timeouts() -> None:
    one = Primary()
    one.partitions.decide(1, RollBackBranch(T1, GONE, [1, 2], True))
    one.lock(3, T1, GONE)
    one.look()
    assert one.steps() == rolled_back(T1, GONE, [1, 3], fence=True)
    for asked in one.partitions.asked:
        asked.serve()
    one.look()
    assert one.steps() == [], "while it is being ended it is not ended again"


def test_what_is_being_ended_or_kept_is_not_looked_at_again() -> None:
    one = Primary()
    one.prepare(1, T1, GONE, [1])
    one.lock(2, T2, GONE)
    one.look()
    one.serve()
    one.look()
    assert one.steps() == []


@pytest.mark.parametrize(
    ("end", "counted"), [(None, 1), (CommitBranch(T1), 0), (RollBackBranch(T1, GONE, [1, 2], True), 0)]
)
def test_what_holds_nothing_any_more_is_no_orphan(end: TransactionStep | None, counted: int) -> None:
    """A branch that is prepared holds entries; an outcome is kept for a while, and holds nobody up."""
    one = Primary()
    one.prepare(1, T1, GONE, [1, 2])
    if end is not None:
        one.partitions.decide(1, end)
    one.look()
    assert one.orphans.count == counted
    one.lock(2, T2, GONE)
    one.look()
    assert one.orphans.count == counted + 1, "a lock holds an entry"


def test_a_prepared_branch_holds_entries_without_a_lock_of_its_own() -> None:
    one = Primary()
    one.prepare(1, T1, GONE, [1, 2])
    one.partitions.copies[1].locks.clear()
    one.look()
    assert one.orphans.count == 1


def test_partitions_of_others_are_not_looked_at() -> None:
    one = Primary()
    one.leading[1] = None
    one.lock(1, T1, GONE)
    one.lock(3, T2, GONE)
    one.look()
    assert one.orphans.count == 1
    assert one.steps() == rolled_back(T2, GONE, [3])
    one.leading[1] = one.partitions.copies[1]
    one.look()
    assert one.orphans.count == 2


def test_of_many_so_many_are_begun_at_a_time() -> None:
    one = Primary()
    names = [number.to_bytes(16, "big") for number in range(70)]
    for number, name in enumerate(names):
        entry = (MAP, b"\0\0\0\1%d" % number)
        one.partitions.decide(1, LockKeys(name, GONE, [entry], 1000))
    assert one.look() is True
    assert len(one.partitions.asked) == 32
    one.serve()
    assert one.look() is True
    assert len(one.partitions.asked) == 32
    one.serve()
    assert one.look() is False
    assert len(one.partitions.asked) == 6
    one.serve()
    assert one.look() is False
    assert one.partitions.kept == 0


def test_exactly_so_many_are_no_more() -> None:
    one = Primary()
    for number in range(32):
        entry = (MAP, b"\0\0\0\1%d" % number)
        one.partitions.decide(1, LockKeys(number.to_bytes(16, "big"), GONE, [entry], 1000))
    assert one.look() is False


# -- transactions/R-1: transactions of members that are here


@pytest.mark.rule("transactions/R-1")
def test_a_member_is_asked_about_what_has_been_seen_for_a_while() -> None:
    one = Primary()
    one.lock(1, T1, BEN)
    one.look()
    one.out.now_ns += 1000 * MILLISECOND
    one.lock(2, T2, BEN)
    one.lock(3, T3, CAT)
    one.look()
    one.out.now_ns += 1999 * MILLISECOND
    one.look()
    assert one.asks() == []
    one.out.now_ns += MILLISECOND
    one.look()
    assert one.asks() == [(BEN, [T1])]
    one.out.now_ns += 1000 * MILLISECOND
    one.look()
    assert one.asks() == [(BEN, [T1, T2]), (CAT, [T3])]
    assert one.steps() == []
    assert one.orphans.count == 0


def test_one_that_is_away_for_a_moment_is_seen_from_new() -> None:
    one = Primary()
    one.lock(1, T1, BEN)
    one.look()
    one.out.now_ns += 3000 * MILLISECOND
    one.partitions.decide(1, RollBackBranch(T1, BEN, [1], False))
    one.look()
    one.lock(1, T1, BEN)
    one.look()
    assert one.asks() == []


@pytest.mark.rule("transactions/R-1")
def test_what_its_owner_does_not_run_is_ended() -> None:
    one = Primary()
    one.lock(1, T1, BEN)
    one.lock(2, T2, BEN)
    one.lock(3, T3, CAT)
    one.look()
    one.transactions.on_owners_gone(BEN, OwnersGone([T1, T3, b"?" * 16]))
    one.deliver()
    one.pass_time(10)
    assert one.steps() == rolled_back(T1, BEN, [1]), "Cat's is not Ben's to say"
    one.serve()
    one.look()
    assert one.steps() == []


def test_what_an_owner_has_said_is_forgotten_with_what_it_was_of() -> None:
    """Should the same name come again it would be another question."""
    one = Primary()
    one.lock(1, T1, BEN)
    one.look()
    one.orphans.on_gone(BEN, OwnersGone([T1]))
    one.partitions.decide(1, RollBackBranch(T1, BEN, [1], False))
    one.look()
    one.lock(1, T1, BEN)
    one.look()
    assert one.steps() == []


def test_no_member_is_asked_about_too_many_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(orphans, "ASKED_MAX", 2)
    one = Primary()
    for partition, name in enumerate((T1, T2, T3)):
        one.lock(partition, name, BEN)
    one.lock(5, b"4" * 16, CAT)
    one.look()
    one.out.now_ns += 3000 * MILLISECOND
    one.look()
    assert one.asks() == [(BEN, [T1, T2]), (CAT, [b"4" * 16])]


# -- its own


def test_its_own_are_ended_when_it_does_not_run_them() -> None:
    """A member that has come back from its files with a lock of its life before."""
    one = Primary()
    one.prompt()
    tx = one.begin()
    one.do(tx, Op.SET, key_in(1), b"v")
    one.slow()
    one.lock(2, T1, ME)
    for passed_ms in (0, 2999):
        one.out.now_ns += passed_ms * MILLISECOND
        one.look()
        assert one.steps() == []
    one.out.now_ns += MILLISECOND
    one.look()
    assert one.steps() == rolled_back(T1, ME, [2]), "the other one runs"
    assert one.asks() == []


def test_an_owner_says_which_of_those_that_it_is_asked_about_it_does_not_run() -> None:
    one = Primary()
    one.prompt()
    tx, ending = one.begin(), one.begin()
    one.do(ending, Op.SET, key_in(1), b"v")
    one.slow()
    one.roll_back(ending)
    kept = T3
    one.transactions.finishing.commit(kept, ME, [5], frozenset())
    one.next().serve()
    one.next().serve()
    one.deliver()
    assert not one.transactions.finishing.runs(kept)
    one.transactions.finishing.commit(T2, ME, [5], frozenset())
    one.transactions.on_owners_asked(BEN, OwnersAsked([tx, T1, T2, kept]))
    one.deliver()
    assert one.sent == [(BEN, OwnersGone([T1]))]
    one.sent.clear()
    one.transactions.on_owners_asked(BEN, OwnersAsked([tx, T2]))
    one.deliver()
    assert one.sent == []
