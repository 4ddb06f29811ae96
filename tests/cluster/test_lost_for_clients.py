"""Lost partitions of real members over sockets, as the official Python client, our own one and the operator meet them.

All owners of some partitions are killed; others read and write; all are killed and started; the operator resets.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import hazelcast
import pytest
from hazelcast.errors import IllegalStateError
from tests.cluster.keepers import Keepers, until
from tests.cluster.test_persistence import connected

from holdfast.errors import PartitionLost

pytestmark = [
    pytest.mark.interop,
    # The client leaves its sockets to the garbage collector.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

ENTRIES = {number: f"v{number}" for number in range(200)}
POLICIES = {"safe": "read-write-safe", "strict": "read-only-safe", "careless": "ignore"}
SETTINGS: dict[str, object] = {
    f"maps__{name}__{key}": value
    for name, policy in POLICIES.items()
    for key, value in (("backups", 0), ("journal", "sync"), ("loss_policy", policy))
}


def lost_by(cluster: Keepers) -> dict[str, list[int]]:
    found: dict[str, list[int]] = cluster.status().partitions.lost_by_map
    return found


def everybody_says(cluster: Keepers, lost: dict[str, list[int]]) -> None:
    until(lambda: all(one.partitions.lost_by_map == lost for one in cluster.statuses().values()))


def order(cluster: Keepers, *words: str) -> Any:
    return cluster.holdfast("cluster", *words, "-a", cluster.alive[0].client_address)


def refused(client: hazelcast.HazelcastClient, name: str, write: bool) -> set[int]:
    """Keys that the client cannot read, or write; each is refused at once, by an error that says why."""
    entries = client.get_map(name).blocking()
    found: dict[int, str] = {}
    slowest_s = 0.0
    for key, value in ENTRIES.items():
        before_s = time.monotonic()
        try:
            if write:
                entries.set(key, value)
            else:
                assert entries.get(key) == value
        except IllegalStateError as error:
            found[key] = str(error)
        slowest_s = max(slowest_s, time.monotonic() - before_s)
    assert all(f"of map '{name}' are lost" in why and "cluster reset-lost" in why for why in found.values())
    assert slowest_s < 60, "it was tried again and again"
    return set(found)


def test_g2_and_g3_over_sockets(tmp_path: Path) -> None:
    """G2: all owners of some partitions left: reads and writes of these fail with an error of their own, also when the
    owners are back, until the reset; then their data is there. G3: every write to a READ_ONLY_SAFE map fails.
    """
    with Keepers(tmp_path, 3, maps__default__backups=0, **SETTINGS) as cluster:
        with connected(cluster) as client:
            for name in POLICIES:
                client.get_map(name).blocking().put_all(ENTRIES)
        assert lost_by(cluster) == {}
        told = order(cluster, "reset-lost", "--yes")
        assert told.returncode == 1
        assert "no such partition is lost" in told.stderr

        cluster.kill(cluster.running("m2"))
        until(lambda: lost_by(cluster))
        lost = lost_by(cluster)
        assert lost.keys() == {"safe", "strict"}
        assert 0 < len(lost["safe"]) < 31
        everybody_says(cluster, lost)
        with connected(cluster) as client:
            before_s = time.monotonic()
            opened = [client.get_map(f"opened since {number}") for number in range(100)]
            assert len(opened) == 100
            assert time.monotonic() - before_s < 60, (
                "also those whose names would be noted in a lost partition"
            )
            gone = refused(client, "safe", write=False)
            assert 0 < len(gone) < len(ENTRIES)
            assert refused(client, "safe", write=True) == gone
            assert refused(client, "strict", write=False) == gone
            assert refused(client, "strict", write=True) == ENTRIES.keys()
            safe = client.get_map("safe").blocking()
            for whole in (safe.size, safe.key_set, safe.clear, safe.values):
                with pytest.raises(IllegalStateError, match="are lost"):
                    whole()
            with pytest.raises(IllegalStateError, match="are lost"):
                safe.get_all(list(ENTRIES))
        with cluster.client() as own, pytest.raises(PartitionLost, match="holdfast cluster reset-lost"):
            own.size("safe")
        shown = cluster.holdfast("status", cluster.alive[0].client_address).stdout
        assert f"map safe: {len(lost['safe'])} partitions are lost" in " ".join(shown.split())
        told = order(cluster, "reset-lost", "--yes", "--map", "safe")
        assert told.returncode == 1
        assert "start the members that held them" in told.stderr, "nothing is emptied by that"

        # Everybody ends, and comes back: what was lost still is.
        cluster.kill_all()
        cluster.boot(*cluster.names)
        cluster.wait_settled()
        everybody_says(cluster, lost)
        with connected(cluster) as client:
            assert refused(client, "safe", write=False) == gone
            assert refused(client, "careless", write=False) == set()
            safe = client.get_map("safe").blocking()

            some = lost["safe"][0]
            told = order(cluster, "reset-lost", "--yes", "--map", "safe", "--partitions", str(some))
            assert told.returncode == 0, told.stderr
            everybody_says(
                cluster,
                {**lost, "safe": lost["safe"][1:]} if lost["safe"][1:] else {"strict": lost["strict"]},
            )
            told = order(cluster, "reset-lost", "--yes")
            assert told.returncode == 0, told.stderr
            everybody_says(cluster, {})
            assert refused(client, "safe", write=True) == set(), "the client that was refused goes on"
            for name in POLICIES:
                assert dict(client.get_map(name).blocking().entry_set()) == ENTRIES


def test_what_is_gone_for_good_is_accepted_and_then_reset(tmp_path: Path) -> None:
    with Keepers(tmp_path, 3, maps__default__backups=0, **SETTINGS) as cluster:
        with connected(cluster) as client:
            client.get_map("safe").blocking().put_all(ENTRIES)
        cluster.kill(cluster.running("m2"))
        until(lambda: lost_by(cluster))
        lost = lost_by(cluster)
        told = order(cluster, "accept-loss", "--yes", "--timeout", "0")
        assert told.returncode == 3, told.stderr
        assert "The command was accepted" in told.stderr
        until(lambda: order(cluster, "accept-loss", "--yes").returncode in (0, 1))  # 1: it is so already.
        everybody_says(cluster, lost)
        with connected(cluster) as client:
            gone = refused(client, "safe", write=False)
            assert gone
            told = order(cluster, "reset-lost", "--yes")
            assert told.returncode == 0, told.stderr
            everybody_says(cluster, {})
            rest = {key: value for key, value in ENTRIES.items() if key not in gone}
            assert dict(client.get_map("safe").blocking().entry_set()) == rest
