"""The cluster under simulation: its processes, who may die now, and what the god of this world can see."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from holdfast.config import ClusterSettings, MapSettings, PartitionSettings, Settings
from holdfast.core.cluster.agreement import is_quorum
from holdfast.core.cluster.membership import Identity
from holdfast.core.machine import Address, MemberId
from holdfast.core.member import Member
from holdfast.core.messages import MemberInfo, View
from holdfast.core.migration.services import Service, with_services
from holdfast.core.rules import Rules
from holdfast.engine.driver import Driver
from holdfast.sim.world import Process, World

PORT = 5751


class Cluster:
    """Hosts of one process each; a process that ended may be followed by another, with a new UUID and nothing
    of the old.
    """

    def __init__(
        self,
        world: World,
        settings: Settings,
        rules: Rules,
        hosts: int,
        services: Callable[[], Sequence[Service]] = list,
    ) -> None:
        """`services` makes those of one member, beside the maps."""
        self.world = world
        self.services = services
        self.settings = with_services(settings, services())
        self.rules = rules
        self.addresses = [Address(f"host{index}", PORT) for index in range(hosts)]
        self._born = 0

    def start(self, index: int, *, bootstrap: bool = False) -> Process:
        """Start a process on host `index`."""
        address = self.addresses[index]
        self._born += 1
        uuid = MemberId(f"{self.world.random.getrandbits(32):08x}-{self._born:04d}")
        name = f"{address.host}#{self._born}"
        process = Process(self.world, name, address)
        info = MemberInfo(uuid, 1, address.host, address.port, address.host, 0, name)
        identity = Identity(
            info,
            self.settings.cluster.name,
            self.settings.shared(),
            () if bootstrap else tuple(self.addresses),
            bootstrap,
            f"cluster-{self._born}",
        )
        process.driver = Driver(Member(identity, self.settings, self.rules, self.services()), process)
        self.world.processes[address] = process
        self.world.tell(f"{name}: starts as {uuid}")
        process.step(process.driver.start)
        return process

    def living(self) -> list[Process]:
        """Processes that run, in the order of their hosts."""
        found = [self.world.processes.get(address) for address in self.addresses]
        return [process for process in found if process is not None and not process.dead]

    def members(self) -> list[Member]:
        """Their members."""
        return [process.driver.member for process in self.living()]

    # -- the fault budget

    def may_die(self, victim: Process) -> bool:
        """Whether the death of this process stays within what is promised to be survived.

        Of every partition's newest row, wherever it is known, another replica must live; and what lives of
        the newest view, and of every view that somebody has agreed to, must be able to decide. While a view
        is being proposed nobody may die, for what it will need is not known yet.
        """
        rest = [process.driver.member for process in self.living() if process is not victim]
        everyone = [process.driver.member for process in self.living()]
        alive = {member.me for member in rest}
        # A colder replica holds nothing of the maps that have fewer backups.
        holders = self.settings.holders()
        for partition in range(self.settings.partitions.count):
            applied = [member.table.rows[partition] for member in everyone]
            offered = [row for member in everyone if (row := member.ledger.stored_row(partition)) is not None]
            newest = max(row.version for row in applied)
            for row in [*applied, *offered]:
                if row.version >= newest and row.version and not alive.intersection(row.replicas[:holders]):
                    return False
        if any(member.membership.agreement.proposing for member in everyone):
            return False
        # The newest view, and the newest that those who would remain know of.
        newest = max(_numbers(everyone), default=0)
        known = max(_numbers(rest), default=0)
        views = [view for member in everyone for view in _views(member) if view.number >= min(newest, known)]
        return all(is_quorum(view, alive) for view in views)

    def settled(self) -> bool:
        """Whether every living member is admitted, of one view, and sees nothing unsafe."""
        members = self.members()
        numbers = {member.membership.view.number if member.membership.view else -1 for member in members}
        return len(numbers) == 1 and all(
            member.membership.state == "member"
            and len(member.membership.members()) == len(members)
            and not member.why_unsafe()
            and not member.lane.waiting
            for member in members
        )


def _numbers(members: list[Member]) -> list[int]:
    return [member.membership.view.number for member in members if member.membership.view is not None]


def _views(member: Member) -> list[View]:
    """The view that a member has installed, and the next one that it has agreed to."""
    return [
        view for view in (member.membership.view, member.membership.agreement.accepted) if view is not None
    ]


def simulated_settings(
    backups: int, partitions: int, *, chunk_bytes: int = 4096, mixed: bool = False
) -> Settings:
    """Settings with short times and small chunks, so that a run of seconds holds many changes.

    `mixed` adds a map with one backup more, and one with async backups only.
    """
    maps = {"default": MapSettings(backups=backups)}
    if mixed:
        maps["deep"] = MapSettings(backups=backups + 1)
        maps["loose"] = MapSettings(backups=0, async_backups=backups)
    return Settings(
        cluster=ClusterSettings(name="sim", heartbeat_ms=500, suspect_after_ms=3000),
        partitions=PartitionSettings(count=partitions, chunk_bytes=chunk_bytes, parallel_migrations=3),
        maps=maps,
    )
