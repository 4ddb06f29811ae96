"""What the master makes of copies that come back (migration/X-1, migration/X-2), and of losses that are accepted."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from tests.core.migration.lead import E, Lead, settings
from tests.core.seats import A, B, C, D, info

from holdfast.config import ClusterSettings, MapSettings, PartitionSettings, Settings
from holdfast.core.effects import SetTimer
from holdfast.core.messages import Holdings, RetainedCopy
from holdfast.core.model.ids import MILLISECOND, MemberId
from holdfast.core.model.partition_events import Loss
from holdfast.core.model.partition_table import Assignment
from holdfast.core.model.views import FilesSeen, MemberInfo, View
from holdfast_lab.sim.ablations.switching import ablated

# -- what comes back


STORE = "files of d"
OLD_A, OLD_B, OLD_D = MemberId("f"), MemberId("g"), MemberId("h")


def lost_d(**more: object) -> Lead:
    """D had files, and is gone with the only copy."""
    lead = Lead(Assignment(5, (D, None)), chosen=settings(1, **more))  # type: ignore[arg-type]
    lead.enter(View(1, "id", [info(A), info(B), info(D, store=STORE)]))
    lead.enter(View(2, "id", [info(A), info(B)]))
    assert lead.migrations.lost == {0}
    lead.told()
    return lead


def holdings(*kept: RetainedCopy, view: int = 3) -> Holdings:
    return Holdings(view, None, {}, [], list(kept))


@pytest.mark.rule("migration/X-2")
def test_a_partition_goes_on_when_one_that_its_row_names_is_back_with_it() -> None:
    lead = lost_d()
    lead.enter(View(3, "id", [info(A), info(B), info(E, store=STORE, returns=True)]))
    assert lead.migrations.lost == {0}
    lead.hear(E, holdings(RetainedCopy(0, 0, [("m", 4, 5)], True)))
    lead.settle()
    assert lead.table.rows[0] == Assignment(8, (E, None))
    assert lead.migrations.lost == set()
    assert "partitions recovered" in lead.notes


def test_who_leads_no_more_decides_nothing() -> None:
    lead = lost_d()
    lead.install(View(3, "id", [info(B), info(A), info(E, store=STORE, returns=True)]))
    lead.hear(E, holdings(RetainedCopy(0, 0, [("m", 4, 5)], True)))
    lead.migrations.accept_loss()
    assert lead.table_replication.head[0] == Assignment(5, (D, None))


def test_nothing_is_planned_before_all_have_said_what_they_have_kept() -> None:
    lead = Lead(Assignment(5, (A, B)))
    lead.enter(View(1, "id", [info(A), info(B), info(E, store=STORE, returns=True)]))
    assert (lead.asked, lead.migrations.planned) == ([], True)
    lead.hear(E, holdings(view=1))
    lead.settle()
    assert len(lead.asked) == 1


def test_a_copy_that_proves_nothing_does_not_end_the_wait_until_the_operator_accepts_the_loss() -> None:
    lead = lost_d()
    lead.enter(View(3, "id", [info(A), info(B), info(E, store=STORE, returns=True)]))
    lead.hear(E, holdings(RetainedCopy(0, 0, [("m", 4, 5)], False)))
    lead.settle()
    assert lead.migrations.lost == {0}
    assert "partitions recovered" not in lead.notes
    lead.migrations.accept_loss()
    lead.settle()
    assert lead.table.rows[0] == Assignment(8, (E, None))
    assert "data loss accepted by the operator" in lead.notes
    assert "partitions recovered" in lead.notes
    assert not lead.migrations.returns.accepted, "what is lost later waits again"
    assert lead.migrations.planned


@ablated("owner-by-proof")
def test_without_proof_a_copy_that_may_lack_updates_would_be_promoted() -> None:
    lead = lost_d()
    lead.enter(View(3, "id", [info(A), info(B), info(E, store=STORE, returns=True)]))
    lead.hear(E, holdings(RetainedCopy(0, 0, [("m", 4, 5)], False)))
    lead.settle()
    assert lead.table.rows[0] == Assignment(8, (E, None)), "nobody accepted the loss"
    assert lead.migrations.lost == set()


def test_a_loss_that_is_accepted_lets_the_partition_begin_anew() -> None:
    lead = lost_d()
    lead.migrations.accept_loss()
    lead.settle()
    assert lead.table.rows[0] == Assignment(8, (A, None), 1)
    assert lead.migrations.lost == set()
    assert [one.loss for one in lead.news if one.loss] == [Loss(0, 1, True, ["default"], begun_anew=True)]


def test_only_what_was_lost_changes() -> None:
    lead = Lead(Assignment(5, (A, B)), Assignment(5, (D, E)), Assignment(5, (A, B))).enter()
    lead.offered.clear()
    lead.migrations.accept_loss()
    lead.settle()
    assert lead.offered[0][2] == [1]


def test_a_copy_that_came_back_is_not_taken_while_a_better_one_lives() -> None:
    lead = Lead(Assignment(5, (OLD_A, B)))
    lead.bringing = Holdings(1, None, {OLD_A: "files of a"}, [], [RetainedCopy(0, 0, [("m", 9, 5)], True)])
    lead.enter(View(1, "id", [info(A, store="files of a", returns=True), info(B)]))
    assert lead.table.rows[0] == Assignment(7, (B, None))


def test_while_nothing_is_lost_there_is_nothing_to_accept() -> None:
    lead = Lead(Assignment(5, (A, B))).enter()
    lead.applied.clear()
    lead.migrations.accept_loss()
    lead.settle()
    assert lead.applied == []
    assert not lead.migrations.returns.accepted


def test_before_the_first_assignment_the_loss_stays_accepted() -> None:
    lead = Lead(chosen=settings(1, initial=5)).enter()
    lead.migrations.accept_loss()
    assert lead.migrations.returns.accepted


def test_what_a_new_master_has_brought_back_itself_does_not_wait() -> None:
    lead = Lead(Assignment(5, (OLD_A, D), 2), Assignment(5, (D, B)))
    lead.bringing = Holdings(1, None, {OLD_A: "files of a"}, [], [RetainedCopy(0, 2, [("m", 1, 5)], True)])
    lead.enter(View(1, "id", [info(A, store="files of a", returns=True), info(B)]))
    assert lead.table.rows[0] == Assignment(8, (A, None), 2)
    assert lead.table.rows[1] == Assignment(7, (B, None)), "nor do others wait"
    assert lead.migrations.lost == set()
    assert [one.loss.partition for one in lead.news if one.loss] == [1]


RECOVERING: dict[str, object] = {"recovering": True}


def stopped(
    *kept: tuple[MemberId, Holdings],
    initial: int = 1,
    count: int = 2,
    chosen: Settings | None = None,
    **view: object,
) -> Lead:
    """A cluster that was stopped as a whole comes back."""
    lead = Lead(chosen=chosen or settings(count, initial=initial))
    lead.wanted = [(A, B)] * count
    members = [info(A, store="files of a", returns=True), info(B, store="files of b", returns=True)]
    lead.install(View(7, "id", members, **(RECOVERING | view)))  # type: ignore[arg-type]
    lead.settle()
    for member, one in kept:
        lead.hear(member, one)
        lead.settle()
    return lead


STORES = {OLD_A: "files of a", OLD_B: "files of b", OLD_D: "files of d"}
WAS = [(0, Assignment(5, (OLD_A, OLD_B))), (1, Assignment(5, (OLD_B, None)))]


def brought(*partitions: int, rows: list[tuple[int, Assignment]] = WAS) -> Holdings:
    kept = [RetainedCopy(partition, 0, [("m", 4, 5)], True) for partition in partitions]
    return Holdings(7, None, STORES, rows, kept)


@pytest.mark.rule("migration/X-1")
def test_the_table_of_a_stopped_cluster_is_made_when_all_have_spoken() -> None:
    lead = stopped((A, brought(0)))
    assert not lead.table.assigned
    assert lead.asked == []
    assert "waiting for members before the partition table is restored" in lead.notes
    lead.hear(B, brought(0, 1))
    lead.settle()
    assert [row.replicas for row in lead.table.rows] == [(A, B), (B, None)]
    assert [row.epoch for row in lead.table.rows] == [0, 0]
    assert lead.migrations.lost == set()
    assert "partition table restored" in lead.notes


def test_of_what_no_copy_came_back_it_waits() -> None:
    lead = stopped((A, brought(0)), (B, brought(0)))
    assert lead.table.rows[0].replicas == (A, B)
    assert lead.table.rows[1].replicas == (OLD_B, None)
    assert lead.migrations.lost == {1}
    assert [one.loss for one in lead.news if one.loss] == [Loss(1, 1, True, [])]


def test_a_stopped_cluster_that_had_no_table_is_assigned_one() -> None:
    lead = stopped((A, brought(rows=[])), (B, brought(rows=[])), initial=2)
    assert lead.table.rows == [Assignment(2, (A, B))] * 2
    assert "partition table restored" not in lead.notes
    few = stopped((A, brought(rows=[])), (B, brought(rows=[])), initial=3)
    assert not few.table.assigned


def test_a_stopped_cluster_whose_loss_is_accepted_begins_anew_where_nothing_is_left() -> None:
    lead = stopped((A, brought(0)))
    lead.migrations.returns.accepted = True
    lead.hear(B, brought(0))
    lead.settle()
    assert lead.table.rows[0].replicas == (A, B)
    assert (lead.table.rows[1].replicas, lead.table.rows[1].epoch) == ((B, None), 1)
    assert not lead.migrations.returns.accepted
    assert [one[:3] for one in lead.offered[:2]] == [(7, 1, [0, 1]), (7, 2, [1])]


@pytest.mark.rule("migration/X-1")
def test_members_that_are_missing_are_waited_for_until_the_operator_accepts_the_loss() -> None:
    lead = stopped((A, brought(0)), (B, brought(0, 1)), missing=[info(D, store="files of d")])
    assert not lead.table.assigned
    lead.migrations.accept_loss()
    assert lead.settle().table.assigned


def seen(number: int, *members: MemberInfo, **more: object) -> Holdings:
    """The inventory of a member whose files know this view as the last one."""
    return replace(brought(0, 1), seen=View(number, "id", list(members), **more))  # type: ignore[arg-type]


FILES_A, FILES_B, FILES_D = (info(who, 3, store=STORES[who], incarnation=1) for who in (OLD_A, OLD_B, OLD_D))


@pytest.mark.rule("migration/X-1")
def test_a_recovery_that_was_interrupted_is_not_the_last_view() -> None:
    """A has formed the stopped cluster several times, and so its number is the highest."""
    alone = seen(9, FILES_A, recovering=True, missing=[FILES_B])
    lead = stopped((A, alone), (B, seen(8, FILES_B, FILES_D)))
    assert not lead.table.assigned
    assert [one.store for one in lead.migrations.returns.missing] == ["files of d"]
    lead = stopped((A, alone), (B, seen(8, FILES_B)))
    assert lead.table.assigned


@pytest.mark.rule("migration/X-1")
@pytest.mark.rule("membership/F-6")
def test_all_that_an_interrupted_recovery_waited_for_are_awaited_unless_they_were_gone_before() -> None:
    waiting = seen(9, FILES_A, recovering=True, missing=[FILES_D])
    assert not stopped((A, waiting), (B, seen(9, FILES_B, recovering=True))).table.assigned
    assert not stopped((A, waiting), (B, seen(8, FILES_A, FILES_B))).table.assigned, (
        "D is not known to be gone"
    )
    gone = seen(8, FILES_A, FILES_B, stores={"files of d": FilesSeen(1, "t")})
    assert stopped((A, waiting), (B, gone)).table.assigned
    assert stopped((A, brought(0, 1)), (B, gone), missing=[FILES_D]).table.assigned
    later = seen(9, FILES_A, recovering=True, missing=[replace(FILES_D, life=9)])
    assert not stopped((A, later), (B, gone)).table.assigned, "D has returned since then"


def test_members_that_are_missing_are_given_up_after_a_while_if_that_is_allowed() -> None:
    chosen = Settings(
        cluster=ClusterSettings(initial_members=1, on_missing_data_dirs="accept"),
        partitions=PartitionSettings(count=2),
        maps={"default": MapSettings(backups=1)},
    )
    patience_ns = 3 * chosen.cluster.suspect_after_ms * MILLISECOND
    both = ((A, brought(0)), (B, brought(0, 1)))
    lead = stopped(*both, chosen=chosen, missing=[info(D, store="files of d")])
    assert not lead.table.assigned
    assert lead.timers_set[-1] == SetTimer("plan", patience_ns)
    assert lead.migrations.planned
    lead.pass_ns(1000)
    members = [info(A, store="files of a", returns=True), info(B, store="files of b", returns=True), info(C)]
    missing = [info(D, store="files of d")]
    lead.enter(View(8, "id", members, recovering=True, missing=missing))
    assert lead.timers_set[-1] == SetTimer("plan", patience_ns), "counted from when somebody came"
    lead.pass_ns(patience_ns)
    lead.migrations.on_timer("delay")
    assert not lead.settle().table.assigned
    lead.migrations.on_timer("plan")
    assert lead.settle().table.assigned
