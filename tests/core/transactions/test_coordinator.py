"""What a coordinator answers to the operations of its transactions, and what it asks of the partitions for that."""

from __future__ import annotations

from typing import Any

import pytest
from tests.core.transactions.one_member import (
    BEN,
    COUNT,
    MAP,
    ME,
    NOT_READY,
    UNKNOWN,
    One,
    key_in,
)

from holdfast.config import TRANSACTIONS_MAP, MapSettings
from holdfast.core.model.decisions import Update
from holdfast.core.model.ids import MILLISECOND
from holdfast.core.model.operations import DEFAULT_TTL, Op, Outcome, Request, Status
from holdfast.core.model.partition_table import Assignment
from holdfast.core.model.records import Change
from holdfast.core.model.topology import UNKNOWN_TOPOLOGY, MappedOn, TopologyVersion
from holdfast.core.model.transaction_orders import (
    BeginTransaction,
    RunningTransaction,
    StoreTogether,
    TransactionFate,
)
from holdfast.core.model.transactions import (
    EntryKey,
    LockKeys,
    PrepareBranch,
    RollBackBranch,
    StepFate,
    TransactionalWrite,
    ValueSeen,
)
from holdfast.core.transactions import running_transactions, transaction_operations
from holdfast.core.transactions.two_phase_commit import CHECK_WAIT_MS

K1, K2, K3 = key_in(1), key_in(2), key_in(3)
NEAR = key_in(1, 1)
"""In the same partition as K1."""
DONE, NOT_DONE, ROLLED_BACK, NOT_ACTIVE = (
    TransactionFate.DONE,
    TransactionFate.NOT_DONE,
    TransactionFate.ROLLED_BACK,
    TransactionFate.NOT_ACTIVE,
)


def hold(one: One, partition: int, key: bytes, value: bytes | None, name: str = MAP) -> None:
    """Somebody else changes an entry, outside of any transaction."""
    update = (
        Update(Change.REMOVE, key, map=name) if value is None else Update(Change.SET, key, value, map=name)
    )
    one.partitions.change(partition, update)


def listed(one: One) -> list[RunningTransaction]:
    return one.transactions.coordinator.running.told()


def locked(one: One) -> list[EntryKey]:
    """What is locked, anywhere."""
    found = []
    for partition in range(COUNT):
        branches = one.partitions.branches(partition)
        found += [(MAP, key) for key in (key_in(partition, n) for n in range(3)) if branches.lock(MAP, key)]
    return found


# -- begin


def test_each_transaction_has_an_id_of_its_own_that_names_its_member() -> None:
    one, other = One(), One()
    first, second = one.begin(), one.begin()
    assert len(first) == len(second) == 16
    assert first[:8] == second[:8] == other.begin()[:8]
    assert [int.from_bytes(each[8:], "big") for each in (first, second)] == [1, 2]
    assert one.running == 2
    runs = one.transactions.coordinator.running.runs
    assert [runs(first), runs(b"0" * 16)] == [True, False]
    assert one.timer_ms == 250


@pytest.mark.parametrize(
    ("wanted", "timeout_ms"),
    [(0, 120_000), (-1, 120_000), (1, 1), (300_000, 300_000), (600_000, 600_000), (600_001, 600_000)],
)
def test_a_timeout_is_bounded(wanted: int, timeout_ms: int) -> None:
    one = One()
    one.begin(timeout_ms=wanted)
    assert listed(one)[0].timeout_ms == timeout_ms


def test_no_more_run_than_may(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running_transactions, "RUNNING_MAX", 2)
    one = One()
    first = one.begin()
    one.begin()
    answer = one.answer(one.order(BeginTransaction()))
    assert (answer.fate, answer.why) == (NOT_DONE, "2 transactions run on this member already")
    one.roll_back(first)
    one.begin()


def test_operators_see_what_runs() -> None:
    one = One()
    one.out.now_ns += 1
    first = one.begin(label="x" * 201, optimistic=True)
    one.out.now_ns += 5 * MILLISECOND - 1
    second = one.begin(timeout_ms=1000)
    one.out.now_ns += 3 * MILLISECOND
    assert listed(one) == [
        RunningTransaction(first, ME, "active", 7, 120_000, True, "x" * 200, [], 0, []),
        RunningTransaction(second, ME, "active", 3, 1000, False, "", [], 0, []),
    ]
    assert one.transactions.coordinator.running.oldest_ms == 7
    one.roll_back(first)
    assert one.transactions.coordinator.running.oldest_ms == 3
    one.roll_back(second)
    assert one.transactions.coordinator.running.oldest_ms == 0
    one.table.apply(3, Assignment(5, (ME,)))
    third = one.begin()
    keys = [key_in(partition, number) for number in range(2) for partition in reversed(range(COUNT))]
    for key in keys:
        one.do(third, Op.SET, key, b"v")
    [shown] = listed(one)
    assert shown.keys == [(MAP, key) for key in keys[:10]]
    assert shown.entries == 14
    assert shown.partitions == list(range(COUNT))
    assert shown.topology == TopologyVersion(5, one.table.version)


