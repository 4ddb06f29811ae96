"""Transactions over maps in a zone, alone and together with maps that have a primary, while leaders change."""

from __future__ import annotations

from functools import partial

import pytest
from tests.lab.sim.stage import clean
from tests.lab.sim.test_map_moves import KEYS, PLAIN, MoveStage
from tests.lab.sim.test_map_moves import settings as moving_settings
from tests.lab.sim.test_zone_orders import order
from tests.lab.sim.transaction_stage import Desk, Told, keys_at, taking_part, values
from tests.lab.sim.zone_stage import ZONED, ZoneStage, zoned_settings

from holdfast.actions.change_zone import DropZone, RenameZone, ResetZone
from holdfast.actions.drain import Drain
from holdfast.actions.upgrade import Upgrade
from holdfast.config import TRANSACTIONS_MAP
from holdfast.core.events import ActionRequested
from holdfast.core.model.decisions import LockChanges
from holdfast.core.model.ids import group_of
from holdfast.core.model.keys import partition_of
from holdfast.core.model.levels import LOWEST, OF_THIS_BUILD, ZONE_TRANSACTIONS, FeatureLevels
from holdfast.core.model.operations import Op, Outcome, Request, Status
from holdfast.core.model.transaction_orders import HoldCommits, OperateIn, ResumeCommits, TransactionFate
from holdfast.core.model.transactions import (
    CommitBranch,
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
    zone_engine,
)
from holdfast.core.model.zone_batches import ZoneWrites
from holdfast.core.raft_partition.zone_partition import ZonePartition
from holdfast.core.transactions.member_transactions import HALF_DONE
from holdfast.core.zones.descriptors import ZoneSettings
from holdfast.errors import RequestError
from holdfast_lab.check import leftovers
from holdfast_lab.sim.ablations.switching import ablated
from holdfast_lab.sim.calls import wire_key
from holdfast_lab.sim.workload import MAP
from holdfast_lab.sim.world import Process


class ZoneDesk(Desk):
    """Keys that begin with z are of the map in the zone."""

    def start(
        self, transaction: TransactionId, op: Op, key: str, value: str = "", *, for_update: bool = False
    ) -> Told:
        name = ZONED if key.startswith("z") else MAP
        return self.order(
            OperateIn(transaction, Request(op, name, [0], wire_key(key), value.encode()), for_update)
        )


def stage_of(hosts: int = 3, **changed: dict[str, object]) -> tuple[ZoneStage, list[ZoneDesk]]:
    settings = zoned_settings(**changed)
    settings = taking_part(settings)
    stage = ZoneStage(hosts, settings=settings)
    return stage, [ZoneDesk(stage, process) for process in stage.processes]


def place(stage: ZoneStage, key: str) -> int:
    return partition_of(wire_key(key), 0, stage.settings.partitions.count)


def led_by(stage: ZoneStage, process: Process, count: int = 1) -> list[str]:
    """Keys of the map in the zone, in different partitions that this process leads."""
    found: dict[int, str] = {}
    for number in range(1000):
        key = f"z{number}"
        if stage.leader(place(stage, key)) is process:
            found.setdefault(place(stage, key), key)
            if len(found) == count:
                return list(found.values())
    raise AssertionError("it leads too little")


def kept(stage: ZoneStage) -> int:
    """Locks of leaders, and what replicas keep of transactions."""
    found = 0
    for process in stage.living():
        zones = process.driver.member.agreed.zones
        for replica in zones.replicas():
            for partition, copy in replica.state.copies.items():
                stored = copy.maps.get(TRANSACTIONS_MAP)
                found += len(copy.locks.held) + (len(stored.state.entries) if stored is not None else 0)
                found += len(replica.locks.of(partition).held) if replica.leads else 0
    return found


def zvalues(stage: ZoneStage, process: Process, *keys: str) -> list[str | None]:
    return [stage.zget(process, key) for key in keys]


def depose(stage: ZoneStage, key: str) -> Process:
    """Another member becomes the leader of the key's group, and the old one has stored no locks; returns it."""
    old = stage.leader(place(stage, key))
    new = next(one for one in stage.replicas(place(stage, key)) if one is not old)
    to = new.driver.member.agreed.groups.me
    groups = old.driver.member.agreed.groups
    old.step(lambda: groups.running(group_of(1, place(stage, key))).transfer(to))
    stage.until(lambda: stage.replicas(place(stage, key))[new].leads, what="no other leader")
    return new


def ended(stage: ZoneStage) -> None:
    """Nothing is left of any transaction."""
    stage.wait(12)
    assert kept(stage) == 0
    stage.same()
    clean(stage, again=False)


def test_entries_of_both_engines_change_together() -> None:
    stage, (one, two, three) = stage_of()
    za, zb = led_by(stage, two.process)[0], led_by(stage, three.process)[0]
    [a] = keys_at(stage, two.process, 1)
    stage.zput(one.process, za, "old")
    tx = one.begin()
    assert one.do(tx, Op.PUT, za, "new") == b"old"
    one.set(tx, **{zb: "v", a: "w"})
    assert one.do(tx, Op.GET, zb) == b"v", "it sees its own writes"
    assert zvalues(stage, two.process, za, zb) == ["old", None], "and no other member does"
    told = one.commit(tx)
    stage.wait(2)
    assert told.fate is TransactionFate.DONE
    assert zvalues(stage, two.process, za, zb) == ["new", "v"]
    assert values(stage, two.process, a) == ["w"]
    ended(stage)


