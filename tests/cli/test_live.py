"""The command line against real members."""

from __future__ import annotations

import json

from click.testing import CliRunner

from holdfast.cli.main import holdfast
from holdfast.demo.cluster import LocalCluster


def test_status_of_a_real_cluster_that_loses_a_member() -> None:
    with LocalCluster(
        members=3, config="[cluster]\nheartbeat_ms = 200\nsuspect_after_ms = 20000\n"
    ) as cluster:
        cluster.wait_safe(30)
        address = cluster.members[0].client_address
        told = json.loads(CliRunner().invoke(holdfast, ["status", address, "--json"]).output)
        assert told["safe"], told["why_unsafe"]
        assert len(told["members"]) == 3
        assert sum(member["primaries"] for member in told["members"]) == 271
        assert [member["master"] for member in told["members"]] == [True, False, False]
        assert all(member["status"]["uuid"] == member["uuid"] for member in told["members"])

        # Before anybody suspects it, a dead member is silent, and the cluster is not called safe.
        cluster.kill(cluster.members[2])
        told = json.loads(CliRunner().invoke(holdfast, ["status", address, "--json"]).output)
        assert not told["safe"]
        shown = CliRunner().invoke(holdfast, ["status", address]).output
        assert "silent" in shown or "not safe" in shown
