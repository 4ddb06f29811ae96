"""Steps of transactions that are applied from a group's log."""

from __future__ import annotations

import pytest

from holdfast.config import TRANSACTIONS_MAP, MapSettings, Settings
from holdfast.core.model.decisions import Decision
from holdfast.core.model.ids import MemberId
from holdfast.core.model.map_moves import PauseMap, encode_move
from holdfast.core.model.operations import DEFAULT_TTL, Op, Request
from holdfast.core.model.topology import MappedOn, TopologyVersion
from holdfast.core.model.transactions import (
    AskBranch,
    CommitBranch,
    ForgetBranches,
    LockKeys,
    PrepareBranch,
    RollBackBranch,
    StepFate,
    StepResult,
    TransactionalWrite,
    TransactionStep,
    ValueSeen,
    begins,
    decode_result,
    encode,
)
from holdfast.core.model.zone_batches import ZoneRequests, ZoneWrites
from holdfast.core.raft_partition.logged_steps import decide_logged, for_log
from holdfast.core.raft_partition.partition_commands import ZoneCommand
from holdfast.core.raft_partition.state_machine import StateMachine, Unapplied
from holdfast.core.store.request_ids import split_mark
from holdfast_lab.sim.ablations.switching import ablated

T1, T2 = b"1" * 16, b"2" * 16
OWNER = MemberId("owner")
MAP = "m"


class Replica:
    """A replica of a group with one client partition, and its log."""

    def __init__(self, settings: MapSettings | None = None) -> None:
        self.state = StateMachine([3], Settings(maps={"default": settings or MapSettings()}))
        self.log: list[ZoneCommand] = []

    def apply(self, *parts: ZoneRequests | ZoneWrites) -> list[object]:
        command = ZoneCommand(1000 + len(self.log), parts, counted=True)
        self.log.append(command)
        return list(self.state.apply(command, len(self.log), 1))

    def request(self, op: Op, key: bytes = b"", value: bytes = b"", **more: object) -> object:
        request = Request(op, MAP, [3], key, value, ttl_ms=0, max_idle_ms=0, **more)  # type: ignore[arg-type]
        [answer] = self.apply(ZoneRequests([request]))
        return answer

    def step(self, step: TransactionStep, request_id: bytes = b"") -> StepResult:
        op = Op.TRANSACT if begins(step) else Op.SETTLE
        [answer] = self.apply(
            ZoneRequests([Request(op, TRANSACTIONS_MAP, [3], value=encode(step), id=request_id)])
        )
        assert isinstance(answer, bytes)
        return decode_result(answer)

    def prepare(self, transaction: bytes = T1, *keys: bytes, seen: tuple[ValueSeen, ...] = ()) -> StepFate:
        writes = [TransactionalWrite(MAP, key, transaction[:1]) for key in keys or (b"a",)]
        return self.step(PrepareBranch(transaction, OWNER, [3, 7], writes, list(seen), False)).fate

    def value(self, key: bytes) -> bytes | None:
        return self.state.look(3, MAP, key, 0)

    @property
    def locked(self) -> int:
        return len(self.state.copies[3].locks.held)

    def again(self) -> Replica:
        """A replica that has applied the same log."""
        other = Replica()
        for command in self.log:
            other.apply(*command.parts)
        return other

    def filled(self) -> Replica:
        """A replica that was filled with this state."""
        other = Replica()
        other.state.restore(self.state.pieces())
        return other


@pytest.fixture
def replica() -> Replica:
    return Replica()


@pytest.mark.rule("raft_partition/Z-13")
def test_a_commit_applies_what_the_branch_has_stored(replica: Replica) -> None:
    assert replica.prepare(T1, b"a", b"b") is StepFate.DONE
    assert (replica.value(b"a"), replica.locked) == (None, 2)
    assert replica.step(CommitBranch(T1)).fate is StepFate.DONE
    assert (replica.value(b"a"), replica.value(b"b"), replica.locked) == (b"1", b"1", 0)
    assert replica.step(CommitBranch(T1)).fate is StepFate.DONE, "again"
    assert replica.step(ForgetBranches([T1])).fate is StepFate.DONE
    assert not replica.state.copies[3].maps[TRANSACTIONS_MAP].state.entries