def test_nothing_is_left_of_one_that_is_rolled_back() -> None:
    stage, (one, two, three) = stage_of()
    za, zb = led_by(stage, two.process)[0], led_by(stage, three.process)[0]
    tx = one.begin()
    one.set(tx, **{za: "v", zb: "w"})
    told = one.roll_back(tx)
    stage.wait(2)
    assert told.fate is TransactionFate.DONE
    assert zvalues(stage, two.process, za, zb) == [None, None]
    ended(stage)


@pytest.mark.parametrize("coordinator", [0, 1], ids=["elsewhere", "at the leader"])
def test_one_partition_needs_one_phase(coordinator: int) -> None:
    stage, desks = stage_of()
    one = desks[coordinator]
    [za] = led_by(stage, desks[1].process)
    tx = one.begin()
    one.set(tx, **{za: "v"})
    told = one.commit(tx)
    stage.wait(1)
    assert told.fate is TransactionFate.DONE
    assert zvalues(stage, one.process, za) == ["v"]
    assert kept(stage) == 0, "at once, because no branch was stored"
    ended(stage)


def waiting(stage: ZoneStage, *answers: list[Outcome]) -> None:
    stage.wait(1)
    assert not any(answers), "they wait for the lock"


@pytest.mark.rule("raft_partition/L-2")
@pytest.mark.parametrize("owner", [0, 1], ids=["from elsewhere", "at the leader"])
def test_other_changes_wait_and_reads_do_not(owner: int) -> None:
    stage, desks = stage_of()
    one, other = desks[0], desks[owner].process
    [za] = led_by(stage, desks[1].process)
    stage.zput(one.process, za, "old")
    tx = one.begin()
    one.set(tx, **{za: "v"})
    put, cleared = stage.request(other, Op.PUT, za, "w"), stage.request(other, Op.CLEAR, za)
    tried = stage.request(other, Op.TRY_PUT, za, "x")
    waiting(stage, put)
    assert [one.value for one in tried] == [False]
    assert stage.zget(other, za) == "old"
    told = one.commit(tx)
    stage.wait(3)
    assert told.fate is TransactionFate.DONE
    assert [one.value for one in put] == [b"v"]
    assert [one.status for one in cleared] == [Status.OK]
    ended(stage)


def added_to(stage: ZoneStage, one: ZoneDesk, two: ZoneDesk, *, waits: bool) -> str | None:
    """A transaction reads an entry, and writes it with something more; a put comes just before the lock, or while it is
    held (`waits`). Returns the value after that.
    """
    [za] = led_by(stage, two.process)
    stage.zput(one.process, za, "0")
    tx = two.begin()
    if not waits:
        stage.request(two.process, Op.SET, za, "1")
    told = two.start(tx, Op.GET, za, for_update=True)
    stage.wait(1)
    assert isinstance(told.answer.value, bytes)
    if waits:
        stage.request(two.process, Op.SET, za, "1")
        stage.wait(1)
    two.set(tx, **{za: told.answer.value.decode() + "+"})
    done = two.commit(tx)
    stage.wait(2)
    assert done.fate is TransactionFate.DONE
    return stage.zget(one.process, za)


@pytest.mark.rule("raft_partition/L-2")
def test_a_lock_has_the_value_after_all_changes_that_came_before_it() -> None:
    stage, (one, two, _) = stage_of()
    assert added_to(stage, one, two, waits=False) == "1+"
    ended(stage)
    with ablated("zone-lock-ordered"):
        stage, (one, two, _) = stage_of()
        assert added_to(stage, one, two, waits=False) == "0+", "the put is lost"


def test_changes_that_came_after_a_lock_are_applied_after_its_transaction() -> None:
    stage, (one, two, _) = stage_of()
    assert added_to(stage, one, two, waits=True) == "1"
    ended(stage)
    with ablated("zone-lock-respected"):
        stage, (one, two, _) = stage_of()
        assert added_to(stage, one, two, waits=True) == "0+", "the put is lost"


def test_a_change_that_waits_too_long_is_rejected() -> None:
    stage, (one, two, _) = stage_of(limits={"call_timeout_ms": 4000})
    [za] = led_by(stage, two.process)
    tx = one.begin()
    one.set(tx, **{za: "v"})
    put = stage.request(two.process, Op.PUT, za, "w")
    stage.wait(5)
    [outcome] = put
    assert outcome.status is Status.NOT_READY and "a transaction has locked the entry" in outcome.detail
    assert one.commit(tx).fate is None
    stage.wait(2)
    assert zvalues(stage, one.process, za) == ["v"]
    ended(stage)


def test_two_lock_after_each_other() -> None:
    stage, (one, two, three) = stage_of()
    [za] = led_by(stage, two.process)
    first, second = one.begin(), three.begin()
    one.set(first, **{za: "1"})
    told = three.start(second, Op.GET, za, for_update=True)
    stage.wait(1)
    assert told.fate is None
    one.commit(first)
    stage.wait(1)
    assert told.answer.value == b"1"
    three.set(second, **{za: "2"})
    done = three.commit(second)
    stage.wait(1)
    assert done.fate is TransactionFate.DONE
    assert zvalues(stage, one.process, za) == ["2"]
    ended(stage)


