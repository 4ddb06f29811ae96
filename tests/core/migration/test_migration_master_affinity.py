"""The master with `partitions.placement = "rendezvous"`: rows that are a function of the members (migration/M-7)."""

from __future__ import annotations

import pytest
from tests.core.migration.lead import E, Lead, settings
from tests.core.seats import A, B, C, D, info

from holdfast.core.messages import Holdings, RetainedCopy
from holdfast.core.model.ids import MemberId
from holdfast.core.model.migration import ReplicaList
from holdfast.core.model.partition_table import Assignment
from holdfast.core.model.views import Intent, MemberInfo, View
from holdfast.core.placement.affinity import first_ranked
from holdfast.core.placement.layout import Candidate

COUNT = 12


def rows(*members: MemberInfo, replicas: int = 2) -> list[ReplicaList]:
    """What the function says."""
    here = [Candidate(one.uuid, one.group, one.consistent_id) for one in members]
    return [first_ranked(partition, here, replicas) for partition in range(COUNT)]


def lead_with(*assigned: Assignment) -> Lead:
    chosen = settings(COUNT, placement="rendezvous", parallel_migrations=100)
    return Lead(*assigned, chosen=chosen, arranged=True)


def held(lead: Lead) -> list[ReplicaList]:
    return [row.replicas for row in lead.table.rows]


def carry_out(lead: Lead) -> None:
    """Every migration succeeds."""
    for _ in range(10):
        if not lead.migrations.running:
            return
        for partition in sorted(lead.migrations.running):
            lead.ready(partition)
        lead.settle()


@pytest.mark.rule("migration/M-7")
def test_the_first_assignment_is_the_function_over_those_who_may_hold_data() -> None:
    lead = lead_with()
    members = [info(A, group="x"), info(B, group="x"), info(C), info(D, lite=True)]
    lead.enter(View(1, "id", members))
    assert held(lead) == rows(*members[:3])
    assert all(not {A, B} <= set(row) for row in held(lead)), "two of one group"


@pytest.mark.rule("migration/M-7")
def test_who_joins_crashes_or_leaves_has_the_table_follow_the_function() -> None:
    lead = lead_with()
    lead.enter(View(1, "id", [info(A), info(B), info(C)]))
    lead.enter(View(2, "id", [info(A), info(B), info(C), info(D)]))
    assert lead.migrations.running
    carry_out(lead)
    assert held(lead) == rows(info(A), info(B), info(C), info(D))
    lead.enter(View(3, "id", [info(A), info(C), info(D)]))
    carry_out(lead)
    assert held(lead) == rows(info(A), info(C), info(D))
    lead.wish(C, Intent.LEAVE)
    lead.migrations.look_at_departing()
    lead.settle()
    carry_out(lead)
    assert held(lead) == rows(info(A), info(D))
    assert lead.migrations.planned
    assert not lead.migrations.queued


@pytest.mark.rule("migration/M-7")
def test_what_somebody_has_brought_back_decides_nothing() -> None:
    members = [info(A), info(B), info(E, store="files", returns=True)]
    lead = lead_with(*[Assignment(5, row) for row in rows(info(A), info(B))])  # type: ignore[arg-type]
    lead.enter(View(1, "id", members))
    kept = [RetainedCopy(partition, 0, [("m", 4, 5)], True) for partition in range(COUNT)]
    lead.hear(E, Holdings(1, None, {}, [], kept))
    carry_out(lead)
    wanted = rows(*members)
    assert held(lead) == wanted
    assert any(E not in row for row in wanted), "though E has brought all of it"


@pytest.mark.rule("migration/M-7")
def test_who_comes_back_under_its_name_gets_what_it_had() -> None:
    before, after = MemberId("d1"), MemberId("d2")

    def life(uuid: MemberId, name: str, store: str = "") -> MemberInfo:
        return MemberInfo(uuid, 1, "host", 1, "host", 0, name, store=store)

    for first, second in (
        (life(before, "delta"), life(after, "delta")),
        (life(before, "host:0", "files"), life(after, "host:0", "files")),
    ):
        then = rows(info(A), info(B), first)
        now = rows(info(A), info(B), second)
        assert [tuple(after if one == before else one for one in row) for row in then] == now
    assert rows(info(A), life(before, "host:0")) != [
        tuple(before if one == after else one for one in row) for row in rows(info(A), life(after, "host:0"))
    ], "without a name or files it is another one"


def test_partitions_that_wait_take_no_part_and_the_others_keep_their_numbers() -> None:
    """The wanted row of a partition is that of its number, also when some before it wait."""
    here = [info(A), info(B), info(C)]
    given = [Assignment(5, row) for row in rows(*here)]  # type: ignore[arg-type]
    given[0] = Assignment(5, (D, None))
    lead = lead_with(*given)
    lead.enter(View(1, "id", [*here, info(D)]))
    lead.enter(View(2, "id", here))
    assert lead.migrations.lost == {0}
    carry_out(lead)
    assert held(lead)[1:] == rows(*here)[1:]


def test_replicas_in_each_others_place_stay_where_they_are() -> None:
    """What the planner cannot do, for nobody else could hold a copy meanwhile, is not tried again and again."""
    wanted = rows(info(A), info(B))
    lead = lead_with(*[Assignment(5, row[::-1]) for row in wanted])  # type: ignore[arg-type]
    lead.enter(View(1, "id", [info(A), info(B)]))
    assert held(lead) == [row[::-1] for row in wanted]
    assert lead.migrations.planned
    assert not lead.migrations.running
