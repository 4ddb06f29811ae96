"""The official Python client, unchanged, against real member processes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Self
from uuid import uuid4

import hazelcast
import pytest
from hazelcast.errors import HazelcastError, IllegalArgumentError, TransactionError, UnsupportedOperationError
from hazelcast.predicate import sql, true
from hazelcast.projection import identity
from hazelcast.serialization.api import CompactReader, CompactSerializer, CompactWriter
from tests.interop import strikes

from holdfast.core.model.keys import partition_of
from holdfast_lab.processes.local_cluster import LocalCluster

pytestmark = [
    pytest.mark.interop,
    # The client leaves its sockets to the garbage collector.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

NO_END = (1 << 63) - 1


@contextmanager
def connected(cluster: LocalCluster, **options: Any) -> Iterator[hazelcast.HazelcastClient]:
    """A client that knows every member of the cluster."""
    options.setdefault("cluster_members", cluster.client_addresses())
    client = hazelcast.HazelcastClient(cluster_connect_timeout=120, **options)
    try:
        yield client
    finally:
        client.shutdown()


@pytest.fixture(scope="module")
def cluster(sockets: str) -> Iterator[LocalCluster]:
    """Three members that no test may harm, with either kind of sockets."""
    with LocalCluster(3, sockets) as running:
        running.wait_settled()
        yield running


@pytest.fixture(scope="module", params=["smart", "unisocket"])
def client(request: pytest.FixtureRequest, cluster: LocalCluster) -> Iterator[hazelcast.HazelcastClient]:
    """Once talking to all members at the same time, once to a single one which must forward."""
    with connected(cluster, smart_routing=request.param == "smart") as found:
        yield found


@pytest.fixture
def flights(client: hazelcast.HazelcastClient) -> Iterator[Any]:
    """An empty map of its own."""
    found = client.get_map(f"flights-{uuid4()}").blocking()
    yield found
    found.destroy()


def eventually(question: Callable[[], Any], wanted: Any, seconds: float = 120.0) -> None:
    """Wait until the answer is the wanted one."""
    deadline = time.monotonic() + seconds
    while (answer := question()) != wanted and time.monotonic() < deadline:
        time.sleep(0.02)
    assert answer == wanted


# -- each call


def test_reads_and_writes_of_one_key(flights: Any) -> None:
    assert flights.get("UA1545") is None
    assert flights.put("UA1545", 2) is None
    assert flights.put("UA1545", 4) == 2
    flights.set("UA1545", {"delay": 11})  # pickled by the client, and only bytes for the members
    assert flights.get("UA1545") == {"delay": 11}
    assert flights.contains_key("UA1545") is True
    assert flights.contains_key("AA1141") is False
    assert flights.remove("UA1545") == {"delay": 11}
    assert flights.remove("UA1545") is None
    flights.put_transient("UA1545", 1)
    flights.delete("UA1545")
    flights.delete("UA1545")
    assert flights.size() == 0


def test_conditional_writes(flights: Any) -> None:
    assert flights.replace("k", 1) is None
    assert flights.put_if_absent("k", 1) is None
    assert flights.put_if_absent("k", 2) == 1
    assert flights.replace("k", 3) == 1
    assert flights.replace_if_same("k", 1, 4) is False
    assert flights.replace_if_same("k", 3, 4) is True
    assert flights.remove_if_same("k", 3) is False
    assert flights.remove_if_same("k", 4) is True
    assert flights.try_put("k", 5, timeout=1) is True
    assert flights.try_remove("k", timeout=1) is True
    assert flights.try_remove("k", timeout=1) is False
    flights.set("k", 6)
    assert flights.evict("k") is True
    assert flights.evict("k") is False


def test_whole_maps(flights: Any) -> None:
    assert flights.is_empty() is True
    entries = {number: f"flight {number}" for number in range(500)}
    flights.put_all(entries)
    assert flights.size() == 500
    assert flights.is_empty() is False
    assert flights.get_all(list(range(490, 510))) == {number: entries[number] for number in range(490, 500)}
    assert set(flights.key_set()) == set(entries)
    assert sorted(flights.values()) == sorted(entries.values())
    assert dict(flights.entry_set()) == entries
    assert set(flights.key_set(true())) == set(entries)
    assert flights.contains_value("flight 7") is True
    assert flights.contains_value("flight 777") is False
    flights.clear()
    assert flights.size() == 0
    flights.put_all(entries)
    flights.evict_all()
    assert flights.is_empty() is True
    flights.flush()


def test_keys_of_every_type(flights: Any) -> None:
    keys = [1, -5, 2.5, "text", b"bytes", True, None.__class__.__name__, [1, 2], uuid4(), (1, "tuple")]
    for number, key in enumerate(keys):
        flights.set(key, number)
    assert [flights.get(key) for key in keys] == list(range(len(keys)))


def test_a_large_value(flights: Any) -> None:
    value = "x" * 3_000_000
    flights.set("large", value)
    assert flights.get("large") == value


def test_a_value_above_the_limit_is_refused_with_the_limit(flights: Any) -> None:
    with pytest.raises(IllegalArgumentError, match=r"limits\.value_bytes"):
        flights.set("larger", "x" * 5_000_000)
    assert flights.get("larger") is None


def test_time_to_live(flights: Any) -> None:
    flights.set("short", 1, ttl=3)
    flights.put("idle", 1, ttl=60, max_idle=2)
    flights.put_if_absent("long", 1, ttl=60)
    flights.set("turned", 1)
    assert flights.set_ttl("turned", 2) is True
    assert flights.set_ttl("none", 1) is False
    time.sleep(3.5)
    assert [flights.get(key) for key in ("short", "idle", "turned", "long")] == [None, None, None, 1]
    assert flights.size() == 1


def test_entry_view(flights: Any) -> None:
    flights.set("plain", 1)
    flights.set("timed", 2, ttl=100, max_idle=50)
    plain, timed = flights.get_entry_view("plain"), flights.get_entry_view("timed")
    assert flights.get_entry_view("none") is None
    assert (plain.key, plain.value, plain.ttl, plain.max_idle) == ("plain", 1, NO_END, NO_END)
    assert (timed.key, timed.value, timed.ttl, timed.max_idle) == ("timed", 2, 100_000, 50_000)
    assert abs(timed.expiration_time - (time.time() * 1000 + 50_000)) < 10_000
    assert plain.expiration_time == NO_END
    flights.put_all({f"other {number}": number for number in range(1000)})
    assert flights.get_entry_view("plain").version == plain.version, "only a change of this entry counts"
    flights.set("plain", 2)
    assert flights.get_entry_view("plain").version != plain.version


# -- listeners


class Diary:
    """What a listener heard."""

    def __init__(self) -> None:
        self.lines: list[tuple[Any, ...]] = []

    def writer(self, kind: str) -> Callable[[Any], None]:
        return lambda event: self.lines.append((kind, event.key, event.value, event.old_value))

    def cleared(self, event: Any) -> None:
        self.lines.append(("cleared", event.number_of_affected_entries))

    def listen(self, flights: Any, **options: Any) -> str:
        kinds = ("added", "updated", "removed", "evicted", "expired")
        writers = {f"{kind}_func": self.writer(kind) for kind in kinds}
        found: str = flights.add_entry_listener(**writers, clear_all_func=self.cleared, **options)
        return found


def test_entry_listeners_hear_each_change_once(client: hazelcast.HazelcastClient, flights: Any) -> None:
    full, bare, single = Diary(), Diary(), Diary()
    registration = full.listen(flights, include_value=True)
    bare.listen(flights)
    single.listen(flights, key="b", include_value=True)
    flights.put("a", 1)
    flights.put("a", 2)
    flights.remove("a")
    flights.set("b", 3)
    flights.evict("b")
    flights.set("c", 4, ttl=0.3)
    eventually(lambda: len(full.lines), 7)
    flights.put_all({number: number for number in range(5)})
    flights.clear()
    eventually(lambda: len(full.lines), 13)
    first = [
        ("added", "a", 1, None),
        ("updated", "a", 2, 1),
        ("removed", "a", None, 2),
        ("added", "b", 3, None),
        ("evicted", "b", None, 3),
        ("added", "c", 4, None),
        ("expired", "c", None, 4),
    ]
    # Between members there is no order: only changes of one key have one.
    for key in "abc":
        assert [line for line in full.lines if line[1] == key] == [line for line in first if line[1] == key]
    assert full.lines[-1] == ("cleared", 5)
    eventually(lambda: len(bare.lines), 13)
    assert sorted(str(line) for line in bare.lines[:7]) == sorted(
        str((*line[:2], None, None)) for line in first
    )
    assert [line for line in single.lines if line[0] != "cleared"] == first[3:5]
    assert flights.remove_entry_listener(registration) is True
    flights.put("a", 1)
    eventually(lambda: len(bare.lines), 14)
    assert len(full.lines) == 13


def test_a_listener_hears_of_changes_by_others(cluster: LocalCluster, flights: Any) -> None:
    diary = Diary()
    diary.listen(flights, include_value=True)
    with connected(cluster) as other:
        theirs = other.get_map(flights.name).blocking()
        for number in range(200):
            theirs.set(number, number)
    eventually(lambda: len(diary.lines), 200)
    assert sorted(line[1] for line in diary.lines) == list(range(200))


# -- routing


def test_the_client_learns_members_and_owners(cluster: LocalCluster) -> None:
    with connected(cluster) as client:
        members = {str(member.uuid): member for member in client.cluster_service.get_members()}
        assert set(members) == {member.uuid for member in cluster.members}
        service = client.partition_service
        assert service.get_partition_count() == 271
        owners = [str(service.get_partition_owner(partition)) for partition in range(271)]
        shares = [owners.count(uuid) for uuid in members]
        assert sum(shares) == 271
        assert max(shares) - min(shares) <= 1
        eventually(lambda: len(client._connection_manager.active_connections), 3)
        addresses = {
            str(connection.remote_address)
            for connection in client._connection_manager.active_connections.values()
        }
        assert len(addresses) == 3


def test_keys_go_where_the_members_say_they_belong(client: hazelcast.HazelcastClient) -> None:
    serialization = client._serialization_service
    for key in ("text", 5, 2.5, "ä" * 50, b"bytes", -7):
        data = serialization.to_data(key)
        assert client.partition_service.get_partition_id(key) == partition_of(bytes(data.buffer[4:]), 0, 271)


def test_a_new_member_is_noticed() -> None:
    with LocalCluster(members=1) as cluster, connected(cluster) as client:
        flights = client.get_map("flights").blocking()
        flights.put_all({number: number for number in range(1000)})
        newcomer = cluster.start_member()
        eventually(
            lambda: (
                {str(m.uuid) for m in client.cluster_service.get_members()}
                == {m.uuid for m in cluster.members}
            ),
            True,
        )
        cluster.wait_settled()
        service = client.partition_service
        eventually(lambda: {str(service.get_partition_owner(p)) for p in range(271)} >= {newcomer.uuid}, True)
        assert flights.size() == 1000
        assert flights.get_all(list(range(1000))) == {number: number for number in range(1000)}


# -- loss of members


@dataclass
class Writer:
    """Writes numbers under its own keys until told to stop, and knows what was acknowledged."""

    client: hazelcast.HazelcastClient

    def __post_init__(self) -> None:
        self.acknowledged: dict[str, int] = {}
        self.unknown: dict[str, int] = {}
        self.stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.finish()

    def finish(self) -> None:
        """Nothing is written any more, and the last answer is known."""
        self.stop.set()
        self._thread.join(60)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        flights = self.client.get_map("written").blocking()
        number = 0
        while not self.stop.wait(0.002):
            number += 1
            key = f"key {number % 97}"
            try:
                flights.set(key, number)
            except (HazelcastError, OSError):
                self.unknown[key] = number
            else:
                self.acknowledged[key] = number
                self.unknown.pop(key, None)


@pytest.mark.parametrize("smart", [True, False], ids=["smart", "unisocket"])
def test_the_loss_of_the_member_it_is_connected_to(smart: bool) -> None:
    with LocalCluster(members=3) as cluster:
        cluster.wait_settled()
        addresses = cluster.client_addresses()
        with (
            connected(cluster, cluster_members=addresses, smart_routing=smart) as client,
            Writer(client) as writer,
        ):
            eventually(lambda: len(writer.acknowledged) > 50, True)
            (connection, *_) = client._connection_manager.active_connections.values()
            lost = str(connection.remote_uuid)
            victim = next(member for member in cluster.members if member.uuid == lost)
            cluster.kill(victim)
            count = max(writer.acknowledged.values())
            eventually(lambda: max(writer.acknowledged.values()) > count + 300, True, 60)
            writer.finish()
            eventually(
                lambda: (
                    {str(m.uuid) for m in client.cluster_service.get_members()}
                    == {m.uuid for m in cluster.alive}
                ),
                True,
                60,
            )
            flights = client.get_map("written").blocking()
            for key, number in writer.acknowledged.items():
                assert flights.get(key) in {number, writer.unknown.get(key)}, key


@pytest.mark.slow
@pytest.mark.parametrize("smart", [True, False], ids=["smart", "unisocket"])
def test_members_are_killed_and_drained(smart: bool) -> None:
    with LocalCluster(members=strikes.MEMBERS) as cluster:
        cluster.wait_settled()
        with connected(cluster, smart_routing=smart) as client, Writer(client) as writer:
            eventually(lambda: len(writer.acknowledged) > 50, True)
            strikes.kill_and_drain(cluster, lambda: None)
            count = max(writer.acknowledged.values())
            eventually(lambda: max(writer.acknowledged.values()) > count + 300, True, 60)
            writer.finish()
            flights = client.get_map("written").blocking()
            for key, number in writer.acknowledged.items():
                assert flights.get(key) in {number, writer.unknown.get(key)}, key


def test_listeners_survive_the_loss_of_a_member() -> None:
    with LocalCluster(members=3) as cluster:
        cluster.wait_settled()
        with connected(cluster) as client:
            flights = client.get_map("flights").blocking()
            diary = Diary()
            diary.listen(flights, include_value=True)
            cluster.kill(cluster.members[0])
            cluster.wait_safe()
            eventually(lambda: len(client.cluster_service.get_members()), 2, 60)
            flights.put_all({number: number for number in range(100)})
            eventually(lambda: len({line[1] for line in diary.lines}), 100)


# -- compact objects


@dataclass
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


def test_schemas_of_compact_objects_survive_the_members_they_came_through() -> None:
    options = {"compact_serializers": [PlaneSerializer()]}
    with LocalCluster(members=2) as cluster:
        cluster.wait_settled()
        with connected(cluster, **options) as client:
            client.get_map("planes").blocking().put("N14228", Plane("N14228", 149))
        for _ in range(2):
            cluster.start_member()
            cluster.wait_settled()
            cluster.kill(cluster.alive[0])
            cluster.wait_safe()
        with connected(cluster, **options) as client:
            assert client.get_map("planes").blocking().get("N14228") == Plane("N14228", 149)


# -- what is not there


def test_other_operations_are_refused_by_name(client: hazelcast.HazelcastClient, flights: Any) -> None:
    for call, name in (
        (lambda: flights.add_interceptor("code"), "Map.addInterceptor is not supported by Holdfast"),
        (lambda: flights.add_index(["a"]), "Map.addIndex is not supported by Holdfast"),
        (
            lambda: flights.key_set(sql("this > 1")),
            "Map.keySetWithPredicate with a predicate other than TruePredicate",
        ),
        (lambda: flights.project(identity()), "Map.project is not supported by Holdfast"),
        (lambda: client.get_executor("m"), "executorService"),
        (lambda: client.sql.execute("SELECT 1").result(), "Sql.execute is not supported by Holdfast"),
    ):
        with pytest.raises(HazelcastError, match=name) as refused:
            call()
        assert "UnsupportedOperation" in str(refused.value) or isinstance(
            refused.value, UnsupportedOperationError
        )
    flights.set("still", "well")
    assert flights.get("still") == "well"


def test_transactions_are_done_whole_or_not_at_all(client: hazelcast.HazelcastClient, flights: Any) -> None:
    other = client.get_map(f"other-{uuid4()}").blocking()
    flights.put_all({"a": 1, "b": 2, "gone": 3})
    with client.new_transaction(timeout=10) as transaction:
        mine, second = transaction.get_map(flights.name), transaction.get_map(other.name)
        assert mine.put("a", 10) == 1
        assert mine.get_for_update("b") == 2
        assert mine.remove("gone") == 3
        assert mine.put_if_absent("b", 5) == 2
        assert mine.replace_if_same("b", 2, 20)
        assert not mine.delete("nowhere")
        assert mine.contains_key("a")
        second.set("c", "new")
        assert mine.size() == flights.size() - 1
        assert flights.get("a") == 1
        assert [flights.is_locked(key) for key in ("a", "b", "elsewhere")] == [True, True, False]
    assert (flights.get("a"), flights.get("b"), flights.get("gone"), other.get("c")) == (10, 20, None, "new")
    assert not flights.is_locked("a"), "its lock has gone with the transaction"
    with pytest.raises(ZeroDivisionError), client.new_transaction() as transaction:  # noqa: PT012
        transaction.get_map(flights.name).set("a", 0)
        raise ZeroDivisionError
    assert flights.get("a") == 10
    late = client.new_transaction(timeout=1)
    late.begin()
    late.get_map(flights.name).set("a", 0)
    eventually(lambda: flights.try_put("a", 11), True)
    with pytest.raises(TransactionError):
        late.commit()
    assert flights.get("a") == 11


def test_destroyed_maps_are_empty_and_told(client: hazelcast.HazelcastClient) -> None:
    seen: list[tuple[str, str]] = []
    client.add_distributed_object_listener(lambda event: seen.append((event.event_type, event.name))).result()
    name = f"gone-{uuid4()}"
    flights = client.get_map(name).blocking()
    flights.set(1, 1)
    assert name in [found.name for found in client.get_distributed_objects()]
    flights.destroy()
    assert client.get_map(name).blocking().size() == 0
    eventually(lambda: [kind for kind, told in seen if told == name][:2], ["CREATED", "DESTROYED"])
