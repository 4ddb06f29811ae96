"""The second replication protocol: a Raft group for each partition. A request is decided at its place in the log.

What is in the log are the requests themselves, with the time of the leader that took them: every replica decides and
applies them in the same order, at the same time, on the same state, and comes to the same. What came in one step is one
entry of the log. Reads of a step share one question to the group: is this still the leader?

- replication/Z-1: A change is answered when it is applied where it was proposed. Of one whose place in the log another
  entry has taken it is certain that it was not, and never will be, applied; of one whose place is not known to be taken
  by the time that callers wait, nothing is known.
- replication/Z-2: A read is answered when the replica has applied all that was answered anywhere before the read came.
  A map with `read = "local"` is read at once, and may show what is no longer so.
- replication/Z-3: A request with an id is applied once: what it answered is part of the state.
- replication/Z-4: Time in a partition is what its leaders say, and never goes back: so an entry ends for all replicas
  at the same place of the log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import msgspec

from holdfast.config import Settings
from holdfast.core.consensus.leading import ProposalRefused
from holdfast.core.consensus.raft_messages import RaftEntry
from holdfast.core.consensus.seat import LeaderElected
from holdfast.core.groups.local_groups import Groups, LeadChanged, ReplicaNotice
from holdfast.core.machine import Outbox
from holdfast.core.model.decisions import Decision, Update
from holdfast.core.model.ids import MILLISECOND, GroupNumber, MemberId
from holdfast.core.model.operations import (
    READS,
    WHOLE,
    EntryEvent,
    EventKind,
    Op,
    Outcome,
    Request,
    Status,
    Value,
    bytes_of,
    too_long,
)
from holdfast.core.model.records import Change, Record
from holdfast.core.replication.protocol import Decided, ReplicationDelegate, ShareDone
from holdfast.core.services.map_operations import decide, decide_whole, merge
from holdfast.core.store.replica import MapReplica, map_replica
from holdfast.core.store.request_ids import Remembered, mark_of

COMMAND_BYTES = 1 << 20
"""Of the requests in one entry of the log, at about."""
PROPOSED_MOST = 2
"""Entries of a partition that are on their way: what comes meanwhile goes into the next one."""
PIECE_ENTRIES = 500
"""Of a map in one piece of a state."""
READ_AGAIN_NS = 500 * MILLISECOND
"""A question to the group may be lost: it is asked again after this time."""
LOST = Outcome(Status.MOVED, None, "another leader's entry has taken its place: it was not applied")
NOT_LEADING = Outcome(Status.MOVED, None, "this member does not lead the partition's group")
LATE = Outcome(Status.UNKNOWN, None, "the partition's group has not agreed on it in time")
NOT_CONFIRMED = Outcome(Status.NOT_READY, None, "no majority has confirmed the partition's leader in time")
STOPPED = Outcome(Status.UNKNOWN, None, "the partition's replica here has ended before it was known")


class ZoneCommand(msgspec.Struct, frozen=True, array_like=True):
    """What is in one entry of a partition's log."""

    time_ms: int
    """When the leader took it: milliseconds since 1970, as that one believes."""
    requests: tuple[Request, ...]
    sweep: bool = False
    """Whether everything whose time is over is taken out."""


class MapHead(msgspec.Struct, frozen=True, array_like=True):
    """The first piece of a partition's state."""

    time_ms: int
    requests: bytes
    """The requests that were applied not long ago."""
    counters: list[tuple[str, int]]
    """How many updates each map has had."""


class MapPiece(msgspec.Struct, frozen=True, array_like=True):
    """Some entries of a map."""

    map: str
    keys: list[bytes]
    values: list[bytes]
    expiries: list[tuple[int, int, int]]
    """Of those that end: place in the columns, time to live in ms, and when it began, in zone ms."""
    hashes: list[tuple[int, int]]
    """Of those that have one: place in the columns, partition-hash word."""


_encoder = msgspec.msgpack.Encoder()
_commands: msgspec.msgpack.Decoder[ZoneCommand] = msgspec.msgpack.Decoder(ZoneCommand)
_heads: msgspec.msgpack.Decoder[MapHead] = msgspec.msgpack.Decoder(MapHead)
_pieces: msgspec.msgpack.Decoder[MapPiece] = msgspec.msgpack.Decoder(MapPiece)
Answered = Callable[[Outcome], None]


@dataclass(slots=True)
class _Proposed:
    """Requests whose place in the log is known, and not yet whether it stays theirs."""

    term: int
    deadline_ns: int
    told: list[Answered]


