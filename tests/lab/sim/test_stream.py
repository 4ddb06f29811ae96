"""The reader of change streams in simulated runs: when it has read what there is, and how it gets there."""

from __future__ import annotations

from functools import partial

import msgspec
from tests.lab.sim.stage import Stage

from holdfast.core.model.ids import SECOND
from holdfast.core.model.keys import partition_of
from holdfast.core.model.operations import Op, Outcome, Request, Status
from holdfast_lab.sim.calls import wire_key
from holdfast_lab.sim.cluster import simulated_settings
from holdfast_lab.sim.stream_readers import Reader
from holdfast_lab.sim.workload import MAP

PARTITIONS = 7


def staged(hosts: int, changes_bytes: int = 1 << 20) -> tuple[Stage, Reader]:
    base = simulated_settings(1, PARTITIONS)
    maps = {
        name: msgspec.structs.replace(chosen, changes_bytes=changes_bytes)
        for name, chosen in base.maps.items()
    }
    stage = Stage(hosts, settings=msgspec.structs.replace(base, maps=maps))
    return stage, Reader(stage.world, stage.cluster, MAP, lambda key: MAP)


def test_what_has_ended_is_read_only_when_its_end_was_told() -> None:
    stage, reader = staged(2)
    reader.start()
    raw = wire_key("short")
    partition = partition_of(raw, 0, PARTITIONS)
    answers: list[Outcome] = []
    request = Request(Op.SET, MAP, [partition], raw, b"lived", ttl_ms=3000)
    process = stage.owner_of("short")
    process.step(partial(process.driver.execute, request, answers.append))
    ended_ns = stage.world.now_ns + 3 * SECOND
    stage.wait(2.9)
    assert [answer.status for answer in answers] == [Status.OK]
    assert reader.caught_up
    assert reader.content[partition] == {raw: b"lived"}
    stage.world.run_until(ended_ns)
    answers = stage.ask(process, Op.GET, "short")
    assert [answer.value for answer in answers] == [None]
    assert not reader.caught_up
    stage.world.run_until(ended_ns + 5 * SECOND, stop=lambda: reader.caught_up)
    assert reader.content[partition] == {}


def test_what_is_written_and_not_safe_yet_is_still_to_be_read() -> None:
    stage, reader = staged(2)
    reader.start()
    stage.put(stage.processes[0], "k", "a")
    stage.wait(2)
    assert reader.caught_up
    stage.ask(stage.owner_of("k"), Op.SET, "k", "b")
    assert not reader.caught_up
    stage.wait(3)
    assert reader.caught_up


def test_forgotten_changes_are_soon_known_to_be_so_among_many_members() -> None:
    stage, reader = staged(13, changes_bytes=2000)
    for step in range(40):
        stage.ask(stage.processes[0], Op.SET, "k", f"{step}" + "x" * 100)
        stage.wait(0.1)
    stage.wait(1)
    reader.start()
    stage.world.run_until(stage.world.now_ns + 12 * SECOND, stop=lambda: reader.caught_up)
    assert reader.caught_up
    assert list(reader.gone) == [partition_of(wire_key("k"), 0, PARTITIONS)]


def test_a_lost_partition_is_not_waited_for() -> None:
    """Seed 20090: the wait for partitions that had begun again ended just after an entry had expired in another one."""
    stage, reader = staged(2)
    reader.start()
    stage.put(stage.processes[0], "k", "a")
    stage.wait(2)
    assert reader.caught_up
    partition = partition_of(wire_key("k"), 0, PARTITIONS)
    reader.at[partition] = (99, 1)
    assert not reader.caught_up
    stage.cluster.lost.append((partition, stage.world.now_ns))
    assert reader.caught_up
