"""Comparisons in a Spark session: of members in this process whose copies differ, and of real files."""

from __future__ import annotations

import shutil
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import pytest
from tests.server.memory_cluster import MemoryCluster

from holdfast.client.blocking import Client
from holdfast.core.store.replica_comparison import Verdict
from holdfast.errors import ConfigError
from holdfast.replica_comparison.comparison_report import Report
from holdfast.wire.values import to_stored
from holdfast_lab.processes.local_cluster import LocalCluster

pytest.importorskip("pyspark")

from holdfast.spark.pipeline import verify as verify_module
from holdfast.spark.pipeline.verify import frame, keys_frame, verify

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

CONFIG = """
[cluster]
heartbeat_ms = 200
suspect_after_ms = 10000
[partitions]
count = 12
[maps.default]
backups = 2
journal = "sync"
"""


def counts(report: Report) -> dict[str, int]:
    return {verdict: report.count(verdict) for verdict in get_args(Verdict) if report.count(verdict)}


def load(addresses: str, count: int = 600) -> None:
    with Client(addresses) as client:
        keys = [to_stored(number) for number in range(count)]
        client.put_columns("m", keys, [to_stored(f"value {number}") for number in range(count)], ttl_ms=0)


def spoil(cluster: MemoryCluster, partition: int) -> tuple[bytes, bytes]:
    """One backup of the partition holds another value under one key, and nothing under another."""
    entries = cluster.by_uuid[str(cluster.rows[partition][1])].held[partition].maps["m"].state.entries
    changed, gone = list(entries)[:2]
    entries[changed] = to_stored("else")
    del entries[gone]
    return changed, gone


@pytest.mark.slow
def test_the_keys_that_differ_are_rows(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    with MemoryCluster(3, 31, copies=3) as cluster:
        load(cluster.addresses())
        assert verify(spark, cluster.addresses(), keys=True).keys == []
        changed, gone = spoil(cluster, 7)
        result = verify(spark, cluster.addresses(), keys=True)
        assert (result.differs, result.keys_open, result.copies) == (True, 0, 62)
        held = {(key.key, key.held, key.value_bytes) for key in result.keys}
        assert {key for key, _, _ in held} == {changed, gone}
        assert (changed, True, len(to_stored("else"))) in held
        assert (gone, False, 0) in held
        assert {key.partition for key in result.keys} == {7}
        assert len(result.keys) == 2 * 2
        # The same when there are more findings than are listed.
        monkeypatch.setattr(verify_module, "LISTED_MAX", 0)
        large = verify(spark, cluster.addresses())
        assert (large.copies, large.entries, large.count("differs")) == (62, result.entries, 1)
        assert [finding.partition for finding in result.findings] == [7]
        assert (large.findings, large.sound) == ([], False), "all are counted, though none is listed"
        assert frame(spark, result).count() == 1


def test_members_that_are_listed_are_compared_with_each_other(spark: SparkSession) -> None:
    with MemoryCluster(3, 31, copies=3) as cluster:
        load(cluster.addresses())
        spoil(cluster, 7)
        behind = cluster.members[0].held[3].maps["m"]
        behind.updates.lwm -= 1
        found = verify(spark, members=cluster.addresses().split(","), keys=True)
        assert counts(found) == {"equal": 60, "differs": 1, "busy": 1}
        assert (found.sound, found.differs, found.damage) == (False, True, [])
        assert {key.partition for key in found.keys} == {7}
        behind.updates.lwm += 1
        wrong = cluster.by_uuid[str(cluster.rows[7][1])]
        others = [f"127.0.0.1:{member.port}" for member in cluster.members if member is not wrong]
        assert verify(spark, members=others, maps=["m"]).sound
        with pytest.raises(ConfigError, match="two of them, or more"):
            verify(spark, members=others[:1])


@pytest.mark.slow
def test_the_files_of_members_that_were_killed_one_after_the_other_agree(
    spark: SparkSession, java: None, tmp_path: Path
) -> None:
    with LocalCluster(3, CONFIG, data_dir=tmp_path) as members:
        members.wait_settled()
        addresses = ",".join(members.client_addresses())
        load(addresses)
        stop = threading.Event()
        written = [0]

        def write() -> None:
            with Client(addresses) as client:
                while not stop.is_set():
                    client.set("m", to_stored(written[0] % 900), to_stored(written[0]))
                    written[0] += 1

        writer = threading.Thread(target=write)
        writer.start()
        try:
            members.kill(members.members[2])
            members.wait_safe(60)
            enough = written[0] + 900
            while written[0] < enough and writer.is_alive():
                time.sleep(0.01)
        finally:
            stop.set()
            writer.join()
        members.kill_all()
    folders = sorted(path for path in tmp_path.iterdir() if path.is_dir())
    assert len(folders) == 3
    found = verify(spark, files=folders)
    assert found.sound, found
    # Who was killed first has missed updates; the two others were killed with all of them.
    assert counts(found) == {"equal": 12, "older": 12}
    assert {finding.member for finding in found.findings} == {"m3"}
    assert frame(spark, found).where("counter < reference_counter").count() == 12
    # One bit of a journal: the copies of that member end before it, and that is no difference.
    copy = tmp_path / "copy"
    shutil.copytree(folders[0], copy)
    needle = to_stored("value 300")
    held = {path: path.read_bytes() for path in copy.glob("*.seg")}
    segment = next(path for path, data in held.items() if needle in data)
    data = bytearray(held[segment])
    data[data.index(needle)] ^= 1
    segment.write_bytes(data)
    damaged = verify(spark, files=[copy, folders[1]])
    assert not damaged.sound
    assert not damaged.differs
    assert any("blocks" in why for why in damaged.damage)


def test_a_copy_is_found_that_was_changed_behind_its_members_back(
    spark: SparkSession, java: None, tmp_path: Path
) -> None:
    from tests.replica_comparison.test_files import some, store

    folders = [store(tmp_path / name, {0: some(), 5: some()}) for name in ("m1", "m2")]
    folders.append(store(tmp_path / "m3", {0: some(), 5: some(key3=to_stored("else"))}))
    found: Any = verify(spark, files=folders, keys=True)
    assert (found.differs, counts(found)) == (True, {"equal": 3, "differs": 1})
    assert {(row.partition, row.text) for row in keys_frame(spark, found).collect()} == {(5, "'key3'")}
    assert "partition 5, map m: m3 differs" in str(found)
    assert verify(spark, files=folders, maps=["m"]).keys == []
    with pytest.raises(ConfigError, match="no map 'mm' with entries: did you mean 'm'"):
        verify(spark, files=folders, maps=["mm"])
    with pytest.raises(ConfigError, match="two members, or more"):
        verify(spark, files=folders[:1])
