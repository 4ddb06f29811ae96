"""Files of real member processes, as docs/persistence.md promises: killed, stopped, copied, damaged, full."""

from __future__ import annotations

import contextlib
import resource
import shutil
import signal
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import hazelcast
import pyarrow.parquet
import pytest
from hazelcast.errors import IllegalStateError, TargetDisconnectedError
from hazelcast.serialization.api import CompactReader, CompactSerializer, CompactWriter
from tests.cluster.keepers import SEGMENT_BYTES, Keepers, until

from holdfast.errors import NoRoom
from holdfast.wire.values import to_stored
from holdfast_lab.processes.local_cluster import HOST, ManagedMember

pytestmark = [
    pytest.mark.interop,
    # The client leaves its sockets to the garbage collector.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

COUNT = 500
LONG = "overwritten " * 50
ENTRIES = {number: f"v{number}" for number in range(COUNT)}
FAILING = """
import os, pathlib, sys
real, flag = os.fdatasync, pathlib.Path({flag!r})
def fdatasync(file):
    if flag.exists():
        raise OSError(5, "Input/output error")
    real(file)
os.fdatasync = fdatasync

from holdfast.cli.main import main
from holdfast.runtime.disk import data_directory

thread_here = data_directory.compiled_thread

def compiled_thread():
    new_thread = thread_here()
    return new_thread and (lambda: FailingThread(new_thread()))

class FailingThread:
    def __init__(self, thread):
        self._thread = thread
    def submit(self, *block):
        if flag.exists():
            self._thread.fail(5)
        self._thread.submit(*block)
    def __getattr__(self, name):
        return getattr(self._thread, name)

data_directory.compiled_thread = compiled_thread
main()
"""
"""The program `holdfast` on a disk whose fsync fails as soon as a file is there."""


@dataclass(frozen=True)
class Plane:
    tail: str
    seats: int


class PlaneSerializer(CompactSerializer[Plane]):
    def read(self, reader: CompactReader) -> Plane:
        return Plane(reader.read_string("tail") or "", reader.read_int32("seats"))

    def write(self, writer: CompactWriter, obj: Plane) -> None:
        writer.write_string("tail", obj.tail)
        writer.write_int32("seats", obj.seats)

    def get_class(self) -> type[Plane]:
        return Plane

    def get_type_name(self) -> str:
        return "plane"


@contextlib.contextmanager
def connected(cluster: Keepers) -> Iterator[hazelcast.HazelcastClient]:
    """A Hazelcast client that knows nothing but addresses."""
    client = hazelcast.HazelcastClient(
        cluster_members=cluster.client_addresses(),
        cluster_connect_timeout=120,
        invocation_timeout=120,
        compact_serializers=[PlaneSerializer()],
    )
    try:
        yield client
    finally:
        client.shutdown()


def fill(cluster: Keepers, *names: str) -> None:
    with connected(cluster) as client:
        for name in names:
            client.get_map(name).blocking().put_all(ENTRIES)


def held(client: hazelcast.HazelcastClient, name: str) -> dict[int, str]:
    found: dict[int, str] = client.get_map(name).blocking().get_all(list(range(2 * COUNT)))
    return found


def same_everywhere(cluster: Keepers) -> None:
    """All copies hold the same."""
    cluster.wait_settled()
    looked = cluster.holdfast("verify", "-a", cluster.alive[0].client_address)
    assert looked.returncode == 0, looked.stdout + looked.stderr


# -- what survives


@pytest.mark.slow
def test_what_was_acknowledged_survives_every_way_in_which_processes_end(tmp_path: Path) -> None:
    with Keepers(tmp_path, maps__hurried__journal="lazy", maps__passing__journal="off") as cluster:
        fill(cluster, "orders", "hurried", "passing")
        with connected(cluster) as client:
            orders = client.get_map("orders").blocking()
            orders.put_all(dict.fromkeys(range(COUNT, COUNT + 100), "soon gone"))
            for number in range(COUNT, COUNT + 100):
                orders.delete(number)
            orders.set("plane", Plane("N14228", 149))
            orders.set("short", "gone", ttl=1)
            orders.set("long", "there", ttl=3600)
            orders.set("idle", "there", max_idle=3600)

        def look() -> None:
            with connected(cluster) as client:
                orders = client.get_map("orders").blocking()
                assert held(client, "orders") == ENTRIES
                assert held(client, "hurried") == ENTRIES
                assert held(client, "passing") == {}
                assert orders.get("plane") == Plane("N14228", 149)
                until(lambda: orders.get("short") is None)
                assert [orders.get("long"), orders.get("idle")] == ["there", "there"]
                assert 0 < orders.get_entry_view("long").ttl <= 3_600_000
                assert orders.get_entry_view("idle").max_idle == 3_600_000

        cluster.kill_all()
        started = cluster.boot(*cluster.names)
        assert all("(start 2 from this directory)" in cluster.said(member) for member in started)
        look()
        # One after the other: drained, or killed.
        for name in ("m1", "m2"):
            leaving = cluster.running(name)
            if name == "m2":
                cluster.kill(leaving)
            else:
                cluster.drain(leaving)
            cluster.boot(name)
            assert (
                cluster.holdfast(
                    "cluster", "safe", "--wait", "30", "-a", cluster.running(name).client_address
                ).returncode
                == 0
            )
        look()
        ending = cluster.alive
        ended = cluster.holdfast("cluster", "shutdown", "--yes", "-a", ending[0].client_address)
        assert ended.returncode == 0, ended.stderr
        assert [cluster.ended(member) for member in ending] == [0, 0, 0]
        cluster.boot(*cluster.names)
        look()
        ending = cluster.alive
        for member in ending:
            member.process.send_signal(signal.SIGTERM)
        assert [cluster.ended(member) for member in ending] == [0, 0, 0]
        cluster.boot(*cluster.names)
        look()
        same_everywhere(cluster)


@pytest.mark.slow
def test_who_was_away_gets_only_what_it_has_missed_and_all_wait_for_it_after_a_stop(tmp_path: Path) -> None:
    # Thirty partitions: everybody holds the same number, so that nobody gets another one for balance.
    with Keepers(tmp_path, partitions__rebalance_delay_ms=60_000, partitions__count=30) as cluster:
        fill(cluster, "orders")
        cluster.kill(cluster.running("m2"))
        until(lambda: len(cluster.status().members) == 2)
        told = cluster.holdfast("cluster", "safe", "-a", cluster.alive[0].client_address)
        assert told.returncode == 1
        assert "restoring waits" in told.stdout
        missed = {COUNT + number: "missed" for number in range(10)}
        with connected(cluster) as client:
            client.get_map("orders").blocking().put_all(missed)
        before = {name: status.replicas for name, status in cluster.statuses().items()}
        returned = cluster.boot("m2")[0]
        cluster.wait_settled()
        after = {name: status.replicas for name, status in cluster.statuses().items()}
        for name, status in before.items():
            assert after[name].full_bytes == status.full_bytes, after
        assert 0 < sum(after[name].history_bytes - before[name].history_bytes for name in before) < 5_000
        shown = cluster.holdfast("status", returned.client_address).stdout
        assert "sent to fill replicas: updates" in shown
        assert "m2 keeps 2 segments" in shown
        with connected(cluster) as client:
            assert held(client, "orders") == ENTRIES | missed

        # All of them end, and one does not come back.
        cluster.kill_all()
        first = cluster.spawn("m1")
        second = cluster.spawn("m2")
        until(
            lambda: (
                "is restored reason=for members" in cluster.said(first)
                and ": m3. Start" in cluster.said(first)
            )
        )
        told = cluster.holdfast("cluster", "safe", "-a", first.client_address)
        assert told.returncode == 1
        assert "for members that were in the cluster last and may hold acknowledged writes: m3" in told.stdout
        assert cluster.status(first).awaited_members == ["m3"]
        assert "may hold acknowledged writes: m3" in cluster.holdfast("status", first.client_address).stdout
        accepted = cluster.holdfast("cluster", "accept-loss", "--yes", "-a", first.client_address)
        assert accepted.returncode == 0, accepted.stderr
        cluster.wait_ready([first, second])
        cluster.wait_safe()
        with connected(cluster) as client:
            # Each entry had two copies, on two of three members: none is gone.
            assert held(client, "orders") == ENTRIES | missed
            client.get_map("orders").blocking().set(0, "newer")
        cluster.boot("m3")
        cluster.wait_settled()
        assert cluster.status().awaited_members == []
        with connected(cluster) as client:
            assert held(client, "orders") == ENTRIES | missed | {0: "newer"}
        same_everywhere(cluster)


# -- what is refused


def refused(cluster: Keepers, member: ManagedMember, *words: str) -> None:
    """It has ended with status 2, and says why."""
    assert cluster.ended(member) == 2, cluster.said(member)
    for word in words:
        assert word in cluster.said(member)


@pytest.mark.slow
def test_what_is_refused(tmp_path: Path) -> None:
    with Keepers(tmp_path / "ours", 2) as cluster:
        fill(cluster, "orders")
        mine, old, copy = (str(cluster.directory("m2")), tmp_path / "old", tmp_path / "copy")
        elsewhere: dict[str, object] = {"member__member_port": 0, "member__client_port": 0}

        shutil.copytree(mine, copy)
        copied = str(copy)
        another = cluster.spawn("m2", **elsewhere)
        renamed = cluster.spawn("m1", **elsewhere, persistence__directory=copied)
        refused(cluster, another, mine, "another process uses it")
        why = "persistence.directory belongs to the member 'm2', and this one is 'm1' (member.name)"
        refused(cluster, renamed, why)
        refused(
            cluster,
            cluster.spawn("m2", **elsewhere, persistence__directory=copied),
            "member m2 is running with the same files",
        )
        # The refused copy was opened once more, and it is no newer for that.
        cluster.kill(cluster.running("m2"))
        shutil.rmtree(copy)
        shutil.copytree(mine, old)
        cluster.boot("m2")
        cluster.wait_safe()
        cluster.drain(cluster.running("m2"))
        refused(cluster, cluster.spawn("m2", persistence__directory=str(old)), "these files are an old copy")
        cluster.boot("m2")
        lite = cluster.spawn(
            "m2", **elsewhere, member__name="lite", member__lite=True, persistence__directory=""
        )
        cluster.wait_ready([lite])
        promoted = cluster.holdfast("member", "promote", f"{HOST}:{_client_port(cluster, lite)}")
        assert promoted.returncode == 1
        assert "maps.default.journal is set, and this member has no files open" in promoted.stderr
        with Keepers(tmp_path / "theirs", 1) as other:
            seeds = [f"{HOST}:{other.ports['m1'][0]}"]
            stranger = cluster.running("m2")
            cluster.kill(stranger)
            refused(cluster, cluster.spawn("m2", cluster__seeds=seeds), "you hold data of another cluster")


def _client_port(cluster: Keepers, member: ManagedMember) -> int:
    return int(cluster.said(member).split("client_port=")[1].split()[0])


# -- when a disk fails


def test_a_full_disk_refuses_writes_and_a_failed_one_stops_the_member(tmp_path: Path) -> None:
    flag = tmp_path / "the disk of m3 fails"
    with Keepers(tmp_path, start=False, maps__free__journal="off", maps__free__backups=1) as cluster:
        failing = cluster.spawn("m3", command=[sys.executable, "-c", FAILING.format(flag=str(flag))])
        cluster.wait_ready([failing, *cluster.boot("m1", "m2")])
        cluster.wait_settled()
        fill(cluster, "orders")
        full = cluster.running("m2")
        with connected(cluster) as client, cluster.client("m1") as own:
            orders, value = client.get_map("orders").blocking(), "x" * 10_000
            written = dict(ENTRIES)
            # No file may become as large as a segment: the next one cannot be reserved.
            _, hard = resource.prlimit(full.pid, resource.RLIMIT_FSIZE)
            resource.prlimit(full.pid, resource.RLIMIT_FSIZE, (SEGMENT_BYTES - 1, hard))
            why = ""
            for number in range(COUNT, 2 * COUNT):
                try:
                    orders.set(number, value)
                except IllegalStateError as error:
                    why, refused_key = str(error), number
                    break
                written[number] = value
            assert "the disk of member m2 is full; make room there" in why
            until(lambda: all(status.full_disks == ["m2"] for status in cluster.statuses().values()))
            assert cluster.statuses()["m2"].files.full is True
            assert "disk full: m2" in cluster.holdfast("status", full.client_address).stdout
            with pytest.raises(NoRoom, match="disk of member m2 is full"):
                own.set("orders", to_stored(refused_key), to_stored(value))
            assert held(client, "orders") == written
            client.get_map("free").blocking().put_all(ENTRIES)
            with connected(cluster) as another:
                assert held(another, "orders") == written
            resource.prlimit(full.pid, resource.RLIMIT_FSIZE, (hard, hard))
            until(lambda: not any(status.full_disks for status in cluster.statuses().values()))
            orders.set(refused_key, value)
            written[refused_key] = value
            assert held(client, "orders") == written

            flag.touch()
            with contextlib.suppress(TargetDisconnectedError):
                orders.put_all(ENTRIES)
            assert cluster.ended(failing) == 70
            assert "this member stops" in cluster.said(failing)
            assert ": [Errno 5] Input/output error" in cluster.said(failing)
            cluster.wait_safe()
            assert held(client, "orders") == written
        flag.unlink()
        cluster.boot("m3")
        cluster.kill_all()
        cluster.boot(*cluster.names)
        with connected(cluster) as client:
            assert {
                number: found for number, found in held(client, "orders").items() if number in written
            } == written
        same_everywhere(cluster)


def flip(file: Path, place: int) -> None:
    """One byte of a file is another one."""
    data = bytearray(file.read_bytes())
    data[place] ^= 0xFF
    file.write_bytes(data)


def damage_journal(cluster: Keepers, name: str) -> str:
    """Flip a byte in the middle of what the last segment of this member holds; answers its name."""
    last = max(cluster.directory(name).glob("j*.seg"))
    flip(last, len(last.read_bytes().rstrip(b"\0")) // 2)
    return last.name


def test_damaged_files_are_found_and_mended_and_nothing_wrong_is_served(tmp_path: Path) -> None:
    with Keepers(
        tmp_path, persistence__segment_bytes=65_536, persistence__checkpoint_bytes=65_536
    ) as cluster:
        fill(cluster, "orders")
        with connected(cluster) as client:
            orders = client.get_map("orders").blocking()
            for number in range(COUNT):
                orders.set(number, LONG)
            orders.put_all(ENTRIES)
        until(lambda: all(status.files.checkpoints_written for status in cluster.statuses().values()))
        cluster.kill_all()

        whole = cluster.holdfast("journal", "verify", str(cluster.directory("m1")))
        assert whole.returncode == 0, whole.stdout
        shown = cluster.holdfast("journal", "list", str(cluster.directory("m1")))
        assert shown.returncode == 0
        assert ".seg" in shown.stdout
        printed = cluster.holdfast(
            "journal", "print", str(cluster.directory("m1")), "--map", "orders", "--limit", "3"
        )
        assert printed.returncode == 0
        assert "orders" in printed.stdout
        checkpoints = sorted(cluster.directory("m1").glob("*.parquet"))
        table = pyarrow.parquet.read_table(checkpoints[-1])
        assert table.column_names == ["map", "key", "value", "ttl_ms", "max_idle_ms", "key_hash"]

        for file in checkpoints:
            flip(file, file.stat().st_size // 2)
        segment = damage_journal(cluster, "m1")
        assert cluster.holdfast("journal", "verify", str(cluster.directory("m1"))).returncode == 1
        rarely: dict[str, object] = {"persistence__checkpoint_bytes": 1 << 30}
        damaged = cluster.boot(*cluster.names, **rarely)[0]
        assert checkpoints[-1].name in cluster.said(damaged)
        assert segment in cluster.said(damaged)
        assert "it may be that not all of it is here" in cluster.said(damaged)
        cluster.wait_settled()
        with connected(cluster) as client:
            assert held(client, "orders") == ENTRIES
            for number in range(COUNT):
                client.get_map("orders").blocking().set(number, LONG)
        same_everywhere(cluster)

        # Both copies of some partitions: nobody can prove to hold everything, so they wait.
        cluster.kill_all()
        for name in ("m1", "m2"):
            damage_journal(cluster, name)
        started = [cluster.spawn(name) for name in cluster.names]
        until(lambda: "without_a_copy=" in cluster.said(started[0]))
        told = cluster.holdfast("cluster", "safe", "-a", started[0].client_address)
        assert told.returncode == 1
        assert "of 2 copies" in told.stdout
        accepted = cluster.holdfast("cluster", "accept-loss", "--yes", "-a", started[0].client_address)
        assert accepted.returncode == 0, accepted.stderr
        cluster.wait_ready(started)
        cluster.wait_safe()
        with connected(cluster) as client:
            found = held(client, "orders")
            assert found
            assert all(value in (ENTRIES[number], LONG) for number, value in found.items())
