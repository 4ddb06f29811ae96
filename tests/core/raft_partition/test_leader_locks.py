"""Locks of transactions that the leader of a group keeps (raft_partition/L)."""

from __future__ import annotations

import pytest
from tests.core.raft_partition.test_consensus_replication import NUMBER, Maps, request

from holdfast.config import TRANSACTIONS_MAP
from holdfast.core.model.decisions import LockChanges, Wait
from holdfast.core.model.ids import MemberId, group_of
from holdfast.core.model.map_moves import PauseMap, encode_move
from holdfast.core.model.operations import Op, Outcome, Request, Status
from holdfast.core.model.transactions import (
    CommitBranch,
    EntryKey,
    ForgetBranches,
    KeyLock,
    LockKeys,
    PrepareBranch,
    RollBackBranch,
    StepFate,
    StepResult,
    TransactionalWrite,
    TransactionId,
    TransactionStep,
    begins,
    decode_result,
    encode,
    lock_key,
)
from holdfast.core.model.zone_batches import ZoneRequests, ZoneWrites
from holdfast.core.operations.transaction_branches import LOCKED_TOO_LONG
from holdfast.core.raft_partition import leader_locks
from holdfast.core.raft_partition.leader_locks import NOT_CURRENT, LeaderLocks
from holdfast.core.raft_partition.proposals import LOCKED
from holdfast.core.raft_partition.zone_partition import ZonePartition

T1, T2 = b"1" * 16, b"2" * 16
OWNER = MemberId("owner")
OTHER = group_of(1, 4)
Answers = list[Outcome | Wait]


def entries(*keys: str) -> list[EntryKey]:
    return [("m", key.encode()) for key in keys]


def lock(*keys: str, transaction: TransactionId = T1, wait_ms: int = 0, confirm: bool = False) -> LockKeys:
    return LockKeys(transaction, OWNER, entries(*keys), wait_ms, confirm=confirm)


def prepare(
    *keys: str, transaction: TransactionId = T1, locked: bool = True, alone: bool = False
) -> PrepareBranch:
    writes = [TransactionalWrite("m", key.encode(), transaction[:1]) for key in keys]
    return PrepareBranch(transaction, OWNER, [NUMBER] if alone else [NUMBER, OTHER], writes, [], locked)


def roll_back(*, fence: bool = False, only_locks: bool = False) -> RollBackBranch:
    return RollBackBranch(T1, OWNER, [NUMBER, OTHER], fence, only_locks)


def step_request(step: TransactionStep, request_id: bytes = b"") -> Request:
    op = Op.TRANSACT if begins(step) else Op.SETTLE
    return Request(op, TRANSACTIONS_MAP, [3], value=encode(step), id=request_id)


