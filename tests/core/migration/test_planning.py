"""Which target the master plans for: by hosts, by rendezvous or evenly, and with places of absent members kept."""

from __future__ import annotations

import pytest
from tests.core.migration.lead import Lead, settings
from tests.core.seats import A, B, C, D, info

from holdfast.core.messages import Holdings, RetainedCopy
from holdfast.core.model.baseline import Baseline, BaselineMember
from holdfast.core.model.ids import MemberId
from holdfast.core.model.migration import ReplicaList
from holdfast.core.model.partition_table import Assignment
from holdfast.core.model.views import MemberInfo, View
from holdfast.core.placement.layout import Candidate

COUNT = 12
PAIRS = [(A, B), (B, C), (C, A), (B, A), (C, B), (A, C)]
"""Three members with even loads."""


def on_host(member: MemberId, host: str) -> MemberInfo:
    return MemberInfo(member, 1, host, 1, host, 0, member)


def baseline(*away: MemberId) -> Baseline:
    members = tuple(BaselineMember(f"id-{one}", away=one in away) for one in (A, B, C, D))
    return Baseline((), history=("h",)).changed(members, -1, "test")


def named(member: MemberId, **more: object) -> MemberInfo:
    """A member with files, known by its name in the baseline."""
    return MemberInfo(member, 1, "host", 1, "host", 0, f"id-{member}", store=f"files of {member}", **more)  # type: ignore[arg-type]


def rows(lead: Lead) -> list[ReplicaList]:
    return [row.replicas for row in lead.table.rows]


def carry_out(lead: Lead) -> None:
    """Every migration succeeds."""
    for _ in range(10):
        for partition in sorted(lead.migrations.running):
            lead.ready(partition)
        lead.settle()


# -- hosts as groups


@pytest.mark.parametrize("group_by", ["member", "host-soft"])
def test_members_of_one_host_are_one_group_if_that_is_wanted(group_by: str) -> None:
    lead = Lead(chosen=settings(group_by=group_by))
    lead.wanted = [(A, C)]
    lead.enter(View(1, "id", [on_host(A, "one"), on_host(B, "one"), on_host(C, "two")]))
    hosts = group_by == "host-soft"
    groups = ["one", "one", "two"] if hosts else [A, B, C]
    assert lead.asked[0] == [
        Candidate(member, group, member) for member, group in zip((A, B, C), groups, strict=True)
    ]


@pytest.mark.parametrize("away", [(), (D,)])
def test_an_absent_member_counts_as_another_host(away: tuple[MemberId, ...]) -> None:
    """Two replicas need two hosts: with one host alone its members are groups of their own."""
    lead = Lead(chosen=settings(group_by="host-soft"))
    lead.wanted = [(A, None)]
    members = [MemberInfo(one, 1, "one", 1, "one", 0, f"id-{one}") for one in (A, B)]
    lead.enter(View(1, "id", members, baseline=baseline(*away)))
    assert [one.group for one in lead.asked[0]] == (["one", "one"] if away else [A, B])


# -- the number of replicas


def test_a_partition_without_a_copy_is_not_widened() -> None:
    """It keeps its assignment until its copies return."""
    lead = Lead(Assignment(5, (A,)), Assignment(5, (D,)))
    lead.enter(View(1, "id", [info(A), info(B)]))
    assert lead.migrations.lost == {1}
    assert lead.table.rows == [Assignment(6, (A, None)), Assignment(5, (D,))]


# -- placement


@pytest.mark.parametrize("placement", ["even", "rendezvous"])
def test_even_loads_stay_unless_the_placement_is_a_function_of_the_members(placement: str) -> None:
    given = PAIRS * 2
    lead = Lead(
        *[Assignment(5, row) for row in given], chosen=settings(COUNT, placement=placement), arranged=True
    )
    lead.enter(View(1, "id", [info(A), info(B), info(C)]))
    assert bool(lead.migrations.running) is (placement == "rendezvous")


def lead_with_an_absent_member(placement: str = "even") -> Lead:
    """C was killed: it is in the baseline and away."""
    chosen = settings(COUNT, placement=placement, parallel_migrations=100)
    lead = Lead(*[Assignment(5, row) for row in PAIRS * 2], chosen=chosen, arranged=True)
    lead.enter(View(1, "id", [named(A), named(B), named(C)], baseline=baseline(D)))
    lead.enter(View(2, "id", [named(A), named(B)], baseline=baseline(C, D)))
    carry_out(lead)
    return lead


@pytest.mark.rule("placement/K-1")
@pytest.mark.parametrize("placement", ["even", "rendezvous"])
def test_nothing_is_copied_elsewhere_while_a_member_of_the_baseline_is_away(placement: str) -> None:
    lead = lead_with_an_absent_member(placement)
    if placement == "even":
        assert [set(row) - {None} for row in rows(lead)] == [set(row) - {C} for row in PAIRS * 2]
    assert any(None in row for row in rows(lead))
    assert lead.migrations.planned


@pytest.mark.rule("placement/K-1")
def test_a_member_that_returns_with_copies_gets_its_own_places() -> None:
    """D is still away, so no other partition is a better one for C."""
    lead = lead_with_an_absent_member()
    its = [partition for partition, row in enumerate(PAIRS * 2) if C in row]
    back = named(C, returns=True)
    lead.install(View(3, "id", [named(A), named(B), back], baseline=baseline(D)))
    kept = [RetainedCopy(partition, 0, [("m", 4, 5)], True) for partition in its]
    lead.hear(C, Holdings(3, None, {}, [], kept))
    lead.settle()
    carry_out(lead)
    assert [partition for partition, row in enumerate(rows(lead)) if C in row] == its
    assert [set(row) for row in rows(lead)] == [set(row) for row in PAIRS * 2]
