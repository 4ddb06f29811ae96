"""Journals and checkpoints as rows, and reports on them."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

import msgspec
import pytest
from click.testing import CliRunner
from tests.wire.journals import STORE, Written, some_journal

from holdfast.cli.main import holdfast
from holdfast.config import Settings
from holdfast.core.model.ids import group_of
from holdfast.core.model.journal_entries import (
    Began,
    Dropped,
    GroupWrote,
    MapSnapshot,
    Meta,
    Snapshot,
    Wrote,
    WrotePuts,
)
from holdfast.core.model.operations import Op, Request
from holdfast.core.model.records import Change, Record
from holdfast.core.model.update_counter import UpdateCounter
from holdfast.core.model.zone_batches import ZoneRequests, ZoneWrites
from holdfast.core.multiraft.group_journal import PIECES
from holdfast.core.multiraft.persistence import GroupHead, GroupWrite, encoded
from holdfast.core.raft.configuration import Configuration
from holdfast.core.raft.raft_messages import RaftEntry, RaftSnapshot
from holdfast.core.raft.raft_state import HardState
from holdfast.core.raft_partition.partition_commands import ZoneCommand, encode_command
from holdfast.core.raft_partition.state_machine import StateMachine
from holdfast.core.store.request_ids import mark_of
from holdfast.errors import ConfigError
from holdfast.spark.files import checkpoint_files as checkpoints
from holdfast.spark.files import journals
from holdfast.spark.files.analysis import REPORTS, analyse, check, one_cluster, shown
from holdfast.spark.files.journals import CUT, DAMAGE, RECORD, find
from holdfast.wire.checkpoint import encode_checkpoint
from holdfast.wire.journal_reader import JournalReader
from holdfast.wire.values import Serialized, to_stored
from holdfast_lab.processes.local_cluster import LocalCluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def flip_bit(data: bytearray, place: int) -> None:
    data[place] ^= 4


CLIENT = UUID("0f3c4c1e-2d0a-4b43-9c43-0d1d4f6b8a11")


def save(directory: Path, written: Written, member: str = "one") -> Path:
    directory.mkdir(exist_ok=True)
    for name, data in written.files.items():
        (directory / name).write_bytes(data)
    (directory / "identity.json").write_text(json.dumps({"store": written.store, "member": member}))
    return directory


def rows(directory: Path, tasks: int, *, values: bool = False) -> list[dict[str, Any]]:
    """What all tasks read, in the order of the journal."""
    found = [
        row
        for share in journals.shares(find([directory]), tasks, values=values)
        for batch in journals.read(share)
        for row in batch.to_pylist()
    ]
    return sorted(found, key=lambda row: (row["segment"], row["lsn"], row["place"]))


def record(name: str, counter: int, key: object, value: object = 0, **more: Any) -> Record:
    return Record(name, counter, Change.SET, to_stored(key), to_stored(value), **more)


# -- journals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tasks", [1, 3, 50])
def test_every_record_is_a_row_however_many_tasks_read(tmp_path: Path, tasks: int) -> None:
    written = some_journal(5, segments=7, size=30_000)
    found = rows(save(tmp_path / "m", written), tasks)
    expected = [
        (lsn, entry.partition, each.map, each.counter, each.key, len(each.value))
        for lsn, entries in sorted(written.entries.items())
        for entry in entries
        if isinstance(entry, Wrote | WrotePuts)
        for each in entry.records
    ]
    told = [row for row in found if row["kind"] == RECORD]
    assert [
        (row["lsn"], row["partition"], row["map"], row["counter"], row["key"], row["value_bytes"])
        for row in told
    ] == expected
    assert Counter(row["kind"] for row in found)["seal"] == 1
    assert not [row for row in found if row["kind"] in (DAMAGE, CUT)]
    assert all(row["value"] is None for row in found)


def test_a_row_says_who_wrote_and_when(tmp_path: Path) -> None:
    written = Written()
    written.begin()
    mark = mark_of(CLIENT.bytes + (7).to_bytes(8, "big"), None)
    written.block(Meta(STORE, 1, "c"), Began(3, 2))
    written.block(
        Wrote(
            3,
            4,
            [
                record("m", 1, "a", "xyz", ttl_ms=500, request=mark),
                Record("m", 2, Change.REMOVE, to_stored("a")),
            ],
        ),
        Dropped(9, "n"),
    )
    written.block()
    found = rows(save(tmp_path / "m", written), 1, values=True)
    assert [row["kind"] for row in found] == ["store", "began", RECORD, RECORD, "dropped", "seal"]
    first, second = found[2:4]
    assert first["client"] == str(CLIENT) and second["client"] is None
    assert (first["change"], second["change"]) == ("set", "remove")
    assert first["value"] == to_stored("xyz") and first["ttl_ms"] == 500 and first["term"] == 4
    assert (first["member"], first["store"]) == ("one", STORE)
    assert first["time"].year == 2023 and first["exact"] is False
    assert (found[4]["partition"], found[4]["map"]) == (9, "n")


def test_times_and_old_values_are_shown_where_records_have_them(tmp_path: Path) -> None:
    """Maps that keep their changes write both into each record; others have neither field."""
    if "time_ms" not in Record.__struct_fields__:
        pytest.skip("records have no times yet")
    written = Written()
    written.begin()
    timed = msgspec.structs.replace(record("m", 1, "a"), time_ms=1_800_000_000_123, old=b"1234567")
    written.block(Wrote(3, 4, [timed]))
    written.block()
    told = rows(save(tmp_path / "m", written), 1)[0]
    assert told["exact"] and told["time"].timestamp() == 1_800_000_000.123
    assert told["old_bytes"] == 7


@pytest.mark.parametrize("tasks", [1, 50])
def test_damage_is_a_row_and_everything_else_is_read(tmp_path: Path, tasks: int) -> None:
    written = some_journal(8, segments=5, size=30_000)
    segment, start, end = written.places[written.last // 2]
    damaged = written.last // 2
    flip_bit(written.files[segment], (start + end) // 2)
    directory = save(tmp_path / "m", written)
    found = rows(directory, tasks)
    told = [row for row in found if row["kind"] == DAMAGE]
    assert len(told) == 1 and told[0]["segment"] == segment and told[0]["lsn"] == damaged
    assert f"blocks {damaged} to {damaged} are lost" in told[0]["note"]
    assert {row["lsn"] for row in found if row["kind"] != DAMAGE} == {
        lsn for lsn, entries in written.entries.items() if lsn != damaged
    }


@pytest.mark.parametrize("seed", range(12))
def test_tasks_find_what_one_reader_finds_after_any_accident(tmp_path: Path, seed: int) -> None:
    """Bits flipped, segments cut short or missing: the same blocks and the same damage as read in one go."""
    import random

    dice = random.Random(seed)
    written = some_journal(seed, segments=5, size=20_000)
    names = list(written.files)
    for _ in range(dice.randrange(1, 4)):
        name = dice.choice(list(written.files))
        match dice.randrange(3):
            case 0:
                flip_bit(written.files[name], dice.randrange(len(written.files[name])))
            case 1:
                del written.files[name][dice.randrange(100, len(written.files[name])) :]
            case 2 if len(written.files) > 2:
                del written.files[name]
            case _:
                written.files[name] += dice.randbytes(50)
    if not written.files:
        pytest.skip(f"nothing left of {names}")
    directory = save(tmp_path / "m", written)
    reading = JournalReader(list(written.files), lambda name: bytes(written.files[name]), STORE)
    blocks = list(reading)
    for tasks in (1, 50):
        found = rows(directory, tasks)
        assert {row["lsn"] for row in found if row["kind"] not in (DAMAGE, CUT)} == {
            block.lsn for block in blocks
        }
        assert [row["note"] for row in found if row["kind"] == DAMAGE] == [
            str(each) for each in reading.damage
        ]


def test_directories_that_hold_nothing_are_refused(tmp_path: Path) -> None:
    for wrong in ([], [tmp_path], [tmp_path / "none"]):
        with pytest.raises(ConfigError):
            find(wrong)
    told = CliRunner().invoke(holdfast, ["analyse", str(tmp_path)])
    assert told.exit_code == 2 and "holds no journal" in told.stderr
    with pytest.raises(ConfigError):
        check(["weather"])


def test_files_of_several_clusters_are_not_told_as_one(tmp_path: Path) -> None:
    for name, cluster in (("one", "c1"), ("two", "c2"), ("same", "c1"), ("old", "")):
        directory = save(tmp_path / name, some_journal(1))
        (directory / "identity.json").write_text(
            json.dumps({"store": STORE, "member": name, "cluster_id": cluster})
        )
    same = [tmp_path / name for name in ("one", "same", "old")]
    one_cluster(find(same))
    told = CliRunner().invoke(holdfast, ["analyse", str(tmp_path / "one"), str(tmp_path / "two")])
    assert told.exit_code == 2 and "several clusters" in told.stderr
    assert str(tmp_path / "two") in told.stderr


@pytest.mark.parametrize("every", ["banana", "", "5", "-1 hour", "0 seconds", "1 month", "1 hour banana"])
def test_a_wrong_length_of_time_is_told_before_spark_starts(tmp_path: Path, every: str) -> None:
    directory = save(tmp_path / "m", some_journal(1))
    told = CliRunner().invoke(holdfast, ["analyse", str(directory), "--every", every])
    assert told.exit_code == 2 and "5 minutes" in told.stderr
    for right in (
        "1 hour",
        "90 seconds",
        "1 hour 30 minutes",
        "interval 2 days",
        "1 Week",
        "250 milliseconds",
    ):
        check([], right)


# -- checkpoints ------------------------------------------------------------------------------------------------------


def checkpoint(directory: Path, partition: int, lsn: int, *maps: MapSnapshot) -> str:
    name, data = encode_checkpoint(Snapshot(partition, 0, list(maps)), lsn, STORE)
    (directory / name).write_bytes(data)
    return name


def test_checkpoints_are_rows_of_entries_and_maps_and_only_the_newest_counts(tmp_path: Path) -> None:
    directory = save(tmp_path / "m", some_journal(1))
    counter = UpdateCounter(5)
    counter.update(7)
    keys = [to_stored(n) for n in range(4)]
    checkpoint(directory, 2, 3, MapSnapshot("m", [(1, 0)], UpdateCounter(1).encode(), keys[:1], keys[:1]))
    newest = checkpoint(
        directory,
        2,
        9,
        MapSnapshot("m", [(1, 0), (6, 4)], counter.encode(), keys, [key * 3 for key in keys], [0, 50, 0, 0]),
        MapSnapshot("empty", [], UpdateCounter().encode(), [], []),
    )
    broken = directory / checkpoint(directory, 4, 1)
    broken.write_bytes(b"nothing")
    found = [
        row
        for share in checkpoints.shares(find([directory]), 8, values=True)
        for batch in checkpoints.read(share)
        for row in batch.to_pylist()
    ]
    maps = {row["map"]: row for row in found if row["kind"] == "map"}
    assert (maps["m"]["entries"], maps["m"]["low"], maps["m"]["high"], maps["m"]["missing"]) == (4, 5, 8, 2)
    assert (maps["m"]["term"], maps["m"]["lsn"], maps["empty"]["entries"]) == (6, 9, 0)
    entries = [row for row in found if row["kind"] == "entry"]
    assert {row["file"] for row in entries} == {newest}
    assert [row["key"] for row in entries] == keys
    assert [row["value_bytes"] for row in entries] == [3 * len(key) for key in keys]
    assert [row["ttl_ms"] for row in entries] == [None, 50, None, None]
    damaged = [row for row in found if row["kind"] == DAMAGE]
    assert [(row["partition"], row["file"]) for row in damaged] == [(4, broken.name)]
    everything = checkpoints.shares(find([directory]), 8, newest=False)
    assert sum(len(share.names) for share in everything) == 3


def test_the_checkpoint_of_a_zone_s_replica_has_rows_of_its_maps(tmp_path: Path) -> None:
    directory = save(tmp_path / "m", some_journal(1))
    machine = StateMachine([3, 8], Settings())
    key, value = to_stored("k"), to_stored("v")
    written = tuple(ZoneWrites([("orders", key, value, 0, 0)], partition) for partition in (3, 8))
    machine.apply(ZoneCommand(1000, written, counted=True), 7, 2)
    head = encoded(GroupHead(HardState(2, commit=7), RaftSnapshot(7, 2, Configuration()), ()))
    pieces = [head, *machine.pieces()]
    numbers = [number.to_bytes(8, "big") for number in range(len(pieces))]
    checkpoint(directory, group_of(1, 3), 4, MapSnapshot(PIECES, [], b"", numbers, pieces))
    checkpoint(directory, group_of(1, 4), 4, MapSnapshot(PIECES, [], b"", numbers[:1], [b"no head"]))
    found = [
        row
        for share in checkpoints.shares(find([directory]), 8, values=True)
        for batch in checkpoints.read(share)
        for row in batch.to_pylist()
    ]
    maps = [
        (row["map"], row["partition"], row["entries"], row["note"]) for row in found if row["kind"] == "map"
    ]
    assert maps == [("orders", 3, 1, "zone 1, index 7"), ("orders", 8, 1, "zone 1, index 7")]
    assert [(row["key"], row["value"]) for row in found if row["kind"] == "entry"] == [(key, value)] * 2
    assert [row["partition"] for row in found if row["kind"] == DAMAGE] == [group_of(1, 4)]


def test_keys_are_shown_as_what_they_are() -> None:
    assert shown(to_stored("Ada")) == "Ada"
    assert shown(to_stored(17)) == "17"
    assert shown(Serialized(b"\x00\x00\x00\x63abcd").data).startswith("type 99")
    assert shown(b"\x01").startswith("1 bytes")
    assert len(shown(to_stored("x" * 500))) == 60


# -- reports ----------------------------------------------------------------------------------------------------------


def two_members(folder: Path) -> list[Path]:
    """A primary and its backup with the same updates; the backup lacks two, and has made up for one of another map."""
    primary, backup = Written(), Written("6f0c2b7e-2f2b-4df3-9c43-0d1d4f6b8a12")
    mark = mark_of(CLIENT.bytes + bytes(8), None)
    for written in (primary, backup):
        written.begin()
        written.block(Meta(written.store, 1, "c"), Began(1, 0), Began(2, 0))
    updates = [record("m", n, f"k{n % 3}", "v" * n, request=mark) for n in range(1, 11)]
    primary.block(Wrote(1, 1, updates))
    backup.block(Wrote(1, 1, updates[:4]))
    backup.block(Wrote(1, 1, updates[6:]))
    others = [record("n", n, "big", "w" * 100) for n in range(1, 4)]
    others.append(Record("n", 4, Change.REMOVE, to_stored("big")))
    primary.block(Wrote(2, 1, others))
    backup.block(Wrote(2, 1, others[:1]))
    backup.block(Wrote(2, 1, others[2:]))
    # A copy that is filled anew begins where its content ends.
    backup.block(Dropped(2), Began(2, 0), Wrote(2, 1, [record("n", 20, "later", "z")]))
    for written in (primary, backup):
        written.block()
    one, two = save(folder / "one", primary, "one"), save(folder / "two", backup, "two")
    name, data = encode_checkpoint(
        Snapshot(
            2, 0, [MapSnapshot("n", [(1, 0)], UpdateCounter(19).encode(), [to_stored("old")], [bytes(500)])]
        ),
        5,
        backup.store,
    )
    (two / name).write_bytes(data)
    return [one, two]


@pytest.mark.spark
def test_reports_count_each_update_once_and_name_what_is_missing(spark: SparkSession, tmp_path: Path) -> None:
    told: list[Any] = []
    found = analyse(spark, two_members(tmp_path), progress=told.append)
    assert [report.name for report in found.reports] == list(REPORTS)
    assert (found.updates, found.members) == (15, 2)
    assert told[-1].tasks_done == told[-1].tasks
    assert told[-1].rows == sum(len(rows(tmp_path / name, 1)) for name in ("one", "two"))

    writers = {(row["map"], row["change"], row["client"]): row for row in found["writers"].rows()}
    assert writers["m", "set", str(CLIENT)]["updates"] == 10
    assert writers["m", "set", str(CLIENT)]["keys"] == 3
    assert writers["n", "remove", None]["updates"] == 1

    largest = [(row["map"], row["key"], row["value_bytes"]) for row in found["largest"].rows()]
    assert largest[0] == ("n", "old", 500)
    # Of each key the last value; what was removed is not there.
    assert ("m", "k1", len(to_stored("v" * 10))) in largest
    assert not [row for row in largest if row[1] == "big"]

    assert [(row["partition"], row["updates"]) for row in found["hottest"].rows()] == [(1, 10), (2, 5)]
    growth = found["growth"].rows()
    assert sum(row["updates"] for row in growth) == 15
    assert max(row["updates_so_far"] for row in growth if row["map"] == "m") == 10

    gaps = [
        (row["member"], row["map"], row["highest"], row["missing"], row["next"], row["covered"])
        for row in found["gaps"].rows()
    ]
    assert gaps == [("two", "m", 4, 2, 7, False), ("two", "n", 1, 1, 3, True)]
    assert not found.sound
    assert found["damage"].rows() == []
    assert "15 updates in the files of 2 members" in str(found)


def logged(index: int, term: int, *parts: ZoneWrites | ZoneRequests) -> RaftEntry:
    return RaftEntry(term, index, encode_command(ZoneCommand(1000, parts, counted=True)))


@pytest.mark.spark
def test_reports_count_the_changes_in_logs_of_zones_once(spark: SparkSession, tmp_path: Path) -> None:
    """Three replicas have them; one wrote an entry twice, and one has an entry that was replaced."""
    key, value = to_stored("k"), to_stored("v" * 9)
    twice = logged(5, 2, ZoneWrites([("z", key, value, 0, 0), ("z", key, value, 0, 0)], 3))
    lost = logged(6, 2, ZoneWrites([("z", to_stored("lost"), value, 0, 0)], 8))
    requests = [
        Request(Op.PUT_IF_ABSENT, "z", [8], key, value),
        Request(Op.PUT_ALL, "z", [8], items=[to_stored("a"), value, to_stored("b"), value]),
        Request(Op.DELETE, "z", [8], key),
        Request(Op.GET, "z", [8], key),
    ]
    newer = logged(6, 3, ZoneRequests(requests))
    other = logged(6, 3, ZoneWrites([("z", key, value, 0, 0)], 4))
    writes = [
        [(3, twice), (3, newer), (4, other)],
        [(3, twice), (3, lost), (3, twice), (3, newer)],
        [(3, twice)],
    ]
    folders = []
    for number, entries in enumerate(writes):
        written = Written(f"{number}f0c2b7e-2f2b-4df3-9c43-0d1d4f6b8a12")
        written.begin()
        written.block(Meta(written.store, 1, "c"))
        for group, entry in entries:
            written.block(GroupWrote(group_of(1, group), encoded(GroupWrite(entries=(entry,)))))
        folders.append(save(tmp_path / str(number), written, str(number)))
    found = analyse(spark, folders)
    changes = {(row["map"], row["change"]): row["updates"] for row in found["writers"].rows()}
    assert changes == {("z", "set"): 6, ("z", "remove"): 1, ("z", "get"): 1}
    assert [(row["partition"], row["updates"]) for row in found["hottest"].rows()] == [(8, 4), (3, 2), (4, 1)]
    assert sum(row["updates"] for row in found["growth"].rows()) == 7
    assert (found["gaps"].rows(), found["largest"].rows(), found.sound) == ([], [], True)


@pytest.mark.spark
def test_damage_is_in_the_report_and_not_a_failure(spark: SparkSession, tmp_path: Path) -> None:
    one, two = two_members(tmp_path)
    segment = next(one.glob("*.seg"))
    data = bytearray(segment.read_bytes())
    flip_bit(data, len(data) // 3)
    segment.write_bytes(data)
    found = analyse(spark, [one, two], ["damage", "hottest"])
    assert [(row["member"], row["kind"]) for row in found["damage"].rows()] == [("one", DAMAGE)]
    assert not found.sound
    assert found["hottest"].rows()
    # What was asked for does not decide the verdict.
    found = analyse(spark, [one], ["writers"])
    assert [report.name for report in found.reports] == ["writers"]
    assert not found.sound and (found.damaged, found.missing) == (1, found.missing)
    assert "1 damaged" in str(found)


@pytest.mark.slow
@pytest.mark.spark
def test_the_largest_entries_are_those_that_are_there_now(spark: SparkSession, tmp_path: Path) -> None:
    """What was cleared is not; of checkpoints of two members the newer one counts, and journals after it."""
    stale, fresh = Written(), Written("6f0c2b7e-2f2b-4df3-9c43-0d1d4f6b8a12")
    for written in (stale, fresh):
        written.begin()
        written.block(Meta(written.store, 1, "c"), Began(1, 0))
    gone = [
        record("clear", 1, "a", "v" * 500),
        Record("clear", 2, Change.CLEAR),
        record("clear", 3, "b", "w"),
    ]
    stale.block(
        Wrote(1, 1, gone),
        Wrote(1, 1, [record("m", 1, "k", "v" * 500), record("m", 2, "removed", "v" * 400)]),
        Wrote(1, 1, [record("n", 1, "cleared after its checkpoint", "v")]),
    )
    # The map's updates of another term that came to nothing: their counters are higher.
    stale.block(Wrote(1, 1, [record("m", 95, "k", "x" * 900)]))
    fresh.block(
        Wrote(1, 2, [record("m", 91, "late", "y" * 50), Record("m", 92, Change.PIN, b"cut", ttl_ms=6)])
    )
    fresh.block(Wrote(1, 2, [Record("n", 8, Change.CLEAR), Record("s", 1, Change.CALL, b"", b"deed")]))
    for written in (stale, fresh):
        written.block()
    one, two = save(tmp_path / "one", stale, "one"), save(tmp_path / "two", fresh, "two")

    def kept(lineage: list[tuple[int, int]], high: int, **entries: str) -> MapSnapshot:
        keys = [to_stored(key) for key in entries]
        values = [to_stored(value) for value in entries.values()]
        return MapSnapshot("m", lineage, UpdateCounter(high).encode(), keys, values)

    other = MapSnapshot("n", [(1, 0)], UpdateCounter(7).encode(), [to_stored("o")], [bytes(800)])
    old = Snapshot(1, 0, [kept([(1, 0)], 60, k="v" * 500, removed="v" * 400)])
    new = Snapshot(1, 0, [kept([(1, 0), (2, 90)], 90, k="tiny"), other])
    for directory, snapshot, written in ((one, old, stale), (two, new, fresh)):
        name, data = encode_checkpoint(snapshot, 2, written.store)
        (directory / name).write_bytes(data)

    found = analyse(spark, [one, two], ["largest", "hottest", "growth"])
    largest = [(row["map"], row["key"]) for row in found["largest"].rows()]
    assert largest == [("m", "late"), ("m", "k"), ("clear", "b")]
    assert found["largest"].rows()[1]["value_bytes"] == len(to_stored("tiny"))
    # Pins and services' calls are no updates of entries.
    assert [row["updates"] for row in found["hottest"].rows()] == [9]
    assert {row["map"]: row["updates"] for row in found["growth"].rows()} == {"clear": 3, "m": 4, "n": 2}


@pytest.mark.spark
def test_the_files_of_real_members_tell_of_every_write(spark: SparkSession, tmp_path: Path) -> None:
    config = """
[cluster]
heartbeat_ms = 200
suspect_after_ms = 10000
[maps.default]
backups = 1
journal = "sync"
"""
    from holdfast.client.blocking import Client

    with LocalCluster(2, config, data_dir=tmp_path) as cluster:
        cluster.wait_settled(120)
        with Client(cluster.members[0].client_address) as client:
            for number in range(60):
                client.set("words", to_stored(f"key {number % 40}"), to_stored("v" * (number + 1)))
        directories = [cluster.directory(member) for member in cluster.members]
        cluster.kill_all()
        found = analyse(spark, directories, ["writers", "largest", "gaps", "damage"])
    writers = [row for row in found["writers"].rows() if row["map"] == "words"]
    assert sum(row["updates"] for row in writers) == 60
    assert len({row["client"] for row in writers}) == 1 and writers[0]["client"] is not None
    largest = next(row for row in found["largest"].rows() if row["map"] == "words")
    assert (largest["key"], largest["value_bytes"]) == ("key 19", len(to_stored("v" * 60)))
    assert found["gaps"].rows() == [] and found.sound
