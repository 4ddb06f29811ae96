"""Groups on a bad network and bad disks: random schedules, and what must hold after each step.

Everything is drawn from one seed. Messages are lost, doubled and overtake each other; a crash loses what was not
written down, or keeps a part of it; configurations change, logs are compacted, leaders hand over.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random

from tests.core.raft.paper_judge import Broken, PaperJudge, compare

from holdfast.core.raft.configuration import Configuration, ConfigurationRefused, enter_joint, steps_to
from holdfast.core.raft.group import Group, RaftReady
from holdfast.core.raft.leader import ProposalRefused
from holdfast.core.raft.raft_log import RaftLog
from holdfast.core.raft.raft_messages import RaftEntry, RaftMessage, RaftSnapshot
from holdfast.core.raft.raft_state import GroupNotice, HardState, RaftSettings

SETTINGS = RaftSettings(election_ticks=6, heartbeat_ticks=2, message_bytes=200, window=4, catch_up_ticks=20)


class Disk:
    """What one replica has written down, and what is on its way there: a member's journal, as core/multiraft uses
    it.
    """

    def __init__(self, snapshot: RaftSnapshot) -> None:
        self.snapshot = snapshot
        self.entries: list[RaftEntry] = []
        self.hard = HardState(commit=snapshot.index)
        self.waiting: deque[RaftReady] = deque()

    def write(self, ready: RaftReady) -> None:
        if ready.abandoned:
            self.snapshot, self.entries = RaftSnapshot(0, 0, Configuration()), []
        if ready.snapshot is not None:
            self.snapshot, self.entries = ready.snapshot, []
        if ready.entries:
            begin = ready.entries[0].index
            self.entries = [entry for entry in self.entries if entry.index < begin] + list(ready.entries)
        if ready.hard is not None and (ready.must_sync or ready.entries):
            self.hard = ready.hard  # Of what is only committed nothing is written.

    def compact(self, snapshot: RaftSnapshot) -> None:
        if snapshot.index > self.snapshot.index:
            self.snapshot = snapshot
            self.entries = [entry for entry in self.entries if entry.index > snapshot.index]


class Replica:
    """A group's replica, its disk and its application: a list of what was applied."""

    def __init__(self, name: str, snapshot: RaftSnapshot, settings: RaftSettings) -> None:
        self.name = name
        self.settings = settings
        self.disk = Disk(snapshot)
        self.life = 0
        self.start()

    def start(self) -> None:
        disk = self.disk
        self.life += 1
        log = RaftLog(disk.snapshot, disk.entries, committed=disk.hard.commit)
        self.group: Group | None = Group(self.name, b"g", log, disk.hard, self.settings)
        self.applying: deque[Sequence[RaftEntry]] = deque()


