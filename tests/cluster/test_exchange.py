"""`holdfast cluster exchange` on real processes: a member is drained, and another one killed."""

from __future__ import annotations

import json
import time
from typing import Any

from click.testing import CliRunner

from holdfast.cli.main import holdfast
from holdfast.client.blocking import Client
from holdfast_lab.processes.local_cluster import LocalCluster

PHASES = ("wait_ms", "table_ms", "counters_ms", "switch_ms")


def exchanges(cluster: LocalCluster, *words: str) -> Any:
    command = ["cluster", "exchange", "--json", "-a", cluster.alive[0].client_address, *words]
    told = CliRunner().invoke(holdfast, command, catch_exceptions=False)
    assert told.exit_code == 0, told.stderr
    return json.loads(told.stdout)


def owners(cluster: LocalCluster) -> list[str | None]:
    with Client(cluster.alive[0].client_address) as client:
        return [row.replicas[0] for row in client.table()]


def test_drain_moves_partitions_and_a_crash_fails_them_over() -> None:
    with LocalCluster(
        members=4, config="[cluster]\nheartbeat_ms = 200\nsuspect_after_ms = 20000\n"
    ) as cluster:
        cluster.wait_settled(120)
        formed = exchanges(cluster)
        assert formed["open"] == {}
        uuids = {one.name: one.uuid for one in cluster.status().members}
        names = {uuid: name for name, uuid in uuids.items()}
        before = owners(cluster)
        drained, killed = cluster.members[3], cluster.members[2]
        drained_name, killed_name = names[drained.uuid], names[killed.uuid]

        cluster.drain(drained)
        cluster.wait_settled(120)
        while (after_drain := exchanges(cluster))["topologies"][-1]["left"] != [drained_name]:
            time.sleep(0.1)
        moved = [p for p, owner in enumerate(before) if owner == drained.uuid]
        assert moved
        counted = sum(one["exchanges"].get("move", 0) for one in after_drain["topologies"])
        assert counted >= len(moved)
        of_one = exchanges(cluster, "--partition", str(moved[0]))["exchanges"][-1]
        assert (of_one["cause"], of_one["before"], of_one["phase"]) == ("move", drained_name, "done")
        assert all(of_one["phases"][phase] >= 0 for phase in PHASES)
        assert 0 < sum(of_one["phases"].values()) < 60_000
        for one in after_drain["topologies"]:
            assert not one["exchanges"].get("failover"), "a drain is no failover"

        before = owners(cluster)
        cluster.kill(killed)
        cluster.wait_settled(120)
        lost = [p for p, owner in enumerate(before) if owner == killed.uuid]
        assert lost
        after_crash = exchanges(cluster)
        [crash] = [one for one in after_crash["topologies"] if one["gone"] == [killed_name]]
        assert crash["exchanges"]["failover"] == len(lost), "each partition once, wherever it went"
        assert crash["longest"]["table_ms"] > 0
        of_one = exchanges(cluster, "--partition", str(lost[0]))["exchanges"]
        [failover] = [one for one in of_one if one["cause"] == "failover"]
        assert (failover["before"], failover["phases"]["wait_ms"]) == (killed_name, 0)
        assert failover["major"] == crash["major"]
        assert failover["member"] in names.values()

        text = CliRunner().invoke(holdfast, ["cluster", "exchange", "-a", cluster.alive[0].client_address])
        assert text.exit_code == 0
        assert f"{killed_name} gone" in text.output
        assert f"{drained_name} left" in text.output
        few = CliRunner().invoke(
            holdfast, ["cluster", "exchange", "--partition", "9999", "-a", cluster.alive[0].client_address]
        )
        assert few.exit_code == 1
        assert "there is no partition 9999" in few.stderr
