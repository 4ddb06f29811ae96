"""What moves leaves room for requests: only so much of it is under way at a time, and all of it ends."""

from __future__ import annotations

from collections import Counter

import pytest
from tests.core.zones.zone_cluster import Broken, Cluster, Member
from tests.sampled_cases import sampled

from holdfast.core.raft.leader import ProposalRefused
from holdfast.core.raft.reconfiguration import ChangeAnswer
from holdfast.core.zones import leader_duties, work_queue
from holdfast.core.zones.assignments import Assignments
from holdfast.core.zones.descriptors import ZoneSettings
from holdfast.core.zones.leader_duties import LeaderDuties
from holdfast.core.zones.work_queue import ANSWERS_AT_ONCE
from holdfast.core.zones.zone_ports import Part

PARTS = range(20)
CHANGES_AT_ONCE = 4
"""Fewer than a member leads groups here."""
REFUSED = 14
"""So many of them, the first ones, are refused their change."""


@pytest.fixture(autouse=True)
def _few_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leader_duties, "CHANGES_AT_ONCE", CHANGES_AT_ONCE)


def grown(seed: int = 0, bad: float = 0.0, rounds: int = 1500) -> Counter[str]:
    """A zone on three members gets a fourth; the most that was under way of everything."""
    most: Counter[str] = Counter()

    def look() -> None:
        """After each round."""
        waits = Counter(member.name for member, _, _ in cluster.asked)
        most["answers"] = max([most["answers"], *waits.values()])
        changing = max(len(one.changing) for one in cluster.members.values())
        most["changes"] = max(most["changes"], changing)

    cluster = Cluster(seed, "ABCD", bad=bad)
    cluster.begin(ZoneSettings("z", partitions=len(PARTS), replicas=3, scale_up_s=0), "ABC")
    cluster.settled(1500, parts=PARTS)
    judge = cluster.judge
    cluster.judge = lambda: (look(), judge())[1]  # type: ignore[method-assign]
    cluster.come("D")
    cluster.settled(rounds, parts=PARTS)
    for partition in PARTS:
        stable = cluster.keys(partition).stable
        assert stable is not None
        assert stable.same_nodes(cluster.wanted(partition))
    return most


@pytest.mark.rule("zones/A-24")
def test_only_so_much_is_under_way_at_a_time() -> None:
    most = grown()
    assert most["changes"] == CHANGES_AT_ONCE
    assert 0 < most["answers"] <= ANSWERS_AT_ONCE


@pytest.mark.rule("zones/A-24")
@pytest.mark.parametrize("seed", sampled(range(3), 3))
def test_everybody_has_a_turn_whatever_is_lost(seed: int) -> None:
    grown(seed, bad=0.1)


@pytest.mark.rule("zones/A-24")
def test_without_a_limit_more_is_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leader_duties, "CHANGES_AT_ONCE", 1000)
    monkeypatch.setattr(work_queue, "ANSWERS_AT_ONCE", 1000)
    most = grown()
    assert most["changes"] > CHANGES_AT_ONCE
    assert most["answers"] > ANSWERS_AT_ONCE


@pytest.mark.rule("zones/A-24")
def test_without_turns_it_does_not_come_to_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LeaderDuties, "_change_next", lambda self: None)
    with pytest.raises(Broken, match="it does not come to rest"):
        grown(rounds=200)


@pytest.mark.rule("zones/A-24")
def test_a_refused_change_gives_its_place_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """More groups are refused, and by leaders that go on leading, than may change at a time."""
    real = Member.change_peers

    def refused(self: Member, part: Part, term: int, target: Assignments, token: int) -> ChangeAnswer:
        if part[1] < REFUSED and "D" in target.nodes:
            raise ProposalRefused("not now")
        return real(self, part, term, target, token)

    monkeypatch.setattr(Member, "change_peers", refused)
    cluster = Cluster(0, "ABCD")
    cluster.begin(ZoneSettings("z", partitions=len(PARTS), replicas=3, scale_up_s=0), "ABC")
    cluster.settled(1500, parts=PARTS)
    cluster.come("D")
    cluster.go(200)
    assert [part for part in PARTS if part >= REFUSED and cluster.keys(part).pending] == []
    assert any(cluster.keys(part).pending for part in range(REFUSED))


@pytest.mark.rule("zones/A-24")
def test_a_group_that_cannot_change_holds_nobody_up_for_ever() -> None:
    """More of them than may change at a time wait for somebody who hears nothing; they fail, and others have turns."""
    cluster = Cluster(1, "ABCDE")
    cluster.begin(ZoneSettings("z", partitions=len(PARTS), replicas=3, scale_up_s=0), "ABC")
    cluster.settled(1500, parts=PARTS)
    cluster.cut = {"E"}
    cluster.come("DE")
    cluster.go(200)
    done = [part for part in PARTS if not cluster.keys(part).pending]
    assert len(PARTS) > len(done) + CHANGES_AT_ONCE
    assert any("D" in (stable.nodes if (stable := cluster.keys(part).stable) else ()) for part in done)
    cluster.cut = set()
    cluster.settled(1500, parts=PARTS)
