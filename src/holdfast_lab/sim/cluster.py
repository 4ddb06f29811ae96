"""The cluster under simulation: its processes, who may die now, and what the god of this world can see."""

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
from holdfast.core.model.ids import MILLISECOND, SECOND, Address, GroupNumber, MemberId
from holdfast.core.model.levels import OF_THIS_BUILD, FeatureLevels
from holdfast.core.model.partition_events import News
from holdfast.core.model.views import Intent, MemberInfo, View
from holdfast.core.multiraft.group_host import GroupHost
from holdfast.core.raft.configuration import Configuration, NodeId
from holdfast.core.zones.zone_keys import PART_PREFIX, ZONES
from holdfast.engine.driver import Driver
from holdfast.engine.member_files import driver_with_files
from holdfast.errors import ConfigError, JournalBroken
from holdfast_lab.check import convergence, leftovers
from holdfast_lab.check.readable import too_early, unreadable
from holdfast_lab.check.zone_invariants import Revisions
from holdfast_lab.sim.damage import Damage
from holdfast_lab.sim.disk import SimDisk
from holdfast_lab.sim.world import Process, World

PORT = 5751
LOOK_NS = 250 * MILLISECOND
"""How often the god of this world looks who has gone."""
Journal = Literal["off", "sync", "lazy"]
SETTLED_NS = 2 * SECOND
"""How long a cluster is at rest before everybody's files tell who belongs to it."""

PARITY = "parity"
PARITIES = ("even", "odd")
"""An attribute of all members where there are zones, whose filters may ask for it; that of the host's number."""


