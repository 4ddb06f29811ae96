"""Locks of clients at a primary: who has one, who waits, and what wakes them."""

from __future__ import annotations

import pytest
from tests.core.routing.test_collection_waits import ME, OTHER, Stage

from holdfast.config import TRANSACTIONS_MAP
from holdfast.core.messages import Forward, Withdrawals
from holdfast.core.model.collections import CollectionStep, StepKind, encode_step, step_problem
from holdfast.core.model.ids import MILLISECOND
from holdfast.core.model.map_locks import decode_lock, encode_lock, locks_of, owner_of
from holdfast.core.model.notices import LockEnded, Notice
from holdfast.core.model.operations import Op, Request
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
from holdfast.core.store.partition_copy import PartitionCopy

MAP, KEY = "m", b"k"
ADA, BEN = owner_of(b"\0" + b"a" * 16, 1), owner_of(b"\0" + b"b" * 16, 1)
ADA_2 = owner_of(b"\0" + b"a" * 16, 2)
LONG_MS = 100_000
TX = b"t" * 16


def step(
    kind: StepKind,
    holder: bytes = ADA,
    *,
    lease_ms: int = 0,
    reference: int = 0,
    wait_ms: int = 0,
    key: bytes = KEY,
) -> Request:
    value = encode_step(CollectionStep(kind, index=reference, wait_ms=wait_ms))
    return Request(
        kind.op, locks_of(MAP), [0], key=key, value=value, ttl_ms=lease_ms, max_idle_ms=0, holder=holder
    )


def lock(holder: bytes = ADA, wait_ms: int = LONG_MS, **more: int) -> Request:
    return step(StepKind.LOCK, holder, wait_ms=wait_ms, **more)  # type: ignore[arg-type]


def unlock(holder: bytes = ADA, reference: int = 0) -> Request:
    return step(StepKind.UNLOCK, holder, reference=reference)


def put(holder: bytes = b"", value: bytes = b"v", op: Op = Op.SET, wait_ms: int = 0) -> Request:
    return Request(op, MAP, [0], key=KEY, value=value, holder=holder, wait_ms=wait_ms)


def transact(stage: Stage, some: LockKeys | PrepareBranch | RollBackBranch) -> None:
    op = Op.SETTLE if isinstance(some, RollBackBranch) else Op.TRANSACT
    stage.ask(Request(op, TRANSACTIONS_MAP, [0], value=encode(some)))


def sweep(stage: Stage, ms: int) -> None:
    stage.out.now_ns += ms * MILLISECOND
    stage.lane.sweep(100, stage.lane.leading)
    stage.end_step()


class LockStage(Stage):
    def on_notice(self, notice: Notice) -> None:
        if isinstance(notice, LockEnded):
            self.engine.on_lock_ended(notice)


@pytest.fixture
def stage() -> Stage:
    return LockStage()


@pytest.mark.rule("operations/L-1")
def test_a_lock_is_handed_over_in_the_order_of_arrival(stage: Stage) -> None:
    for holder in (ADA, BEN, ADA_2):
        stage.ask(lock(holder))
    assert stage.values == [True]
    stage.ask(unlock(ADA))
    assert stage.values == [True, True, True], "Ben has it"
    stage.ask(unlock(ADA_2))
    assert stage.values[3:] == [False], "who waits has not locked it"
    stage.ask(unlock(BEN))
    assert stage.values[4:] == [True, True]
    stage.ask(lock(BEN, 0))
    stage.ask(lock(BEN, key=b"other"))  # type: ignore[arg-type]
    assert stage.values[6:] == [False, True]


@pytest.mark.rule("operations/L-2")
def test_a_thread_may_take_its_lock_again_and_releases_it_as_often(stage: Stage) -> None:
    stage.ask(lock())
    stage.ask(lock())
    stage.ask(unlock())
    stage.ask(lock(BEN, 0))
    stage.ask(unlock())
    stage.ask(lock(BEN, 0))
    stage.ask(unlock())
    assert stage.values == [True, True, True, False, True, True, False]


