"""The entries of a partition as they were at an update, asked of members: the same whenever they are asked for."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.server.memory_cluster import MemoryCluster

pytest.importorskip("pyspark")

from holdfast.client.blocking import Client
from holdfast.core.model.keys import partition_of
from holdfast.core.store.partition import PartitionCopy
from holdfast.spark.source.member_changes import GridHistory
from holdfast.spark.source.offsets import BadOffset, Place
from holdfast.wire.values import to_stored

PARTITIONS = 5
PARTITION = 2
AT = ("m", PARTITION)
KEYS = [key for key in map(to_stored, range(400)) if partition_of(key, 0, PARTITIONS) == PARTITION][:6]
LATER_NS = 3600 * 10**9


@pytest.fixture
def running() -> Iterator[MemoryCluster]:
    with MemoryCluster(3, PARTITIONS, changes_bytes=1 << 20) as started:
        yield started


@pytest.fixture
def client(running: MemoryCluster) -> Iterator[Client]:
    with Client(running.addresses(), timeout_s=2) as found:
        yield found


@pytest.fixture
def history(client: Client) -> GridHistory:
    return GridHistory(client, 2.0)


def later(running: MemoryCluster) -> None:
    """An hour passes on all members."""

    def pass_by() -> None:
        for member in running.members:
            member.now += LATER_NS

    running.do(pass_by)


def test_entries_whose_time_ends_meanwhile_are_in_a_batch_that_is_read_again(
    running: MemoryCluster, client: Client, history: GridHistory
) -> None:
    client.put_columns("m", KEYS[:3], [b"stays"] * 3)
    client.put_columns("m", KEYS[3:], [b"ends"] * 3, ttl_ms=60_000)
    place = history.heads("m")[PARTITION].place
    first = history.entries(AT, place)
    assert len(first) == 6
    later(running)
    assert history.heads("m")[PARTITION].place == place
    assert history.entries(AT, place) == first
    client.put_columns("m", KEYS[:1], [b"new"])
    assert history.entries(AT, place) == first


def test_entries_at_an_update_of_another_term_are_refused(
    running: MemoryCluster, client: Client, history: GridHistory
) -> None:
    client.put_columns("m", KEYS[:2], [b"one"] * 2)
    running.do(lambda: running.move(PARTITION))
    client.put_columns("m", KEYS[:4], [b"two"] * 4)
    last = history.heads("m")[PARTITION].place
    assert (last.term, last.counter) == (2, 6)
    assert len(history.entries(AT, last)) == 4
    assert history.entries(AT, Place(1, 2)) == dict.fromkeys(KEYS[:2], b"one")
    for wrong in (Place(1, 6), Place(1, 4), Place(3, 6)):
        with pytest.raises(BadOffset, match="that update is of term 2 there"):
            history.entries(AT, wrong)
    with pytest.raises(BadOffset, match="that update is of term 1 there"):
        history.entries(AT, Place(2, 2))


def test_entries_are_read_from_the_primary_alone(
    running: MemoryCluster, client: Client, history: GridHistory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A copy that is not served may lack anything: who still takes it for the owner's must look again."""
    client.put_columns("m", KEYS, [b"one"] * 6)
    place = history.heads("m")[PARTITION].place
    tables = [client.table()]
    old = running.owner(PARTITION)
    torn = PartitionCopy(PARTITION, 0)
    torn.open("m").updates.update(0, place.counter)

    def move() -> None:
        running.move(PARTITION)
        old.held[PARTITION] = torn

    running.do(move)
    fresh = client.table
    monkeypatch.setattr(client, "table", lambda: tables.pop() if tables else fresh())
    assert history.entries(AT, place) == dict.fromkeys(KEYS, b"one")
    assert not tables
