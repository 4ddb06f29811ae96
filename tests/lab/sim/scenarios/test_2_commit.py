"""Group 2: the commit of a migration. Two partitions, one migration at a time, a lite master that takes no part.

A commit here is a round of the table (`core/partition_table/table_replication.py`): the destination stores the row,
then a majority does, then the master applies it, then the others. *Rolled back* means that the partition's version
has risen further than the commit would have raised it, with the replicas as they were (rule migration/M-4).

There is no list of completed migrations that shrinks as members acknowledge: the row and its version are the decision.
In its place stands `TableReplication.settled`: whether every member has stored every round. Without it no member may
leave. NO_MIGRATION is a state of the cluster, and not here yet; the last data member can leave in any state.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from tests.lab.sim.scenarios.scene import Scene, row_history

from holdfast.core.events import Received
from holdfast.core.messages import (
    Filled,
    MigrationReady,
    MigrationRefused,
    MigrationRequest,
    TableOffer,
    TableReport,
    TableStored,
)
from holdfast.core.model.migration import NONE, Migration
from holdfast.core.model.operations import Op, Status
from holdfast_lab.sim.rig import Packet

MASTER, NEXT, SOURCE, DESTINATION = range(4)


class Move:
    """A lite master, another lite member that is the next one, a data member with both partitions; a second joins."""

    def __init__(self, lost: str = "wait") -> None:
        self.scene = Scene(0, partitions=2, deep=False, parallel=1, lost=lost)
        self.scene.start(MASTER, NEXT, lite=True)
        self.scene.start(SOURCE)
        self.scene.rest()
        self.scene.fill(20)
        self.before = list(self.scene.members()[0].table.rows)
        self.moved = -1
        """The partition that moves."""
        self.scene.when(self._is_ready, self._remember)
        self.histories: list[list[tuple[int, tuple[str | None, ...]]]] = []

    @staticmethod
    def _is_ready(packet: Packet) -> bool:
        return isinstance(packet.message, MigrationReady)

    def _remember(self, packet: Packet) -> None:
        assert isinstance(packet.message, MigrationReady)
        self.moved = packet.message.partition

    def join(self) -> None:
        """The destination comes, and the migration begins."""
        self.scene.start(DESTINATION)

    def history(self, host: int) -> list[list[tuple[int, tuple[str | None, ...]]]]:
        """What a member applies of both partitions, from now on."""
        return [row_history(self.scene.process(host), partition) for partition in (0, 1)]

    def each_owns_one(self) -> None:
        self.scene.judge()
        assert sorted(self.scene.owners().values()) == [f"host{SOURCE}", f"host{DESTINATION}"]

    @property
    def owner(self) -> str:
        """Who had everything."""
        return self.scene.member(SOURCE).me


def offers_to(host: int, scene: Scene, packet: Packet) -> bool:
    """Whether this is the offer of a committing row to its destination."""
    message = packet.message
    if not isinstance(message, TableOffer) or packet.receiver is not scene.process(host):
        return False
    return any(row.owner == scene.member(host).me for _, row in message.rows)


def test_when_the_second_member_is_terminated_the_first_owns_all() -> None:
    move = Move(lost="accept")
    move.join()
    move.each_owns_one()
    move.scene.terminate(DESTINATION)
    move.scene.rest()
    assert set(move.scene.owners().values()) == {f"host{SOURCE}"}


def test_the_second_member_terminated_with_a_backup_on_the_first_loses_nothing() -> None:
    scene = Scene(1, partitions=2, deep=False)
    scene.start(0, lite=True)
    scene.start(1, 2)
    scene.rest()
    scene.fill(20)
    scene.terminate(2)
    scene.judge()
    assert set(scene.owners().values()) == {"host1"}


def test_a_third_member_joins_and_the_master_is_no_endpoint() -> None:
    move = Move()
    move.join()
    move.each_owns_one()
    assert move.scene.member(MASTER).migrations.completed == 1


def test_the_master_dies_when_the_copy_is_complete_and_not_committed() -> None:
    """The destination sees a rollback: its half-made copy goes; then the next master has the migration made anew."""
    move = Move()
    scene = move.scene
    copies: list[bool] = []

    def strike(packet: Packet) -> Sequence[int]:
        staged = scene.member(DESTINATION).copies.staging[move.moved]
        copies.append(staged.complete)
        scene.terminate(MASTER)
        return ()

    struck = scene.when(lambda packet: offers_to(DESTINATION, scene, packet), strike)
    move.join()
    scene.until(lambda: bool(struck))
    history = move.history(DESTINATION)
    move.each_owns_one()
    assert copies == [True]
    version = move.before[move.moved].version
    rolled_back = history[move.moved][1]
    assert rolled_back[0] > version + 1
    assert rolled_back[1] == (move.owner,)


def test_the_destination_dies_when_it_has_the_copy_and_nothing_is_committed() -> None:
    move = Move()
    scene = move.scene

    def strike(packet: Packet) -> None:
        scene.terminate(DESTINATION)

    struck = scene.when(lambda packet: isinstance(packet.message, MigrationReady), strike)
    move.join()
    scene.until(lambda: bool(struck))
    history = move.history(MASTER)
    scene.judge()
    assert set(scene.owners().values()) == {f"host{SOURCE}"}
    version = move.before[move.moved].version
    assert [(above > version + 1, row) for above, row in history[move.moved][1:]] == [(True, (move.owner,))]


def test_the_master_dies_when_only_the_destination_knows_of_the_commit() -> None:
    """The source must see a commit, not a rollback."""
    move = Move()
    scene = move.scene

    def strike(packet: Packet) -> Sequence[int]:
        scene.terminate(MASTER)
        return ()

    struck = scene.when(
        lambda packet: (
            isinstance(packet.message, TableStored)
            and packet.sender is scene.process(DESTINATION)
            and move.moved >= 0
        ),
        strike,
    )
    move.join()
    scene.until(lambda: bool(struck))
    assert scene.member(DESTINATION).table_replication.stored_assignment(move.moved) is not None
    assert all(
        scene.member(host).table_replication.stored_assignment(move.moved) is None for host in (NEXT, SOURCE)
    )
    history = move.history(SOURCE)
    move.each_owns_one()
    version = move.before[move.moved].version
    assert history[move.moved] == [
        (version, (move.owner,)),
        (version + 1, (scene.member(DESTINATION).me,)),
    ]


def test_the_source_dies_when_the_copy_is_complete_and_the_commit_is_pending() -> None:
    """What it sent last was that the destination holds everything: the destination commits, and owns all."""
    move = Move(lost="accept")
    scene = move.scene

    def strike(packet: Packet) -> None:
        scene.terminate(SOURCE)

    struck = scene.when(lambda packet: isinstance(packet.message, MigrationReady), strike)
    move.join()
    scene.until(lambda: bool(struck))
    history = move.history(DESTINATION)
    scene.rest()
    assert set(scene.owners().values()) == {f"host{DESTINATION}"}
    version = move.before[move.moved].version
    assert history[move.moved][-1] == (version + 1, (scene.member(DESTINATION).me,)), (
        "committed, nothing else after"
    )
    assert scene.member(MASTER).migrations.failed == 0
    # It alone had the other partition, which began anew; of the one that moved, nothing is lost.
    for (_, key), value in scene.expected.items():
        if scene.partition(key) == move.moved:
            answers = scene.ask(scene.process(MASTER), Op.GET, key)
            scene.until(lambda answers=answers: bool(answers))
            assert answers[0].value == value.encode()


def test_the_destination_dies_within_its_commit() -> None:
    move = Move()
    scene = move.scene

    def strike(packet: Packet) -> Sequence[int]:
        scene.terminate(DESTINATION)
        return ()

    struck = scene.when(
        lambda packet: (
            isinstance(packet.message, TableStored)
            and packet.sender is scene.process(DESTINATION)
            and move.moved >= 0
        ),
        strike,
    )
    move.join()
    scene.until(lambda: bool(struck))
    history = move.history(SOURCE)
    scene.judge()
    assert set(scene.owners().values()) == {f"host{SOURCE}"}
    assert {row for _, row in history[move.moved]} == {(move.owner,)}


def test_a_migration_that_starts_from_another_version_fails_and_is_tried_again() -> None:
    """The master raises the row at the moment at which it asks for the migration."""
    move = Move()
    scene = move.scene
    master = scene.process(MASTER)
    raised: list[int] = []

    def bump(partition: int) -> None:
        master.driver.enter()
        row = master.driver.member.table_replication.head[partition]
        master.driver.member.table_replication.propose({partition: row.changed(row.replicas)})
        master.driver.leave_lane()
        raised.append(partition)

    def soon(packet: Packet) -> None:
        assert isinstance(packet.message, MigrationRequest)
        partition = packet.message.migration.partition
        scene.world.after(0, partial(master.step, partial(bump, partition)))

    scene.when(lambda packet: isinstance(packet.message, MigrationRequest), soon)
    asked = scene.seen(MigrationRequest)
    move.join()
    move.each_owns_one()
    versions = [p.message.version for p in asked if isinstance(p.message, MigrationRequest)]
    assert raised
    assert len(versions) == 2
    assert versions[1] == versions[0] + 1


def test_a_primary_refuses_a_migration_from_an_older_row() -> None:
    move = Move()
    scene = move.scene
    move.join()
    move.each_owns_one()
    refused = scene.seen(MigrationRefused)
    source, view = scene.member(SOURCE), scene.member(SOURCE).membership.view
    assert view is not None
    staying = 1 - move.moved
    migration = Migration(staying, source.me, 0, NONE, scene.member(DESTINATION).me, NONE, 0)
    version = source.table.rows[staying].version
    request = MigrationRequest(view.number, migration, version - 1)
    scene.process(SOURCE).step(
        partial(scene.process(SOURCE).driver.handle, Received(scene.member(MASTER).me, request))
    )
    scene.wait(1)
    (answer,) = (packet.message for packet in refused)
    assert isinstance(answer, MigrationRefused)
    assert f"the row is at version {version}" in answer.why
    scene.judge()


def test_when_all_have_stored_the_commit_it_is_settled() -> None:
    move = Move()
    move.join()
    move.each_owns_one()
    assert move.scene.member(MASTER).table_replication.settled
    assert not any(member.picture.under_way() for member in move.scene.members())


def test_while_one_member_does_not_acknowledge_the_commit_nobody_may_leave() -> None:
    move = Move()
    scene = move.scene
    move.join()
    scene.until(lambda: move.moved >= 0)
    unblock = scene.block(
        lambda packet: isinstance(packet.message, TableStored) and packet.sender is scene.process(NEXT)
    )
    scene.until(lambda: scene.member(MASTER).migrations.completed == 1)
    leaving = scene.shut_down(DESTINATION)
    scene.wait(10)
    table_replication = scene.member(MASTER).table_replication
    assert not table_replication.settled
    assert not leaving[0].dead
    assert scene.member(MASTER).picture.unsafe_reason() != ""
    unblock()
    scene.returned(leaving)
    scene.judge()


def test_the_only_data_member_leaves_and_a_lite_master_stays() -> None:
    scene = Scene(0, partitions=2, deep=False)
    scene.start(0, lite=True)
    scene.start(1)
    scene.rest()
    scene.fill(5)
    scene.returned(scene.shut_down(1))
    scene.wait(5)
    answers = scene.ask(scene.process(0), Op.GET, "k0")
    scene.wait(70)
    assert [answer.status for answer in answers] == [Status.NO_DATA_MEMBER]


def test_a_copy_that_was_acknowledged_is_asked_for_once() -> None:
    """Chunks are not acknowledged twice, nor is the table fetched more than once from anybody, without a fault."""
    move = Move()
    filled, reports = move.scene.seen(Filled), move.scene.seen(TableReport)
    move.join()
    move.each_owns_one()
    told = [(p.message.ticket, p.message.sequence) for p in filled if isinstance(p.message, Filled)]
    assert len(told) == len(set(told)) > 2
    assert reports == []