@pytest.mark.rule("operations/L-3")
def test_a_repeated_request_counts_once(stage: Stage) -> None:
    stage.ask(lock(reference=7))
    stage.ask(lock(reference=7))
    stage.ask(lock(reference=8))
    stage.ask(unlock(reference=9))
    stage.ask(unlock(reference=9))
    stage.ask(lock(BEN, 0))
    stage.ask(unlock(reference=10))
    stage.ask(lock(BEN, 0))
    assert stage.values == [True, True, True, True, True, False, True, True]


@pytest.mark.rule("operations/L-4")
def test_others_wait_to_change_a_locked_entry_and_may_read_it(stage: Stage) -> None:
    stage.ask(put())
    stage.ask(lock())
    stage.ask(put(BEN, b"by ben"))
    stage.ask(put(ADA_2, b"by another thread"))
    stage.ask(put(ADA, b"by ada"))
    stage.ask(Request(Op.PUT_ALL, MAP, [0], items=[KEY, b"together"], holder=ADA[:17]))
    stage.ask(Request(Op.GET, MAP, [0], key=KEY))
    stage.ask(put(BEN, op=Op.TRY_PUT))
    assert stage.values == [None, True, None, None, b"together", False]
    stage.ask(unlock())
    stage.ask(Request(Op.GET, MAP, [0], key=KEY))
    assert stage.values[6:] == [True, None, None, b"by another thread"]


def test_try_put_waits_as_long_as_it_says(stage: Stage) -> None:
    stage.ask(lock())
    stage.ask(put(BEN, op=Op.TRY_PUT, wait_ms=50))
    stage.ask(put(BEN, op=Op.TRY_REMOVE, wait_ms=500))
    assert stage.values == [True]
    stage.pass_ms(60)
    assert stage.values == [True, False]
    stage.ask(unlock())
    assert stage.values[2:] == [True, False], "unlocked; and there was nothing to remove"


def test_a_lease_ends_and_the_next_one_is_served(stage: Stage) -> None:
    stage.ask(lock(lease_ms=1000))
    stage.ask(lock(BEN))
    stage.ask(put(ADA_2))
    sweep(stage, 900)
    assert stage.values == [True]
    sweep(stage, 200)
    assert stage.values == [True, True]
    stage.ask(unlock(ADA))
    stage.ask(unlock(BEN))
    assert stage.values[2:] == [False, True, None]
    stage.ask(lock(lease_ms=1000))
    stage.out.now_ns += 2000 * MILLISECOND
    stage.ask(lock(BEN, 0))
    assert stage.values[-1] is True, "also if it was not removed yet"


def test_part_of_a_lease_is_left_when_a_lock_is_released_once(stage: Stage) -> None:
    stage.ask(lock())
    stage.ask(lock(lease_ms=1000))
    stage.out.now_ns += 400 * MILLISECOND
    stage.ask(unlock())
    sweep(stage, 500)
    stage.ask(lock(BEN, 0))
    sweep(stage, 200)
    stage.ask(lock(BEN, 0))
    assert stage.values == [True, True, True, False, True]


def test_a_lock_can_be_released_by_force(stage: Stage) -> None:
    stage.ask(lock())
    stage.ask(lock())
    stage.ask(lock(BEN))
    stage.ask(step(StepKind.FORCE_UNLOCK, b""))
    assert stage.values == [True] * 4
    stage.ask(step(StepKind.FORCE_UNLOCK, b"", key=b"another"))
    assert stage.values[4:] == [False]


@pytest.mark.rule("routing/R-21")
def test_a_client_that_has_gone_takes_no_lock(stage: Stage) -> None:
    stage.ask(lock())
    waits = stage.ask(lock(BEN))
    stage.router.withdraw(waits)
    stage.ask(unlock())
    stage.ask(lock(ADA_2, 0))
    assert stage.values == [True, False, True, True]


def test_a_lock_that_is_asked_for_elsewhere_is_withdrawn_there() -> None:
    stage = Stage(leads=False)
    waits = stage.ask(lock(BEN))
    ((_, forward),) = stage.sent()
    assert isinstance(forward, Forward)
    assert forward.request.holder == BEN
    stage.router.withdraw(waits)
    assert stage.sent() == [(OTHER, Withdrawals([forward.ticket]))]


