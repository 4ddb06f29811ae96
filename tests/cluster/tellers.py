"""People who move money between accounts in transactions, with the official Python client: as threads of a test, and as
a process of their own that can be killed (`python -m tests.cluster.tellers SEED ADDRESS...`).
"""

from __future__ import annotations

import random
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Self

import hazelcast
from hazelcast.errors import HazelcastError

ROOT = Path(__file__).parents[2]
ACCOUNTS = 40
TOTAL = 100 * ACCOUNTS


Place = Callable[[int], str]
"""The map in which an account is."""


def map_of(number: int) -> str:
    """Every other account is in a map that lives in a zone."""
    return "vault" if number % 2 else "accounts"


def outside(_: int) -> str:
    """All accounts are in the map with a primary and backups."""
    return "accounts"


def connect(addresses: list[str]) -> hazelcast.HazelcastClient:
    return hazelcast.HazelcastClient(cluster_name="dev", cluster_members=addresses)


def transfer(client: hazelcast.HazelcastClient, draw: random.Random, place: Place = map_of) -> None:
    """Move some money from one account to another one."""
    of, to = draw.sample(range(ACCOUNTS), 2)
    amount = draw.randint(1, 9)
    with client.new_transaction(timeout=15) as transaction:
        held = {
            number: transaction.get_map(place(number)).get_for_update(number) for number in sorted((of, to))
        }
        transaction.get_map(place(of)).set(of, held[of] - amount)
        transaction.get_map(place(to)).set(to, held[to] + amount)


class Tellers:
    """Threads that move money, and say what they were told."""

    def __init__(self, addresses: list[str], count: int, place: Place = map_of) -> None:
        self._addresses = addresses
        self._place = place
        self.running = True
        self.transfers = self.failed = self.looks = 0
        self.wrong: list[int] = []
        self._threads = [threading.Thread(target=self._work, args=(number,)) for number in range(count)]

    def _work(self, number: int) -> None:
        draw = random.Random(number)
        client = connect(self._addresses)
        while self.running:
            try:
                if draw.random() < 0.1:
                    self._look(client)
                else:
                    transfer(client, draw, self._place)
                    self.transfers += 1
            except (HazelcastError, OSError, AssertionError):
                self.failed += 1
        with suppress(HazelcastError, OSError):
            client.shutdown()

    def _look(self, client: hazelcast.HazelcastClient) -> None:
        with client.new_transaction(timeout=15) as transaction:
            found = sum(
                transaction.get_map(self._place(number)).get_for_update(number) for number in range(ACCOUNTS)
            )
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


class Doomed:
    """A process that moves money, until it is killed."""

    def __init__(self, addresses: list[str], seed: int) -> None:
        command = [sys.executable, "-m", "tests.cluster.tellers", str(seed), *addresses]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)
        assert self._process.stdout is not None
        self.working = self._process.stdout.readline() == "moving money\n"

    def kill(self) -> None:
        """End it in the middle of whatever it does."""
        self._process.kill()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()


def main(seed: str, *addresses: str) -> None:
    draw = random.Random(int(seed))
    client = connect(list(addresses))
    transfer(client, draw)
    print("moving money", flush=True)
    while True:
        with suppress(HazelcastError, OSError, AssertionError):
            transfer(client, draw)


if __name__ == "__main__":
    main(*sys.argv[1:])
