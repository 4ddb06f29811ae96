"""All members are killed at once under load and come back with their files. The long form is `make powercut`."""

from __future__ import annotations

from pathlib import Path

import pytest
from rich.console import Console

from holdfast.client.blocking import Client
from holdfast.core.placement.key import partition_of
from holdfast.core.store.operations import Op, Request
from holdfast.demo import powercut
from holdfast.demo.witness import KEYS
from holdfast.wire.values import to_stored

CONSOLE = Console(width=140)


@pytest.mark.interop
def test_two_cuts_lose_nothing(tmp_path: Path) -> None:
    assert powercut.main(rounds=2, seed=271, folder=tmp_path, console=CONSOLE) == 0


class Sabotaged(powercut.PowerCut):
    """A run in which somebody empties the journalled map after each cut, before it is read back."""

    def _cut(self, *, again: bool) -> float:
        served_s = super()._cut(again=again)
        with Client(self.cluster.client_addresses()) as client:
            count = client.partition_count
            for key in map(to_stored, range(KEYS)):
                client.execute(Request(Op.DELETE, powercut.SYNC, [partition_of(key, 0, count)], key=key))
        return served_s


@pytest.mark.slow
@pytest.mark.interop
def test_what_is_lost_is_found(tmp_path: Path) -> None:
    verdict = Sabotaged(1, 3, 271, CONSOLE, tmp_path).run()
    assert verdict.lost > 0
    assert verdict.lazy_lost == 0
    assert not verdict.good


@pytest.mark.campaign
@pytest.mark.interop
@pytest.mark.timeout(3600)
def test_fifty_cuts_lose_nothing() -> None:
    assert powercut.main(rounds=50, seed=271, console=CONSOLE) == 0
