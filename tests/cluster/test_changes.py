"""A change stream of real member processes: read on while members are killed, come, and all start again."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from tests.cluster.keepers import Keepers

from holdfast.client.blocking import Client
from holdfast.client.change_reader import heads, read_changes
from holdfast.core.model.operations import Op, Request
from holdfast.wire import own
from holdfast.wire.values import to_stored

MAP = "numbers"
KEYS = [to_stored(number) for number in range(300)]


class Reader:
    """Where a reader is, and what everything that it was told comes to."""

    def __init__(self, partitions: int) -> None:
        self.at = dict.fromkeys(range(partitions), (0, 0))
        self.content: dict[bytes, bytes] = {}
        self.seen: dict[tuple[int, int, int], tuple[int, bytes, bytes, bytes]] = {}

    def read(self, client: Client) -> None:
        for partition, head in heads(client, MAP, self.at).items():
            after, term = self.at[partition]
            assert head.follows(after, term)
            for answer in read_changes(
                client, MAP, partition, after, term, head.counter, upto_term=head.term, bytes_max=2000
            ):
                self.take(partition, answer)
                self.at[partition] = (answer.upto, answer.term)
            assert self.at[partition] == (head.counter, head.term)

    def take(self, partition: int, answer: own.Changes) -> None:
        keys, values = answer.columns.split()
        olds = own.ColumnBatch(
            len(keys), answer.old_offsets, answer.olds, answer.old_offsets, answer.olds
        ).split()[0]
        assert answer.transaction_ids() == [None] * len(keys)
        rows = zip(
            answer.counters, answer.terms, answer.kinds, answer.times_ms, keys, values, olds, strict=True
        )
        for counter, term, kind, time_ms, key, value, old in rows:
            assert self.seen.setdefault((partition, term, counter), (kind, key, value, old)) == (
                kind,
                key,
                value,
                old,
            )
            assert abs(time_ms / 1000 - time.time()) < 600
            assert self.content.pop(key, b"") == old
            if kind != own.ChangeKind.REMOVE:
                self.content[key] = value


def put(client: Client, word: str) -> dict[bytes, bytes]:
    wanted = {key: to_stored(f"{word}-{number}") for number, key in enumerate(KEYS)}
    client.put_columns(MAP, list(wanted), list(wanted.values()))
    return wanted


@pytest.mark.slow
def test_a_reader_goes_on_through_crashes_and_a_restart_of_everybody(tmp_path: Path) -> None:
    settings = {"maps__numbers__journal": "sync", "maps__numbers__changes_bytes": 65_536}
    with Keepers(tmp_path, 3, **settings) as cluster:
        with cluster.client("m1") as client:
            reader, late = Reader(client.partition_count), Reader(client.partition_count)
            put(client, "one")
            reader.read(client)
            put(client, "two")
            cluster.kill(cluster.running("m3"))
            wanted = put(client, "three")
            reader.read(client)
            assert reader.content == wanted
            cluster.boot("m3")
            cluster.wait_settled()
            put(client, "four")
        cluster.kill_all()
        cluster.boot("m1", "m2", "m3")
        cluster.wait_settled()
        with cluster.client("m2") as client:
            reader.read(client)
            wanted = put(client, "five")
            assert client.execute(Request(Op.CLEAR, MAP, list(reader.at))) == len(KEYS)
            reader.read(client)
            assert reader.content == {}
            late.read(client)
            assert late.seen == reader.seen
            assert len(reader.seen) == 6 * len(KEYS)
