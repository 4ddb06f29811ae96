"""Several maps that live in one zone move together."""

from __future__ import annotations

from functools import partial

import msgspec
from tests.lab.sim.zone_stage import ZONED, ZoneStage, zoned_settings

from holdfast.actions.change_zone import AlterZone
from holdfast.config import MapSettings
from holdfast.core.model.ids import group_of
from holdfast.core.model.keys import partition_of
from holdfast.core.model.operations import Op, Outcome, Request, Status
from holdfast.core.raft.group import Group
from holdfast.core.zones.descriptors import ZoneSettings
from holdfast_lab.sim.calls import wire_key

NAMES = (ZONED, "second", "third")


def test_1_all_maps_of_a_zone_are_moved_by_one_change_of_each_group() -> None:
    base = zoned_settings()
    maps = base.maps | {name: MapSettings(raft_zone="z") for name in NAMES}
    count = base.partitions.count
    stage = ZoneStage(
        3,
        zone=ZoneSettings("z", partitions=count, replicas=1),
        settings=msgspec.structs.replace(base, maps=maps),
    )
    process = stage.processes[0]
    filled = set()
    for number in range(2 * count):
        raw = wire_key(f"k{number}")
        filled.add(partition_of(raw, 0, count))
        for name in NAMES:
            answers: list[Outcome] = []
            asked = Request(Op.SET, name, [partition_of(raw, 0, count)], raw, name.encode())
            process.step(partial(process.driver.execute, asked, answers.append))
            stage.wait(1)
            assert [answer.status for answer in answers] == [Status.OK]
    assert len(filled) > count // 2
    before = tokens(stage, count)
    told: list[object] = []
    process.step(partial(process.driver.act, AlterZone("z", replicas=2), told.append))
    stage.wait(30)
    assert len(told) == 1
    after = tokens(stage, count)
    for part in range(count):
        assert after[part] > before[part]
        assert len(stage.voters(part)) == len(stage.replicas(part)) == 2
        assert configurations(stage, part) <= 2, "one change: joint, and final"
        for client in stage.replicas(part).values():
            held = b"".join(bytes(piece) for piece in client.state.pieces())
            assert all(name.encode() in held for name in NAMES) is (part in filled), part
    stage.same()


def tokens(stage: ZoneStage, count: int) -> list[int]:
    return [hosted(stage, part).configuration.token for part in range(count)]


def configurations(stage: ZoneStage, part: int) -> int:
    log = hosted(stage, part).log
    return sum(entry.configuration is not None for entry in log.entries_from(log.first))


def hosted(stage: ZoneStage, part: int) -> Group:
    groups = stage.leader(part).driver.member.agreed.groups
    return groups.hosted[group_of(1, part)].group
