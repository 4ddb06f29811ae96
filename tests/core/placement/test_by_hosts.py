"""Copies share a host only while there are fewer hosts than copies."""

from __future__ import annotations

import pytest

from holdfast.core.placement.layout import Candidate, arrange, by_hosts

PARTITIONS = 31


def placed(hosts: dict[str, str], replicas: int, away: int = 0) -> list[list[str]]:
    """The hosts of each partition's copies, when nobody held anything before."""
    candidates = [Candidate(uuid, uuid) for uuid in hosts]
    rows = arrange([(None,) * replicas] * PARTITIONS, by_hosts(candidates, hosts, replicas, away), replicas)
    return [[hosts[owner] for owner in row if owner is not None] for row in rows]


@pytest.mark.parametrize(
    ("hosts", "replicas"),
    [
        ({"a": "1", "b": "1", "c": "2", "d": "2"}, 2),
        ({"a": "1", "b": "1", "c": "1", "d": "2"}, 2),
        ({"a": "1", "b": "1", "c": "2", "d": "2", "e": "3"}, 3),
    ],
)
def test_with_hosts_enough_no_two_copies_share_one(hosts: dict[str, str], replicas: int) -> None:
    assert all(len(row) == len(set(row)) == replicas for row in placed(hosts, replicas))


@pytest.mark.parametrize(
    ("hosts", "replicas"),
    [({"a": "1", "b": "1", "c": "1"}, 2), ({"a": "1", "b": "1", "c": "2", "d": "2"}, 3)],
)
def test_with_fewer_hosts_there_are_all_copies(hosts: dict[str, str], replicas: int) -> None:
    assert all(len(row) == replicas for row in placed(hosts, replicas))


def test_a_place_that_is_kept_for_somebody_counts_as_another_host() -> None:
    hosts = {"a": "1", "b": "1"}
    assert all(len(row) == 2 for row in placed(hosts, 2))
    assert all(len(row) == 1 for row in placed(hosts, 2, away=1))


def test_who_has_chosen_a_group_keeps_it() -> None:
    candidates = [Candidate("a", "rack"), Candidate("b", "b"), Candidate("c"), Candidate("join-1")]
    grouped = by_hosts(candidates, {"a": "1", "b": "1", "c": "2"}, 2)
    assert [one.group for one in grouped] == ["rack", "1", "2", "join-1"]
