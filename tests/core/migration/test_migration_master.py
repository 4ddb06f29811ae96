"""What the master does: the first assignment, repair when members have gone, migrations and their ends."""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations, product

import pytest
from tests.core.migration.lead import E, Lead, settings
from tests.core.seats import A, B, C, D, info, view_of

from holdfast.core.effects import SetTimer
from holdfast.core.messages import Holdings, MigrationReady, MigrationRefused, TableReport, TableStored
from holdfast.core.model.ids import MILLISECOND, SECOND, MemberId
from holdfast.core.model.levels import EXCHANGES
from holdfast.core.model.migration import NONE, Migration
from holdfast.core.model.partition_events import Kind, Loss, News
from holdfast.core.model.partition_table import Assignment
from holdfast.core.model.views import ClusterState, View
from holdfast.core.placement.layout import Candidate
from holdfast_lab.sim.ablations.switching import ablated

# -- the first assignment


def test_partitions_are_assigned_when_enough_members_are_there() -> None:
    lead = Lead(chosen=settings(2, initial=3))
    lead.wanted = [(A, B), (B, None)]
    lead.enter((A, B))
    assert not lead.table.assigned
    assert lead.migrations.planned
    lead.enter(view_of(2, A, B, C))
    assert lead.table.rows == [Assignment(2, (A, B)), Assignment(1, (B, None))]
    assert [one.uuid for one in lead.asked[0]] == [A, B, C]
    assert "partitions assigned" in lead.notes


def test_the_layout_is_that_of_all_data_members() -> None:
    lead = Lead(chosen=settings(3), arranged=True)
    lead.enter(View(1, "id", [info(A), info(B, lite=True), info(C, group="zone")]))
    assert {member for row in lead.table.rows for member in row.replicas} == {A, C}
    assert all(row.version == 2 for row in lead.table.rows)


def test_without_a_data_member_nothing_is_assigned_and_nothing_left_to_plan() -> None:
    lead = Lead()
    lead.enter(View(1, "id", [info(A, lite=True), info(B, lite=True)]))
    assert not lead.table.assigned
    assert lead.migrations.planned
    assert lead.asked == []


def test_members_of_one_group_are_candidates_of_one_group() -> None:
    lead = Lead()
    lead.wanted = [(A, None)]
    lead.enter(View(1, "id", [info(A, group="x"), info(B)]))
    assert lead.asked[0] == [Candidate(A, "x", A), Candidate(B, B, B)]


@pytest.mark.rule("migration/M-1")
def test_nothing_is_done_before_the_newest_table_is_known() -> None:
    lead = Lead(chosen=settings(1))
    lead.wanted = [(A, B)]
    lead.install(view_of(1, A, B))
    lead.effects()
    lead.migrations.control()
    lead.migrations.accept_loss()
    lead.hear(B, Holdings(1, None, {}, [], []))
    assert (lead.effects(), lead.asked) == ([], [])
    assert not lead.migrations.returns.accepted


def test_who_is_in_no_view_has_nothing_planned_and_plans_nothing() -> None:
    lead = Lead()
    assert not lead.migrations.planned
    lead.migrations.go_on_planning()
    lead.migrations.control()
    assert (lead.effects(), lead.migrations.queued, lead.migrations.delayed_ms) == ([], 0, 0)


def test_where_members_hold_no_data_any_more_nothing_is_planned() -> None:
    lead = Lead(Assignment(5, (A, B)))
    lead.enter(View(1, "id", [info(A, lite=True), info(B, lite=True)]))
    assert lead.asked == []
    assert lead.migrations.planned


def test_a_new_cluster_does_not_wait_for_what_a_member_has_found_in_its_files() -> None:
    lead = Lead()
    lead.wanted = [(A, B)]
    lead.enter(View(1, "id", [info(A), info(B, store="files", returns=True)]))
    assert lead.table.assigned


# -- repair


