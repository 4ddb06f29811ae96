"""Members that come back without their files: they replace those that they were (zones/A-28)."""

from __future__ import annotations

import pytest
from tests.lab.sim.test_zone_orders import order
from tests.lab.sim.zone_stage import ZoneStage, zoned_settings

from holdfast.actions.change_zone import AlterZone, ResetZone
from holdfast.core.zones.data_nodes import data_nodes_of
from holdfast.core.zones.descriptors import NEVER, ZoneSettings
from holdfast.core.zones.zone_keys import ZONE_PREFIX, KeysRead
from holdfast.errors import RequestError
from holdfast_lab.sim.ablations.switching import ablated
from holdfast_lab.sim.world import Process

PARTITIONS = 7
KEYS = [f"k{number}" for number in range(20)]
MOVE_S = 12
"""One loss: 3 s until the member is out of the view, then its successor joins and its replicas move."""


def begun(scale_down_s: int = 300) -> ZoneStage:
    zone = ZoneSettings("z", partitions=PARTITIONS, replicas=3, scale_down_s=scale_down_s)
    stage = ZoneStage(3, zone=zone, settings=zoned_settings(), named=True)
    for number, key in enumerate(KEYS):
        stage.zput(stage.processes[number % 3], key, f"v{number}")
    return stage


def replaced(stage: ZoneStage, index: int) -> Process:
    """The member on this host is lost with everything it had, and another process starts there at once."""
    stage.processes[index].crash()
    stage.processes[index] = stage.cluster.start(index)
    stage.wait(MOVE_S)
    return stage.processes[index]


def holders(stage: ZoneStage) -> list[int]:
    return [len(stage.replicas(partition)) for partition in range(PARTITIONS)]


def leaderless(stage: ZoneStage) -> list[int]:
    return [
        partition
        for partition in range(PARTITIONS)
        if not any(client.leads for client in stage.replicas(partition).values())
    ]


@pytest.mark.rule("zones/A-28")
def test_members_are_replaced_for_good_one_after_the_other_and_every_write_is_there() -> None:
    """All three, twice: as long as one move fits between two losses no partition lacks its majority."""
    stage = begun()
    for turn in range(6):
        replaced(stage, turn % 3)
        assert leaderless(stage) == []
        assert holders(stage) == [3] * PARTITIONS
        for partition in range(PARTITIONS):
            assert len(stage.voters(partition)) == 3
    for number, key in enumerate(KEYS):
        assert stage.zget(stage.processes[number % 3], key) == f"v{number}"
    stage.zput(stage.processes[0], "after", "x")
    stage.wait(2)
    stage.same()
    assert all(not process.driver.member.agreed.unsafe_reason() for process in stage.living())


@pytest.mark.parametrize("scale_down_s", [300, NEVER])
def test_without_the_rule_the_second_loss_takes_the_majority(scale_down_s: int) -> None:
    with ablated("zone-successors"):
        stage = begun(scale_down_s)
        replaced(stage, 0)
        assert min(holders(stage)) == 2, "the zone waits for the member that has gone"
        replaced(stage, 1)
        assert leaderless(stage)


def test_a_member_at_another_address_does_not_replace_one_that_may_come_back() -> None:
    zone = ZoneSettings("z", partitions=PARTITIONS, replicas=3, scale_down_s=30)
    stage = ZoneStage(3, zone=zone, settings=zoned_settings(), named=True, spare=1)
    stage.processes[2].crash()
    stage.processes.append(stage.cluster.start(3))
    stage.wait(MOVE_S)
    metastore = stage.processes[0].driver.member.agreed.metastore
    read = KeysRead(metastore.scan(ZONE_PREFIX))
    names = stage.processes[0].driver.member.agreed.view.names()
    nodes = data_nodes_of(read, 1)
    assert len(nodes.latest) == 4
    assert nodes.latest - names.keys() == set(nodes.down.nodes if nodes.down is not None else ())


@pytest.mark.rule("zones/A-29")
def test_a_reset_frees_partitions_whose_group_was_narrowing_when_a_voter_was_lost() -> None:
    """Two voters become one, and one of the two is lost before the groups could agree to that."""
    zone = ZoneSettings("z", partitions=PARTITIONS, replicas=2, filter={"name": ("host0", "host1")})
    stage = ZoneStage(4, zone=zone, named=True)
    for number, key in enumerate(KEYS):
        stage.zput(stage.processes[number % 2], key, f"v{number}")
    lost = stage.processes.pop(1)
    stage.isolate(lost)
    answer = order(stage, stage.processes[0], AlterZone("z", replicas=1, filter="name=host0"), 10)
    assert not isinstance(answer, RequestError), answer
    lost.crash()
    stage.wait(20)
    stuck = leaderless(stage)
    assert stuck, "both voters have to agree to the change"
    answer = order(stage, stage.processes[1], ResetZone("z"))
    assert not isinstance(answer, RequestError), answer
    stage.wait(20)
    assert leaderless(stage) == []
    for number, key in enumerate(KEYS):
        assert stage.zget(stage.processes[0], key) == f"v{number}"