# -- one operation: what is locked, and what is read


def asks(one: One, *chosen: Any, **more: Any) -> list[str]:
    """What an operation asks of partitions; all of it is served."""
    one.slow()
    token = one.operate(*chosen, **more)
    found = []
    while one.partitions.asked:
        asked = one.next()
        request = asked.request
        found.append("lock" if request.op is Op.TRANSACT else request.op.name)
        asked.serve()
        one.deliver()
    assert one.fate(token) is DONE, one.answers[token]
    return found


READING = [Op.GET, Op.CONTAINS_KEY]
CHANGING = [
    Op.PUT, Op.SET, Op.TRY_PUT, Op.PUT_IF_ABSENT, Op.REPLACE, Op.REPLACE_IF_SAME,
    Op.REMOVE, Op.DELETE, Op.TRY_REMOVE, Op.REMOVE_IF_SAME,
]  # fmt: skip


@pytest.mark.rule("transactions/C-1")
@pytest.mark.parametrize("op", CHANGING)
@pytest.mark.parametrize("repeatable", [False, True])
def test_an_entry_is_locked_before_it_is_changed(op: Op, repeatable: bool) -> None:
    one = One()
    tx = one.begin(repeatable=repeatable)
    for key in (key_in(0), K1):
        assert asks(one, tx, op, key, b"v", expected=b"old") == ["lock"]
        assert asks(one, tx, op, key, b"w", expected=b"v") == [], "once"
        assert asks(one, tx, Op.GET, key) == []
    assert locked(one) == [(MAP, key_in(0)), (MAP, K1)]


@pytest.mark.rule("transactions/C-1")
@pytest.mark.parametrize("op", READING)
@pytest.mark.parametrize(
    ("repeatable", "for_update", "locks"),
    [(False, False, False), (False, True, True), (True, False, True), (True, True, True)],
)
def test_an_entry_is_locked_when_it_is_read_for_that(
    op: Op, repeatable: bool, for_update: bool, locks: bool
) -> None:
    one = One()
    tx = one.begin(repeatable=repeatable)
    again = ["lock"] if locks else ["GET"]
    assert asks(one, tx, op, K1, for_update=for_update) == again
    assert locked(one) == ([(MAP, K1)] if locks else [])
    assert asks(one, tx, op, K1, for_update=for_update) == ([] if locks else ["GET"])
    assert asks(one, tx, Op.SET, K1, b"v") == ([] if locks else ["lock"])


@pytest.mark.rule("transactions/C-2")
def test_an_optimistic_one_reads_each_entry_once_and_locks_none() -> None:
    one = One()
    hold(one, 1, K1, b"old")
    tx = one.begin(optimistic=True)
    assert asks(one, tx, Op.GET, K1, for_update=True) == ["GET"]
    assert asks(one, tx, Op.PUT, K1, b"v") == []
    assert asks(one, tx, Op.SET, K2, b"w") == [], "a blind write reads nothing"
    assert asks(one, tx, Op.GET, K2) == [], "it is its own"
    assert asks(one, tx, Op.PUT, K3, b"x") == ["GET"], "what was there is answered"
    assert locked(one) == []
    one.serve()
    hold(one, 1, K1, b"other")
    assert one.do(tx, Op.GET, K1) == b"v"


def test_a_read_that_locks_nothing_sees_what_is_committed_now() -> None:
    one = One()
    tx = one.begin()
    hold(one, 1, K1, b"1")
    assert one.do(tx, Op.GET, K1) == b"1"
    hold(one, 1, K1, b"2")
    assert one.do(tx, Op.GET, K1) == b"2"
    assert one.do(tx, Op.CONTAINS_KEY, K1) is True
    assert one.do(tx, Op.CONTAINS_KEY, K2) is False
    assert one.do(tx, Op.PUT, K1, b"3") == b"2"
    assert one.do(tx, Op.GET, K1) == b"3", "its own write"


def test_what_a_lock_asks_for() -> None:
    one = One(transactions={"lock_wait_ms": 30_000})
    one.slow()
    tx = one.begin(timeout_ms=40_000)
    one.operate(tx, Op.SET, K1, b"v")
    mapped = MappedOn(TopologyVersion(5, one.table.version), 1, False)
    asked = one.next()
    assert asked.step == LockKeys(tx, ME, [(MAP, K1)], 30_000, mapped)
    assert (asked.partition, asked.request.map, asked.request.id) == (1, TRANSACTIONS_MAP, b"")
    asked.serve()
    one.deliver()
    one.out.now_ns += 10_001 * MILLISECOND
    one.operate(tx, Op.SET, K2, b"v")
    asked = one.next()
    assert asked.step == LockKeys(tx, ME, [(MAP, K2)], 29_999, MappedOn(mapped.topology, 1, True)), (
        "no longer than until its own end; and it holds a lock now"
    )
    asked.serve()
    one.deliver()
    one.out.now_ns += 29_999 * MILLISECOND - 1
    one.operate(tx, Op.SET, K3, b"v")
    step = one.next().step
    assert isinstance(step, LockKeys)
    assert step.wait_ms == 1, "one that waits waits"