class Leader:
    """The leader of the only group of a cluster."""

    def __init__(self) -> None:
        self.maps = Maps()
        self.at = self.maps.leader

    @property
    def replica(self) -> ZonePartition:
        return self.maps.partitions[self.at]

    @property
    def locks(self) -> LeaderLocks:
        return self.replica.locks

    def submit(self, step: TransactionStep, request_id: bytes = b"", *, late: bool = False) -> Answers:
        """Submit the step, and let no message arrive."""
        answers: Answers = []
        replication = self.maps.replications[self.at]
        replication.submit(step_request(step, request_id), answers.append, late=late)
        self.end_step()
        return answers

    def end_step(self) -> None:
        self.replica.flush()
        self.maps.end_step(self.at)

    def results(self, *steps: TransactionStep, late: bool = False) -> list[StepResult]:
        """Submit the steps one after the other, each when the one before it was applied."""
        found = []
        for step in steps:
            answers = self.submit(step, late=late)
            self.go()
            [answer] = answers
            assert isinstance(answer, Outcome) and isinstance(answer.value, bytes), answer
            found.append(decode_result(answer.value))
        return found

    def fates(self, *steps: TransactionStep) -> list[StepFate]:
        return [result.fate for result in self.results(*steps)]

    def go(self) -> None:
        self.maps.cluster.go(3)
        self.end_step()
        self.maps.cluster.go(3)

    def change(self, op: Op, key: str = "", value: str = "", **more: object) -> list[Outcome]:
        answers = self.maps.ask(self.at, request(op, key, value, **more))
        self.go()
        return answers

    @property
    def held(self) -> dict[bytes, TransactionId]:
        """Locks that the leader knows, by key."""
        return {kept[-1:]: found.transaction for kept, found in self.replica.locks.of(3).held.items()}

    @property
    def stored(self) -> dict[bytes, TransactionId]:
        """Locks that replicas know, by key."""
        held = self.replica.state.copies[3].locks.held
        return {kept[-1:]: found.transaction for kept, found in held.items()}

    @property
    def index(self) -> int:
        """Of the newest entry of the log."""
        return self.maps.cluster[self.at + 1].groups.hosted[NUMBER].group.log.last

    def value(self, key: str) -> bytes | None:
        return self.replica.look(3, "m", key.encode())

    def depose(self, to: int | None = None) -> None:
        """Another member leads, without an orderly transfer."""
        if to is None:
            to = next(at for at in range(3) if at != self.at)
        groups = self.maps.cluster[self.at + 1].groups
        groups.running(NUMBER).transfer(self.maps.cluster.node(to + 1))
        self.maps.cluster[self.at + 1].end_step()
        self.maps.cluster.go(20)
        assert self.maps.leader == to
        self.at = to


def test_a_lock_is_in_no_log_and_has_the_value_of_its_entry() -> None:
    leader = Leader()
    leader.change(Op.SET, "a", "1")
    index = leader.index
    assert leader.results(lock("a", "b")) == [StepResult(StepFate.DONE, [b"1", None])]
    assert leader.held == {b"a": T1, b"b": T1} and leader.locks.count == 2
    assert not leader.stored and leader.index == index
    assert [leader.locks.guards(3, name) for name in ("m", "n")] == [True, False]
    assert leader.locks.holds(3, lock_key("m", b"a")) and not leader.locks.holds(3, lock_key("m", b"z"))


@pytest.mark.rule("raft_partition/L-2")
@pytest.mark.parametrize("prepared", [False, True], ids=["locked", "prepared"])
def test_changes_wait_for_a_lock(prepared: bool) -> None:
    leader = Leader()
    leader.fates(lock("a"))
    if prepared:
        leader.fates(prepare("a"))
        leader.locks.clear()  # As under the next leader: only replicas know it.
    limit = leader.replica._zone.settings.limits.call_timeout_ms
    [put] = leader.maps.ask(leader.at, request(Op.PUT, "a", "v"))
    assert put == Wait(limit, refused=LOCKED_TOO_LONG, holder=T1, key=("m", b"a"))
    assert leader.change(Op.CLEAR) == [Wait(limit, refused=LOCKED_TOO_LONG)]
    assert leader.change(Op.TRY_PUT, "a", "v") == [Outcome(Status.OK, False)]
    late: list[Outcome] = []
    leader.maps.replications[leader.at].submit(request(Op.PUT, "a", "v"), late.append, late=True)  # type: ignore[arg-type]
    assert late == [Outcome(Status.NOT_READY, None, LOCKED_TOO_LONG)]
    for untouched in (request(Op.PUT, "b", "v"), request(Op.CLEAR, name="n"), request(Op.GET, "a")):
        answers = leader.maps.ask(leader.at, untouched)
        leader.go()
        assert answers == [Outcome(Status.OK, None)] or answers[0].status is Status.OK