def expected(
    row: tuple[MemberId, ...], present: set[MemberId]
) -> tuple[tuple[MemberId | None, ...], int] | None:
    """The row without who is gone, the hottest that is left in front; and how many slots differ."""
    left: list[MemberId | None] = [member if member in present else None for member in row]
    first = next((slot for slot, member in enumerate(left) if member), None)
    if first is None:
        return None
    left[0], left[first] = left[first], left[0]
    return tuple(left), sum(one != other for one, other in zip(row, left, strict=True))


DEEP = settings(1, backups=1, deep=2)
ROWS = list(permutations((A, B, C, D), 3))


@pytest.mark.rule("migration/M-2")
@pytest.mark.parametrize("gone", [(B,), (C,), (B, C), (B, D), (B, C, D)])
def test_whoever_is_gone_is_taken_out_and_the_hottest_that_is_left_is_promoted(
    gone: tuple[MemberId, ...],
) -> None:
    """Every row of three of four members. The third slot does not hold every map: it is not promoted."""
    present = {A, B, C, D} - set(gone)
    for replicas in ROWS:
        lead = Lead(Assignment(5, replicas), chosen=DEEP)
        lead.enter(View(1, "id", [info(one) for one in sorted(present)]))
        found = expected(replicas, present)
        if not set(replicas) & set(gone):
            assert lead.table.rows[0] == Assignment(5, replicas)
            assert lead.news == []
        elif found is None or not set(replicas[:2]) & present:
            assert lead.table.rows[0] == Assignment(5, replicas), "it waits"
            assert lead.migrations.lost == {0}
            assert [one.loss for one in lead.news] == [Loss(0, 2, True, [])]
        else:
            slots, changed = found
            assert lead.table.rows[0] == Assignment(5 + changed, slots)
            assert lead.migrations.lost == set()
            if slots[0] == replicas[0]:
                assert lead.news == []
            else:
                assert [one.loss for one in lead.news if one.loss] == [Loss(0, 0, False, [])]
                assert [one.kind for one in lead.news] == [
                    Kind.LOST,
                    Kind.STARTED,
                    Kind.COMPLETED,
                    Kind.FINISHED,
                ]
                (_, began, done, over) = lead.news
                assert (began.planned, done.version, over.completed) == (1, 5 + changed, 1)
                assert done.migration == Migration(0, None, NONE, NONE, str(slots[0]), 1, 0)


def test_of_several_promotions_there_is_one_process() -> None:
    lead = Lead(Assignment(5, (B, A)), Assignment(7, (B, C)), Assignment(3, (A, B))).enter((A, C))
    assert lead.told() == [
        (Kind.LOST, 0),
        (Kind.LOST, 0),
        (Kind.STARTED, 0),
        (Kind.COMPLETED, 7),
        (Kind.COMPLETED, 9),
        (Kind.FINISHED, 0),
    ]
    assert lead.table.rows == [Assignment(7, (A, None)), Assignment(9, (C, None)), Assignment(4, (A, None))]


def test_the_first_round_tells_all_that_has_happened() -> None:
    lead = Lead(Assignment(1, (B, A))).enter((A, C))
    assert lead.table.rows == [Assignment(3, (A, None))]
    told = [Kind.LOST, Kind.STARTED, Kind.COMPLETED, Kind.FINISHED]
    assert lead.offered[0] == (1, 1, [0], told)
    assert "partitions lost their owners: a backup has taken over, no entry is gone" in lead.notes


def test_what_waits_or_begins_anew_does_not_hold_up_the_repair_of_others() -> None:
    lead = Lead(Assignment(5, (D, E)), Assignment(5, (D, A))).enter((A, C))
    assert lead.table.rows[1] == Assignment(7, (A, None))
    assert "partitions lost: they wait for a copy to return" in lead.notes
    lead = Lead(Assignment(5, (D, E)), Assignment(5, (D, A)), chosen=settings(2, lost="accept")).enter((A, C))
    assert [row.replicas for row in lead.table.rows] == [(A, None), (A, None)]
    assert "partitions lost: started again, empty" in lead.notes