def test_a_deadlock_over_both_engines_is_found() -> None:
    stage, (one, two, three) = stage_of()
    [za], [a] = led_by(stage, two.process), keys_at(stage, three.process, 1)
    first, second = one.begin(), two.begin()
    one.set(first, **{za: "1"})
    two.set(second, **{a: "2"})
    crossing = [one.start(first, Op.SET, a, "1"), two.start(second, Op.SET, za, "2")]
    stage.wait(5)
    fates = sorted(told.fate.name for told in crossing if told.fate is not None)
    assert fates == ["DONE", "ROLLED_BACK"]
    for desk, tx in ((one, first), (two, second)):
        desk.commit(tx)
    stage.wait(2)
    assert zvalues(stage, one.process, za) + values(stage, one.process, a) in (["1", "1"], ["2", "2"])
    ended(stage)


def test_what_an_optimistic_one_has_read_must_be_unchanged() -> None:
    stage, (one, two, three) = stage_of()
    za, zb = led_by(stage, two.process)[0], led_by(stage, three.process)[0]
    stage.zput(one.process, za, "old")
    first, second = one.begin(optimistic=True), one.begin(optimistic=True)
    for tx in (first, second):
        assert one.do(tx, Op.GET, za) == b"old"
    one.set(first, **{zb: "1"})
    one.set(second, **{zb: "2"})
    stage.zput(two.process, za, "new")
    told = one.commit(first)
    stage.wait(1)
    assert told.fate is TransactionFate.ROLLED_BACK and "was changed by another writer" in told.answer.why
    third = one.begin(optimistic=True)
    assert one.do(third, Op.GET, za) == b"new"
    one.set(third, **{zb: "3"})
    told = one.commit(third)
    stage.wait(2)
    assert told.fate is TransactionFate.DONE
    assert zvalues(stage, one.process, zb) == ["3"]
    one.roll_back(second)
    ended(stage)


@pytest.mark.rule("raft_partition/L-1")
@pytest.mark.parametrize("reads", [False, True], ids=["written", "read"])
def test_locks_end_with_their_leader(reads: bool) -> None:
    stage, (one, two, three) = stage_of()
    [za], [a] = led_by(stage, two.process), keys_at(stage, three.process, 1)
    stage.zput(one.process, za, "0")
    tx = one.begin()
    assert one.do(tx, Op.GET, za) == b"0"
    one.set(tx, **({a: "1"} if reads else {a: "1", za: "1"}))
    depose(stage, za)
    stage.zput(three.process, za, "2")
    told = one.commit(tx)
    stage.wait(3)
    assert told.fate is TransactionFate.ROLLED_BACK
    assert "does not hold its locks any more" in told.answer.why
    assert zvalues(stage, one.process, za) + values(stage, one.process, a) == ["2", None]
    ended(stage)


def drained(stage: ZoneStage, one: ZoneDesk, two: ZoneDesk, three: ZoneDesk) -> tuple[Told, list[str | None]]:
    """The leader of a locked entry leaves the cluster in order, and the transaction goes on."""
    [za], [a] = led_by(stage, two.process), keys_at(stage, three.process, 1)
    stage.zput(one.process, za, "0")
    tx = one.begin(timeout_ms=300_000)
    assert one.do(tx, Op.GET, za) == b"0"
    two.process.step(partial(two.process.driver.handle, ActionRequested(Drain())))
    stage.until(lambda: two.process.driver.stopped, seconds=100, what="it has not left")
    stage.request(three.process, Op.SET, za, "1")
    one.set(tx, **{za: "0+", a: "2"})
    told = one.commit(tx)
    stage.wait(3)
    return told, zvalues(stage, one.process, za) + values(stage, one.process, a)


@pytest.mark.rule("raft_partition/L-3")
def test_locks_survive_the_orderly_departure_of_their_leader(monkeypatch: pytest.MonkeyPatch) -> None:
    stage, (one, two, three, _) = stage_of(4)
    told, found = drained(stage, one, two, three)
    assert told.fate is TransactionFate.DONE, told.answer
    assert found == ["1", "2"]
    stage.processes.remove(two.process)
    ended(stage)
    monkeypatch.setattr(ZonePartition, "store_locks", lambda _: True)
    stage, (one, two, three, _) = stage_of(4)
    told, found = drained(stage, one, two, three)
    assert told.fate is TransactionFate.ROLLED_BACK


def led_again(stage: ZoneStage, one: ZoneDesk, two: ZoneDesk, three: ZoneDesk) -> tuple[Told, str | None]:
    """A leader loses a group with a locked entry, gets it back when another member has changed the entry, and the
    transaction goes on.
    """
    [za] = led_by(stage, two.process)
    stage.zput(one.process, za, "0")
    tx = one.begin()
    assert one.do(tx, Op.GET, za) == b"0"
    depose(stage, za)
    stage.zput(three.process, za, "1")
    stage.until(lambda: stage.replicas(place(stage, za))[two.process].leads, what="the owner does not lead")
    one.set(tx, **{za: "0+"})
    told = one.commit(tx)
    stage.wait(2)
    return told, stage.zget(one.process, za)


@pytest.mark.rule("raft_partition/L-1")
def test_a_leader_that_leads_again_knows_no_older_locks() -> None:
    stage, (one, two, three) = stage_of()
    told, value = led_again(stage, one, two, three)
    assert told.fate is TransactionFate.ROLLED_BACK
    assert value == "1"
    ended(stage)
    with ablated("zone-lock-term"):
        stage, (one, two, three) = stage_of()
        told, value = led_again(stage, one, two, three)
        assert told.fate is TransactionFate.DONE
        assert value == "0+", "the put is lost"


