"""The programs of the official clients once more: through mutual TLS, as a user whom rules permit what they do."""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Iterator
from dataclasses import dataclass

import hazelcast
import pytest
from hazelcast.errors import HazelcastError
from tests.interop import recorded, strikes, test_go_client, test_java_client, test_node_client
from tests.interop.python_calls import calls, until
from tests.runtime.certificates import Authority, Shown

from holdfast.config.client_tls import ClientTls
from holdfast_lab.fuzz.secured import config_of
from holdfast_lab.processes import text_processor
from holdfast_lab.processes.local_cluster import LocalCluster

pytestmark = pytest.mark.interop

ROOT, ADA = ("root", "the password of root"), ("ada", "the password of ada")
RULES = f"""
[users.{ROOT[0]}]
passwords = ["{ROOT[1]}"]
roles = ["admin"]
[users.{ADA[0]}]
passwords = ["{ADA[1]}"]
roles = ["application"]
[roles.application]
rules = [
    "map * any", "queue * any", "list * any", "set * any", "ringbuffer * any", "topic * any", "reliable-topic * any",
    "replicated-map * any", "pn-counter * any", "flake-id-generator * any", "cardinality-estimator * any",
    "multimap * any", "cp * any", "transaction * use", "cluster * watch",
]
"""


@dataclass(frozen=True)
class Files:
    """What clients show, and whom they trust."""

    ca: str
    shown: Shown

    @property
    def tls(self) -> ClientTls:
        return ClientTls(self.ca, self.shown.certificate, self.shown.key)

    def config(self) -> str:
        return (
            config_of(self.tls).replace("[tls]", '[tls]\nclient_certificates = "required"')
            + RULES
            + text_processor.SETTINGS
        )


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    authority = Authority(tmp_path_factory.mktemp("certificates"), "ours")
    return Files(authority.file, authority.sign(also="localhost"))


@pytest.fixture(scope="module")
def secured(files: Files) -> Iterator[LocalCluster]:
    with LocalCluster(3, files.config(), user=ROOT, tls=files.tls) as running:
        running.wait_settled()
        yield running


@pytest.fixture(autouse=True)
def who(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the programs of Go, Node.js and Java read."""
    names = ("USER", "PASSWORD", "TLS_CA", "TLS_CERT", "TLS_KEY")
    told = (*ADA, files.ca, files.shown.certificate, files.shown.key)
    for name, value in zip(names, told, strict=True):
        monkeypatch.setenv(f"INTEROP_{name}", value)


def connected(cluster: LocalCluster, files: Files, *, smart: bool) -> hazelcast.HazelcastClient:
    return hazelcast.HazelcastClient(
        cluster_members=cluster.client_addresses(),
        smart_routing=smart,
        creds_username=ADA[0],
        creds_password=ADA[1],
        ssl_enabled=True,
        ssl_protocol="TLSv1_3",
        ssl_cafile=files.ca,
        ssl_certfile=files.shown.certificate,
        ssl_keyfile=files.shown.key,
        ssl_check_hostname=True,
    )


def table_of(client: str) -> recorded.Calls:
    """What the same program finds without TLS, and as one who may do everything."""
    return recorded.kept(client)["table"]


def judged(found: recorded.Calls) -> recorded.Calls:
    """The same, where structures that members do not have are refused because no rule can permit them."""
    denied = ("AccessControl", "may not do this")
    return {
        call: "refused" if any(word in outcome for word in denied) else outcome
        for call, outcome in found.items()
    }


@pytest.mark.filterwarnings("ignore:ssl.:DeprecationWarning")
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(
    "smart", [True, pytest.param(False, marks=pytest.mark.slow)], ids=["smart", "unisocket"]
)
def test_python(secured: LocalCluster, files: Files, *, smart: bool) -> None:
    client = connected(secured, files, smart=smart)
    try:
        assert judged(calls(client, f"secured-{smart}")) == table_of("python")
    finally:
        client.shutdown()


@pytest.mark.slow
@pytest.mark.parametrize("smart", [True, False], ids=["smart", "unisocket"])
def test_node(secured: LocalCluster, *, smart: bool) -> None:
    assert judged(test_node_client.run("table", secured, smart=smart)) == table_of("node")


@pytest.mark.slow
@pytest.mark.parametrize("smart", [True, False], ids=["smart", "unisocket"])
def test_go(secured: LocalCluster, *, smart: bool) -> None:
    found = test_go_client.finish(test_go_client.start("calls", secured, unisocket=not smart))
    assert judged(found["seen"]) == table_of("go")


@pytest.mark.slow
@pytest.mark.parametrize("client", ["node", "go"])
def test_members_are_killed_and_drained(files: Files, client: str) -> None:
    with LocalCluster(strikes.MEMBERS, files.config(), user=ROOT, tls=files.tls) as cluster:
        cluster.wait_settled()
        if client == "node":
            writing = test_node_client.start("loss", cluster)
        else:
            writing = test_go_client.start("faults", cluster)
        assert writing.stdin is not None
        assert writing.stdout is not None
        assert writing.stdout.readline() == "now\n"

        def next_stage() -> None:
            assert writing.stdin is not None
            writing.stdin.write("drain\n")
            writing.stdin.flush()

        strikes.kill_and_drain(cluster, next_stage if client == "go" else lambda: None)
        seen = (test_node_client if client == "node" else test_go_client).finish(writing, "stop\n")["seen"]
    assert seen["acknowledged"] > 500
    assert seen["wrong"] == []


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:ssl.:DeprecationWarning")
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("smart", [True, False], ids=["smart", "unisocket"])
def test_members_are_killed_and_drained_under_the_python_client(files: Files, *, smart: bool) -> None:
    """What it was told to be stored is there; a write that failed may be or not, and is no promise."""
    with LocalCluster(strikes.MEMBERS, files.config(), user=ROOT, tls=files.tls) as cluster:
        cluster.wait_settled()
        client = connected(cluster, files, smart=smart)
        struck = client.get_map("struck").blocking()
        stopped = threading.Event()
        promised: dict[str, int] = {}

        def write() -> None:
            for number in itertools.count():
                if stopped.is_set():
                    return
                with contextlib.suppress(HazelcastError, OSError):
                    struck.set(f"key {number}", number)
                    promised[f"key {number}"] = number

        writing = threading.Thread(target=write)
        writing.start()
        try:
            assert until(lambda: len(promised) > 100)
            strikes.kill_and_drain(cluster, lambda: None)
        finally:
            stopped.set()
            writing.join(60)
        assert not writing.is_alive()
        assert len(promised) > 500
        assert struck.get_all(list(promised)) == promised
        client.shutdown()


@pytest.mark.slow
@pytest.mark.parametrize("smart", ["true", "false"], ids=["smart", "unisocket"])
def test_java_as_a_user(smart: str) -> None:
    """Its open-source client speaks no TLS: with users alone."""
    with LocalCluster(strikes.MEMBERS, RULES, user=ROOT) as cluster:
        cluster.wait_settled()
        (seen,), _ = test_java_client.finish(
            test_java_client.start("Scenarios", "table", cluster, smart=smart)
        )
        assert judged(seen["table"]) == table_of("java")
        writing = test_java_client.start("Scenarios", "loss", cluster, smart=smart)
        assert writing.stdout is not None
        assert writing.stdout.readline() == "now\n"
        strikes.kill_and_drain(cluster, lambda: None)
        (seen,), _ = test_java_client.finish(writing, "stop\n")
    assert seen["loss"]["acknowledged"] > 500
    assert seen["loss"]["wrong"] == []
