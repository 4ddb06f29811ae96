"""Too few members left, and orders, wishes and crashes that cross, in the simulated world."""

from __future__ import annotations

from functools import partial

from tests.lab.sim.stage import Stage, change, settings

from holdfast.actions.demote import Demote
from holdfast.actions.drain import Drain
from holdfast.actions.evict import Evict
from holdfast.actions.promote import Promote
from holdfast.actions.set_state import SetState
from holdfast.actions.shut_down import ShutDown
from holdfast.core.events import ActionRequested
from holdfast.core.messages import Heartbeat
from holdfast.core.model.operations import Op, Outcome, Request, Status
from holdfast.core.model.views import ClusterState, Intent
from holdfast_lab.sim.cluster import simulated_settings

# -- too few left ------------------------------------------------------------------------------------------------------


def test_the_operator_evicts_the_older_of_two_and_the_younger_goes_on() -> None:
    stage = Stage(2)
    stage.put(stage.processes[0], "k", "v")
    older, younger = stage.processes
    older.crash()
    stage.wait(20)
    member = younger.driver.member
    assert len(member.membership.members()) == 2, "it must not decide alone"
    younger.step(
        lambda: younger.driver.handle(ActionRequested(Evict([older.driver.member.me], without_majority=True)))
    )
    stage.processes.remove(older)
    stage.rest()
    assert stage.get(younger, "k") == "v"
    stage.put(younger, "k", "w")


def test_two_of_four_are_evicted_through_a_member_that_does_not_lead() -> None:
    stage = Stage(4, backups=2)
    stage.put(stage.processes[0], "k", "v")
    dead = stage.processes[:2]
    for process in dead:
        process.crash()
    stage.wait(20)
    stage.processes = stage.processes[2:]
    through = stage.processes[1]
    through.step(
        lambda: through.driver.handle(
            ActionRequested(Evict([p.driver.member.me for p in dead], without_majority=True))
        )
    )
    stage.rest()
    assert stage.get(through, "k") == "v"


def test_a_member_that_is_heard_of_is_not_evicted() -> None:
    stage = Stage(3)
    alive = stage.processes[2].driver.member.me
    process = stage.processes[0]
    refused: list[set[str]] = []
    process.step(
        lambda: refused.append(
            set(process.driver.member.membership.evictions.evict_without_majority({alive}))
        )
    )
    stage.wait(10)
    assert refused == [{alive}]
    assert len(process.driver.member.membership.members()) == 3


def test_data_on_one_member_beside_lite_ones_is_safe() -> None:
    stage = Stage(3)
    for process in stage.processes[1:]:
        process.step(lambda one=process: one.driver.handle(ActionRequested(Demote())))  # type: ignore[misc]
    stage.rest()
    stage.wait(5)
    assert [p.driver.member.membership.info.lite for p in stage.processes] == [False, True, True]
    assert [p.driver.member.picture.cluster_unsafe_reason() for p in stage.processes] == ["", "", ""]


def test_a_full_disk_is_not_safe_whichever_member_is_asked() -> None:
    stage = Stage(3)
    full = stage.processes[2]
    full.step(lambda: full.driver.member.membership.note_full(full=True))
    stage.wait(2)
    name = full.picture.info.name
    for process in stage.processes:
        assert process.picture.cluster_unsafe_reason().startswith(
            f"the disk of {name} is full: writes to journalled"
        )
    full.step(lambda: full.driver.member.membership.note_full(full=False))
    stage.wait(2)
    assert [process.picture.cluster_unsafe_reason() for process in stage.processes] == [""] * 3


def test_writes_that_backups_do_not_acknowledge_are_not_safe() -> None:
    """Records do not reach one backup, whose heartbeats do: by nothing else could one see it."""
    stage = Stage(3)
    owner, (backup,) = stage.owner_of("k"), stage.backups_of("k")
    backup.driver.member.copies.on_replicate = lambda sender, message: None  # type: ignore[method-assign]
    answers = stage.ask(owner, Op.SET, "k", "v")
    stage.wait(4)
    assert answers == []
    assert all(p.driver.member.picture.cluster_unsafe_reason() for p in stage.processes)


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


