"""Real members that place their partitions by rendezvous: they join, drain, crash and come back, under load."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from pathlib import Path

import pytest
from tests.cli.test_live import foretold
from tests.cluster.crew import Crew
from tests.cluster.test_cluster import MAP, fill, missing, text
from tests.core.placement.test_affinity import plain_row

import holdfast
from holdfast.client.blocking import Client
from holdfast.core.model.migration import ReplicaList
from holdfast.core.placement.layout import Candidate
from holdfast.errors import HoldfastError
from holdfast.replica_comparison.live import diverged
from holdfast_lab.processes.local_cluster import LocalCluster

CONFIG = "[maps.default]\nbackups = 1\n[partitions]\nplacement = 'rendezvous'\n"
COUNT = 271


def rows(cluster: LocalCluster) -> list[ReplicaList]:
    with Client(cluster.client_addresses()) as client:
        return [row.replicas for row in client.table()]


def expected(cluster: LocalCluster) -> list[ReplicaList]:
    """What the published function says, by a plain implementation: of members called by their names."""
    told = cluster.status()
    here = [Candidate(each.uuid, each.group, each.name) for each in told.members]
    return [plain_row(partition, here, told.partitions.replicas) for partition in range(COUNT)]


def well_placed(cluster: LocalCluster) -> bool:
    cluster.wait_settled()
    return rows(cluster) == expected(cluster)


@pytest.mark.rule("migration/M-8")
def test_at_rest_every_row_is_that_of_the_function(tmp_path: Path) -> None:
    with LocalCluster(3, CONFIG, log_dir=tmp_path) as cluster:
        assert well_placed(cluster)
        fill(cluster)
        stop = threading.Event()
        writer = threading.Thread(target=lambda: write(cluster.client_addresses(), stop))
        writer.start()
        try:
            cluster.start_members(2)
            assert well_placed(cluster)
            before = rows(cluster)
            victim = cluster.members[0]  # The master.
            cluster.kill(victim)
            assert well_placed(cluster)
            (reborn,) = cluster.restart([victim])
            assert well_placed(cluster)
            came = [tuple(reborn.uuid if one == victim.uuid else one for one in row) for row in before]
            assert rows(cluster) == came, "under the same name it gets what it had"
            cluster.drain(cluster.alive[1])
            assert well_placed(cluster)
        finally:
            stop.set()
            writer.join()
        assert missing(cluster) == []
        assert diverged(cluster.client_addresses()[0]) == []


def write(addresses: list[str], stop: threading.Event) -> None:
    """Beside what happens; what was filled in before stays as it is."""
    with Client(addresses) as client:
        number = 0
        while not stop.wait(0.01):
            number += 1
            with suppress(HoldfastError):  # A member has just died: that may be unknown.
                client.put_columns(MAP, [text(f"more{number % 500}")], [text(f"v{number}")])


def test_what_plan_foretells_of_real_members_by_their_names_comes_true(tmp_path: Path) -> None:
    with LocalCluster(3, CONFIG, log_dir=tmp_path) as cluster:
        before = cluster.wait_settled()
        assert {each.consistent_id for each in before.members} == {"m1", "m2", "m3"}
        plans = foretold(cluster, "join:m4")
        joined = cluster.start_member()
        assert joined.name == "m4"
        after = cluster.wait_settled()
        assert rows(cluster) == [
            tuple(joined.uuid if one == "join-1" else one for one in each["intermediateStates"][-1])
            for each in plans
        ]
        done = after.migrations.completed - before.migrations.completed
        assert done == sum(len(each["migrations"]) for each in plans) > 0


def test_who_places_partitions_otherwise_is_refused_by_name() -> None:
    async def story() -> None:
        async with Crew(partitions__placement="rendezvous") as crew:
            await crew.start(1)
            crew.settings["partitions.placement"] = "even"
            with pytest.raises(
                holdfast.Refused, match=r"partitions\.placement is rendezvous in this cluster, yours is even"
            ):
                await crew.start(1)

    asyncio.run(asyncio.wait_for(story(), 60))