class Cluster:
    """Hosts of one process each; a process that ended may be followed by another, with a new UUID and nothing
    of the old but the disk of the host, where members keep files.
    """

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
        """`services` makes those of one member, beside the maps. `lite` are the hosts whose members hold no data, and
        `groups` the failure group of each host, if they have any. `named`: members are called as their hosts, in all
        their lives. `builds`: what the Holdfast on each host can do; none: all are of this build.
        """
        self.named = named or settings.partitions.placement == "rendezvous"
        self.world = world
        self.lite = lite
        self.groups = groups
        self.services = services
        self.settings = with_services(settings, services())
        self.addresses = [Address(f"host{index}", PORT) for index in range(hosts)]
        self.builds = list(builds) or [OF_THIS_BUILD for _ in self.addresses]
        """The feature levels that the Holdfast on each host can do: whatever starts there is of it."""
        self.mixed = bool(builds)
        """Whether there are several builds, and so somebody looks whether what is said is understood."""
        self.everyone: list[Process] = []
        """Every process that ever was, also the dead ones."""
        self.counts_copies = True
        """Whether every partition is to have as many copies as its maps want; not where a layout is made by hand."""
        self.when_acknowledged: list[Callable[[], None]] = []
        """Called once each, when a primary has acknowledged the last write of a partition: faults wait for this."""
        self.disks = self._disks()
        """Those of the hosts, in their order; none, when nobody keeps files."""
        self.keeps = bool(self.disks) and all(
            entry.journal == "sync" for entry in settings.maps.values() if not entry.raft_zone
        )
        """Whether every write that was acknowledged is durable."""
        self._kept: dict[MemberId, int] = {}
        """Whose copies, all that were acknowledged there, are on the disk of which host."""
        self._nodes: dict[NodeId, tuple[int, Process]] = {}
        """Whose replicas of groups are on the disk of which host, and the process that had them last."""
        self._wiped_ns = 0
        """When the cluster began, or a disk was lost last."""
        self._dark_ns = 0
        """When everybody died at once last."""
        self._calm_ns = 0
        """When all was well last."""
        self._calm: set[MemberId] = set()
        """Who was there when all partitions had all their copies last."""
        self._seen: set[MemberId] = set()
        """Who has been a member since then."""
        self._lost: set[MemberId] = set()
        """Who of these has died, or was removed though alive."""
        self._let_go: set[MemberId] = set()
        """Who has left, says a view."""
        self.damages: list[Damage] = []
        """Copies that were damaged on purpose, and are not mended yet."""
        self.moved_ns = 0
        """When rows or members have changed last."""
        self.accepted = False
        """Whether the operator has accepted that partitions are lost."""
        self.lost: list[tuple[int, int]] = []
        """Partitions of which all copies were destroyed on purpose, and when: what was written there before may be
        gone, and nothing else.
        """
        self.when_up: list[Callable[[Process], None]] = []
        """Called for each process that has read its files, before it does anything."""
        self.orders_wait = False
        """Whether the operator of zones has something to do: what is under way may be carried out at any moment, and as
        it was meant for those who lived then.
        """
        self._group: dict[MemberId, str] = {}
        """The failure group of everybody who ever was."""
        self._stood = False
        """Whether partitions could not move at some time since all was well last: who left then, left a hole."""

    def _disks(self) -> list[SimDisk]:
        if not self.settings.persistence.directory:
            return []
        return [SimDisk(self.world, address.host, f"{self.world.seed}") for address in self.addresses]

    def start(self, index: int, *, bootstrap: bool = False, lite: bool = False) -> Process:
        """Start a process on host `index`; a lite one holds no data, nor one on a host that is for lite ones."""
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
            # By rendezvous, and in a baseline, a name that stays is what a member is known by.
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
        self.world.tell(f"{name}: starts as {uuid}")
        process.step(lambda: when_ready(lambda: self._up(process)))
        return process

    def _opened(
        self, process: Process, identity: Identity
    ) -> tuple[Driver, Callable[[Callable[[], None]], None]]:
        """Open what is on the disk. Where a build cannot read that, the operator takes the one that wrote it."""
        try:
            return driver_of(process, identity, self.settings, self.services())
        except ConfigError as refused:
            self.world.tell(f"{process.name}: {refused}")
            self.builds[self.addresses.index(process.address)] = OF_THIS_BUILD
            info = msgspec.structs.replace(identity.info, levels=OF_THIS_BUILD)
            return driver_of(process, replace(identity, info=info), self.settings, self.services())

    def _understood(
        self, member: Member, handle: Callable[[Event, int], list[Effect]], event: Event, now_ns: int
    ) -> list[Effect]:
        """Let the member act, and look whether it could read what it is told, and may write what it writes."""
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
        """Whether no process lives on host `index`."""
        present = self.world.processes.get(self.addresses[index])
        return present is None or present.dead

    def disk_of(self, process: Process) -> SimDisk | None:
        """The disk of its host."""
        return self.disks[self.addresses.index(process.address)] if self.disks else None

    def power_cut(self, process: Process) -> None:
        """The power of one host fails."""
        process.crash()
        if (disk := self.disk_of(process)) is not None:
            disk.power_cut()

    def power_cut_everywhere(self) -> None:
        """The power of all hosts fails at one moment."""
        self.kill_everywhere()
        for disk in self.disks:
            disk.power_cut()

    def kill_everywhere(self) -> None:
        """All processes are killed at one moment."""
        self._dark_ns = self.world.now_ns
        for process in self.running():
            process.crash()

    def distrust(self, process: Process, *, wiped: bool) -> None:
        """From now on the disk of this host keeps nothing for sure of what was written there until now."""
        index = self.addresses.index(process.address)
        self._kept = {uuid: host for uuid, host in self._kept.items() if host != index}
        self._nodes = {node: of for node, of in self._nodes.items() if of[0] != index}
        if wiped:
            self._wiped_ns = self.world.now_ns

    def running(self) -> list[Process]:
        """Processes that run, in the order of their hosts; some may still be opening their files."""
        found = [self.world.processes.get(address) for address in self.addresses]
        return [process for process in found if process is not None and not process.dead]

    def living(self) -> list[Process]:
        """Those whose members act."""
        return [process for process in self.running() if process.up]

    def members(self) -> list[Member]:
        """Their members."""
        return [process.driver.member for process in self.living()]

    def pictures(self) -> list[MemberView]:
        """The same, for looking."""
        return [process.picture for process in self.living()]

    def leftovers(self) -> list[str]:
        """What members and their links keep of what is over, in words. The cluster is to be at rest."""
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
        """Migrations that any master, also one that is dead now, has committed or seen fail."""
        masters = [process.picture.migrations() for process in self.everyone]
        return sum(master["completed"] + master["failed"] for master in masters)

    def _acknowledged(self, member: Member, told: Callable[[int], None], partition: int) -> None:
        """Every write of the partition is on its backups, says its primary: look whether it is (rule 2)."""
        others = [other for other in self.pictures() if other.me != member.me]
        excused = {damage.member.me: damage.name for damage in self.damages if damage.partition == partition}
        self.world.failures += convergence.unequal(member.picture, others, partition, excused)
        told(partition)
        while self.when_acknowledged:
            self.when_acknowledged.pop()()

    def _heard(self, settings: Settings, news: News) -> None:
        """A partition goes on without what it held: only if somebody has accepted that, or nothing had a backup."""
        loss = news.loss
        if loss is None or not (loss.begun_anew or loss.maps):
            return
        if loss.all_lost and not loss.begun_anew:
            return  # It waits.
        if not loss.begun_anew and loss.lost_backups + 1 < settings.holders():
            return  # Only what has fewer backups than any map is gone.
        if settings.partitions.lost != "accept" and not self.accepted:
            self.world.failures.append(
                f"nobody has accepted that partition {loss.partition} lost {loss.maps}"
            )
        self.lost.append((loss.partition, self.world.now_ns))

    def _changed(self, member: Member) -> None:
        """Rows or members have changed: on the master, look whether every partition could still lose as many members as
        is promised (rule 7).
        """
        self.moved_ns = self.world.now_ns
        if not self.counts_copies or not member.picture.is_master:
            return
        self._note_losses()
        spare, holders = self._spare(), self.settings.holders()
        if spare <= 0:
            return
        # Who was removed and is back counts as lost, and yet has a copy where a later row names it.
        here = {other.me for other in self.members()} & {info.uuid for info in member.picture.members()}
        for partition, row in enumerate(member.picture.assignments):
            copies = len(here.intersection(row.replicas[:holders]))
            if row.version and copies <= spare:
                self.world.failures.append(
                    f"partition {partition} has {copies} copies in {row}, and {spare} members more may die"
                )

    # -- the fault budget

    def watch(self) -> None:
        """Begin to look who has gone."""
        self._look()
        self.world.after(LOOK_NS, self.watch)

    def _look(self) -> None:
        if self.settled():
            self._calm_ns = self.world.now_ns
            self._calm = {member.me for member in self.members() if not member.picture.info.lite}
            self._seen, self._lost = {member.me for member in self.members()}, set()
            self._stood = False
        else:
            self._note_losses()

    def _note_losses(self) -> None:
        views = [view for member in self.members() if (view := member.picture.view) is not None]
        self._stood |= any(not view.state.migrates for view in views)
        if views:
            newest = max(views, key=lambda view: view.number)
            here = {info.uuid for info in newest.members}
            self._seen |= here
            self._let_go |= {uuid for view in views for uuid in view.left}
            self._lost |= self._seen - here - self._let_go - self._gone()
        dead = {process.driver.member.me for process in self.everyone if process.dead}
        # Who was removed though alive, came back and left, had nothing to leave behind: it stays lost.
        self._lost |= (dead & self._seen) - self._gone()

    def _gone(self) -> set[MemberId]:
        """Who has left, or is about to: its copies are on their way to others."""
        return {
            process.driver.member.me
            for process in self.everyone
            if process.left or (not process.dead and process.picture.has_left)
        }

    def may_die(self, victim: Process, *, disk_too: bool = False) -> bool:
        """Whether the death of this process, and perhaps of its disk, stays within what is promised to be survived.

        What lives of the newest view, and of every view that somebody has agreed to, must be able to decide. While a
        view is being proposed nobody may die, for what it will need is not known yet. And the data must be safe: either
        of every partition's newest row, wherever it is known, another replica lives, or is on a disk that lasts; or
        fewer members than a map has backups have died, or were removed, since every partition had all its copies. No
        disk may be lost while a cluster that was stopped as a whole comes back: it waits for the files of everybody.
        """
        living = [process for process in self.living() if not process.doomed]
        rest = [process.driver.member for process in living if process is not victim]
        everyone = [process.driver.member for process in self.living()]
        alive = {member.me for member in rest}
        self._look()
        if self.damages:
            # A copy that is damaged is none.
            return False
        if disk_too and self._dark_ns and self._calm_ns < self._dark_ns + SETTLED_NS:
            return False
        if self.has_groups and not self.groups_survive(
            [process for process in living if process is not victim], lost=victim if disk_too else None
        ):
            return False
        promised = self.counts_copies and self._spare() >= 1
        if not promised and not self.copies_elsewhere(everyone, alive, self._on_disk(victim, disk_too)):
            return False
        if any(member.picture.proposing for member in everyone):
            return False
        if self.settings.cluster.quorum == "any":
            return bool(rest)
        # The newest view, and the newest that those who would remain know of.
        newest = max(_numbers(everyone), default=0)
        known = max(_numbers(rest), default=0)
        views = [
            view for member in everyone for view in agreed_views(member) if view.number >= min(newest, known)
        ]
        return all(is_quorum(view, alive) for view in views)

    def _on_disk(self, victim: Process, disk_too: bool) -> set[MemberId]:
        """Whose copies would be found when the dead come back."""
        lost = self.addresses.index(victim.address) if disk_too else -1
        return {uuid for uuid, host in self._kept.items() if host != lost}

    def all_may_die(self) -> bool:
        """Whether everybody may die at once, and come back with what is on the disks.

        Every partition's newest row must name somebody whose disk lasts; and the files of everybody in a view that may
        be the last one must be there: so all was well for a while since the beginning, or since a disk was lost.
        What is damaged in memory may have been written down.
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
        """Whether there is a metastore, and perhaps a zone."""
        return self.settings.metastore.voters > 0

    def groups_move(self) -> bool:
        """Whether somebody knows of a partition of a zone that moves."""
        for member in self.members():
            entries = member.picture.consensus.metastore.scan(PART_PREFIX)
            if any(entry.key.endswith((b"/pending", b"/planned")) for entry in entries):
                return True
        return False

    def groups_survive(
        self, rest: Sequence[Process], *, lost: Process | None = None, disks: bool = True
    ) -> bool:
        """Whether a majority of every group lives in these processes, or, with `disks`, is on a disk and will be back.
        The disk of `lost` does not count.
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

    def _spare(self) -> int:
        """How many more deaths a map with the fewest backups survives by promise."""
        parting = {
            member.me
            for member in self.members()
            if member.picture.intent in (Intent.LEAVE, Intent.LITE) or member.picture.info.lite
        }
        # Whom a view has let go is gone, also before it has heard of that.
        gone = self._gone() | self._let_go
        # No two copies are in one group. And while nothing may move, who leaves takes a copy along.
        groups = {self._group[uuid] for uuid in self._calm - gone - parting}
        holes = len(gone & self._calm) if self._stood else 0
        return min(self.settings.holders(), len(groups)) - 1 - len(self._lost) - holes

    def could_end_without(self, leaver: Process) -> bool:
        """Whether those that are leaving already, with this one, could decide alone: cut off from the others, they
        would remove these, and end the cluster.
        """
        members = self.members()
        views = [view for member in members if (view := member.picture.view) is not None]
        leaving = {member.me for member in members if member.picture.leaving} | {leaver.driver.member.me}
        return bool(views) and is_quorum(max(views, key=lambda view: view.number), leaving)

    def copies_elsewhere(self, everyone: list[Member], alive: set[MemberId], kept: set[MemberId]) -> bool:
        """Whether of every partition's newest row, wherever one of `everyone` knows it, one of `alive` is in sync, or
        one of `kept`, whose copies are on a disk.
        """
        # A colder replica holds nothing of the maps that have fewer backups.
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
        """Whether every living member is admitted, of one view, and sees nothing unsafe."""
        return settled_among(self.members())


