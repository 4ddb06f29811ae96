"""The judges of members must find what is wrong with them, and nothing else: copies that differ, and leftovers."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.core.store.noted import deadlines
from tests.lab.sim.stage import Stage

from holdfast.config import TRANSACTIONS_MAP
from holdfast.core.hosted_services import Endpoint, MigrationEvent
from holdfast.core.member import Member
from holdfast.core.messages import Enlist
from holdfast.core.model.ids import SECOND, MemberId
from holdfast.core.model.operations import EntryEvent, EventKind, Op, Request
from holdfast.core.model.transactions import KeyLock, encode, lock_key
from holdfast.core.routing.pending import Parked
from holdfast.core.state_transfer.destination import StagingReplica
from holdfast.core.store.partition_copy import PartitionCopy
from holdfast.core.store.replica import map_replica
from holdfast.runtime.data_lane import data_lane
from holdfast_lab.check import convergence, leftovers
from holdfast_lab.sim.cluster import simulated_settings
from holdfast_lab.sim.workload import MAP


@pytest.fixture
def stage() -> Stage:
    stage = Stage(3)
    stage.put(stage.processes[0], "k", "v")
    assert convergence.judge(stage.cluster.pictures()) == []
    assert leftovers.judge(stage.cluster.pictures()) == []
    return stage


def pair(stage: Stage) -> tuple[Member, Member, int]:
    """The primary and the backup of the key's partition, and which it is."""
    owner, (backup,) = stage.owner_of("k").driver.member, stage.backups_of("k")
    partition = next(p for p, copy in enumerate(owner.lane.serving) if copy and copy.entry_count())
    return owner, backup.driver.member, partition


def test_a_backup_that_lacks_a_write_is_found_as_soon_as_the_write_is_acknowledged(stage: Stage) -> None:
    owner, backup, partition = pair(stage)
    assert convergence.unequal(owner.picture, [backup.picture], partition) == []
    backup.copies.held[partition].maps[MAP].state.entries.clear()
    assert convergence.unequal(owner.picture, [backup.picture], partition) == [
        f"partition {partition}: entries of {MAP} differ at index 1"
    ]
    backup.copies.held[partition].maps[MAP].updates.lwm = 7
    assert len(convergence.unequal(owner.picture, [backup.picture], partition)) == 2


def test_copies_are_compared_only_when_nothing_is_on_its_way(stage: Stage) -> None:
    owner, backup, partition = pair(stage)
    backup.copies.held[partition].maps[MAP].state.entries.clear()
    stage.cut(stage.owner_of("k"), stage.backups_of("k")[0])
    stage.ask(stage.owner_of("k"), Op.SET, "k", "on its way")
    assert convergence.unequal(owner.picture, [backup.picture], partition) == []
    serving, owner.lane.serving[partition] = owner.lane.serving[partition], None
    assert convergence.unequal(owner.picture, [backup.picture], partition) == []
    assert serving is not None


def foreign(member: Member) -> int:
    """A partition of which this member is no replica."""
    return next(p for p, row in enumerate(member.table.rows) if row.index_of(member.me) < 0)


def own(member: Member) -> PartitionCopy:
    return next(iter(member.copies.held.values()))


def keep_a_copy(member: Member) -> None:
    member.copies.held[foreign(member)] = PartitionCopy(foreign(member), 0)


def stay_in_office(member: Member) -> None:
    member.activation.active.add(foreign(member))


def keep_a_shadow(member: Member) -> None:
    staged = StagingReplica.__new__(StagingReplica)
    member.copies.staging[0] = staged


def keep_an_early_message(member: Member) -> None:
    member.copies._keep(member.me, 0, Enlist([]))


def keep_an_early_chunk(member: Member) -> None:
    member.destination._early[0] = []


def keep_a_beginning(member: Member) -> None:
    member.copies.services.begin(MigrationEvent(0, Endpoint.DESTINATION, -1, 1))


def keep_a_row(member: Member) -> None:
    member.table_replication._stored[0] = member.table.rows[0]


def keep_a_request(member: Member) -> None:
    member.router._park(0, Parked(Request(Op.GET, MAP, [0]), lambda outcome: None, 0))


def keep_a_batch(member: Member) -> None:
    member.lane.batches._begin(("nobody",))


def keep_a_destination(member: Member) -> None:
    member.lane.joining[0] = (member.me, 1)


def keep_a_supply(member: Member) -> None:
    member.source._early.append((member.me, None))  # type: ignore[arg-type]


def keep_an_event(member: Member) -> None:
    member.listeners._pending[member.me] = [EntryEvent(EventKind.ADDED, MAP, member.me)]


