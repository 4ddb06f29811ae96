"""Directed stories in the simulated world: what must happen when exactly this goes wrong."""

from __future__ import annotations

from functools import partial

import msgspec
import pytest
from tests.lab.sim.stage import Stage

from holdfast.actions.drain import Drain
from holdfast.config import PartitionSettings
from holdfast.core.events import ActionRequested
from holdfast.core.model.ids import MILLISECOND, SECOND
from holdfast.core.model.keys import partition_of
from holdfast.core.model.operations import Op, Outcome, Request, Status
from holdfast_lab.sim.ablations.switching import ablated
from holdfast_lab.sim.calls import wire_key
from holdfast_lab.sim.cluster import simulated_settings
from holdfast_lab.sim.workload import MAP
from holdfast_lab.sim.world import Process


def test_a_write_is_not_acknowledged_while_its_backup_does_not_hold_it() -> None:
    stage = Stage(3)
    owner, (backup,) = stage.owner_of("k"), stage.backups_of("k")
    stage.cut(owner, backup)
    answers = stage.ask(owner, Op.SET, "k", "v")
    stage.wait(0.5)
    assert answers == []
    stage.heal()
    stage.wait(5)
    assert [answer.status for answer in answers] == [Status.OK]


def divergence_after_promotion() -> bool:
    """The owner dies when its record has reached the colder backup only; the hotter one is promoted and takes a write.

    Answers whether, at the moment at which that write was acknowledged, the other replica held something else.
    """
    stage = Stage(4, backups=2)
    stage.put(stage.processes[0], "k", "first")
    owner, (hot, cold) = stage.owner_of("k"), stage.backups_of("k")
    stage.cut(owner, hot)
    stage.ask(owner, Op.SET, "k", "reached only the colder backup")
    stage.wait(0.3)
    owner.crash()
    stage.heal()
    partition = partition_of(wire_key("k"), 0, 7)
    differs: list[bool] = []

    request = Request(Op.SET, MAP, [partition], wire_key("k"), b"second")

    def write() -> None:
        hot.step(partial(hot.driver.execute, request, look))

    def look(outcome: Outcome) -> None:
        if outcome.status is not Status.OK:
            stage.world.after(0, write)  # it was on its way to the dead owner
            return
        entries = [
            process.driver.member.copies.held[partition].maps[MAP].state.entries for process in (hot, cold)
        ]
        differs.append(entries[0] != entries[1])

    write()
    stage.world.run_until(stage.world.now_ns + 30 * SECOND, stop=lambda: bool(differs))
    assert differs, "the new primary never acknowledged the write"
    return differs[0]


def test_a_new_primary_serves_only_when_its_replicas_hold_what_it_holds() -> None:
    assert not divergence_after_promotion()


@ablated("activate")
def test_without_that_rule_an_acknowledged_write_is_missing_on_a_replica() -> None:
    assert divergence_after_promotion()


def test_a_member_that_was_cut_off_cannot_acknowledge_and_comes_back_with_its_data() -> None:
    stage = Stage(3)
    owner, (backup,) = stage.owner_of("k"), stage.backups_of("k")
    stage.put(owner, "k", "old")
    life = owner.driver.member.membership.info.life
    stage.isolate(owner)
    lost = stage.ask(owner, Op.SET, "k", "of the minority")
    stage.wait(10)
    stage.put(backup, "k", "of the majority")
    stage.heal()
    stage.rest()
    assert lost == [] or lost[0].status is not Status.OK
    assert stage.get(owner, "k") == "of the majority"
    assert owner.driver.member.membership.info.life > life


def written_by_a_lone_master() -> list[Status]:
    """A master that is cut off takes the backup out of a row, and is asked to write there; what it answers."""
    stage = Stage(5)
    master = stage.processes[0]
    member = master.driver.member
    partition, row = next((p, row) for p, row in enumerate(member.table.rows) if row.owner == member.me)
    stage.isolate(master)

    def shrink() -> None:
        member.table_replication.propose({partition: row.changed((row.owner, None))})
        master.driver.leave_lane()

    master.step(shrink)
    answers: list[Outcome] = []
    request = Request(Op.SET, MAP, [partition], wire_key("any"), b"v")
    master.step(partial(master.driver.execute, request, answers.append))
    stage.wait(2)
    return [answer.status for answer in answers]


