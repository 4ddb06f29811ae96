"""Members that have nothing but groups, with a network and disks that take their time."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from random import Random
from typing import Any

from holdfast.core.effects import Append, Checkpoint, Send, SetTimer
from holdfast.core.journal.log import Log
from holdfast.core.journal.recovery import Recovered, Recovery
from holdfast.core.messages import (
    GroupMessages,
    GroupState,
    GroupStateTaken,
    GroupStateWanted,
    LeadAsked,
    LeadConfirmed,
)
from holdfast.core.model.ids import GROUPS_FROM, GroupNumber, MemberId
from holdfast.core.model.notices import CheckpointEnded, GroupsWritten, Notice, ViewInstalled
from holdfast.core.model.timer_name import TimerName
from holdfast.core.model.views import MemberInfo, View
from holdfast.core.multiraft.group_host import GroupHost, node_of
from holdfast.core.multiraft.hosted_group import (
    GatheredFill,
    GroupClient,
    HostedGroup,
    ListedPieces,
    ReplicaNotice,
    StatePieces,
)
from holdfast.core.outbox import Outbox
from holdfast.core.raft.configuration import Configuration, NodeId
from holdfast.core.raft.raft_messages import RaftEntry, RaftKind, RaftMessage
from holdfast.wire.codec import decode, encode

ONE = GROUPS_FROM + 7
TWO = GROUPS_FROM + 8


class Ledger:
    """The state of one group: the commands that were applied, in order."""

    def __init__(self) -> None:
        self.applied: list[bytes] = []
        self.ready: list[tuple[bytes, int]] = []
        """Reads, and how much was applied then."""
        self.notices: list[ReplicaNotice] = []
        self.restored = 0

    def apply(self, entries: Sequence[RaftEntry]) -> None:
        self.applied += [entry.data for entry in entries]

    def read_ready(self, context: bytes) -> None:
        self.ready.append((context, len(self.applied)))

    def on_group(self, notice: ReplicaNotice) -> None:
        self.notices.append(notice)

    def pieces(self) -> StatePieces:
        return ListedPieces(self.applied)

    def fill(self) -> GatheredFill:
        return GatheredFill(self)

    def restore(self, pieces: Sequence[bytes]) -> None:
        self.applied = list(pieces)
        self.restored += 1


class Process:
    """One member, with or without files."""

    def __init__(self, cluster: Cluster, info: MemberInfo) -> None:
        self.cluster = cluster
        self.info = info
        self.wanted: set[GroupNumber] | None = None
        """Groups that another member may make it take part in; None: any."""
        self.blocks: list[list[Any]] = []
        """What is durable, and (from `durable` on) what is written and may be lost."""
        self.durable = 0
        self.checkpoint: dict[int, tuple[Any, int]] = {}
        """By group: the newest, and of how many blocks it is."""
        self.life()

    def life(self) -> None:
        """Begin anew, with what is in the files."""
        self.disk: deque[Append | Checkpoint] = deque()
        self.numbers: dict[int, int] = {0: len(self.blocks)}
        self.told: list[Any] = []
        """Effects of another kind."""
        self.timer = self.more = False
        """Whether groups are to tick, and whether some of them have not had their turn."""
        self.up = True
        self.clients: dict[GroupNumber, Ledger] = {}
        self.out = Outbox(self)
        self.log = Log(self.out, on=bool(self.info.store))
        recovered = Recovered(self.info.store, 0, "")
        recovery = Recovery(0, 0)
        for snapshot, lsn in self.checkpoint.values():
            recovery.base(snapshot, lsn, "file")
        for lsn, block in enumerate(self.blocks, 1):
            recovery.block(lsn, block)
        recovery.finish(recovered)
        self.groups = GroupHost(self.info, self.out, self.log, self, recovered.groups)

    def open_group(self, number: GroupNumber) -> GroupClient | None:
        if self.wanted is not None and number not in self.wanted:
            return None
        return self.client(number)

    def client(self, number: GroupNumber) -> Ledger:
        return self.clients.setdefault(number, Ledger())

    def on_notice(self, notice: Notice) -> None:
        if isinstance(notice, GroupsWritten):
            self.groups.journal.on_written(notice)
        elif isinstance(notice, CheckpointEnded):
            self.groups.on_checkpoint(notice)

    def crash(self, keep: int = 0) -> None:
        """Lose what is not durable, but for so many blocks."""
        del self.blocks[self.durable + keep :]
        self.durable = len(self.blocks)
        self.up = False

    def end_step(self) -> None:
        self.groups.flush()
        self.log.flush()
        for effect in self.out.take():
            if isinstance(effect, Send):
                self.cluster.network.append((self.info.uuid, effect.to, encode(effect.message)))
            elif isinstance(effect, Append):
                self.blocks.append(list(effect.entries))
                self.numbers[effect.number] = len(self.blocks)
                self.disk.append(effect)
            elif isinstance(effect, Checkpoint):
                self.disk.append(effect)
            elif isinstance(effect, SetTimer) and effect.name == TimerName.GROUPS_MORE:
                self.more = True
            elif isinstance(effect, SetTimer):
                self.timer = True
            else:
                self.told.append(effect)

    def take_more(self) -> None:
        """The next groups have their turn."""
        self.more = False
        self.groups.on_more()
        self.end_step()

    def disk_turn(self) -> None:
        if not self.disk:
            return
        effect = self.disk.popleft()
        if isinstance(effect, Append):
            self.durable = self.numbers[effect.number]
            self.log.on_durable(effect.number)
        else:
            self.checkpoint[effect.snapshot.partition] = (effect.snapshot, self.numbers[effect.after])
            self.log.on_checkpoint(effect.ticket, well=True)
        self.end_step()


class Cluster:
    """Members `m1`, `m2`, … in one view."""

    kind: type[Process] = Process

    def __init__(self, members: int, *, seed: int = 0, files: bool = True) -> None:
        self.random = Random(seed)
        self.network: deque[tuple[MemberId, MemberId, bytes]] = deque()
        self.carried = 0
        self.cut: set[MemberId] = set()
        """Whose messages do not arrive, and who gets none."""
        self.processes: dict[MemberId, Process] = {}
        self.view = View(0, "c", [])
        for number in range(1, members + 1):
            uuid = MemberId(f"{number:x}" * 8)
            info = MemberInfo(
                uuid, 1, "h", number, "h", number, f"m{number}", store=f"f{number}" if files else ""
            )
            self.processes[uuid] = self.kind(self, info)
        self.install(list(self.processes))

    def __getitem__(self, number: int) -> Process:
        return list(self.processes.values())[number - 1]

    def node(self, number: int) -> NodeId:
        return node_of(self[number].info)

    def install(self, members: Iterable[MemberId]) -> None:
        """Another view, at all who are in it."""
        old = self.view
        infos = [self.processes[uuid].info for uuid in sorted(members)]
        self.view = View(old.number + 1, "c", infos)
        names = {info.uuid for info in infos}
        before = {info.uuid for info in old.members}
        for info in infos:
            process = self.processes[info.uuid]
            if process.up:
                me = frozenset({info.uuid})
                gone, came = frozenset(before - names) - me, frozenset(names - before) - me
                process.groups.on_view(ViewInstalled(old, self.view, True, gone, came))
                process.end_step()

    def start(self, number: GroupNumber, *voters: int) -> None:
        configuration = Configuration(frozenset(self.node(each) for each in voters))
        for each in voters:
            process = self[each]
            process.groups.start(number, configuration, process.client(number))
            process.end_step()

    def restart(self, number: int) -> None:
        """A process comes back with its files: the others' view says that it is another life."""
        process = self[number]
        self.install(uuid for uuid in self.processes if uuid != process.info.uuid)
        process.life()
        others = frozenset(uuid for uuid in self.processes if uuid != process.info.uuid)
        for found in process.groups.journal.found:
            process.groups.start(found, Configuration(), process.client(found))
        process.groups.on_view(ViewInstalled(None, self.view, True, frozenset(), others))
        process.end_step()
        self.install(self.processes)

    def deliver(self) -> None:
        sender, to, data = self.network.popleft()
        process = self.processes[to]
        if not process.up or not self.processes[sender].up or self.cut & {sender, to}:
            return
        self.carried += 1
        message = decode(data)
        groups = process.groups
        if isinstance(message, GroupMessages):
            groups.on_messages(sender, message)
        elif isinstance(message, GroupState):
            groups.on_state(sender, message)
        elif isinstance(message, GroupStateWanted):
            groups.transfers.on_wanted(sender, message)
        elif isinstance(message, LeadAsked):
            groups.rounds.on_asked(sender, message)
        elif isinstance(message, LeadConfirmed):
            groups.rounds.on_confirmed(sender, message)
        else:
            assert isinstance(message, GroupStateTaken)
            groups.transfers.on_state_taken(sender, message)
        process.end_step()

    def count(self, kind: type[Any]) -> int:
        """Messages of this kind on their way."""
        return sum(isinstance(decode(data), kind) for _, _, data in self.network)

    def deliver_all_but(self, kind: type[Any]) -> None:
        """Deliver all other messages, and those that they lead to."""
        while self.count(kind) < len(self.network):
            if isinstance(decode(self.network[0][2]), kind):
                self.network.rotate(-1)
            else:
                self.deliver()
        for process in self.processes.values():
            while process.up and process.more:
                process.take_more()

    def go(self, ticks: int) -> None:
        """Let time pass: between two ticks all messages arrive, and all disks get on, in an order of the seed's."""
        for _ in range(ticks):
            for process in self.processes.values():
                if process.up and process.timer:
                    process.timer = False
                    process.groups.on_timer()
                    process.groups.rounds.on_timer()
                    process.end_step()
            self.quiesce()

    def quiesce(self) -> None:
        while True:
            for process in self.processes.values():
                while process.up and process.more:
                    process.take_more()
            busy = [process for process in self.processes.values() if process.up and process.disk]
            if self.network and (not busy or self.random.random() < 0.6):
                self.deliver()
            elif busy:
                self.random.choice(busy).disk_turn()
            else:
                return

    def propose(self, at: int, *commands: bytes, group: GroupNumber = ONE) -> None:
        self[at].groups.propose(group, commands)
        self[at].end_step()

    def leader(self, group: GroupNumber = ONE) -> Process:
        found = [each for each in self.processes.values() if each.up and each.groups.term(group) is not None]
        assert found, "nobody leads"
        return max(found, key=lambda each: each.groups.term(group) or 0)

    def applied(self, number: int, group: GroupNumber = ONE) -> list[bytes]:
        return self[number].clients[group].applied


