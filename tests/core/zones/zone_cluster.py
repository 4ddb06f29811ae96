"""Members with zone controllers and real groups, on a bad network, from one seed.

The metastore is one object: its answers, and the batches of its changes, are late or lost on their way. Messages
between replicas are lost, doubled and overtake each other. A member that crashes keeps what its groups had written.
What controllers were told can be told again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from random import Random

from tests.core.zones.small_metastore import Batch, SmallMetastore

from holdfast.core.metastore.invoke import Branch, MetastoreEntry, PutKey
from holdfast.core.raft.configuration import Configuration
from holdfast.core.raft.group import Group
from holdfast.core.raft.leader import ProposalRefused
from holdfast.core.raft.raft_log import RaftLog
from holdfast.core.raft.raft_messages import RaftEntry, RaftMessage, RaftSnapshot
from holdfast.core.raft.raft_state import (
    CaughtUp,
    ChangeApplied,
    ChangeFailed,
    GroupNotice,
    HardState,
    RaftSettings,
)
from holdfast.core.raft.reconfiguration import ChangeAnswer
from holdfast.core.zones.adjusting import LocalCopy
from holdfast.core.zones.assignments import Assignments, PartitionKeys
from holdfast.core.zones.data_nodes import data_nodes_of
from holdfast.core.zones.descriptors import ClusterTopology, DataMember, ZoneDescriptor, ZoneSettings
from holdfast.core.zones.rendezvous import EvenLayout, placed
from holdfast.core.zones.transitions import LocalReplica, LocalState
from holdfast.core.zones.zone_commands import ZONE_FIELDS, altered, created, creation_keys, dropped
from holdfast.core.zones.zone_controller import ZoneController
from holdfast.core.zones.zone_keys import TOPOLOGY_KEY, encoded, name_key, part_keys, partition_keys, zone_key
from holdfast.core.zones.zone_ports import Part
from holdfast.core.zones.zone_resets import RecoveryRequest
from holdfast_lab.check.zone_invariants import changes_in_flight, leaps

SETTINGS = RaftSettings(
    election_ticks=6, heartbeat_ticks=2, catch_up_margin=3, catch_up_ticks=15, starts_voted=True
)
TICK_MS = 100


class Broken(AssertionError):
    """Something that must never happen has."""


class Kept:
    """What a member has written down of one group."""

    def __init__(self, snapshot: RaftSnapshot) -> None:
        self.snapshot = snapshot
        self.entries: list[RaftEntry] = []
        self.hard = HardState(commit=snapshot.index)
        self.group: Group | None = None
        self.data: dict[int, bytes] = {}
        self.walked = 0
        """Up to here its configurations were judged."""


class Member:
    """One member: its groups, its way to the metastore, and its controller."""

    def __init__(self, name: str, cluster: Cluster) -> None:
        self.name = name
        self.cluster = cluster
        self.kept: dict[Part, Kept] = {}
        self.doubted: set[Part] = set()
        """Of which the files may lack something."""
        self.damaged = False
        """Whether there ever were such."""
        self.seen = 0
        self.entries: dict[bytes, MetastoreEntry] = {}
        self.alive = False
        self.told: list[str] = []
        self.started: list[Part] = []
        self.joined: dict[Part, set[int]] = {}
        """The tokens of configurations with this member that its replicas had in force."""
        self.tickets = 0
        self.changing: set[Part] = set()
        """Groups that change their peers because this member has asked them to."""
        self.heard: list[tuple[Part, GroupNotice] | Batch] = []
        """What its controller was told since it started: notices, and batches of changes."""

    def start(self) -> None:
        self.alive = True
        self.heard = []
        self.changing = set()
        for batch in self.cluster.store.batches:
            self.seen = batch[0]
            self.entries |= {after.key: after for _, after in batch[2]}
        self.controller = ZoneController(self.name, self, self, self)
        self.controller.begin(self.cluster.now_ms)

    # the metastore

    def get(self, key: bytes) -> MetastoreEntry:
        return self.entries.get(key, MetastoreEntry(key))

    def scan(self, prefix: bytes) -> Sequence[MetastoreEntry]:
        return [one for key, one in sorted(self.entries.items()) if key.startswith(prefix) and one.exists]

    def read(self, keys: Sequence[bytes]) -> int:
        self.tickets += 1
        self.cluster.asked.append((self, self.tickets, list(keys)))
        return self.tickets

    def invoke(self, branch: Branch) -> int:
        self.tickets += 1
        self.cluster.asked.append((self, self.tickets, branch))
        return self.tickets

    @property
    def leads(self) -> bool:
        return self.cluster.driver == self.name

    # callbacks

    def hear(self, one: tuple[Part, GroupNotice] | Batch) -> None:
        """Tell its controller; with bad luck twice, or something old once more."""
        self.heard.append(one)
        if len(one) == 2 and not isinstance(one[1], CaughtUp):
            self.changing.discard(one[0])
        self._tell(one)
        repeating = self.cluster.repeating
        if repeating is not None and repeating.random() < 0.5:
            self._tell(one)
            self._tell(repeating.choice(self.heard))

    def hear_again(self) -> None:
        """Tell it all once more, in the same order."""
        for one in list(self.heard):
            self._tell(one)
            self.cluster.ready(self)

    def _tell(self, one: tuple[Part, GroupNotice] | Batch) -> None:
        if len(one) == 2:
            self.controller.on_notice(self.cluster.now_ms, *one)
        else:
            self.controller.on_changes(self.cluster.now_ms, one[2])

    # groups

    def copy(self, part: Part) -> LocalCopy | None:
        kept = self.kept.get(part)
        if kept is None:
            return None
        if part in self.doubted:
            return LocalCopy(True, Configuration())
        if kept.group is not None:
            return LocalCopy(True, kept.group.configuration, kept.group.generation)
        log = RaftLog(kept.snapshot, kept.entries)
        return LocalCopy(False, log.configuration, kept.hard.generation)

    def copies(self) -> Sequence[Part]:
        return sorted(self.kept)

    def found(self, part: Part, configuration: Configuration) -> None:
        self.kept[part] = Kept(RaftSnapshot(1, 1, configuration))
        self.started.append(part)
        self.join(part)

    def join(self, part: Part) -> None:
        if part not in self.kept:
            self.kept[part] = Kept(RaftSnapshot(0, 0, Configuration()))
            self.started.append(part)
        kept = self.kept[part]
        if kept.group is None and part not in self.doubted:
            log = RaftLog(kept.snapshot, kept.entries, committed=kept.hard.commit)
            kept.group = Group(self.name, b"%d/%d" % part, log, kept.hard, SETTINGS)

    def halt(self, part: Part) -> None:
        self.kept[part].group = None

    def destroy(self, part: Part) -> None:
        del self.kept[part]
        self.doubted.discard(part)

    def in_doubt(self, part: Part) -> bool:
        return part in self.doubted

    def _group(self, part: Part) -> Group:
        kept = self.kept.get(part)
        if kept is None or kept.group is None:
            raise ProposalRefused("it does not run")
        return kept.group

    def has_leader(self, part: Part) -> bool:
        kept = self.kept.get(part)
        return kept is not None and kept.group is not None and kept.group.lead is not None

    def term(self, part: Part) -> int | None:
        kept = self.kept.get(part)
        return kept.group.term if kept is not None and kept.group is not None and kept.group.leading else None

    def change_peers(self, part: Part, term: int, target: Assignments, token: int) -> ChangeAnswer:
        answer = self._group(part).change_peers(term, target.peers, target.learners, token, asks=True)
        if answer is ChangeAnswer.STARTED:
            self.changing.add(part)
        return answer

    def agree_change(self, part: Part, term: int, token: int) -> bool:
        return self._group(part).agree_change(term, token)

    def cancel_change(self, part: Part, term: int, token: int) -> bool:
        return self._group(part).cancel_change(term, token)

    def reset(self, part: Part, voters: Sequence[str], token: int) -> ChangeAnswer:
        return self._group(part).reset(voters, token)

    # the world

    def jitter(self, most_ms: int) -> int:
        return self.cluster.random.randrange(most_ms)

    def ask_replicas(self, node: str, zone: int) -> None:
        other = self.cluster.members[node]
        if other.alive:
            states = {
                part[1]: LocalReplica(
                    LocalState.HEALTHY,
                    kept.group.log.last,
                    False,
                    tuple(sorted(kept.group.configuration.voters)),
                    tuple(sorted(kept.group.configuration.outgoing)),
                    kept.group.configuration.token,
                )
                for part, kept in sorted(other.kept.items())
                if part[0] == zone and kept.group is not None
            }
            self.controller.on_replicas(node, zone, states)

    def failing(self, part: Part, attempts: int, why: str) -> None:
        self.told.append(f"{attempts}: {why}")


class Cluster:
    def __init__(self, seed: int, names: str = "ABCDE", bad: float = 0.0) -> None:
        self.random = Random(seed)
        self.bad = bad
        """How much of what is sent is lost."""
        self.store = SmallMetastore()
        self.now_ms = 0
        self.driver = names[0]
        self.view = 0
        self.asked: list[tuple[Member, int, list[bytes] | Branch]] = []
        self.sent: list[tuple[Part, RaftMessage]] = []
        self.deaf: set[str] = set()
        """Who hears of no changes of the metastore."""
        self.local_reads = False
        """Whether the metastore is read where it is asked."""
        self.cut: set[str] = set()
        """Who gets no messages of groups, and whose do not arrive."""
        self.committed: dict[tuple[Part, int], dict[int, RaftEntry]] = {}
        self.states: dict[tuple[Part, int, int], dict[int, bytes]] = {}
        """What was sent with snapshots, by generation and index."""
        self.configurations: dict[Part, list[Assignments]] = {}
        self.repeating: Random | None = None
        """Where it is from what controllers are told twice (I10); None: nothing."""
        self.before: dict[Part, PartitionKeys] = {}
        self.looked = 0
        self.members = {name: Member(name, self) for name in names}
        self.commands = 0

    # -- operators

    def here(self, names: str | None = None, **attributes: Mapping[str, str]) -> None:
        """The view: these members."""
        names = "".join(name for name, one in self.members.items() if one.alive) if names is None else names
        self.view += 1
        members = tuple(DataMember(name, attributes=dict(attributes.get(name, {}))) for name in sorted(names))
        self.write(TOPOLOGY_KEY, ClusterTopology(self.view, members))

    def write(self, key: bytes, value: object) -> None:
        self.store.invoke(self.store.read([]).guarded([PutKey(key, encoded(value))]), self.now_ms)

    def begin(self, settings: ZoneSettings, names: str) -> None:
        for name in names:
            self.members[name].start()
        self.here(names)
        _, invoke = created(self.store.read(creation_keys(settings)), settings, self.now_ms)
        assert self.store.invoke(invoke, self.now_ms).answer == 1
        self.go(30)

    def alter(self, **changes: object) -> None:
        keys = [TOPOLOGY_KEY, name_key("z"), *(zone_key(1, field) for field in ZONE_FIELDS)]
        _, invoke = altered(self.store.read(keys), "z", changes, self.now_ms)
        assert self.store.invoke(invoke, self.now_ms).answer == 1

    def drop(self) -> None:
        keys = [name_key("z"), zone_key(1, "descriptor")]
        assert self.store.invoke(dropped(self.store.read(keys), "z")[1], self.now_ms).answer == 1

    def ask_reset(self) -> None:
        self.write(zone_key(1, "recovery"), RecoveryRequest(manual=True))

    def come(self, names: str) -> None:
        for name in names:
            self.members[name].start()
        self.here()

    def crash(self, name: str, *, seen: bool = True, damaged: bool = False) -> None:
        """`damaged`: the end of its files is lost."""
        member = self.members[name]
        if damaged:
            member.doubted, member.damaged = set(member.kept), True
        member.alive = False
        for kept in member.kept.values():
            kept.group = None
        if self.driver == name:
            self.driver = next((one for one, other in self.members.items() if other.alive), name)
        if seen:
            self.here()

    def put(self, part: Part = (1, 0)) -> bool:
        """A write through whoever leads; whether one takes it."""
        for member in self.members.values():
            group = self._leading(member, part)
            if group is not None:
                self.commands += 1
                try:
                    group.propose([b"%d" % self.commands])
                except ProposalRefused:
                    continue
                return True
        return False

    def _leading(self, member: Member, part: Part) -> Group | None:
        kept = member.kept.get(part)
        return kept.group if member.alive and kept and kept.group and kept.group.leading else None

    # -- time

    def go(self, rounds: int = 1) -> None:
        for _ in range(rounds):
            self.now_ms += TICK_MS
            for member in self._alive():
                for kept in list(member.kept.values()):
                    if kept.group is not None:
                        kept.group.tick()
                self.ready(member)
                member.controller.on_tick(self.now_ms)
                self.ready(member)
            for _ in range(3):
                self._deliver()
                self._answer()
                self._tell()
            self.judge()

    def _alive(self) -> list[Member]:
        return [member for member in self.members.values() if member.alive]

    def _lost(self) -> bool:
        return self.random.random() < self.bad

    def _deliver(self) -> None:
        sent, self.sent = self.sent, []
        if self.bad:
            self.random.shuffle(sent)
        for part, message in sent:
            if self._lost() or self.cut & {message.to, message.sender}:
                continue
            if self._lost():
                self.sent.append((part, message))
            member = self.members.get(message.to)
            kept = member.kept.get(part) if member is not None and member.alive else None
            if member is not None and kept is not None and kept.group is not None:
                kept.group.step(message)
                self.ready_after(member, part)

    def _answer(self) -> None:
        asked, self.asked = self.asked, []
        for member, ticket, what in asked:
            if not member.alive or self._lost():
                continue
            if self._lost():
                self.asked.append((member, ticket, what))
                continue
            if isinstance(what, list):
                where = member if self.local_reads else self.store
                found = [where.get(key) for key in what]
                member.controller.on_read(ticket, found, self.store.revision)
            else:
                invoked = self.store.invoke(what, self.now_ms)
                self.judge_keys()
                if not self._lost():
                    member.controller.on_invoked(ticket, invoked)
            self.ready(member)

    def _tell(self) -> None:
        for member in self._alive():
            if self.random.random() < self.bad * 3 or member.name in self.deaf:
                continue  # Later.
            for batch in self.store.batches:
                if batch[0] > member.seen:
                    member.seen = batch[0]
                    member.entries |= {after.key: after for _, after in batch[2]}
                    member.hear(batch)
                    self.ready(member)

    def ready(self, member: Member) -> None:
        """Do what its groups want: write, send, apply."""
        while sum(self._ready_of(member, part) for part in sorted(member.kept)):
            pass

    def ready_after(self, member: Member, part: Part) -> None:
        """Like `ready`, when only this group can want something. Others may when the member has heard a notice of it.

        To ask all groups after each message took five sixths of the time of a test.
        """
        heard = len(member.heard)
        if self._ready_of(member, part) and len(member.heard) != heard:
            for other in [other for other in sorted(member.kept) if other > part]:
                self._ready_of(member, other)
            self.ready(member)

    def _ready_of(self, member: Member, part: Part) -> bool:
        """Whether this group wanted something."""
        wanted = False
        kept = member.kept.get(part)
        while kept is not None and kept.group is not None and kept.group.has_ready:
            wanted = True
            self._ready(member, part, kept, kept.group)
            if kept.group is not None and kept.group.configuration.votes(member.name):
                member.joined.setdefault(part, set()).add(kept.group.configuration.token)
            kept = member.kept.get(part)
        return wanted

    def _ready(self, member: Member, part: Part, kept: Kept, group: Group) -> None:
        ready = group.ready()
        if ready.abandoned:
            kept.snapshot, kept.entries, kept.data = RaftSnapshot(0, 0, Configuration()), [], {}
            kept.walked = 0
        if ready.hard is not None:
            kept.hard = ready.hard
        known = self.committed.setdefault((part, group.generation), {})
        if ready.snapshot is not None:
            kept.snapshot, kept.entries = ready.snapshot, []
            kept.data = self._state(part, group.generation, ready.snapshot.index)
        if ready.entries:
            first = ready.entries[0].index
            kept.entries = [one for one in kept.entries if one.index < first] + list(ready.entries)
        for one in ready.messages:
            if one.snapshot is not None:
                applied = {at: data for at, data in kept.data.items() if at <= one.snapshot.index}
                self.states[part, group.generation, one.snapshot.index] = applied
        self.sent += [(part, one) for one in (*ready.messages, *ready.after) if one.to != member.name]
        for one in ready.after:
            if one.to == member.name:
                group.step(one)
        if ready.written is not None:
            group.written(ready.written)
        for entry in ready.committed:
            if known.setdefault(entry.index, entry) != entry:
                raise Broken(f"{member.name} {part}: {entry} was applied where {known[entry.index]} was")
            if entry.data:
                kept.data[entry.index] = entry.data
        if ready.committed:
            group.applied(ready.committed)
        for notice in ready.notices:
            if isinstance(notice, ChangeApplied):
                seen = self.configurations.setdefault(part, [])
                now = notice.configuration
                seen.append(Assignments(tuple(sorted(now.voters)), tuple(sorted(now.learners))))
            member.told += ["failed"] if isinstance(notice, ChangeFailed) else []
            member.hear((part, notice))

    # -- what is

    def keys(self, partition: int = 0) -> PartitionKeys:
        return partition_keys(self.store.read(part_keys(1, partition)), 1, partition)

    def shown(self, partition: int = 0) -> str:
        def said(one: Assignments | None) -> str:
            if one is None:
                return "-"
            learners = "".join(f" {node}?" for node in one.learners)
            return "".join(one.peers) + learners + "!" * one.force + "r" * one.from_reset

        keys = self.keys(partition)
        return f"S={said(keys.stable)} P={','.join(map(said, keys.pending)) or '-'} N={said(keys.planned)}"

    def holders(self, partition: int = 0) -> str:
        return "".join(name for name, one in self.members.items() if one.alive and (1, partition) in one.kept)

    def groups(self) -> dict[tuple[str, Part], tuple[int, int]]:
        """Every replica: its generation, and where in its log its configuration is."""
        return {
            (name, part): (kept.group.generation, kept.group.log.configuration_index)
            for name, one in self.members.items()
            for part, kept in one.kept.items()
            if kept.group is not None
        }

    def wanted(self, partition: int = 0) -> Assignments:
        """Where the placement wants a partition to be."""
        read = self.store.read([zone_key(1, field) for field in ZONE_FIELDS])
        zone = read.value(zone_key(1, "descriptor"), ZoneDescriptor)
        assert zone is not None
        layout = read.value(zone_key(1, "layout"), EvenLayout)
        return placed(data_nodes_of(read, 1).latest, partition, zone.settings, layout)

    def settled(self, rounds: int = 600, *, parts: Iterable[int] = (0,)) -> None:
        """Go on until nothing moves any more."""
        quiet = 0
        for _ in range(rounds):
            self.go()
            moves = any(self.keys(part).pending or self.keys(part).planned for part in parts)
            quiet = 0 if moves else quiet + 1
            if quiet > 25:
                return
        raise Broken(f"it does not come to rest: {self.shown()}")

    # -- what must hold

    def judge_keys(self) -> None:
        for _, _, changes in self.store.batches[self.looked :]:
            for part in sorted(
                {(1, int(one.key.split(b"/")[3])) for _, one in changes if b"/part/" in one.key}
            ):
                now, before = self.keys(part[1]), self.before.get(part, PartitionKeys())
                if now.planned is not None and not now.pending:
                    raise Broken(f"I4: {part} has something planned and nothing pending")
                if now.trigger is not None and (before.trigger or 0) > now.trigger:
                    raise Broken(f"I7: {part}: the trigger fell from {before.trigger} to {now.trigger}")
                known = self.configurations.get(part, [])
                first = before.stable is None or now.stable is None or now.stable == before.stable
                if not first and not any(one.same_nodes(now.stable) for one in known):  # type: ignore[arg-type]
                    raise Broken(f"I3: {part}: stable is {now.stable}, which was never a configuration")
                self.before[part] = now
        self.looked = len(self.store.batches)

    def judge(self) -> None:
        self.judge_keys()
        for member in self._alive():
            for part, kept in member.kept.items():
                group = kept.group
                if group is not None:
                    self._judge_changes(part, kept, group)
                if (
                    group is None
                    or group.leading is None
                    or group.log.configuration_index > group.log.committed
                ):
                    continue
                tokens = [
                    one.configuration.token
                    for one in group.log.entries_from(group.log.first)
                    if one.configuration is not None
                ]
                if tokens != sorted(tokens):
                    raise Broken(f"I9: tokens of {part} fall: {tokens}")
                self._judge_voters(part, group)
                self._judge_progress(part, group)

    def _judge_changes(self, part: Part, kept: Kept, group: Group) -> None:
        if changes_in_flight(group) > 1:
            raise Broken(f"I1: {part} has more than one change in flight")
        for leap in leaps(group, kept.walked):
            raise Broken(f"I2: {part}, {leap}")
        kept.walked = group.log.committed

    def _judge_voters(self, part: Part, group: Group) -> None:
        """A voter of the newest group has its replica, if it lives and has heard of the keys."""
        newest = max(
            (
                (other.group.generation, other.group.term)
                for one in self.members.values()
                if (other := one.kept.get(part)) is not None and other.group is not None
            ),
        )
        if (group.generation, group.term) != newest or not self.store.get(part_keys(*part)[0]).exists:
            return
        for node in sorted(group.configuration.voters):
            member = self.members[node]
            had = group.configuration.token in member.joined.get(part, set())
            if member.alive and had and part not in member.kept and group.configuration.token:
                raise Broken(f"{node} is a voter of {part}, and has destroyed it: {self.shown(part[1])}")

    def _judge_progress(self, part: Part, group: Group) -> None:
        """A leader never counts on what a replica does not have."""
        assert group.leading is not None
        for node, progress in group.leading.progress.items():
            if self.members[node].damaged and node not in group.configuration.members:
                continue  # It has begun anew, catches up, and counts for nothing yet.
            kept = self.members[node].kept.get(part)
            other = kept.group if kept is not None else None
            if other is None or (other.generation, other.term) != (group.generation, group.term):
                continue
            if progress.match > other.log.last:
                raise Broken(f"{node} has {other.log.last} entries of {part}, not {progress.match}")

    def _state(self, part: Part, generation: int, index: int) -> dict[int, bytes]:
        """What was sent with a snapshot."""
        return dict(self.states[part, generation, index])
