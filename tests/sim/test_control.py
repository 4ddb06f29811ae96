"""Cluster states, lite members, delays, listeners and safety, in the simulated world."""

from __future__ import annotations

import msgspec
import pytest
from tests.sim.stage import Stage, settings, slots

from holdfast.check import convergence
from holdfast.core.cluster.state import ClusterState, Wish
from holdfast.core.messages import Heartbeat
from holdfast.core.store.operations import Op, Outcome, Request, Status
from holdfast.errors import InvariantBroken
from holdfast.sim.cluster import simulated_settings


def change(stage: Stage, state: ClusterState, *, through: int = 0) -> None:
    process = stage.processes[through]
    process.step(lambda: process.driver.change_state(state))
    stage.wait(3)
    for one in stage.cluster.living():
        assert one.driver.member.membership.cluster_state is state


# -- states ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("through", [0, 2], ids=["master", "another member"])
def test_a_state_is_changed_for_all_through_any_member(through: int) -> None:
    stage = Stage(3)
    for state in (*reversed(ClusterState), ClusterState.NO_MIGRATION, ClusterState.ACTIVE):
        change(stage, state, through=through)
    stage.rest()


def test_an_order_survives_the_master_that_got_it() -> None:
    stage = Stage(4, backups=2)
    master, other = stage.processes[0], stage.processes[2]
    stage.cut(other, master)
    stage.cut(master, other)
    other.step(lambda: other.driver.change_state(ClusterState.FROZEN))
    stage.wait(0.2)
    master.crash()
    stage.heal()
    stage.wait(15)
    assert {p.driver.member.membership.cluster_state for p in stage.cluster.living()} == {ClusterState.FROZEN}


def test_without_migration_a_joiner_gets_nothing_and_a_crash_promotes() -> None:
    stage = Stage(3, spare=1)
    stage.put(stage.processes[0], "k", "v")
    change(stage, ClusterState.NO_MIGRATION)
    before = slots(stage.processes[0])
    joiner = stage.cluster.start(3)
    stage.wait(10)
    assert joiner.driver.member.membership.state == "member"
    assert slots(joiner) == before
    owner = stage.owner_of("k")
    survivor = next(p for p in stage.processes if p is not owner)
    owner.crash()
    stage.wait(10)
    rows = slots(survivor)
    me = owner.driver.member.me
    assert all(me not in row for row in rows)
    assert all(row[0] is not None for row in rows)
    assert sum(row.count(None) for row in rows) == sum(me in row for row in before), "a copy was restored"
    assert stage.get(survivor, "k") == "v"
    assert "no-migration" in survivor.driver.member.why_unsafe()
    stage.processes.remove(owner)
    stage.processes.append(joiner)
    change(stage, ClusterState.ACTIVE)
    stage.rest()


@pytest.mark.parametrize("state", [ClusterState.FROZEN, ClusterState.PASSIVE])
@pytest.mark.parametrize("who", ["master", "another"])
def test_a_frozen_table_keeps_its_slots_when_a_member_shuts_down(state: ClusterState, who: str) -> None:
    stage = Stage(3)
    stage.put(stage.processes[0], "k", "v")
    change(stage, state)
    before = slots(stage.processes[1])
    going = stage.processes.pop(0 if who == "master" else 2)
    going.step(going.driver.leave)
    stage.wait(10)
    assert going.dead, "it was not let go"
    for process in stage.processes:
        assert slots(process) == before
    change(stage, ClusterState.ACTIVE)
    stage.rest()
    assert all(going.driver.member.me not in row for row in slots(stage.processes[0]))
    assert stage.get(stage.processes[0], "k") == "v"


