"""Which replicas of zones `holdfast repair` rebuilds."""

from __future__ import annotations

import pytest

from holdfast.core.store.replica_comparison import Finding, Verdict
from holdfast.replica_comparison.comparison_report import Report
from holdfast.replica_comparison.zone_repair import plan_rebuilds


def finding(member: str, verdict: Verdict, partition: int = 1, *, leads: bool = False) -> Finding:
    return Finding(
        partition=partition, map="m", member=member, verdict=verdict, reference="A", zone="z", leads=leads
    )


def plans(*findings: Finding, tie: bool = False) -> list[tuple[str, bool, bool]]:
    """Member, whether it leads, and whether it is left alone."""
    report = Report(findings=list(findings))
    return [(one.member, one.leads, bool(one.left)) for one in plan_rebuilds(report, tie=tie)]


@pytest.mark.rule("replica_comparison/R-5")
def test_only_who_differs_from_a_majority_is_rebuilt() -> None:
    assert plans(finding("B", "equal"), finding("C", "differs", leads=True)) == [("C", True, False)]
    assert plans(finding("B", "differs"), finding("C", "differs")) == [("B", False, True), ("C", False, True)]
    assert plans(finding("B", "differs")) == [("B", False, True)], "of two replicas neither is a majority"
    assert plans(finding("B", "differs"), tie=True) == [("B", False, False)]
    assert plans(finding("B", "equal"), finding("C", "busy")) == []


@pytest.mark.rule("replica_comparison/R-5")
def test_nothing_is_rebuilt_while_a_replica_cannot_be_compared() -> None:
    found = [finding("B", "differs"), finding("C", "equal"), finding("D", "unreachable")]
    assert plans(*found) == plans(*found, tie=True) == [("B", False, True)]
    others = [finding("B", "differs", 2), finding("C", "equal", 2)]
    assert plans(*found, *others) == [("B", False, True), ("B", False, False)]