@pytest.mark.rule("transactions/P-1")
def test_it_is_mapped_on_the_topology_of_its_first_lock() -> None:
    one = One()
    tx = one.begin()
    assert listed(one)[0].topology == UNKNOWN_TOPOLOGY
    first = TopologyVersion(5, one.table.version)
    one.do(tx, Op.SET, K1, b"v")
    one.table.apply(2, Assignment(9, (BEN,)))
    one.do(tx, Op.SET, K2, b"v")
    assert one.table.version > first.minor
    assert listed(one)[0].topology == first


@pytest.mark.rule("transactions/P-1")
def test_one_that_is_sent_back_asks_again_when_its_member_knows_why() -> None:
    one = One()
    tx = one.begin()
    one.partitions.copies[1].term = 9
    token = one.operate(tx, Op.PUT, K1, b"v")
    assert one.fate(token) is None
    assert one.timer_ms == 5
    one.slow()
    one.pass_time(1000)
    assert one.timer_ms == 5
    one.table.apply(1, Assignment(8, (BEN,)))
    one.pass_time(5)
    assert one.partitions.asked == [], "it knows less than that"
    one.table.apply(1, Assignment(9, (BEN,)))
    one.pass_time(5)
    one.pass_time(250)
    assert len(one.partitions.asked) == 1
    one.prompt()
    one.serve()
    assert one.answer(token).fate is DONE
    assert listed(one)[0].topology == TopologyVersion(5, one.table.version)
    assert locked(one) == [(MAP, K1)]
    assert one.fate(one.commit(tx)) is DONE
    assert one.partitions.kept == 0


def test_one_that_ends_while_it_waits_for_the_topology_is_forgotten_there() -> None:
    one = One()
    one.partitions.copies[1].term = 9
    first, second = one.begin(), one.begin()
    tokens = [one.operate(each, Op.SET, K1, b"v") for each in (first, second)]
    one.roll_back(first)
    assert one.fate(tokens[0]) is ROLLED_BACK
    one.pass_time(5)
    one.table.apply(1, Assignment(9, (BEN,)))
    one.pass_time(5)
    assert one.fate(tokens[1]) is DONE
    one.roll_back(second)
    one.pass_time(250)
    assert one.timer_ms is None, "nobody waits for it any more"
    assert one.partitions.kept == 0


def test_one_that_is_rolled_back_while_it_waits_for_the_topology_is_forgotten_there() -> None:
    one = One()
    tx = one.begin()
    one.do(tx, Op.SET, K2, b"v")
    one.partitions.copies[1].term = 9
    asked = one.transactions.coordinator.operations._unmapped
    one.transactions.coordinator.running.by_id[tx].holds = False
    one.operate(tx, Op.SET, K1, b"v")
    assert list(asked) == [tx]
    one.slow()
    one.roll_back(tx)
    one.pass_time(5)
    assert list(asked) == []
    one.table.apply(1, Assignment(9, (BEN,)))
    one.pass_time(5)
    one.serve()
    assert (one.running, one.partitions.kept) == (0, 0)


def test_operations_of_one_transaction_are_done_one_after_the_other() -> None:
    one = One()
    one.slow()
    tx = one.begin()
    first = one.operate(tx, Op.PUT, K1, b"1")
    second = one.operate(tx, Op.PUT, K1, b"2")
    third = one.operate(tx, Op.PUT, K2, b"3")
    fourth = one.operate(tx, Op.PUT, K1, b"4")
    lock, ahead = one.take()
    assert (lock.partition, ahead.partition) == (1, 2)
    lock.serve()
    one.deliver()
    assert [one.answer(token).value for token in (first, second)] == [None, b"1"]
    assert (one.fate(third), one.fate(fourth)) == (None, None)
    ahead.serve()
    one.deliver()
    assert one.answer(fourth).value == b"2"


def test_an_operation_that_fails_ends_nothing() -> None:
    """Which was not done, and says why."""
    one = One()
    one.slow()
    tx = one.begin()
    for outcome, why in ((UNKNOWN, "nobody knows"), (Outcome(Status.LOST), "LOST")):
        token = one.operate(tx, Op.GET, K1)
        one.next().answer(outcome)
        one.deliver()
        assert (one.answer(token).fate, one.answer(token).why) == (NOT_DONE, why)
        token = one.operate(tx, Op.SIZE)
        one.next().answer(outcome)
        one.deliver()
        assert one.fate(token) is NOT_DONE
    one.prompt()
    assert one.do(tx, Op.PUT, K1, b"v") is None


# -- operations on whole maps


