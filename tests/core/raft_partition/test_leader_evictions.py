"""Entries of a map in a zone that go because it exceeds its limit: the leader chooses them, for all replicas."""

from __future__ import annotations

import pytest
from tests.core.raft_partition.test_consensus_replication import SETTINGS, Maps, request

from holdfast.config import MapSettings
from holdfast.core.model.decisions import LockChanges
from holdfast.core.model.ids import MemberId
from holdfast.core.model.operations import EventKind, Op, Status
from holdfast.core.model.transactions import KeyLock, lock_key
from holdfast.core.raft_partition.leader_evictions import MOST


@pytest.fixture(autouse=True)
def limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SETTINGS.maps, "m", MapSettings(eviction="lru", max_size=5))
    monkeypatch.setitem(SETTINGS.maps, "any", MapSettings(eviction="random", max_size=5))


def led() -> tuple[Maps, int]:
    maps = Maps()
    return maps, maps.leader


def put(maps: Maps, at: int, *keys: str, name: str = "m") -> None:
    told = maps.ask(at, *(request(Op.SET, key, "v", name) for key in keys))
    maps.cluster.go(6)
    assert [one.status for one in told] == [Status.OK] * len(keys)
    evict(maps, at)


def evict(maps: Maps, at: int) -> None:
    """Send the proposals of the leader."""
    maps.partitions[at].flush()
    maps.cluster[at + 1].end_step()
    maps.cluster.go(6)


def keys(maps: Maps, name: str = "m") -> list[set[str]]:
    found = (one.state.copies[3].maps[name].state.entries for one in maps.partitions)
    return [{key.decode() for key in entries} for entries in found]


@pytest.mark.rule("raft_partition/E-1")
def test_all_replicas_remove_what_the_leader_has_chosen() -> None:
    maps, at = led()
    for key in "abcde":
        put(maps, at, key)
    assert keys(maps) == [set("abcde")] * 3
    put(maps, at, "f")
    assert keys(maps) == [set("bcdef")] * 3, "the one that was written longest ago"
    put(maps, at, *"ghijklmnop", name="any")
    assert [len(each) for each in keys(maps, "any")] == [5] * 3
    assert keys(maps, "any")[0] == keys(maps, "any")[1] == keys(maps, "any")[2]
    assert (EventKind.EVICTED, b"a", None) in maps.sinks[at].heard
    zone = maps.partitions[at]._zone
    assert zone.removed.evicted.by_map == {"m": 1, "any": 5}
    others = [one._zone.removed.evicted.by_map for one in maps.partitions if one is not maps.partitions[at]]
    assert others == [{}, {}], "only the leader counts"


@pytest.mark.rule("raft_partition/E-1")
def test_one_proposal_has_a_bounded_number_and_sweeps_continue() -> None:
    maps, at = led()
    put(maps, at, *map(str, range(2 * MOST + 30)), name="plain")
    SETTINGS.maps["plain"] = MapSettings(eviction="random", max_size=20)
    try:
        maps.partitions[at]._zone.shares.renew()
        sizes = []
        for _ in range(8):
            maps.partitions[at].sweep()
            evict(maps, at)
            sizes.append(len(keys(maps, "plain")[0]))
        assert sizes[0] == MOST + 30
        assert sizes[-1] == 20
    finally:
        del SETTINGS.maps["plain"]


@pytest.mark.rule("raft_partition/E-1")
def test_entries_that_a_transaction_has_locked_stay() -> None:
    maps, at = led()
    for key in "abcde":
        put(maps, at, key)
    lock = KeyLock(b"t" * 16, MemberId("me"))
    maps.partitions[at].locks.of(3).change(LockChanges([(lock_key("m", b"a"), lock)]))
    put(maps, at, "f")
    assert keys(maps) == [set("acdef")] * 3