@pytest.mark.rule("raft_partition/L-5")
@pytest.mark.parametrize("when", ["applied", "in the log", "queued"])
@pytest.mark.parametrize("late", [False, True], ids=["try", "late"])
def test_a_change_that_is_repeated_over_a_lock_has_its_first_answer(when: str, late: bool) -> None:
    """Its first try is applied, or will be."""
    leader = Leader()
    asked = request(Op.PUT if late else Op.TRY_PUT, "a", "v", id=b"caller-1")
    first: list[Outcome] = []
    replication = leader.maps.replications[leader.at]
    replication.submit(asked, first.append)  # type: ignore[arg-type]
    if when != "queued":
        leader.end_step()
    if when == "applied":
        leader.go()
    replication.submit(step_request(lock("a")), lambda answer: None)
    again: list[Outcome] = []
    replication.submit(asked, again.append, late=late)  # type: ignore[arg-type]
    leader.end_step()
    leader.go()
    assert again == first == [Outcome(Status.OK, None if late else True)]
    assert leader.value("a") == b"v" and leader.held == {b"a": T1}


def test_a_change_that_was_applied_has_its_first_answer_at_once() -> None:
    leader = Leader()
    first = leader.change(Op.PUT, "a", "v", id=b"caller-1")
    leader.fates(lock("a"))
    assert leader.change(Op.PUT, "a", "v", id=b"caller-1") == first
    [waits] = leader.change(Op.PUT, "a", "v", id=b"caller-2")
    assert isinstance(waits, Wait)