def test_a_rollback_drops_it(replica: Replica) -> None:
    replica.prepare(T1, b"a")
    assert replica.step(RollBackBranch(T1, OWNER, [3, 7], True)).fate is StepFate.DONE
    assert (replica.value(b"a"), replica.locked) == (None, 0)
    assert replica.prepare(T1, b"a") is StepFate.OVER, "a late prepare"


def changes(key: bytes) -> list[ZoneRequests | ZoneWrites]:
    rest = {"ttl_ms": DEFAULT_TTL, "max_idle_ms": DEFAULT_TTL}
    return [
        ZoneRequests([Request(Op.SET, MAP, [3], key, b"x", **rest)]),
        ZoneRequests([Request(Op.REMOVE, MAP, [3], key, **rest)]),
        ZoneRequests([Request(Op.PUT_ALL, MAP, [3], items=[b"z", b"x", key, b"x"], **rest)]),
        ZoneRequests([Request(Op.CLEAR, MAP, [3])]),
        ZoneRequests([Request(Op.DESTROY, MAP, [3])]),
        ZoneWrites([(MAP, b"z", b"x", 0, 0), (MAP, key, b"x", 0, 0)], 3),
    ]


@pytest.mark.rule("raft_partition/Z-13")
@pytest.mark.parametrize("number", range(6))
@pytest.mark.parametrize("copied", ["none", "log", "state"])
def test_changes_of_its_entries_are_not_applied(replica: Replica, number: int, copied: str) -> None:
    seen = (ValueSeen(MAP, b"r", b"0"),)
    replica.request(Op.SET, b"r", b"0")
    assert replica.prepare(T1, b"a", seen=seen) is StepFate.DONE
    if copied != "none":
        replica = replica.again() if copied == "log" else replica.filled()
    for key in (b"a", b"r"):
        assert set(replica.apply(changes(key)[number])) == {Unapplied.LOCKED}
    assert (replica.value(b"a"), replica.value(b"r"), replica.value(b"z")) == (None, b"0", None)
    assert replica.request(Op.GET, b"r") == b"0", "a logged read"
    replica.step(CommitBranch(T1))
    assert Unapplied.LOCKED not in replica.apply(changes(b"a")[number])


def test_without_the_rule_a_new_leader_loses_a_write(replica: Replica) -> None:
    """The leader that has proposed the change did not know the branch yet."""
    with ablated("zone-prepared-kept"):
        replica.prepare(T1, b"a")
        assert replica.request(Op.SET, b"a", b"x") is None
        replica.step(CommitBranch(T1))
        assert replica.value(b"a") == b"1", "x is lost, although it was acknowledged after the prepare"


def test_the_entries_of_two_branches_are_different(replica: Replica) -> None:
    replica.prepare(T1, b"a")
    assert replica.prepare(T2, b"b", b"a") is StepFate.LOCKED
    assert replica.prepare(T2, b"b", seen=(ValueSeen(MAP, b"a", None),)) is StepFate.LOCKED
    assert replica.prepare(T2, b"b") is StepFate.DONE


def test_what_was_seen_must_be_there_when_the_prepare_is_applied(replica: Replica) -> None:
    replica.request(Op.SET, b"r", b"1")
    assert replica.prepare(T1, b"a", seen=(ValueSeen(MAP, b"r", b"0"),)) is StepFate.CHANGED
    assert replica.locked == 0


