"""Cluster states, lite members, delays, listeners and safety, in the simulated world."""

from __future__ import annotations

from functools import partial

import msgspec
import pytest
from tests.lab.sim.stage import Stage, change, settings, slots

from holdfast.actions.demote import Demote
from holdfast.actions.drain import Drain
from holdfast.actions.promote import Promote
from holdfast.actions.set_state import SetState
from holdfast.actions.shut_down import ShutDown
from holdfast.config import MapSettings
from holdfast.core.events import ActionRequested
from holdfast.core.model.keys import partition_of
from holdfast.core.model.operations import Op, Outcome, Request, Status
from holdfast.core.model.views import ClusterState
from holdfast.errors import InvariantBroken
from holdfast_lab.check import convergence
from holdfast_lab.sim.calls import wire_key

# -- states ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("through", [0, 2], ids=["master", "another member"])
def test_a_state_is_changed_for_all_through_any_member(through: int) -> None:
    stage = Stage(3)
    for state in (*reversed(ClusterState), ClusterState.NO_MIGRATION, ClusterState.ACTIVE):
        change(stage, state, through=through)
    stage.rest()


@pytest.mark.rule("membership/V-5")
def test_an_order_survives_the_master_that_got_it() -> None:
    stage = Stage(4, backups=2)
    master, other = stage.processes[0], stage.processes[2]
    stage.cut(other, master)
    stage.cut(master, other)
    other.step(lambda: other.driver.handle(ActionRequested(SetState(ClusterState.FROZEN))))
    stage.wait(0.2)
    master.crash()
    stage.heal()
    stage.wait(15)
    assert {p.driver.member.membership.cluster_state for p in stage.cluster.living()} == {ClusterState.FROZEN}


def test_an_order_that_stands_is_replaced_by_a_later_one_also_by_one_for_the_present_state() -> None:
    stage = Stage(3)
    master = stage.processes[0]
    stage.isolate(master)
    master.step(lambda: master.driver.handle(ActionRequested(SetState(ClusterState.FROZEN))))
    stage.wait(0.3)
    master.step(lambda: master.driver.handle(ActionRequested(SetState(ClusterState.ACTIVE))))
    stage.wait(0.3)
    stage.heal()
    stage.wait(10)
    states = {p.driver.member.membership.cluster_state for p in stage.cluster.living()}
    assert states == {ClusterState.ACTIVE}
    assert {p.driver.member.membership.view.number for p in stage.cluster.living()} == {3}  # type: ignore[union-attr]


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
    assert "no-migration" in survivor.driver.member.picture.unsafe_reason()
    stage.processes.remove(owner)
    stage.processes.append(joiner)
    change(stage, ClusterState.ACTIVE)
    stage.rest()


@pytest.mark.covering(1)
@pytest.mark.parametrize("state", [ClusterState.FROZEN, ClusterState.PASSIVE])
@pytest.mark.parametrize("who", ["master", "another"])
def test_a_frozen_table_keeps_its_slots_when_a_member_shuts_down(state: ClusterState, who: str) -> None:
    stage = Stage(3)
    stage.put(stage.processes[0], "k", "v")
    change(stage, state)
    before = slots(stage.processes[1])
    going = stage.processes.pop(0 if who == "master" else 2)
    going.step(partial(going.driver.handle, ActionRequested(Drain())))
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
    going.step(partial(going.driver.handle, ActionRequested(Drain())))
    stage.wait(20)
    assert not going.dead
    why = going.driver.member.picture.leave_blocker()
    owned = sum(row[0] == going.driver.member.me for row in slots(going))
    assert f"the cluster is frozen: this member holds the only copy of {owned} partitions" in why
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
    assert others[0].driver.member.picture.cluster_unsafe_reason()


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


def test_a_frozen_cluster_is_not_safe_while_somebody_is_missing() -> None:
    """Also when those who are left could not hold more copies: what a crash could cost now is what counts."""
    stage = Stage(2)
    change(stage, ClusterState.FROZEN)
    assert stage.processes[0].driver.member.picture.cluster_unsafe_reason() == ""
    going = stage.processes.pop(1)
    going.step(partial(going.driver.handle, ActionRequested(Drain())))
    stage.wait(10)
    assert going.dead
    why = stage.processes[0].driver.member.picture.cluster_unsafe_reason()
    assert "frozen and without" in why and going.driver.member.membership.info.name in why
    change(stage, ClusterState.ACTIVE)
    stage.wait(5)
    assert stage.processes[0].driver.member.picture.cluster_unsafe_reason() == ""