def test_whole_maps_are_seen_with_its_own_writes() -> None:
    one = One(maps={"n": MapSettings()})
    for key, value in ((K1, b"1"), (K2, b"2")):
        hold(one, 1 if key is K1 else 2, key, value)
    tx = one.begin()
    one.do(tx, Op.DELETE, K1)
    one.do(tx, Op.SET, K3, b"3")
    one.do(tx, Op.SET, NEAR, b"other map", name="n")
    one.do(tx, Op.GET, NEAR, for_update=True)
    assert one.do(tx, Op.SIZE) == 2
    assert one.do(tx, Op.IS_EMPTY) is False
    assert sorted(one.do(tx, Op.KEYS)) == sorted([K2, K3])
    assert sorted(one.do(tx, Op.VALUES)) == [b"2", b"3"]
    assert one.do(tx, Op.ENTRIES) in ([K2, b"2", K3, b"3"], [K3, b"3", K2, b"2"])
    assert one.do(tx, Op.CONTAINS_VALUE, value=b"3") is True
    assert one.do(tx, Op.CONTAINS_VALUE, value=b"1") is False
    assert one.do(tx, Op.SIZE, name="n") == 1


@pytest.mark.parametrize(
    ("op", "asked"),
    [
        (Op.SIZE, Op.KEYS),
        (Op.IS_EMPTY, Op.KEYS),
        (Op.KEYS, Op.KEYS),
        (Op.VALUES, Op.ENTRIES),
        (Op.ENTRIES, Op.ENTRIES),
        (Op.CONTAINS_VALUE, Op.ENTRIES),
    ],
)
def test_no_more_is_asked_of_all_partitions_than_is_needed(op: Op, asked: Op) -> None:
    one = One()
    one.slow()
    one.operate(one.begin(), op)
    assert one.next().request == Request(asked, MAP, list(range(COUNT)))


# -- what no transaction does


def refusal(one: One, *chosen: Any, **more: Any) -> str:
    """Why an operation is not done; the transaction goes on."""
    tx = one.begin()
    token = one.operate(tx, *chosen, **more)
    assert one.fate(token) is NOT_DONE
    assert one.do(tx, Op.GET, K1) is None
    one.roll_back(tx)
    return one.answer(token).why


@pytest.mark.parametrize("op", [Op.CLEAR, Op.EVICT_ALL, Op.SET_TTL, Op.EVICT, Op.ENTRY_VIEW, Op.PUT_ALL])
def test_some_operations_are_not_done_in_transactions(op: Op) -> None:
    assert refusal(One(), op, K1) == f"{op.name} is not done in a transaction"


def test_maps_that_take_no_part_are_refused() -> None:
    reasons = {
        "other": "maps.other.transactional (or maps.default.transactional) is false",
        "zoned": "there is no zone 'z'",
        TRANSACTIONS_MAP: "it is Holdfast's own",
    }
    one = One(maps={"zoned": MapSettings(raft_zone="z"), TRANSACTIONS_MAP: MapSettings()})
    for name, reason in reasons.items():
        why = f"the map {name!r} takes no part in transactions: {reason}"
        for op in (Op.GET, Op.SET, Op.SIZE, Op.KEYS):
            assert refusal(one, op, K1, name=name) == why
        stored = one.answer(one.order(StoreTogether(name, [K1], [b"v"])))
        assert (stored.fate, stored.why) == (NOT_DONE, why)
    assert one.partitions.kept == 0


def test_keys_and_values_are_bounded() -> None:
    one = One(limits={"key_bytes": 100, "value_bytes": 200})
    key = K1 + b"x" * (100 - len(K1))
    tx = one.begin()
    one.do(tx, Op.SET, key, b"v" * 200)
    assert refusal(one, Op.SET, key + b"x") == "the key has 101 bytes; limits.key_bytes is 100"
    assert refusal(one, Op.SET, K2, b"v" * 201) == "the value has 201 bytes; limits.value_bytes is 200"


def test_what_is_refused_outside_of_transactions_is_refused_in_them() -> None:
    one = One()
    one.partitions.refuses = lambda request: (
        Outcome(Status.LOST, None, "lost") if 2 in request.partitions else None
    )
    assert refusal(one, Op.GET, K2) == refusal(one, Op.SET, K2, b"v") == "LOST: lost"
    assert refusal(one, Op.SIZE) == "LOST: lost", "of all partitions"
    one.do(one.begin(), Op.SET, K3, b"v")