@pytest.mark.rule("operations/T-3")
def test_a_branch_that_was_asked_and_is_not_prepared_never_will_be(replica: Replica) -> None:
    assert replica.step(AskBranch(T1, OWNER, [3, 7])).fate is StepFate.ROLLED_BACK
    assert replica.prepare(T1, b"a") is StepFate.OVER
    replica.prepare(T2, b"a")
    assert replica.step(AskBranch(T2, OWNER, [3, 7])).fate is StepFate.PREPARED


@pytest.mark.rule("raft_partition/Z-3")
def test_one_phase_is_applied_once(replica: Replica) -> None:
    step = PrepareBranch(T1, OWNER, [3], [TransactionalWrite(MAP, b"a", b"1")], [], False)
    assert replica.step(step, b"id").fate is StepFate.DONE
    replica.request(Op.SET, b"a", b"later")
    assert replica.step(step, b"id").fate is StepFate.DONE
    assert replica.value(b"a") == b"later"
    assert replica.locked == 0


def test_the_change_stream_names_the_transaction() -> None:
    replica = Replica(MapSettings(changes_bytes=10_000))
    replica.request(Op.SET, b"plain", b"x")
    replica.prepare(T1, b"a", b"b")
    replica.step(CommitBranch(T1))
    step = PrepareBranch(T2, OWNER, [3], [TransactionalWrite(MAP, b"a", None)], [], False)
    replica.step(step, b"id")
    replica.request(Op.SET, b"plain", b"y")
    tail = replica.state.copies[3].maps[MAP].tail
    assert tail is not None
    found = [(record.key, split_mark(record.request)[0], record.old) for _, record in tail.since(0)]
    assert found == [
        (b"plain", b"", None),
        (b"a", T1, None),
        (b"b", T1, None),
        (b"a", T2, b"1"),
        (b"plain", b"", b"x"),
    ]


@pytest.mark.rule("raft_partition/L-3")
@pytest.mark.parametrize("copied", ["none", "log", "state"])
def test_stored_locks_are_known_to_all_replicas(replica: Replica, copied: str) -> None:
    assert replica.step(LockKeys(T1, OWNER, [(MAP, b"a")], 0)).fate is StepFate.DONE
    assert replica.step(LockKeys(T2, OWNER, [(MAP, b"a")], 0)).fate is StepFate.LOCKED
    if copied != "none":
        replica = replica.again() if copied == "log" else replica.filled()
    assert replica.request(Op.SET, b"a", b"x") is Unapplied.LOCKED
    assert replica.step(RollBackBranch(T1, OWNER, [3], False)).fate is StepFate.DONE
    assert replica.locked == 0
    assert not replica.state.copies[3].maps[TRANSACTIONS_MAP].state.entries


def test_entries_that_no_branch_keeps_change_freely(replica: Replica) -> None:
    assert replica.prepare(T1, b"a") is StepFate.DONE
    assert replica.request(Op.SET, b"b", b"x") is None
    assert replica.value(b"b") == b"x"


@pytest.mark.rule("raft_partition/Z-8")
def test_nothing_is_prepared_or_locked_in_a_paused_map(replica: Replica) -> None:
    replica.request(Op.MOVE, value=encode_move(PauseMap(1, 1)))
    assert replica.prepare(T1, b"a") is StepFate.REFUSED
    assert replica.step(LockKeys(T2, OWNER, [(MAP, b"a")], 0)).fate is StepFate.REFUSED
    assert replica.locked == 0


def test_the_log_decides_at_once_and_keeps_no_lock_that_only_a_leader_can_compare(replica: Replica) -> None:
    replica.step(LockKeys(T1, OWNER, [(MAP, b"a")], 0))
    decided = decide_logged(replica.state.copies[3], LockKeys(T2, OWNER, [(MAP, b"a")], 5), 0)
    assert isinstance(decided, Decision) and not decided.updates
    mapped = MappedOn(TopologyVersion(1, 2), 3, True)
    step = PrepareBranch(T1, OWNER, [3], [], [], True, mapped, [(MAP, b"a")])
    assert for_log(step) == PrepareBranch(T1, OWNER, [3], [], [], False)