@dataclass(slots=True)
class _Asked:
    """Reads that wait for a majority to confirm the leader."""

    asked_ns: int
    deadline_ns: int
    reads: list[tuple[Request, Answered]] = field(default_factory=list)


class KnowsLifetimes(Protocol):
    """Who knows how long entries of maps live."""

    def lifetimes(self, name: str) -> tuple[int, int]:
        """The map's own time to live and maximum idle time, in ms; 0: for ever."""


class ZoneState:
    """What the maps of a zone hold of one partition: a function of the commands that were applied."""

    def __init__(self, partition: int, lifetimes: KnowsLifetimes, request_ids: int) -> None:
        self.partition = partition
        self._lifetimes = lifetimes
        self._request_ids = request_ids
        self.maps: dict[str, MapReplica] = {}
        self.requests = Remembered(request_ids)
        self.time_ms = 0
        """The time of the last command (replication/Z-4)."""

    def now_ns(self, wall_ms: int = 0) -> int:
        """The partition's time; `wall_ms`: a clock that may be further."""
        return max(self.time_ms, wall_ms) * MILLISECOND

    # -- changes

    def carry_out(self, request: Request, heard: Callable[[EntryEvent, str], None] | None) -> Value:
        """Apply a request; answers what its caller hears. `heard` is told what listeners are to hear."""
        if request.id and self.requests.knows(request.id):
            return self.requests.answer(request.id)
        held = self.maps.get(request.map)
        decision = self._decide(held, request, self.now_ns())
        if decision.updates:
            held = held or self.maps.setdefault(request.map, map_replica(request.map))
            for update in decision.updates:
                self._apply(held, update, heard)
        if request.id and decision.updates:
            self.requests.note(mark_of(request.id, decision.answer))
        return decision.answer

    def read(self, request: Request, wall_ms: int) -> Value:
        """What a read answers; what it finds ended stays until a command takes it out."""
        return self._decide(self.maps.get(request.map), request, self.now_ns(wall_ms)).answer

    def _decide(self, held: MapReplica | None, request: Request, now_ns: int) -> Decision:
        state, version = (held.state, held.updates.lwm) if held is not None else (None, 0)
        if request.op in WHOLE:
            return decide_whole(state, request, now_ns)
        return decide(state, request, now_ns, version, self._lifetimes.lifetimes(request.map))

    def _apply(
        self, held: MapReplica, update: Update, heard: Callable[[EntryEvent, str], None] | None
    ) -> None:
        state, key = held.state, update.key
        old = state.former(key)
        word = update.key_hash or state.hash_word(key)
        number = held.updates.next()
        record = Record(
            held.name, number, update.change, key, update.value, update.ttl_ms, 0, update.key_hash
        )
        state.apply(record, self.now_ns())
        if heard is not None and update.kind is not None:
            value = (
                update.value
                if update.change is Change.SET
                else old
                if update.change is Change.EXPIRY
                else None
            )
            heard(EntryEvent(update.kind, held.name, "", key, value, old, 1, word), held.name)

    def sweep(self, heard: Callable[[EntryEvent, str], None] | None) -> None:
        """Take out everything whose time is over."""
        for held in self.maps.values():
            for key in held.state.due(self.now_ns(), len(held.state.entries)):
                self._apply(held, Update(Change.REMOVE, key, kind=EventKind.EXPIRED), heard)

    def has_ended(self, wall_ms: int) -> bool:
        """Whether the time of some entry is over."""
        now_ns = self.now_ns(wall_ms)
        return any(
            held.state.deadlines and held.state.deadlines[0][0] <= now_ns for held in self.maps.values()
        )

    # -- another copy of it

    def pieces(self) -> Iterator[bytes]:
        """All of it, as it is now."""
        counters = sorted((name, held.updates.lwm) for name, held in self.maps.items())
        head = _encoder.encode(MapHead(self.time_ms, self.requests.encode(), counters))
        taken = [
            (
                name,
                list(self.maps[name].state.entries.items()),
                {key: (e.ttl_ms, e.stored_ns) for key, e in self.maps[name].state.expiries.items()},
                dict(self.maps[name].state.hashes),
            )
            for name, _ in counters
        ]
        return _walk(head, taken)

    def restore(self, pieces: Sequence[bytes]) -> None:
        """Hold this in place of everything."""
        self.maps, self.requests, self.time_ms = {}, Remembered(self._request_ids), 0
        if not pieces:
            return
        head = _heads.decode(pieces[0])
        self.time_ms = head.time_ms
        self.requests.merge(head.requests)
        for name, counter in head.counters:
            held = self.maps[name] = map_replica(name)
            held.updates.lwm = held.updates.hwm = counter
        for data in pieces[1:]:
            piece = _pieces.decode(data)
            state = self.maps[piece.map].state
            state.entries.update(zip(piece.keys, piece.values, strict=True))
            for place, ttl_ms, stored_ms in piece.expiries:
                state.schedule(piece.keys[place], ttl_ms, 0, stored_ms * MILLISECOND)
            state.hashes.update((piece.keys[place], word) for place, word in piece.hashes)


