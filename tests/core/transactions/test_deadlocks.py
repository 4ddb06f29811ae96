"""Which transactions wait for each other, and which of them gives way."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.core.transactions.one_member import BEN, CAT, ME, Asked, One, key_in

from holdfast.core.messages import DeadlockFound, LocksAwaited
from holdfast.core.model.decisions import Wait
from holdfast.core.model.ids import SECOND, MemberId
from holdfast.core.model.operations import Op, Request
from holdfast.core.model.transaction_orders import LockWait, TransactionFate
from holdfast.core.model.transactions import TransactionId
from holdfast.core.routing.pending import Parked
from holdfast.core.transactions.deadlocks import circles

OWNERS = {0: ME, 1: BEN, 2: CAT}


def named(number: int, owner: int = 0) -> TransactionId:
    """As coordinators name them: eight bytes of the owner, then how many it had begun."""
    return bytes([255 - owner]) * 8 + number.to_bytes(8, "big")


def owner_of(transaction: TransactionId) -> MemberId:
    return OWNERS[255 - transaction[0]]


def master(**changed: object) -> One:
    return One(ME, BEN, CAT, **changed)


def report(one: One, sender: MemberId, *waits: tuple[TransactionId, TransactionId]) -> None:
    said = [(waiter, owner_of(waiter), holder) for waiter, holder in waits]
    one.transactions.on_awaited(sender, LocksAwaited(said))
    one.deliver()


def found(one: One) -> list[tuple[MemberId, TransactionId, list[TransactionId]]]:
    """Take what the owners of victims were sent."""
    sent, one.sent = one.sent, []
    result = []
    for to, message in sent:
        assert isinstance(message, DeadlockFound)
        result.append((to, message.transaction, message.others))
    return result


# -- the search: against what "in a circle" means

graphs = st.dictionaries(st.integers(0, 11), st.integers(0, 11), max_size=12)


def reached(holders: dict[int, int], start: int) -> list[int]:
    """Whom a transaction waits for, directly or through others, one step after the other."""
    result: list[int] = []
    at: int | None = holders.get(start)
    while at is not None and at not in result:
        result.append(at)
        at = holders.get(at)
    return result


def test_transactions_in_a_row_are_no_circle() -> None:
    a, b, c, d = (named(number) for number in range(4))
    assert circles({}) == []
    assert circles({a: b, b: c, c: d}) == []
    assert circles({a: c, b: c, c: d}) == []


def test_who_waits_for_a_circle_is_not_in_it() -> None:
    a, b, c, d = (named(number) for number in range(4))
    for order in ([a, b, c, d], [d, c, b, a], [b, a, d, c]):
        holders = {a: b, b: c, c: b, d: a}
        [circle] = circles({each: holders[each] for each in order})
        assert sorted(circle) == [b, c]


@given(graphs)
def test_each_circle_is_found_once_and_nothing_else(numbers: dict[int, int]) -> None:
    circling = {each for each in numbers if each in reached(numbers, each)}
    result = circles({named(waiter): named(holder) for waiter, holder in numbers.items()})
    every = [each for circle in result for each in circle]
    assert sorted(every) == sorted(named(each) for each in circling), "each in one circle, and no other one"
    for circle in result:
        for waiter, holder in zip(circle, [*circle[1:], circle[0]], strict=True):
            number = int.from_bytes(waiter[8:], "big")
            assert holder == named(numbers[number]), "each waits for the next"


@pytest.mark.rule("transactions/D-1")
@given(
    graphs,
    st.lists(st.sampled_from([1, 2]), min_size=12, max_size=12),
    st.lists(st.sampled_from([0, 1, 2]), min_size=12, max_size=12),
)
def test_one_of_each_circle_gives_way_and_nobody_else(
    numbers: dict[int, int], owners: list[int], places: list[int]
) -> None:
    """Transactions of two members wait at the partitions of three, in any graph."""
    names = [named(number, owners[number]) for number in range(12)]
    one = master()
    for place in (2, 1, 0):
        one.sent.clear()
        waits = [(names[w], names[h]) for w, h in numbers.items() if places[w] == place]
        report(one, OWNERS[place], *waits, (named(98), named(99)))
    broken: list[list[int]] = []
    for to, victim, others in found(one):
        assert to == owner_of(victim)
        circle = [names.index(each) for each in [victim, *others]]
        assert circle[0] == max(circle), "the one that was begun last"
        assert sorted(circle) == sorted(reached(numbers, circle[0])), (
            "these, and all of these, are the circle"
        )
        broken.append(sorted(circle))
    circles_there = {
        tuple(sorted(reached(numbers, each))) for each in numbers if each in reached(numbers, each)
    }
    assert sorted(map(tuple, broken)) == sorted(circles_there), "one victim for each circle"


def test_the_number_decides_then_the_owner() -> None:
    one = master()
    ours, other = named(5, 1), named(5, 2)
    assert ours > other
    report(one, BEN, (ours, other), (other, ours))
    assert found(one) == [(BEN, ours, [other])]
    low, high = named(1, 1), named(2, 2)
    assert low > high, "as bytes"
    report(one, BEN, (low, high), (high, low))
    assert found(one) == [(CAT, high, [low])]
    highest = named(1 << 56, 2)
    report(one, BEN, (low, highest), (highest, low))
    assert found(one) == [(CAT, highest, [low])]


def test_who_waits_for_itself_is_a_circle_of_one() -> None:
    one = master()
    report(one, BEN, (named(1, 1), named(1, 1)))
    assert found(one) == [(BEN, named(1, 1), [])]


# -- what counts of what members report


A, B, C = named(1, 1), named(2, 1), named(3, 2)


def test_a_circle_over_several_members_is_found_with_the_report_that_closes_it() -> None:
    one = master()
    report(one, BEN, (A, B))
    report(one, CAT, (C, A))
    assert found(one) == []
    report(one, ME, (B, C))
    [(to, victim, others)] = found(one)
    assert (to, victim, sorted(others)) == (CAT, C, sorted([A, B]))


def test_a_report_replaces_the_one_before_of_the_same_member() -> None:
    one = master()
    report(one, BEN, (A, B))
    report(one, BEN, (C, A))
    report(one, CAT, (B, A))
    assert found(one) == [], "A waits no more"
    report(one, BEN)
    report(one, CAT, (A, C))
    assert found(one) == [], "nor does C"
    report(one, BEN, (C, A))
    assert [victim for _, victim, _ in found(one)] == [C]


def test_an_empty_report_of_a_member_that_had_none_is_fine() -> None:
    one = master()
    report(one, BEN)
    report(one, CAT, (B, A), (A, B))
    assert [victim for _, victim, _ in found(one)] == [B]
    report(one, BEN)
    assert found(one) == [], "it closes no circle, and B was told"


def test_of_two_reports_of_one_transaction_the_later_counts() -> None:
    """It waits for one lock at a time: what Ben says of A is out of date when Cat says otherwise."""
    one = master()
    report(one, CAT, (A, C))
    report(one, BEN, (A, B), (B, A))
    assert [victim for _, victim, _ in found(one)] == [B]
    report(one, CAT, (A, C))
    assert found(one) == []
    report(one, BEN, (A, B), (B, A))
    assert [victim for _, victim, _ in found(one)] == [B], "said again, it is the later one"


@pytest.mark.parametrize(("age_ns", "counts"), [(5 * SECOND, True), (5 * SECOND + 1, False)])
def test_a_report_counts_for_so_long(age_ns: int, counts: bool) -> None:
    one = master()
    report(one, BEN, (A, C))
    one.out.now_ns += age_ns
    report(one, CAT, (C, A))
    assert bool(found(one)) is counts


def test_a_report_of_a_member_that_has_gone_does_not_count() -> None:
    one = master()
    report(one, CAT, (A, B))
    one.enter(ME, BEN)
    report(one, BEN, (B, A))
    assert found(one) == []


def test_a_victim_whose_owner_has_gone_is_told_nothing() -> None:
    """The locks that it holds are released by those who find that its owner has gone."""
    one = master()
    one.enter(ME, BEN)
    report(one, BEN, (C, A), (A, C))
    assert found(one) == []


# -- what a member reports


def waiting(one: One, *, partition: int = 3) -> tuple[TransactionId, TransactionId, int]:
    """One transaction of this member waits for another: both, and the token under which it waits."""
    holder, waiter = one.begin(), one.begin()
    one.do(holder, Op.SET, key_in(partition), b"v")
    return holder, waiter, one.operate(waiter, Op.SET, key_in(partition), b"w")


def test_who_waits_for_whom_is_listed_at_once_and_for_how_long() -> None:
    one = One()
    holder, waiter, _ = waiting(one)
    one.out.now_ns += 1_999_999
    entry = ("m", key_in(3))
    assert one.transactions.deadlocks.waits() == [LockWait(waiter, ME, holder, entry, 1)]


def test_what_waits_for_something_else_is_no_wait_for_a_lock() -> None:
    """A write outside of transactions waits for a lock, too, but nobody waits for it."""
    one = One()
    _, waiter, _ = waiting(one)
    [of_waiter] = one.partitions.waiting
    plain = Asked(one.partitions, Request(Op.SET, "m", [3], key_in(3)), of_waiter.within)
    plain.wait = Parked(plain.request, plain.within, 0)
    plain.wait.wait = Wait(1000, holder=waiter, key=("m", key_in(3)))
    one.partitions.waiting.insert(0, plain)
    assert [wait.waiter for wait in one.transactions.deadlocks.waits()] == [waiter]


def test_the_master_is_told_of_long_waits_until_there_is_none() -> None:
    one = One(BEN, ME, transactions={"deadlock_after_ms": 500})
    holder, waiter, _ = waiting(one)
    look = one.transactions.deadlocks.look

    def told() -> list[object]:
        look()
        one.deliver()
        sent, one.sent = one.sent, []
        assert all(to == BEN for to, _ in sent)
        return [message for _, message in sent]

    assert told() == [], "nobody has waited for long"
    one.out.now_ns += 499_999_999
    assert told() == []
    one.out.now_ns += 1
    said = LocksAwaited([(waiter, ME, holder)])
    assert told() == [said]
    assert told() == [said], "again, for what is known there grows old"
    one.roll_back(holder)
    one.serve_waiting()
    assert told() == [LocksAwaited([])], "once, that nobody waits any more"
    assert told() == []


def test_in_no_cluster_nobody_is_told() -> None:
    one = One(BEN, ME)
    waiting(one)
    one.out.now_ns += 10**9
    one.standing.view = None
    one.transactions.deadlocks.look()
    one.deliver()
    assert one.sent == []


def test_the_master_breaks_circles_of_its_own_transactions() -> None:
    one = One(transactions={"deadlock_after_ms": 500})
    first, second, third = one.begin(), one.begin(), one.begin()
    one.do(first, Op.SET, key_in(1), b"1")
    one.do(second, Op.SET, key_in(2), b"2")
    one.do(third, Op.SET, key_in(3), b"3")
    outside = one.begin()
    assert outside > third, "begun last, but outside of the circle"
    waits = [
        one.operate(first, Op.SET, key_in(2), b"x"),
        one.operate(second, Op.SET, key_in(3), b"x"),
        one.operate(third, Op.SET, key_in(1), b"x"),
        one.operate(outside, Op.SET, key_in(1), b"x"),
    ]
    one.pass_time(1000)
    assert [one.fate(each) for each in waits] == [
        None,
        TransactionFate.DONE,
        TransactionFate.ROLLED_BACK,
        None,
    ]
    assert one.answer(waits[2]).why == (
        "a deadlock: 3 transactions wait for each other, and this one gives way; try it again"
    )
    assert one.sent == []


def test_a_victim_of_another_master_gives_way() -> None:
    one = One(BEN, ME)
    holder, waiter, token = waiting(one)
    one.transactions.on_deadlock(BEN, DeadlockFound(waiter, [holder]))
    one.deliver()
    assert one.fate(token) is TransactionFate.ROLLED_BACK
    assert one.answer(token).why.startswith("a deadlock: 2 transactions")
    assert one.transactions.coordinator.running.runs(holder)


def test_a_victim_that_is_over_is_nothing_to_stop() -> None:
    one = One(BEN, ME)
    one.transactions.on_deadlock(BEN, DeadlockFound(A, []))
    one.deliver()
    assert one.sent == []
