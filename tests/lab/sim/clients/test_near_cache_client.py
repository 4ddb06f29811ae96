"""A simulated client with a near cache: what it keeps, forgets and repairs."""

from __future__ import annotations

import random
from itertools import islice

import pytest
from tests.lab.sim.callers import request
from tests.lab.sim.stage import Stage, settings
from tests.lab.sim.zone_stage import ZONED, ZoneStage

from holdfast.core.model.ids import SECOND, group_of
from holdfast.core.model.keys import partition_of
from holdfast.core.model.operations import EntryEvent, Op, Outcome, Request
from holdfast.core.zones.descriptors import ZoneSettings
from holdfast.server.hazelcast.near_caches import Invalidations
from holdfast_lab.sim.calls import wire_key
from holdfast_lab.sim.clients.near_cache_client import NearCacheClient
from holdfast_lab.sim.clients.simulated_doors import Doors
from holdfast_lab.sim.run import simulate
from holdfast_lab.sim.workload import MAP


def connected(stage: Stage, map_name: str = MAP, repair_s: int = 0) -> NearCacheClient:
    doors = Doors(stage.world, stage.cluster)
    client = NearCacheClient("near", stage.world, doors, random.Random("near"), map_name, repair_s * SECOND)
    client.calm = True
    client.start()
    stage.wait(6)
    return client


def write(stage: Stage, op: Op, key: str, value: str = "") -> None:
    process = stage.processes[0]
    process.step(lambda: process.driver.execute(request(op, key, value), lambda outcome: None))
    stage.wait(1)


def kept(client: NearCacheClient, key: str) -> str | None:
    """What it keeps of this key after it has read it, if it keeps it."""
    client.read(key)
    client.world.run_until(client.world.now_ns + SECOND)
    return next((found.value for found in client.kept if found.key == key), None)


def keeps(client: NearCacheClient, key: str) -> bool:
    return any(found.key == key for found in client.kept)


@pytest.fixture
def dropped(monkeypatch: pytest.MonkeyPatch) -> set[bytes]:
    """Keys whose invalidations no member sends."""
    keys: set[bytes] = set()
    original = Invalidations._on_event

    def hears(fed: Invalidations, event: EntryEvent) -> None:
        if event.key not in keys:
            original(fed, event)

    monkeypatch.setattr(Invalidations, "_on_event", hears)
    return keys


def test_a_read_value_is_kept_until_it_changes() -> None:
    stage = Stage(3, settings=settings(1))
    client = connected(stage)
    assert client.fed == 3
    write(stage, Op.SET, "a", "old")
    assert kept(client, "a") == "old"
    assert client.read("a"), "no member is asked"
    write(stage, Op.SET, "a", "new")
    assert not keeps(client, "a")
    assert kept(client, "a") == "new"
    write(stage, Op.REMOVE, "a")
    assert kept(client, "a") is None
    assert client.problems == []


def test_an_answer_that_an_invalidation_overtakes_is_not_kept() -> None:
    stage = Stage(3, settings=settings(1))
    client = connected(stage)
    write(stage, Op.SET, "a", "old")
    client.read("a")
    client.cache.forget([wire_key("a")])
    stage.wait(1)
    assert client.kept == []


def test_a_connection_that_breaks_takes_what_its_member_fed() -> None:
    stage = Stage(3, settings=settings(1))
    client = connected(stage)
    keys = [f"k{number}" for number in range(20)]
    for key in keys:
        write(stage, Op.SET, key, "old")
        assert kept(client, key) == "old"
    owner = stage.owner_of("k0")
    client.break_line(client.lines[owner.host])
    stage.wait(0.05)
    gone = {key for key in keys if not keeps(client, key)}
    assert gone == {key for key in keys if stage.owner_of(key) is owner}
    stage.wait(3)
    assert client.fed == 4, "registered again"
    assert kept(client, "k0") == "old"


@pytest.mark.parametrize("repair_s", [0, 5])
def test_a_lost_invalidation_is_repaired_by_numbers(repair_s: int, dropped: set[bytes]) -> None:
    stage = Stage(3, settings=settings(1))
    client = connected(stage, repair_s=repair_s)
    write(stage, Op.SET, "a", "first")
    write(stage, Op.SET, "a", "old")
    assert kept(client, "a") == "old"
    dropped.add(wire_key("a"))
    write(stage, Op.SET, "a", "new")
    dropped.clear()
    stage.wait(6)
    assert keeps(client, "a") is (repair_s == 0)
    if not repair_s:
        # Without repairs the next change of the partition shows that one is missing.
        write(stage, Op.SET, "a", "newer")
        assert client.cache.statistics.missed == 1
    assert kept(client, "a") in ("new", "newer")


