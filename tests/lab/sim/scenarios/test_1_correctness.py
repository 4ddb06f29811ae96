"""Group 1: migrations are right, with data and without, however members come and go. Anti-entropy does not exist.

Other than in the source of these scenarios, a write or read that comes while a partition changes hands is not refused
with an error to be tried again: it waits, and goes to the new primary (design: "Writes go on while a partition is
copied"). So there is no flag to be seen from outside, and no stale read to be switched off; the tests here show the
waiting. `backups` members at once are terminated only where the rest is a majority, without which no view is agreed.
"""

from __future__ import annotations

import pytest
from tests.lab.sim.scenarios.scene import Scene

from holdfast.core.messages import Enlisted, MigrationReady, MigrationRequest, TableCommit, TableOffer
from holdfast.core.model.operations import Op, Outcome, Status
from holdfast_lab.sim.rig import Packet

BACKUPS = [1, 2, 3]
NODES = 7


@pytest.mark.parametrize("backups", BACKUPS)
def test_members_are_started_one_after_another(backups: int) -> None:
    scene = Scene(backups)
    scene.start(0)
    scene.rest()
    scene.fill()
    for host in range(1, NODES):
        scene.start(host)
        scene.judge()


@pytest.mark.parametrize("backups", BACKUPS)
def test_members_are_started_at_once(backups: int) -> None:
    scene = Scene(backups)
    scene.start(0)
    scene.rest()
    scene.fill()
    scene.start(*range(1, NODES))
    scene.judge()


@pytest.mark.parametrize("backups", BACKUPS)
def test_as_many_members_as_there_are_backups_are_terminated_at_once(backups: int) -> None:
    scene = Scene(backups)
    scene.start(*range(NODES))
    scene.rest()
    scene.fill()
    scene.judge()
    scene.terminate(*range(1, 1 + backups))
    scene.judge()


@pytest.mark.covering(1)
@pytest.mark.parametrize("backups", BACKUPS)
@pytest.mark.parametrize("between", [True, False], ids=["judged between", "not judged between"])
def test_some_start_and_fewer_terminate_again_and_again(backups: int, between: bool) -> None:
    """Without the oracle in between, as soon as the master calls the cluster safe the next ones die."""
    scene = Scene(backups)
    scene.start(*range(backups + 1))
    scene.rest()
    scene.fill()
    host = backups + 1
    while host + backups < NODES + 1:
        scene.start(*range(host, host + backups + 1))
        if between:
            scene.judge()
        else:
            scene.rest()
        scene.terminate(*range(host, host + backups))
        host += backups + 1
        scene.judge()


@pytest.mark.parametrize("backups", BACKUPS)
def test_terminated_members_are_restarted_at_the_same_addresses(backups: int) -> None:
    scene = Scene(backups)
    scene.start(*range(2 * backups + 1))
    scene.rest()
    scene.fill()
    hosts = list(range(2 * backups + 1))
    for turn in range(3):
        dying = [hosts[(turn * backups + each) % len(hosts)] for each in range(backups)]
        scene.terminate(*dying)
        scene.start(*dying)
        scene.judge()


def test_without_data_the_assignments_agree_everywhere() -> None:
    scene = Scene(2)
    scene.start(0)
    for host in range(1, NODES, 2):
        scene.start(host, host + 1)
        scene.judge()
        scene.terminate(host)
        scene.judge()
    assert set(scene.owners().values()) == {process.host for process in scene.cluster.living()}


def test_what_sources_begin_destinations_and_master_end() -> None:
    """Two members join: each migration is asked for once, reported once, committed once; the queue ends at 0."""
    scene = Scene(1)
    scene.start(0)
    scene.rest()
    scene.fill()
    asked, reported = scene.seen(MigrationRequest), scene.seen(MigrationReady)
    scene.start(1, 2)
    scene.judge()
    migrations = scene.member(0).migrations
    assert migrations.failed == migrations.queued == len(migrations.running) == 0
    # What the master asks of itself needs no packet: only those of other primaries are seen.
    began = [
        (p.message.migration.partition, p.message.version)
        for p in asked
        if isinstance(p.message, MigrationRequest)
    ]
    ended = [
        (p.message.partition, p.message.version) for p in reported if isinstance(p.message, MigrationReady)
    ]
    assert sorted(began) == sorted(ended)
    assert len(set(began)) == len(began)
    assert migrations.completed >= len(began)
    assert set(scene.owners().values()) == {"host0", "host1", "host2"}


