"""Access of a member to the metastore: invokes, linearizable reads and watches.

All requests of a step are sent together at its end (`flush`).

- metastore/W-1: A watcher gets whole revisions, in order and once; the next one follows when all watchers have taken
  the last. A watcher may read at the revision that it is notified of: compaction spares it. If the state was replaced
  by a snapshot, and revisions cannot be delivered one by one, `on_watch_begins` is called again.
- metastore/W-2: An invoke without an answer is proposed again, under the same number, until its deadline. Then its
  outcome is unknown; if no replica can have received it, it has failed.
- metastore/W-3: A read returns the local state once the leader has confirmed, after the read began, up to which index
  everything is applied here. All reads of a step share one confirmation.
- metastore/W-4: The leader of the group compacts: `KEEP_REVISIONS` remain, or fewer if they exceed `HISTORY_BYTES`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import msgspec

from holdfast.core.metastore.commands import (
    NAME_BYTES_MAX,
    NUMBER_MAX,
    WINDOW,
    CompactCommand,
    InvokeCommand,
    MalformedCommand,
    Proposer,
    encode_command,
)
from holdfast.core.metastore.invoke import Branch, Invoked, MetastoreEntry
from holdfast.core.metastore.keyspace import CommandAnswer, Keyspace
from holdfast.core.model.ids import METASTORE_GROUP, MILLISECOND
from holdfast.core.multiraft.group_host import GroupHost
from holdfast.core.multiraft.hosted_group import GatheredFill, LeadChanged, ListedPieces, ReplicaNotice
from holdfast.core.outbox import Outbox
from holdfast.core.raft.configuration import NodeId
from holdfast.core.raft.leader import ProposalRefused
from holdfast.core.raft.raft_messages import RaftEntry
from holdfast.core.raft.raft_state import LeaderElected, RaftRole
from holdfast.errors import InvariantBroken, NotReady, ProtocolError, RequestError, TooLarge, Unknown

ASK_AGAIN_NS = 1000 * MILLISECOND
"""Retry interval. After a change of leader requests are retried at once."""
DEADLINE_NS = 10_000 * MILLISECOND
KEEP_REVISIONS = 1000
HISTORY_BYTES = 2 << 20

Ticket = int
KeyChange = tuple[MetastoreEntry, MetastoreEntry]
"""Before and after."""


class MetastoreAsker(Protocol):
    """A source of requests. It is notified once for each ticket."""

    def on_invoked(self, ticket: Ticket, invoked: Invoked) -> None: ...

    def on_read(self, ticket: Ticket, entries: list[MetastoreEntry], revision: int) -> None: ...

    def on_failed(self, ticket: Ticket, error: RequestError) -> None:
        """`Unknown` for an invoke that may be applied, else `NotReady`."""


class MetastoreWatcher(Protocol):
    """Receiver of changes, notified at the end of a step."""

    def on_watch_begins(self, revision: int) -> None:
        """Read the state at this revision; later changes follow. Perhaps called again (metastore/W-1)."""

    def on_changes(self, revision: int, time_ms: int, changes: Sequence[KeyChange]) -> bool:
        """To the watched keys, sorted by key. False: the watcher takes them later, and calls `Metastore.taken`."""

    def on_leading(self, term: int | None) -> None:
        """This member now leads the metastore's group (None: no longer). Read linearizably before deciding anything."""


class MetastoreStatus(msgspec.Struct, frozen=True, kw_only=True):
    leader: NodeId | None
    """None: unknown."""
    term: int | None
    """None: this member does not lead."""
    revision: int
    compacted: int
    time_ms: int
    """Time of the last revision: milliseconds since 1970."""
    keys: int
    history_bytes: int
    notified: int
    """Last revision that was delivered to the watchers here."""
    under_way: int
    malformed: int


@dataclass(slots=True)
class _Invoke:
    ticket: Ticket
    asker: MetastoreAsker
    branch: Branch
    deadline_ns: int
    data: bytes = b""
    asked_ns: int | None = None
    """None: propose it now."""
    sent: bool = False
    """Any replica can have received it."""
    doubtful: bool = False
    """It may be part of a snapshot, so that this replica did not see its answer."""


@dataclass(slots=True)
class _Read:
    ticket: Ticket
    asker: MetastoreAsker
    keys: tuple[bytes, ...]
    prefix: bytes | None
    """None: read `keys`."""
    deadline_ns: int