class Schedule:
    """One random life of a group of up to five replicas."""

    def __init__(self, seed: int, voters: str = "", settings: RaftSettings = SETTINGS) -> None:
        self.random = Random(seed)
        self.stormy = not voters and seed % 2 == 1
        """Whether everybody wants to lead, all the time, and many crash."""
        if self.stormy:
            eager = self.random.choice([True, False])
            settings = replace(
                settings, election_ticks=2, heartbeat_ticks=1, pre_vote=eager, check_quorum=eager
            )
        names = "abcde"
        voters = voters or names[: self.random.choice([1, 2, 3, 3, 3, 5])]
        begin = RaftSnapshot(1, 1, Configuration(frozenset(voters)))
        self.replicas = {name: Replica(name, begin, settings) for name in names}
        self.sent: list[RaftMessage] = []
        self.cut: set[str] = set()
        """Whose messages do not arrive, and who gets none."""
        self.notices: list[GroupNotice] = []
        self.judges: dict[int, PaperJudge] = {}
        """By generation."""
        self.answered: dict[bytes, int] = {}
        """Commands whose callers were told that they are done, and where they are."""
        self.reads: dict[bytes, int] = {}
        """Reads that were asked for, and how much had been answered then."""
        self.confirmed = 0
        self.changed = 0
        self._commands = 0
        self._token = 0

    def judge_of(self, generation: int) -> PaperJudge:
        if generation not in self.judges:
            disks = {name: replica.disk for name, replica in self.replicas.items()}
            self.judges[generation] = PaperJudge(disks, begun=generation > 0)
        return self.judges[generation]

    # -- what happens

    def run(self, steps: int) -> None:
        weights = self.weights()
        deeds, shares = list(weights), list(weights.values())
        for deed in self.random.choices(deeds, shares, k=steps):
            deed()

    def weights(self) -> dict[Callable[[], None], float]:
        """How often everything happens."""
        weights: dict[Callable[[], None], float] = {
            self._tick: 30,
            self._deliver: 60,
            self._disk: 30,
            self._apply: 15,
            self._propose: 10,
            self._read: 3,
            self._change: 6,
            self._compact: 3,
            self._transfer: 2,
            self._lose: 3,
            self._double: 2,
            self._crash: 1.5,
        }
        if self.stormy:
            weights |= {self._tick: 45, self._disk: 15, self._crash: 6, self._change: 2, self._compact: 1}
        return weights

    def settle(self, rounds: int = 160) -> None:
        """Nothing bad happens any more: whoever is down comes back, and everything arrives."""
        for replica in self.replicas.values():
            if self.stormy:
                replica.settings = SETTINGS
                replica.disk.waiting.clear()
                replica.start()
            elif replica.group is None:
                replica.start()
        self.go(rounds)

    def go(self, rounds: int = 1) -> None:
        """Everybody's time passes, and everything arrives that is not cut off."""
        for _ in range(rounds):
            for replica in self.replicas.values():
                assert replica.group is not None
                replica.group.tick()
                self._ready(replica)
                while replica.disk.waiting:
                    self._written(replica, replica.group)
                while replica.applying:
                    self._applied(replica, replica.group)
            sent, self.sent = self.sent, []
            for message in sent:
                self._arrive(message)

    def _alive(self) -> list[Replica]:
        return [replica for replica in self.replicas.values() if replica.group is not None]

    def _some(self) -> tuple[Replica, Group] | None:
        alive = self._alive()
        if not alive:
            return None
        replica = self.random.choice(alive)
        assert replica.group is not None
        return replica, replica.group

    def _tick(self) -> None:
        if some := self._some():
            some[1].tick()
            self._ready(some[0])

    def _deliver(self) -> None:
        if self.sent:
            at = 0 if self.random.random() < 0.7 else self.random.randrange(len(self.sent))
            self._arrive(self.sent.pop(at))

    def _arrive(self, message: RaftMessage) -> None:
        replica = self.replicas[message.to]
        if not self.cut & {message.to, message.sender} and replica.group is not None:
            replica.group.step(message)
            self._ready(replica)

    def _lose(self) -> None:
        if self.sent:
            self.sent.pop(self.random.randrange(len(self.sent)))

    def _double(self) -> None:
        if self.sent:
            self.sent.append(self.random.choice(self.sent))

    def _ready(self, replica: Replica) -> None:
        group = replica.group
        assert group is not None
        self.judge_of(group.generation).on_step(group, replica.life)
        while group.has_ready:
            ready = group.ready()
            self.judge_of(group.generation).on_entries(group, ready.entries)
            self.sent += ready.messages
            replica.disk.waiting.append(ready)
            if ready.committed:
                self.judge_of(group.generation).on_applied(group, replica.life, ready.committed)
                replica.applying.append(ready.committed)
            for read in ready.reads:
                if read.upto < self.reads.pop(read.context, 0):
                    raise Broken(f"a read at {read.upto} has not seen what was answered before")
                self.confirmed += 1
            self.notices += ready.notices

    def _disk(self) -> None:
        some = self._some()
        for _ in range(self.random.choice([1, 2, 20])):
            if some and some[0].disk.waiting:
                self._written(*some)

    def _written(self, replica: Replica, group: Group) -> None:
        ready = replica.disk.waiting.popleft()
        replica.disk.write(ready)
        if ready.written is not None:
            group.written(ready.written)
        for message in ready.after:
            self.judge_of(message.generation).on_left(replica.name, message)
            if message.to == replica.name:
                group.step(message)
            else:
                self.sent.append(message)
        self._ready(replica)

    def _apply(self) -> None:
        some = self._some()
        while some and some[0].applying:
            self._applied(*some)

    def _applied(self, replica: Replica, group: Group) -> None:
        entries = replica.applying.popleft()
        for entry in entries:
            if group.leading is not None and entry.data:
                self.answered[entry.data] = entry.index
        group.applied(entries)
        self._ready(replica)

    def _crash(self) -> None:
        down = [replica for replica in self.replicas.values() if replica.group is None]
        if down and self.random.random() < 0.7:
            self.random.choice(down).start()
            return
        if some := self._some():
            self._fall(some[0])

    def _fall(self, replica: Replica) -> None:
        """It loses power: a part of what was to be written is there, and nobody has heard of it."""
        waiting = replica.disk.waiting
        for ready in list(waiting)[: self.random.randrange(len(waiting) + 1)]:
            replica.disk.write(ready)
        waiting.clear()
        replica.group = None

    def _propose(self) -> None:
        if some := self._some():
            self._commands += 1
            try:
                some[1].propose([b"%d" % self._commands])
            except ProposalRefused:
                return
            self._ready(some[0])

    def _read(self) -> None:
        if some := self._some():
            self._commands += 1
            name = b"r%d" % self._commands
            try:
                some[1].read(name)
            except ProposalRefused:
                return
            self.reads[name] = max(self.answered.values(), default=0)
            self._ready(some[0])

    def _change(self) -> None:
        some = self._some()
        if some and some[1].leading is not None:
            names = sorted(self.replicas)
            voters = self.random.sample(names, self.random.choice([1, 2, 3, 3, 4]))
            learners = [name for name in names if name not in voters and self.random.random() < 0.3]
            self._token += 1
            try:
                now = some[1].configuration
                steps = steps_to(now, voters, learners)
                some[1].change(enter_joint(now, steps, auto_leave=True, token=self._token))
                self.changed += 1
            except (ProposalRefused, ConfigurationRefused):
                return
            self._ready(some[0])

    def _compact(self) -> None:
        if some := self._some():
            replica, group = some
            log = group.log
            if log.applied > log.base and log.snapshot is None and not replica.disk.waiting:
                index = self.random.randint(log.base + 1, log.applied)
                snapshot = RaftSnapshot(index, log.term(index), log.configuration_at(index))
                log.compact(index)
                replica.disk.compact(snapshot)

    def _transfer(self) -> None:
        if some := self._some():
            some[1].transfer(self.random.choice(sorted(self.replicas)))
            self._ready(some[0])

    def compare(self) -> None:
        """See `paper_judge.compare`."""
        compare(replica.group for replica in self._alive() if replica.group is not None)

    @property
    def leader(self) -> Group | None:
        """Who leads in the highest term."""
        leading = [r.group for r in self._alive() if r.group is not None and r.group.leading is not None]
        return max(leading, key=lambda group: (group.generation, group.term), default=None)


