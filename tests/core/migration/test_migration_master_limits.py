"""How much the master does at once, what it waits for, and whom it lets go (migration/M-5, migration/M-6)."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.core.migration.lead import Lead, settings
from tests.core.seats import A, B, C, D, info, view_of

from holdfast.config import MapSettings, PartitionSettings, Settings
from holdfast.core.effects import Send, SetTimer
from holdfast.core.messages import Prepare
from holdfast.core.model.ids import MILLISECOND, MemberId
from holdfast.core.model.migration import NONE, Migration, ReplicaList
from holdfast.core.model.partition_events import Kind
from holdfast.core.model.partition_table import Assignment
from holdfast.core.model.views import ClusterState, Intent, Room, View
from holdfast_lab.sim.ablations.switching import ablated

# -- how much at once (migration/M-5)


QUARTER_NS = 250 * MILLISECOND


def many(count: int, before: tuple[MemberId, ...], wanted: ReplicaList, **more: object) -> Lead:
    lead = Lead(*[Assignment(5, before)] * count, chosen=settings(count, **more))  # type: ignore[arg-type]
    lead.wanted = [wanted] * count
    return lead


@pytest.mark.rule("migration/M-5")
def test_at_most_so_many_migrations_run_on_one_member() -> None:
    lead = many(5, (A, C), (B, C), parallel_migrations=2).enter()
    assert [one[1] for one in lead.requests()] == [0, 1]
    assert lead.migrations.queued == 3
    assert lead.migrations.leftovers == {"migrations": 5, "members with migrations": 2}
    lead.ready(1)
    assert [one[1] for one in lead.requests()] == [2]
    for partition in (0, 2, 3, 4):
        lead.ready(partition)
    assert lead.migrations.completed == 5
    assert sum(lead.migrations.leftovers.values()) == 0


def test_the_limit_holds_at_each_end() -> None:
    rows = [Assignment(5, (A, None)), Assignment(5, (B, None)), Assignment(5, (C, None))]
    lead = Lead(*rows, chosen=settings(3, parallel_migrations=1))
    lead.wanted = [(D, None)] * 3
    lead.enter((A, B, C, D))
    assert len(lead.requests()) == 1, "one destination"
    lead = Lead(*[Assignment(5, (A, None))] * 3, chosen=settings(3, parallel_migrations=1))
    lead.wanted = [(B, None), (C, None), (D, None)]
    lead.enter((A, B, C, D))
    assert len(lead.requests()) == 1, "one primary"


@pytest.mark.rule("migration/M-5")
@pytest.mark.parametrize(("total", "running"), [(3 << 20, 3), (4 << 20, 4), (1 << 19, 1)])
def test_all_together_have_no_more_chunks_under_way_than_may_be(total: int, running: int) -> None:
    lead = many(
        6,
        (A, C),
        (B, C),
        parallel_migrations=5,
        chunk_bytes=1 << 20,
        max_in_flight_bytes_total=total,
    ).enter()
    assert len(lead.requests()) == running


@pytest.mark.rule("migration/M-5")
def test_what_restores_a_lost_copy_comes_before_what_balances() -> None:
    lead = Lead(Assignment(5, (A, C)), Assignment(5, (A, None)), chosen=settings(2, parallel_migrations=1))
    lead.wanted = [(B, C), (A, B)]
    lead.enter()
    assert [one[1] for one in lead.requests()] == [1]
    lead.ready(1)
    assert [one[1] for one in lead.requests()] == [0]


def test_of_two_ways_the_one_between_the_less_busy_is_gone() -> None:
    rows = [Assignment(5, (A, None))] * 3 + [Assignment(5, (B, None))]
    lead = Lead(*rows, chosen=settings(4, parallel_migrations=2))
    lead.wanted = [(A, C), (A, C), (A, C), (B, D)]
    lead.enter((A, B, C, D))
    assert [one[1] for one in lead.requests()] == [0, 3, 1]


@pytest.mark.parametrize(("room", "moves"), [(Room.NONE, False), (Room.LITTLE, True)])
def test_nothing_is_moved_to_a_member_whose_memory_is_full(room: Room, *, moves: bool) -> None:
    lead = many(1, (A, C), (B, C))
    lead.membership.intents.note_room(B, room)
    lead.install(view_of(1, A, B, C))
    lead.membership.intents.note_room(B, room)
    lead.settle()
    assert len(lead.requests()) == moves
    lead.wish(C, Intent.LEAVE)
    lead.parts = lambda member: True
    lead.migrations.control()
    assert not any(isinstance(message, Prepare) for _, message in lead.settle().log)
    assert lead.table_replication.reporter.under_way
    lead.membership.intents.note_room(B, Room.PLENTY)
    lead.migrations.control()
    assert len(lead.settle().requests()) == (not moves)


def test_a_partition_whose_row_is_just_offered_is_started_when_that_is_committed() -> None:
    lead = Lead(Assignment(5, (A, C)), Assignment(5, (A, C)), chosen=settings(2, parallel_migrations=1))
    lead.wanted = [(B, C)] * 2
    lead.enter()
    assert [one[1] for one in lead.requests()] == [0]
    lead.table_replication.head[1] = Assignment(6, (A, C))
    lead.ready(0)
    assert lead.requests() == []
    assert lead.migrations.queued == 1
    lead.table_replication.publish({1: Assignment(6, (A, C))})
    lead.settle()
    assert lead.requests() == [(A, 1, B, 6)]


def test_a_step_that_does_not_fit_the_row_makes_it_plan_anew() -> None:
    for before, wanted, changed in (
        ((A, C), (B, C), Assignment(6, (A, B))),
        ((A, C), (B, C), Assignment(6, (C, A))),
        ((A, None), (A, B), Assignment(6, (C, None))),
    ):
        lead = Lead(Assignment(5, before), Assignment(5, before), chosen=settings(2, parallel_migrations=1))
        lead.wanted = [wanted] * 2
        lead.enter()
        lead.requests()
        lead.timers_set.clear()
        lead.table.rows[1] = lead.table_replication.head[1] = changed
        lead.ready(0)
        assert lead.requests() == []
        assert [one for one in lead.timers_set if one.name == "plan"] == [
            SetTimer("plan", 300 * MILLISECOND, 150 * MILLISECOND)
        ]
        assert lead.migrations.queued == 0


def test_a_plan_that_does_not_fit_is_given_up_as_a_whole() -> None:
    lead = Lead(*[Assignment(5, (A, C))] * 3, chosen=settings(3, parallel_migrations=1))
    lead.wanted = [(B, C)] * 3
    lead.enter()
    lead.requests()
    lead.table_replication.head[1] = Assignment(6, (A, C))
    lead.table.rows[2] = lead.table_replication.head[2] = Assignment(6, (C, A))
    lead.ready(0)
    assert (lead.requests(), lead.migrations.queued) == ([], 0)


def test_the_end_of_another_wait_does_not_undo_a_plan() -> None:
    lead = many(3, (A, C), (B, C), parallel_migrations=1).enter()
    lead.told()
    lead.migrations.on_timer("plan")
    assert lead.settle().told() == []
    assert lead.migrations.queued == 2


def test_what_was_planned_before_is_not_done_when_nothing_is_wanted_any_more() -> None:
    lead = many(3, (A, C), (B, C), parallel_migrations=1).enter()
    assert len(lead.requests()) == 1
    lead.wanted = None
    lead.migrations.departures_known()
    lead.ready(0)
    assert lead.requests() == []
    assert lead.migrations.queued == 0


def test_nothing_is_asked_of_or_for_who_is_not_in_the_view() -> None:
    lead = Lead(Assignment(5, (A, C)))
    lead.wanted = [(D, C)]
    lead.enter()
    assert lead.requests() == []
    assert [one.name for one in lead.timers_set if one.name == "plan"] == ["plan"]


def test_a_plan_for_many_partitions_is_made_in_parts() -> None:
    count = 150
    lead = Lead(*[Assignment(5, (A, C))] * count, chosen=settings(count))
    lead.wanted = [(A, C)] * (count - 1) + [(B, C)]
    lead.install(view_of(1, A, B, C))
    parts = 0
    while effects := lead.effects():
        for effect in effects:
            if isinstance(effect, Send):
                lead._answer(effect.to, effect.message)
            elif isinstance(effect, SetTimer) and effect.name == "planning":
                parts += 1
                assert effect == SetTimer("planning", 0)
                assert not lead.migrations.planned
                lead.migrations.control()
                lead.migrations.go_on_planning()
    assert parts == 1
    assert len(lead.asked) == 1, "nobody begins it anew meanwhile"
    assert lead.requests() == [(A, count - 1, B, 5)]
    lead.migrations.go_on_planning()
    assert lead.effects() == []


def in_parts(count: int, change: Callable[[Lead], None], wanted: list[ReplicaList]) -> Lead:
    """Something changes between two parts of a plan."""
    lead = Lead(*[Assignment(5, (A, C))] * count, chosen=settings(count, parallel_migrations=20))
    lead.wanted = wanted
    lead.install(view_of(1, A, B, C))
    while effects := lead.effects():
        for effect in effects:
            if isinstance(effect, Send):
                lead._answer(effect.to, effect.message)
            elif isinstance(effect, SetTimer) and effect.name == "planning":
                change(lead)
                lead.migrations.go_on_planning()
                return lead
    raise AssertionError("the plan is made at once")


def test_what_changes_while_it_is_planned_is_left_to_the_next_plan() -> None:
    def change(lead: Lead) -> None:
        lead.table_replication.propose({149: Assignment(6, (A, C), 9)})

    lead = in_parts(150, change, [(A, C)] * 149 + [(B, C)])
    assert lead.requests() == []
    assert not lead.migrations.planned
    lead.settle()
    assert lead.requests() == [(A, 149, B, 6)]


def test_a_plan_of_which_something_is_to_be_done_is_a_plan_even_if_the_table_has_changed() -> None:
    def change(lead: Lead) -> None:
        lead.table_replication.propose({149: Assignment(6, (A, C), 9)})

    lead = in_parts(150, change, [(B, C)] + [(A, C)] * 148 + [(B, C)])
    assert lead.migrations.planned
    assert lead.migrations.queued + len(lead.migrations.running) == 1
    lead.settle()
    assert lead.requests() == [(A, 0, B, 5)]
    lead.ready(0)
    assert lead.requests() == [(A, 149, B, 6)]


def test_while_something_runs_it_does_not_plan_anew_with_each_change_of_the_table() -> None:
    """A plan goes through all partitions; it is made once more when what runs is done."""
    lead = Lead(*[Assignment(5, (A, C))] * 150, chosen=settings(150))
    lead.wanted = [(B, C)] + [(A, C)] * 149
    lead.enter()
    assert lead.requests() == [(A, 0, B, 5)]
    plans = len(lead.asked)
    lead.migrations.departures_known()
    lead.table_replication.propose({149: Assignment(6, (A, C), 9)})
    lead.settle()
    assert len(lead.asked) == plans + 1
    lead.ready(0)
    assert len(lead.asked) == plans + 2


def test_a_plan_dies_with_its_view() -> None:
    def change(lead: Lead) -> None:
        lead.wanted = None
        lead.enter(view_of(2, A, B, C, D))

    lead = in_parts(150, change, [(B, C)] * 150)
    lead.settle()
    assert lead.requests() == []
    assert lead.migrations.queued == 0


def test_what_runs_is_not_planned_again() -> None:
    lead = Lead(Assignment(5, (A, C)), Assignment(5, (A, C)), chosen=settings(2))
    lead.wanted = [(B, C), (A, C)]
    lead.enter()
    assert len(lead.requests()) == 1
    lead.told()
    lead.wanted = [(B, C), (B, C)]
    lead.migrations.departures_known()
    lead.settle()
    assert [one[1] for one in lead.requests()] == [1]
    started = [one for one in lead.news if one.kind is Kind.STARTED]
    assert [one.planned for one in started] == [2], "with what runs"


# -- migration/M-6: states of the cluster, delays, wishes


@pytest.mark.rule("migration/M-6")
def test_where_nothing_may_move_nothing_is_planned() -> None:
    lead = Lead(Assignment(5, (A, C)))
    lead.wanted = [(B, C)]
    lead.enter(view_of(1, A, B, C, state=ClusterState.NO_MIGRATION))
    lead.migrations.control()
    assert lead.settle().asked == []


@pytest.mark.parametrize("state", [ClusterState.ACTIVE, ClusterState.NO_MIGRATION])
@pytest.mark.parametrize("settled", [True, False])
def test_when_there_is_nothing_left_to_do_who_waits_to_leave_may(
    state: ClusterState, *, settled: bool
) -> None:
    lead = Lead(Assignment(5, (A, B)))
    lead.silent = set() if settled else {C}
    lead.enter(view_of(1, A, B, C, D, state=state))
    lead.wish(D, Intent.LEAVE)
    lead.parts = lambda member: True
    lead.log.clear()
    lead.migrations.control()
    lead.settle()
    assert any(isinstance(message, Prepare) for _, message in lead.log) == settled


def test_a_wish_to_leave_is_granted_when_the_new_plan_has_nothing_to_do() -> None:
    lead = Lead(Assignment(5, (A, B)))
    lead.enter((A, B, C, D))
    lead.wish(D, Intent.LEAVE)
    lead.parts = lambda member: True
    lead.log.clear()
    lead.migrations.departures_known()
    assert any(isinstance(message, Prepare) for _, message in lead.settle().log)


def test_nobody_is_asked_about_leaving_while_something_runs() -> None:
    lead = Lead(Assignment(5, (A, C)))
    lead.wanted = [(B, C)]
    lead.enter((A, B, C, D))
    lead.wish(D, Intent.LEAVE)
    lead.parts = lambda member: True
    lead.log.clear()
    lead.migrations.control()
    assert not any(isinstance(message, Prepare) for _, message in lead.settle().log)


def crashed(delay_ms: int = 1000, **view: object) -> Lead:
    lead = Lead(Assignment(5, (A, C)), chosen=settings(1, rebalance_delay_ms=delay_ms))
    lead.enter((A, B, C))
    lead.timers_set.clear()
    lead.wanted = [(A, B)]
    lead.enter(view_of(2, A, B, **view))
    return lead


def test_after_a_crash_copies_are_restored_elsewhere_after_a_delay() -> None:
    lead = crashed()
    assert lead.table.rows[0] == Assignment(6, (A, None)), "the row is repaired at once"
    assert lead.requests() == []
    assert SetTimer("delay", 1000 * MILLISECOND) in lead.timers_set
    assert lead.migrations.delayed_ms == 1000
    lead.pass_ns(999 * MILLISECOND)
    assert lead.migrations.delayed_ms == 1
    lead.migrations.on_timer("delay")
    assert lead.settle().requests() == []
    lead.pass_ns(1 * MILLISECOND)
    assert lead.migrations.delayed_ms == 0
    lead.migrations.on_timer("delay")
    assert lead.settle().requests() == [(A, 0, B, 6)]
    lead.pass_ns(5 * MILLISECOND)
    assert lead.migrations.delayed_ms == 0


def test_without_a_delay_they_are_restored_at_once() -> None:
    lead = crashed(0)
    assert lead.requests() == [(A, 0, B, 6)]
    assert [one for one in lead.timers_set if one.name == "delay"] == []


def test_who_leaves_in_order_is_not_waited_for() -> None:
    lead = crashed(left=[C])
    assert lead.requests() == [(A, 0, B, 6)]


def test_whoever_joins_ends_the_delay() -> None:
    lead = crashed()
    lead.enter(view_of(3, A, B, D))
    assert lead.migrations.delayed_ms == 0
    assert lead.requests() == [(A, 0, B, 6)]


def test_who_comes_while_another_one_crashes_ends_the_delay_too() -> None:
    lead = Lead(Assignment(5, (A, C)), chosen=settings(1, rebalance_delay_ms=1000))
    lead.enter((A, B, C))
    lead.wanted = [(A, B)]
    lead.enter(view_of(2, A, B, D))
    assert lead.requests() == [(A, 0, B, 6)]


def test_another_view_with_the_same_members_does_not_end_the_delay() -> None:
    lead = crashed()
    lead.enter(view_of(3, A, B))
    assert lead.migrations.delayed_ms == 1000


def test_the_delay_does_not_hold_up_a_first_assignment() -> None:
    lead = Lead(chosen=settings(1, rebalance_delay_ms=1000))
    lead.wanted = [(A, None)]
    lead.enter(View(1, "id", [info(A, lite=True), info(B)]))
    lead.table.rows[0] = lead.table_replication.head[0] = Assignment()
    lead.enter(view_of(2, A))
    assert lead.migrations.delayed_ms == 1000
    assert lead.table.rows[0] == Assignment(1, (A, None))


def test_whoever_wants_to_leave_does_not_wait_for_the_delay() -> None:
    lead = crashed()
    lead.migrations.departures_known()
    assert lead.settle().requests() == []
    lead.wish(B, Intent.LEAVE)
    lead.migrations.departures_known()
    assert lead.migrations.delayed_ms == 0
    lead.settle()
    assert [one.uuid for one in lead.asked[-1]] == [A]


# -- who may leave, or be lite


def free(*, chosen: Settings | None = None, rows: tuple[Assignment, ...] = (Assignment(5, (A, B)),)) -> Lead:
    lead = Lead(*rows, chosen=chosen)
    lead.enter((A, B, C))
    lead.wish(C, Intent.LEAVE)
    lead.timers_set.clear()
    lead.effects()
    return lead


def test_who_holds_nothing_may_leave_after_a_while() -> None:
    lead = free()
    assert not lead.migrations.can_leave(C)
    assert lead.effects() == [SetTimer("part-look", QUARTER_NS)]
    lead.pass_ns(QUARTER_NS - 1)
    assert not lead.migrations.can_leave(C)
    assert lead.effects() == []
    lead.pass_ns(1)
    assert lead.migrations.can_leave(C)


def test_who_gets_something_meanwhile_begins_to_wait_anew() -> None:
    lead = free()
    assert not lead.migrations.can_leave(C)
    lead.pass_ns(QUARTER_NS)
    lead.table.rows[0] = Assignment(6, (A, C))
    assert not lead.migrations.can_leave(C)
    assert lead.migrations.leave_blocker(C) == "1 partition replicas are still here"
    lead.table.rows[0] = Assignment(7, (A, B))
    assert not lead.migrations.can_leave(C)
    lead.pass_ns(QUARTER_NS)
    assert lead.migrations.can_leave(C)


@ablated("drain-waits")
def test_without_that_rule_anybody_may_leave_at_any_time() -> None:
    lead = free(rows=(Assignment(5, (C, B)),))
    assert lead.migrations.can_leave(C)


def waited(lead: Lead) -> bool:
    lead.migrations.can_leave(C)
    lead.pass_ns(QUARTER_NS)
    return lead.migrations.can_leave(C)


def test_nobody_leaves_while_the_table_is_not_everybodys() -> None:
    lead = free()
    lead.silent = {B, C}
    lead.table_replication.propose({0: Assignment(6, (A, B), 1)})
    assert not waited(lead.settle())
    assert not lead.migrations.may_demote(C)
    lead = free()
    lead.table_replication.ready = False
    assert not waited(lead)
    assert not lead.migrations.may_demote(C)


def test_with_journals_nobody_leaves_before_all_files_know_the_table() -> None:
    chosen = Settings(
        partitions=PartitionSettings(count=1), maps={"default": MapSettings(backups=1, journal="sync")}
    )
    lead = free(chosen=chosen)
    assert not waited(lead)
    for member in (B, C):
        lead.beat(member, 1, 9, 0)
    assert waited(lead)


def test_nobody_leaves_who_takes_part_in_a_migration() -> None:
    """As its primary, its source or its destination."""
    for migration, owner in (
        (Migration(0, A, 0, NONE, C, NONE, 0), A),
        (Migration(0, C, 1, NONE, B, NONE, 1), A),
        (Migration(0, None, NONE, NONE, B, NONE, 1), C),
    ):
        lead = Lead(Assignment(5, (owner, C if migration.source == C else None)))
        lead.wanted = [migration.apply_to(lead.table.rows[0].replicas)]
        lead.enter()
        assert len(lead.migrations.running) == 1
        lead.wish(C, Intent.LEAVE)
        lead.table.rows[0] = Assignment(5, (A, B))
        assert not waited(lead)
        assert not lead.migrations.may_demote(C)
        lead.migrations.running.clear()
        lead.table_replication._number = 0
        assert waited(lead)
        assert lead.migrations.may_demote(C)


def test_when_all_who_hold_data_leave_nobody_waits() -> None:
    lead = Lead(Assignment(5, (A, B))).enter((A, B))
    for member in (A, B):
        if member == A:
            lead.membership.intents.set_intent(Intent.LEAVE)
        else:
            lead.wish(B, Intent.LEAVE)
    assert lead.migrations.can_leave(B)


def test_who_holds_nothing_may_be_lite_unless_nobody_else_holds_data() -> None:
    lead = Lead(Assignment(5, (A, B)), Assignment(5, (A, D))).enter()
    assert lead.migrations.may_demote(C)
    assert not lead.migrations.may_demote(B)
    assert not lead.migrations.may_demote(A)
    alone = Lead(Assignment(5, (B, None)))
    alone.enter(View(1, "id", [info(A), info(B, lite=True)]))
    assert not alone.migrations.may_demote(A)


# -- more replicas than before


@pytest.mark.rule("model/C-1")
def test_partitions_get_the_indices_that_further_copies_need() -> None:
    rows = [Assignment(5, (A, B)), Assignment(5, (B, A))]
    lead = Lead(*rows, chosen=settings(2, backups=1)).enter()
    assert [row.replicas for row in lead.table_replication.head] == [(A, B), (B, A)]
    lead.migrations.resize(3)
    lead.migrations.control()
    lead.settle()
    assert [row.replicas for row in lead.table_replication.head] == [(A, B, None), (B, A, None)]
    lead.migrations.resize(2)
    lead.migrations.control()
    lead.settle()
    assert [len(row.replicas) for row in lead.table_replication.head] == [3, 3], "indices are not taken away"


@pytest.mark.rule("model/C-1")
def test_a_partition_that_moves_gets_its_further_indices_later() -> None:
    lead = Lead(*[Assignment(5, (A, B))] * 2, chosen=settings(2, backups=1))
    lead.wanted = [(C, B), (A, B)]
    lead.enter()
    assert [partition for _, partition, *_ in lead.requests()] == [0]
    lead.wanted = None
    lead.migrations.resize(3)
    lead.migrations.control()
    lead.settle()
    assert [len(row.replicas) for row in lead.table_replication.head] == [2, 3]
    lead.ready(0)
    lead.settle()
    assert [len(row.replicas) for row in lead.table_replication.head] == [3, 3]