@pytest.mark.rule("raft_partition/L-5")
def test_a_repeated_change_is_not_rejected_while_its_first_try_may_be_applied(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    leader = Leader()
    asked = request(Op.TRY_PUT, "a", "v", id=b"caller-1")
    [first] = [leader.maps.ask(leader.at, asked)]
    leader.submit(lock("a"))
    again = leader.maps.ask(leader.at, asked)
    leader.replica.proposals.expire(leader.replica._out.now_ns + 10**15)
    third = leader.maps.ask(leader.at, asked)
    assert [answer.status for answer in (*first, *again, *third)] == [
        Status.UNKNOWN,
        Status.UNKNOWN,
        Status.MOVED,
    ]
    leader.go()
    monkeypatch.setattr(leader.replica._zone.groups, "current", lambda number: False)
    leader.locks.of(3).change(LockChanges([(lock_key("m", b"b"), KeyLock(T1, OWNER))]))
    other = request(Op.TRY_PUT, "b", "v", id=b"caller-2")
    assert leader.maps.ask(leader.at, other) == [NOT_CURRENT]
    monkeypatch.undo()
    assert leader.maps.ask(leader.at, other) == [Outcome(Status.OK, False)]


def test_a_batch_is_held_up_by_the_lock_of_any_of_its_entries() -> None:
    leader = Leader()
    leader.fates(lock("a"))
    for keys, expected in (("ab", LOCKED), ("ba", LOCKED), ("bc", None)):
        writes = ZoneWrites([("m", key.encode(), b"v", 0, 0) for key in keys], 3)
        requests = ZoneRequests([request(Op.SET, key, "v") for key in keys])
        free = ZoneWrites([("m", b"z", b"v", 0, 0)], 3)
        for changes in ([writes], [requests], [free, writes], [writes, free], [requests, free]):
            assert leader.locks.hold_up(3, list(changes)) is (expected is not None), keys
    assert not Leader().locks.hold_up(3, [ZoneRequests([request(Op.SET, "a", "v")])])


@pytest.mark.rule("raft_partition/L-2")
def test_a_lock_waits_for_changes_that_came_before_it() -> None:
    leader = Leader()
    put = leader.maps.ask(leader.at, request(Op.SET, "a", "1"))
    answers = leader.submit(lock("a"))
    assert not put and not answers
    [waits] = leader.maps.ask(leader.at, request(Op.SET, "a", "2"))
    assert isinstance(waits, Wait), "what comes later waits already"
    leader.go()
    [answer] = answers
    assert isinstance(answer, Outcome) and isinstance(answer.value, bytes)
    assert decode_result(answer.value) == StepResult(StepFate.DONE, [b"1"])


def test_a_lock_that_was_released_before_its_answer_is_not_held() -> None:
    leader = Leader()
    leader.maps.ask(leader.at, request(Op.SET, "a", "1"))
    answers = leader.submit(lock("a"))
    [released] = leader.submit(roll_back())
    assert released == Outcome(Status.OK, encode(StepResult(StepFate.DONE)))
    leader.go()
    assert answers == [Outcome(Status.OK, encode(StepResult(StepFate.NOT_HELD)))]
    assert not leader.held


def test_a_lock_that_another_has_taken_meanwhile_is_not_held() -> None:
    leader = Leader()
    leader.maps.ask(leader.at, request(Op.SET, "a", "1"))
    first = leader.submit(lock("a", wait_ms=500))
    leader.submit(roll_back())
    second = leader.submit(lock("a", transaction=T2))
    leader.go()
    assert first == [Outcome(Status.OK, encode(StepResult(StepFate.NOT_HELD)))]
    assert second == [Outcome(Status.OK, encode(StepResult(StepFate.DONE, [b"1"])))]


def test_another_transaction_waits_for_the_lock_and_is_rejected_when_it_is_late() -> None:
    leader = Leader()
    leader.fates(lock("a"))
    [waits] = leader.submit(lock("a", transaction=T2, wait_ms=200))
    assert isinstance(waits, Wait)
    assert (waits.ms, waits.waiter, waits.holder, waits.key) == (200, T2, T1, ("m", b"a"))
    [result] = leader.results(lock("a", transaction=T2, wait_ms=200), late=True)
    assert result == StepResult(StepFate.LOCKED, holder=T1)
    assert leader.results(lock("a", transaction=T2)) == [result]
    assert leader.held == {b"a": T1}


def test_the_end_of_a_lock_is_reported_to_those_that_wait() -> None:
    leader = Leader()
    unlocked = leader.replica._zone.unlocked
    leader.fates(lock("a"))
    leader.fates(lock("b", transaction=T2), prepare("b", transaction=T2))
    assert not unlocked
    leader.fates(roll_back())
    assert unlocked == [(NUMBER, 3)] and leader.held == {b"b": T2}
    leader.fates(CommitBranch(T2))
    assert unlocked == [(NUMBER, 3)] * 2 and not leader.held
    leader.change(Op.SET, "z", "1")
    assert unlocked == [(NUMBER, 3)] * 2, "each once"
    assert leader.value("b") == b"2"


@pytest.mark.rule("transactions/C-7")
def test_a_confirmation_waits_for_a_majority() -> None:
    leader = Leader()
    leader.fates(lock("a"))
    answers = leader.submit(lock("a", confirm=True))
    assert not answers
    assert leader.fates(lock("a", confirm=True), lock("b", confirm=True)) == [
        StepFate.DONE,
        StepFate.NOT_HELD,
    ]
    assert leader.held == {b"a": T1}, "it takes none"
    leader.depose()
    assert leader.fates(lock("a", confirm=True)) == [StepFate.NOT_HELD]


@pytest.mark.rule("transactions/C-7")
def test_a_leader_that_is_deposed_confirms_nothing() -> None:
    leader = Leader()
    leader.fates(lock("a"))
    answers = leader.submit(lock("a", confirm=True))
    leader.replica.stop()
    [answer] = answers
    assert isinstance(answer, Outcome) and answer.status is Status.MOVED


@pytest.mark.rule("raft_partition/L-1")
def test_a_prepare_without_its_locks_is_not_proposed() -> None:
    leader = Leader()
    leader.fates(lock("a"))
    leader.depose()
    index = leader.index
    assert leader.fates(prepare("a")) == [StepFate.NOT_HELD]
    assert leader.index == index and not leader.held


@pytest.mark.rule("raft_partition/L-4")
@pytest.mark.parametrize("locked", [False, True], ids=["optimistic", "pessimistic"])
def test_a_prepare_takes_its_locks_when_it_is_proposed(locked: bool) -> None:
    leader = Leader()
    if locked:
        leader.fates(lock("a"))
    answers = leader.submit(prepare("a", locked=locked))
    assert not answers and leader.held == {b"a": T1} and not leader.stored
    [waits] = leader.submit(lock("a", transaction=T2, wait_ms=5))
    assert isinstance(waits, Wait)
    leader.go()
    assert [answer.value for answer in answers if isinstance(answer, Outcome)] == [
        encode(StepResult(StepFate.DONE))
    ]
    assert leader.held == leader.stored == {b"a": T1}
    assert leader.fates(CommitBranch(T1)) == [StepFate.DONE]
    assert not leader.held and not leader.stored and leader.value("a") == b"1"


def test_a_prepare_of_one_partition_keeps_no_lock_and_no_branch() -> None:
    leader = Leader()
    answers = leader.submit(prepare("a", locked=False, alone=True))
    assert not leader.held, "its writes are in the log's order"
    leader.go()
    assert len(answers) == 1 and leader.value("a") == b"1"
    assert TRANSACTIONS_MAP not in leader.replica.state.copies[3].maps


def test_a_step_that_comes_again_has_its_first_result() -> None:
    leader = Leader()
    leader.fates(lock("a"))
    first = leader.submit(prepare("a", alone=True), b"caller-1")
    leader.go()
    leader.change(Op.SET, "a", "later")
    index = leader.index
    again = leader.submit(prepare("a", alone=True), b"caller-1")
    assert again == first and leader.index == index and leader.value("a") == b"later"
    assert leader.submit(prepare("a", alone=True), b"caller-2") == [
        Outcome(Status.OK, encode(StepResult(StepFate.NOT_HELD)))
    ]
    assert leader.submit(prepare("a", alone=True)) == [
        Outcome(Status.OK, encode(StepResult(StepFate.NOT_HELD)))
    ]


@pytest.mark.rule("raft_partition/L-4")
@pytest.mark.parametrize("outcome", [Status.MOVED, Status.UNKNOWN])
def test_a_rollback_is_logged_behind_a_step_that_may_be_applied_later(outcome: Status) -> None:
    """After an unknown outcome the prepare may still come into force: the lock stays until the log decides."""
    leader = Leader()
    leader.fates(lock("a"))
    answers = leader.submit(prepare("a"))
    proposals = leader.replica.proposals
    if outcome is Status.UNKNOWN:
        proposals.expire(leader.replica._out.now_ns + 10**15)
    else:
        for one in proposals.placed.values():
            for each, _ in one.callbacks:
                each(Outcome(Status.MOVED))
        proposals.placed.clear()
    assert [answer.status for answer in answers if isinstance(answer, Outcome)] == [outcome]
    back = leader.submit(roll_back())
    if outcome is Status.MOVED:
        assert len(back) == 1 and not leader.held, "nothing of it will be applied"
    else:
        assert not back and leader.held == {b"a": T1}
        leader.go()
        assert len(back) == 1 and not leader.held and not leader.stored


@pytest.mark.rule("raft_partition/L-1")
def test_steps_that_were_proposed_in_an_earlier_term_do_not_count_in_the_next() -> None:
    """A leader is cut off, its prepare times out and is lost, and it leads again: a lock of the same transaction is
    stored for the next leader, because nothing in the log releases it.
    """
    leader = Leader()
    cluster, first = leader.maps.cluster, leader.at
    cut = cluster[first + 1].info.uuid
    cluster.cut = {cut}
    leader.submit(prepare("a", locked=False))
    leader.replica.proposals.expire(leader.replica._out.now_ns + 10**15)
    cluster.install([uuid for uuid in cluster.processes if uuid != cut])
    cluster.go(5)
    cluster.cut = set()
    cluster.install(cluster.processes)
    cluster.go(40)
    leader.at = leader.maps.leader
    assert leader.at != first
    leader.depose(first)
    assert leader.fates(lock("b")) == [StepFate.DONE]
    stored_by(leader)
    leader.go()
    assert leader.stored == leader.held == {b"b": T1}


@pytest.mark.rule("raft_partition/L-3")
def test_a_leader_that_leads_again_is_not_leaving() -> None:
    leader = Leader()
    first = leader.at
    stored_by(leader)
    leader.depose()
    leader.depose(first)
    index = leader.index
    assert leader.fates(lock("a")) == [StepFate.DONE]
    assert leader.index == index and not leader.stored


@pytest.mark.parametrize(
    ("before", "step"),
    [
        ("nothing", roll_back(fence=True)),
        ("locked", roll_back(fence=True)),
        ("prepared", roll_back()),
        ("leaving", roll_back()),
        ("stored", roll_back()),
    ],
)
def test_a_rollback_is_logged_if_replicas_know_or_must_know_of_it(before: str, step: RollBackBranch) -> None:
    leader = Leader()
    if before != "nothing":
        leader.fates(lock("a"))
    if before == "prepared":
        leader.fates(prepare("a"))
    leader.locks.leaving = before == "leaving"
    if before == "stored":
        leader.locks.store()
        leader.end_step()
        leader.go()
        leader.locks.leaving = False
    index = leader.index
    assert not leader.submit(step)
    leader.go()
    assert leader.index == index + 1
    assert not leader.held and not leader.stored
    if step.fence:
        assert leader.fates(prepare("a", locked=False)) == [StepFate.OVER]


def test_a_rollback_of_locks_alone_is_not_logged() -> None:
    leader = Leader()
    leader.fates(lock("b", transaction=T2), prepare("b", transaction=T2))
    leader.fates(lock("a"))
    index = leader.index
    assert leader.submit(roll_back(only_locks=True)) == [
        Outcome(Status.OK, encode(StepResult(StepFate.DONE)))
    ]
    assert leader.index == index and leader.held == {b"b": T2}


def test_a_rollback_of_a_branch_that_is_committed_reports_it() -> None:
    leader = Leader()
    assert leader.fates(lock("a"), prepare("a"), CommitBranch(T1), roll_back()) == [
        StepFate.DONE,
        StepFate.DONE,
        StepFate.DONE,
        StepFate.COMMITTED,
    ]


def test_outcomes_are_forgotten() -> None:
    leader = Leader()
    leader.fates(lock("a"), prepare("a"), CommitBranch(T1))
    kept = leader.replica.state.copies[3].maps[TRANSACTIONS_MAP].state.entries
    assert len(kept) == 1
    assert leader.fates(ForgetBranches([T1])) == [StepFate.DONE]
    assert not kept


@pytest.mark.rule("raft_partition/L-1")
@pytest.mark.parametrize("step", [lock("a"), prepare("a", locked=False), roll_back(), ForgetBranches([T1])])
def test_a_leader_takes_no_step_before_it_has_applied_what_others_acknowledged(
    step: TransactionStep, monkeypatch: pytest.MonkeyPatch
) -> None:
    leader = Leader()
    groups = leader.replica._zone.groups
    monkeypatch.setattr(groups, "current", lambda number: number != NUMBER)
    assert leader.submit(step) == [NOT_CURRENT]
    assert NOT_CURRENT.status is Status.MOVED
    leader.go()
    assert leader.locks.count == 0


@pytest.mark.rule("raft_partition/L-2")
def test_a_lock_whose_changes_were_applied_under_another_leader_is_not_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    leader = Leader()
    leader.maps.ask(leader.at, request(Op.SET, "a", "1"))
    answers = leader.submit(lock("a"))
    monkeypatch.setattr(leader.replica._zone.groups, "current", lambda number: False)
    leader.go()
    assert answers == [NOT_CURRENT]


def test_a_lock_behind_changes_that_time_out_is_unknown_as_they_are() -> None:
    leader = Leader()
    leader.maps.ask(leader.at, request(Op.SET, "a", "1"))
    answers = leader.submit(lock("a"))
    leader.replica.proposals.expire(leader.replica._out.now_ns + 10**15)
    [answer] = answers
    assert isinstance(answer, Outcome) and answer.status in (Status.UNKNOWN, Status.MOVED)


@pytest.mark.rule("operations/V-5")
@pytest.mark.parametrize("step", [lock("a"), prepare("a", locked=False)])
@pytest.mark.parametrize("when", ["paused", "elsewhere"])
def test_no_step_names_a_map_that_moves(step: LockKeys | PrepareBranch, when: str) -> None:
    leader = Leader()
    pause(leader, when)
    [result] = leader.results(step)
    assert result.fate is StepFate.REFUSED
    assert ("is being moved" if when == "paused" else "was moved to another engine") in result.why
    assert leader.locks.count == 0


def pause(leader: Leader, when: str) -> None:
    if when == "elsewhere":
        for sink in leader.maps.sinks:
            sink.home = 2
    else:
        step = Request(Op.MOVE, "m", [3], value=encode_move(PauseMap(1, 1)))
        leader.maps.replications[leader.at].propose(step, lambda outcome: None)
        leader.end_step()
        leader.go()


@pytest.mark.rule("operations/V-5")
def test_a_lock_is_refused_if_its_map_was_moved_before_its_answer() -> None:
    leader = Leader()
    leader.maps.ask(leader.at, request(Op.SET, "a", "1"))
    answers = leader.submit(lock("a"))
    pause(leader, "elsewhere")
    leader.go()
    [answer] = answers
    assert isinstance(answer, Outcome) and isinstance(answer.value, bytes)
    assert decode_result(answer.value).fate is StepFate.REFUSED


# -- transfer of the leadership


def stored_by(leader: Leader) -> bool:
    done = leader.locks.store()
    leader.end_step()
    return done


@pytest.mark.rule("raft_partition/L-3")
def test_the_locks_of_several_transactions_survive_a_transfer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leader_locks, "STORED_AT_ONCE", 2)
    leader = Leader()
    leader.fates(lock("a", "b", "c", "d", "e"), lock("f", transaction=T2))
    assert leader.stored == {}
    assert not stored_by(leader)
    assert not stored_by(leader), "they are on their way"
    leader.go()
    assert stored_by(leader)
    expected = {**dict.fromkeys([b"a", b"b", b"c", b"d", b"e"], T1), b"f": T2}
    assert leader.stored == expected
    leader.depose()
    assert leader.held == expected
    assert leader.fates(prepare("a", "c")) == [StepFate.DONE]
    owners = {found.owner for found in leader.replica.locks.of(3).held.values()}
    assert owners == {OWNER}


