"""What the tests of the client share: real members, and the official client beside it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import hazelcast
import pytest

from holdfast_lab.processes.local_cluster import LocalCluster


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(members=3) as running:
        running.wait_settled()
        yield running


@pytest.fixture(scope="module")
def official(cluster: LocalCluster) -> Iterator[Any]:
    client = hazelcast.HazelcastClient(cluster_members=cluster.client_addresses())
    yield client
    client.shutdown()


STEPS: list[tuple[str, tuple[Any, ...]]] = [
    ("get", ("k",)),
    ("put", ("k", "one")),
    ("put", ("k", 2)),
    ("put_if_absent", ("k", "three")),
    ("put_if_absent", ("l", "four")),
    ("contains_key", ("k",)),
    ("contains_key", ("none",)),
    ("set", ("m", b"bytes")),
    ("replace", ("m", 1.5)),
    ("replace", ("none", 1.5)),
    ("replace_if_same", ("m", 1.5, "same")),
    ("replace_if_same", ("m", 1.5, "other")),
    ("get", ("m",)),
    ("size", ()),
    ("remove", ("m",)),
    ("remove", ("m",)),
    ("put_all", ({n: str(n) for n in range(50)},)),
    ("get_all", ([*range(45, 55), "k"],)),
    ("size", ()),
    ("is_empty", ()),
    ("clear", ()),
    ("is_empty", ()),
]
"""Operations in this order, which answer differently as they go."""


@pytest.fixture
def steps() -> list[tuple[str, tuple[Any, ...]]]:
    return STEPS
