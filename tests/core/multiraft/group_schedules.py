"""Members with several groups on bad disks and a bad network, judged by what leaves them and what their files have.

A schedule is drawn from one seed: messages overtake each other and come twice, disks stand still, members lose power
with a part of what they wrote, leaders are cut off, checkpoints are taken and logs cut.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

from tests.core.multiraft.group_cluster import ONE, Cluster, Ledger, Process
from tests.core.raft.paper_judge import PaperJudge

from holdfast.core.journal.recovery import Recovered, RecoveredGroup, Recovery
from holdfast.core.messages import GroupMessages
from holdfast.core.model.ids import GroupNumber
from holdfast.core.multiraft.group_host import node_of
from holdfast.core.multiraft.persistence import RestoredGroup, regained
from holdfast.core.raft.configuration import NodeId
from holdfast.core.raft.leader import ProposalRefused
from holdfast.core.raft.raft_messages import RaftEntry, RaftSnapshot
from holdfast.core.raft.raft_state import HardState
from holdfast.wire.codec import decode

NUMBERS = (ONE, GroupNumber(ONE + 1))


class Files:
    """What a member would find in its files now, of one group."""

    def __init__(self, process: Process, number: GroupNumber) -> None:
        self._process = process
        self._number = number
        self._known: tuple[object, ...] = ()
        self._replica = RestoredGroup()

    def _found(self) -> RestoredGroup:
        process = self._process
        known = (process.durable, *[id(snapshot) for snapshot, _ in process.checkpoint.values()])
        if known != self._known:
            recovered, recovery = Recovered(process.info.store, 0, ""), Recovery(0, 0)
            for snapshot, lsn in process.checkpoint.values():
                recovery.base(snapshot, lsn, "file")
            for lsn, block in enumerate(process.blocks[: process.durable], 1):
                recovery.block(lsn, block)
            recovery.finish(recovered)
            self._replica = regained(recovered.groups.get(self._number, RecoveredGroup()))
            self._known = known
        return self._replica

    @property
    def hard(self) -> HardState:
        return self._found().hard

    @property
    def snapshot(self) -> RaftSnapshot:
        return self._found().snapshot

    @property
    def entries(self) -> Sequence[RaftEntry]:
        return self._found().entries


class WatchedLedger(Ledger):
    """Remembers the entries, so that they can be judged."""

    def __init__(self) -> None:
        super().__init__()
        self.unjudged: list[RaftEntry] = []

    def apply(self, entries: Sequence[RaftEntry]) -> None:
        super().apply(entries)
        self.unjudged += entries


class WatchedProcess(Process):
    """A member whose every step is judged."""

    cluster: Storm

    def life(self) -> None:
        self.lives = getattr(self, "lives", 0) + 1
        super().life()

    def client(self, number: GroupNumber) -> Ledger:
        return self.clients.setdefault(number, WatchedLedger())

    def end_step(self) -> None:
        before = len(self.cluster.network)
        super().end_step()
        for number, hosted in self.groups.hosted.items():
            judge, group = self.cluster.judges[number], hosted.group
            judge.on_step(group, self.lives)
            first = max(group.log.first, group.log.last - 7)
            judge.on_entries(group, group.log.entries_from(first))
            ledger = self.clients[number]
            assert isinstance(ledger, WatchedLedger)
            judge.on_applied(group, self.lives, ledger.unjudged)
            ledger.unjudged = []
        for _, _, data in list(self.cluster.network)[before:]:
            message = decode(data)
            if isinstance(message, GroupMessages):
                for number, messages in message.groups:
                    for each in messages:
                        self.cluster.judges[number].on_left(each.sender, each)


class Storm(Cluster):
    """Three members, each of which has a replica of two groups."""

    kind = WatchedProcess

    def __init__(self, seed: int) -> None:
        self.judges: dict[GroupNumber, PaperJudge] = {}
        super().__init__(3, seed=seed)
        for number in NUMBERS:
            files = {node_of(each.info): Files(each, number) for each in self.processes.values()}
            self.judges[number] = PaperJudge(files)
            self.start(number, 1, 2, 3)
        self.random = Random(seed)
        self.pace: dict[NodeId, float] = {each.info.uuid: 1.0 for each in self.processes.values()}
        self.commands = 0

    def run(self, steps: int) -> None:
        weights: dict[Callable[[], None], float] = {
            self._deliver: 60, self._disk: 25, self._time: 15, self._propose: 5, self._stall: 0.4, self._double: 2,
            self._delay: 3, self._cut: 0.5, self._power: 0.5, self._write_out: 0.5, self._read: 1, self._same_view: 0.3,
        }  # fmt: skip
        for deed in self.random.choices(list(weights), list(weights.values()), k=steps):
            deed()

    def settle(self) -> None:
        """Nothing bad happens any more."""
        self.cut = set()
        self.network.clear()
        for number in (1, 2, 3):
            self[number].crash()
        for number in (1, 2, 3):
            self.restart(number)
        self.go(150)  # A state whose receiver was restarted is given up only after a while.

    def _some(self) -> Process:
        return self.random.choice(list(self.processes.values()))

    def _deliver(self) -> None:
        if self.network:
            if self.random.random() < 0.3:
                self.network.rotate(-1)
            self.deliver()

    def _double(self) -> None:
        if self.network:
            self.network.append(self.random.choice(self.network))

    def _delay(self) -> None:
        if self.network:
            self.network.rotate(-self.random.randrange(len(self.network)))

    def _disk(self) -> None:
        process = self._some()
        if self.random.random() < self.pace[process.info.uuid]:
            process.disk_turn()

    def _stall(self) -> None:
        self.pace[self._some().info.uuid] = self.random.choice([0.0, 0.1, 1.0, 1.0])

    def _time(self) -> None:
        process = self._some()
        if process.timer:
            process.timer = False
            process.groups.on_timer()
            process.groups.rounds.on_timer()
            process.end_step()

    def _propose(self) -> None:
        process = self._some()
        self.commands += 1
        for number in NUMBERS:
            try:
                process.groups.propose(number, [b"%d/%d" % (self.commands, at) for at in range(2)])
            except ProposalRefused:
                continue
        process.end_step()

    def _read(self) -> None:
        process = self._some()
        self.commands += 1
        try:
            process.groups.read(ONE, b"r%d" % self.commands)
        except ProposalRefused:
            return
        process.end_step()

    def _cut(self) -> None:
        self.cut = set() if self.cut else {self._some().info.uuid}

    def _power(self) -> None:
        """A member loses power, keeps some of what was not durable, and is back at once."""
        number = self.random.choice([1, 2, 3])
        process = self[number]
        process.crash(self.random.randint(0, len(process.blocks) - process.durable))
        self.restart(number)

    def _write_out(self) -> None:
        process = self._some()
        process.groups.journal.write_out(self.random.choice(NUMBERS))
        process.end_step()

    def _same_view(self) -> None:
        self.install(self.processes)
