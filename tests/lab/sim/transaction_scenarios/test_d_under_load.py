"""Scenarios D1, D2 and D11: members restart, or leave, while applications run transactions, small and large ones.

The small ones are judged by what they read (`holdfast_lab.check.serializability`); the large ones write 5 to 100
entries, remove what the last one has written, and are there as a whole or not at all.
"""

from __future__ import annotations

import random

import msgspec
import pytest
from tests.lab.sim.scenarios.keeping import Files, kept
from tests.lab.sim.transaction_scenarios.scenario_stage import ToldTransaction, TransactingStage, under_load

from holdfast.config import MapSettings
from holdfast.core.model.ids import MILLISECOND

SMALL: Files = {"segment_bytes": 4096, "checkpoint_bytes": 4096, "history_bytes": 20_000}


class LargeTransactions:
    """One after the other: each writes entries of its own, and removes some of those that the last one has written."""

    def __init__(self, stage: TransactingStage) -> None:
        self.stage = stage
        self.random = random.Random(stage.world.seed)
        self.last: list[str] = []
        self.count = 0
        self.present: ToldTransaction | None = None

    def begin(self, *without: int) -> None:
        """Begin one at a member that is not among these."""
        stage, draw = self.stage, self.random
        self.count += 1
        if self.present is not None and self.present.done:
            self.last = [key for key, value in self.present.entries.items() if value is not None]
        elif self.present is not None:
            self.last = []
        size = draw.choice([5, 20, 100])
        entries = stage.values(f"large{self.count}.{number}" for number in range(size))
        entries |= dict.fromkeys(self.last[: round(0.7 * size)])
        hosts = [stage.host_of(process) for process in stage.cluster.living()]
        host = draw.choice([host for host in hosts if host not in without])
        self.present = stage.begin(host, entries, optimistic=draw.random() < 0.5)

    def end(self) -> None:
        """Commit it, or roll it back now and then."""
        assert self.present is not None
        if self.random.random() < 0.1:
            self.stage.roll_back(self.present)
        else:
            self.stage.commit(self.present)


@pytest.mark.covering(1)
@pytest.mark.parametrize("how", ["kill", "power cut"])
@pytest.mark.parametrize("role", ["primary", "backup"])
@pytest.mark.parametrize("away_s", [1.0, 6.0])
@pytest.mark.parametrize("tail_bytes", [0, 65_536])
def test_d1_and_d2_members_restart_under_load(how: str, role: str, away_s: float, tail_bytes: int) -> None:
    """The primary, again and again; or backups, of four members of which one holds nothing of the partition."""
    stage = TransactingStage(4, under_load(kept(2, tail_bytes=tail_bytes, chunk_bytes=300, **SMALL)))
    stop, large = stage.applications(), LargeTransactions(stage)
    for _ in range(4):
        stage.wait(1.5)
        victim = stage.holders()[0 if role == "primary" else 1]
        large.begin(victim)
        large.end()
        stage.wait(large.random.choice([0, 1, 2, 3, 5, 10]) * MILLISECOND / 1e9)
        stage.end("kill" if how == "kill" else "power cut", victim)
        stage.wait(away_s)
        stage.start(victim)
        stage.calm()
    assert stop() > 5
    stage.whole()


@pytest.mark.covering(1)
@pytest.mark.parametrize("backups", [0, 1])
@pytest.mark.parametrize("hosts", [2, 3])
def test_d11_primaries_leave_under_load(hosts: int, backups: int) -> None:
    settings = under_load(kept(backups, chunk_bytes=300))
    # Of partitions that nothing has a backup of the judge would want as many copies as there can be.
    other = MapSettings(backups=1, journal="sync")
    settings = msgspec.structs.replace(settings, maps={**settings.maps, "other": other})
    stage = TransactingStage(hosts, settings)
    stop, large = stage.applications(), LargeTransactions(stage)
    for turn in range(4):
        stage.wait(1.5)
        victim = 1 + turn % (hosts - 1)
        large.begin(victim)
        large.end()
        stage.leave(victim)
        stage.wait(0.5)
        stage.start(victim)
        stage.calm()
        assert large.present is not None
        stage.answered(large.present)
    assert stop() > 5
    stage.whole()