def test_a_member_that_holds_the_only_copy_does_not_go_while_frozen() -> None:
    stage = Stage(3, backups=0)
    stage.put(stage.processes[0], "k", "v")
    change(stage, ClusterState.FROZEN)
    going = stage.processes[2]
    going.step(going.driver.leave)
    stage.wait(20)
    assert not going.dead
    change(stage, ClusterState.ACTIVE)
    stage.wait(20)
    assert going.dead
    stage.processes.remove(going)
    stage.rest()
    assert stage.get(stage.processes[0], "k") == "v"


def test_while_frozen_writes_go_on_without_a_missing_backup_which_is_not_promoted_later() -> None:
    """The backup is cut off and comes back with its old copy; then the primary dies. Its old copy must not serve."""
    stage = Stage(5)
    stage.put(stage.processes[0], "k", "old")
    owner, (backup,) = stage.owner_of("k"), stage.backups_of("k")
    others = [p for p in stage.processes if p not in (owner, backup)]
    change(stage, ClusterState.FROZEN, through=stage.processes.index(others[0]))
    before = slots(others[0])
    stage.isolate(backup)
    stage.wait(10)
    stage.put(owner, "k", "new")
    stage.heal()
    stage.wait(15)
    assert backup.driver.member.membership.state == "member"
    owner.crash()
    stage.wait(10)
    assert slots(others[0]) == before
    change(stage, ClusterState.ACTIVE, through=stage.processes.index(others[0]))
    stage.wait(10)
    answers = stage.ask(others[0], Op.GET, "k")
    stage.wait(5)
    assert [a.value for a in answers if a.status is Status.OK] != [b"old"], "a stale copy was promoted"
    assert answers == []
    assert others[0].driver.member.safety.why_cluster_unsafe()


def test_a_frozen_cluster_takes_back_who_has_gone_and_nobody_else() -> None:
    stage = Stage(3, spare=1)
    change(stage, ClusterState.FROZEN)
    gone = stage.processes.pop(2)
    index = stage.cluster.addresses.index(gone.address)
    gone.crash()
    stage.wait(10)
    before = slots(stage.processes[0])
    again = stage.cluster.start(index)
    stage.wait(10)
    assert again.driver.member.membership.state == "member"
    assert slots(stage.processes[0]) == before
    stranger = stage.cluster.start(3)
    stage.wait(10)
    assert stranger.driver.member.membership.state == "joining"
    assert "frozen" in stranger.driver.member.membership.refusal
    stranger.crash()
    stage.processes.append(again)
    change(stage, ClusterState.ACTIVE)
    stage.rest()


def test_a_passive_cluster_answers_reads_and_refuses_writes() -> None:
    stage = Stage(3)
    stage.put(stage.processes[0], "k", "v")
    change(stage, ClusterState.PASSIVE)
    for process in stage.processes:
        answers = stage.ask(process, Op.SET, "k", "w")
        stage.wait(1)
        assert [answer.status for answer in answers] == [Status.PASSIVE]
        assert stage.get(process, "k") == "v"
        assert not any(process.driver.member.lane.serving), "a session could write past the router"
    change(stage, ClusterState.ACTIVE)
    stage.put(stage.processes[0], "k", "w")


def test_the_whole_cluster_shuts_down() -> None:
    stage = Stage(4)
    stage.put(stage.processes[0], "k", "v")
    process = stage.processes[3]
    process.step(lambda: process.driver.change_state(ClusterState.PASSIVE, ending=True))
    stage.wait(20)
    assert [p.name for p in stage.processes if not p.dead] == []


def test_a_shutdown_goes_on_when_one_leaves_at_the_same_time() -> None:
    stage = Stage(4)
    leaver, process = stage.processes[1], stage.processes[3]
    leaver.step(leaver.driver.leave)
    process.step(lambda: process.driver.change_state(ClusterState.PASSIVE, ending=True))
    stage.wait(60)
    assert [p.name for p in stage.processes if not p.dead] == []