@pytest.mark.rule("raft_partition/L-3")
def test_locks_are_stored_once() -> None:
    leader = Leader()
    leader.fates(lock("a"))
    index = leader.index
    for _ in range(3):
        stored_by(leader)
    leader.go()
    assert leader.index == index + 1
    assert stored_by(leader)
    leader.go()
    assert leader.index == index + 1


@pytest.mark.rule("raft_partition/L-3")
def test_a_lock_of_a_leader_that_leaves_is_stored_before_its_answer() -> None:
    leader = Leader()
    assert stored_by(leader), "there is none"
    answers = leader.submit(lock("a"))
    assert not answers and leader.held == {b"a": T1}
    leader.go()
    assert len(answers) == 1 and leader.stored == {b"a": T1}


@pytest.mark.rule("raft_partition/L-3")
def test_a_transfer_waits_for_what_is_not_in_the_log() -> None:
    leader = Leader()
    assert stored_by(leader)
    leader.replica.proposals.submit(request(Op.SET, "a", "1"), lambda outcome: None)
    assert not leader.locks.store()
    leader.end_step()
    assert leader.locks.store(), "it is in the log"


@pytest.mark.rule("raft_partition/L-3")
def test_a_lock_that_the_log_did_not_take_is_stored_later() -> None:
    leader = Leader()
    leader.fates(lock("a"))
    leader.locks.leaving = True
    blocked = leader.maps.ask(leader.at, request(Op.SET, "z", "1"))
    assert not stored_by(leader) and not blocked
    leader.go()
    assert not leader.stored, "while something was on its way"
    assert not stored_by(leader)
    leader.go()
    assert leader.stored == {b"a": T1} and stored_by(leader)


