"""The files of members with a map in a zone, read when no member runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from tests.cluster.test_cluster import text
from tests.cluster.test_zones import run, until

from holdfast.cli.main import holdfast
from holdfast.client.blocking import Client
from holdfast.core.model.keys import partition_of
from holdfast.replica_comparison.stores import read_store
from holdfast.spark.files import journals
from holdfast_lab.processes.local_cluster import LocalCluster

CONFIG = """
[partitions]
count = 11
[metastore]
voters = 3
[maps.orders]
raft_zone = "z"
"""
ENTRIES = 60


def offline(*words: str) -> Result:
    return CliRunner().invoke(holdfast, [*words])


@pytest.mark.parametrize("partitions", [11, 3])
def test_the_replicas_of_a_zone_are_read_and_compared(tmp_path: Path, partitions: int) -> None:
    files = tmp_path / "files"
    with LocalCluster(3, CONFIG, log_dir=tmp_path, data_dir=files) as cluster:
        cluster.wait_settled()
        created = run(cluster, "zone", "create", "z", "--replicas", "3", "--partitions", str(partitions))
        assert created.exit_code == 0, created.output
        until(lambda: run(cluster, "cluster", "safe").exit_code == 0, "the zone is never safe")
        with Client(cluster.members[0].client_address) as client:
            for number in range(ENTRIES):
                client.set("orders", text(f"k{number}"), text(f"v{number}"))
    folders = sorted(path for path in files.iterdir() if path.is_dir())
    assert len(folders) == 3
    for folder in folders:
        state = read_store(folder)
        assert state.damage == []
        held = {
            key: (partition, value)
            for replica in state.zones
            for partition, copy in replica.copies.items()
            if "orders" in copy.maps
            for key, value in copy.maps["orders"].state.entries.items()
        }
        later = sum(replica.later for replica in state.zones)
        assert len(held) >= ENTRIES - later, "only the last entries of a log are not known to be committed"
        assert all(partition == partition_of(key, 0, 11) for key, (partition, _) in held.items())
        assert held.get(text("k0"), (0, text("v0")))[1] == text("v0")
    compared = offline("verify", *(word for folder in folders for word in ("--files", str(folder))), "--json")
    assert compared.exit_code == 0, compared.output
    assert json.loads(compared.output)["totals"]
    printed = offline("journal", "print", str(folders[0]), "--map", "orders", "--json")
    assert printed.exit_code == 0, printed.output
    lines = [json.loads(line) for line in printed.output.splitlines()]
    assert {line["key"] for line in lines} == {f"k{number}" for number in range(ENTRIES)}
    assert {(line["kind"], line["op"], line["zone"]) for line in lines} == {("zone", "set", 1)}
    (of_spark,) = journals.shares(journals.find([folders[0]]), 1, values=True)
    rows = [row for batch in journals.read(of_spark) for row in batch.to_pylist() if row["kind"] == "zone"]
    mine = {row["key"]: row["value"] for row in rows if row["map"] == "orders"}
    assert mine == {text(f"k{number}"): text(f"v{number}") for number in range(ENTRIES)}