# -- lite members ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("who", [0, 2], ids=["master", "another"])
def test_a_member_becomes_lite_when_it_holds_nothing_and_data_again(who: int) -> None:
    stage = Stage(3)
    stage.put(stage.processes[0], "k", "v")
    process = stage.processes[who]
    member = process.driver.member
    process.step(lambda: process.driver.become(Wish.LITE))
    stage.rest()
    stage.wait(5)
    assert member.membership.info.lite
    assert all(member.me not in row for row in slots(process))
    assert member.copies.held == {}
    assert stage.get(process, "k") == "v"
    process.step(lambda: process.driver.become(Wish.DATA))
    stage.rest()
    stage.wait(5)
    assert not member.membership.info.lite
    assert any(member.me in row for row in slots(process))
    stage.rest()


def test_the_last_data_member_does_not_become_lite() -> None:
    stage = Stage(2)
    stage.put(stage.processes[0], "k", "v")
    for process in stage.processes:
        process.step(lambda one=process: one.driver.become(Wish.LITE))  # type: ignore[misc]
    stage.wait(20)
    data = [p for p in stage.processes if not p.driver.member.membership.info.lite]
    assert data
    assert stage.get(stage.processes[0], "k") == "v"


# -- delays ------------------------------------------------------------------------------------------------------------


def test_after_a_crash_copies_are_restored_only_after_the_delay() -> None:
    stage = Stage(4, settings=settings(partitions={"rebalance_delay_ms": 30_000}))
    stage.put(stage.processes[0], "k", "v")
    owner = stage.owner_of("k")
    stage.processes.remove(owner)
    owner.crash()
    stage.wait(10)
    master = stage.processes[0]
    assert stage.get(master, "k") == "v"
    holes = sum(row.count(None) for row in slots(master))
    assert holes
    assert "restoring waits" in stage.cluster.living()[0].driver.member.why_unsafe()
    stage.wait(5)
    assert sum(row.count(None) for row in slots(master)) == holes
    stage.wait(30)
    assert sum(row.count(None) for row in slots(master)) == 0
    stage.rest()


def test_who_joins_ends_the_delay() -> None:
    stage = Stage(4, settings=settings(partitions={"rebalance_delay_ms": 600_000}))
    gone = stage.processes.pop(3)
    index = stage.cluster.addresses.index(gone.address)
    gone.crash()
    stage.wait(10)
    assert stage.processes[0].driver.member.why_unsafe()
    stage.processes.append(stage.cluster.start(index))
    stage.rest()


def test_a_leaver_is_not_waited_for() -> None:
    stage = Stage(4, settings=settings(partitions={"rebalance_delay_ms": 600_000}))
    going = stage.processes.pop(3)
    going.step(going.driver.leave)
    stage.rest()


def test_the_first_assignment_waits_for_enough_members() -> None:
    stage = Stage(2, settings=settings(cluster={"initial_members": 3}), spare=1, rest=False)
    stage.wait(15)
    first = stage.processes[0].driver.member
    assert len(first.membership.members()) == 2
    assert not first.table.assigned
    assert first.safety.waits_for_members == 1
    assert first.safety.why_cluster_unsafe() == "", "there is nothing to lose"
    stage.processes.append(stage.cluster.start(2))
    stage.rest()
    assert first.migrations.completed == 0, "it was assigned at once, not moved afterwards"


# -- the table ---------------------------------------------------------------------------------------------------------


def test_a_table_that_differs_is_found_and_the_partition_named() -> None:
    stage = Stage(3)
    member = stage.processes[1].driver.member
    row = member.table.rows[4]
    member.table.rows[4] = msgspec.structs.replace(row, replicas=tuple(reversed(row.replicas)))
    stage.world.run_until(stage.world.now_ns + 40_000_000_000)
    assert any("partition 4 diverged" in failure for failure in stage.world.failures), stage.world.failures
    assert any(InvariantBroken.__name__ in failure for failure in stage.world.failures)