def settled_among(members: list[Member]) -> bool:
    """Whether these are all members of one view, and see nothing unsafe."""
    numbers = {member.picture.view.number if member.picture.view else -1 for member in members}
    return len(numbers) == 1 and all(
        member.picture.admitted
        and len(member.picture.members()) == len(members)
        and not member.picture.unsafe_reason()
        and not member.picture.batches_waiting
        for member in members
    )


def _survive(agreed: Sequence[GroupHost], there: Collection[NodeId]) -> bool:
    """Whether every group keeps a majority of its voters, by every configuration that a voter of these members has:
    `agreed` are the groups of all whose replicas live, or are on disks that last, and `there` the nodes that will be.
    A node counts for a group only if its replica is there.
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
    """Each usable replica of a member, with its configuration."""
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
    """The view that a member has installed, and the next one that it has agreed to."""
    return [view for view in (member.picture.view, member.picture.agreed_view) if view is not None]


def driver_of(
    process: Process, identity: Identity, settings: Settings, services: Sequence[Service]
) -> tuple[Driver, Callable[[Callable[[], None]], None]]:
    """Make the member that lives in a process, of what its host's disk (`process.disk`) holds, with its journal there;
    and say how to be told when it may act. This is the one place of the simulator where files are opened.
    """
    recorder = process.world.recorder
    if process.disk is None:
        driver = Driver(Member(identity, settings, services, ways=process.world.ways), process)
        if recorder is not None:
            names = [service.name for service in services]
            driver.record(recorder.begin(process.name, settings, identity, names, None))
        return driver, lambda told: told()
    random = process.world.random

    def failed(error: JournalBroken) -> None:
        process.world.tell(f"{process.name}: {error}")
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
    """Settings with short times and small chunks, so that a run of seconds holds many changes.

    `mixed` adds a map with one backup more, and one with async backups only. `journal` is that of all maps; unless it
    is off, every host has a disk, on which members keep files of the sizes that `persistence` tells.
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