def test_a_partition_that_was_never_assigned_is_left_alone() -> None:
    lead = Lead(Assignment(5, (A, B)), Assignment()).enter()
    assert lead.table.rows == [Assignment(5, (A, B)), Assignment()]


@pytest.mark.rule("migration/M-2")
def test_what_waits_is_told_once_and_goes_on_waiting() -> None:
    lead = Lead(Assignment(5, (D, E))).enter()
    assert [one.loss for one in lead.news] == [Loss(0, 1, True, [])]
    lead.news.clear()
    lead.enter(view_of(2, A, B))
    assert lead.news == []
    assert lead.migrations.lost == {0}
    assert lead.table.rows[0] == Assignment(5, (D, E))


@pytest.mark.parametrize("how", ["accept", "rule off"])
def test_where_the_loss_is_accepted_a_partition_begins_anew_with_a_later_epoch(how: str) -> None:
    """The rule is wait-for-copies."""
    rows = [Assignment(5, (D, E), 2), Assignment(5, (E, D), 0)]
    chosen = settings(2, lost="accept" if how == "accept" else "wait")
    lead = Lead(*rows, chosen=chosen)
    with ablated(*([] if how == "accept" else ["wait-for-copies"])):
        lead.enter((A, B, C))
    assert lead.table.rows == [Assignment(9, (A, None), 3), Assignment(9, (B, None), 1)]
    assert lead.migrations.lost == set()
    assert [one.loss for one in lead.news] == [Loss(p, 1, True, ["default"], begun_anew=True) for p in (0, 1)]


def test_where_the_loss_is_accepted_a_replica_without_every_map_takes_over() -> None:
    lead = Lead(Assignment(5, (B, C, A)), chosen=settings(1, backups=1, deep=2, lost="accept")).enter((A, D))
    assert lead.table.rows[0] == Assignment(8, (A, None, None))
    assert [one.loss for one in lead.news if one.loss] == [Loss(0, 1, False, ["default"])]


def test_with_nobody_to_hold_it_a_partition_waits_even_if_the_loss_is_accepted() -> None:
    lead = Lead(Assignment(5, (D, E)), chosen=settings(1, lost="accept"))
    lead.enter(View(1, "id", [info(A, lite=True), info(B, lite=True)]))
    assert lead.migrations.lost == {0}
    assert lead.table.rows[0] == Assignment(5, (D, E))


def test_a_backup_that_was_behind_loses_its_slot_when_the_table_is_not_frozen_any_more() -> None:
    lead = Lead(Assignment(5, (A, B), behind=(B,))).enter()
    assert lead.table.rows[0] == Assignment(6, (A, None))


def test_a_backup_that_is_behind_is_not_promoted() -> None:
    lead = Lead(Assignment(5, (D, B), behind=(B,))).enter()
    assert lead.migrations.lost == {0}


def test_a_first_row_that_was_never_committed_and_whose_members_are_gone_begins_anew() -> None:
    lead = Lead(chosen=settings(1))
    lead.wanted = [(C, D)]
    lead.silent = {D}
    lead.enter((A, B, C, D))
    assert lead.table_replication.head[0] == Assignment(2, (C, D))
    lead.wanted = None
    lead.enter(view_of(2, A, B))
    assert lead.table.rows[0] == Assignment(6, (A, None))
    assert lead.migrations.lost == set()
    assert [one.loss for one in lead.news if one.loss] == []


def test_of_a_first_row_that_was_never_committed_who_is_left_gets_the_partition() -> None:
    lead = Lead(chosen=settings(2))
    lead.wanted = [(C, D), (B, D)]
    lead.silent = {D}
    lead.enter((A, B, C, D))
    lead.wanted = None
    lead.enter(view_of(2, A, B))
    assert lead.table.rows == [Assignment(6, (A, None)), Assignment(3, (B, None))]


