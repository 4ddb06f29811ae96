from __future__ import annotations

import pytest
from tests.server.hazelcast.one_member import OneMemberGrid
from tests.server.hazelcast.wire import Wire


@pytest.fixture
def grid() -> OneMemberGrid:
    return OneMemberGrid()


@pytest.fixture
def wire(grid: OneMemberGrid) -> Wire:
    """A connection that has authenticated."""
    found = Wire(grid)
    found.login()
    return found