def prepared(
    stage: ZoneStage, owner: ZoneDesk, *keys: str, optimistic: bool = False
) -> tuple[TransactionId, Told]:
    """A transaction that has written `keys` and is prepared; its commit waits at its coordinator."""
    tx = owner.begin(optimistic=optimistic)
    owner.set(tx, **dict.fromkeys(keys, "new"))
    owner.order(HoldCommits(b"hold", 60_000))
    told = owner.commit(tx)
    stage.wait(1)
    assert told.fate is None
    return tx, told


@pytest.mark.parametrize("optimistic", [False, True], ids=["pessimistic", "optimistic"])
@pytest.mark.parametrize("single", [False, True], ids=["in batches", "alone"])
def test_what_is_prepared_stays_locked_under_the_next_leader(*, optimistic: bool, single: bool) -> None:
    stage, (one, two, three) = stage_of()
    [za], [a] = led_by(stage, two.process), keys_at(stage, three.process, 1)
    _, told = prepared(stage, one, za, a, optimistic=optimistic)
    new = depose(stage, za)
    put = stage.request(new if single else one.process, Op.PUT, za, "other")
    waiting(stage, put)
    one.order(ResumeCommits(b"hold"))
    stage.wait(5)
    assert told.fate is TransactionFate.DONE
    assert [one.value for one in put] == [b"new"]
    assert zvalues(stage, one.process, za) + values(stage, one.process, a) == ["other", "new"]
    ended(stage)


@pytest.mark.parametrize("in_zone", [False, True], ids=["both engines", "the zone alone"])
def test_members_that_stay_end_a_prepared_transaction(in_zone: bool) -> None:
    """Its coordinator dies when all branches are prepared."""
    stage, (one, two, three, _) = stage_of(4)
    za = led_by(stage, two.process)[0]
    b = led_by(stage, three.process)[0] if in_zone else keys_at(stage, three.process, 1)[0]
    prepared(stage, one, za, b)
    one.process.crash()
    stage.processes.remove(one.process)
    stage.wait(40)
    found = (
        zvalues(stage, two.process, za, b)
        if in_zone
        else [stage.zget(two.process, za), stage.get(two.process, b)]
    )
    assert found == ["new", "new"]
    stage.wait(2 * stage.settings.limits.call_timeout_ms / 1000)  # So long the branches keep the outcome.
    assert kept(stage) == 0


def test_locks_of_a_coordinator_that_has_died_are_released() -> None:
    stage, (one, two, three, _) = stage_of(4)
    za = led_by(stage, two.process)[0]
    tx = one.begin()
    one.set(tx, **{za: "new"})
    one.process.crash()
    stage.processes.remove(one.process)
    put = stage.request(three.process, Op.PUT, za, "other")
    stage.wait(40)
    assert [answer.status for answer in put] == [Status.OK]
    assert kept(stage) == 0


@pytest.mark.rule("raft_partition/L-3")
def test_locks_survive_a_transfer_of_the_leadership() -> None:
    """The group comes back to the member that owns its partition."""
    stage, (one, two, three) = stage_of()
    [za], [a] = led_by(stage, two.process), keys_at(stage, three.process, 1)
    stage.zput(one.process, za, "0")
    tx = one.begin()
    one.set(tx, **{a: "1"})
    second = depose(stage, za)
    told = one.start(tx, Op.GET, za, for_update=True)
    stage.until(lambda: told.fate is not None, what="no lock")
    assert told.answer.value == b"0"
    replica = stage.replicas(place(stage, za))
    assert replica[second].leads and not replica[second].state.copies[place(stage, za)].locks.held
    stage.until(lambda: replica[two.process].leads, what="the owner does not lead")
    put = stage.request(three.process, Op.PUT, za, "2")
    waiting(stage, put)
    one.set(tx, **{za: "1"})
    told = one.commit(tx)
    stage.wait(3)
    assert told.fate is TransactionFate.DONE
    assert [one.value for one in put] == [b"1"]
    assert values(stage, one.process, a) == ["1"]
    ended(stage)


class MovingDesk(Desk):
    """All keys are of one map, which moves."""

    def start(
        self, transaction: TransactionId, op: Op, key: str, value: str = "", *, for_update: bool = False
    ) -> Told:
        request = Request(op, PLAIN, [0], wire_key(key), value.encode())
        return self.order(OperateIn(transaction, request, for_update))


@pytest.mark.rule("operations/V-5")
@pytest.mark.parametrize("zone", ["z", ""], ids=["into a zone", "out of it"])
@pytest.mark.parametrize("optimistic", [False, True], ids=["pessimistic", "optimistic"])
def test_a_transaction_writes_nothing_where_its_map_lived_before(zone: str, *, optimistic: bool) -> None:
    """It has read in the map's old place, and commits when the map has moved."""
    stage = MoveStage(3, settings=taking_part(moving_settings()))
    if not zone:
        stage.move(PLAIN, "z")
    stage.fill(PLAIN)
    one = MovingDesk(stage, stage.processes[0])
    tx = one.begin(optimistic=optimistic, timeout_ms=60_000)
    key, other = KEYS[:2]
    if optimistic:
        one.set(tx, **{key: "new"})
    else:
        assert one.order(OperateIn(tx, Request(Op.GET, PLAIN, [0], wire_key(key)))).fate is None
    stage.wait(1)
    stage.move(PLAIN, zone)
    if not optimistic:
        one.set(tx, **{key: "new", other: "new"})
    told = one.commit(tx)
    stage.wait(3)
    found = [stage.of(PLAIN, Op.GET, each) for each in (key, other)]
    stage.wait(2)
    values = [answer.value for [answer] in found]
    assert (told.fate, values) in (
        (TransactionFate.ROLLED_BACK, [b"v0", b"v1"]),
        (TransactionFate.DONE, [b"new", b"v1" if optimistic else b"new"]),
    )
    assert stage.left_behind(PLAIN) == 0


