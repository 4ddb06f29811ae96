"""Change streams of a map in a zone of real members: the command, and a restart of all members."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.cluster.keepers import Keepers
from tests.cluster.test_changes import Reader

from holdfast.client.blocking import Client
from holdfast.client.change_reader import heads, read_changes
from holdfast.errors import ChangesGone, HoldfastError
from holdfast.spark.java import java_home
from holdfast.wire.values import to_stored

MAP = "numbers"
KEYS = [to_stored(number) for number in range(300)]
SETTINGS = {
    "metastore__voters": 3,
    "maps__numbers__raft_zone": "z",
    "maps__numbers__changes_bytes": 1 << 20,
    "maps__default__journal": "off",
}


def put(client: Client, word: str, keys: list[bytes] = KEYS) -> dict[bytes, bytes]:
    wanted = {key: to_stored(f"{word}-{number}") for number, key in enumerate(keys)}
    client.put_columns(MAP, list(wanted), list(wanted.values()))
    return wanted


def stop_and_start(cluster: Keepers) -> None:
    cluster.kill_all()
    cluster.boot("m1", "m2", "m3")
    cluster.wait_settled(120)


@pytest.mark.slow
def test_a_reader_goes_on_after_a_crash_and_a_restart_of_all_members(tmp_path: Path) -> None:
    with Keepers(tmp_path, 3, **SETTINGS) as cluster:
        cluster.create_zone("z", 3, 60)
        cluster.wait_settled(60)
        with cluster.client("m1") as client:
            reader = Reader(client.partition_count)
            put(client, "one")
            reader.read(client)
            cluster.kill(cluster.running("m3"))
            wanted = put(client, "two")
            reader.read(client)
            assert reader.content == wanted
            wanted = put(client, "three")
        cluster.boot("m3")
        cluster.wait_settled(120)
        stop_and_start(cluster)
        with cluster.client("m2") as client:
            reader.read(client)
            assert reader.content == wanted, "the logs have what was not read before the restart"
            wanted = put(client, "four")
            reader.read(client)
            assert reader.content == wanted


@pytest.mark.slow
def test_a_reader_is_told_that_changes_are_gone(tmp_path: Path) -> None:
    """The history has room for a part of them only."""
    with Keepers(tmp_path, 3, **(SETTINGS | {"maps__numbers__changes_bytes": 16_384})) as cluster:
        cluster.create_zone("z", 1, 60)
        cluster.wait_settled(60)
        with cluster.client("m1") as client:
            put(client, "one")
            before = heads(client, MAP, range(client.partition_count))
            for word in ("two", "three", "four"):
                put(client, word * 500)
            after = heads(client, MAP, range(client.partition_count))
            partition = max(after, key=lambda each: after[each].counter)
            with pytest.raises(ChangesGone, match="changes are remembered here from update"):
                read_changes(
                    client,
                    MAP,
                    partition,
                    before[partition].counter,
                    before[partition].term,
                    after[partition].counter,
                    upto_term=after[partition].term,
                )


@pytest.mark.slow
@pytest.mark.spark
def test_the_command_follows_a_map_in_a_zone_over_a_restart_of_all(tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    try:
        java_home()
    except HoldfastError as missing:
        pytest.skip(str(missing))
    texts = [to_stored(f"key {number}") for number in range(len(KEYS))]
    with Keepers(tmp_path, 3, **SETTINGS) as cluster:
        cluster.create_zone("z", 3, 60)
        cluster.wait_settled(60)
        address = ",".join(cluster.client_addresses())
        checkpoint = tmp_path / "checkpoint"

        def changes() -> list[dict[str, object]]:
            words = ["changes", MAP, "--from", "snapshot", "--once", "--json", "--format", "text"]
            done = cluster.holdfast(*words, "--checkpoint", str(checkpoint), "-a", address, seconds=240)
            assert done.returncode == 0, done.stderr
            return [json.loads(line) for line in done.stdout.splitlines()]

        with cluster.client("m1") as client:
            put(client, "one", texts)
            assert len(changes()) == len(KEYS)
            put(client, "two", texts)
        stop_and_start(cluster)
        address = ",".join(cluster.client_addresses())
        found = changes()
        assert len(found) == len(KEYS), "each change once, none from before the checkpoint"
        assert all("two-" in json.dumps(line) for line in found)
        assert changes() == []
