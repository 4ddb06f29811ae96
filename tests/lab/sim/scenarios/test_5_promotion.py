"""Group 5: a backup becomes the owner.

A promotion here is one round of the table (repair) and then taking office: the new primary asks every other replica of
its row (`Enlist`), fills those that hold something else, and serves when all have said that they hold what it holds.
There are no permits to be given back and no "before" and "complete" stages of services that could throw; in their place
stand the two steps, each of which may take long (below) or end with the death of whoever is in it (below, and the crash
matrix). FROZEN and the change of cluster states are not here yet.

Counters are those of maps in partitions. With `partitions.lost = "accept"` a map is lost with the last member that
holds it and only then; by default a partition waits instead for a member that has everything.
"""

from __future__ import annotations

import pytest
from tests.lab.sim.scenarios.scene import Scene

from holdfast.core.messages import Enlisted, Fill
from holdfast.core.model.ids import MemberId
from holdfast.core.model.operations import Op, Status
from holdfast.core.model.partition_table import Assignment, Table
from holdfast.errors import InvariantBroken
from holdfast_lab.sim.rig import Packet
from holdfast_lab.sim.world import Process


def holders(scene: Scene, partition: int) -> list[Process]:
    """Who holds the partition, hottest first."""
    by_uuid = {process.driver.member.me: process for process in scene.cluster.living()}
    replicas = scene.members()[0].table.rows[partition].replicas
    return [by_uuid[uuid] for uuid in replicas if uuid in by_uuid]


def five(backups: int = 1) -> Scene:
    scene = Scene(backups)
    scene.start(0, lite=True)
    scene.start(1, 2, 3, 4)
    scene.rest()
    scene.fill()
    scene.judge()
    return scene


def test_taking_office_may_take_longer_than_a_call() -> None:
    """Callers are told in time that nothing was changed; the promotion is completed whenever the answer comes."""
    scene = five()
    owner, heir, _ = holders(scene, 0)
    unblock = scene.block(lambda p: isinstance(p.message, Enlisted) and p.receiver is heir)
    owner.crash()
    scene.until(lambda: heir.driver.member.table.rows[0].owner == heir.driver.member.me)
    answers = scene.ask(heir, Op.SET, scene.key_in(0), "too early")
    scene.wait(61)
    assert [answer.status for answer in answers] == [Status.NOT_READY]
    assert heir.driver.member.activation.pending
    unblock()
    scene.judge()


@pytest.mark.parametrize("filling", [False, True], ids=["when it enlists", "when it fills a replica"])
def test_whoever_takes_office_dies(filling: bool) -> None:
    """Recovered by the next one; nothing stays behind on anybody."""
    scene = five(2)
    owner, heir, _, _ = holders(scene, 0)
    if filling:
        # The other replica is behind: it never hears of the last write.
        other = holders(scene, 0)[2]
        scene.block(lambda p: p.sender is owner and p.receiver is other and not owner.dead)
        scene.ask(owner, Op.SET, scene.key_in(0), "not acknowledged", "ledger")
        scene.wait(0.2)

    def strike(packet: Packet) -> None:
        heir.crash()

    met = scene.when(
        lambda p: (
            (isinstance(p.message, Fill) and p.sender is heir and not p.message.joining)
            if filling
            else (isinstance(p.message, Enlisted) and p.receiver is heir)
        ),
        strike,
    )
    owner.crash()
    scene.until(lambda: bool(met), 30)
    assert heir.dead
    if filling:
        # It may have reached the heir, and with it every replica that the heir has brought up to date: unknown.
        scene.expected.pop(("ledger", scene.key_in(0)), None)
    scene.judge()


def test_a_partition_that_is_just_being_migrated_is_promoted_and_migrated_again() -> None:
    scene = Scene(1, partitions=4)
    scene.start(0, lite=True)
    scene.start(1, 2, 3)
    scene.rest()
    scene.fill()
    scene.judge()
    died: list[int] = []

    def strike(packet: Packet) -> None:
        assert isinstance(packet.message, Fill)
        died.append(packet.message.partition)
        packet.sender.crash()

    scene.when(
        lambda p: isinstance(p.message, Fill) and p.message.joining and p.message.sequence == 1, strike
    )
    scene.start(4)
    scene.until(lambda: bool(died))
    before = scene.member(0).table.rows[died[0]]
    scene.judge()
    after = scene.member(0).table.rows[died[0]]
    assert after.version > before.version + 1
    assert after.owner != before.owner
    assert f"host{4}" in set(scene.owners().values())