def test_a_master_that_is_cut_off_cannot_change_the_table() -> None:
    assert written_by_a_lone_master() == []


@ablated("table-majority")
def test_without_a_majority_it_could_and_would_acknowledge_what_the_others_never_see() -> None:
    assert written_by_a_lone_master() == [Status.OK]


def test_a_partition_whose_copies_are_all_cut_off_waits_for_them() -> None:
    stage = Stage(5)
    owner, (backup,) = stage.owner_of("k"), stage.backups_of("k")
    stage.put(owner, "k", "kept")
    others = [process for process in stage.processes if process not in (owner, backup)]
    for here in (owner, backup):
        for there in others:
            stage.cut(here, there)
            stage.cut(there, here)
    answers = stage.ask(others[0], Op.GET, "k")
    stage.wait(20)
    assert answers == [], "nobody of the majority has a copy: the request waits, it is not answered as absent"
    stage.heal()
    stage.wait(20)
    assert [answer.value for answer in answers] == [b"kept"]
    stage.rest()


def crash_both_holders(lost: str) -> tuple[Stage, Process]:
    settings = simulated_settings(1, 7)
    partitions = msgspec.structs.replace(settings.partitions, lost=lost)
    assert isinstance(partitions, PartitionSettings)
    stage = Stage(5, settings=msgspec.structs.replace(settings, partitions=partitions))
    owner, (backup,) = stage.owner_of("k"), stage.backups_of("k")
    stage.put(owner, "k", "v")
    rest = next(process for process in stage.processes if process not in (owner, backup))
    owner.crash()
    backup.crash()
    stage.wait(15)
    return stage, rest


def test_a_partition_whose_copies_all_died_waits_and_says_so() -> None:
    stage, rest = crash_both_holders("wait")
    answers = stage.ask(rest, Op.GET, "k")
    stage.wait(100)
    assert [answer.status for answer in answers] == [Status.NOT_READY]
    assert "copies" in rest.driver.member.picture.unsafe_reason()


def test_or_begins_anew_if_the_operator_accepts_the_loss() -> None:
    stage, rest = crash_both_holders("accept")
    assert stage.get(rest, "k") is None
    stage.put(rest, "k", "new")
    stage.rest()
    assert stage.get(rest, "k") == "new"


@pytest.mark.parametrize("hosts", [1, 2, 4])
def test_all_members_may_leave_together(hosts: int) -> None:
    stage = Stage(hosts)
    for process in stage.processes:
        process.step(partial(process.driver.handle, ActionRequested(Drain())))
    stage.wait(60)
    assert all(process.dead for process in stage.processes)


def test_two_of_four_leave_at_once_and_nothing_is_lost_without_backups() -> None:
    stage = Stage(4, backups=0)
    for number in range(30):
        stage.put(stage.processes[0], f"k{number}", f"v{number}")
    for process in stage.processes[:2]:
        process.step(partial(process.driver.handle, ActionRequested(Drain())))
    stage.wait(30)
    assert [process.dead for process in stage.processes] == [True, True, False, False]
    stage.rest()
    assert [stage.get(stage.processes[3], f"k{number}") for number in range(30)] == [
        f"v{n}" for n in range(30)
    ]


def test_of_two_members_the_older_goes_on_and_the_younger_waits() -> None:
    stage = Stage(2)
    stage.processes[1].crash()
    stage.wait(10)
    stage.put(stage.processes[0], "k", "v")
    stage = Stage(2)
    stage.processes[0].crash()
    stage.wait(10)
    assert "no majority" in stage.processes[1].driver.member.picture.unsafe_reason()


def test_a_process_at_the_address_of_a_dead_one_is_another_member() -> None:
    stage = Stage(3)
    dead = stage.processes[1]
    dead.crash()
    again = stage.cluster.start(1)
    stage.world.run_until(stage.world.now_ns + 1500 * MILLISECOND)
    view = stage.processes[0].driver.member.membership.view
    assert view is not None
    uuids = [info.uuid for info in view.members]
    assert dead.driver.member.me not in uuids, (
        "its port is taken: it cannot live any more, long before it is suspected"
    )
    assert again.driver.member.me in uuids
    stage.rest()