_Taken = tuple[str, list[tuple[bytes, bytes]], dict[bytes, tuple[int, int]], dict[bytes, int]]


def _walk(head: bytes, taken: list[_Taken]) -> Iterator[bytes]:
    yield head
    for name, entries, expiries, hashes in taken:
        for begin in range(0, len(entries), PIECE_ENTRIES):
            some = entries[begin : begin + PIECE_ENTRIES]
            keys = [key for key, _ in some]
            yield _encoder.encode(
                MapPiece(
                    name,
                    keys,
                    [value for _, value in some],
                    [
                        (place, expiries[key][0], expiries[key][1] // MILLISECOND)
                        for place, key in enumerate(keys)
                        if key in expiries
                    ],
                    [(place, hashes[key]) for place, key in enumerate(keys) if key in hashes],
                )
            )


class ZoneReplicas:
    """What the replicas of a zone's partitions on this member share."""

    def __init__(self, settings: Settings, out: Outbox, groups: Groups, sink: ZoneSink) -> None:
        self.settings = settings
        self.out = out
        self.groups = groups
        self.sink = sink
        self.timeout_ns = settings.limits.call_timeout_ms * MILLISECOND
        self.contexts = 0
        """How many questions were asked of groups."""
        self.again: set[ZonePartition] = set()
        """Partitions of which something may go to their groups now."""

    def lifetimes(self, name: str) -> tuple[int, int]:
        """The map's own time to live, and no maximum idle time: of uses only the leader knows."""
        return (self.settings.map(name).ttl_ms, 0)

    def context(self) -> bytes:
        """The name of a question, which no other of any member has."""
        self.contexts += 1
        return f"{self.groups.me}/{self.contexts}".encode()


class ZoneSink(Protocol):
    """Who hears what happens to partitions of zones."""

    listening: dict[str, int]
    """Maps of which somebody wants to hear."""

    def hear(self, event: EntryEvent) -> None:
        """An entry has changed."""

    def on_replica(self, number: GroupNumber, notice: ReplicaNotice) -> None:
        """Something has happened to a partition's group."""


class ZonePartition:
    """One partition's replica on this member: state, and requests that wait for their place. A `GroupClient`."""

    def __init__(self, number: GroupNumber, partition: int, zone: ZoneReplicas) -> None:
        self.number = number
        self.partition = partition
        self._zone = zone
        self._out = zone.out
        self.state = ZoneState(partition, zone, zone.settings.replication.request_ids)
        self.term = 0
        """The term in which this member leads the group, and may be given requests; 0: it does not."""
        self._writes: list[tuple[Request, Answered]] = []
        self._reads: list[tuple[Request, Answered]] = []
        self._proposed: dict[int, _Proposed] = {}
        """By index."""
        self._asked: dict[bytes, _Asked] = {}
        """By context."""

    @property
    def leads(self) -> bool:
        """Whether requests may be given to it."""
        return self.term > 0

    @property
    def waiting(self) -> int:
        """Requests that are not answered."""
        asked = sum(len(one.reads) for one in self._asked.values())
        proposed = sum(len(one.told) for one in self._proposed.values())
        return len(self._writes) + len(self._reads) + asked + proposed

    # -- requests

    def submit(self, request: Request, told: Answered) -> None:
        """A request; `told` is called once."""
        if request.op not in READS:
            self._writes.append((request, told))
        elif self._zone.settings.map(request.map).reads == "local":
            told(self._read(request))
        else:
            self._reads.append((request, told))

    def flush(self) -> None:
        """The step ends: what has come goes to the group, unless so much is on its way there that it can wait for what
        comes next.
        """
        while self._writes and len(self._proposed) < PROPOSED_MOST:
            count = _fitting(self._writes)
            writes = self._writes[:count]
            del self._writes[:count]
            self._propose(writes)
        if self._reads and not self._asked:
            reads, self._reads = self._reads, []
            now_ns = self._out.now_ns
            self._ask(_Asked(now_ns, now_ns + self._zone.timeout_ns, reads))

    def _go_on(self) -> None:
        """Something has come back from the group: what waits for that goes at the end of this step."""
        if self._writes or self._reads:
            self._zone.again.add(self)

    def _propose(self, writes: Sequence[tuple[Request, Answered]]) -> None:
        command = ZoneCommand(self._out.wall_ms(), tuple(request for request, _ in writes))
        told = [each for _, each in writes]
        index = self._place(command)
        if index is None:
            self._tell(told, NOT_LEADING)
        else:
            assert index not in self._proposed, "each place of the log is proposed once in a term"
            self._proposed[index] = _Proposed(self.term, self._out.now_ns + self._zone.timeout_ns, told)

    def _place(self, command: ZoneCommand) -> int | None:
        """Give it a place in the log; None: it has none, and will not have one. Another leader is asked by nobody here:
        it would be said that it was not applied.
        """
        groups = self._zone.groups
        if not self.term or groups.term(self.number) != self.term:
            return None
        try:
            return groups.propose(self.number, [_encoder.encode(command)])
        except ProposalRefused:
            return None

    def _ask(self, asked: _Asked) -> None:
        context = self._zone.context()
        try:
            self._zone.groups.read(self.number, context)
        except ProposalRefused:
            self._tell([told for _, told in asked.reads], NOT_LEADING)
            return
        asked.asked_ns = self._out.now_ns
        self._asked[context] = asked

    def _tell(self, told: Iterable[Answered], outcome: Outcome) -> None:
        for each in told:
            each(outcome)

    def _read(self, request: Request) -> Outcome:
        value = self.state.read(request, self._out.wall_ms())
        most = self._zone.settings.limits.answer_bytes
        if request.op is not Op.ENTRY_VIEW and bytes_of(value) > most:
            return Outcome(Status.TOO_LARGE, None, too_long(most))
        return Outcome(Status.OK, value)

    # -- the group

    def apply(self, entries: Sequence[RaftEntry]) -> None:
        """These are committed."""
        for entry in entries:
            while self._proposed and (first := next(iter(self._proposed))) < entry.index:
                self._tell(self._proposed.pop(first).told, LOST)  # An entry without a command is there.
            proposed = self._proposed.pop(entry.index, None)
            answers = self._carry_out(_commands.decode(entry.data))
            if proposed is None:
                continue
            if proposed.term == entry.term:
                for told, answer in zip(proposed.told, answers, strict=True):
                    told(Outcome(Status.OK, answer))
            else:
                self._tell(proposed.told, LOST)  # replication/Z-1
        self._go_on()

    def _carry_out(self, command: ZoneCommand) -> list[Value]:
        state = self.state
        state.time_ms = max(state.time_ms, command.time_ms)
        heard = self._hear if self.term and self._zone.sink.listening else None
        answers = [state.carry_out(request, heard) for request in command.requests]
        if command.sweep:
            state.sweep(heard)
        return answers

    def _hear(self, event: EntryEvent, name: str) -> None:
        if name in self._zone.sink.listening:
            self._zone.sink.hear(event)

    def read_ready(self, context: bytes) -> None:
        """All that these reads must see is applied (replication/Z-2)."""
        asked = self._asked.pop(context, None)
        if asked is not None:
            for request, told in asked.reads:
                told(self._read(request))
        self._go_on()

    def on_group(self, notice: ReplicaNotice) -> None:
        """Something has happened to the group."""
        if isinstance(notice, LeaderElected):
            self.term = notice.term
        elif isinstance(notice, LeadChanged) and notice[::2] != (self._zone.groups.me, self.term):
            self._lead_lost()
        self._zone.sink.on_replica(self.number, notice)

    def _lead_lost(self) -> None:
        self.term = 0
        asked, self._asked = self._asked, {}
        for one in asked.values():
            self._tell([told for _, told in one.reads], NOT_LEADING)
        writes, self._writes = self._writes, []
        reads, self._reads = self._reads, []
        self._tell([told for _, told in (*writes, *reads)], NOT_LEADING)

    def pieces(self) -> Iterable[bytes]:
        """The whole state."""
        return self.state.pieces()

    def restore(self, pieces: Sequence[bytes]) -> None:
        """Hold this instead: what became of what was proposed before is not known."""
        self.state.restore(pieces)
        self._forget(STOPPED)

    def stop(self) -> None:
        """The replica ends."""
        self._lead_lost()
        self._forget(STOPPED)

    def _forget(self, outcome: Outcome) -> None:
        proposed, self._proposed = self._proposed, {}
        for one in proposed.values():
            self._tell(one.told, outcome)

    def sweep(self) -> None:
        """Once in a while: who has waited long enough is told, lost questions are asked again, and entries end."""
        now_ns = self._out.now_ns
        for index in [index for index, one in self._proposed.items() if one.deadline_ns <= now_ns]:
            self._tell(self._proposed.pop(index).told, LATE)
            writes, self._writes = self._writes, []
            self._tell([told for _, told in writes], NOT_LEADING)
        for context, one in list(self._asked.items()):
            if one.deadline_ns <= now_ns:
                self._tell([told for _, told in self._asked.pop(context).reads], NOT_CONFIRMED)
            elif now_ns - one.asked_ns >= READ_AGAIN_NS:
                self._ask(self._asked.pop(context))
        if self.term and self.state.has_ended(self._out.wall_ms()):
            self._place(ZoneCommand(self._out.wall_ms(), (), sweep=True))


def _fitting(writes: Sequence[tuple[Request, Answered]]) -> int:
    """How many of the first of these go into one entry: one at least."""
    size = 0
    for count, (request, _) in enumerate(writes):
        size += len(request.key) + len(request.value) + sum(map(len, request.items))
        if count and size > COMMAND_BYTES:
            return count
    return len(writes)


@dataclass(slots=True)
class _Whole:
    """An operation on whole partitions, of those that are led here."""

    request: Request
    done: ShareDone
    missed: list[int]
    waiting: int
    value: Value = None
    failed: Outcome | None = None


class ConsensusReplication:
    """Requests on the partitions of one zone whose groups this member leads. Implements `protocol.Replication`."""

    crowded = False
    refusing = False
    running = 0

    def __init__(self, zone: ZoneReplicas) -> None:
        self._zone = zone
        self.partitions: dict[int, ZonePartition] = {}
        """Those that have a replica here."""
        self._dirty: set[int] = set()

    def serve(self, delegate: ReplicationDelegate) -> None:
        """Requests come from here: it need not be asked, for there is no long work and nothing that waits."""

    def leads(self, partition: int) -> bool:
        """Whether this member leads the partition's group, and may be given requests."""
        found = self.partitions.get(partition)
        return found is not None and found.leads

    def joining(self, partition: int) -> MemberId | None:
        """Nobody is told of records beside the group."""
        return None

    def tell(self, event: EntryEvent) -> None:
        """Let the listeners of a map hear of something that happened to all of it."""
        if event.map in self._zone.sink.listening:
            self._zone.sink.hear(event)

    def on_timer(self) -> None:
        """There is no long work."""

    def submit(self, request: Request, done: Decided, *, late: bool = False) -> None:
        """A request on one partition that is led here."""
        partition = request.partitions[0]
        found = self.partitions[partition]
        assert found.leads, "only the leader is given requests"
        self._dirty.add(partition)
        found.submit(request, done)

    def submit_whole(self, request: Request, done: ShareDone) -> int:
        """A share of an operation on whole partitions: as many requests as it has partitions here."""
        led = [partition for partition in request.partitions if self.leads(partition)]
        missed = [partition for partition in request.partitions if not self.leads(partition)]
        whole = _Whole(request, done, missed, len(led))
        if not led:
            done(Outcome(Status.OK, decide_whole(None, request, 0).answer), [], missed)
        for partition in led:
            self._dirty.add(partition)
            share = msgspec.structs.replace(request, partitions=[partition])
            self.partitions[partition].submit(share, _ShareOf(whole, partition))
        return len(led)

    @property
    def dirty(self) -> bool:
        """Whether something of this step has not gone to a group."""
        return bool(self._dirty)

    def flush(self) -> None:
        """The step ends."""
        while self._dirty:
            dirty, self._dirty = sorted(self._dirty), set()
            for partition in dirty:
                found = self.partitions.get(partition)
                if found is not None:
                    found.flush()

    def sweep(self) -> None:
        """Once in a while."""
        for _, found in sorted(self.partitions.items()):
            found.sweep()

    @property
    def waiting(self) -> int:
        """Requests that are not answered."""
        return sum(found.waiting for found in self.partitions.values())


class _ShareOf:
    """What has become of an operation in one of its partitions."""

    __slots__ = ("_partition", "_whole")

    def __init__(self, whole: _Whole, partition: int) -> None:
        self._whole = whole
        self._partition = partition

    def __call__(self, outcome: Outcome) -> None:
        whole = self._whole
        whole.waiting -= 1
        assert whole.waiting >= 0, "each share is told once"
        if outcome.status is Status.OK:
            whole.value = merge(whole.request.op, whole.value, outcome.value)
        elif outcome.status in (Status.MOVED, Status.NOT_READY):
            whole.missed.append(self._partition)
        else:
            whole.failed = outcome
        if whole.waiting:
            return
        value = whole.value
        if value is None:
            value = decide_whole(None, whole.request, 0).answer
        whole.done(whole.failed or Outcome(Status.OK, value), [], sorted(whole.missed))
