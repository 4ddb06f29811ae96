"""Real members over real sockets in one process, and the words to tell what is done to them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Self

from holdfast.config import load
from holdfast.core.model.partition_events import Loss, News
from holdfast.runtime.in_process.embedded import Member
from holdfast_lab.check import convergence

PARTITIONS = 31
MAP = "numbers"
SETTINGS: dict[str, object] = {
    "member.member_port": 0,
    "member.client_port": 0,
    "cluster.heartbeat_ms": 100,
    "cluster.suspect_after_ms": 10_000,
    "partitions.count": PARTITIONS,
}


class Crew:
    """Some members. Whatever still runs when the block ends is stopped at once."""

    def __init__(self, **settings: object) -> None:
        """`settings` for every member, with `__` for the dot."""
        self.settings = {key.replace("__", "."): value for key, value in settings.items()}
        self.members: list[Member] = []
        """Those that run, oldest first."""
        self._started: list[Member] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.gather(*(member.crash() for member in self._started))

    # -- coming and going

    async def start(self, count: int = 1, *, lite: bool = False, rest: bool = True) -> list[Member]:
        """Start so many more at the same time."""
        started = [] if self.members else await self._start(1, lite=lite)
        started += await self._start(count - len(started), lite=lite)
        if rest:
            await self.rest()
        return started

    async def _start(self, count: int, *, lite: bool) -> list[Member]:
        seeds = [self.members[0].member_address] if self.members else []
        new: list[Member] = []
        for _ in range(count):
            own = {"cluster.seeds": seeds, "member.lite": lite, "member.name": f"m{len(self._started) + 1}"}
            new.append(Member(load(None, {}, SETTINGS | self.settings | own)))
            self._started.append(new[-1])
        await asyncio.gather(*(member.start() for member in new))
        self.members += new
        return new

    async def again(self, gone: Member, *, rest: bool = True) -> Member:
        """A new process where a member that has gone was."""
        host, _, port = gone.member_address.rpartition(":")
        own: dict[str, object] = {
            "cluster.seeds": [self.members[0].member_address],
            "member.host": host,
            "member.member_port": int(port),
            "member.name": f"m{len(self._started) + 1}",
        }
        member = Member(load(None, {}, SETTINGS | self.settings | own))
        self._started.append(member)
        await member.start()
        self.members.append(member)
        if rest:
            await self.rest()
        return member

    async def crash(self, *members: Member) -> None:
        """These are gone at once."""
        self._gone(members)
        await asyncio.gather(*(member.crash() for member in members))

    async def leave(self, *members: Member) -> None:
        """These leave in order, at the same time; returns when all have."""
        self._gone(members)
        await asyncio.gather(*(member.leave() for member in members))

    def _gone(self, members: Iterable[Member]) -> None:
        for member in members:
            self.members.remove(member)

    # -- what is so

    async def rest(self) -> None:
        """Wait until all is well, and look whether it is."""
        for member in self.members:
            await member.wait_safe(120)
        cores = [member._node.member.picture for member in self.members]
        # What one member says of the others may be as old as a heartbeat.
        try:
            await until(lambda: not convergence.judge(cores), 10)
        except AssertionError:
            raise AssertionError(convergence.judge(cores)) from None

    def table(self, member: Member | None = None) -> list[tuple[str | None, ...]]:
        """All slots, as this member (or the oldest) knows them."""
        rows = (member or self.members[0])._node.member.table.rows
        return [row.replicas for row in rows]

    def owned(self, member: Member) -> list[int]:
        """Partitions of which this member is the primary."""
        return [partition for partition, row in enumerate(self.table(member)) if row[0] == member.uuid]

    def holds(self, member: Member) -> int:
        """How many replicas are given to this member."""
        return sum(member.uuid in row for row in self.table())

    # -- data

    async def fill(self, count: int = 500) -> None:
        """Entries in every partition."""
        await self.members[0].map(MAP).put_all({number: f"v{number}" for number in range(count)})

    async def missing(self, count: int = 500) -> list[int]:
        """Entries that are not what they were written to be."""
        found = await self.members[-1].map(MAP).get_all(range(count))
        return [number for number in range(count) if found.get(number) != f"v{number}"]


async def until(reached: Callable[[], bool], seconds: float = 120.0) -> None:
    """Wait for it."""
    for _ in range(round(seconds / 0.02)):
        if reached():
            return
        await asyncio.sleep(0.02)
    raise AssertionError("it did not happen")


def hear(member: Member) -> tuple[list[News], list[Loss]]:
    """What this member tells from now on: of migrations, and of losses."""
    migrations: list[News] = []
    losses: list[Loss] = []
    member.on_migration(migrations.append)
    member.on_partition_lost(losses.append)
    return migrations, losses
