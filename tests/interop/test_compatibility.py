"""`docs/compatibility.md` says what is so: of the members' tables, and of what programs with real clients find."""

from __future__ import annotations

import hazelcast
import pytest
from tests.interop import recorded
from tests.interop.compatibility import CLIENTS, PAGE, SERVED, page
from tests.interop.python_calls import calls

from holdfast.server.hazelcast.names import NAMES, SERVICES
from holdfast_lab.processes.local_cluster import LocalCluster


def test_the_page_is_what_is_made() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run `make compatibility`"


@pytest.mark.parametrize("client", CLIENTS)
def test_what_was_found_of_a_client_is_what_members_serve(client: str) -> None:
    for part, found in recorded.kept(client).items():
        if part == "client":
            continue
        for call, outcome in found.items():
            name = call.partition(",")[0]
            assert outcome in recorded.OUTCOMES
            assert name in NAMES.values() or name in SERVICES.values(), call
            assert (call in SERVED) is (outcome == "works"), call


def test_what_members_serve_was_called_by_some_client() -> None:
    """But for what clients do by themselves."""
    works = {call for client in CLIENTS for found in recorded.kept(client).values() for call in found}
    assert set(SERVED) - works == BY_THEMSELVES


BY_THEMSELVES = {
    "Client.authenticationCustom",
    "Client.createProxies",
    "Client.fetchSchema",
    "Client.localBackupListener",
    "Client.ping",
    "Client.sendAllSchemas",
    "Client.sendSchema",
    "CPSession.closeSession",
    "CPSession.heartbeatSession",
    "Client.statistics",
    "Map.fetchKeys",
    "Map.submitToKey",  # in Java alone, with a class for a member's function, which the program has not got
    "PNCounter.getConfiguredReplicaCount",
    "TransactionalMap.containsValue",
}
"""The last two are in no method of these clients that is there for users."""


@pytest.mark.interop
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(
    "smart", [True, pytest.param(False, marks=pytest.mark.slow)], ids=["smart", "unisocket"]
)
def test_each_call_of_the_python_client(cluster: LocalCluster, *, smart: bool) -> None:
    client = hazelcast.HazelcastClient(cluster_members=cluster.client_addresses(), smart_routing=smart)
    try:
        found = calls(client, f"table-{smart}")
    finally:
        client.shutdown()
    recorded.compare("python", hazelcast.__version__, "table", found)


@pytest.mark.interop
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_the_reason_of_a_listener_that_is_refused_is_in_the_traceback(cluster: LocalCluster) -> None:
    client = hazelcast.HazelcastClient(cluster_members=cluster.client_addresses())
    try:
        entries = client.get_map("refused").blocking()
        with pytest.raises(hazelcast.errors.HazelcastError, match="Listener cannot be added") as refused:
            entries.add_entry_listener(added_func=print, predicate=hazelcast.predicate.sql("this > 1"))
        reason = refused.value.__context__
        assert isinstance(reason, hazelcast.errors.UnsupportedOperationError)
        assert "with a predicate other than TruePredicate is not supported by Holdfast" in str(reason)
    finally:
        client.shutdown()
