"""Transactions on real member processes, with the official Python client: transfers between accounts, whichever member
dies. Half of the accounts are in a map with a primary and backups, the others in a zone.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.cluster.tellers import ACCOUNTS, TOTAL, Doomed, Tellers, connect, map_of

from holdfast.client.blocking import Client
from holdfast.client.cut_handles import Cut, end_cut, scan_cut, take_cut
from holdfast.client.whole_cuts import take_whole_cut
from holdfast.wire.values import from_stored
from holdfast_lab.processes.local_cluster import LocalCluster

pytestmark = [
    pytest.mark.interop,
    # The client leaves its sockets to the garbage collector.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

CONFIG = """
[cluster]
heartbeat_ms = 200
suspect_after_ms = 10000
[transactions]
deadlock_after_ms = 100
[partitions]
count = 31
[metastore]
voters = 3
replace_after_ms = 1000
[maps.vault]
transactional = true
raft_zone = "z"
[maps.accounts]
transactional = true
backups = 1
"""


def fill(cluster: LocalCluster) -> None:
    client = connect(cluster.client_addresses())
    for name in ("accounts", "vault"):
        mine = [number for number in range(ACCOUNTS) if map_of(number) == name]
        client.get_map(name).blocking().put_all(dict.fromkeys(mine, 100))
    client.shutdown()


def total(cluster: LocalCluster) -> int:
    client = connect(cluster.client_addresses())
    try:
        return sum(sum(client.get_map(name).blocking().values()) for name in ("accounts", "vault"))
    finally:
        client.shutdown()


def sum_at(client: Client, cut: Cut) -> int:
    found = 0
    for name in ("accounts", "vault"):
        for partition in range(client.partition_count):
            for page in scan_cut(client, cut, name, partition):
                for value in page.columns.split()[1]:
                    amount = from_stored(value)
                    assert isinstance(amount, int)
                    found += amount
    end_cut(client, cut)
    return found


@contextmanager
def busy(cluster: LocalCluster, tellers: int = 3) -> Iterator[Tellers]:
    cluster.wait_safe(60)
    cluster.create_zone("z", 3, 1)
    cluster.wait_served()
    fill(cluster)
    with Tellers(cluster.client_addresses(), tellers) as working:
        yield working


def cuts(cluster: LocalCluster, take: Callable[[Client], Cut], most: int, *, until_wrong: bool) -> list[int]:
    found = []
    with Client(",".join(cluster.client_addresses())) as client:
        for _ in range(most):
            found.append(sum_at(client, take(client)))
            if until_wrong and found[-1] != TOTAL:
                break
    return found


def test_members_die_and_no_money_is_lost_or_made(tmp_path: Path) -> None:
    config = CONFIG + 'journal = "sync"\n'
    with LocalCluster(members=3, config=config, data_dir=tmp_path / "data") as cluster:
        with busy(cluster) as tellers:
            time.sleep(2)
            for seed in range(2):
                client = Doomed(cluster.client_addresses(), seed)
                assert client.working
                cluster.kill(cluster.alive[1])
                time.sleep(0.3 * seed)
                client.kill()
                cluster.start_member()
                cluster.wait_safe(60)
                time.sleep(1)
            cluster.drain(cluster.alive[0])
            cluster.wait_safe(60)
            time.sleep(1)
        assert tellers.wrong == []
        assert tellers.transfers > 50, (tellers.transfers, tellers.failed)
        assert tellers.looks
        assert total(cluster) == TOTAL
        gone = cluster.kill_all()
        cluster.restart(gone)
        cluster.wait_safe(60)
        assert total(cluster) == TOTAL, "from the files"


def test_a_cut_shows_each_transaction_whole() -> None:
    with LocalCluster(members=3, config=CONFIG) as cluster, busy(cluster, 4) as tellers:
        whole = cuts(
            cluster, lambda client: take_whole_cut(client, ["accounts", "vault"]), 30, until_wrong=False
        )
        assert whole == [TOTAL] * 30
        torn = cuts(cluster, lambda client: take_cut(client, ["accounts", "vault"]), 300, until_wrong=True)
        assert torn[-1] != TOTAL, "a cut that does not wait shows half of some: so the judge sees it"
        assert tellers.wrong == []


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_ten_minutes_of_transfers_with_kills_drains_and_joins(tmp_path: Path) -> None:
    config = CONFIG + 'journal = "sync"\n'
    until_s = time.monotonic() + 600
    draw = random.Random(15)
    with LocalCluster(members=4, config=config, data_dir=tmp_path / "data") as cluster:
        with busy(cluster, 8) as tellers:
            killed = 0
            while time.monotonic() < until_s:
                client = Doomed(cluster.client_addresses(), killed)
                time.sleep(draw.uniform(1, 5))
                client.kill()
                killed += client.working
                victim = draw.choice(cluster.alive)
                if draw.random() < 0.6:
                    cluster.kill(victim)
                else:
                    cluster.drain(victim)
                cluster.start_member()
                cluster.wait_safe(120)
        print(
            f"{tellers.transfers} transfers, {tellers.looks} looks, {tellers.failed} failed, {killed} clients killed"
        )
        assert killed
        assert tellers.wrong == []
        assert total(cluster) == TOTAL
        gone = cluster.kill_all()
        cluster.restart(gone)
        cluster.wait_safe(120)
        assert total(cluster) == TOTAL