def test_a_member_that_is_behind_gets_the_whole_table() -> None:
    stage = Stage(3)
    member = stage.processes[1].driver.member
    row = member.table.rows[4]
    member.table.rows[4] = msgspec.structs.replace(row, version=row.version - 1)
    stage.wait(40)
    assert member.table.rows[4] == row
    assert convergence.judge(stage.cluster.members()) == []


# -- safety ------------------------------------------------------------------------------------------------------------


def test_safe_is_said_for_the_whole_cluster_by_any_member() -> None:
    stage = Stage(3)
    stage.wait(2)
    for process in stage.processes:
        assert process.driver.member.safety.why_cluster_unsafe() == ""
    gone = stage.processes.pop(2)
    gone.crash()
    said = [""]
    while not any(said):
        assert stage.world.now_ns < 60_000_000_000, "it was never said to be unsafe"
        stage.wait(0.1)
        said = [process.driver.member.safety.why_cluster_unsafe() for process in stage.processes]
    stage.rest()
    stage.wait(2)
    for process in stage.processes:
        assert process.driver.member.safety.why_cluster_unsafe() == ""


# -- too few left ------------------------------------------------------------------------------------------------------


def test_the_operator_declares_the_older_of_two_dead_and_the_younger_goes_on() -> None:
    stage = Stage(2)
    stage.put(stage.processes[0], "k", "v")
    older, younger = stage.processes
    older.crash()
    stage.wait(20)
    member = younger.driver.member
    assert len(member.membership.members()) == 2, "it must not decide alone"
    younger.step(lambda: younger.driver.declare_dead([older.driver.member.me]))
    stage.processes.remove(older)
    stage.rest()
    assert stage.get(younger, "k") == "v"
    stage.put(younger, "k", "w")


def test_two_of_four_are_declared_dead_through_a_member_that_does_not_lead() -> None:
    stage = Stage(4, backups=2)
    stage.put(stage.processes[0], "k", "v")
    dead = stage.processes[:2]
    for process in dead:
        process.crash()
    stage.wait(20)
    stage.processes = stage.processes[2:]
    through = stage.processes[1]
    through.step(lambda: through.driver.declare_dead([p.driver.member.me for p in dead]))
    stage.rest()
    assert stage.get(through, "k") == "v"


def test_a_member_that_is_heard_of_is_not_declared_dead() -> None:
    stage = Stage(3)
    alive = stage.processes[2].driver.member.me
    process = stage.processes[0]
    refused: list[set[str]] = []
    process.step(lambda: refused.append(set(process.driver.member.membership.declare_dead({alive}))))
    stage.wait(10)
    assert refused == [{alive}]
    assert len(process.driver.member.membership.members()) == 3


def test_data_on_one_member_beside_lite_ones_is_safe() -> None:
    stage = Stage(3)
    for process in stage.processes[1:]:
        process.step(lambda one=process: one.driver.become(Wish.LITE))  # type: ignore[misc]
    stage.rest()
    stage.wait(5)
    assert [p.driver.member.membership.info.lite for p in stage.processes] == [False, True, True]
    assert [p.driver.member.safety.why_cluster_unsafe() for p in stage.processes] == ["", "", ""]


def test_writes_that_backups_do_not_acknowledge_are_not_safe() -> None:
    """Records do not reach one backup, whose heartbeats do: by nothing else could one see it."""
    stage = Stage(3)
    owner, (backup,) = stage.owner_of("k"), stage.backups_of("k")
    backup.driver.member.copies.on_replicate = lambda sender, message: None  # type: ignore[method-assign]
    answers = stage.ask(owner, Op.SET, "k", "v")
    stage.wait(5)
    assert answers == []
    assert all(p.driver.member.safety.why_cluster_unsafe() for p in stage.processes)