def prepare_of(stage: ZoneStage, key: str, transaction: TransactionId) -> PrepareBranch:
    """As its first participant takes it; the second one is another partition of the zone."""
    number = group_of(1, place(stage, key))
    write = TransactionalWrite(ZONED, wire_key(key), b"new")
    owner = stage.processes[0].driver.member.me
    return PrepareBranch(transaction, owner, [number, number + 1], [write], [], False)


def request_of(stage: ZoneStage, key: str, step: TransactionStep) -> Request:
    op = Op.TRANSACT if begins(step) else Op.SETTLE
    return Request(op, TRANSACTIONS_MAP, [place(stage, key)], value=encode(step), expected=zone_engine(1))


@pytest.mark.rule("raft_partition/L-4")
def test_a_leader_knows_every_lock_that_replicas_know() -> None:
    """Also one of an entry of the log that it has not proposed in this term."""
    stage, (_, two, _) = stage_of()
    [za] = led_by(stage, two.process)
    replica = stage.replicas(place(stage, za))[two.process]
    locks = replica.locks.of(place(stage, za))
    assert not locks.held
    step = prepare_of(stage, za, b"t" * 16)

    def propose() -> None:
        replica.proposals.submit(request_of(stage, za, step), lambda outcome: None)
        replica.flush()

    two.process.step(propose)
    stage.wait(0.5)
    assert list(locks.held) == [lock_key(ZONED, wire_key(za))]


@pytest.mark.rule("raft_partition/L-4")
def test_a_rollback_releases_no_lock_of_a_prepare_that_is_on_its_way() -> None:
    """Members that find locks without a branch send it, when the coordinator was removed while alive."""
    stage, (_, two, _) = stage_of()
    [za] = led_by(stage, two.process)
    replica = stage.replicas(place(stage, za))[two.process]
    prepare = prepare_of(stage, za, b"t" * 16)
    back = RollBackBranch(prepare.transaction, prepare.owner, prepare.participants, False, only_locks=True)
    results: list[StepFate] = []

    def told(outcome: Outcome) -> None:
        assert isinstance(outcome.value, bytes)
        results.append(decode_result(outcome.value).fate)

    def both() -> None:
        for step in (prepare, back):
            two.process.driver.execute(request_of(stage, za, step), told)

    two.process.step(both)
    stage.wait(0.5)
    assert results == [StepFate.DONE, StepFate.PREPARED], "the branch decides"
    assert list(replica.locks.of(place(stage, za)).held) == [lock_key(ZONED, wire_key(za))]
    assert (
        replica.state.copies[place(stage, za)].locks.held.keys()
        == replica.locks.of(place(stage, za)).held.keys()
    )


@pytest.mark.rule("raft_partition/Z-3")
def test_a_try_that_is_repeated_has_its_first_answer_although_the_entry_is_locked_now() -> None:
    stage, (one, two, _) = stage_of()
    [za] = led_by(stage, two.process)
    raw, partition = wire_key(za), place(stage, za)
    answers: list[Outcome] = []
    asked = Request(Op.TRY_PUT, ZONED, [partition], raw, b"v", id=b"caller-1")
    two.process.step(lambda: two.process.driver.execute(asked, answers.append))
    stage.wait(1)
    one.set(one.begin(), **{za: "w"})
    two.process.step(lambda: two.process.driver.execute(asked, answers.append))
    stage.wait(1)
    assert [answer.value for answer in answers] == [True, True]


@pytest.mark.rule("raft_partition/L-3")
def test_locks_that_are_about_to_end_are_not_stored() -> None:
    """A group is handed over while the only prepare of a transaction is on its way."""
    stage, (one, two, _) = stage_of()
    [za] = led_by(stage, two.process)
    replica = stage.replicas(place(stage, za))[two.process]
    tx = one.begin()
    one.set(tx, **{za: "v"})
    step = PrepareBranch(tx, one.process.driver.member.me, [group_of(1, place(stage, za))], [], [], True)

    def both() -> None:
        two.process.driver.execute(request_of(stage, za, step), lambda outcome: None)
        assert not replica.store_locks()

    two.process.step(both)
    stage.wait(0.5)
    copy = replica.state.copies[place(stage, za)]
    assert not copy.locks.held and not replica.locks.of(place(stage, za)).held


@pytest.mark.rule("raft_partition/L-3")
def test_a_lock_that_could_not_be_stored_is_stored_later() -> None:
    """The log did not take it, because a transfer was in progress that came to nothing."""
    stage, (one, two, _) = stage_of()
    [za] = led_by(stage, two.process)
    replica = stage.replicas(place(stage, za))[two.process]
    tx = one.begin()
    one.set(tx, **{za: "v"})
    replica.locks.leaving = True
    two.process.step(replica.store_locks)
    stage.wait(0.5)
    assert replica.locks.store()