def test_an_evicted_member_that_is_heard_of_again_counts_again() -> None:
    stage = Stage(7)
    first, *others = stage.processes
    dead = others[2:4]
    for process in dead:
        process.awake_at_ns = stage.world.now_ns + 4_200_000_000
    for process in (*others[:2], *others[4:]):
        # So that nothing can be decided meanwhile.
        process.awake_at_ns = stage.world.now_ns + 5_500_000_000
    stage.wait(4)
    first.step(
        lambda: first.driver.handle(
            ActionRequested(Evict([p.driver.member.me for p in dead], without_majority=True))
        )
    )
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
    cut_off.step(lambda: cut_off.driver.handle(ActionRequested(SetState(ClusterState.PASSIVE))))
    stage.wait(15)
    other.step(lambda: other.driver.handle(ActionRequested(SetState(ClusterState.NO_MIGRATION))))
    stage.wait(5)
    other.step(lambda: other.driver.handle(ActionRequested(SetState(ClusterState.ACTIVE))))
    stage.wait(5)
    stage.heal()
    stage.rest()
    assert other.driver.member.membership.cluster_state is ClusterState.ACTIVE


def test_one_leaves_while_the_other_data_member_wants_to_be_lite() -> None:
    stage = Stage(3)
    stage.put(stage.processes[0], "k", "v")
    one, other, lite = stage.processes
    lite.step(lambda: lite.driver.handle(ActionRequested(Demote())))
    stage.rest()
    one.step(lambda: one.driver.handle(ActionRequested(Demote())))
    other.step(partial(other.driver.handle, ActionRequested(Drain())))
    stage.wait(60)
    assert other.dead
    assert not one.driver.member.membership.info.lite, "somebody must hold the data"
    assert stage.get(lite, "k") == "v"


def test_who_leaves_does_not_wait_for_who_has_crashed() -> None:
    stage = Stage(4, settings=settings(partitions={"rebalance_delay_ms": 600_000}))
    stage.processes.pop(3).crash()
    stage.wait(10)
    going = stage.processes.pop(1)
    going.step(partial(going.driver.handle, ActionRequested(Drain())))
    stage.wait(60)
    assert going.dead
    stage.rest()


def test_a_shutdown_ends_though_somebody_has_crashed_with_the_only_copy() -> None:
    stage = Stage(3, backups=0)
    stage.processes.pop(2).crash()
    stage.wait(20)
    process = stage.processes[1]
    process.step(lambda: process.driver.handle(ActionRequested(ShutDown())))
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
        one.driver.member.can_leave = lambda member: stage.world.now_ns > 60_000_000_000  # type: ignore[method-assign]
    process.step(lambda: process.driver.handle(ActionRequested(ShutDown())))
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
    first.step(lambda: first.driver.handle(ActionRequested(SetState(ClusterState.PASSIVE))))
    stage.wait(20)
    assert all(answers[0].status in (Status.PASSIVE, Status.UNKNOWN) for answers in parked), parked
    assert not any(copy for process in stage.processes for copy in process.driver.member.lane.serving)
    key = next(str(n) for n in range(99) if stage.lives(str(n)))
    unaware = next(p for p in stage.processes if p is not stage.owner_of(key))
    unaware.driver.member.router.refusals.passive = False
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
        process.step(partial(process.driver.handle, ActionRequested(Drain())))
    stage.wait(30)
    assert not all(process.dead for process in pair), "both copies have left"


def test_a_late_wish_of_a_member_is_not_taken_for_its_newest() -> None:
    stage = Stage(3)
    master, member = stage.processes[0].driver.member, stage.processes[2].driver.member
    intents = master.membership.intents
    view = master.membership.view
    assert view is not None
    newer = Heartbeat(member.me, member.membership.info.life, view.number, wish=Intent.NONE, wish_number=9)
    older = Heartbeat(member.me, member.membership.info.life, view.number, wish=Intent.LITE, wish_number=8)
    intents.heard(newer, view.number)
    intents.heard(older, view.number)
    assert intents.of(member.me) is Intent.NONE


def test_who_leaves_does_not_change_its_mind() -> None:
    stage = Stage(3)
    going = stage.processes.pop(2)
    going.step(partial(going.driver.handle, ActionRequested(Drain())))
    going.step(lambda: going.driver.handle(ActionRequested(Promote())))
    stage.wait(20)
    assert going.dead