def test_a_partition_that_waits_for_a_copy_holds_nothing_else_up() -> None:
    """The two copies of the shallow map are gone, a third replica has the deep one only: that partition waits, and all
    others get their copies back.
    """
    base = simulated_settings(1, 7, mixed=True)
    stage = Stage(6, settings=base)
    row = stage.processes[0].driver.member.table.rows[3]
    dead = [p for p in stage.processes if p.driver.member.me in row.replicas[:2]]
    stage.processes = [p for p in stage.processes if p not in dead]
    for process in dead:
        process.crash()
    stage.wait(30)
    rows = stage.processes[0].driver.member.table.rows
    living = {p.driver.member.me for p in stage.processes}
    waiting = [p for p, row in enumerate(rows) if row.owner not in living]
    assert 3 in waiting
    for partition, row in enumerate(rows):
        if partition not in waiting:
            assert living.issuperset(row.replicas), "its copies were not restored"


def test_a_refusal_during_the_delay_does_not_end_it_for_ever() -> None:
    stage = Stage(4, settings=settings(partitions={"rebalance_delay_ms": 20_000}))
    gone = stage.processes.pop(3)
    gone.crash()
    master = stage.processes[0].driver
    while not master.member.migrations.delayed_ms:
        stage.wait(0.1)
    stage.processes[0].step(master.member.migrations._replan)
    stage.processes[0].step(master.tick)
    stage.rest()


def test_who_was_declared_dead_and_is_heard_of_again_counts_again() -> None:
    stage = Stage(7)
    first, *others = stage.processes
    dead = others[2:4]
    for process in dead:
        process.awake_at_ns = stage.world.now_ns + 4_200_000_000
    for process in (*others[:2], *others[4:]):
        # So that nothing can be decided meanwhile.
        process.awake_at_ns = stage.world.now_ns + 5_500_000_000
    stage.wait(4)
    first.step(lambda: first.driver.declare_dead([p.driver.member.me for p in dead]))
    stage.wait(60)
    left, right = stage.processes[:3], stage.processes[3:]
    number = first.driver.member.membership.view.number  # type: ignore[union-attr]
    for one in left:
        for other in right:
            stage.cut(one, other)
            stage.cut(other, one)
    stage.wait(20)
    assert first.driver.member.membership.view.number == number, "three of seven have decided"  # type: ignore[union-attr]
    stage.heal()
    stage.rest()


# -- orders and wishes that cross --------------------------------------------------------------------------------------


def test_an_order_of_a_member_that_was_removed_does_not_come_true_later() -> None:
    stage = Stage(4)
    cut_off, other = stage.processes[3], stage.processes[1]
    stage.isolate(cut_off)
    cut_off.step(lambda: cut_off.driver.change_state(ClusterState.PASSIVE))
    stage.wait(15)
    other.step(lambda: other.driver.change_state(ClusterState.NO_MIGRATION))
    stage.wait(5)
    other.step(lambda: other.driver.change_state(ClusterState.ACTIVE))
    stage.wait(5)
    stage.heal()
    stage.rest()
    assert other.driver.member.membership.cluster_state is ClusterState.ACTIVE


def test_one_leaves_while_the_other_data_member_wants_to_be_lite() -> None:
    stage = Stage(3)
    stage.put(stage.processes[0], "k", "v")
    one, other, lite = stage.processes
    lite.step(lambda: lite.driver.become(Wish.LITE))
    stage.rest()
    one.step(lambda: one.driver.become(Wish.LITE))
    other.step(other.driver.leave)
    stage.wait(60)
    assert other.dead
    assert not one.driver.member.membership.info.lite, "somebody must hold the data"
    assert stage.get(lite, "k") == "v"


def test_who_leaves_does_not_wait_for_who_has_crashed() -> None:
    stage = Stage(4, settings=settings(partitions={"rebalance_delay_ms": 600_000}))
    stage.processes.pop(3).crash()
    stage.wait(10)
    going = stage.processes.pop(1)
    going.step(going.driver.leave)
    stage.wait(60)
    assert going.dead
    stage.rest()


