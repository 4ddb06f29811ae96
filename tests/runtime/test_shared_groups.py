"""A map in a zone of fewer partitions than the cluster, used by clients of real members in this process."""

from __future__ import annotations

import pytest
from tests.runtime.in_process.test_embedded import run, until
from tests.runtime.test_zone_verify import ROWS, command, order, zoned_members

from holdfast.actions.change_zone import CreateZone
from holdfast.core.model.ids import group_of

PARTITIONS = 2


@pytest.mark.rule("raft_partition/R-3")
def test_a_map_lives_in_a_zone_of_two_partitions() -> None:
    """The cluster has seven, so each group serves three or four of them. The leader of both groups may crash."""

    async def story() -> None:
        async with zoned_members() as members:
            await order(members, CreateZone("z", replicas=3, partitions=PARTITIONS))
            orders = members[0].map("orders")
            await orders.put_all(ROWS)
            hosted = members[0]._node.member.agreed.groups.hosted
            numbers = [group_of(1, partition) for partition in range(PARTITIONS)]
            await until(lambda: hosted.keys() >= set(numbers))
            assert len(hosted) == PARTITIONS + 1, "and the metastore"
            for one in members:
                assert await one.map("orders").get_all(ROWS) == await one.map("orders").entries() == ROWS
                assert await one.map("orders").size() == len(ROWS)
            assert (await command(members, "verify", "--map", "orders")).exit_code == 0
            leader = next(one for one in members if one._node.member.agreed.groups.term(numbers[0]))
            await leader.crash()
            rest = [one for one in members if one is not leader]
            for key in ROWS:
                assert await rest[0].map("orders").remove(key) == ROWS[key]
            assert await rest[1].map("orders").size() == 0

    run(story())
