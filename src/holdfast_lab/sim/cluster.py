"""The simulated cluster: processes, fault budget, and checks that see all members at once."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import partial
from typing import Literal

import msgspec

from holdfast.config import ClusterSettings, MapSettings, PartitionSettings, ReplicationSettings, Settings
from holdfast.config.schema import PersistenceSettings
from holdfast.core.effects import Append, Effect
from holdfast.core.events import Event, Heard, Received
from holdfast.core.hosted_services import Service, with_services
from holdfast.core.member import Member
from holdfast.core.member_view import MemberView
from holdfast.core.membership.identity import Identity
from holdfast.core.membership.view_agreement import is_quorum
from holdfast.core.model.ids import (
    METASTORE_GROUP,
    MILLISECOND,
    SECOND,
    Address,
    GroupNumber,
    MemberId,
    group_of,
)
from holdfast.core.model.levels import OF_THIS_BUILD, FeatureLevels
from holdfast.core.model.partition_events import News
from holdfast.core.model.views import Intent, MemberInfo, View
from holdfast.core.multiraft.group_host import GroupHost
from holdfast.core.raft.configuration import Configuration, NodeId
from holdfast.core.zones.zone_keys import PART_PREFIX, ZONES, part_of
from holdfast.engine.driver import Driver
from holdfast.engine.member_files import driver_with_files
from holdfast.errors import ConfigError, JournalBroken
from holdfast_lab.check import convergence, leftovers
from holdfast_lab.check.readable import too_early, unreadable
from holdfast_lab.check.zone_invariants import Revisions
from holdfast_lab.sim.damage import Damage
from holdfast_lab.sim.disk import SimDisk
from holdfast_lab.sim.lost_members import LostMembers
from holdfast_lab.sim.simulated_processors import SimulatedProcessors
from holdfast_lab.sim.world import Process, World

PORT = 5751
LOOK_NS = 250 * MILLISECOND
Journal = Literal["off", "sync", "lazy"]
SETTLED_NS = 2 * SECOND
"""How long a cluster must be settled before its members' files count as complete."""

FOUNDING_INDEX = 1
PARITY = "parity"
PARITIES = ("even", "odd")
"""Attribute of members in runs with zones, for zone filters: parity of the host's number."""


