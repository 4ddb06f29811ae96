"""Users with roles, on real members: what each may do, asked with the official Python client and the own protocol."""

from __future__ import annotations

import hashlib
import json
import socket
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import hazelcast
import pytest
from hazelcast.errors import AccessControlError, HazelcastError
from hazelcast.security import BasicTokenProvider

from holdfast.actions.set_state import SetState
from holdfast.actions.show_status import ShowStatus
from holdfast.actions.shut_down import ShutDown
from holdfast.client.action_messages import request_of
from holdfast.client.blocking import Client
from holdfast.client.connection import Connection, Credentials
from holdfast.client_core.routing import parse_addresses
from holdfast.config.verifiers import PasswordVerifier, token_verifier
from holdfast.core.model.ids import Address
from holdfast.core.model.operations import Op, Request
from holdfast.core.model.views import ClusterState
from holdfast.errors import Denied
from holdfast.wire import own
from holdfast_lab.processes.local_cluster import LocalCluster

pytestmark = [
    pytest.mark.interop,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

TOKEN = "a token with more than 24 characters"


def cheap_verifier(password: str) -> PasswordVerifier:
    """A hundredth of the usual cost, which every login and every worker that collects these tests would pay."""
    n, r, p, salt = 1024, 8, 1, bytes(16)
    return PasswordVerifier(
        n, r, p, salt, hashlib.scrypt(password.encode(), salt=salt, n=n, r=r, p=p, dklen=32)
    )


CONFIG = f"""
[cluster]
name = "ours"

[security]
audit_file = "AUDIT"

[users.root]
passwords = ["the root password", "the next root password"]
roles = ["admin"]

[users.reader]
verifiers = ["{cheap_verifier("the reader's password")}"]
roles = ["reader"]

[users.writer]
passwords = ["the writer's password"]
verifiers = ["{token_verifier(TOKEN.encode())}"]
roles = ["writer", "transactions"]

[users.nobody]
passwords = ["nobody's password"]

[roles.reader]
rules = ["map flights-* read listen"]

[roles.writer]
rules = ["map flights-* read put remove", "map drop-box put"]

[roles.transactions]
rules = ["transaction * use"]
"""
READER = ("reader", "the reader's password")
WRITER = ("writer", "the writer's password")
ROOT = ("root", "the root password")


@pytest.fixture(scope="module")
def audit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("audit") / "audit.jsonl"


@pytest.fixture(scope="module")
def ours(audit: Path) -> Iterator[LocalCluster]:
    """Two members with users."""
    with LocalCluster(members=2, config=CONFIG.replace("AUDIT", str(audit))) as running:
        yield running


class Clients:
    """Official clients, each connected once."""

    def __init__(self, cluster: LocalCluster) -> None:
        self._cluster = cluster
        self._made: dict[str, Any] = {}

    def connect(self, user: str, password: str, *, patience_s: float = 120, **options: Any) -> Any:
        return hazelcast.HazelcastClient(
            cluster_members=self._cluster.client_addresses(),
            cluster_name="ours",
            creds_username=user,
            creds_password=password,
            cluster_connect_timeout=patience_s,
            **options,
        )

    def of(self, who: tuple[str, str]) -> Any:
        if who[0] not in self._made:
            self._made[who[0]] = self.connect(*who)
        return self._made[who[0]]

    def close(self) -> None:
        for client in self._made.values():
            client.shutdown()


@pytest.fixture(scope="module")
def clients(ours: LocalCluster) -> Iterator[Clients]:
    with closing(Clients(ours)) as made:
        root = made.of(ROOT)
        for name in ("flights-1", "payroll", "drop-box"):
            mine = root.get_map(name).blocking()
            mine.put_all({f"k{number}": number for number in range(20)})
        yield made


READS = {
    "get": lambda m: [m.get(f"k{number}") for number in range(20)],
    "contains_key": lambda m: m.contains_key("k1"),
    "contains_value": lambda m: m.contains_value(1),
    "get_all": lambda m: m.get_all(["k1", "k2"]),
    "size": lambda m: m.size(),
    "is_empty": lambda m: m.is_empty(),
    "key_set": lambda m: m.key_set(),
    "values": lambda m: m.values(),
    "entry_set": lambda m: m.entry_set(),
    "get_entry_view": lambda m: m.get_entry_view("k1"),
    "is_locked": lambda m: m.is_locked("k1"),
}
STORES = {
    "set": lambda m: m.set("k1", 1),
    "put_all": lambda m: m.put_all({"k1": 1}),
    "try_put": lambda m: m.try_put("k1", 1),
    "put_transient": lambda m: m.put_transient("k1", 1),
    "set_ttl": lambda m: m.set_ttl("k1", 0),
}
READS_AND_STORES = {
    "put": lambda m: m.put("k1", 1),
    "put_if_absent": lambda m: m.put_if_absent("k1", 1),
    "replace": lambda m: m.replace("k1", 1),
    "replace_if_same": lambda m: m.replace_if_same("k1", 1, 1),
}
REMOVES = {
    "delete": lambda m: m.delete("gone"),
    "remove": lambda m: m.remove("gone"),
    "remove_if_same": lambda m: m.remove_if_same("gone", 1),
    "try_remove": lambda m: m.try_remove("gone"),
    "evict": lambda m: m.evict("gone"),
}
WHOLE = {"clear": lambda m: m.clear(), "evict_all": lambda m: m.evict_all(), "destroy": lambda m: m.destroy()}
LISTENS = {"listen": lambda m: m.add_entry_listener(include_value=True, added_func=print)}
EVERY = {**READS, **STORES, **READS_AND_STORES, **REMOVES, **WHOLE, **LISTENS}


def opened(client: Any, name: str) -> Any:
    """The map, past the client's own proxy, which it would not be given."""
    return client.get_map(name).blocking()


@pytest.mark.parametrize("name", ["payroll", "__objects", "__transactions", "__schemas"])
def test_a_map_that_no_rule_names_cannot_be_opened(clients: Clients, name: str) -> None:
    for who in (READER, WRITER):
        with pytest.raises(HazelcastError) as refused:
            opened(clients.of(who), name)
        if name == "payroll":
            assert isinstance(refused.value, AccessControlError)
            assert "no rule permits anything for map 'payroll'" in str(refused.value)


@pytest.mark.parametrize("what", EVERY)
def test_who_may_read_reads_and_does_nothing_else(clients: Clients, what: str) -> None:
    flights = opened(clients.of(READER), "flights-1")
    if what in READS or what in LISTENS:
        EVERY[what](flights)
        return
    with pytest.raises(HazelcastError) as refused:
        EVERY[what](flights)
    assert isinstance(refused.value, AccessControlError)
    assert "user 'reader' may not do this" in str(refused.value)
    assert flights.size() == 20


@pytest.mark.parametrize("what", {**READS, **STORES, **READS_AND_STORES, **REMOVES, **LISTENS})
def test_who_may_only_store_is_told_no_value(clients: Clients, what: str) -> None:
    box = opened(clients.of(WRITER), "drop-box")
    if what in STORES:
        EVERY[what](box)
        return
    with pytest.raises(HazelcastError):
        EVERY[what](box)


def test_who_may_write_writes(clients: Clients) -> None:
    flights = opened(clients.of(WRITER), "flights-2")
    for deed in {**STORES, **READS_AND_STORES, **READS, **REMOVES}.values():
        deed(flights)
    with pytest.raises(AccessControlError):
        flights.destroy()
    flights.clear()


def test_transactions_need_the_map_and_the_right_to_use_them(clients: Clients) -> None:
    writer = clients.of(WRITER)
    with writer.new_transaction() as transaction:
        transaction.get_map("flights-3").put("k", 1)
    assert opened(writer, "flights-3").get("k") == 1
    transaction = writer.new_transaction()
    transaction.begin()
    for name in ("payroll", "drop-box"):
        with pytest.raises(AccessControlError):
            transaction.get_map(name).get("k1")
    with pytest.raises(AccessControlError):
        transaction.get_map("flights-3").get_for_update("k")
    transaction.rollback()
    with pytest.raises(AccessControlError):
        clients.of(READER).new_transaction().begin()


def test_lists_show_only_what_is_known(clients: Clients) -> None:
    clients.of(ROOT).get_map("flights-1")
    names = {one.name for one in clients.of(READER).get_distributed_objects()}
    assert "flights-1" in names
    assert all(name.startswith("flights-") for name in names)


def test_other_structures_are_refused(clients: Clients) -> None:
    with pytest.raises(AccessControlError, match="queue 'flights-1'"):
        clients.of(READER).get_queue("flights-1").blocking().size()


# -- who comes in


def can_come(clients: Clients, user: str, password: str, **options: Any) -> bool:
    try:
        clients.connect(user, password, **options).shutdown()
    except HazelcastError:
        return False
    return True


def test_two_passwords_are_good_at_a_time_and_a_token_too(clients: Clients, ours: LocalCluster) -> None:
    assert can_come(clients, "root", "the next root password")
    assert can_come(clients, *ROOT)
    assert can_come(clients, "nobody", "nobody's password")
    with_token = hazelcast.HazelcastClient(
        cluster_members=ours.client_addresses(),
        cluster_name="ours",
        token_provider=BasicTokenProvider(TOKEN),
        cluster_connect_timeout=120,
    )
    with closing(Closing(with_token)):
        assert opened(with_token, "flights-1").get("k1") == 1


class Closing:
    """A client that `closing` knows how to end."""

    def __init__(self, client: Any) -> None:
        self.close = client.shutdown


# -- the own protocol


def connection(ours: LocalCluster, who: tuple[str, str], *, operates: bool = False) -> Connection:
    (address,) = parse_addresses(ours.client_addresses()[:1])
    return Connection(address, Credentials("ours", *who, operates=operates), 10)


def test_the_own_protocol_refuses_in_words(ours: LocalCluster, clients: Clients) -> None:
    wire = connection(ours, WRITER)
    for question, answer, missing in (
        (request_of(wire.next_number(), ShowStatus(), 1), own.Acted, "'status' for cluster"),
        (own.AskDigests(wire.next_number(), [0]), own.Digests, "'verify' for cluster"),
        (own.Scan(wire.next_number(), "payroll", 0), own.Page, "'read' for map 'payroll'"),
        (own.Scan(wire.next_number(), "__transactions", 0), own.Page, "'read' for map '__transactions'"),
        (own.Scan(wire.next_number(), "payroll", 0, any_copy=True), own.Page, "'read' for map 'payroll'"),
        (request_of(wire.next_number(), ShutDown(), 0.01), own.Acted, "'shutdown' for cluster"),
        (own.Cut(wire.next_number(), bytes(16), ["flights-1"], [0], 10), own.CutMade, "'cut' for map"),
        (own.AskChanges(wire.next_number(), "flights-1", 0, 0, 0, 0), own.Changes, "'changes' for map"),
        (own.Execute(wire.next_number(), Request(Op.CALL, "s", [0])), own.Executed, "'call' for service 's'"),
    ):
        with pytest.raises(Denied, match=missing):
            wire.ask(question, answer)
    wire.close()


def test_the_own_client_reads_and_writes_what_it_may(ours: LocalCluster, clients: Clients) -> None:
    user, password = WRITER
    with Client(ours.client_addresses(), cluster="ours", username=user, password=password) as client:
        assert client.size("flights-1") == 20
        with pytest.raises(Denied, match="'remove' for map 'drop-box'"):
            client.clear("drop-box")
        assert client.size("flights-1") == 20


def test_a_member_forwards_for_those_it_lets(ours: LocalCluster, clients: Clients) -> None:
    """The member that the client is connected to decides, also when the partition lives on another one."""
    alone = clients.connect(*WRITER, smart_routing=False)
    with closing(Closing(alone)):
        flights, box = opened(alone, "flights-1"), opened(alone, "drop-box")
        assert [flights.get(f"k{number}") for number in range(20)] == list(range(20))
        for number in range(20):
            with pytest.raises(AccessControlError):
                box.get(f"k{number}")


# -- guessing, and the audit log


def guess(address: Address, password: str) -> float:
    """How long a wrong password took to be refused, in seconds."""
    began = time.monotonic()
    with pytest.raises(Exception, match=r"credentials|come again|ended"):
        Connection(address, Credentials("ours", "reader", password), 10)
    return time.monotonic() - began


def test_guessing_is_slowed_and_nobody_else_is_kept_out(ours: LocalCluster, clients: Clients) -> None:
    """From another address than the tests use: all of 127.0.0.0/8 is this machine."""
    (address,) = parse_addresses(ours.client_addresses()[1:2])
    original = socket.create_connection

    def from_elsewhere(where: Any, timeout: float) -> socket.socket:
        return original(where, timeout, source_address=("127.0.0.77", 0))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket, "create_connection", from_elsewhere)
        refusals = [guess(address, f"guess {number}") for number in range(7)]
    assert sum(refusals[5:]) > 0.3, "1 + 2 tenths of a second at least, and the checks"
    assert connection(ours, READER).closed is False