def test_a_gap_forgets_the_other_keys_of_the_partition(dropped: set[bytes]) -> None:
    stage = Stage(1, settings=settings(0))
    client = connected(stage)
    home = partition_of(wire_key("k0"), 0, 7)
    names = (f"k{number}" for number in range(100))
    missed, other, later = islice((key for key in names if partition_of(wire_key(key), 0, 7) == home), 3)
    for key in (missed, other):
        write(stage, Op.SET, key, "old")
    assert (kept(client, missed), kept(client, other)) == ("old", "old")
    dropped.add(wire_key(missed))
    write(stage, Op.SET, missed, "new")
    assert keeps(client, missed)
    write(stage, Op.SET, later, "new")
    assert client.kept == []


def clear(stage: Stage) -> None:
    answers: list[Outcome] = []
    request = Request(Op.CLEAR, ZONED, list(range(7)))
    process = stage.processes[0]
    process.step(lambda: process.driver.execute(request, answers.append))
    stage.until(lambda: bool(answers), what="not cleared")
    stage.wait(1)


def zone_of(partitions: int, hosts: int = 3, replicas: int = 3) -> ZoneStage:
    return ZoneStage(hosts, zone=ZoneSettings("z", partitions=partitions, replicas=replicas))


@pytest.mark.rule("streams/E-1")
@pytest.mark.parametrize("partitions", [7, 3])
def test_a_near_cache_of_a_map_in_a_zone_forgets_what_changes(partitions: int) -> None:
    """With 3 groups for 7 partitions some leaders do not own the partition for the clients."""
    stage = zone_of(partitions, hosts=4, replicas=3)
    client = connected(stage, ZONED)
    assert client.fed == 4
    keys = [f"k{number}" for number in range(20)]
    for value in ("old", "new"):
        for key in keys:
            stage.zput(stage.processes[0], key, value)
        stage.wait(1)
        assert not any(keeps(client, key) for key in keys)
        assert {kept(client, key) for key in keys} == {value}
    assert client.cache.statistics.missed == 0
    stage.request(stage.processes[1], Op.REMOVE, "k0")
    stage.wait(2)
    assert not keeps(client, "k0")
    assert keeps(client, "k1")
    clear(stage)
    assert client.kept == []
    assert client.problems == []


@pytest.mark.rule("raft_partition/R-4")
def test_a_new_leader_clears_near_caches() -> None:
    stage = zone_of(7)
    client = connected(stage, ZONED)
    stage.zput(stage.processes[0], "a", "old")
    assert kept(client, "a") == "old"
    before = client.cleared
    partition = partition_of(wire_key("a"), 0, 7)
    old = stage.leader(partition)
    number = group_of(1, partition)
    groups = old.driver.member.agreed.groups
    other = next(node for node in sorted(stage.voters(partition)) if node != groups.me)
    old.step(lambda: groups.running(number).transfer(other))
    stage.until(lambda: not stage.replicas(partition)[old].leads, what="no other leader")
    stage.wait(1)
    assert client.cleared > before
    stage.zput(stage.processes[0], "a", "new")
    assert kept(client, "a") == "new"
    assert client.problems == []


@pytest.mark.parametrize("repair_s", [0, 5])
def test_numbers_of_a_zone_show_a_lost_invalidation(repair_s: int, dropped: set[bytes]) -> None:
    stage = zone_of(3)
    client = connected(stage, ZONED, repair_s=repair_s)
    for value in ("first", "old"):
        stage.zput(stage.processes[0], "a", value)
    assert kept(client, "a") == "old"
    dropped.add(wire_key("a"))
    stage.zput(stage.processes[0], "a", "new")
    dropped.clear()
    stage.wait(6)
    assert keeps(client, "a") is (repair_s == 0)
    if not repair_s:
        stage.zput(stage.processes[0], "a", "newer")
        assert client.cache.statistics.missed == 1
    assert kept(client, "a") in ("new", "newer")


def test_runs_judge_near_caches() -> None:
    verdict = simulate(202, lies=frozenset({"near-cache-repeats"}))
    assert verdict.figures["near_cache_hits"] > 0
    assert verdict.figures["near_cache_invalidations"] > 0
    assert any("follows" in problem for problem in verdict.problems)