class Cluster:
    def __init__(
        self,
        world: World,
        settings: Settings,
        hosts: int,
        services: Callable[[], Sequence[Service]] = list,
        *,
        lite: Collection[int] = (),
        groups: Sequence[str] = (),
        named: bool = False,
        builds: Sequence[FeatureLevels] = (),
    ) -> None:
        """`services`: makes one member's services in addition to maps. `lite`: hosts whose members hold no
        data. `groups`: failure group of each host. `named`: members always have their host's name. `builds`:
        feature levels of each host's build; none: all have this build.
        """
        self.named = named or settings.partitions.placement == "rendezvous"
        self.world = world
        self.lite = lite
        self.groups = groups
        self.zone_is_founded = False
        """The operator creates a zone at this moment: its groups are placed on members that live now, and a group of
        two that loses one before it has begun has no majority.
        """
        self.services = services
        self.settings = with_services(settings, services())
        self.addresses = [Address(f"host{index}", PORT) for index in range(hosts)]
        self.builds = list(builds) or [OF_THIS_BUILD for _ in self.addresses]
        self.mixed = bool(builds)
        self.everyone: list[Process] = []
        self.counts_copies = True
        """Whether every partition must have the configured copies; false for layouts made by hand."""
        self.when_acknowledged: list[Callable[[], None]] = []
        """Called once each when a primary has acknowledged the last write of a partition; faults wait for
        this.
        """
        self.disks = self._disks()
        self.keeps = bool(self.disks) and all(
            entry.journal == "sync" for entry in settings.maps.values() if not entry.raft_zone
        )
        self._kept: dict[MemberId, int] = {}
        """By member: host whose disk has all its acknowledged copies."""
        self._nodes: dict[NodeId, tuple[int, Process]] = {}
        """By node: host whose disk has its replicas of groups, and the last process with them."""
        self._wiped_ns = 0
        self._dark_ns = 0
        self._calm_ns = 0
        self._losses = LostMembers()
        self.damages: list[Damage] = []
        self.moved_ns = 0
        self.map_moves = 0
        """Moves of the map in the zone that were begun."""
        self.accepted = False
        self.lost: list[tuple[int, int]] = []
        """Partitions whose copies were all destroyed on purpose, and when: only earlier writes may be lost."""
        self.zone_lost: list[tuple[int, int]] = []
        """Partitions of Raft maps whose group has lost its majority, and when."""
        self.when_up: list[Callable[[Process], None]] = []
        self.orders_wait = False
        """An order for zones may take effect at any moment, for its former members."""
        self._group: dict[MemberId, str] = {}

    def _disks(self) -> list[SimDisk]:
        if not self.settings.persistence.directory:
            return []
        return [SimDisk(self.world, address.host, f"{self.world.seed}") for address in self.addresses]

    def start(self, index: int, *, bootstrap: bool = False, lite: bool = False) -> Process:
        address = self.addresses[index]
        born = len(self.everyone) + 1
        uuid = MemberId(f"{self.world.random.getrandbits(32):08x}-{born:04d}")
        name = f"{address.host}#{born}"
        process = Process(self.world, name, address)
        if self.disks:
            process.disk = self.disks[index].mount(process)
        if self.keeps:
            self._kept[uuid] = index
        group = self.groups[index] if self.groups else ""
        self._group[uuid] = group or uuid
        info = MemberInfo(
            uuid,
            1,
            address.host,
            address.port,
            address.host,
            0,
            # Rendezvous placement and baselines identify members by a lasting name.
            address.host if self.named else name,
            lite or index in self.lite,
            group,
            attributes={PARITY: PARITIES[index % 2]} if self.has_groups else {},
            levels=self.builds[index],
        )
        identity = Identity(
            info,
            self.settings.cluster.name,
            self.settings.shared(),
            () if bootstrap else tuple(self.addresses),
            bootstrap,
            f"c-{born:04d}",
        )
        process.driver, when_ready = self._opened(process, identity)
        member = process.driver.member
        if self.mixed:
            member.handle = partial(self._understood, member, member.handle)  # type: ignore[method-assign]
        batches = member.lane.batches
        batches.drained = partial(self._acknowledged, member, batches.drained)  # type: ignore[method-assign]
        process.driver.callers.watch(partial(self._changed, member))
        process.driver.callers.on_news(partial(self._heard, member.settings))
        self.everyone.append(process)
        if self.has_groups:
            metastore = member.picture.consensus.metastore
            metastore.watch(Revisions(metastore, self.world.failures), prefix=ZONES)
        if self.disks:
            self._nodes[member.picture.consensus.groups.me] = (index, process)
        self.world.processes[address] = process
        self.world.log(f"{name}: starts as {uuid}")
        process.step(lambda: when_ready(lambda: self._up(process)))
        return process

    def _opened(
        self, process: Process, identity: Identity
    ) -> tuple[Driver, Callable[[Callable[[], None]], None]]:
        """Open the disk's files. If the build cannot read them, install the one that wrote them, as an
        operator would.
        """
        try:
            return driver_of(process, identity, self.settings, self.services())
        except ConfigError as refused:
            self.world.log(f"{process.name}: {refused}")
            self.builds[self.addresses.index(process.address)] = OF_THIS_BUILD
            info = msgspec.structs.replace(identity.info, levels=OF_THIS_BUILD)
            return driver_of(process, replace(identity, info=info), self.settings, self.services())

    def _understood(
        self, member: Member, handle: Callable[[Event, int], list[Effect]], event: Event, now_ns: int
    ) -> list[Effect]:
        """Handle an event; check that the member could read it and may write its effects."""
        if isinstance(event, Received | Heard):
            why = unreadable(event.message, member.picture.info.levels)
            self.world.failures += [f"{member.me}: {why}"] if why else []
        effects = handle(event, now_ns)
        for effect in effects:
            if isinstance(effect, Append) and (why := too_early(effect.entries, member.picture.level)):
                self.world.failures.append(f"{member.me}: {why}")
        return effects

    def _up(self, process: Process) -> None:
        process.up = True
        for look in self.when_up:
            look(process)
        process.driver.start()

    def is_free(self, index: int) -> bool:
        present = self.world.processes.get(self.addresses[index])
        return present is None or present.dead

    def disk_of(self, process: Process) -> SimDisk | None:
        return self.disks[self.addresses.index(process.address)] if self.disks else None

    def power_cut(self, process: Process) -> None:
        process.crash()
        if (disk := self.disk_of(process)) is not None:
            disk.power_cut()

    def power_cut_everywhere(self) -> None:
        self.kill_everywhere()
        for disk in self.disks:
            disk.power_cut()

    def kill_everywhere(self) -> None:
        self._dark_ns = self.world.now_ns
        for process in self.running():
            process.crash()

    def distrust(self, process: Process, *, wiped: bool) -> None:
        """Do not count on anything written to this host's disk until now."""
        index = self.addresses.index(process.address)
        self._kept = {uuid: host for uuid, host in self._kept.items() if host != index}
        self._nodes = {node: of for node, of in self._nodes.items() if of[0] != index}
        if wiped:
            self._wiped_ns = self.world.now_ns

    def running(self) -> list[Process]:
        found = [self.world.processes.get(address) for address in self.addresses]
        return [process for process in found if process is not None and not process.dead]

    def living(self) -> list[Process]:
        return [process for process in self.running() if process.up]

    def members(self) -> list[Member]:
        return [process.driver.member for process in self.living()]

    def pictures(self) -> list[MemberView]:
        return [process.picture for process in self.living()]

    def leftovers(self) -> list[str]:
        problems = leftovers.judge(self.pictures())
        for process in self.living():
            links = process.driver.links
            others = {member.me for member in self.members()} - {process.driver.member.me}
            if links.keys() != others:
                problems.append(f"{process.name}: links to {sorted(links)}, others are {sorted(others)}")
            waiting = sum(link.unacknowledged + link.early for link in links.values())
            if waiting:
                problems.append(f"{process.name}: {waiting} packets left on its links")
        return problems

    def migrations(self) -> int:
        masters = [process.picture.migrations() for process in self.everyone]
        return sum(master.completed + master.failed for master in masters)

    def _acknowledged(self, member: Member, told: Callable[[int], None], partition: int) -> None:
        """A primary reports that its backups have every write of the partition: check that (rule 2)."""
        others = [other for other in self.pictures() if other.me != member.me]
        excused = {damage.member.me: damage.name for damage in self.damages if damage.partition == partition}
        self.world.failures += convergence.unequal(member.picture, others, partition, excused)
        told(partition)
        while self.when_acknowledged:
            self.when_acknowledged.pop()()

    def _heard(self, settings: Settings, news: News) -> None:
        """A partition continues without its content: allowed only if that was accepted, or nothing had a
        backup.
        """
        loss = news.loss
        if loss is None or not (loss.begun_anew or loss.maps):
            return
        if loss.all_lost and not loss.begun_anew:
            return
        if not loss.begun_anew and loss.lost_backups + 1 < settings.holders():
            return
        if settings.partitions.lost != "accept" and not self.accepted:
            self.world.failures.append(
                f"the operator has not accepted that partition {loss.partition} lost {loss.maps}"
            )
        self.lost.append((loss.partition, self.world.now_ns))

    def _changed(self, member: Member) -> None:
        """Check on the master that every partition could still lose as many members as promised (rule 7)."""
        self.moved_ns = self.world.now_ns
        if not self.counts_copies or not member.picture.is_master:
            return
        self._note_losses()
        spare, holders = self._spare(), self.settings.holders()
        if spare <= 0:
            return
        # A removed member that is back counts as lost, but has a copy where a later assignment names it.
        here = {other.me for other in self.members()} & {info.uuid for info in member.picture.members()}
        for partition, row in enumerate(member.picture.assignments):
            copies = len(here.intersection(row.replicas[:holders]))
            if row.version and copies <= spare:
                self.world.failures.append(
                    f"partition {partition} has {copies} copies in {row}, and {spare} members more may die"
                )

    # -- the fault budget

    def watch(self) -> None:
        self._look()
        self.world.after(LOOK_NS, self.watch)

    def _look(self) -> None:
        if self.settled():
            self._calm_ns = self.world.now_ns
            self._losses.settled(self.members())
        else:
            self._note_losses()

    def _note_losses(self) -> None:
        views = [view for member in self.members() if (view := member.picture.view) is not None]
        dead = {process.driver.member.me for process in self.everyone if process.dead}
        self._losses.note(views, dead, self._gone())

    def _gone(self) -> set[MemberId]:
        return {
            process.driver.member.me
            for process in self.everyone
            if process.left or (not process.dead and process.picture.has_left)
        }

    def may_die(self, victim: Process, *, disk_too: bool = False) -> bool:
        """Whether the death of this process, and perhaps of its disk, stays within what must be survived.

        The remaining members of the newest view, and of every agreed view, must be a quorum. No process may
        die while a view is being proposed, because its quorum is not known yet. And the data must be safe:
        either every newest assignment of a partition, wherever it is known, names another replica that lives
        or is on a lasting disk; or fewer members than a map has backups have died, or were removed, since
        every partition had all its copies. No disk may be lost while a stopped cluster comes back, because it
        waits for the files of all members.

        Example: 3 members, one backup. Member 2 dies: allowed. Until its partitions have new copies, member 3
        must live, unless no partition has its only remaining copies on 2 and 3.
        """
        living = [process for process in self.living() if not process.doomed]
        rest = [process.driver.member for process in living if process is not victim]
        everyone = [process.driver.member for process in self.living()]
        alive = {member.me for member in rest}
        self._look()
        if self.damages:
            return False
        if disk_too and self._dark_ns and self._calm_ns < self._dark_ns + SETTLED_NS:
            return False
        others = [process for process in living if process is not victim]
        if self.has_groups and not (
            self.groups_survive(others, lost=victim if disk_too else None)
            and self._founders_survive(others)
            and not self.zone_is_founded
            and self.groups_begun_within(others)
        ):
            return False
        promised = self.counts_copies and self._spare() >= 1
        if not promised and not self.copies_elsewhere(everyone, alive, self._on_disk(victim, disk_too)):
            return False
        if any(member.picture.proposing for member in everyone):
            return False
        if self.settings.cluster.quorum == "any":
            return bool(rest)
        newest = max(_numbers(everyone), default=0)
        known = max(_numbers(rest), default=0)
        views = [
            view for member in everyone for view in agreed_views(member) if view.number >= min(newest, known)
        ]
        return all(is_quorum(view, alive) for view in views)

    def _on_disk(self, victim: Process, disk_too: bool) -> set[MemberId]:
        lost = self.addresses.index(victim.address) if disk_too else -1
        return {uuid for uuid, host in self._kept.items() if host != lost}

    def all_may_die(self) -> bool:
        """Whether all processes may die at once and come back with the content of the disks.

        Every newest assignment must name a member whose disk lasts. All files of a view that may be the last
        one must exist, so the cluster must have been settled for a while since the beginning, or the last
        loss of a disk. Damage in memory may have been written to disk.
        """
        self._look()
        everyone = self.members()
        return (
            self.keeps
            and bool(everyone)
            and not self.damages
            and self._calm_ns >= self._wiped_ns + SETTLED_NS
            and self.copies_elsewhere(everyone, set(), set(self._kept))
            and (not self.has_groups or self.groups_survive([]))
        )

    @property
    def has_groups(self) -> bool:
        """Whether there is, or will be, a metastore and perhaps a zone."""
        chosen = self.settings.maps.values()
        return self.settings.metastore.voters > 0 or any(entry.raft_zone for entry in chosen)

    def groups_move(self) -> bool:
        for member in self.members():
            entries = member.picture.consensus.metastore.scan(PART_PREFIX)
            if any(entry.key.endswith((b"/pending", b"/planned")) for entry in entries):
                return True
        return False

    def groups_survive(
        self, rest: Sequence[Process], *, lost: Process | None = None, disks: bool = True
    ) -> bool:
        """Whether every group keeps a majority in these processes, or, with `disks`, on disks other than that
        of `lost`.
        """
        lasting = {
            node: process
            for node, (index, process) in self._nodes.items()
            if lost is None or self.addresses[index] != lost.address
        }
        known = {process.driver.member.picture.consensus.groups.me: process for process in self.living()}
        groups = [
            process.driver.member.picture.consensus.groups
            for _, process in sorted({**lasting, **known}.items())
        ]
        there = {process.driver.member.picture.consensus.groups.me for process in rest}
        if disks:
            there |= lasting.keys()
        return _survive(groups, there)

    def _founders_survive(self, rest: Sequence[Process]) -> bool:
        """Whether these processes have a majority of the metastore's founders, until its group has committed
        something: before, a founder may not have begun, so that it counts nowhere else.
        """
        groups = [process.picture.consensus.groups for process in self.living()]
        if any(
            hosted.group.log.committed > FOUNDING_INDEX
            for each in groups
            if (hosted := each.hosted.get(METASTORE_GROUP)) is not None
        ):
            return True
        views = [view for member in self.members() for view in agreed_views(member)]
        there = {process.picture.consensus.groups.me for process in rest}
        return all(
            2 * len(there.intersection(view.metastore.first_voters)) > len(view.metastore.first_voters)
            for view in views
            if view.metastore is not None and view.metastore.first_voters
        )

    def groups_begun_within(self, core: Sequence[Process]) -> bool:
        """Whether one of these processes has a replica of each partition of a zone.

        A partition may have none anywhere, if the members of its first assignments do not know of them yet.
        Example: a zone of one replica is created while its member is cut off.
        """
        hosts = [process.driver.member.picture.consensus.groups for process in core]
        keys = [process.driver.member.picture.consensus.metastore.scan(PART_PREFIX) for process in core]
        parts = {part for entries in keys for entry in entries if (part := part_of(entry.key)) is not None}
        return all(any(group_of(*part[:2]) in groups.hosted for groups in hosts) for part in parts)

    def _spare(self) -> int:
        parting = {
            member.me
            for member in self.members()
            if member.picture.intent in (Intent.LEAVE, Intent.LITE) or member.picture.info.lite
        }
        return self._losses.spare(self.settings.holders(), self._group, parting, self._gone())

    def could_end_without(self, leaver: Process) -> bool:
        """Whether the leaving members, with this one, have a quorum: cut off from the others, they would
        remove these, and end the cluster.
        """
        members = self.members()
        views = [view for member in members if (view := member.picture.view) is not None]
        leaving = {member.me for member in members if member.picture.leaving} | {leaver.driver.member.me}
        return bool(views) and is_quorum(max(views, key=lambda view: view.number), leaving)

    def copies_elsewhere(self, everyone: list[Member], alive: set[MemberId], kept: set[MemberId]) -> bool:
        """Whether each newest assignment of a partition that `everyone` knows has a replica in sync on one of
        `alive`, or on the disk of one of `kept`.
        """
        # Replicas with higher indexes hold nothing of maps with fewer backups.
        holders = self.settings.holders()
        for partition in range(self.settings.partitions.count):
            applied = [member.picture.assignment(partition) for member in everyone]
            offered = [
                row for member in everyone if (row := member.picture.stored_assignment(partition)) is not None
            ]
            newest = max(row.version for row in applied)
            for row in [*applied, *offered]:
                if (
                    row.version >= newest
                    and row.version
                    and not alive.intersection(row.holding[:holders])
                    and not kept.intersection(row.holding[:holders])
                ):
                    return False
        return True

    def settled(self) -> bool:
        return settled_among(self.members())