class Rivals(Schedule):
    """Leaders that are deposed with entries which nobody else has, and disks of very different speed.

    Whoever leads is cut off, goes on taking entries, and comes back; two replicas campaign at a time while their voters
    lose power; disks stand still for long; appends are small, so that what is in conflict is replaced in many parts;
    messages and answers come twice, late and out of order. The voters stay the same: so a majority of disks is known.
    """

    def __init__(self, seed: int) -> None:
        voters = "abc" if seed % 3 else "abcde"
        super().__init__(seed, voters)
        calm = self.random.random() < 0.3
        for name in set(self.replicas) - set(voters):
            del self.replicas[name]
        for replica in self.replicas.values():
            replica.settings = replace(
                replica.settings,
                election_ticks=self.random.choice([3, 6]),
                message_bytes=self.random.choice([1, 60, 200]),
                window=3,
                pre_vote=calm,
                check_quorum=calm,
            )
            replica.start()
        self.slow = {name: self.random.choice([1.0, 1.0, 0.3, 0.1]) for name in self.replicas}
        """The chance that a disk does something when it has its turn."""

    def weights(self) -> dict[Callable[[], None], float]:
        return {
            self._tick: 12,
            self._deliver: 60,
            self._disk: 30,
            self._apply: 8,
            self._propose: 2,
            self._burst: 2,
            self._read: 3,
            self._compact: 0.3,
            self._lose: 1,
            self._double: 3,
            self._delay: 4,
            self._crash: 0.3,
            self._bounce: 0.6,
            self._depose: 0.8,
            self._campaign: 0.5,
            self._stand_still: 0.3,
        }

    def _deliver(self) -> None:
        for _ in range(2 if len(self.sent) > 20 else 1):
            super()._deliver()

    def _disk(self) -> None:
        some = self._some()
        if some and self.random.random() < self.slow[some[0].name]:
            for _ in range(self.random.choice([1, 1, 2, 20])):
                if some[0].disk.waiting:
                    self._written(*some)

    def _stand_still(self) -> None:
        self.slow[self.random.choice(sorted(self.slow))] = self.random.choice([0.0, 0.1, 1.0, 1.0, 1.0])

    def _burst(self) -> None:
        """Whoever leads, or believes so, takes several entries at a time."""
        for replica in self._alive():
            if replica.group is not None and replica.group.leading is not None:
                self._commands += 1
                commands = [b"%d/%d" % (self._commands, at) for at in range(self.random.randint(2, 6))]
                replica.group.propose(commands)
                self._ready(replica)

    def _delay(self) -> None:
        if self.sent:
            self.sent.append(self.sent.pop(self.random.randrange(len(self.sent))))

    def _depose(self) -> None:
        """Cut off who leads; or nobody."""
        leading = [replica.name for replica in self._alive() if replica.group and replica.group.leading]
        self.cut = {self.random.choice(leading)} if leading and not self.cut else set()

    def _campaign(self) -> None:
        """Two at a time."""
        for replica in self.random.sample(self._alive(), min(2, len(self._alive()))):
            assert replica.group is not None
            if replica.group.leading is None:
                replica.group.campaign(handed_over=self.random.random() < 0.3)
                self._ready(replica)

    def _bounce(self) -> None:
        """One loses power and is back at once: between two candidates of one term, perhaps."""
        if some := self._some():
            self._fall(some[0])
            some[0].start()

    def settle(self, rounds: int = 160) -> None:
        self.cut = set()
        for replica in self.replicas.values():
            replica.settings = SETTINGS
            self._fall(replica)
            replica.start()
        super().settle(rounds)
