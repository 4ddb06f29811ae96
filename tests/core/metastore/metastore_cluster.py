"""Members with a metastore on a bad network: what they ask, what they are told, and what must hold.

Everything is drawn from one seed. A judge looks at what the askers and the watchers of all members were told: see
`MetastoreCluster.judge`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

from tests.core.multiraft.group_cluster import Cluster, Process

from holdfast.core.messages import GroupMessages
from holdfast.core.metastore.invoke import (
    Branch,
    Compare,
    Comparison,
    Exists,
    If,
    Invoked,
    Leaf,
    MetastoreEntry,
    PutKey,
    RemoveKey,
    Subject,
)
from holdfast.core.metastore.metastore import KeyChange, Metastore, Ticket
from holdfast.core.model.ids import METASTORE_GROUP, GroupNumber
from holdfast.core.multiraft.group_host import TICK_NS
from holdfast.core.multiraft.hosted_group import GroupClient
from holdfast.core.raft.configuration import Configuration
from holdfast.errors import NotReady, RequestError
from holdfast.wire.codec import decode
from holdfast_lab.check.linearizability import FOREVER, Call, Outcome, judge

TICKS_A_SWEEP = 5


class Broken(AssertionError):
    """Something that must never happen has."""


@dataclass
class Asked:
    """One question, and what was answered."""

    call: Call
    branch: Branch | None
    answer: Invoked | None = None
    entries: list[MetastoreEntry] | None = None
    revision: int = -1
    error: RequestError | None = None


@dataclass
class Told:
    """What one watcher was told since it began (anew)."""

    began: int
    batches: list[tuple[int, int, tuple[KeyChange, ...]]] = field(default_factory=list)


class User:
    """Asks and watches on one member, in one of its lives."""

    def __init__(self, process: MetastoreProcess) -> None:
        self.process = process
        self.asked: dict[Ticket, Asked] = {}
        self.told: list[Told] = []
        self.leading: list[int | None] = []
        self.slow = 0.0
        """How likely it takes a batch later."""
        self.busy = False

    @property
    def metastore(self) -> Metastore:
        return self.process.metastore

    # -- told

    def _answered(self, ticket: Ticket) -> Asked:
        asked = self.asked[ticket]
        if asked.call.outcome is not Outcome.UNKNOWN or asked.error is not None:
            raise Broken(f"ticket {ticket} is answered twice")
        asked.call.end = self.process.cluster.now()
        return asked

    def on_invoked(self, ticket: Ticket, invoked: Invoked) -> None:
        asked = self._answered(ticket)
        asked.answer = invoked
        asked.call.outcome = Outcome.DONE
        asked.call.result = None if asked.call.operation == "set" else bool(invoked.answer)

    def on_read(self, ticket: Ticket, entries: list[MetastoreEntry], revision: int) -> None:
        asked = self._answered(ticket)
        asked.entries, asked.revision = entries, revision
        asked.call.outcome = Outcome.DONE
        value = entries[0].value if entries else None
        asked.call.result = None if value is None else value.decode()

    def on_failed(self, ticket: Ticket, error: RequestError) -> None:
        asked = self._answered(ticket)
        asked.error = error
        if isinstance(error, NotReady):
            asked.call.outcome = Outcome.REFUSED
        else:
            asked.call.end = FOREVER

    def on_watch_begins(self, revision: int) -> None:
        self.told.append(Told(revision))
        self.busy = False
        self.metastore.scan(b"", revision)

    def on_changes(self, revision: int, time_ms: int, changes: Sequence[KeyChange]) -> bool:
        if self.busy:
            raise Broken(f"told of revision {revision} before the one before is taken")
        self.told[-1].batches.append((revision, time_ms, tuple(changes)))
        for _, new in changes:
            if self.metastore.get(new.key, revision).value != new.value:
                raise Broken(f"{new} cannot be read as of revision {revision}")
        self.busy = self.process.cluster.random.random() < self.slow
        return not self.busy

    def on_leading(self, term: int | None) -> None:
        self.leading.append(term)

    # -- asks

    def _ask(self, ticket: Ticket, call: Call, branch: Branch | None = None) -> Asked:
        asked = self.asked[ticket] = Asked(call, branch)
        self.process.end_step()
        return asked

    def put(self, key: bytes, value: bytes) -> Asked:
        return self._invoke("set", key, Leaf((PutKey(key, value),)), value)

    def put_if(self, key: bytes, value: bytes, expected: bytes) -> Asked:
        condition = Compare(key, Subject.VALUE, Comparison.EQUAL, expected)
        branch = If(condition, Leaf((PutKey(key, value),), 1), Leaf())
        asked = self._invoke("replace_if_same", key, branch, value)
        asked.call.expected = expected.decode()
        return asked

    def remove(self, key: bytes) -> Asked:
        return self._invoke("delete", key, If(Exists(key), Leaf((RemoveKey(key),), 1), Leaf()), None)

    def _invoke(self, operation: str, key: bytes, branch: Branch, value: bytes | None) -> Asked:
        call = Call(operation, key.decode(), self.process.cluster.now(), client=self.process.info.name)
        call.argument = None if value is None else value.decode()
        return self._ask(self.metastore.invoke(branch, self), call, branch)

    def get(self, key: bytes) -> Asked:
        call = Call("get", key.decode(), self.process.cluster.now(), client=self.process.info.name)
        return self._ask(self.metastore.read([key], self), call)

    def scan(self, prefix: bytes) -> Asked:
        """Not judged as a call: it is of many keys."""
        call = Call("scan", prefix.decode(), self.process.cluster.now())
        return self._ask(self.metastore.read_prefix(prefix, self), call)


class MetastoreProcess(Process):
    """A member with a metastore."""

    cluster: MetastoreCluster
    lives = 0

    def life(self) -> None:
        super().life()
        self.lives += 1
        name = f"{self.info.uuid}.{self.lives}".encode()
        self.out.now_ns = self.cluster.clock_ns
        self.out.epoch_ms = self.cluster.skews[self.info.name]
        self.metastore = Metastore(name, self.out, self.groups)
        self.user = User(self)
        self.user.slow = self.cluster.slow
        self.metastore.watch(self.user, prefix=b"")
        self.cluster.users.append(self.user)

    def client(self, number: GroupNumber) -> GroupClient:  # type: ignore[override]
        assert number == METASTORE_GROUP
        return self.metastore

    def end_step(self) -> None:
        self.metastore.flush()
        super().end_step()


class MetastoreCluster(Cluster):
    """Members whose messages about groups may be lost, doubled or late."""

    def __init__(
        self, members: int, voters: int, *, seed: int = 0, files: bool = True, slow: float = 0
    ) -> None:
        super().__init__(members, seed=seed, files=files)
        self.faults = 0.0
        self.slow = slow
        self.clock_ns = 0
        self.steps = 0
        self.users: list[User] = []
        dice = Random(f"{seed}/clocks")
        self.skews = {process.info.name: dice.randrange(10_000) for process in self.processes.values()}
        self.processes = {uuid: MetastoreProcess(self, each.info) for uuid, each in self.processes.items()}
        self.install(list(self.processes))
        numbers = range(1, members + 1)
        learners = frozenset(self.node(each) for each in numbers if each > voters)
        configuration = Configuration(frozenset(map(self.node, range(1, voters + 1))), learners=learners)
        for each in numbers:
            process = self[each]
            process.groups.start(METASTORE_GROUP, configuration, process.client(METASTORE_GROUP))
            process.end_step()
        self.values = 0

    def __getitem__(self, number: int) -> MetastoreProcess:
        process = super().__getitem__(number)
        assert isinstance(process, MetastoreProcess)
        return process

    def user(self, number: int) -> User:
        return self[number].user

    def now(self) -> int:
        """A moment of its own."""
        self.steps += 1
        return self.steps

    def go(self, ticks: int) -> None:
        for _ in range(ticks):
            self.clock_ns += TICK_NS
            for number in range(1, len(self.processes) + 1):
                process = self[number]
                process.out.now_ns = self.clock_ns
                if process.up and self.clock_ns // TICK_NS % TICKS_A_SWEEP == 0:
                    process.metastore.on_timer()
                    process.end_step()
                if process.up and process.user.busy and self.random.random() < 0.3:
                    process.user.busy = False
                    process.metastore.taken(process.user)
                    process.end_step()
            super().go(1)

    def deliver(self) -> None:
        if self.faults and isinstance(decode(self.network[0][2]), GroupMessages):
            dice = self.random.random()
            if dice < self.faults:
                self.network.popleft()
                return
            if dice < 2 * self.faults:
                self.network.append(self.network[0])
            elif dice < 3 * self.faults and len(self.network) > 1:
                self.network.rotate(-1)
                return
        super().deliver()

    def crash(self, number: int) -> None:
        """A process ends; with what is durable, and perhaps a little more."""
        process = self[number]
        process.crash(self.random.randrange(3))

    def back(self, number: int) -> None:
        """It comes back with its files."""
        self.restart(number)

    # -- a random life

    def act(self) -> None:
        """Something that users do."""
        up = [number for number in range(1, len(self.processes) + 1) if self[number].up]
        user = self.user(self.random.choice(up))
        key = self.random.choice([b"a", b"b", b"c/d"])
        self.values += 1
        value = b"%d" % self.values
        dice = self.random.random()
        if dice < 0.35:
            user.put(key, value)
        elif dice < 0.5:
            here = user.metastore.get(key).value
            user.put_if(key, value, here if here is not None else b"0")
        elif dice < 0.6:
            user.remove(key)
        else:
            user.get(key)

    def live(self, turns: int) -> None:
        """A random life."""
        down: list[int] = []
        for _ in range(turns):
            for _ in range(self.random.randrange(4)):
                self.act()
            dice = self.random.random()
            voters = range(1, len(self.processes) + 1)
            if dice < 0.04 and not down:
                down.append(self.random.choice(list(voters)))
                self.crash(down[0])
            elif down and dice < 0.25:
                self.back(down.pop())
            elif 0.3 < dice < 0.36:
                process = self[self.random.choice(list(voters))]
                if process.up:
                    process.groups.journal.write_out(METASTORE_GROUP)
                    process.end_step()
            elif dice > 0.96:
                leading = [
                    each for each in voters if self[each].up and self[each].groups.term(METASTORE_GROUP)
                ]
                if leading:
                    to = self.node(self.random.choice(list(voters)))
                    self[leading[0]].groups.running(METASTORE_GROUP).transfer(to)
                    self[leading[0]].end_step()
            self.go(self.random.randrange(1, 4))
        for number in down:
            self.back(number)

    def settle(self) -> None:
        """Nothing bad happens any more, and everybody takes what it is told."""
        self.faults = 0.0
        for user in self.users:
            user.slow = 0.0
        self.go(250)

    # -- what must hold

    def judge(self) -> None:
        """Every question is answered; nothing is applied twice; answers are what the log says; all watchers hear the
        same, without a gap; and all that was asked could have been asked of one register for each key.
        """
        known = self._judge_watchers()
        written: dict[str, int] = {}
        for revision, (_, changes) in known.items():
            for _, new in changes:
                if new.value is not None and written.setdefault(new.value.decode(), revision) != revision:
                    raise Broken(f"{new} was applied twice")
        calls: list[Call] = []
        for user in self.users:
            for asked in user.asked.values():
                if asked.call.operation != "scan":
                    calls.append(asked.call)
                if (
                    asked.answer is not None
                    and asked.call.argument is not None
                    and asked.call.result is not False
                ):
                    if written.get(asked.call.argument) not in (None, asked.answer.revision):
                        raise Broken(f"{asked} is at revision {written[asked.call.argument]}")
                    if asked.call.argument not in written and asked.answer.revision in known:
                        raise Broken(f"{asked} was not applied at its revision")
                elif asked.call.result is False and asked.call.argument in written:
                    raise Broken(f"{asked} was applied")
                if isinstance(asked.error, NotReady) and asked.call.argument in written:
                    raise Broken(f"{asked} was applied though it was refused")
        broken = judge(calls)
        if broken:
            raise Broken("; ".join(map(str, broken)))

    def _judge_watchers(self) -> dict[int, tuple[int, tuple[KeyChange, ...]]]:
        known: dict[int, tuple[int, tuple[KeyChange, ...]]] = {}
        for user in self.users:
            for told in user.told:
                for at, (revision, time_ms, changes) in enumerate(told.batches, told.began + 1):
                    if revision != at:
                        raise Broken(f"revision {revision} was told where {at} comes next")
                    if known.setdefault(revision, (time_ms, changes)) != (time_ms, changes):
                        raise Broken(f"revision {revision} was told in two ways")
        return known

    def judge_settled(self) -> None:
        """And everything has come to rest, the same everywhere."""
        states = set()
        for number in range(1, len(self.processes) + 1):
            process = self[number]
            metastore = process.metastore
            states.add(b"".join(metastore.pieces()))
            assert metastore.leftovers == {"questions to the metastore": 0}
            told = process.user.told[-1]
            heard = told.batches[-1][0] if told.batches else told.began
            if heard != metastore.keyspace.revision or metastore.delivered != heard:
                raise Broken(f"{process.info.name} has heard of revision {heard} alone")
        if len(states) > 1:
            raise Broken("replicas differ")
