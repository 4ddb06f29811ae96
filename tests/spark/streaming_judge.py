"""Clients that change a map, and the judge of what a change stream has told of it."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Self

from holdfast.client.blocking import Client

Told = dict[str, Any]
"""A row of a stream with keys and values as text."""

KEYS = 300


class Writer:
    """A Hazelcast client that sets and removes keys until it is told to stop."""

    def __init__(self, addresses: Iterable[str], name: str, seed: int = 1, keys: int = KEYS) -> None:
        import hazelcast

        self._client = hazelcast.HazelcastClient(
            cluster_members=list(addresses), cluster_connect_timeout=30.0
        )
        self._map = self._client.get_map(name).blocking()
        self._random = random.Random(seed)
        self._keys = keys
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self.done = 0
        self.doubtful = 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join(60)
        self._client.shutdown()
        assert not self._thread.is_alive()

    def _work(self) -> None:
        from hazelcast.errors import HazelcastError

        while not self._stop.wait(0.001):
            key = f"k{self._random.randrange(self._keys)}"
            try:
                if self._random.random() < 0.2:
                    self._map.delete(key)
                else:
                    self._map.set(key, f"v{self.done}")
                self.done += 1
            except (HazelcastError, OSError):
                self.doubtful += 1


@dataclass(slots=True)
class Verdict:
    """What is wrong with a stream; nothing, if all is empty."""

    twice: list[tuple[int, int, int]] = field(default_factory=list)
    """Partition, term and counter of changes that were told more than once."""
    torn: list[str] = field(default_factory=list)
    """Changes that do not begin where the one before them ended: something is missing between them."""
    wrong: list[str] = field(default_factory=list)
    """Keys whose value at the end is another one than the map's."""
    rows: int = 0


def judge(rows: Iterable[Told], content: dict[str, str]) -> Verdict:
    """Whether the rows, whatever their order, are every change once, and lead to this content of the map."""
    verdict = Verdict()
    ordered = sorted(
        rows, key=lambda row: (row["partition"], row["counter"], row["term"], row["time"] is not None)
    )
    held: dict[str, str] = {}
    last: tuple[int, int, int] | None = None
    for row in ordered:
        verdict.rows += 1
        key = row["key"]
        place = row["partition"], row["term"], row["counter"]
        if row["time"] is not None and place == last:
            verdict.twice.append(place)
        last = place if row["time"] is not None else None
        if held.get(key) != row["before"]:
            verdict.torn.append(f"{place}: {key} was {held.get(key)}, told as {row['before']}")
        if row["after"] is None:
            held.pop(key, None)
        else:
            held[key] = row["after"]
    for key in sorted({*held, *content}):
        if held.get(key) != content.get(key):
            verdict.wrong.append(f"{key}: {held.get(key)}, in the map {content.get(key)}")
    return verdict


def content_of(addresses: Iterable[str], name: str) -> dict[str, str]:
    """What a map of texts holds."""
    found: dict[str, str] = {}
    with Client(list(addresses)) as client:
        for partition in range(client.partition_count):
            for page in client.scan(name, partition):
                keys, values = page.split()
                found.update(
                    (key[8:].decode(), value[8:].decode()) for key, value in zip(keys, values, strict=True)
                )
    return found
