"""Members on several hosts, several on each: real members on two addresses of loopback."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

from tests.cluster.crew import until

from holdfast.config import load
from holdfast.planning.live_cluster import LiveCluster
from holdfast.planning.walk import outlooks
from holdfast.runtime.in_process.embedded import Member

PARTITIONS = 31


def member(host: str, *seeds: str) -> Member:
    return Member(
        load(
            None,
            {},
            {
                "member.host": host,
                "member.member_port": 0,
                "member.client_port": 0,
                "cluster.seeds": list(seeds),
                "cluster.heartbeat_ms": 200,
                "partitions.count": PARTITIONS,
                "partitions.group_by": "host-soft",
            },
        )
    )


def test_copies_share_a_host_only_until_there_is_another() -> None:
    async def story() -> None:
        async with AsyncExitStack() as stack:
            members = [await stack.enter_async_context(member("127.0.0.1"))]
            seed = members[0].member_address
            members.append(await stack.enter_async_context(member("127.0.0.1", seed)))
            await members[0].wait_safe(60)
            table = members[0]._node.member.picture.assignments
            assert all(len(set(row.replicas) - {None}) == 2 for row in table)

            members.append(await stack.enter_async_context(member("127.0.0.2", seed)))
            for one in members:
                await one.wait_safe(60)
            host_of = {str(one._node.member.me): one._node.settings.member.host for one in members}

            def shared() -> int:
                now = members[0]._node.member.picture.assignments
                return sum(len({host_of[str(uuid)] for uuid in row.replicas if uuid}) < 2 for row in now)

            await until(lambda: not shared() and not members[0].cluster_unsafe_reason())
            # The forecast groups members as the master does: by it everybody is where he should be.
            cluster = LiveCluster(
                members[0]._node.status(),
                [row.replicas for row in members[0]._node.member.picture.assignments],
            )
            question = cluster.question(["now"])
            assert len(set((question.hosts or {}).values())) == 2
            ((_, _, found),) = [(*one, list(fates)) for *one, fates in outlooks(question, cluster.strategy)]
            assert not any(outlook.plan.migrations for outlook in found)

    asyncio.run(asyncio.wait_for(story(), 120))