@dataclass(slots=True)
class _Watching:
    watcher: MetastoreWatcher
    prefixes: list[bytes] = field(default_factory=list)
    keys: set[bytes] = field(default_factory=set)
    begun: bool = False
    busy: bool = False
    """It has not taken the last revision yet."""

    def wants(self, key: bytes) -> bool:
        return key in self.keys or any(key.startswith(prefix) for prefix in self.prefixes)


_Notification = tuple[MetastoreAsker, Ticket, Invoked | RequestError | tuple[list[MetastoreEntry], int]]


class Metastore:
    def __init__(self, name: bytes, out: Outbox, groups: GroupHost) -> None:
        """`name` identifies this process, and is never used again."""
        assert 0 < len(name) <= NAME_BYTES_MAX - 8, "room for how often it had to begin anew"
        self._name = name
        self._out = out
        self._groups = groups
        self.keyspace = Keyspace()
        self._tickets = 0
        self._proposers = 0
        self._proposer: Proposer | None = None
        self._number = 0
        self._waiting: deque[_Invoke] = deque()
        self._invokes: dict[tuple[Proposer, int], _Invoke] = {}
        self._rounds = 0
        self._asking: list[_Read] = []
        self._reads: dict[bytes, tuple[int, list[_Read]]] = {}
        """By context of a round: its time, and its reads."""
        self._watching: list[_Watching] = []
        self.delivered: int | None = None
        """Last revision that the watchers were notified of; None: no state yet."""
        self._leading: int | None = None
        self._leading_notified: int | None = None
        self._notifications: deque[_Notification] = deque()
        self._flushing = False

    # -- requests

    def _ticket(self) -> Ticket:
        self._tickets += 1
        return self._tickets

    def invoke(self, branch: Branch, asker: MetastoreAsker) -> Ticket:
        """One leaf is applied. Raises TooLarge if the metastore cannot accept the tree."""
        widest = Proposer(bytes(NAME_BYTES_MAX), NUMBER_MAX)
        try:
            encode_command(InvokeCommand(widest, NUMBER_MAX, NUMBER_MAX - 1, NUMBER_MAX, branch))
        except MalformedCommand as error:
            raise TooLarge(str(error)) from error
        ticket = self._ticket()
        self._waiting.append(_Invoke(ticket, asker, branch, self._out.now_ns + DEADLINE_NS))
        return ticket

    def read(self, keys: Sequence[bytes], asker: MetastoreAsker) -> Ticket:
        """Linearizably; absent keys have an entry as well."""
        return self._read(tuple(keys), None, asker)

    def read_prefix(self, prefix: bytes, asker: MetastoreAsker) -> Ticket:
        """Existing keys, linearizably."""
        return self._read((), prefix, asker)

    def _read(self, keys: tuple[bytes, ...], prefix: bytes | None, asker: MetastoreAsker) -> Ticket:
        ticket = self._ticket()
        self._asking.append(_Read(ticket, asker, keys, prefix, self._out.now_ns + DEADLINE_NS))
        return ticket

    def get(self, key: bytes, revision: int | None = None) -> MetastoreEntry:
        """This member's copy, perhaps old. Raises RevisionCompacted, RevisionAhead."""
        return self.keyspace.get(key, revision)

    def scan(self, prefix: bytes, revision: int | None = None) -> list[MetastoreEntry]:
        """This member's copy of existing keys, perhaps old."""
        return self.keyspace.scan(prefix, revision)

    def watch(
        self, watcher: MetastoreWatcher, *, prefix: bytes | None = None, key: bytes | None = None
    ) -> None:
        """A prefix or a key. May be called several times."""
        watching = next((one for one in self._watching if one.watcher is watcher), None)
        if watching is None:
            watching = _Watching(watcher)
            self._watching.append(watching)
        if prefix is not None:
            watching.prefixes.append(prefix)
        if key is not None:
            watching.keys.add(key)

    def unwatch(self, watcher: MetastoreWatcher) -> None:
        self._watching = [one for one in self._watching if one.watcher is not watcher]

    def taken(self, watcher: MetastoreWatcher) -> None:
        for one in self._watching:
            if one.watcher is watcher:
                one.busy = False

    @property
    def status(self) -> MetastoreStatus:
        state = self.keyspace
        return MetastoreStatus(
            leader=self._groups.lead(METASTORE_GROUP),
            term=self._groups.term(METASTORE_GROUP),
            revision=state.revision,
            compacted=state.compacted,
            time_ms=state.time_ms,
            keys=len(state),
            history_bytes=state.history_bytes,
            notified=self.delivered or 0,
            under_way=self._under_way,
            malformed=state.malformed,
        )

    @property
    def _under_way(self) -> int:
        reads = sum(len(reads) for _, reads in self._reads.values())
        return len(self._waiting) + len(self._invokes) + len(self._asking) + reads

    @property
    def leftovers(self) -> dict[str, int]:
        return {"questions to the metastore": self._under_way}

    @property
    def unsent(self) -> bool:
        """Whether anything waits for the end of the step."""
        led = self._groups.lead(METASTORE_GROUP) is not None
        return bool(self._notifications) or (led and bool(self._asking or self._waiting))

    # -- callbacks of the group

    def apply(self, entries: Sequence[RaftEntry]) -> None:
        for entry in entries:
            answer = self.keyspace.apply(entry.data)
            if answer is not None:
                self._on_answer(answer)
        self.flush()

    def _on_answer(self, answer: CommandAnswer) -> None:
        invoke = self._invokes.pop((answer.proposer, answer.number), None)
        if invoke is None:
            return
        if answer.invoked is not None:
            self._notifications.append((invoke.asker, invoke.ticket, answer.invoked))
            return
        if answer.proposer == self._proposer:
            self._proposer = None
        if invoke.doubtful:
            error = Unknown("the metastore no longer knows whether this was applied")
            self._notifications.append((invoke.asker, invoke.ticket, error))
        else:
            # It was not applied, and never will be under this number: it may get another one.
            self._waiting.appendleft(_Invoke(invoke.ticket, invoke.asker, invoke.branch, invoke.deadline_ns))

    def read_ready(self, context: bytes) -> None:
        """See metastore/W-3."""
        _, reads = self._reads.pop(context, (0, []))
        state = self.keyspace
        for read in reads:
            entries = (
                [state.get(key) for key in read.keys] if read.prefix is None else state.scan(read.prefix)
            )
            self._notifications.append((read.asker, read.ticket, (entries, state.revision)))
        self.flush()

    def on_group(self, notice: ReplicaNotice) -> None:
        if isinstance(notice, LeaderElected):
            self._leading = notice.term
        elif isinstance(notice, LeadChanged):
            if notice.role is not RaftRole.LEADER:
                self._leading = None
            self._ask_again(self._out.now_ns)
        self.flush()

    def pieces(self) -> ListedPieces:
        return ListedPieces(self.keyspace.pieces())

    def fill(self) -> GatheredFill:
        return GatheredFill(self)

    def restore(self, pieces: Sequence[bytes]) -> None:
        """Raises InvariantBroken if the snapshot is invalid: this replica cannot follow the others any more."""
        try:
            state = Keyspace.from_pieces(pieces)
        except ProtocolError as error:
            raise InvariantBroken(f"the metastore got an invalid snapshot: {error}") from error
        self.keyspace = state
        if not self.delivered or not state.can_tell_after(self.delivered):
            self.delivered = state.revision
            for watching in self._watching:
                watching.begun = watching.busy = False
        state.need_from(self.delivered)
        self._proposer = None  # The snapshot may be older than its `since`.
        for (proposer, number), invoke in list(self._invokes.items()):
            invoke.doubtful = True
            known = state.answer_of(proposer, number)
            if known is not None:
                self._on_answer(CommandAnswer(proposer, number, known))

    # -- time

    def on_timer(self) -> None:
        """Called about twice a second."""
        now = self._out.now_ns
        self._give_up(now)
        self._ask_again(now - ASK_AGAIN_NS)
        if self._leading is not None:
            self._compact()
        self.flush()

    def _compact(self) -> None:
        """metastore/W-4."""
        due = self.keyspace.compaction_due(KEEP_REVISIONS, HISTORY_BYTES)
        if due is not None:
            try:
                self._groups.propose(METASTORE_GROUP, [encode_command(CompactCommand(due))])
            except ProposalRefused:
                pass  # It is still due the next time.

    def _ask_again(self, before_ns: int) -> None:
        """Requests that were sent at this time or earlier."""
        for invoke in self._invokes.values():
            if invoke.asked_ns is not None and invoke.asked_ns <= before_ns:
                invoke.asked_ns = None
        for context, (asked_ns, reads) in list(self._reads.items()):
            if asked_ns <= before_ns:
                del self._reads[context]
                self._asking += reads

    def _give_up(self, now: int) -> None:
        """metastore/W-2."""
        none = "no leader of the metastore has answered in time; nothing was done"
        for key, invoke in list(self._invokes.items()):
            if invoke.deadline_ns <= now:
                del self._invokes[key]
                error = (
                    Unknown("the metastore has not answered in time: the change may be applied, even later")
                    if invoke.sent
                    else NotReady(none)
                )
                self._notifications.append((invoke.asker, invoke.ticket, error))
        while self._waiting and self._waiting[0].deadline_ns <= now:
            waiting = self._waiting.popleft()
            self._notifications.append((waiting.asker, waiting.ticket, NotReady(none)))
        for reads in (self._asking, *(reads for _, reads in self._reads.values())):
            for read in [read for read in reads if read.deadline_ns <= now]:
                reads.remove(read)
                self._notifications.append((read.asker, read.ticket, NotReady(none)))

    # -- the end of a step

    def flush(self) -> None:
        """End the step: notify askers and watchers, then send proposals and reads. Call it before the groups' own
        flush, and not again after it.
        """
        if self._flushing:
            return
        self._flushing = True
        try:
            self._notify()
            while self._deliver():
                self._notify()
        finally:
            self._flushing = False
        self._propose()
        self._ask()

    def _notify(self) -> None:
        while self._notifications:
            asker, ticket, what = self._notifications.popleft()
            if isinstance(what, Invoked):
                asker.on_invoked(ticket, what)
            elif isinstance(what, RequestError):
                asker.on_failed(ticket, what)
            else:
                asker.on_read(ticket, *what)

    def _deliver(self) -> bool:
        if self.delivered is None:
            return False
        notified = False
        for watching in list(self._watching):
            if not watching.begun:
                watching.begun = notified = True
                watching.watcher.on_watch_begins(self.delivered)
        if self._leading != self._leading_notified:
            self._leading_notified = self._leading
            for watching in list(self._watching):
                watching.watcher.on_leading(self._leading)
            return True
        state = self.keyspace
        if self.delivered < state.revision and not any(one.busy for one in self._watching):
            revision = self.delivered + 1
            batch = state.changes(revision)
            for watching in list(self._watching):
                changes = [change for change in batch.changes if watching.wants(change[1].key)]
                if changes:
                    watching.busy = True
                    if watching.watcher.on_changes(revision, batch.time_ms, changes):
                        watching.busy = False
            self.delivered = revision
            state.need_from(revision)
            notified = True
        return notified

    def _begin_proposer(self) -> Proposer:
        """The first name, or the last one was forgotten (metastore/M-3)."""
        self._proposers += 1
        self._number = 0
        return Proposer(self._name + b"/%d" % self._proposers, self.keyspace.applied)

    def _propose(self) -> None:
        if self._groups.lead(METASTORE_GROUP) is None:
            return
        if self._proposer is None and self._waiting:
            self._proposer = self._begin_proposer()
        lowest = min(
            (number for proposer, number in self._invokes if proposer == self._proposer),
            default=self._number + 1,
        )
        while self._waiting and self._proposer is not None and self._number < lowest - 1 + WINDOW:
            invoke = self._waiting.popleft()
            self._number += 1
            invoke.data = encode_command(
                InvokeCommand(
                    self._proposer, self._number, lowest - 1, max(0, self._out.wall_ms()), invoke.branch
                )
            )
            self._invokes[self._proposer, self._number] = invoke
        due = [invoke for invoke in self._invokes.values() if invoke.asked_ns is None]
        if not due:
            return
        try:
            self._groups.propose(METASTORE_GROUP, [invoke.data for invoke in due])
        except ProposalRefused:
            return
        for invoke in due:
            invoke.asked_ns, invoke.sent = self._out.now_ns, True

    def _ask(self) -> None:
        if not self._asking or self._groups.lead(METASTORE_GROUP) is None:
            return
        self._rounds += 1
        context = self._name + b"?%d" % self._rounds
        try:
            self._groups.read(METASTORE_GROUP, context)
        except ProposalRefused:
            return
        self._reads[context] = (self._out.now_ns, self._asking)
        self._asking = []