@pytest.mark.rule("raft_partition/L-2")
def test_a_lock_is_not_answered_before_changes_that_have_timed_out_are_applied() -> None:
    stage, (_, two, _) = stage_of()
    [za] = led_by(stage, two.process)
    replica = stage.replicas(place(stage, za))[two.process]
    outcomes: list[tuple[str, Status]] = []

    def late() -> None:
        set_it = Request(Op.SET, ZONED, [place(stage, za)], wire_key(za), b"1")
        replica.proposals.submit(set_it, lambda outcome: outcomes.append(("set", outcome.status)))
        replica.flush()
        replica.proposals.expire(two.process.driver.member.out.now_ns + 10**15)
        replica.proposals.after(lambda outcome: outcomes.append(("lock", outcome.status)))

    two.process.step(late)
    assert outcomes == [("set", Status.UNKNOWN), ("lock", Status.MOVED)]
    stage.wait(1)
    two.process.step(
        lambda: replica.proposals.after(lambda outcome: outcomes.append(("lock", outcome.status)))
    )
    assert outcomes[2:] == [("lock", Status.OK)]


def left(stage: ZoneStage) -> set[str]:
    found = leftovers.judge([process.picture for process in stage.living()])
    return {" ".join(problem.split()[5:8]) for problem in found if ": zone 1: partition" in problem}


def test_locks_and_branches_in_zones_are_left_over_in_a_cluster_at_rest() -> None:
    stage, (one, two, three) = stage_of()
    za, zb = led_by(stage, two.process)[0], led_by(stage, three.process)[0]
    assert left(stage) == set()
    tx = one.begin()
    one.set(tx, **{za: "1"})
    assert left(stage) == {"a lock of"}
    one.roll_back(tx)
    stage.wait(1)
    assert left(stage) == set()
    _, told = prepared(stage, one, za, zb)
    assert left(stage) == {"a lock of", "a prepared branch"}
    one.order(ResumeCommits(b"hold"))
    stage.wait(5)
    assert told.fate is TransactionFate.DONE and left(stage) == set()
    copy = stage.replicas(place(stage, za))[one.process].state.copies[place(stage, za)]
    copy.locks.change(
        LockChanges([(lock_key(ZONED, wire_key(za)), KeyLock(tx, one.process.driver.member.me))])
    )
    assert left(stage) == {"a lock of"}, "of a replica that does not lead"


@pytest.mark.rule("raft_partition/L-2")
def test_a_map_is_not_destroyed_at_the_end_of_a_clearing_that_a_lock_has_overtaken() -> None:
    """A map with a change stream is cleared in steps, and locks may be taken in between."""
    stage, (one, two, _) = stage_of()
    [za] = led_by(stage, two.process)
    one.set(one.begin(), **{za: "v"})
    replica = stage.replicas(place(stage, za))[two.process]
    zones = two.process.driver.member.agreed.zones
    outcomes: list[Outcome] = []
    destroy = Request(Op.DESTROY, ZONED, [place(stage, za)])
    replication = zones.homes.zones[1].replication
    two.process.step(lambda: replication.propose(destroy, outcomes.append))
    assert replica.leads
    assert [outcome.status for outcome in outcomes] == [Status.MOVED]


@pytest.mark.rule("transactions/M-1")
def test_a_cut_is_taken_again_if_a_transaction_in_a_zone_is_half_done() -> None:
    """Its coordinator dies between two commits, while commits are held up for the cut."""
    stage, desks = stage_of(4)
    one, two, three, _ = desks
    za, zb = led_by(stage, two.process)[0], led_by(stage, three.process)[0]
    tx, _ = prepared(stage, one, za, zb)
    for desk in desks[1:]:
        assert desk.order(HoldCommits(b"cut", 60_000)).fate is None
    stage.wait(0.5)
    commit = request_of(stage, za, CommitBranch(tx))
    two.process.step(lambda: two.process.driver.execute(commit, lambda outcome: None))
    one.process.crash()
    stage.processes.remove(one.process)
    stage.wait(15)
    assert zvalues(stage, two.process, za, zb) == ["new", None], "a cut would show this"
    resumed = [desk.order(ResumeCommits(b"cut")) for desk in desks[1:]]
    stage.wait(1)
    assert {told.answer.why for told in resumed if told.fate is TransactionFate.NOT_DONE} == {HALF_DONE}
    stage.wait(30)
    assert zvalues(stage, two.process, za, zb) == ["new", "new"]
    for desk in desks[1:]:
        desk.order(HoldCommits(b"next", 60_000))
    stage.wait(1)
    again = [desk.order(ResumeCommits(b"next")) for desk in desks[1:]]
    assert {told.fate for told in again} == {TransactionFate.DONE}


@pytest.mark.rule("raft_partition/L-4")
def test_a_prepare_that_is_on_its_way_keeps_its_entries_from_other_transactions() -> None:
    stage, (one, two, _) = stage_of()
    [za] = led_by(stage, two.process)
    replica = stage.replicas(place(stage, za))[two.process]
    other = LockKeys(b"u" * 16, one.process.driver.member.me, [(ZONED, wire_key(za))], 200)
    answers: list[Outcome] = []

    def both() -> None:
        prepare = request_of(stage, za, prepare_of(stage, za, b"t" * 16))
        two.process.driver.execute(prepare, lambda outcome: None)
        two.process.driver.execute(request_of(stage, za, other), answers.append)

    two.process.step(both)
    stage.wait(1)
    [answer] = answers
    assert isinstance(answer.value, bytes) and decode_result(answer.value).fate is StepFate.LOCKED
    held = replica.locks.of(place(stage, za)).held
    assert {lock.transaction for lock in held.values()} == {b"t" * 16}