# -- versions of replicas


@pytest.mark.covering(1)
@pytest.mark.parametrize(("nodes", "dying"), [(5, 1), (5, 2), (6, 1), (7, 1), (7, 3)], ids=str)
@pytest.mark.parametrize("how", ["terminated", "shut down"])
def test_counters_of_a_promoted_backup_are_those_of_the_owner(nodes: int, dying: int, how: str) -> None:
    """Six of seven cannot be terminated at once: the last one alone is no majority, and waits."""
    scene = Scene(1, lost="accept")
    scene.start(*range(nodes))
    scene.rest()
    scene.fill()
    scene.judge()
    _lose(scene, nodes, dying, how)


@pytest.mark.parametrize("how", ["shut down"])
def test_six_of_seven_shut_down_at_once_lose_nothing(how: str) -> None:
    scene = Scene(1, lost="accept")
    scene.start(*range(7))
    scene.rest()
    scene.fill()
    scene.judge()
    _lose(scene, 7, 6, how)


def _lose(scene: Scene, nodes: int, dying: int, how: str) -> None:
    """Some go at once. Where a map had a copy within its own backups that lives, its counter is the owner's."""
    rows = list(scene.members()[0].table.rows)
    counters: dict[tuple[int, str], int] = {}
    for member in scene.members():
        for partition, copy in member.copies.held.items():
            if rows[partition].owner == member.me:
                counters |= {(partition, held.name): held.counter for held in copy}
    going = list(range(1, 1 + dying))
    gone = {scene.member(host).me for host in going}
    if how == "terminated":
        scene.terminate(*going)
    else:
        scene.returned(scene.shut_down(*going))
    scene.rest()
    by_uuid = {member.me: member for member in scene.members()}
    kept = 0
    for (partition, name), counter in counters.items():
        backups = scene.settings.map(name).backups
        survivors = [uuid for uuid in rows[partition].replicas[: backups + 1] if uuid not in gone]
        owner = scene.members()[0].table.rows[partition].owner
        assert owner is not None
        copy = by_uuid[owner].copies.held[partition]
        found = copy.maps[name].counter if name in copy.maps else 0
        if survivors or how == "shut down":
            assert found == counter, (partition, name)
            kept += 1
        else:
            assert found in (0, counter)
    assert kept > len(counters) // 2


def test_six_of_seven_terminated_at_once_leave_one_that_waits() -> None:
    scene = Scene(1)
    scene.start(*range(7))
    scene.rest()
    scene.fill(10)
    scene.terminate(*range(1, 7))
    scene.wait(60)
    (left,) = scene.members()
    assert "no majority" in left.picture.unsafe_reason()
    assert left.table.assigned


# -- versions of rows


A, B, C, D = (MemberId(letter) for letter in "ABCD")


def test_each_slot_that_changes_raises_the_version_by_one() -> None:
    row = Assignment().changed((A, B, None))
    assert row.version == 2
    assert row.changed((A, B, C)).version == 3
    assert row.changed((A, C, D)).version == 4
    assert row.changed((B, A, None)).version == 4, "two that trade places: two slots"


def test_a_row_is_told_of_once_and_the_same_row_changes_nothing() -> None:
    table = Table(2)
    first = Assignment().changed((A, B))
    assert table.apply(0, first) == Assignment()
    assert table.apply(0, first) is None
    assert table.apply(0, Assignment(1, (B, A))) is None, "an older one"
    assert table.rows[0] == first
    with pytest.raises(InvariantBroken):
        table.apply(0, Assignment(first.version, (B, A)))


def test_a_member_that_knows_no_rows_has_stamp_0() -> None:
    assert Table(3).stamp == 0
    assert not Table(3).assigned