@pytest.mark.rule("store/K-4")
def test_the_next_primary_knows_the_locks_and_the_copy_of_none_asks_nothing(stage: Stage) -> None:
    stage.ask(lock(lease_ms=5000))
    copy = stage.lane.leading[0]
    assert copy is not None and copy.locks.closed
    kept = copy.maps[locks_of(MAP)].state.entries[KEY]
    copy.follow()
    assert not copy.locks.closed
    copy.lead(7)
    assert copy.locks.closed
    stage.lead(copy)
    stage.ask(lock(BEN, 0))
    stage.ask(put(ADA))
    stage.ask(unlock())
    assert stage.values == [True, False, None, True]
    assert not copy.locks.closed
    assert encode_lock(decode_lock(kept)) == kept
    assert decode_lock(kept).owner == ADA


def test_transactions_wait_for_the_locks_of_clients(stage: Stage) -> None:
    stage.ask(lock())
    transact(stage, LockKeys(TX, ME, [(MAP, KEY)], LONG_MS))
    transact(stage, PrepareBranch(b"o" * 16, ME, [0], [TransactionalWrite(MAP, KEY, b"v")], [], locked=False))
    assert len(stage.values) == 2
    assert decode_result(stage.values[1]).fate is StepFate.LOCKED  # type: ignore[arg-type]
    stage.ask(unlock())
    assert decode_result(stage.values[3]).fate is StepFate.DONE  # type: ignore[arg-type]


def test_clients_wait_for_the_locks_of_transactions(stage: Stage) -> None:
    transact(stage, LockKeys(TX, ME, [(MAP, KEY)], 0))
    stage.ask(lock(ADA, 0))
    stage.ask(lock(BEN))
    assert stage.values[1:] == [False]
    transact(stage, RollBackBranch(TX, ME, [0], fence=False))
    assert stage.values[3:] == [True], "Ben has it"


def test_clearing_a_map_spares_locked_entries_and_destroying_it_does_not(stage: Stage) -> None:
    for key in (KEY, b"a", b"b"):
        stage.ask(Request(Op.SET, MAP, [0], key=key, value=b"v"))
    stage.ask(lock())
    stage.ask(Request(Op.CLEAR, MAP, [0]))
    stage.ask(Request(Op.KEYS, MAP, [0]))
    assert stage.values[4:] == [2, [KEY]]
    stage.ask(lock(BEN))
    stage.ask(Request(Op.DESTROY, MAP, [0]))
    stage.ask(Request(Op.DESTROY, locks_of(MAP), [0]))
    assert stage.values[6:] == [1, 1, True]


def test_a_question_about_a_lock_sees_those_of_clients(stage: Stage) -> None:
    asks = Request(Op.CONTAINS_KEY, TRANSACTIONS_MAP, [0], key=lock_key(MAP, KEY))
    stage.ask(asks)
    stage.ask(lock(lease_ms=1000))
    stage.ask(asks)
    stage.out.now_ns += 1001 * MILLISECOND
    stage.ask(asks)
    assert stage.values == [False, True, True, False]


@pytest.mark.parametrize(
    ("some", "told"),
    [
        (lock(), ""),
        (step(StepKind.FORCE_UNLOCK, b""), ""),
        (lock(b"short"), "has an owner"),
        (lock(lease_ms=-1), "has an owner"),
        (lock(reference=1 << 63), "int64"),
        (step(StepKind.ADD), "is no step of a lock"),
        (lock(wait_ms=-1), "not negative"),
    ],
)
def test_steps_of_other_members_are_checked(some: Request, told: str) -> None:
    problem = step_problem(some)
    assert told in problem if told else not problem


def test_a_copy_without_locks_asks_nothing() -> None:
    copy = PartitionCopy(0, 0)
    copy.open(locks_of(MAP))
    copy.lead(1)
    assert not copy.locks.closed