def settled_among(members: list[Member]) -> bool:
    numbers = {member.picture.view.number if member.picture.view else -1 for member in members}
    return len(numbers) == 1 and all(
        member.picture.admitted
        and len(member.picture.members()) == len(members)
        and not member.picture.unsafe_reason()
        and not member.picture.batches_waiting
        for member in members
    )


def _survive(agreed: Sequence[GroupHost], there: Collection[NodeId]) -> bool:
    """Whether every group keeps a majority of its voters, in every configuration that a voter among these
    members has.

    `agreed`: groups of all members whose replicas live or are on lasting disks; `there`: the nodes that will
    exist. A node counts for a group only if it has a replica.
    """
    holding: dict[GroupNumber, set[NodeId]] = {}
    configurations: list[tuple[GroupNumber, Configuration]] = []
    for groups in agreed:
        for number, configuration in _replicas_of(groups):
            if groups.me in there:
                holding.setdefault(number, set()).add(groups.me)
            if configuration.votes(groups.me):
                configurations.append((number, configuration))
    return all(
        2 * len(voters & holding.get(number, set())) > len(voters)
        for number, configuration in configurations
        for voters in configuration.sets
        if voters
    )


def _replicas_of(groups: GroupHost) -> list[tuple[GroupNumber, Configuration]]:
    found = [(number, hosted.group.configuration) for number, hosted in sorted(groups.hosted.items())]
    for number in groups.journal.found:
        if not groups.journal.doubt(number):
            try:
                found.append((number, groups.journal.peek(number).log().configuration))
            except msgspec.DecodeError:
                continue
    return found


