"""What the tests of the client share: real members, and the official client beside it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import hazelcast
import pytest

from holdfast.demo.local_cluster import LocalCluster


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
