"""The same damage gives the same finding in every feeder: members, files, Spark tasks, anti-entropy, Raft."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from tests.server.memory_cluster import MemoryCluster

from holdfast.client.blocking import Client
from holdfast.core.messages import Summed
from holdfast.core.model.journal_entries import MapSnapshot, Snapshot
from holdfast.core.primary_backup.cuts import Pin
from holdfast.core.state_transfer import anti_entropy
from holdfast.core.store.partition_copy import PartitionCopy
from holdfast.core.store.replica_comparison import Finding, Relation
from holdfast.engine.restore import IDENTITY, IdentityFile
from holdfast.replica_comparison import live
from holdfast.replica_comparison.files_source import FilesSource
from holdfast.replica_comparison.live import compare_partitions
from holdfast.replica_comparison.sources import Access, ClusterSource, ListedSource, Source, verify_source
from holdfast.replica_comparison.zone_comparison import compare_at_cut
from holdfast.server.digest_questions import PinSnapshot
from holdfast.wire import own
from holdfast.wire.checkpoint import encode_checkpoint
from holdfast.wire.values import to_stored

PARTITION, REPLICA = 3, 2


def change(copy: PartitionCopy) -> None:
    entries = copy.maps["m"].state.entries
    entries[next(iter(entries))] = to_stored("else")


def drop(copy: PartitionCopy) -> None:
    held = copy.maps["m"].state
    held.drop(next(iter(held.entries)))


def add(copy: PartitionCopy) -> None:
    copy.maps["m"].state.entries[to_stored("extra")] = to_stored("extra")


def step(by: int) -> Callable[[PartitionCopy], None]:
    def damage(copy: PartitionCopy) -> None:
        updates = copy.maps["m"].updates
        copy.maps["m"].updates = type(updates)(updates.lwm + by)

    return damage


def enter_term(copy: PartitionCopy) -> None:
    copy.maps["m"].lineage = [(9, 0)]


def start_over(copy: PartitionCopy) -> None:
    copy.epoch += 1


def forget(copy: PartitionCopy) -> None:
    del copy.maps["m"]


def leave(copy: PartitionCopy) -> None: ...


Kind = tuple[str, str]
"""Verdict, and what is in conflict: counter, content, or both."""
CONTENT: Kind = ("differs", "content")
NOTHING: Kind = ("equal", "")

DAMAGES: dict[str, tuple[Callable[[PartitionCopy], None], Kind, Kind, Kind, Relation]] = {
    # damage: of the cluster, of listed members, in files, and for anti-entropy
    "none": (leave, NOTHING, NOTHING, NOTHING, "equal"),
    "another value": (change, CONTENT, CONTENT, CONTENT, "differs"),
    "a missing entry": (drop, CONTENT, CONTENT, CONTENT, "differs"),
    "an extra entry": (add, CONTENT, CONTENT, CONTENT, "differs"),
    "a lost update": (step(-1), ("differs", "counter"), ("busy", ""), ("older", ""), "behind"),
    "an update that never was": (step(1), ("differs", "counter"), ("busy", ""), ("older", ""), "ahead"),
    "another history": (enter_term, ("differs", "counter"), ("busy", ""), ("older", ""), "parted"),
    "another life": (start_over, ("differs", "counter"), ("busy", ""), ("older", ""), "equal"),
    # Without a primary it is unknown who must hold a map. Anti-entropy waits for its records, and then asks.
    "a lost map": (forget, ("differs", "counter content"), NOTHING, NOTHING, "behind"),
}


def kind(findings: list[Finding]) -> Kind:
    """The one finding that is not equal."""
    wrong = [one for one in findings if one.verdict != "equal"]
    assert len({(one.partition, one.map) for one in wrong}) <= 1, wrong
    if not wrong:
        return NOTHING
    verdicts = {one.verdict for one in wrong}
    (verdict,) = verdicts
    flags = {
        "counter": any(one.counter_conflict for one in wrong),
        "content": any(one.content_conflict for one in wrong),
    }
    return verdict, " ".join(name for name, so in flags.items() if so)


def write(folder: Path, copy: PartitionCopy) -> Path:
    """The directory of a stopped member that holds this copy."""
    folder.mkdir()
    identity = IdentityFile(1, f"store-{folder.name}", 1, folder.name, "c")
    (folder / IDENTITY).write_bytes(msgspec.json.encode(identity))
    maps = [
        MapSnapshot(
            held.name,
            held.lineage,
            held.updates.encode(),
            list(held.state.entries),
            list(held.state.entries.values()),
        )
        for held in copy.maps.values()
    ]
    name, data = encode_checkpoint(Snapshot(PARTITION, copy.epoch, maps), 0, identity.store)
    (folder / name).write_bytes(data)
    return folder


def on_spark(source: Source) -> list[Finding]:
    """As the tasks of a Spark job do it, in threads of this process."""
    pytest.importorskip("pyspark")
    from holdfast.spark.jobs import Counted, run
    from holdfast.spark.pipeline.verify import DDL, Part, Work

    work = Work(source, Counted(None))
    parts = Part.of_job(run(None, [(0, 2), (1, 2)], work, DDL, title="verify"))
    return [finding for part in parts for finding in part.findings]


def at_cut(copy: PartitionCopy) -> list[own.MapDigest]:
    """The same entries in a Raft replica, kept for a cut at index 7."""
    digests: list[own.MapDigest] = []
    for held in copy.maps.values():
        work = PinSnapshot(Pin(PARTITION, held, 0, 7)).digest()
        try:
            while True:
                next(work)
        except StopIteration as ended:
            digests.append(ended.value)
    return digests


@pytest.mark.parametrize("name", DAMAGES)
def test_every_feeder_finds_the_damage(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "PAUSE_S", 0.0)
    damage, in_cluster, listed, in_files, relation = DAMAGES[name]
    with MemoryCluster(3, 5, copies=3) as cluster, Client(cluster.addresses()) as client:
        keys = [to_stored(number) for number in range(60)]
        client.put_columns("m", keys, keys, ttl_ms=0)
        copies = [cluster.by_uuid[str(uuid)].held[PARTITION] for uuid in cluster.rows[PARTITION]]
        damage(copies[REPLICA])

        assert kind(compare_partitions(client, range(5))) == in_cluster
        addresses = tuple(cluster.addresses().split(","))
        assert kind(on_spark(ClusterSource(Access(addresses)))) == in_cluster
        assert kind(verify_source(ListedSource(Access(addresses))).findings) == listed
        folders = [write(tmp_path / f"m{at}", copy) for at, copy in enumerate(copies)]
        files = FilesSource.of(folders)
        assert kind(verify_source(files).findings) == in_files
        assert kind(on_spark(files)) == in_files

        primary, backup = (copies[at].called("m") for at in (0, REPLICA))
        assert primary is not None
        said = Summed("m", primary.counter, primary.term, primary.state.compared())
        assert anti_entropy._relation(backup, said) == relation

        raft = {str(at): at_cut(copy) for at, copy in enumerate(copies)}
        found = [one for one in compare_at_cut(PARTITION, 7, raft, "0") if one.verdict != "equal"]
        # Epochs mean nothing there; everything else must be the same at one index.
        harmless = damage in (leave, start_over)
        assert [one.member for one in found] == ([] if harmless else [str(REPLICA)])


def test_the_damaged_one_of_three_is_named_also_without_a_primary(tmp_path: Path) -> None:
    with MemoryCluster(3, 5, copies=3) as cluster, Client(cluster.addresses()) as client:
        keys = [to_stored(number) for number in range(60)]
        client.put_columns("m", keys, keys, ttl_ms=0)
        copies = [cluster.by_uuid[str(uuid)].held[PARTITION] for uuid in cluster.rows[PARTITION]]
        for at, copy in enumerate(copies):
            change(copy)
            folders = [write(tmp_path / f"{at}-m{number}", one) for number, one in enumerate(copies)]
            report = verify_source(FilesSource.of(folders))
            if at == 0:
                assert [one.member for one in report.conflicts] == ["0-m0"]
        assert report.sound, "all three were changed alike"