def test_a_key_with_a_hash_of_its_own_is_in_the_partition_of_that() -> None:
    one = One()
    one.partitions.refuses = lambda request: None if request.partitions == [4] else NOT_READY
    tx = one.begin()
    assert asks(one, tx, Op.GET, K1, key_hash=4) == ["GET"]
    assert asks(one, tx, Op.SET, K1, b"v", key_hash=4) == ["lock"]
    optimistic = one.begin(optimistic=True)
    one.slow()
    one.operate(optimistic, Op.GET, K1, key_hash=4)
    asked = one.next()
    assert asked.request == Request(Op.GET, MAP, [4], key=K1, key_hash=4)
    asked.serve()
    one.deliver()
    assert [each.partitions for each in listed(one)] == [[4], [4]]
    one.prompt()
    one.do(optimistic, Op.SET, NEAR, b"v", key_hash=4)
    assert listed(one)[1].partitions == [4]
    one.commit(tx)
    assert one.partitions.value(4, K1) == b"v"
    held = one.partitions.copies[4].maps[MAP].state
    assert held.hashes.get(K1) == 4


# -- transactions/C-6


@pytest.mark.rule("transactions/C-6")
def test_no_transaction_touches_more_entries_than_may(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transaction_operations, "KEYS_MAX", 2)
    one = One()
    tx = one.begin()
    one.do(tx, Op.SET, K1, b"v")
    one.do(tx, Op.SET, K2, b"v")
    token = one.operate(tx, Op.SET, K3, b"v")
    assert (one.fate(token), one.answer(token).why) == (NOT_DONE, "a transaction touches at most 2 entries")
    assert one.fate(one.commit(tx)) is DONE


LIMITS = {"key_bytes": 100, "value_bytes": 60_000, "frame_bytes": 65_536, "waiting_bytes": 120_000}


@pytest.mark.rule("transactions/C-6")
def test_what_one_keeps_is_bounded_to_the_byte() -> None:
    one = One(limits=LIMITS)
    tx = one.begin()
    one.do(tx, Op.SET, K1, b"x" * 60_000)
    left = 65_536 - 60_000 - 500 - len(K1) - 500 - len(K2)
    token = one.operate(tx, Op.SET, K2, b"x" * (left + 1))
    assert one.fate(token) is NOT_DONE
    assert one.answer(token).why == "a transaction keeps at most 65536 bytes (limits.frame_bytes)"
    one.do(tx, Op.SET, K2, b"x" * left)
    token = one.operate(tx, Op.GET, K3, for_update=True)
    assert one.fate(token) is NOT_DONE, "what it locks counts, too"
    assert one.fate(one.commit(tx)) is DONE


@pytest.mark.rule("transactions/C-6")
def test_what_all_keep_is_bounded_to_the_byte_and_given_back() -> None:
    one = One(limits=LIMITS)
    first, second = one.begin(), one.begin()
    one.do(first, Op.SET, K1, b"x" * 60_000)
    left = 120_000 - 60_000 - 500 - len(K1) - 500 - len(K2)
    token = one.operate(second, Op.SET, K2, b"x" * (left + 1))
    assert one.fate(token) is NOT_DONE
    assert one.answer(token).why == (
        "the transactions of this member keep 120000 bytes already (limits.waiting_bytes)"
    )
    one.do(second, Op.SET, K2, b"x" * left)
    assert one.fate(one.operate(second, Op.SET, K3)) is NOT_DONE
    third = one.begin()
    assert one.fate(one.operate(third, Op.SET, K3)) is NOT_DONE
    one.roll_back(first)
    one.do(third, Op.SET, K3, b"x" * 59_000)
    one.commit(second)
    one.commit(third)
    assert one.transactions.coordinator.running.size == 0


@pytest.mark.rule("transactions/C-6")
def test_what_was_read_counts_and_what_is_written_over_does_not() -> None:
    one = One(limits=LIMITS)
    hold(one, 1, K1, b"x" * 30_000)
    keeper = one.transactions.coordinator.running
    for chosen in ({}, {"optimistic": True}):
        tx = one.begin(**chosen)
        one.do(tx, Op.GET, K1, for_update=True)
        assert keeper.size == 500 + len(K1) + 30_000
        one.do(tx, Op.SET, K1, b"y" * 1000)
        assert keeper.size == 500 + len(K1) + 31_000
        one.do(tx, Op.SET, K1, b"y" * 10)
        assert keeper.size == 500 + len(K1) + 30_010
        one.do(tx, Op.REMOVE, K1)
        assert keeper.size == 500 + len(K1) + 30_000
        one.do(tx, Op.GET, K1)
        assert keeper.size == 500 + len(K1) + 30_000
        one.roll_back(tx)
        assert keeper.size == 0
    reader = one.begin()
    one.do(reader, Op.GET, K1)
    assert keeper.size == 0, "of what it locks not, it keeps nothing"
    one.do(reader, Op.SET, K2, b"z")
    assert keeper.size == 500 + len(K2) + 1


# -- one that is over


def test_a_transaction_that_is_not_there_is_not_active() -> None:
    one = One()
    tx = one.begin()
    one.commit(tx)
    why = "there is no such transaction, or it has ended"
    for token in (one.operate(tx, Op.GET, K1), one.commit(tx), one.roll_back(tx), one.commit(b"0" * 16)):
        assert (one.answer(token).fate, one.answer(token).why) == (NOT_ACTIVE, why)


