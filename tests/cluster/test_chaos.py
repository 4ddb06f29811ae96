"""Official clients write while members are killed and others join. The long form is `make chaos`."""

from __future__ import annotations

import pytest
from rich.console import Console

from holdfast.demo import chaos


@pytest.mark.slow
@pytest.mark.interop
def test_two_rounds_of_kill_lose_nothing() -> None:
    assert chaos.main(rounds=2, members=3, clients=1, seed=271, console=Console(width=140)) == 0


@pytest.mark.campaign
@pytest.mark.interop
@pytest.mark.timeout(1800)
def test_twenty_rounds_of_kill_lose_nothing() -> None:
    assert chaos.main(rounds=20, seed=271, console=Console(width=140)) == 0
