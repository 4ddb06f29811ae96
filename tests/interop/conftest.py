"""Real member processes, for somebody else's clients."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from holdfast.demo.local_cluster import LocalCluster

GUARDED = """
[cluster]
name = "guarded"

[security]
username = "ada"
password = "a long enough secret"
token = "an opaque token"
"""


@pytest.fixture(scope="session")
def cluster() -> Iterator[LocalCluster]:
    """Three members that no test may harm."""
    with LocalCluster(members=3) as running:
        running.wait_settled()
        yield running


@pytest.fixture(scope="session")
def guarded() -> Iterator[LocalCluster]:
    """One member that asks who is there."""
    with LocalCluster(members=1, config=GUARDED) as running:
        yield running