def keep_a_subscriber(member: Member) -> None:
    member.listeners._subscribers[MAP] = {member.me}
    member.listeners._count(MAP)


def keep_a_migration(member: Member) -> None:
    member.migrations.under_way.load[member.me] = 1


def keep_a_call(member: Member) -> None:
    member.activation._waiting[0] = {member.me}


def keep_a_note(member: Member) -> None:
    member.membership.intents.safe.add(MemberId(member.me + "x"))


def keep_an_expiry(member: Member) -> None:
    own(member).open(MAP).state.schedule(b"gone", 60_000, 0, member.out.now_ns)


def keep_a_deadline(member: Member) -> None:
    deadlines(own(member).open(MAP).state).append((member.out.now_ns - 11 * SECOND, b"gone"))


def keep_a_hash(member: Member) -> None:
    own(member).open(MAP).state.hashes[b"gone"] = 1


LOCK = KeyLock(b"1" * 16, MemberId("gone"))


def keep_a_lock(member: Member) -> None:
    own(member).locks.held[lock_key(MAP, b"k")] = LOCK


def keep_a_stored_lock(member: Member) -> None:
    for copy in member.copies.held.values():
        copy.open(TRANSACTIONS_MAP).state.store(lock_key(MAP, b"k"), encode(LOCK), 0, 0, 0, 0)


def keep_locks_of_before(member: Member) -> None:
    for copy in member.copies.held.values():
        copy.locks.held[lock_key(MAP, b"k")] = LOCK


KEPT = [
    (keep_a_lock, f"a lock of {LOCK.transaction.hex()}"),
    (keep_a_stored_lock, f"a lock of {LOCK.transaction.hex()}"),
    (keep_a_stored_lock, "stored locks that are not held"),
    (keep_locks_of_before, "locks in memory, and not the owner"),
    (keep_a_copy, "keeps a copy that is not its own"),
    (stay_in_office, "in office, and not the owner"),
    (keep_a_shadow, "1 left: staging replicas"),
    (keep_an_early_message, "1 left: early messages"),
    (keep_an_early_chunk, "1 left: early chunks"),
    (keep_a_beginning, "1 left: migrations without a callback to services at their end"),
    (keep_a_row, "1 left: rows stored and never applied"),
    (keep_a_request, "1 left: parked requests"),
    (keep_a_batch, "1 left: batches"),
    (keep_a_destination, "1 left: destinations of migrations"),
    (keep_a_supply, "1 left: early migration requests"),
    (keep_an_event, "1 left: events not sent"),
    (keep_a_subscriber, "subscriptions of map ledger are wrong"),
    (keep_a_migration, "1 left: members with migrations"),
    (keep_a_call, "1 left: primaries taking office"),
    (keep_a_note, "1 left: notes about members that are gone"),
    (keep_an_expiry, "expiries of entries that are gone"),
    (keep_a_deadline, "deadlines that are over"),
    (keep_a_hash, "hashes of keys that are gone"),
]


@pytest.mark.parametrize(("keep", "words"), KEPT, ids=[keep.__name__ for keep, _ in KEPT])
def test_what_is_left_over_is_found(stage: Stage, keep: Callable[[Member], None], words: str) -> None:
    keep(stage.processes[1].driver.member)
    problems = leftovers.judge(stage.cluster.pictures())
    assert any(words in problem for problem in problems), problems


def test_a_map_that_a_cold_replica_does_not_hold_is_found() -> None:
    stage = Stage(4, settings=simulated_settings(1, 7, mixed=True))
    member, partition = next(
        (process.driver.member, partition)
        for process in stage.processes
        for partition, row in enumerate(process.driver.member.table.rows)
        if row.index_of(process.driver.member.me) == 2
    )
    assert leftovers.judge(stage.cluster.pictures()) == []
    member.copies.held[partition].open(MAP)
    (problem,) = leftovers.judge(stage.cluster.pictures())
    assert problem.endswith(f"partition {partition}: keeps map {MAP}, which index 2 does not hold")


@pytest.mark.skipif(data_lane().kind == "python", reason="there are no compiled tables")
def test_what_is_over_in_a_table_is_left_over_where_its_primary_is() -> None:
    """A backup's entry stays until the primary says that it is gone; the primary's own is to go by itself."""
    state = map_replica(MAP, data_lane().ways.entries).state
    state.store(b"key", b"value", 1000, 0, 0, 0)
    for over_ns, backup, found in (
        (0, False, []),
        (60 * SECOND, False, ["deadlines that are over"]),
        (60 * SECOND, True, []),
    ):
        assert leftovers._entries(state, over_ns, backup=backup) == found