def test_one_that_is_given_up_takes_nothing_from_others() -> None:
    one = One()
    one.slow()
    first, second = one.begin(), one.begin()
    token = one.operate(first, Op.SET, K1, b"v")
    one.transactions.coordinator.commits.roll_back(second, "x", None)
    one.deliver()
    assert one.running == 1
    one.serve()
    assert one.fate(token) is DONE


def test_why_one_was_rolled_back_is_told_to_who_comes_later() -> None:
    one = One()
    tx = one.begin()
    one.do(tx, Op.SET, K1, b"v")
    assert one.fate(one.roll_back(tx, "because")) is DONE
    for token in (one.operate(tx, Op.GET, K1), one.commit(tx)):
        assert (one.answer(token).fate, one.answer(token).why) == (ROLLED_BACK, "because")
    assert (one.fate(one.roll_back(tx)), one.answer(one.roll_back(tx)).why) == (DONE, "because")
    assert one.partitions.kept == 0
    assert one.partitions.value(1, K1) is None


def test_the_owner_needs_no_reason_and_others_are_cut() -> None:
    one = One()
    tx = one.begin()
    one.roll_back(tx)
    assert one.answer(one.commit(tx)).why == "its owner rolled it back"
    tx = one.begin()
    one.roll_back(tx, "x" * 201)
    assert one.answer(one.commit(tx)).why == "x" * 200


def test_of_so_many_it_is_known_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running_transactions, "ENDED_MAX", 2)
    one = One()
    ids = [one.begin() for _ in range(4)]
    one.commit(ids[0])
    for tx in ids[1:]:
        one.roll_back(tx)
    for _ in range(3):
        one.commit(one.begin())
    assert [one.fate(one.commit(tx)) for tx in ids] == [NOT_ACTIVE, NOT_ACTIVE, ROLLED_BACK, ROLLED_BACK]


# -- what is rolled back


def test_who_waits_for_an_operation_is_told_that_it_was_rolled_back() -> None:
    one = One()
    one.slow()
    tx = one.begin()
    waiting = [one.operate(tx, Op.SET, key, b"v") for key in (K1, K2, K3)]
    assert one.fate(one.roll_back(tx, "because")) is DONE
    assert [(one.answer(token).fate, one.answer(token).why) for token in waiting] == [
        (ROLLED_BACK, "because")
    ] * 3
    assert one.transactions.coordinator.running.of_ticket == {}
    *locks, first, second, third = one.take()
    for partition, release in enumerate((first, second, third), 1):
        assert (release.partition, release.step) == (partition, RollBackBranch(tx, ME, [1, 2, 3], True))
        release.serve()
    one.deliver()
    assert one.running == 0
    for lock in locks:
        lock.serve()
    one.deliver()
    assert one.partitions.kept == 3, "the fences alone: the locks came too late"
    assert locked(one) == []
    assert one.transactions.steps.waiting == 0


def test_who_was_told_of_a_rollback_is_not_told_again_when_its_member_is_removed() -> None:
    one = One()
    one.do(tx := one.begin(), Op.SET, K2, b"v")
    one.slow()
    waiting = [one.operate(tx, Op.SET, key, b"v") for key in (K1, K3)]
    one.roll_back(tx, "because")
    one.transactions.coordinator.removed()
    one.deliver()
    assert [one.answer(token).why for token in waiting] == ["because"] * 2


def test_one_that_locked_nothing_has_nothing_to_release() -> None:
    one = One()
    tx = one.begin(optimistic=True)
    one.do(tx, Op.SET, K1, b"v")
    one.do(tx, Op.GET, K2)
    one.slow()
    one.roll_back(tx)
    assert (one.partitions.asked, one.running) == ([], 0)