@pytest.mark.rule("raft_partition/L-3")
def test_a_lock_that_is_taken_before_a_transfer_is_stored_at_once() -> None:
    stage, (one, two, _) = stage_of()
    [za] = led_by(stage, two.process)
    replica = stage.replicas(place(stage, za))[two.process]
    assert replica.locks.store(), "there is none yet"
    told = one.start(one.begin(), Op.SET, za, "v")
    stage.wait(0.2)
    assert told.fate is TransactionFate.DONE
    assert lock_key(ZONED, wire_key(za)) in replica.state.copies[place(stage, za)].locks.held


@pytest.mark.rule("raft_partition/L-1")
@pytest.mark.parametrize("when", ["before", "while it waits"])
def test_a_leader_that_has_not_applied_everything_answers_no_lock(
    when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage, (one, two, _) = stage_of()
    [za] = led_by(stage, two.process)
    lock = LockKeys(b"u" * 16, one.process.driver.member.me, [(ZONED, wire_key(za))], 200)
    groups = two.process.driver.member.agreed.groups
    replica = stage.replicas(place(stage, za))[two.process]
    answers: list[Outcome] = []
    if when == "before":
        monkeypatch.setattr(groups, "current", lambda number: False)

    def both() -> None:
        stored = Request(Op.SET, ZONED, [place(stage, za)], wire_key(za), b"1")
        two.process.driver.execute(stored, lambda outcome: None)
        two.process.driver.execute(request_of(stage, za, lock), answers.append)

    two.process.step(both)
    monkeypatch.setattr(groups, "current", lambda number: False)
    stage.wait(1)
    assert not answers
    assert replica.locks.count == (when != "before")
    monkeypatch.undo()
    stage.wait(5)
    [answer] = answers
    assert isinstance(answer.value, bytes)
    assert decode_result(answer.value) == StepResult(StepFate.DONE, [b"1"])


@pytest.mark.rule("raft_partition/L-2")
def test_a_batch_of_a_session_is_not_proposed_over_a_lock() -> None:
    stage, (one, two, _) = stage_of()
    [za] = led_by(stage, two.process)
    one.set(one.begin(), **{za: "v"})
    replication = two.process.driver.member.agreed.zones.homes.zones[1].replication
    outcomes: list[Outcome] = []
    for key in (za, za + "other"):
        writes = ZoneWrites([(ZONED, wire_key(key), b"w", 0, 0)], place(stage, za))
        two.process.step(partial(replication.change, place(stage, za), [writes], outcomes.append))
        stage.wait(0.5)
    assert [outcome.status for outcome in outcomes] == [Status.MOVED, Status.OK]
    assert zvalues(stage, one.process, za) == [None]


def dropped_under(stage: ZoneStage, one: ZoneDesk, two: ZoneDesk, three: ZoneDesk) -> tuple[Told, str]:
    """The zone of a prepared branch is dropped. Returns the answer to the commit, and the key of the other branch."""
    [za], [a] = led_by(stage, two.process), keys_at(stage, three.process, 1)
    _, told = prepared(stage, one, za, a)
    answer = order(stage, three.process, DropZone("z"))
    assert not isinstance(answer, RequestError), answer
    stage.wait(5)
    return told, a


@pytest.mark.rule("transactions/F-4")
def test_a_transaction_ends_when_the_zone_of_a_branch_is_dropped() -> None:
    stage, (one, two, three) = stage_of()
    told, a = dropped_under(stage, one, two, three)
    one.order(ResumeCommits(b"hold"))
    stage.wait(5)
    assert told.fate is TransactionFate.DONE
    assert values(stage, two.process, a) == ["new"]
    assert one.process.driver.member.transactions.finishing.quiet


@pytest.mark.rule("transactions/F-4")
def test_without_its_coordinator_and_the_zone_it_is_rolled_back() -> None:
    stage, (one, two, three, _) = stage_of(4)
    _, a = dropped_under(stage, one, two, three)
    one.process.crash()
    stage.processes.remove(one.process)
    stage.wait(40)
    assert values(stage, two.process, a) == [None]
    put = stage.ask(three.process, Op.SET, a, "later")
    stage.wait(2)
    assert [answer.status for answer in put] == [Status.OK], "nothing is locked any more"
    assert all(process.driver.member.transactions.finishing.quiet for process in stage.living())


@pytest.mark.rule("transactions/F-4")
def test_a_member_that_joins_after_a_zone_was_dropped_ends_its_transactions() -> None:
    """It becomes the primary of prepared branches, and has never known the zone."""
    settings = taking_part(zoned_settings())
    stage = ZoneStage(3, settings=settings, spare=1)
    one, two, three = (ZoneDesk(stage, process) for process in stage.processes)
    [za] = led_by(stage, two.process)
    keys = list({stage.partition(key): key for key in map(str, range(100))}.values())
    prepared(stage, one, za, *keys)
    answer = order(stage, three.process, DropZone("z"))
    assert not isinstance(answer, RequestError), answer
    new = stage.cluster.start(3)
    stage.processes.append(new)
    stage.until(stage.cluster.settled, what="the member has not joined")
    assert any(row.owner == new.driver.member.me for row in new.driver.member.table.rows)
    one.process.crash()
    stage.processes.remove(one.process)
    stage.wait(40)
    assert values(stage, two.process, *keys) == [None] * len(keys)
    puts = [stage.ask(three.process, Op.SET, key, "later") for key in keys]
    stage.wait(2)
    assert [answer.status for put in puts for answer in put] == [Status.OK] * len(keys)
    assert all(process.driver.member.transactions.finishing.quiet for process in stage.living())


def stored(stage: ZoneStage, key: str) -> str | None:
    """In the first zone, whatever its name."""
    value = stage.replicas(place(stage, key))[stage.leader(place(stage, key))].look(
        place(stage, key), ZONED, wire_key(key)
    )
    return value.decode() if value is not None else None


def test_a_prepared_transaction_is_committed_in_a_zone_that_was_renamed() -> None:
    stage, (one, two, three) = stage_of()
    [za], [a] = led_by(stage, two.process), keys_at(stage, three.process, 1)
    _, told = prepared(stage, one, za, a)
    answer = order(stage, three.process, RenameZone("z", "y"))
    assert not isinstance(answer, RequestError), answer
    one.order(ResumeCommits(b"hold"))
    stage.wait(5)
    assert told.fate is TransactionFate.DONE
    assert [stored(stage, za), *values(stage, two.process, a)] == ["new", "new"]
    assert kept(stage) == 0


@pytest.mark.rule("transactions/S-1")
def test_a_step_reaches_its_zone_although_another_one_has_its_name() -> None:
    """The coordinator does not know yet that two zones have exchanged their names. A commit that reached the other zone
    would find no branch there, and be taken for done.
    """
    stage, (one, two, three) = stage_of()
    [za], [a] = led_by(stage, two.process), keys_at(stage, three.process, 1)
    stage.create(ZoneSettings("x", partitions=stage.settings.partitions.count, replicas=3))
    stage.wait(10)
    _, told = prepared(stage, one, za, a)
    for desk in (two, three):
        routing = desk.process.driver.member.agreed.zones
        for number, name in ((1, "between"), (2, "z"), (1, "x")):
            routing.know(number, name, stage.settings.partitions.count)
    one.order(ResumeCommits(b"hold"))
    stage.wait(5)
    assert told.fate is TransactionFate.DONE
    assert [stored(stage, za), *values(stage, two.process, a)] == ["new", "new"]
    assert kept(stage) == 0


@pytest.mark.rule("transactions/F-2")
@pytest.mark.parametrize("coordinator", [pytest.param("lives", marks=pytest.mark.slow), "is gone"])
def test_a_prepared_transaction_ends_in_a_group_that_was_reset(coordinator: str) -> None:
    """The group of one branch has lost its majority for good, and continues with the replica that is left."""
    stage, desks = stage_of(7)
    one, two, *_ = desks
    others = {desk.process.driver.member.agreed.groups.me: desk for desk in desks[3:]}
    za, lost = next(
        (key, lost)
        for key in map("z{}".format, range(1000))
        if len(lost := stage.voters(place(stage, key)) & others.keys()) == 2
        and one.process not in stage.replicas(place(stage, key))
    )
    dead = [others[node] for node in sorted(lost)] + ([one] if coordinator == "is gone" else [])
    died = {desk.process for desk in dead}
    a = next(key for key in map(str, range(1000)) if not {stage.owner_of(key), *stage.backups_of(key)} & died)
    _, told = prepared(stage, one, za, a)
    for desk in dead:
        desk.process.crash()
        stage.processes.remove(desk.process)
    stage.wait(20)
    assert not any(replica.leads for replica in stage.replicas(place(stage, za)).values())
    answer = order(stage, two.process, ResetZone("z", [place(stage, za)]), 20)
    assert not isinstance(answer, RequestError), answer
    stage.wait(20)
    if coordinator == "lives":
        assert told.fate is TransactionFate.DONE
    assert [stored(stage, za), *values(stage, two.process, a)] == ["new", "new"]
    stage.zput(two.process, za, "later")
    stage.until(lambda: kept(stage) == 0, what="an outcome is not forgotten")


def test_maps_in_zones_take_part_as_soon_as_the_level_is_raised() -> None:
    """A member of the former level is replaced, and the level is raised, while transactions run."""
    before = FeatureLevels(LOWEST, ZONE_TRANSACTIONS - 1)
    stage = ZoneStage(
        4,
        settings=taking_part(zoned_settings()),
        builds=[before, *[OF_THIS_BUILD] * 3],
    )
    one, two, three, _ = (ZoneDesk(stage, process) for process in stage.processes)
    [za] = led_by(stage, three.process)
    a, b = keys_at(stage, three.process, 2)
    for desk in (one, two):
        tx = desk.begin()
        desk.set(tx, **{b: "1"})
        told = desk.start(tx, Op.SET, za, "1")
        stage.wait(1)
        assert told.fate is TransactionFate.NOT_DONE and "holdfast cluster upgrade" in told.answer.why, (
            told.answer
        )
        desk.roll_back(tx)
    tx = two.begin(timeout_ms=300_000)
    two.set(tx, **{a: "new"})
    one.process.step(partial(one.process.driver.handle, ActionRequested(Drain())))
    stage.until(lambda: one.process.driver.stopped, seconds=100, what="it has not left")
    stage.cluster.builds[0] = OF_THIS_BUILD
    stage.processes[0] = stage.cluster.start(0)
    stage.until(stage.cluster.settled, what="the member has not joined")
    two.process.step(partial(two.process.driver.handle, ActionRequested(Upgrade(ZONE_TRANSACTIONS))))
    stage.wait(5)
    assert {picture.level for picture in stage.cluster.pictures()} == {ZONE_TRANSACTIONS}
    two.set(tx, **{za: "new"})
    told = two.commit(tx)
    stage.wait(2)
    assert told.fate is TransactionFate.DONE
    assert [*zvalues(stage, two.process, za), *values(stage, three.process, a, b)] == ["new", "new", None]
    ended(stage)
