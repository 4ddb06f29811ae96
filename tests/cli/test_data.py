"""`holdfast data`: single entries of maps, typed and shown, by a real member."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from click.testing import CliRunner, Result
from tests.server.memory_cluster import MemoryCluster

from holdfast.cli.main import holdfast
from holdfast.cli.typed_values import TYPES, plain_of, stored_of, text_of, type_of
from holdfast.client.blocking import Client
from holdfast.core.collections.collection_steps import decide_step
from holdfast.core.model.collections import (
    CollectionKind,
    CollectionStep,
    StepKind,
    encode_step,
    partition_of_name,
)
from holdfast.core.model.decisions import Decision
from holdfast.core.model.operations import Op, Request
from holdfast.errors import ConfigError
from holdfast.wire.values import Serialized, from_stored, to_stored

TYPED = {
    "string": ("straße", "straße"),
    "byte": ("-7", -7),
    "short": ("300", 300),
    "int": ("-70000", -70_000),
    "long": ("7", 7),
    "big_int": ("123456789012345678901", 123_456_789_012_345_678_901),
    "double": ("1.5", 1.5),
    "bool": ("True", True),
    "json": ('{"a":  [1, null]}', {"a": [1, None]}),
    "uuid": ("12345678-1234-5678-1234-567812345678", "12345678-1234-5678-1234-567812345678"),
    "decimal": ("1.250", "1.250"),
    "date": ("2024-02-29", "2024-02-29"),
    "datetime": ("2024-02-29T12:00:00+01:00", "2024-02-29T12:00:00+01:00"),
    "bytes": ("00ff", "00ff"),
}


def test_every_type_is_tried() -> None:
    assert {*TYPED, "stored"} == set(TYPES)


@pytest.mark.parametrize("kind", TYPED)
def test_a_text_becomes_a_value_of_its_type_and_is_shown_as_it_was(kind: str) -> None:
    text, plain = TYPED[kind]
    stored = stored_of(text, kind, "the key")
    assert type_of(stored) == kind
    assert plain_of(stored) == plain
    assert json.loads(json.dumps(plain_of(stored))) == plain
    assert text_of(plain_of(stored)) == (
        plain if isinstance(plain, str) else json.dumps(plain, separators=(",", ":"))
    )


def test_what_is_written_is_what_clients_write() -> None:
    assert stored_of("k", "string", "the key") == to_stored("k")
    assert stored_of("7", "int", "the key") == to_stored(7)
    assert stored_of('{"a":1}', "json", "the key") == to_stored({"a": 1})
    assert stored_of("7", "long", "the key") != to_stored(7), "another key"
    assert from_stored(stored_of("7", "long", "the key")) == 7
    assert stored_of(to_stored(7).hex(), "stored", "the key") == to_stored(7)


def test_what_only_its_writer_can_read_is_shown_as_digits() -> None:
    stored = (4711).to_bytes(4, "big") + b"\x01\x02"
    assert isinstance(from_stored(stored), Serialized)
    assert (type_of(stored), plain_of(stored)) == ("type 4711", stored.hex())
    broken = to_stored(7)[:5]
    assert plain_of(broken) == broken.hex()


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("int", "99999999999"),
        ("int", "x"),
        ("json", "{"),
        ("bool", "1"),
        ("bytes", "0"),
        ("date", "soon"),
        ("stored", "00"),
    ],
)
def test_a_text_that_is_no_such_value_is_refused(kind: str, text: str) -> None:
    with pytest.raises(ConfigError, match=f"the key {text!r} is no {kind}: give "):
        stored_of(text, kind, "the key")


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with MemoryCluster(2, 7) as running:
        yield running.addresses()


def run(address: str, *arguments: str) -> Result:
    return CliRunner().invoke(holdfast, ["data", *arguments, "-a", address])


def test_entries_are_put_got_shown_and_removed(address: str) -> None:
    put = ["put", "orders", "4711", '{"total": 3}', "--key-type", "int", "--value-type", "json"]
    assert run(address, *put).stdout == "stored\n"
    assert run(address, *put).stdout == 'stored, instead of {"total":3}\n'
    with Client(address) as client:
        assert client.get("orders", to_stored(4711)) == to_stored({"total": 3})
    got = run(address, "get", "orders", "4711", "--key-type", "int")
    assert (got.exit_code, got.stdout) == (0, '{"total":3}\n')
    got = run(address, "get", "orders", "4711")
    assert (got.exit_code, got.stdout) == (1, "")
    assert got.stderr == "map 'orders' has no string key '4711'\n"
    assert run(address, "put", "orders", "a", "text").exit_code == 0
    assert run(address, "size", "orders").stdout == "2\n"
    assert sorted(run(address, "keys", "orders").stdout.splitlines()) == ["4711", "a"]
    assert sorted(run(address, "scan", "orders").stdout.splitlines()) == ['4711\t{"total":3}', "a\ttext"]
    told = [json.loads(line) for line in run(address, "scan", "orders", "--json").stdout.splitlines()]
    assert {"key": 4711, "key_type": "int", "value": {"total": 3}, "value_type": "json"} in told
    some = run(address, "keys", "orders", "--limit", "1")
    assert (len(some.stdout.splitlines()), some.stderr) == (1, "more than 1: see --limit\n")
    assert run(address, "remove", "orders", "a").stdout == "removed: text\n"
    assert run(address, "remove", "orders", "a").exit_code == 1
    assert "orders" in run(address, "maps").stdout


def test_a_name_that_is_no_maps_is_an_error(address: str) -> None:
    run(address, "put", "orders", "a", "text")
    for command in (["get", "order", "k"], ["size", "order"], ["scan", "order"], ["remove", "order", "k"]):
        told = run(address, *command)
        assert told.exit_code == 2, told.output
        assert "there is no map 'order' with entries: did you mean 'orders'?" in told.stderr


def test_a_key_of_a_wrong_type_is_refused_before_anybody_is_asked() -> None:
    told = run("127.0.0.1:1", "get", "m", "x", "--key-type", "int")
    assert told.exit_code == 2
    assert "the key 'x' is no int: give a whole number of 32 bits" in told.stderr


# -- structures


def store(cluster: MemoryCluster, kind: CollectionKind, name: str, *items: str) -> None:
    partition = partition_of_name(name, 7)
    value = encode_step(CollectionStep(StepKind.ADD))
    request = Request(
        Op.ADD_TO_COLLECTION, kind.map_of(name), [partition], value=value, items=list(map(to_stored, items))
    )
    decision = decide_step(None, request)
    assert isinstance(decision, Decision)

    def deed() -> None:
        owner = cluster.owner(partition)
        for update in sorted(decision.updates, key=lambda one: one.value):
            owner.lane.set(owner.held[partition], request.map, update.key, update.value, 0, 0, 0)

    cluster.do(deed)


def test_structures_are_listed_and_shown_in_their_order() -> None:
    with MemoryCluster(2, 7) as cluster:
        address = cluster.addresses()
        told = run(address, "items", "queue", "jobs")
        assert told.exit_code == 2
        assert "there is no queue 'jobs' with items: there are none" in told.stderr
        names = [f"job {number}" for number in range(30, 0, -1)]
        store(cluster, CollectionKind.QUEUE, "jobs", *names)
        store(cluster, CollectionKind.SET, "seen", "b", "a")
        store(cluster, CollectionKind.LIST, "log", "y", "x")
        listed = json.loads(run(address, "structures", "--json").stdout)
        assert [(each["kind"], each["name"], each["items"]) for each in listed["structures"]] == [
            ("list", "log", 2),
            ("queue", "jobs", 30),
            ("set", "seen", 2),
        ]
        every = run(address, "items", "queue", "jobs", "--limit", "0")
        assert (every.exit_code, every.stdout.splitlines()) == (0, names)
        some = run(address, "items", "queue", "jobs", "--limit", "2")
        assert (some.stdout, some.stderr) == ("job 30\njob 29\n", "more than 2: see --limit\n")
        assert run(address, "items", "set", "seen").stdout == "b\na\n"
        assert run(address, "items", "list", "log").stdout == "y\nx\n"
        other = run(address, "items", "list", "jobs")
        assert "there is no list 'jobs' with items: there are list log, queue jobs, set seen" in other.stderr
        assert "jobs" not in run(address, "maps").stdout