def test_a_first_row_that_was_never_committed_waits_for_somebody_to_hold_data() -> None:
    lead = Lead(chosen=settings(1))
    lead.wanted = [(C, D)]
    lead.silent = {D}
    lead.enter(View(1, "id", [info(A, lite=True), info(B, lite=True), info(C), info(D)]))
    lead.enter(View(2, "id", [info(A, lite=True), info(B, lite=True)]))
    assert lead.table_replication.head[0] == Assignment(2, (C, D))


FROZEN = ClusterState.FROZEN


@pytest.mark.rule("migration/M-6")
def test_in_a_frozen_table_a_missing_backup_is_marked_as_behind() -> None:
    rows = [
        Assignment(5, (A, D, B)),
        Assignment(5, (A, B, None)),
        Assignment(5, (D, A, E)),
        Assignment(5, (A, E, D), behind=(E,)),
    ]
    lead = Lead(*rows, chosen=settings(4, deep=2))
    lead.enter(view_of(1, A, B, state=FROZEN, missing=[info(D)]))
    assert lead.table.rows == [
        Assignment(6, (A, D, B), behind=(D,)),
        rows[1],
        rows[2],
        Assignment(6, (A, E, D), behind=(E, D)),
    ]
    assert lead.migrations.lost == set()
    assert lead.asked == []
    lead.migrations.accept_loss()
    lead.settle()
    assert lead.table.rows[0] == Assignment(6, (A, D, B), behind=(D,)), "nothing was lost"


# -- migration/M-3: migrations


def moving(*, backups: int = 1) -> Lead:
    """A's partition is on its way to B."""
    lead = Lead(Assignment(5, (A, C)))
    lead.wanted = [(B, C)]
    lead.enter()
    assert lead.requests() == [(A, 0, B, 5)]
    assert lead.told() == [(Kind.STARTED, 0)]
    assert "rebalance planned" in lead.notes
    return lead


@pytest.mark.rule("migration/M-3")
def test_a_migration_is_asked_of_the_primary_and_committed_when_it_says_so() -> None:
    lead = moving()
    assert (lead.migrations.queued, lead.migrations.leftovers) == (
        0,
        {"migrations": 1, "members with migrations": 2},
    )
    lead.pass_ns(7 * MILLISECOND)
    lead.ready()
    assert lead.table.rows[0] == Assignment(6, (B, C))
    done, over = lead.news
    assert (done.kind, done.version, done.took_ms, done.completed) == (Kind.COMPLETED, 6, 7, 1)
    assert over.kind is Kind.FINISHED
    assert lead.migrations.completed == 1
    assert sum(lead.migrations.leftovers.values()) == 0
    assert lead.migrations.planned
    assert lead.requests() == []
    assert len(lead.asked) == 2, "and once more, whether that is all"


def nothing_runs(lead: Lead) -> None:
    lead.hear(A, MigrationReady(1, 1, 5))


def a_stranger(lead: Lead) -> None:
    lead.hear(C, MigrationReady(1, 0, 5))


def another_version(lead: Lead) -> None:
    lead.hear(A, MigrationReady(1, 0, 4))


def not_master(lead: Lead) -> None:
    lead.table_replication.ready = False
    lead.hear(A, MigrationReady(1, 0, 5))


def the_row_has_changed(lead: Lead) -> None:
    lead.table_replication.head[0] = Assignment(6, (A, C))
    lead.hear(A, MigrationReady(1, 0, 5))


@pytest.mark.parametrize("said", [nothing_runs, a_stranger, another_version, not_master, the_row_has_changed])
def test_a_word_that_is_not_of_the_running_migration_commits_nothing(said: Callable[[Lead], None]) -> None:
    lead = moving()
    said(lead)
    lead.settle()
    assert lead.table.rows[0] == Assignment(5, (A, C))
    assert lead.applied == []
    assert lead.told() == []
    assert lead.migrations.running


def test_a_migration_is_committed_once() -> None:
    lead = moving()
    lead.silent = {B, C}
    lead.ready()
    lead.ready()
    lead.hear(A, MigrationRefused(1, 0, 5, "late"))
    assert lead.table_replication.head[0] == Assignment(6, (B, C))
    assert lead.migrations.running
    lead.silent = set()
    for member in (B, C):
        lead.hear(member, TableStored(1, 3))
    lead.settle()
    assert lead.told() == [(Kind.COMPLETED, 6), (Kind.FINISHED, 0)]


