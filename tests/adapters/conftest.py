"""One cluster for all tests of adapters; what dogpile.cache's own tests are marked with."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from holdfast_lab.processes.local_cluster import LocalCluster


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "time_intensive: a mark of dogpile.cache's own tests")


@pytest.fixture(scope="session")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(members=2) as running:
        running.wait_settled()
        yield running


@pytest.fixture(scope="session")
def addresses(cluster: LocalCluster) -> str:
    """As people write them: the doors of all members."""
    return ",".join(cluster.client_addresses())
