"""Real member processes, for somebody else's clients."""

from __future__ import annotations

import select
from collections.abc import Iterator

import pytest

from holdfast_lab.processes import text_processor
from holdfast_lab.processes.local_cluster import LocalCluster

GUARDED = """
[cluster]
name = "guarded"

[security]
username = "ada"
password = "a long enough secret"
token = "an opaque token"
"""


@pytest.fixture(scope="module", params=["poll", "loop"])
def sockets(request: pytest.FixtureRequest) -> str:
    """How clients' bytes come and go (`member.sockets`), as a part of a member's file."""
    if request.param == "poll" and not hasattr(select, "epoll"):
        pytest.skip("this system has no epoll")
    return f'[member]\nsockets = "{request.param}"\n'


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    """Three members that no test may harm. They end with the file: members that nobody uses still take 1 % of a
    processor each, and every worker would keep its own until the last test.
    """
    with LocalCluster(members=3, config=text_processor.SETTINGS) as running:
        running.wait_settled()
        yield running


@pytest.fixture(scope="module")
def guarded() -> Iterator[LocalCluster]:
    """One member that asks who is there."""
    with LocalCluster(members=1, config=GUARDED) as running:
        yield running
