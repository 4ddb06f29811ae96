"""Places of members that are away: nothing is copied to others, no row loses a copy, and it comes to rest."""

from __future__ import annotations

import random

import pytest
from tests.sampled_cases import sampled

from holdfast.config.schema import Placement
from holdfast.core.model.baseline import BaselineMember
from holdfast.core.model.migration import ReplicaList
from holdfast.core.model.partition_table import survivors
from holdfast.core.placement.affinity import layout_of
from holdfast.core.placement.kept_places import keeping_places, own_places, places_of
from holdfast.core.placement.layout import Candidate
from holdfast.core.placement.planner import plan

PARTITIONS = 23
LAYOUTS: list[Placement] = ["even", "rendezvous"]


def members(count: int, first: int = 0) -> list[Candidate]:
    return [Candidate(f"u{number}", "", f"m{number}") for number in range(first, first + count)]


def away(*gone: Candidate) -> list[Candidate]:
    return places_of([BaselineMember(one.consistent_id) for one in gone])


class Cluster:
    """Rows, and who is here or away."""

    def __init__(self, placement: Placement, here: list[Candidate], replicas: int) -> None:
        self.layout = layout_of(placement)(range(PARTITIONS))
        self.placement = placement
        self.here, self.replicas = here, replicas
        self.away: list[Candidate] = []
        self.rows = self.layout([(None,) * replicas] * PARTITIONS, here, replicas)

    def crash(self, one: Candidate) -> None:
        self.here = [each for each in self.here if each is not one]
        self.away.append(one)
        present = {each.uuid for each in self.here}
        self.rows = [survivors(row, present)[0] for row in self.rows]

    def wanted(self) -> list[ReplicaList]:
        places = away(*self.away)
        targets = self.layout(self.rows, [*self.here, *places], self.replicas)
        return keeping_places(range(PARTITIONS), self.rows, targets, self.here, places, self.placement)

    def rest(self) -> int:
        """Carry out plans until there is nothing to do; answers how many it took."""
        for number in range(20):
            wanted = self.wanted()
            after = [
                plan(p, row, to).target for p, (row, to) in enumerate(zip(self.rows, wanted, strict=True))
            ]
            if after == self.rows:
                return number
            self.rows = after
        raise AssertionError("it does not come to rest")


def copies(rows: list[ReplicaList]) -> list[int]:
    return [sum(one is not None for one in row) for row in rows]


def held(rows: list[ReplicaList], one: Candidate) -> set[int]:
    return {partition for partition, row in enumerate(rows) if one.uuid in row}


def test_without_somebody_away_the_targets_are_the_layout() -> None:
    rows: list[ReplicaList] = [("u0", "u1")]
    assert keeping_places([0], rows, [("u1", "u2")], members(3), [], "even") == [("u1", "u2")]


@pytest.mark.rule("placement/K-1")
@pytest.mark.parametrize("placement", LAYOUTS)
@pytest.mark.parametrize(("count", "replicas"), [(3, 2), (4, 2), (5, 3), (7, 4)])
def test_a_crash_moves_nothing_and_who_returns_gets_its_own(
    placement: Placement, count: int, replicas: int
) -> None:
    cluster = Cluster(placement, members(count), replicas)
    gone = cluster.here[1]
    its = held(cluster.rows, gone)
    cluster.crash(gone)
    before = cluster.rows
    assert cluster.rest() == 0
    assert {partition for partition, row in enumerate(before) if None in row} == its
    cluster.here.append(gone)
    cluster.away.clear()
    cluster.rest()
    assert copies(cluster.rows) == [replicas] * PARTITIONS
    if placement == "rendezvous":
        assert held(cluster.rows, gone) == its


