"""A zone from its creation to its end on real member processes, with the commands of an operator and both clients."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hazelcast
import pytest
from click.testing import CliRunner, Result
from tests.cluster.test_cluster import text
from tests.cluster.test_control import Watching

from holdfast.actions.drain import Drain
from holdfast.cli.credentials import Credentials
from holdfast.cli.main import holdfast
from holdfast.cli.status import ask
from holdfast.client.blocking import Client
from holdfast.errors import NotReady
from holdfast_lab.processes.local_cluster import LocalCluster

pytestmark = [
    # The client leaves its sockets to the garbage collector.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

CONFIG = """
[cluster]
heartbeat_ms = 200
suspect_after_ms = 10000
[partitions]
count = 11
[metastore]
voters = 3
[maps.orders]
raft_zone = "z"
"""
ENTRIES = 40


def run(cluster: LocalCluster, *arguments: str) -> Result:
    address = ",".join(member.client_address for member in cluster.alive)
    return CliRunner().invoke(holdfast, [*arguments, "-a", address], catch_exceptions=False)


def until(condition: Callable[[], bool], what: str, seconds: float = 120.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.1)


def led(cluster: LocalCluster) -> dict[str, Any]:
    """What `zone show` says once each partition has a leader: members without a processor for a second elect anew."""

    def shown() -> dict[str, Any]:
        told: dict[str, Any] = json.loads(run(cluster, "zone", "show", "z", "--json").output)
        return told

    until(lambda: None not in [one["leader"] for one in shown()["partitions"]], "a partition is never led")
    return shown()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    with LocalCluster(3, CONFIG, log_dir=tmp_path) as running:
        running.wait_settled()
        yield running


def test_a_zone_lives_through_the_death_of_a_leader(cluster: LocalCluster) -> None:
    first = cluster.members[0]
    with Client(first.client_address, timeout_s=5) as client, pytest.raises(NotReady, match="zone create z"):
        client.set("orders", text("k"), text("v"))

    made = run(cluster, "zone", "create", "z", "--replicas", "3")
    assert made.exit_code == 0, made.output
    assert "zone z is created: 11 partitions, 3 replicas" in made.output
    assert run(cluster, "zone", "create", "z").exit_code == 1
    until(lambda: run(cluster, "cluster", "safe").exit_code == 0, "the zone is never safe")

    with Client(first.client_address) as client:
        for number in range(ENTRIES):
            client.set("orders", text(f"k{number}"), text(f"v{number}"))
    other = hazelcast.HazelcastClient(
        cluster_members=[member.client_address for member in cluster.members],
        cluster_name=cluster.status().cluster,
    )
    try:
        theirs = other.get_map("orders").blocking()
        theirs.put("by", "hazelcast")

        shown = led(cluster)
        leaders = [shown["members"][one["leader"]] for one in shown["partitions"]]
        assert len(leaders) == 11
        assert all(len(one["stable"]["peers"]) == 3 for one in shown["partitions"])
        assert "index" in run(cluster, "zone", "show", "z").output
        [warning] = Drain().warnings([ask(str(first.client_address), Credentials())])
        assert warning.startswith("zone z is configured for 3 replicas, and only 2 members")
        until(
            lambda: "zones: z with 11 partitions, 0 without a leader" in run(cluster, "status").output,
            "the status never tells of the zone's leaders",
        )
        status = run(cluster, "status").output
        assert "metastore: leader" in status
        assert "largest lag of a follower" in status
        [zone] = json.loads(run(cluster, "status", "--json").output)["zones"]
        assert (zone["name"], zone["moving"], zone["under_replicated"], zone["lag"] >= 0) == ("z", 0, 0, True)
        assert all("lag" in replica for one in shown["partitions"] for replica in one["replicas"])

        dead = next(member for member in cluster.members if member.name in leaders)
        cluster.kill(dead)
        alive = next(member for member in cluster.alive)
        with Client(alive.client_address, timeout_s=30) as client:
            for number in range(ENTRIES):
                assert client.get("orders", text(f"k{number}")) == text(f"v{number}")
                client.set("orders", text(f"k{number}"), text("again"))
        assert theirs.get("by") == "hazelcast"
        theirs.put("after", "the death")
        assert theirs.get("after") == "the death"
    finally:
        other.shutdown()

    def lacking() -> bool:
        return (
            "z: 11 of 11 partitions have a replica on an absent member"
            in run(cluster, "cluster", "safe").output
        )

    until(lacking, "nobody says that replicas are lacking")
    assert run(cluster, "metastore", "put", "app/k", '{"a": 1}', "--if-revision", "0").exit_code == 0
    assert run(cluster, "metastore", "put", "app/k", "2", "--if-revision", "0").exit_code == 1
    assert json.loads(run(cluster, "metastore", "get", "app/k").output) == {"a": 1}
    assert '"name": "z"' in run(cluster, "metastore", "scan", "zones/zone/").output
    assert run(cluster, "metastore", "put", "zones/ids", "7").exit_code == 1
    assert "leads" in run(cluster, "metastore", "status").output

    assert run(cluster, "zone", "drop", "z", "--yes").output.startswith("zone z is dropped")
    assert json.loads(run(cluster, "zone", "list", "--json").output) == {"zones": []}
    with Client(alive.client_address, timeout_s=2) as client, pytest.raises(NotReady):
        client.get("orders", text("k1"))


class OfTwoKinds(LocalCluster):
    """Its first two members have another kind of disk than the others."""

    def environment(self, name: str) -> dict[str, str]:
        kind = "ssd" if len(self.members) < 2 else "hdd"
        return {"HOLDFAST_MEMBER_ATTRIBUTES": f"disk={kind}", "HOLDFAST_MEMBER_RACK": f"of {name}"}


def test_a_zone_has_members_of_the_attributes_that_its_filter_names(tmp_path: Path) -> None:
    with OfTwoKinds(3, CONFIG, log_dir=tmp_path) as cluster:
        cluster.wait_settled()
        names = [member.name for member in cluster.members]
        refused = run(cluster, "zone", "create", "z", "--filter", "disk=tape")
        assert refused.exit_code == 1, refused.output
        made = run(cluster, "zone", "create", "z", "--replicas", "1", "--filter", "disk=ssd|nvme")
        assert made.exit_code == 0, made.output

        def holders() -> set[str]:
            shown = json.loads(run(cluster, "zone", "show", "z", "--json").output)
            parts = shown["partitions"]
            stable = [one["stable"]["peers"] for one in parts if one["stable"] and not one["pending"]]
            return (
                {shown["members"][peer] for peers in stable for peer in peers} if len(stable) == 11 else set()
            )

        until(lambda: holders() == set(names[:2]), "the zone is not on the first two")
        assert run(cluster, "zone", "alter", "z", "--filter", "disk=hdd").exit_code == 0
        until(lambda: holders() == {names[2]}, "the zone does not move to the third")

        client = hazelcast.HazelcastClient(
            cluster_members=[cluster.members[0].client_address], cluster_name=cluster.status().cluster
        )
        try:
            told = {one.attributes["name"]: one.attributes for one in client.cluster_service.get_members()}
        finally:
            client.shutdown()
        assert [told[name]["disk"] for name in names] == ["ssd", "ssd", "hdd"]
        assert told[names[2]]["rack"] == f"of {names[2]}"

        last = cluster.members[2].client_address
        drained = CliRunner().invoke(holdfast, ["member", "drain", last, "--timeout", "1"])
        assert drained.exit_code == 3, drained.output
        assert "no other member may hold replicas of zone z: the last one" in drained.output
        assert (
            run(cluster, "zone", "alter", "z", "--filter", "disk=ssd|hdd", "--replicas", "3").exit_code == 0
        )
        cluster.wait_drained(cluster.members[2], 60)
        assert holders() == set(names[:2])


def test_what_happens_to_a_zone_is_watched_and_its_replicas_are_compared(cluster: LocalCluster) -> None:
    def told(kind: str, **what: object) -> bool:
        return any(what.items() <= event.items() for event in watching.kinds(kind))

    watched, other, third = cluster.members
    with Watching(watched.client_address, other.client_address) as watching:
        watching.until(lambda: told("zones watched", zones=[]))
        assert run(cluster, "zone", "create", "z", "--replicas", "3").exit_code == 0
        watching.until(lambda: told("zone created", zone="z"))
        names = sorted(member.name for member in cluster.members)
        for partition in range(11):
            watching.until(
                lambda partition=partition: told("partition placed", partition=partition, after=names)  # type: ignore[misc]
            )
            watching.until(
                lambda partition=partition: told("leader changed", partition=partition)  # type: ignore[misc]
            )
        with Client(other.client_address) as client:
            for number in range(ENTRIES):
                client.set("orders", text(f"k{number}"), text(f"v{number}"))
        found = run(cluster, "verify", "--map", "orders")
        assert found.exit_code == 0, found.output
        assert "0 differs, 0 older, 0 busy, 0 unreachable, 0 uncertain" in found.output
        assert run(cluster, "zone", "alter", "z", "--scale-down-s", "1").exit_code == 0
        watching.until(lambda: told("zone altered", changed={"scale_down_s": [300, 1]}))
        cluster.kill(watched)
        rest = sorted(member.name for member in (other, third))
        watching.until(lambda: told("data nodes changed", before=names, after=rest))
        watching.until(
            lambda: (
                {event["partition"] for event in watching.kinds("partition moved") if event["after"] == rest}
                == set(range(11))
            )
        )
        assert run(cluster, "zone", "rename", "z", "y").exit_code == 0
        watching.until(lambda: told("zone renamed", zone="y", was="z"))
        assert run(cluster, "zone", "drop", "y", "--yes").exit_code == 0
        watching.until(lambda: told("zone dropped", zone="y"))
        assert len(watching.kinds("zone created")) == 1
        assert watching.kinds("zones gap") == []
