"""Group 6: members leave gracefully; nobody loses anything, not even without backups.

A member goes with a view that names it as left: when it holds nothing any more, and a majority knows that view. There
is no call that returns; the process ends by itself (`returned`). FROZEN and PASSIVE, and shutting down within them, are
states of the cluster that are not here yet. A partition is lost (`Migrations.lost`) when no copy of it is in the view.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
from tests.lab.sim.scenarios.scene import Scene

from holdfast.actions.drain import Drain
from holdfast.core.events import ActionRequested
from holdfast.core.messages import Accept, MigrationRequest, Prepare, TableFetch, TableReport
from holdfast.core.model.ids import MILLISECOND
from holdfast.core.model.operations import Op, Outcome, Status
from holdfast.core.model.views import Intent
from holdfast_lab.sim.rig import Packet
from holdfast_lab.sim.world import Process


def cluster(hosts: int, backups: int = 1, *, assigned: bool = True, lite: tuple[int, ...] = ()) -> Scene:
    """A cluster at rest, with data if partitions are assigned."""
    scene = Scene(backups)
    for host in range(hosts):
        scene.start(host, lite=host in lite or not assigned)
        scene.wait(0.2)
    if assigned:
        scene.rest()
        scene.fill()
        scene.judge()
    else:
        scene.wait(3)
        assert not scene.members()[0].table.assigned
    return scene


def no_partition_was_lost(scene: Scene) -> Callable[[], None]:
    """From now on no master misses all copies of a partition; to be asked at the end."""
    lost: list[set[int]] = []

    def look() -> None:
        lost.extend(set(member.migrations.lost) for member in scene.members() if member.migrations.lost)
        if not ended:
            scene.world.after(20 * MILLISECOND, look)

    ended: list[bool] = []
    look()

    def judge() -> None:
        ended.append(True)
        assert lost == []

    return judge


# -- one of few


@pytest.mark.parametrize("lite", [False, True], ids=["data", "lite"])
def test_a_single_member_leaves(lite: bool) -> None:
    scene = Scene(1)
    scene.start(0, lite=lite)
    scene.wait(2)
    assert scene.member(0).table.assigned != lite
    if not lite:
        scene.fill(5)
    scene.returned(scene.shut_down(0))


def test_a_member_that_has_not_joined_yet_leaves() -> None:
    scene = Scene(1)
    scene.world.processes.clear()
    first = scene.cluster.start(1)
    scene.wait(1)
    assert first.driver.member.membership.state == "joining"
    first.step(partial(first.driver.handle, ActionRequested(Drain())))
    assert first.driver.stopped


@pytest.mark.covering(1)
@pytest.mark.parametrize("assigned", [True, False], ids=["with partitions", "without"])
@pytest.mark.parametrize("who", ["slave", "master", "lite master", "lite member"])
def test_one_of_three_leaves(who: str, assigned: bool) -> None:
    lite = {"lite master": (0,), "lite member": (1,)}.get(who, ())
    scene = cluster(3, assigned=assigned, lite=lite)
    leaver = 0 if "master" in who else 1
    assert scene.member(leaver).membership.is_master == ("master" in who)
    lost = no_partition_was_lost(scene)
    scene.returned(scene.shut_down(leaver))
    lost()
    if assigned:
        scene.judge()
        assert f"host{leaver}" not in scene.owners().values()
    else:
        scene.wait(5)
        assert [len(member.membership.members()) for member in scene.members()] == [2, 2]


@pytest.mark.parametrize("leavers", [(1,), (0,), (0, 2, 4)], ids=["slave", "master", "half of six"])
def test_members_leave_while_partitions_still_migrate(leavers: tuple[int, ...]) -> None:
    scene = Scene(1, partitions=23, parallel=1)
    scene.start(0)
    scene.rest()
    scene.fill()
    scene.start(*range(1, 6))
    scene.until(lambda: len(scene.member(0).membership.members()) == 6)
    master = scene.member(0)
    scene.until(lambda: master.migrations.completed > 0)
    assert master.migrations.queued > 0
    scene.returned(scene.shut_down(*leavers))
    scene.judge()


# -- several at once


@pytest.mark.parametrize("hosts", [1, 2, 3, 4, 6])
def test_all_members_leave_at_once(hosts: int) -> None:
    scene = cluster(hosts)
    scene.returned(scene.shut_down(*range(hosts)))


@pytest.mark.parametrize("leavers", [(1, 3, 5), (0, 2, 4)], ids=["without the master", "with the master"])
def test_three_of_six_leave_at_once(leavers: tuple[int, ...]) -> None:
    scene = cluster(6)
    lost = no_partition_was_lost(scene)
    scene.returned(scene.shut_down(*leavers))
    scene.judge()
    lost()


@pytest.mark.parametrize(
    ("leaver", "victim"), [(1, 2), (0, 2), (1, 0)], ids=["slave, slave", "master, slave", "slave, master"]
)
def test_one_leaves_while_another_is_terminated(leaver: int, victim: int) -> None:
    scene = cluster(5)
    leaving = scene.shut_down(leaver)
    scene.wait(0.01)
    scene.terminate(victim)
    scene.returned(leaving)
    scene.judge()


def test_one_leaves_and_all_leave() -> None:
    scene = cluster(4)
    first = scene.shut_down(1)
    scene.wait(0.02)
    rest = [process for process in scene.cluster.living() if process not in first]
    for process in rest:
        process.step(partial(process.driver.handle, ActionRequested(Drain())))
    scene.returned(first + rest)


def test_a_next_master_that_nobody_has_agreed_to_yet_cannot_leave() -> None:
    """No migration starts and the table stays, until its messages get through; then it leaves."""
    scene = cluster(4)
    heir = scene.process(1)
    claims = (Prepare, Accept, TableFetch, TableReport)
    unblock = scene.block(
        lambda packet: isinstance(packet.message, claims) and heir in (packet.sender, packet.receiver)
    )
    asked = scene.seen(MigrationRequest)
    scene.terminate(0)
    leaving = scene.shut_down(1)
    stamp = heir.driver.member.table.stamp
    scene.wait(8)
    assert not heir.dead
    assert asked == []
    assert {member.table.stamp for member in scene.members()} == {stamp}
    unblock()
    scene.returned(leaving)
    scene.judge()


# -- correctness


@pytest.mark.covering(1)
@pytest.mark.parametrize("backups", [0, 1, 2, 3])
@pytest.mark.parametrize("leaving", [1, 2, 3, 4])
def test_some_of_five_leave_and_nothing_is_lost(backups: int, leaving: int) -> None:
    scene = cluster(5, backups)
    scene.returned(scene.shut_down(*range(leaving)))
    scene.judge()


@pytest.mark.covering(1)
@pytest.mark.parametrize("again", [False, True], ids=["new addresses", "the same addresses"])
@pytest.mark.parametrize("backups", [0, 1])
def test_members_start_and_leave_again_and_again(backups: int, again: bool) -> None:
    scene = cluster(3, backups)
    here = [0, 1, 2]
    for turn in range(3):
        fresh = [3 + 2 * turn, 4 + 2 * turn] if not again else [3, 4]
        scene.start(*fresh)
        scene.judge()
        leaving = here[:2] if not again else fresh
        scene.returned(scene.shut_down(*leaving))
        scene.judge()
        here = [host for host in [*here, *fresh] if host not in leaving]
        scene.fill()


def stays(process: Process) -> bool:
    membership = process.driver.member.membership
    return membership.state == "member" and membership.intents.of(membership.me) is not Intent.LEAVE


def test_all_partitions_are_written_to_during_three_rounds_of_leaving_and_coming() -> None:
    """Each key is written again when its last write has been answered; the last acknowledged value is read. Members
    that stay are asked: if a member leaves before the answer, the outcome of a request through it is unknown.
    """
    scene = cluster(3)
    keys = [scene.key_in(partition) for partition in range(scene.settings.partitions.count)]
    pending: dict[str, list[Outcome]] = {}
    values: dict[str, str] = {}
    count = 0
    running = True

    def write() -> None:
        nonlocal count
        if not running:
            return
        for key in keys:
            if pending.get(key, [Outcome(Status.OK)]):
                if key in values and pending.get(key) and pending[key][0].status is Status.OK:
                    scene.expected["ledger", key] = values[key]
                count += 1
                values[key] = f"w{count}"
                staying = [process for process in scene.cluster.living() if stays(process)]
                pending[key] = scene.ask(staying[count % len(staying)], Op.SET, key, values[key])
        scene.world.after(50 * MILLISECOND, write)

    write()
    for _ in range(3):
        scene.returned(scene.shut_down(1))
        scene.start(1)
        scene.until(lambda: len(scene.members()) == 3 and scene.cluster.settled())
    running = False
    scene.until(lambda: all(pending.values()))
    statuses = [answers[0].status for answers in pending.values()]
    assert statuses == [Status.OK] * len(keys)
    scene.expected |= {("ledger", key): value for key, value in values.items()}
    assert count > 20 * len(keys)
    scene.judge()


def test_leaving_and_coming_are_mixed_and_no_partition_is_lost() -> None:
    scene = cluster(5)
    lost = no_partition_was_lost(scene)
    leaving = scene.shut_down(1, 3)
    scene.start(5, 6)
    scene.wait(0.05)
    leaving += scene.shut_down(2)
    scene.start(7)
    scene.returned(leaving)
    scene.judge()
    lost()


def test_the_master_is_terminated_while_others_are_leaving() -> None:
    scene = cluster(6)
    leaving = scene.shut_down(2, 4)
    gone: list[Packet] = scene.seen(MigrationRequest)
    scene.until(lambda: bool(gone), 10)
    scene.terminate(0)
    scene.returned(leaving)
    scene.judge()