def _numbers(members: list[Member]) -> list[int]:
    return [member.picture.view.number for member in members if member.picture.view is not None]


def agreed_views(member: Member) -> list[View]:
    return [view for view in (member.picture.view, member.picture.agreed_view) if view is not None]


def driver_of(
    process: Process, identity: Identity, settings: Settings, services: Sequence[Service]
) -> tuple[Driver, Callable[[Callable[[], None]], None]]:
    """Make a member from the files on its host's disk; also returns how to register for the moment when it
    may act. The simulator opens files only here.
    """
    recorder = process.world.recorder
    if process.disk is None:
        driver = Driver(Member(identity, settings, services, ways=process.world.ways), process)
        driver.callers.processors = SimulatedProcessors(process)
        if recorder is not None:
            names = [service.name for service in services]
            driver.record(recorder.begin(process.name, settings, identity, names, None))
        return driver, lambda told: told()
    random = process.world.random

    def failed(error: JournalBroken) -> None:
        process.world.log(f"{process.name}: {error}")
        process.crash()

    driver, journal, _ = driver_with_files(
        process.disk,
        process,
        identity,
        settings,
        services,
        name=process.host,
        new_id=lambda: f"store-{random.getrandbits(64):016x}",
        failed=failed,
        recorder=recorder,
        ways=process.world.ways,
    )
    driver.callers.processors = SimulatedProcessors(process)
    return driver, journal.when_ready