def test_a_hole_counts_for_the_maps_whose_copies_would_be_there() -> None:
    """Seed 3212 with transactions: an owner and a colder replica are two copies, but of maps with two backups only."""
    chosen = settings(partitions={"rebalance_delay_ms": 20_000})
    maps = {**chosen.maps, "deep": MapSettings(backups=2)}
    stage = Stage(3, settings=msgspec.structs.replace(chosen, maps=maps))
    hotter = next(p for p in stage.processes if p.driver.member.me == slots(stage.processes[0])[0][1])
    stage.processes.remove(hotter)
    hotter.crash()
    stage.wait(8)
    change(stage, ClusterState.PASSIVE)
    stage.wait(2)
    survivor = stage.processes[0]
    rows = slots(survivor)
    assert any(row[0] and not row[1] and row[2] for row in rows), "this is about holes"
    assert all(sum(member is not None for member in row) == 2 for row in rows)
    for process in stage.processes:
        why = process.driver.member.picture.cluster_unsafe_reason()
        assert "has 1 of 2 copies" in why and "the cluster is passive" in why
    change(stage, ClusterState.ACTIVE)
    stage.rest()


def test_an_order_is_known_by_all_only_when_each_has_said_so() -> None:
    stage = Stage(3)
    master, deaf = stage.processes[0], stage.processes[2]
    membership = master.driver.member.membership
    assert membership.known_by_all
    stage.cut(master, deaf)
    stage.cut(stage.processes[1], deaf)
    master.step(lambda: master.driver.handle(ActionRequested(SetState(ClusterState.FROZEN))))
    stage.wait(0.5)
    assert membership.cluster_state is ClusterState.FROZEN
    assert deaf.driver.member.membership.cluster_state is ClusterState.ACTIVE
    assert not membership.known_by_all
    stage.heal()
    stage.wait(3)
    assert membership.known_by_all
    assert deaf.driver.member.membership.cluster_state is ClusterState.FROZEN


def test_while_passive_holdfast_may_note_what_it_needs_itself() -> None:
    """The names of opened maps: else no client could begin to read."""
    stage = Stage(3)
    change(stage, ClusterState.PASSIVE)
    key = wire_key("k")
    for process in stage.processes:
        answers: list[Outcome] = []
        request = Request(Op.SET, "__objects", [partition_of(key, 0, 7)], key, b"v")
        process.step(lambda one=process, ask=request, to=answers: one.driver.execute(ask, to.append))  # type: ignore[misc]
        stage.wait(1)
        assert [answer.status for answer in answers] == [Status.OK]


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
    process.step(lambda: process.driver.handle(ActionRequested(ShutDown())))
    stage.wait(20)
    assert [p.name for p in stage.processes if not p.dead] == []
    assert {p.ended_because for p in stage.processes} == {"left the cluster, which was shut down as a whole"}
    assert {p.driver.member.picture.leave_blocker() for p in stage.processes} == {""}


def test_a_shutdown_goes_on_when_one_leaves_at_the_same_time() -> None:
    stage = Stage(4)
    leaver, process = stage.processes[1], stage.processes[3]
    leaver.step(partial(leaver.driver.handle, ActionRequested(Drain())))
    process.step(lambda: process.driver.handle(ActionRequested(ShutDown())))
    stage.wait(60)
    assert [p.name for p in stage.processes if not p.dead] == []


# -- lite members ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("who", [0, 2], ids=["master", "another"])
def test_a_member_becomes_lite_when_it_holds_nothing_and_data_again(who: int) -> None:
    stage = Stage(3)
    stage.put(stage.processes[0], "k", "v")
    process = stage.processes[who]
    member = process.driver.member
    process.step(lambda: process.driver.handle(ActionRequested(Demote())))
    stage.rest()
    stage.wait(5)
    assert member.membership.info.lite
    assert all(member.me not in row for row in slots(process))
    assert member.copies.held == {}
    assert stage.get(process, "k") == "v"
    process.step(lambda: process.driver.handle(ActionRequested(Promote())))
    stage.rest()
    stage.wait(5)
    assert not member.membership.info.lite
    assert any(member.me in row for row in slots(process))
    stage.rest()


