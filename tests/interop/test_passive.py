"""A cluster that its operator has made passive, as the official Python client meets it."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from click.testing import CliRunner
from hazelcast.errors import HazelcastError, IllegalStateError
from tests.interop.test_python_client import connected

from holdfast.cli.main import holdfast
from holdfast_lab.processes.local_cluster import LocalCluster

pytestmark = [
    pytest.mark.interop,
    # The client leaves its sockets to the garbage collector.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

ENTRIES = {f"k{number}": number for number in range(100)}


@pytest.fixture
def members() -> Iterator[LocalCluster]:
    with LocalCluster(2, "[partitions]\ncount = 31\n") as running:
        running.wait_settled()
        yield running


def change(cluster: LocalCluster, state: str) -> None:
    told = CliRunner().invoke(holdfast, ["cluster", "state", state, "-a", cluster.members[0].client_address])
    assert told.exit_code == 0, told.output


@pytest.mark.parametrize("smart", [True, False], ids=["smart", "unisocket"])
def test_writes_are_refused_at_once_and_reads_go_on(members: LocalCluster, *, smart: bool) -> None:
    with connected(members, smart_routing=smart) as client:
        flights = client.get_map("flights").blocking()
        flights.put_all(ENTRIES)
        change(members, "passive")
        writes = {
            "put": lambda: flights.put("k1", 0),
            "set": lambda: flights.set("k1", 0),
            "remove": lambda: flights.remove("k1"),
            "put_all": lambda: flights.put_all({"k1": 0, "k2": 0}),
            "replace_if_same": lambda: flights.replace_if_same("k1", 1, 0),
            "clear": flights.clear,
            "destroy": flights.destroy,
        }
        for name, write in writes.items():
            before = time.monotonic()
            with pytest.raises(IllegalStateError, match="the cluster is passive"):
                write()
            assert time.monotonic() - before < 60, f"{name} was tried again and again"
        assert flights.get_all(list(ENTRIES)) == ENTRIES
        assert flights.get("k1") == 1
        assert flights.size() == len(ENTRIES)
        assert flights.contains_value(7)
        assert dict(flights.entry_set()) == ENTRIES

        # Somebody who comes now can read, too: also a map that nobody has opened before.
        with connected(members, smart_routing=smart) as late:
            assert late.get_map("flights").blocking().get("k2") == 2
            assert late.get_map("never opened before").blocking().size() == 0

        change(members, "active")
        assert flights.put("k1", 0) == 1
        assert flights.get("k1") == 0


def test_a_client_that_retries_everything_is_refused_too(members: LocalCluster) -> None:
    with connected(members, redo_operation=True) as client:
        flights = client.get_map("flights").blocking()
        flights.set("k", 1)
        change(members, "passive")
        before = time.monotonic()
        with pytest.raises(HazelcastError):
            flights.set("k", 2)
        assert time.monotonic() - before < 60
        assert flights.get("k") == 1