@pytest.mark.parametrize("version", [4, 6])
def test_a_refusal_of_another_time_has_no_effect(version: int) -> None:
    lead = moving()
    lead.hear(A, MigrationRefused(1, 0, version, "late"))
    lead.hear(A, MigrationRefused(1, 1, 5, "nothing runs there"))
    lead.settle()
    assert (lead.told(), len(lead.migrations.running)) == ([], 1)


def test_after_a_refusal_the_master_pauses_and_plans_anew() -> None:
    lead = moving()
    lead.timers_set.clear()
    lead.hear(A, MigrationRefused(1, 0, 5, "busy"))
    lead.settle()
    assert lead.told() == [(Kind.FAILED, 5), (Kind.FINISHED, 0)]
    assert "migration refused" in lead.notes
    assert lead.timers_set == [SetTimer("plan", 300 * MILLISECOND, 150 * MILLISECOND)]
    assert sum(lead.migrations.leftovers.values()) == 0
    assert not lead.migrations.planned
    lead.migrations.control()
    assert lead.settle().requests() == []
    lead.migrations.on_timer("delay")
    assert lead.settle().requests() == [], "another timer does not end the pause"
    lead.migrations.on_timer("plan")
    assert lead.settle().requests() == [(A, 0, B, 5)]


def test_while_a_disk_is_full_it_pauses_for_longer() -> None:
    lead = moving()
    lead.timers_set.clear()
    lead.membership.intents.note_full(B, full=True)
    lead.hear(A, MigrationRefused(1, 0, 5, "full"))
    lead.settle()
    assert lead.timers_set == [SetTimer("plan", 10 * SECOND, 5 * SECOND)]


def test_two_refusals_are_one_pause() -> None:
    lead = Lead(Assignment(5, (A, C)), Assignment(5, (A, C)))
    lead.wanted = [(B, C)] * 2
    lead.enter()
    assert len(lead.requests()) == 2
    lead.timers_set.clear()
    for partition in (0, 1):
        lead.hear(A, MigrationRefused(1, partition, 5, "busy"))
    lead.settle()
    assert len(lead.timers_set) == 1
    assert lead.told().count((Kind.FINISHED, 0)) == 1


def test_the_steps_of_one_partition_go_one_after_the_other() -> None:
    lead = Lead(Assignment(5, (A, None)))
    lead.wanted = [(B, C)]
    lead.enter()
    (first,) = lead.requests()
    assert lead.migrations.queued == 1
    lead.ready()
    (second,) = lead.requests()
    assert {first[2], second[2]} == {B, C}
    assert second[3] == lead.table.rows[0].version > 5
    lead.ready()
    assert lead.table.rows[0].replicas == (B, C)
    assert lead.migrations.completed == 2
    kinds = [kind for kind, _ in lead.told()]
    assert kinds == [Kind.STARTED, Kind.COMPLETED, Kind.COMPLETED, Kind.FINISHED]


def test_when_all_is_done_it_looks_once_more_for_what_the_layout_wants() -> None:
    lead = moving()
    lead.wanted = [(B, A)]
    lead.ready()
    assert lead.requests() == [(B, 0, A, 6)]


def test_a_slot_that_is_not_wanted_is_cleared_by_the_table_alone() -> None:
    lead = Lead(Assignment(5, (A, B)))
    lead.wanted = [(A, None)]
    lead.enter()
    assert lead.requests() == []
    assert lead.table.rows[0] == Assignment(6, (A, None))


def test_two_members_exchange_their_slots_in_one_migration() -> None:
    lead = Lead(Assignment(5, (A, B)))
    lead.wanted = [(B, A)]
    lead.enter(view_of(1, A, B, C, level=EXCHANGES))
    assert lead.requests() == [(A, 0, B, 5)]
    lead.ready()
    assert lead.table.rows[0] == Assignment(7, (B, A)), "two slots have changed"
    assert (lead.requests(), lead.migrations.completed) == ([], 1)