def simulated_settings(
    backups: int,
    partitions: int,
    *,
    chunk_bytes: int = 4096,
    mixed: bool = False,
    journal: Journal = "off",
    persistence: PersistenceSettings | None = None,
    tail_bytes: int = 65_536,
    anti_entropy_ms: int = 0,
    changes_bytes: int = 0,
) -> Settings:
    """Settings with short times and small chunks, so that a run of seconds has many changes.

    `mixed` adds a map with one more backup, and one with only async backups. `journal` applies to all maps;
    unless it is off, every host has a disk, with files of the sizes in `persistence`.
    """
    maps = {"default": MapSettings(backups=backups, journal=journal, changes_bytes=changes_bytes)}
    if mixed:
        maps["deep"] = MapSettings(backups=backups + 1, journal=journal)
        maps["loose"] = MapSettings(backups=0, async_backups=backups, journal=journal)
    files = persistence or PersistenceSettings(
        directory="disk",
        sync_interval_ms=200,
        segment_bytes=16_384,
        checkpoint_bytes=32_768,
        history_bytes=65_536,
    )
    return Settings(
        cluster=ClusterSettings(name="sim", heartbeat_ms=500, suspect_after_ms=3000),
        partitions=PartitionSettings(count=partitions, chunk_bytes=chunk_bytes, parallel_migrations=3),
        persistence=PersistenceSettings() if journal == "off" else files,
        replication=ReplicationSettings(tail_bytes=tail_bytes, anti_entropy_ms=anti_entropy_ms),
        maps=maps,
    )