def test_a_shutdown_ends_though_somebody_has_crashed_with_the_only_copy() -> None:
    stage = Stage(3, backups=0)
    stage.processes.pop(2).crash()
    stage.wait(20)
    process = stage.processes[1]
    process.step(lambda: process.driver.change_state(ClusterState.PASSIVE, ending=True))
    stage.wait(60)
    assert [p.name for p in stage.processes if not p.dead] == []


def test_who_was_removed_before_a_shutdown_ends_too_when_it_asks_to_come_back() -> None:
    stage = Stage(4)
    away = stage.processes[3]
    stage.isolate(away)
    stage.wait(10)
    process = stage.processes[1]
    for one in stage.processes[:3]:
        # They take a while to go, so that somebody is there to be asked.
        one.driver.member.membership._may_part = lambda member: stage.world.now_ns > 60_000_000_000
    process.step(lambda: process.driver.change_state(ClusterState.PASSIVE, ending=True))
    stage.wait(1)
    stage.heal()
    stage.wait(120)
    assert [p.name for p in stage.processes if not p.dead] == []


def test_writes_are_refused_wherever_they_are_when_the_cluster_becomes_passive() -> None:
    """Parked, forwarded by a member that does not know it yet, over all partitions, and by a session of a new owner."""
    stage = Stage(4)
    stage.put(stage.processes[0], "k", "v")
    owner = stage.owner_of("k")
    stage.processes.remove(owner)
    owner.crash()
    stage.wait(0.5)
    parked = [stage.ask(process, Op.SET, "k", "parked") for process in stage.processes]
    first = stage.processes[0]
    first.step(lambda: first.driver.change_state(ClusterState.PASSIVE))
    stage.wait(20)
    assert all(answers[0].status in (Status.PASSIVE, Status.UNKNOWN) for answers in parked), parked
    assert not any(copy for process in stage.processes for copy in process.driver.member.lane.serving)
    key = next(str(n) for n in range(99) if stage.lives(str(n)))
    unaware = next(p for p in stage.processes if p is not stage.owner_of(key))
    unaware.driver.member.router.passive = False
    forwarded = stage.ask(unaware, Op.SET, key, "forwarded")
    cleared: list[Outcome] = []
    request = Request(Op.CLEAR, "data", list(range(7)))
    aware = next(p for p in stage.processes if p is not unaware)
    aware.step(lambda: aware.driver.execute(request, cleared.append))
    stage.wait(2)
    assert [[answer.status for answer in answers] for answers in (forwarded, cleared)] == [
        [Status.PASSIVE]
    ] * 2
    assert stage.get(aware, key) is None


def test_two_that_leave_a_frozen_cluster_do_not_rely_on_each_other() -> None:
    stage = Stage(4)
    stage.put(stage.processes[0], "k", "v")
    change(stage, ClusterState.FROZEN)
    row = stage.processes[0].driver.member.table.rows[2]
    pair = [p for p in stage.processes if p.driver.member.me in row.replicas]
    for process in pair:
        process.step(process.driver.leave)
    stage.wait(30)
    assert not all(process.dead for process in pair), "both copies have left"


def test_a_late_wish_of_a_member_is_not_taken_for_its_newest() -> None:
    stage = Stage(3)
    master, member = stage.processes[0].driver.member, stage.processes[2].driver.member
    wishes = master.membership.wishes
    view = master.membership.view
    assert view is not None
    newer = Heartbeat(member.me, member.membership.info.life, view.number, wish=Wish.NONE, wish_number=9)
    older = Heartbeat(member.me, member.membership.info.life, view.number, wish=Wish.LITE, wish_number=8)
    wishes.heard(newer, view.number)
    wishes.heard(older, view.number)
    assert wishes.of(member.me) is Wish.NONE


def test_who_leaves_does_not_change_its_mind() -> None:
    stage = Stage(3)
    going = stage.processes.pop(2)
    going.step(going.driver.leave)
    going.step(lambda: going.driver.become(Wish.DATA))
    stage.wait(20)
    assert going.dead