@pytest.mark.parametrize("partition", [0, 1])
@pytest.mark.parametrize("locks_first", [True, False])
def test_a_lock_on_its_way_is_fenced(locks_first: bool, partition: int) -> None:
    """Nobody knows whether the request was carried out, or when it will be. It holds nothing afterwards."""
    one = One()
    one.do(tx := one.begin(), Op.SET, K2, b"v")
    one.slow()
    token = one.operate(tx, Op.SET, key_in(partition), b"v")
    lock = one.next(LockKeys)
    if locks_first:
        lock.carry_out()
    lock.answer(UNKNOWN)
    one.deliver()
    assert (one.fate(token), one.answer(token).why) == (
        ROLLED_BACK,
        "an entry could not be locked: nobody knows",
    )
    released = {asked.partition: asked for asked in one.take()}
    assert {place: asked.step for place, asked in released.items()} == {
        partition: RollBackBranch(tx, ME, [partition, 2], True),
        2: RollBackBranch(tx, ME, [partition, 2], False),
    }
    for asked in released.values():
        asked.serve()
    one.deliver()
    if not locks_first:
        lock.carry_out()
    one.prompt()
    one.pass_time(30_000)
    assert one.partitions.kept == 0
    assert one.running == 0


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (Outcome(Status.LOST), "an entry could not be locked: LOST"),
        (StepFate.OVER, "an entry could not be locked: OVER"),
        (StepFate.REFUSED, "an entry could not be locked: REFUSED x"),
        (
            StepFate.LOCKED,
            f"transaction {b'h'.hex()} held a lock for longer than 7000 ms (transactions.lock_wait_ms)",
        ),
    ],
)
def test_one_that_gets_no_lock_is_rolled_back(answer: Outcome | StepFate, why: str) -> None:
    one = One(transactions={"lock_wait_ms": 7000})
    one.slow()
    tx = one.begin()
    token = one.operate(tx, Op.SET, K1, b"v")
    later = one.operate(tx, Op.SET, K2, b"v")
    if isinstance(answer, Outcome):
        one.next().answer(answer)
    else:
        one.next().fate(answer, holder=b"h", why="x" if answer is StepFate.REFUSED else "")
    one.deliver()
    for each in (token, later):
        assert (one.answer(each).fate, one.answer(each).why) == (ROLLED_BACK, why)
    _, *releases = one.take()
    assert [each.step for each in releases] == [RollBackBranch(tx, ME, [1, 2], True)] * 2


def test_who_waits_longer_for_a_lock_than_it_may_is_rolled_back() -> None:
    one = One(transactions={"lock_wait_ms": 7000})
    first, second = one.begin(), one.begin()
    one.do(first, Op.SET, K1, b"v")
    token = one.operate(second, Op.SET, K1, b"w")
    one.pass_time(6999)
    assert one.fate(token) is None
    one.pass_time(1)
    assert one.fate(token) is ROLLED_BACK
    assert first.hex() in one.answer(token).why
    assert locked(one) == [(MAP, K1)]
    assert one.fate(one.commit(first)) is DONE


def test_a_wait_cut_short_by_the_timeout_is_not_blamed_on_the_setting() -> None:
    one = One(transactions={"lock_wait_ms": 7000})
    one.slow()
    tx = one.begin(timeout_ms=2000)
    one.pass_time(500)
    token = one.operate(tx, Op.SET, K1, b"v")
    one.next().fate(StepFate.LOCKED, holder=b"h")
    one.deliver()
    held = f"transaction {b'h'.hex()} held a lock for longer than 1500 ms"
    assert one.answer(token).why == f"{held} (the rest of this transaction's timeout)"


def test_one_without_locks_is_over_at_once() -> None:
    one = One()
    one.slow()
    tx = one.begin()
    one.operate(tx, Op.GET, K1)
    one.roll_back(tx)
    assert one.running == 0
    read = one.next()
    assert one.partitions.asked == []
    read.serve()
    one.deliver()
    assert one.transactions.steps.waiting == 0


@pytest.mark.rule("transactions/C-5")
@pytest.mark.parametrize("busy", [False, True])
def test_one_whose_time_is_over_is_rolled_back(busy: bool) -> None:
    one = One()
    tx = one.begin(timeout_ms=1000)
    one.do(tx, Op.SET, K1, b"v")
    one.slow()
    token = one.operate(tx, Op.SET, K2, b"v") if busy else 0
    one.pass_time(999)
    assert listed(one)[0].phase == "active"
    one.pass_time(1)
    assert listed(one)[0].phase == "rolling back"
    why = "it did not end within its timeout: 1000 ms have passed"
    if busy:
        assert (one.answer(token).fate, one.answer(token).why) == (ROLLED_BACK, why)
    late = one.commit(tx)
    assert (one.answer(late).fate, one.answer(late).why) == (ROLLED_BACK, why)
    assert one.answer(one.roll_back(tx)).fate is DONE
    assert one.answer(one.roll_back(tx)).why == why
    one.prompt()
    one.serve()
    assert (one.running, one.partitions.kept) == (0, 1 if busy else 0)


def test_the_timer_runs_while_a_transaction_does() -> None:
    one = One()
    tx = one.begin()
    one.pass_time(10_000)
    assert one.timer_ms == 250
    one.roll_back(tx)
    one.pass_time(250)
    assert one.timer_ms is None


# -- entries that are stored together


def test_entries_are_stored_together_in_a_transaction_of_their_own() -> None:
    one = One(maps={MAP: MapSettings(ttl_ms=5, max_idle_ms=6)})
    one.slow()
    token = one.order(
        StoreTogether(MAP, [K1, K2, K1], [b"1", b"2", b"3"], ttls_ms=[10, DEFAULT_TTL, 30], label="load")
    )
    [shown] = listed(one)
    assert (shown.optimistic, shown.label, shown.entries, shown.timeout_ms) == (True, "load", 2, 120_000)
    steps = [asked.step for asked in one.partitions.asked]
    tx, mapped = shown.transaction, MappedOn(TopologyVersion(5, one.table.version), 1, False)
    assert steps == [
        PrepareBranch(tx, ME, [1, 2], [TransactionalWrite(MAP, K1, b"3", 30, 6)], [], False, mapped),
        PrepareBranch(tx, ME, [1, 2], [TransactionalWrite(MAP, K2, b"2", 5, 6)], [], False, mapped),
    ]  # fmt: skip
    assert one.transactions.coordinator.running.size == 3 * (500 + len(K1) + 1)
    one.serve()
    assert one.fate(token) is DONE
    assert one.partitions.value(1, K1) == b"3"
    one.pass_time(2500)
    one.serve()
    assert one.partitions.kept == 0
    assert one.transactions.coordinator.running.size == 0


