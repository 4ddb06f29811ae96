"""An official client reads and writes while a cluster grows, loses a member and shrinks. More: `make resize`."""

from __future__ import annotations

from pathlib import Path

import pytest
from rich.console import Console

from holdfast.client.blocking import Client
from holdfast.core.model.keys import partition_of
from holdfast.core.model.operations import Op, Request
from holdfast.wire.values import to_stored
from holdfast_lab.chaos.resize import ZONED_BALLAST, ZONED_CLIENT, Plan, Resize, ballast_map, client_map
from holdfast_lab.processes.hazelcast_writer import connect
from holdfast_lab.processes.latency import CRASH, MOVEMENT, PROCESSES

CONSOLE = Console(width=140)


@pytest.mark.interop
def test_a_round_with_a_kill_loses_nothing(tmp_path: Path) -> None:
    plan = Plan(rounds=1, small=3, large=4, megabytes=1, rate=200, rest_s=0.5, seed=2)
    verdict = Resize(plan, CONSOLE, tmp_path).run()
    assert (verdict.lost, verdict.diverged, verdict.wrong_reads) == (0, 0, 0)
    assert verdict.acknowledged > 0
    assert verdict.migrations > 0
    assert (verdict.kills, {span.phase for span in verdict.spans}) == (1, {CRASH, MOVEMENT, PROCESSES})


class Sabotaged(Resize):
    """A run in which somebody takes out two entries before they are looked for."""

    def _compare(self) -> None:
        key = to_stored(7)
        partition = partition_of(key, 0, 271)
        with Client(self.cluster.client_addresses()) as client:
            for name in (client_map(1), ballast_map(1)):
                assert client.execute(Request(Op.DELETE, name, [partition], key=key)) is True
        super()._compare()


@pytest.mark.interop
def test_what_is_lost_is_found(tmp_path: Path) -> None:
    plan = Plan(rounds=0, backups=(1,), megabytes=1, rest_s=0, seed=2)
    verdict = Sabotaged(plan, CONSOLE, tmp_path).run()
    assert verdict.lost == 2
    assert not verdict.good


class SabotagedZone(Resize):
    """A run in which somebody takes out an entry of each map in the zone, changes one, and puts one in."""

    def _compare(self) -> None:
        client = connect(tuple(self.cluster.client_addresses()), "saboteur")
        for name in (ZONED_CLIENT, ZONED_BALLAST):
            sabotaged = client.get_map(name).blocking()
            assert sabotaged.remove(7) is not None
            assert sabotaged.put(8, -1) is not None
            assert sabotaged.put(1_000_000, 1) is None
        client.shutdown()
        super()._compare()


@pytest.mark.interop
@pytest.mark.slow
def test_what_is_lost_of_a_zone_is_found() -> None:
    plan = Plan(rounds=0, backups=(1,), megabytes=1, rest_s=0, seed=2, zones=True)
    verdict = SabotagedZone(plan, CONSOLE).run()
    assert verdict.lost == 6
    assert verdict.diverged == 0
    assert not verdict.good


@pytest.mark.slow
@pytest.mark.interop
@pytest.mark.timeout(600)
def test_a_round_with_a_kill_loses_nothing_of_a_zone(tmp_path: Path) -> None:
    plan = Plan(rounds=1, small=3, large=4, megabytes=1, rate=200, rest_s=0.5, seed=2, zones=True)
    verdict = Resize(plan, CONSOLE, tmp_path).run()
    assert (verdict.lost, verdict.diverged, verdict.wrong_reads) == (0, 0, 0)
    assert (verdict.kills, verdict.drains > 0) == (1, True)
    assert verdict.measured is not None
    of_zone = verdict.measured.maps[ZONED_CLIENT]
    assert all(of_zone[phase].operations > of_zone[phase].errors for phase in (CRASH, MOVEMENT))


@pytest.mark.slow
@pytest.mark.interop
@pytest.mark.timeout(3600)
def test_ten_rounds_lose_nothing_and_nobody_but_around_crashes_is_told_an_error() -> None:
    verdict = Resize(Plan(seed=271), CONSOLE).run()
    assert verdict.good
    assert verdict.measured is not None
    assert verdict.measured.errors == 0