@pytest.mark.rule("raft_partition/L-3")
def test_a_lock_whose_prepare_is_on_its_way_is_not_stored() -> None:
    leader = Leader()
    leader.fates(lock("a"), lock("b", transaction=T2))
    leader.submit(prepare("a", alone=True))
    assert not stored_by(leader)
    leader.go()
    assert leader.stored == leader.held == {b"b": T2}


@pytest.mark.rule("raft_partition/L-3")
def test_a_lock_whose_rollback_is_on_its_way_is_not_stored() -> None:
    """Nothing would release it: the rollback comes before it in the log."""
    leader = Leader()
    leader.fates(lock("a"))
    stored_by(leader)
    leader.depose()
    leader.fates(lock("b"))
    assert not leader.submit(roll_back()), "it is logged, because a was stored"
    stored_by(leader)
    leader.go()
    assert not leader.stored and not leader.held


def cut_off(leader: Leader) -> int:
    """Cut the leader off, so that nothing that it proposes is committed. Returns its place."""
    cluster = leader.maps.cluster
    cluster.cut = {cluster[leader.at + 1].info.uuid}
    return leader.at


def led_again(leader: Leader) -> None:
    """Another member is elected meanwhile, and the leader gets its group back."""
    cluster, first = leader.maps.cluster, leader.at
    cluster.install([uuid for uuid in cluster.processes if uuid not in cluster.cut])
    cluster.go(5)
    cluster.cut = set()
    cluster.install(cluster.processes)
    cluster.go(40)
    leader.at = leader.maps.leader
    assert leader.at != first
    leader.depose(first)


