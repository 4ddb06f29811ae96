"""Transactions on real member processes, with the official Python client: transfers between accounts, whoever dies."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Self

import hazelcast
import pytest
from hazelcast.errors import HazelcastError

from holdfast.client.blocking import Client
from holdfast.client.cut_handles import Cut, end_cut, scan_cut, take_cut
from holdfast.client.whole_cuts import take_whole_cut
from holdfast.demo.local_cluster import LocalCluster
from holdfast.wire.values import from_stored

pytestmark = [
    pytest.mark.interop,
    # The client leaves its sockets to the garbage collector.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

ACCOUNTS = 40
TOTAL = 100 * ACCOUNTS
CONFIG = """
[cluster]
heartbeat_ms = 200
suspect_after_ms = 1500
[transactions]
deadlock_after_ms = 100
[partitions]
count = 31
[maps.accounts]
transactional = true
backups = 1
"""


def connect(cluster: LocalCluster) -> hazelcast.HazelcastClient:
    return hazelcast.HazelcastClient(cluster_name="dev", cluster_members=cluster.client_addresses())


class Tellers:
    """Threads that move money, and say what they were told."""

    def __init__(self, cluster: LocalCluster, count: int) -> None:
        self._cluster = cluster
        self.running = True
        self.transfers = self.failed = self.looks = 0
        self.wrong: list[int] = []
        self._threads = [threading.Thread(target=self._work, args=(number,)) for number in range(count)]

    def _work(self, number: int) -> None:
        draw = random.Random(number)
        client = connect(self._cluster)
        while self.running:
            try:
                if draw.random() < 0.1:
                    self._look(client)
                else:
                    self._transfer(client, *draw.sample(range(ACCOUNTS), 2), draw.randint(1, 9))
            except (HazelcastError, OSError, AssertionError):
                self.failed += 1
        with suppress(HazelcastError, OSError):
            client.shutdown()

    def _transfer(self, client: hazelcast.HazelcastClient, of: int, to: int, amount: int) -> None:
        with client.new_transaction(timeout=15) as transaction:
            accounts = transaction.get_map("accounts")
            first, second = sorted((of, to))
            held = {first: accounts.get_for_update(first), second: accounts.get_for_update(second)}
            accounts.set(of, held[of] - amount)
            accounts.set(to, held[to] + amount)
        self.transfers += 1

    def _look(self, client: hazelcast.HazelcastClient) -> None:
        with client.new_transaction(timeout=15) as transaction:
            accounts = transaction.get_map("accounts")
            found = sum(accounts.get_for_update(number) for number in range(ACCOUNTS))
        self.looks += 1
        if found != TOTAL:
            self.wrong.append(found)

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.running = False
        for thread in self._threads:
            thread.join(60)


def fill(cluster: LocalCluster) -> None:
    client = connect(cluster)
    client.get_map("accounts").blocking().put_all(dict.fromkeys(range(ACCOUNTS), 100))
    client.shutdown()


def total(cluster: LocalCluster) -> int:
    client = connect(cluster)
    try:
        return sum(client.get_map("accounts").blocking().values())
    finally:
        client.shutdown()


def sum_at(client: Client, cut: Cut) -> int:
    found = 0
    for partition in range(client.partition_count):
        for page in scan_cut(client, cut, "accounts", partition):
            for value in page.columns.split()[1]:
                amount = from_stored(value)
                assert isinstance(amount, int)
                found += amount
    end_cut(client, cut)
    return found


@contextmanager
def busy(cluster: LocalCluster, tellers: int = 3) -> Iterator[Tellers]:
    cluster.wait_safe(60)
    fill(cluster)
    with Tellers(cluster, tellers) as working:
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
            for _ in range(2):
                cluster.kill(cluster.alive[1])
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
        whole = cuts(cluster, lambda client: take_whole_cut(client, ["accounts"]), 30, until_wrong=False)
        assert whole == [TOTAL] * 30
        torn = cuts(cluster, lambda client: take_cut(client, ["accounts"]), 300, until_wrong=True)
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
            while time.monotonic() < until_s:
                time.sleep(draw.uniform(1, 5))
                victim = draw.choice(cluster.alive)
                if draw.random() < 0.6:
                    cluster.kill(victim)
                else:
                    cluster.drain(victim)
                cluster.start_member()
                cluster.wait_safe(120)
        print(f"{tellers.transfers} transfers, {tellers.looks} looks, {tellers.failed} failed")
        assert tellers.wrong == []
        assert total(cluster) == TOTAL
        gone = cluster.kill_all()
        cluster.restart(gone)
        cluster.wait_safe(120)
        assert total(cluster) == TOTAL