def test_what_has_happened_is_in_the_audit_log(ours: LocalCluster, clients: Clients, audit: Path) -> None:
    with pytest.raises(Denied):
        connection(ours, ("eve", "a secret guess"))
    operator = connection(ours, ROOT, operates=True)
    operator.ask(request_of(operator.next_number(), SetState(ClusterState.NO_MIGRATION), 5), own.Acted)
    operator.ask(request_of(operator.next_number(), SetState(ClusterState.ACTIVE), 5), own.Acted)
    operator.close()
    with pytest.raises(AccessControlError):
        opened(clients.of(READER), "payroll")
    deadline = time.monotonic() + 120
    wanted = {("login failed", "eve"), ("login", "root"), ("order", "root"), ("refused", "reader")}
    while time.monotonic() < deadline:
        content = audit.read_text(encoding="utf-8")
        lines = [json.loads(line) for line in content.splitlines() if line.endswith("}")]
        if wanted <= {(line["event"], line.get("user", "")) for line in lines}:
            break
        time.sleep(0.05)
    assert wanted <= {(line["event"], line.get("user", "")) for line in lines}
    (order, *_) = [line for line in lines if line["event"] == "order"]
    assert order["detail"] == "state state=no-migration"
    assert order["address"] == "127.0.0.1"
    assert "a secret guess" not in content
    assert audit.stat().st_mode & 0o777 == 0o600