@pytest.mark.rule("raft_partition/L-2")
def test_changes_that_were_lost_with_an_earlier_term_hold_up_no_lock() -> None:
    """They have timed out, and the log is shorter now than it was."""
    leader = Leader()
    cut_off(leader)
    for number in range(6):
        answers = leader.maps.ask(leader.at, request(Op.SET, "a", str(number)))
        leader.replica.proposals.expire(leader.replica._out.now_ns + 10**15)
        assert [answer.status for answer in answers] == [Status.UNKNOWN]
    led_again(leader)
    assert leader.fates(lock("a")) == [StepFate.DONE]


@pytest.mark.rule("raft_partition/Z-1")
def test_changes_that_were_lost_with_an_earlier_term_hold_up_no_others() -> None:
    """Between them were entries without a change, so their places are behind the end of the log. They are answered when
    this member leads again: nothing at such a place can be committed any more.
    """
    leader = Leader()
    cut_off(leader)
    lost = []
    for number in range(2):
        for _ in range(3):
            leader.replica.proposals.place(leader.replica._zone.command(sweep=True), leader.replica.term)
        lost += [leader.maps.ask(leader.at, request(Op.SET, "a", str(number)))]
    led_again(leader)
    for number in range(9):
        assert leader.change(Op.SET, "b", str(number)) == [Outcome(Status.OK)]
    assert [answer.status for answers in lost for answer in answers] == [Status.MOVED] * 2
    assert leader.value("a") is None and leader.value("b") == b"8"
