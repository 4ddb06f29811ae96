"""A baseline of real members: who joins holds nothing, who is killed gets its own back, and orders come by the CLI."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest
from tests.cluster.keepers import Keepers, until
from tests.cluster.test_cluster import fill, missing

from holdfast.client.blocking import Client
from holdfast.replica_comparison.live import diverged
from holdfast.wire.values import to_stored
from holdfast_lab.processes.fork_server import run_program
from holdfast_lab.processes.local_cluster import LocalCluster, ManagedMember

CONFIG = "[maps.default]\nbackups = 1\njournal = 'sync'\n[cluster]\nsuspect_after_ms = 10000\n"


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return run_program(words)


def order(cluster: LocalCluster, *words: str) -> subprocess.CompletedProcess[str]:
    return run("cluster", "baseline", *words, "-a", ",".join(cluster.client_addresses()))


def shown(cluster: LocalCluster) -> str:
    told = order(cluster, "show")
    assert told.returncode == 0, told.stderr
    return told.stdout


def given(cluster: LocalCluster, *words: str) -> None:
    told = order(cluster, *words)
    assert told.returncode == 0, told.stderr
    assert told.stdout == "the baseline is changed\n"


def holds(cluster: LocalCluster, member: ManagedMember) -> set[int]:
    with Client(cluster.client_addresses()) as client:
        return {partition for partition, row in enumerate(client.table()) if member.uuid in row.replicas}


def filled(cluster: LocalCluster) -> dict[str, int]:
    """How replicas were filled so far, by the members that run now."""
    found: dict[str, int] = {}
    for member in cluster.alive:
        with Client(member.client_address, operates=True) as client:
            for how, count in client.status().replicas.filled.items():
                found[how] = found.get(how, 0) + count
    return found


def until_away(cluster: LocalCluster, name: str) -> None:
    deadline = time.monotonic() + 120
    while f"{name}: away, its places are kept" not in shown(cluster):
        assert time.monotonic() < deadline
        time.sleep(0.2)


@pytest.mark.rule("membership/B-3")
@pytest.mark.rule("placement/K-1")
def test_join_kill_return_and_take_out(tmp_path: Path) -> None:
    with LocalCluster(3, CONFIG, log_dir=tmp_path, data_dir=tmp_path / "data") as cluster:
        cluster.wait_settled()
        fill(cluster)
        assert "no baseline" in shown(cluster)
        given(cluster, "set", "--yes")
        outsider = cluster.start_member()
        cluster.wait_settled()
        assert holds(cluster, outsider) == set()
        assert "outside the baseline: m4" in shown(cluster)
        told = run("status", cluster.alive[0].client_address)
        assert "outside the baseline: m4; they hold no data" in " ".join(told.stdout.split())

        victim = cluster.members[1]
        its = holds(cluster, victim)
        refused = order(cluster, "remove", "m2", "--yes")
        assert refused.returncode == 1
        assert "m2 is present and holds data" in refused.stderr
        cluster.kill(victim)
        until_away(cluster, "m2")
        assert holds(cluster, outsider) == set(), "nothing is copied elsewhere"
        before = filled(cluster)
        (back,) = cluster.restart([victim])
        cluster.wait_settled()
        # Loads are even within one, so one of its partitions may have become another one's.
        assert len(its - holds(cluster, back)) <= 1
        assert len(its) > 100
        after = filled(cluster)
        assert after["full"] - before["full"] <= 1, "it was sent what it has missed, and nothing else"

        cluster.kill(back)
        until_away(cluster, "m2")
        given(cluster, "remove", "m2", "--yes")
        given(cluster, "add", "m4")
        cluster.wait_settled()
        assert holds(cluster, outsider)
        given(cluster, "auto", "3600")
        (again,) = cluster.restart([back])
        cluster.wait_settled()
        assert holds(cluster, again) == set()
        assert "because m2 joined" in shown(cluster)
        given(cluster, "auto", "0")
        cluster.wait_settled()
        assert holds(cluster, again)
        assert missing(cluster) == []
        assert diverged(cluster.client_addresses()[0]) == []


@pytest.mark.rule("membership/B-1")
def test_g1_two_halves_that_went_on_apart_refuse_each_other(tmp_path: Path) -> None:
    """G1 (IGNITE-5854), each half by order and with its loss accepted: the other one ends with status 2."""
    with Keepers(tmp_path, 4) as cluster:
        addresses = ",".join(cluster.client_addresses())
        assert run("cluster", "baseline", "set", "--yes", "-a", addresses).returncode == 0
        cluster.kill_all()
        for half in (("m1", "m2"), ("m3", "m4")):
            cluster.kill_all()
            first, second = (cluster.spawn(half[0], cluster__bootstrap=True), cluster.spawn(half[1]))
            until(lambda one=first: "waiting" in cluster.said(one))  # type: ignore[misc]
            told = run("cluster", "accept-loss", "--yes", "-a", first.client_address)
            assert told.returncode == 0, told.stderr
            cluster.wait_ready([first, second])
            # A member has the new entry of the history before it acknowledges a write (primary_backup/O-5).
            for name in half:
                with cluster.client(name) as client:
                    for key in range(20):
                        client.set("m", to_stored(key), to_stored(key))
        other = cluster.spawn("m1")
        assert cluster.ended(other) == 2
        assert "another history of the baseline" in cluster.said(other)