def in_the_pause(op: Op) -> tuple[list[list[Outcome]], list[list[Outcome]], str]:
    """Ask both ends while an owner moves, in the pause in which neither serves; the commit is held back for 1 s.

    Answers what was known within the pause, what was known afterwards, and the key.
    """
    scene = Scene(0, partitions=2, deep=False)
    scene.start(0, lite=True)
    scene.start(1)
    scene.rest()
    scene.fill(10)
    answers: list[list[Outcome]] = []
    keys: list[str] = []

    def ask_both(packet: Packet) -> None:
        assert isinstance(packet.message, MigrationReady)
        keys.append(scene.key_in(packet.message.partition))

    scene.when(lambda packet: isinstance(packet.message, MigrationReady), ask_both)
    unblock = scene.block(lambda packet: isinstance(packet.message, TableOffer) and bool(keys))
    source, (destination,) = scene.process(1), scene.start(2)
    scene.until(lambda: bool(keys))
    assert all(
        process.driver.member.lane.serving[scene.partition(keys[0])] is None
        for process in (source, destination)
    )
    answers = [scene.ask(process, op, keys[0], "in the pause") for process in (source, destination)]
    scene.wait(1)
    early = [list(each) for each in answers]
    unblock()
    scene.rest()
    return early, answers, scene.expected["ledger", keys[0]]


def test_a_write_in_the_pause_waits_at_both_ends_and_is_done_by_the_new_owner() -> None:
    early, answers, _ = in_the_pause(Op.SET)
    assert early == [[], []]
    assert [[answer.status for answer in each] for each in answers] == [[Status.OK]] * 2


def test_a_read_in_the_pause_waits_too_and_is_never_stale() -> None:
    early, answers, value = in_the_pause(Op.GET)
    assert early == [[], []]
    assert [[answer.value for answer in each] for each in answers] == [[value.encode()]] * 2


def test_so_does_a_write_while_a_promoted_backup_takes_office() -> None:
    scene = Scene(1, partitions=3)
    scene.start(0, 1, 2, 3)
    scene.rest()
    scene.fill(10)
    row = scene.members()[0].table.rows[0]
    by_uuid = {process.driver.member.me: process for process in scene.cluster.living()}
    owner, heir = by_uuid[row.replicas[0]], by_uuid[row.replicas[1]]  # type: ignore[index]
    unblock = scene.block(lambda packet: isinstance(packet.message, Enlisted) and packet.receiver is heir)
    owner.crash()
    scene.until(lambda: heir.driver.member.table.rows[0].owner == heir.driver.member.me)
    answers = scene.ask(heir, Op.SET, scene.key_in(0), "to the heir")
    scene.wait(1)
    assert answers == []
    unblock()
    scene.rest()
    assert [answer.status for answer in answers] == [Status.OK]
    scene.expected["ledger", scene.key_in(0)] = "to the heir"
    scene.judge()


def test_the_first_assignment_of_all_partitions_is_one_round() -> None:
    """The assignment of every partition is one change of the table, not one for each partition."""
    scene = Scene(1, partitions=31)
    offers, commits = scene.seen(TableOffer), scene.seen(TableCommit)
    scene.start(0, lite=True)
    scene.start(1, 2, lite=True)
    scene.wait(5)
    assert not scene.members()[0].table.assigned
    del offers[:], commits[:]
    scene.start(3)
    scene.until(lambda: scene.members()[0].table.assigned)
    first = offers[0].message
    assert isinstance(first, TableOffer)
    assert len(first.rows) == 31
    rounds = {packet.message.round for packet in commits if isinstance(packet.message, TableCommit)}
    assert len(rounds) == 1
