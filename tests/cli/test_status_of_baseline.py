"""`holdfast status` and `holdfast cluster baseline show`: what they say of a baseline."""

from __future__ import annotations

from typing import Any

from tests.statuses import status

from holdfast.cli.baseline import BaselineShown
from holdfast.cli.status import of_baseline
from holdfast.core.placement.affinity import rendezvous
from holdfast.core.placement.dryrun import Outlook
from holdfast.core.placement.layout import Candidate
from holdfast.planning.live_cluster import LiveCluster
from holdfast.planning.walk import outlooks


def member(name: str, *, here: bool = True, away: bool = False) -> dict[str, Any]:
    return {"consistent_id": name, "group": "", "uuid": f"{name}-uuid" if here else "", "away": away}


def told(*members: dict[str, Any], **changed: Any) -> dict[str, Any]:
    plain = {
        "members": list(members),
        "outside": [],
        "adjust_ms": None,
        "adjusts_in_ms": None,
        "changes": 3,
        "history": ["a", "b", "c"],
    }
    return {"baseline": plain | changed}


def notes(seen: dict[str, Any]) -> list[str]:
    return list(of_baseline(status(seen).baseline))


def shown(seen: dict[str, Any]) -> list[Any]:
    return list(BaselineShown(baseline=status(seen).baseline).view())


def test_without_one_there_is_nothing_to_say() -> None:
    for seen in ({}, {"baseline": None}):
        assert notes(seen) == []
        assert shown(seen) == ["no baseline: every member owns data as soon as it joins"]


def test_who_is_here_away_gone_and_outside() -> None:
    seen = told(
        member("m1"), member("m2", here=False, away=True), member("m3", here=False), outside=["m4", "m5"]
    )
    lines = [
        "away: m2; their replicas are kept for them while they are in the baseline",
        "in the baseline, but left: m3; no replicas are kept for them",
        "outside the baseline: m4, m5; they hold no data (holdfast cluster baseline add)",
    ]
    assert notes(seen) == lines
    assert shown(seen) == [
        "auto-adjust: off",
        "changed 3 times, last to c",
        "  m1: here",
        "  m2: away, its places are kept",
        "  m3: not here",
        *lines,
    ]


def test_when_it_is_adjusted_and_because_of_whom() -> None:
    seen = told(
        member("m1"),
        member("m2", here=False, away=True),
        outside=["m4"],
        adjust_ms=300_000,
        adjusts_in_ms=12_300,
    )
    assert shown(seen)[0] == "auto-adjust: 5m after the last join or leave"
    assert shown(seen)[-1] == (
        "the baseline becomes the present members in 12 s because m4 joined, m2 left; a join or leave restarts the wait"
    )
    lite = told(member("m1"), adjust_ms=1000, adjusts_in_ms=0)
    assert "because a member is lite now" in shown(lite)[-1]


def cluster(baseline: dict[str, Any] | None) -> LiveCluster:
    """Three members, of which m3 is outside, and six partitions."""
    members = [
        {
            "uuid": f"{name}-uuid",
            "name": name,
            "group": "",
            "consistent_id": name,
            "lite": False,
            "leaving": False,
            "outside": baseline is not None and name == "m4",
        }
        for name in ("m1", "m2", "m3", "m4")
    ]
    partitions = {"placement": "rendezvous", "lost": "wait", "replicas": 2, "holders": 2}
    seen = {
        "members": members,
        "partitions": partitions,
        "migrations": {"active": 0, "queued": 0},
        "quorum": "majority",
    }
    here = [Candidate(f"{name}-uuid", "", name) for name in ("m1", "m2", "m3")]
    rows = rendezvous(range(6), [(None, None)] * 6, here, 2)
    return LiveCluster(status(seen, baseline=baseline), rows)


def fates(planned: LiveCluster, scenario: str) -> list[Outlook]:
    return [one for _, _, found in outlooks(planned.question([scenario]), planned.strategy) for one in found]


def test_plan_gives_nobody_outside_anything_and_keeps_places() -> None:
    fixed = told(member("m1"), member("m2"), member("m3"), outside=["m4"])["baseline"]
    planned = cluster(fixed)
    assert all(outlook.plan.target == outlook.before for outlook in fates(planned, "now"))
    joined = fates(planned, "join:m9")
    assert all(outlook.plan.target == outlook.before for outlook in joined)
    crashed = fates(planned, "crash:m2")
    assert not any(outlook.plan.steps for outlook in crashed)
    assert any(None in outlook.plan.target for outlook in crashed)
    back = fates(planned, "crash:m2+join:m2")
    for outlook in back:
        assert {*outlook.plan.target} == {"join-1" if one == "m2-uuid" else one for one in outlook.before}
    assert any("present baseline" in line for line in planned.warnings(planned.question(["now"])))
    at_once = told(member("m1"), member("m2"), member("m3"), adjust_ms=0)["baseline"]
    assert any(outlook.plan.steps for outlook in fates(cluster(at_once), "crash:m2"))