@pytest.mark.rule("placement/K-2")
@pytest.mark.parametrize("placement", LAYOUTS)
def test_who_leaves_while_another_is_away_leaves_no_row_with_fewer_copies(placement: Placement) -> None:
    cluster = Cluster(placement, members(5), 2)
    cluster.crash(cluster.here[0])
    before, leaver = copies(cluster.rows), cluster.here[0]
    cluster.here = cluster.here[1:]
    cluster.rest()
    assert not held(cluster.rows, leaver)
    assert all(now >= then for now, then in zip(copies(cluster.rows), before, strict=True))


@pytest.mark.rule("placement/K-2")
def test_the_only_copy_goes_to_somebody_who_is_here() -> None:
    here, gone = members(2, 1), members(1)
    rows: list[ReplicaList] = [("leaver", None)]
    targets: list[ReplicaList] = [(away(*gone)[0].uuid, None)]
    ((owner, rest),) = keeping_places([0], rows, targets, here, away(*gone), "even")
    assert owner in {one.uuid for one in here}
    assert rest is None


@pytest.mark.rule("placement/K-1")
def test_who_has_brought_back_a_copy_gets_its_own_places_and_no_others() -> None:
    here = [*members(2), Candidate("u2", "g"), Candidate("u3", "g")]
    rows: list[ReplicaList] = [("u0", None), ("u0", "u1"), ("u1", None), ("u3", None), ("u2", None)]
    found = own_places(range(5), rows, here, {"u2": {0, 1, 3, 4}})
    assert found == [("u0", "u2"), ("u0", "u1"), ("u1", None), ("u3", None), ("u2", None)]


@pytest.mark.rule("placement/K-1")
def test_who_was_added_gets_no_more_than_its_share_of_what_is_kept() -> None:
    here, gone = members(3), away(*members(1, 9))
    rows: list[ReplicaList] = [("u0", None)] * 4 + [("u1", None)] * 4
    targets: list[ReplicaList] = [(row[0], "u2") for row in rows]
    wanted = keeping_places(range(8), rows, targets, here, gone, "even")
    assert [row[1] for row in wanted].count("u2") == 4 == 8 * 2 / 4


def test_two_of_one_group_never_hold_what_is_given_up() -> None:
    here = [Candidate("u1", "g"), Candidate("u2", "g"), Candidate("u3", "h")]
    rows: list[ReplicaList] = [("u1", "leaver", None)]
    targets: list[ReplicaList] = [("u1", "away: x", None)]
    places = places_of([BaselineMember("x", "i")])
    assert keeping_places([0], rows, targets, here, places, "even") == [("u1", "u3", None)]
    assert keeping_places([0], rows, targets, here[:2], places, "even") == [("u1", None, None)]


@pytest.mark.parametrize("placement", LAYOUTS)
@pytest.mark.parametrize("seed", sampled(range(40), 2))
def test_whatever_happens_it_comes_to_rest_with_no_fewer_copies(placement: Placement, seed: int) -> None:
    draw = random.Random(seed)
    replicas = draw.randint(1, 3)
    cluster = Cluster(placement, members(draw.randint(replicas + 2, 8)), replicas)
    fresh = 100
    for _ in range(12):
        event = draw.choice(["crash", "return", "add", "leave", "remove"])
        if event == "crash" and len(cluster.away) < replicas - 1:
            cluster.crash(draw.choice(cluster.here))
        elif event == "return" and cluster.away:
            cluster.here.append(cluster.away.pop(draw.randrange(len(cluster.away))))
        elif event == "add":
            fresh += 1
            cluster.here += members(1, fresh)
        elif event == "leave" and len(cluster.here) > replicas + 1:
            cluster.here.remove(draw.choice(cluster.here))
        elif event == "remove" and cluster.away:
            cluster.away.pop()
        before = copies(cluster.rows)
        cluster.rest()
        able = {one.uuid for one in cluster.here}
        assert all(one is None or one in able for row in cluster.rows for one in row)
        assert all(
            now >= min(then, len(able)) for now, then in zip(copies(cluster.rows), before, strict=True)
        )
        assert all(row[0] is not None for row in cluster.rows)
        if not cluster.away:
            assert copies(cluster.rows) == [min(replicas, len(able))] * PARTITIONS
