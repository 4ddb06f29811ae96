"""A new zone of many partitions begins piece by piece, so that members have time for everything else."""

from __future__ import annotations

import pytest
from tests.lab.sim.stage import Stage
from tests.lab.sim.zone_stage import ZoneStage, zoned_settings

from holdfast.core.model.ids import place_of
from holdfast.core.raft.configuration import Configuration
from holdfast.core.zones import replica_duties
from holdfast.core.zones.descriptors import ZoneSettings
from holdfast.core.zones.local_zone_groups import LocalZoneGroups
from holdfast.core.zones.zone_ports import Part
from holdfast_lab.sim.world import Process

PARTITIONS, AT_ONCE = 60, 8


class StartingStage(ZoneStage):
    """Members with a metastore, and no zone yet."""

    def __init__(self) -> None:
        Stage.__init__(self, 3, settings=zoned_settings(partitions={"count": PARTITIONS}))
        self.wait(10)


def leaderless(process: Process) -> int:
    """How many groups of zones this member has begun that have no leader, as far as it knows."""
    groups = process.driver.member.agreed.groups
    return sum(1 for number in groups.hosted if place_of(number)[0] and groups.lead(number) is None)


@pytest.mark.rule("zones/A-26")
def test_only_some_groups_of_a_new_zone_wait_for_a_leader_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replica_duties, "STARTS_AT_ONCE", AT_ONCE)
    stage = StartingStage()
    waiting: list[int] = []
    begun: dict[int, list[Part]] = {}
    found = LocalZoneGroups.found

    def counted(zoned: LocalZoneGroups, part: Part, configuration: Configuration) -> None:
        # Those that a leader has asked to take part are no affair of this.
        mine = begun.setdefault(id(zoned), [])
        mine.append(part)
        found(zoned, part, configuration)
        waiting.append(sum(not zoned.has_leader(one) for one in mine))

    monkeypatch.setattr(LocalZoneGroups, "found", counted)
    stage.create(ZoneSettings("z", partitions=PARTITIONS, replicas=3))
    stage.wait(60)
    # A few more than begin at a time: some lose their first leader again.
    assert AT_ONCE <= max(waiting) <= 2 * AT_ONCE < PARTITIONS
    for process in stage.processes:
        hosted = [number for number in process.driver.member.agreed.groups.hosted if place_of(number)[0]]
        assert len(hosted) == PARTITIONS
        assert leaderless(process) == 0


@pytest.mark.rule("zones/A-26")
def test_groups_that_get_no_leader_do_not_hold_others_up_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replica_duties, "STARTS_AT_ONCE", 1)
    stage = StartingStage()
    monkeypatch.setattr(LocalZoneGroups, "has_leader", lambda self, part: False)
    stage.create(ZoneSettings("z", partitions=3, replicas=3))
    stage.wait(30)
    for one in stage.processes:
        assert sum(1 for number in one.driver.member.agreed.groups.hosted if place_of(number)[0]) == 3