def test_slots_are_not_exchanged_while_a_member_of_an_earlier_version_may_be_here() -> None:
    lead = Lead(Assignment(5, (A, B)))
    lead.wanted = [(B, A)]
    lead.enter(view_of(1, A, B, C, level=EXCHANGES - 1))
    assert (lead.requests(), lead.table.rows[0]) == ([], Assignment(5, (A, B)))
    lead.enter(view_of(2, A, B, C, level=EXCHANGES))
    assert lead.requests() == [(A, 0, B, 5)]


def test_a_rotation_that_is_not_made_changes_nothing() -> None:
    lead = Lead(Assignment(5, (A, B, C)))
    lead.wanted = [(B, C, A)]
    lead.enter(view_of(1, A, B, C, level=EXCHANGES))
    assert (lead.requests(), lead.table.rows[0]) == ([], Assignment(5, (A, B, C)))
    assert "rebalance planned" not in lead.notes


def test_without_plans_that_keep_copies_a_backup_goes_before_its_successor_comes() -> None:
    lead = Lead(Assignment(5, (A, B)))
    lead.wanted = [(A, C)]
    with ablated("plan-keeps-copies"):
        lead.enter()
    assert lead.table.rows[0] == Assignment(6, (A, None))
    safe = Lead(Assignment(5, (A, B)))
    safe.wanted = [(A, C)]
    safe.enter()
    assert safe.table.rows[0] == Assignment(5, (A, B))
    assert safe.requests() == [(A, 0, C, 5)]


def test_a_partition_that_waits_for_copies_takes_no_part_in_the_plan() -> None:
    lead = Lead(Assignment(5, (D, E)), Assignment(5, (A, B)))
    lead.wanted = [(A, C)]
    lead.enter()
    assert lead.requests() == [(A, 1, C, 5)]


# -- what was under way when members go (migration/M-4, partition_table/L-6)


@pytest.mark.rule("migration/M-4")
def test_when_an_end_of_a_migration_dies_the_version_goes_beyond_its_success() -> None:
    lead = moving()
    lead.wanted = [(A, C)]
    lead.install(view_of(2, A, C))
    assert lead.migrations.running == {}
    assert lead.table_replication.head[0] == Assignment(7, (A, C))
    lead.settle()
    assert lead.table.rows[0] == Assignment(7, (A, C))
    assert lead.migrations.failed == 1
    assert lead.told() == [(Kind.FAILED, 7), (Kind.FINISHED, 0)]
    assert "migration failed" in lead.notes
    assert sum(lead.migrations.leftovers.values()) == 0


@ablated("failed-version")
def test_without_that_rule_the_row_stays_as_it_is() -> None:
    lead = moving()
    lead.wanted = [(A, C)]
    lead.enter(view_of(2, A, C))
    assert lead.table.rows[0] == Assignment(5, (A, C))


@pytest.mark.parametrize("last", [(A, B), (A, B, C)])
def test_a_migration_between_members_that_stay_goes_on(last: tuple[MemberId, ...]) -> None:
    lead = Lead(Assignment(5, (A, None)))
    lead.wanted = [(B, None)]
    lead.enter((A, B, C, D))
    lead.told()
    lead.enter(view_of(2, *last))
    assert len(lead.requests()) == 1, "it is asked for once"
    assert lead.migrations.failed == 0
    lead.ready()
    assert lead.table.rows[0] == Assignment(6, (B, None))
    assert lead.told() == [(Kind.COMPLETED, 6), (Kind.FINISHED, 0)]