def test_the_last_data_member_does_not_become_lite() -> None:
    stage = Stage(2)
    stage.put(stage.processes[0], "k", "v")
    for process in stage.processes:
        process.step(lambda one=process: one.driver.handle(ActionRequested(Demote())))  # type: ignore[misc]
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
    assert "restoring waits" in stage.cluster.living()[0].driver.member.picture.unsafe_reason()
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
    assert stage.processes[0].driver.member.picture.unsafe_reason()
    stage.processes.append(stage.cluster.start(index))
    stage.rest()


def test_a_leaver_is_not_waited_for() -> None:
    stage = Stage(4, settings=settings(partitions={"rebalance_delay_ms": 600_000}))
    going = stage.processes.pop(3)
    going.step(partial(going.driver.handle, ActionRequested(Drain())))
    stage.rest()


def test_who_leaves_in_order_ends_the_delay() -> None:
    stage = Stage(5, settings=settings(partitions={"rebalance_delay_ms": 600_000}))
    gone = stage.processes.pop(4)
    gone.crash()
    stage.wait(10)
    going = stage.processes.pop(3)
    going.step(partial(going.driver.handle, ActionRequested(Drain())))
    stage.wait(20)
    assert going.dead, going.driver.member.picture.leave_blocker()
    stage.rest()


def test_the_first_assignment_waits_for_enough_members() -> None:
    stage = Stage(2, settings=settings(cluster={"initial_members": 3}), spare=1, rest=False)
    stage.wait(15)
    first = stage.processes[0].driver.member
    assert len(first.membership.members()) == 2
    assert not first.table.assigned
    assert first.picture.waits_for_members == 1
    assert first.picture.cluster_unsafe_reason() == "", "there is nothing to lose"
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


@pytest.mark.parametrize(("interval_ms", "found"), [(1000, True), (60_000, False)])
def test_tables_are_compared_as_often_as_is_set(interval_ms: int, found: bool) -> None:
    """`partitions.publish_interval_ms`: after 2.5 s a table that differs was compared, or not."""
    stage = Stage(3, settings=settings(partitions={"publish_interval_ms": interval_ms}))
    member = stage.processes[1].driver.member
    row = member.table.rows[4]
    member.table.rows[4] = msgspec.structs.replace(row, replicas=tuple(reversed(row.replicas)))
    stage.world.run_until(stage.world.now_ns + 2_500_000_000)
    assert any("partition 4 diverged" in failure for failure in stage.world.failures) is found


def test_a_member_that_is_behind_gets_the_whole_table() -> None:
    stage = Stage(3)
    member = stage.processes[1].driver.member
    row = member.table.rows[4]
    member.table.rows[4] = msgspec.structs.replace(row, version=row.version - 1)
    stage.wait(40)
    assert member.table.rows[4] == row
    assert convergence.judge(stage.cluster.pictures()) == []


# -- safety ------------------------------------------------------------------------------------------------------------


def test_safe_is_said_for_the_whole_cluster_by_any_member() -> None:
    stage = Stage(3)
    stage.wait(2)
    for process in stage.processes:
        assert process.driver.member.picture.cluster_unsafe_reason() == ""
    gone = stage.processes.pop(2)
    stage.isolate(gone)
    stage.wait(4.2 * stage.settings.cluster.heartbeat_ms / 1000)
    for process in stage.processes:
        why = process.driver.member.picture.cluster_unsafe_reason()
        assert "no heartbeat for" in why and gone.driver.member.membership.info.name in why
    gone.crash()
    said = [""]
    while not any(said):
        assert stage.world.now_ns < 60_000_000_000, "it was never said to be unsafe"
        stage.wait(0.1)
        said = [process.driver.member.picture.cluster_unsafe_reason() for process in stage.processes]
    stage.rest()
    stage.wait(2)
    for process in stage.processes:
        assert process.driver.member.picture.cluster_unsafe_reason() == ""
