"""The entries of a partition as they were at an update, asked of members: the same whenever they are asked for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.server.memory_cluster import MemoryCluster

pytest.importorskip("pyspark")

from pyspark.sql.types import DoubleType, LongType, StructType

from holdfast.client.blocking import Client
from holdfast.core.model.keys import partition_of
from holdfast.core.model.operations import Op, Request
from holdfast.core.store.partition_copy import PartitionCopy
from holdfast.spark.rows.bad_rows import BadRow
from holdfast.spark.rows.column_schemas import StoredSchema, store_schema
from holdfast.spark.rows.stored import json_data, long_data
from holdfast.spark.source.member_changes import GridHistory, Head
from holdfast.spark.source.micro_batches import HoldfastStreamReader, stream_columns
from holdfast.spark.source.offsets import BadOffset, Place
from holdfast.spark.source.stream_options import StreamOptions
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


def test_the_gaps_of_a_head_end_before_its_place() -> None:
    lineage = ((3, 0), (0, 50), (2, 1029), (0, 1040), (1, 2000))
    assert Head(Place(1, 2009), 0, lineage).gaps == ((50, 1030), (1040, 2001))
    assert Head(Place(2, 1035), 0, lineage).gaps == ((50, 1030),)
    assert Head(Place(3, 40), 0, lineage).gaps == ()


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
    monkeypatch.setattr(client, "table", lambda map_name="": tables.pop() if tables else fresh(map_name))
    assert history.entries(AT, place) == dict.fromkeys(KEYS, b"one")
    assert not tables


def remove(client: Client, key: bytes) -> None:
    client.execute(Request(Op.DELETE, "m", [partition_of(key, 0, PARTITIONS)], key))


def test_the_value_that_an_entry_has_now(client: Client, history: GridHistory) -> None:
    key, other = KEYS[:2]
    client.set("m", key, to_stored("a"))
    client.set("m", other, to_stored("b"))
    assert history.value(AT, key) == to_stored("a")
    assert history.value(("m", PARTITION + 1), key) is None, "it is asked for where the change was"
    client.set("m", key, to_stored("c"))
    assert history.value(AT, key) == to_stored("c")
    remove(client, key)
    assert history.value(AT, key) is None


@pytest.mark.parametrize("repair", ["correct", "remove", "null", "skip", "column raw"])
def test_a_stream_that_failed_goes_on_from_the_same_offset(
    running: MemoryCluster, client: Client, repair: str
) -> None:
    columns = StructType().add("id", LongType()).add("x", DoubleType())
    store_schema(client, "m", StoredSchema.of(columns, ["id"], "json"))

    def stream(bad: str) -> HoldfastStreamReader:
        given = {
            "address": running.addresses(),
            "map": "m",
            "startingPosition": "earliest",
            "timeout": "60",
        }
        options = StreamOptions.parse({**given, "bad": bad})
        return HoldfastStreamReader(options, *stream_columns(options))

    def told(
        reader: HoldfastStreamReader, start: dict[str, Any], end: dict[str, Any]
    ) -> list[dict[str, Any]]:
        shares = reader.partitions(start, end)
        return [row for share in shares for batch in reader.read(share) for row in batch.to_pylist()]

    failing = stream("fail")
    start = failing.initialOffset()
    client.set("m", long_data(1), json_data(b'{"id":1,"x":1.5}'))
    client.set("m", long_data(2), to_stored("oops"))
    end = failing.latestOffset(start, failing.getDefaultReadLimit())
    where = partition_of(long_data(2), 0, PARTITIONS)
    for _ in range(2):
        with pytest.raises(BadRow, match=rf"map 'm', partition {where}, key 2 .*same checkpoint"):
            told(failing, start, end)
    reader = failing
    if repair == "correct":
        client.set("m", long_data(2), json_data(b'{"id":2,"x":2.5}'))
    elif repair == "remove":
        remove(client, long_data(2))
    else:
        failing.stop()
        reader = stream(repair)
    rows = sorted(told(reader, start, end), key=lambda row: row["key"])
    assert [row["key"] for row in rows] == ([1, 2] if repair in ("null", "column raw") else [1])
    assert [row["raw"] for row in rows if "raw" in row] == ([None, "oops"] if repair == "column raw" else [])
    last = reader.latestOffset(end, reader.getDefaultReadLimit())
    after = [
        (row["op"], row["before"] and row["before"]["x"], row["after"]) for row in told(reader, end, last)
    ]
    wanted = {"correct": [("update", None, {"id": 2, "x": 2.5})], "remove": [("remove", None, None)]}
    assert after == wanted.get(repair, [])
    reader.stop()
