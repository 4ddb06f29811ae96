"""Members find their cluster through the DNS: SRV records, names with several addresses, names that lead elsewhere."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.cluster.crew import SETTINGS, until
from tests.cluster.name_server import NameServer

from holdfast.config import load
from holdfast.errors import HoldfastError
from holdfast.runtime.in_process.embedded import Member
from holdfast_lab.processes.local_cluster import LocalCluster, ManagedMember

GRID, RECORD = "grid.test", "_member._tcp.grid.test"
CONFIG = """
[cluster]
heartbeat_ms = 100
suspect_after_ms = 10000
dns_servers = ["{server}"]
[partitions]
count = 11
"""


class FoundByName(LocalCluster):
    """Each member has an SRV record; only the first one is a seed by its own address, so that somebody begins."""

    server: NameServer

    def _start(
        self, name: str, doors: tuple[str, str], seeds: list[str], log: Path, *, lite: bool, starts: int = 1
    ) -> ManagedMember:
        host, _, port = doors[0].rpartition(":")
        self.server.records[GRID, "A"] = [host]
        self.server.records.setdefault((RECORD, "SRV"), []).append(f"0 5 {port} {GRID}.")
        seeds = ["srv:" + RECORD] if self.members else [doors[0], "srv:" + RECORD]
        return super()._start(name, doors, seeds, log, lite=lite, starts=starts)


def test_members_find_each_other_by_an_srv_record() -> None:
    with NameServer() as server:
        FoundByName.server = server
        with FoundByName(members=3, config=CONFIG.format(server=server.address)) as cluster:
            first, _, third = cluster.members
            cluster.wait_safe()
            assert cluster.status(third).master == first.uuid
            # The first is gone, and its record still there: a new member asks all that are named.
            cluster.kill(first)
            cluster.wait_safe()
            fourth = cluster.start_member()
            cluster.wait_safe()
            names = {member.name for member in cluster.status(fourth).members}
            assert names == {"m2", "m3", "m4"}
        assert (RECORD, "SRV") in server.asked


def member(server: NameServer, host: str, port: int, name: str, **settings: object) -> Member:
    own = {
        "member.host": host,
        "member.member_port": port,
        "member.name": name,
        "cluster.dns_servers": [server.address],
        **{key.replace("__", "."): value for key, value in settings.items()},
    }
    return Member(load(None, {}, SETTINGS | own))


def test_all_addresses_of_a_name_are_tried_and_it_is_asked_again_until_joined() -> None:
    async def story() -> None:
        with NameServer() as server:
            first = member(server, "127.0.0.2", 0, "first")
            await first.start()
            port = int(first.member_address.rpartition(":")[2])
            # Nobody listens at the first of these yet, and the one that helps is not among them yet.
            server.records[GRID, "A"] = ["127.0.0.9"]
            second = member(server, "127.0.0.3", port, "second", cluster__seeds=[f"{GRID}:{port}"])
            starting = asyncio.create_task(second.start())
            await until(lambda: server.asked.count((GRID, "A")) >= 2)
            assert second._inner.started
            assert not second._inner.joined
            server.records[GRID, "A"] = ["127.0.0.9", "127.0.0.3", "127.0.0.2"]
            await asyncio.wait_for(starting, 120)
            await second.wait_safe(120)
            assert len(first.status().members) == 2
            asked = len(server.asked)
            await asyncio.sleep(1.2)
            assert len(server.asked) == asked, "who has joined asks no more"
            for one in (second, first):
                await one.crash()

    asyncio.run(story())


def test_who_cannot_ask_forms_no_second_cluster() -> None:
    """The first seed of all, started again while the others live and the DNS does not answer."""

    async def story() -> None:
        with NameServer() as server:
            server.broken = True
            lonely = member(server, "127.0.0.2", 0, "lonely")
            await lonely.start()
            port = int(lonely.member_address.rpartition(":")[2])
            await lonely.crash()
            again = member(
                server, "127.0.0.2", port, "again", cluster__seeds=[f"127.0.0.2:{port}", f"{GRID}:{port}"]
            )
            starting = asyncio.create_task(again.start())
            await until(lambda: again._inner.started)
            await until(lambda: "cannot resolve grid.test" in " ".join(again._inner.troubles))
            await asyncio.sleep(1)
            assert not starting.done()
            assert not again._inner.joined
            starting.cancel()
            with pytest.raises((HoldfastError, asyncio.CancelledError)):
                await starting
            await again.crash()

    asyncio.run(story())