def test_of_several_migrations_those_end_whose_members_have_gone() -> None:
    lead = Lead(Assignment(5, (A, None)), Assignment(5, (A, None)), Assignment(5, (A, None)))
    lead.wanted = [(B, None), (D, None), (B, None)]
    lead.enter((A, B, C, D))
    assert len(lead.migrations.running) == 3
    lead.install(view_of(2, A, B, C))
    assert lead.migrations.running.keys() == {0, 2}
    assert [row.version for row in lead.table_replication.head] == [5, 7, 5]


def test_what_was_offered_is_taken_back_when_a_third_one_that_it_names_is_gone() -> None:
    lead = Lead(Assignment(5, (A, C)))
    lead.wanted = [(B, C)]
    lead.enter((A, B, C, D))
    lead.told()
    lead.silent = {B, C, D}
    lead.ready()
    lead.silent = set()
    lead.wanted = None
    lead.enter(view_of(2, A, B, D))
    assert lead.table.rows[0] == Assignment(8, (A, None))
    assert (lead.migrations.completed, lead.migrations.failed) == (0, 1)
    assert lead.told()[:1] == [(Kind.FAILED, 7)]
    assert sum(lead.migrations.leftovers.values()) == 0


def test_a_member_in_another_life_has_not_stayed() -> None:
    lead = moving()
    lead.enter(View(2, "id", [info(A), info(B, 2), info(C)]))
    assert lead.migrations.failed == 1
    assert lead.table.rows[0] == Assignment(7, (A, C))


def test_where_nothing_may_move_any_more_migrations_end_without_effect() -> None:
    lead = moving()
    lead.enter(view_of(2, A, B, C, state=ClusterState.NO_MIGRATION))
    assert lead.table.rows[0] == Assignment(7, (A, C))
    assert lead.told() == [(Kind.FAILED, 7), (Kind.FINISHED, 0)]
    assert lead.requests() == []


@pytest.mark.parametrize("state", [ClusterState.ACTIVE, ClusterState.NO_MIGRATION])
def test_what_is_being_committed_is_committed_in_the_next_view_too(state: ClusterState) -> None:
    lead = Lead(Assignment(5, (A, C)))
    lead.wanted = [(B, C)]
    lead.enter((A, B, C, D))
    lead.silent = {B, C, D}
    lead.ready()
    assert lead.table.rows[0] == Assignment(5, (A, C))
    lead.silent = set()
    lead.enter(view_of(2, A, B, C, state=state))
    assert lead.table.rows[0] == Assignment(6, (B, C))
    assert (lead.migrations.completed, lead.migrations.failed) == (1, 0)


@pytest.mark.rule("partition_table/L-6")
def test_what_was_offered_and_not_committed_is_taken_back_when_one_that_it_names_is_gone() -> None:
    lead = moving()
    lead.silent = {B, C}
    lead.ready()
    lead.silent = set()
    lead.wanted = None
    lead.enter(view_of(2, A, C))
    assert lead.table.rows[0] == Assignment(7, (A, C))
    assert (lead.migrations.completed, lead.migrations.failed) == (0, 1)
    assert [one for one in lead.told() if one[0] is not Kind.STARTED] == [
        (Kind.FAILED, 7),
        (Kind.FINISHED, 0),
    ]


@ablated("failed-version")
def test_without_that_rule_the_same_version_gets_another_row() -> None:
    lead = moving()
    lead.silent = {B, C}
    lead.ready()
    lead.silent = set()
    lead.wanted = None
    lead.enter(view_of(2, A, C))
    assert lead.table.rows[0] == Assignment(5, (A, C))


def test_what_was_offered_stays_when_all_that_it_names_are_there() -> None:
    lead = Lead(Assignment(5, (A, B)), Assignment(5, (A, B)))
    lead.enter((A, B, C, D))
    lead.silent = {B, C, D}
    lead.table_replication.propose({0: Assignment(6, (A, B), 4), 1: Assignment(6, (A, D), 4)})
    lead.settle()
    lead.silent = set()
    lead.enter(view_of(2, A, B, C))
    assert lead.table.rows == [Assignment(6, (A, B), 4), Assignment(7, (A, B))]
    assert lead.migrations.failed == 0, "that was no migration"