def test_without_entries_it_is_asked_whether_the_map_would_take_part() -> None:
    one = One()
    assert one.fate(one.order(StoreTogether(MAP, [], []))) is DONE
    assert one.running == 0


def test_of_entries_that_are_stored_together_all_may_be_or_none() -> None:
    one = One(limits=LIMITS)
    token = one.order(StoreTogether(MAP, [K1, K2], [b"v", b"x" * 60_001]))
    assert (one.fate(token), one.answer(token).why) == (
        NOT_DONE,
        "the value has 60001 bytes; limits.value_bytes is 60000",
    )
    token = one.order(StoreTogether(MAP, [K1, K2], [b"x" * 60_000, b"x" * 5000]))
    assert (one.fate(token), "limits.frame_bytes" in one.answer(token).why) == (NOT_DONE, True)
    assert (one.running, one.partitions.kept, one.transactions.coordinator.running.size) == (0, 0, 0)
    assert one.partitions.value(1, K1) is None


@pytest.mark.rule("transactions/C-6")
def test_what_there_is_no_room_for_now_may_come_again(monkeypatch: pytest.MonkeyPatch) -> None:
    one = One(limits=LIMITS)
    crowded = "the transactions of this member keep as much as they may just now (limits.waiting_bytes)"
    tx = one.begin()
    one.do(tx, Op.SET, K1, b"x" * 60_000)
    left = 120_000 - 60_000 - 500 - len(K1) - 500 - len(K2)
    token = one.order(StoreTogether(MAP, [K2], [b"x" * (left + 1)]))
    assert (one.fate(token), one.answer(token).why) == (ROLLED_BACK, crowded)
    assert one.fate(one.order(StoreTogether(MAP, [K2], [b"x" * left]))) is DONE
    one.roll_back(tx)
    wide = StoreTogether(MAP, [K1, K2, K3], [b"x" * 50_000] * 3)
    assert one.fate(one.order(wide)) is NOT_DONE, "there never is room for this"
    monkeypatch.setattr(running_transactions, "RUNNING_MAX", 1)
    assert one.fate(one.order(StoreTogether(MAP, [K2], [b"w"]))) is DONE
    one.begin()
    token = one.order(StoreTogether(MAP, [K2], [b"w"]))
    assert (one.fate(token), one.answer(token).why) == (ROLLED_BACK, crowded)


def test_optimistic_branches_say_what_was_read() -> None:
    one = One()
    hold(one, 1, K1, b"old")
    tx = one.begin(optimistic=True)
    one.do(tx, Op.GET, K1)
    one.do(tx, Op.PUT, K2, b"new", ttl_ms=7, max_idle_ms=8)
    one.do(tx, Op.SET, NEAR, b"blind")
    one.slow()
    one.commit(tx)
    mapped = MappedOn(TopologyVersion(5, one.table.version), 1, False)
    assert [asked.step for asked in one.partitions.asked] == [
        PrepareBranch(
            tx, ME, [1, 2], [TransactionalWrite(MAP, NEAR, b"blind")], [ValueSeen(MAP, K1, b"old")], False, mapped
        ),
        PrepareBranch(
            tx, ME, [1, 2], [TransactionalWrite(MAP, K2, b"new", 7, 8)], [ValueSeen(MAP, K2, None)], False, mapped
        ),
    ]  # fmt: skip


def test_pessimistic_branches_say_what_is_written_where_it_is_locked() -> None:
    one = One()
    tx = one.begin()
    one.do(tx, Op.GET, K3, for_update=True)
    one.do(tx, Op.SET, K1, b"v")
    one.do(tx, Op.DELETE, K2)
    hold(one, 2, K2, b"x")
    one.slow()
    one.commit(tx)
    mapped = MappedOn(TopologyVersion(5, one.table.version), 1, True)
    for asked, key in zip(one.take(), (K3, K2), strict=True):
        assert asked.step == LockKeys(tx, ME, [(MAP, key)], CHECK_WAIT_MS, mapped, confirm=True)
        asked.serve()
    one.deliver()
    [asked] = one.partitions.asked
    assert asked.step == PrepareBranch(tx, ME, [1], [TransactionalWrite(MAP, K1, b"v")], [], True, mapped), (
        "K2 was not there, K3 is read alone"
    )