def led(files: bool = True, members: int = 3) -> Cluster:
    """Three replicas, the first of which leads; everything is done and quiet."""
    cluster = Cluster(members, files=files)
    cluster.start(ONE, 1, 2, 3)
    cluster[1].groups.hosted[ONE].group.campaign()
    cluster[1].groups.rouse(ONE)
    cluster[1].groups._dirty.add(ONE)
    cluster[1].end_step()
    cluster.quiesce()
    assert cluster[1].groups.current(ONE)
    return cluster


def raft(cluster: Cluster, kind: RaftKind, sender: int = 0) -> list[RaftMessage]:
    """What of this kind is on its way, from one member or all."""
    found: list[RaftMessage] = []
    for by, _, data in cluster.network:
        message = decode(data)
        if isinstance(message, GroupMessages) and (not sender or by == cluster[sender].info.uuid):
            found += [each for _, messages in message.groups for each in messages if each.kind is kind]
    return found


def parts(cluster: Cluster) -> Iterator[GroupState]:
    """Take the parts of states that are sent, one after the other, as they come."""
    while True:
        while not cluster.network and any(process.disk for process in cluster.processes.values()):
            for process in cluster.processes.values():
                process.disk_turn()
        if not cluster.network:
            return
        data = cluster.network[0][2]
        message = decode(data)
        if isinstance(message, GroupState):
            cluster.network.popleft()
            yield message
        else:
            cluster.deliver()


def hosted(cluster: Cluster, at: int) -> HostedGroup:
    return cluster[at].groups.hosted[ONE]


def given(process: Process, message: RaftMessage, sender: int = 2) -> None:
    process.groups.on_messages(process.cluster[sender].info.uuid, GroupMessages([(ONE, [message])], []))
    process.end_step()


def feeding(files: bool = True) -> Cluster:
    """The fourth member is to get the state of ten commands of three bytes, of which nothing has arrived."""
    cluster = led(files, members=4)
    for number in range(10):
        cluster.propose(1, b"%03d" % number)
        cluster.quiesce()
    assert hosted(cluster, 1).group.log.base > 1
    nodes = [cluster.node(number) for number in (1, 2, 3)]
    term = hosted(cluster, 1).group.term
    cluster[1].groups.running(ONE).change_peers(term, nodes, [cluster.node(4)], 1)
    cluster[1].end_step()
    return cluster