@pytest.mark.rule("partition_table/L-6")
def test_what_an_earlier_master_has_offered_is_not_taken_back() -> None:
    """It may have committed it. Whoever it names and is gone is taken out as of any row."""
    lead = Lead(Assignment(5, (A, B)))
    lead.install(view_of(1, A, B, C))
    lead.effects()
    lead.hear(B, TableReport(1, [(0, Assignment(6, (A, D)))], []))
    lead.hear(C, TableReport(1, [], []))
    assert lead.table_replication.head[0] == Assignment(7, (A, None))
    lead.silent = {B, C}
    lead.settle()
    lead.silent = set()
    lead.enter(view_of(2, A, B))
    assert lead.table.rows[0] == Assignment(7, (A, None))


def test_a_new_master_ends_the_migrations_of_the_old_one() -> None:
    """Those whose rows are still the newest: their versions go beyond what the old master may have committed."""
    lead = Lead(Assignment(5, (A, C)), Assignment(9, (A, C)))
    lead.install(view_of(3, A, B, C))
    lead.effects()
    begun = [(Migration(p, A, 0, NONE, B, NONE, 0), 5) for p in (0, 1)]
    lead.hear(B, TableReport(3, [], begun))
    lead.hear(C, TableReport(3, [], []))
    lead.settle()
    assert lead.table.rows == [Assignment(7, (A, C)), Assignment(9, (A, C))]
    assert lead.migrations.failed == 1
    assert lead.told() == [(Kind.FAILED, 7)]


def test_a_new_master_ends_the_process_of_the_old_one() -> None:
    lead = Lead(Assignment(5, (A, B)))
    lead.install(view_of(2, A, B))
    lead.effects()
    lead.hear(B, TableReport(2, [], [], [News((1, 1), Kind.STARTED, (1, 1), 3)]))
    lead.settle()
    assert [(one.kind, one.number[0]) for one in lead.news][-1:] == [(Kind.FINISHED, 2)]
    assert lead.offered[0] == (2, 1, [0], [Kind.STARTED, Kind.FINISHED])
    assert not lead.table_replication.reporter.under_way


def test_the_process_of_the_same_master_goes_on() -> None:
    lead = Lead(Assignment(5, (A, C)))
    lead.wanted = [(B, C)]
    lead.enter((A, B, C, D))
    lead.told()
    lead.enter(view_of(2, A, B, C))
    assert lead.table_replication.reporter.under_way
    assert lead.told() == []


@pytest.mark.parametrize("view", [view_of(2, B, A), view_of(2, B, C)], ids=["no master", "removed"])
def test_who_is_master_no_more_forgets_what_runs(view: View) -> None:
    lead = moving()
    lead.install(view)
    assert sum(lead.migrations.leftovers.values()) == 0
    assert (lead.migrations.running, lead.migrations.planned) == ({}, False)


# -- every subset of two reports, and every moment of a crash


@pytest.mark.parametrize("known", list(product((None, 5, 6, 7), repeat=2)))
def test_whatever_a_new_master_hears_its_table_goes_beyond_it(known: tuple[int | None, int | None]) -> None:
    """Rows of an earlier master's migration of A's partition to B: none, before, done, failed."""
    rows = {5: Assignment(5, (A, C)), 6: Assignment(6, (B, C)), 7: Assignment(7, (A, C))}
    for mine in (5, 6, 7):
        lead = Lead(rows[mine])
        lead.install(view_of(2, A, B, C))
        lead.effects()
        for member, version in zip((B, C), known, strict=True):
            active = [(Migration(0, A, 0, NONE, B, NONE, 0), 5)]
            lead.hear(member, TableReport(2, [(0, rows[version])] if version else [], active))
        lead.settle()
        newest = max(mine, *(version or 0 for version in known))
        table = lead.table.rows[0]
        if newest == 5:
            assert table.version > 6, (
                "it was under way: who may have committed it never takes this row for that"
            )
            assert table.replicas == (A, C)
        else:
            assert table == rows[newest]
