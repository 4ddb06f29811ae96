"""The second replication protocol: a Raft group for each partition. A request is decided at its place in the log.

What is in the log are the requests themselves, with the time of the leader that took them: every replica decides and
applies them in the same order, at the same time, on the same state, and comes to the same. What came in one step is one
entry of the log. Reads of a step share one question to the group: is this still the leader?

- raft_partition/Z-1: A change is answered when it is applied where it was proposed. Of one whose place in the log
  another entry has taken it is certain that it was not, and never will be, applied; of one whose place is not known
  to be taken by the time that callers wait, nothing is known.
- raft_partition/Z-2: A read is answered when the replica has applied all that was answered anywhere before the read
  came. A map with `read = "local"` is read at once, and may show what is no longer so.
- raft_partition/Z-3: A request with an id is applied once: what it answered is part of the state.
- raft_partition/Z-4: Time in a partition is what its leaders say, and never goes back: so an entry ends for all
  replicas at the same place of the log. A map's own time to live is said by who leads, too: settings may differ.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol, cast

import msgspec

from holdfast.config import Settings
from holdfast.core.machine import Outbox
from holdfast.core.model.decisions import Decision, Update
from holdfast.core.model.ids import MILLISECOND, GroupNumber, MemberId
from holdfast.core.model.operations import (
    DEFAULT_TTL,
    GROWING,
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
from holdfast.core.model.zone_batches import ZoneWrite
from holdfast.core.multiraft.group_host import GroupHost, LeadChanged, ReplicaNotice
from holdfast.core.operations.map_operations import decide, decide_whole, merge
from holdfast.core.raft.leader import ProposalRefused
from holdfast.core.raft.raft_messages import RaftEntry
from holdfast.core.raft.raft_state import LeaderElected
from holdfast.core.raft_partition.marked_copies import MarkedCopies, MarkedCopy, digest_of, marked_map
from holdfast.core.replication_engine import Decided, ReplicationEngineDelegate, ShareDone
from holdfast.core.store.replica import MapReplica, map_replica
from holdfast.core.store.request_ids import Remembered, mark_of

COMMAND_BYTES = 1 << 20
"""Of the requests in one entry of the log, at about."""
PROPOSED_MOST = 2
"""Entries of a partition that are on their way: what comes meanwhile goes into the next one."""
ALL = 1 << 60
NAMES_KEPT = 1000
"""Maps of which it is remembered what the settings say."""
PIECE_ENTRIES = 500
"""Of a map in one piece of a state."""
READ_AGAIN_NS = 500 * MILLISECOND
"""A question to the group may be lost: it is asked again after this time."""
LOST = Outcome(Status.MOVED, None, "another leader's entry has taken its place: it was not applied")
NOT_LEADING = Outcome(Status.MOVED, None, "this member does not lead the partition's group")
LATE = Outcome(Status.UNKNOWN, None, "the partition's group has not agreed on it in time")
NOT_CONFIRMED = Outcome(Status.NOT_READY, None, "no majority has confirmed the partition's leader in time")
STOPPED = Outcome(Status.UNKNOWN, None, "the partition's replica here has ended before it was known")


class ZoneRequests(msgspec.Struct, frozen=True, array_like=True, tag=0):
    """Requests that came one after the other."""

    requests: list[Request]


class ZoneWrites(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """Writes of single entries that came one after the other."""

    writes: list[ZoneWrite]


class ZoneMark(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """Nothing changes; what is held at this place is kept for a while, to be compared: see `marked_copies`."""


class ZoneCommand(msgspec.Struct, frozen=True, array_like=True):
    """What is in one entry of a partition's log."""

    time_ms: int
    """When the leader took it: milliseconds since 1970, as that one believes."""
    parts: tuple[ZoneRequests | ZoneWrites | ZoneMark, ...] = ()
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
Hearer = Callable[[EntryEvent, str], None]
"""Hears what has happened to an entry of a map."""


_Waiting = tuple[Request | list[ZoneWrite], Answered]
"""What waits for its place in the log, and who is told. Who has asked for writes is told what the entries were."""


@dataclass(slots=True)
class _Proposed:
    """What has a place in the log, of which it is not known yet whether it stays its own."""

    term: int
    deadline_ns: int
    told: list[tuple[Answered, int]]
    """Who is told, and of how many writes; 0: of a request."""


@dataclass(slots=True)
class _Asked:
    """Reads that wait for a majority to confirm the leader."""

    asked_ns: int
    deadline_ns: int
    reads: list[tuple[Request, Answered]] = field(default_factory=list)


class ZoneState:
    """What the maps of a zone hold of one partition: a function of the commands that were applied."""

    def __init__(self, partition: int, request_ids: int) -> None:
        self.partition = partition
        self._request_ids = request_ids
        self.maps: dict[str, MapReplica] = {}
        self.requests = Remembered(request_ids)
        self.time_ms = 0
        """The time of the last command (raft_partition/Z-4)."""

    def now_ns(self, wall_ms: int = 0) -> int:
        """The partition's time; `wall_ms`: a clock that may be further."""
        return max(self.time_ms, wall_ms) * MILLISECOND

    # -- changes

    def carry_out(self, request: Request, heard: Hearer | None) -> Value:
        """Apply a request; answers what its caller hears. `heard` is told what listeners are to hear."""
        if request.id and self.requests.knows(request.id):
            return self.requests.answer(request.id)
        held = self.maps.get(request.map)
        decision = self._decide(held, request, self.now_ns())
        if decision.updates:
            held = held or self.maps.setdefault(request.map, map_replica(request.map))
            for update in decision.updates:
                self._apply(held, update, heard)
        if request.op is Op.DESTROY:
            # Every replica of the group does so at this place of the log.
            self.maps.pop(request.map, None)
        if request.id and decision.updates:
            self.requests.note(mark_of(request.id, decision.answer))
        return decision.answer

    def write(self, write: ZoneWrite, heard: Hearer | None) -> bytes | None:
        """Apply a write of one entry; answers what the entry was."""
        name, key, value, ttl_ms, key_hash = write
        held = self.maps.get(name)
        if held is None:
            if value is None:
                return None
            held = self.maps[name] = map_replica(name)
        state = held.state
        old = state.entries.get(key)
        if old is not None and state.expiries and state.expired(key, self.now_ns()):
            self._apply(held, Update(Change.REMOVE, key, kind=EventKind.EXPIRED), heard)
            old = None
        if value is None and old is None:
            return None
        if heard is not None:
            kind = (
                EventKind.REMOVED if value is None else EventKind.ADDED if old is None else EventKind.UPDATED
            )
            change = Change.REMOVE if value is None else Change.SET
            self._apply(held, Update(change, key, value or b"", ttl_ms, 0, key_hash, kind), heard)
            return old
        held.updates.next()
        if value is None:
            state.drop(key)
        elif ttl_ms or key_hash or state.expiries or state.touched is not None:
            state.store(key, value, ttl_ms, 0, key_hash, self.now_ns())
        else:
            state.entries[key] = value
        return old

    def look(self, name: str, key: bytes, wall_ms: int) -> bytes | None:
        """The entry's value, if it has not ended."""
        held = self.maps.get(name)
        if held is None:
            return None
        state = held.state
        if state.expiries and state.expired(key, self.now_ns(wall_ms), touch=False):
            return None
        return state.entries.get(key)

    def read(self, request: Request, wall_ms: int) -> Value:
        """What a read answers; what it finds ended stays until a command takes it out."""
        return self._decide(self.maps.get(request.map), request, self.now_ns(wall_ms)).answer

    def _decide(self, held: MapReplica | None, request: Request, now_ns: int) -> Decision:
        state = held.state if held is not None else None
        if request.op in WHOLE:
            return decide_whole(state, request, now_ns)
        return decide(state, request, now_ns)

    def _apply(self, held: MapReplica, update: Update, heard: Hearer | None) -> None:
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

    def sweep(self, heard: Hearer | None) -> None:
        """Take out everything whose time is over."""
        for held in self.maps.values():
            for key in held.state.due(self.now_ns(), ALL):
                self._apply(held, Update(Change.REMOVE, key, kind=EventKind.EXPIRED), heard)

    def has_ended(self, wall_ms: int) -> bool:
        """Whether the time of some entry is over."""
        return any(held.state.may_end(self.now_ns(wall_ms)) for held in self.maps.values())

    # -- another copy of it

    def _head(self) -> MapHead:
        counters = sorted((name, held.updates.lwm) for name, held in self.maps.items())
        return MapHead(self.time_ms, self.requests.encode(), counters)

    def marked(self, term: int, now_ns: int) -> MarkedCopy:
        """All of it, as it is now, to be compared. `now_ns`: by this member's clock."""
        head = self._head()
        maps = tuple(marked_map(self.maps[name]) for name, _ in head.counters)
        return MarkedCopy(term, now_ns, digest_of(_encoder.encode(head)), maps)

    def pieces(self) -> Iterator[bytes]:
        """All of it, as it is now."""
        whole = self._head()
        counters, head = whole.counters, _encoder.encode(whole)
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

    def __init__(self, settings: Settings, out: Outbox, groups: GroupHost, sink: ZoneSink) -> None:
        self.settings = settings
        self.out = out
        self.groups = groups
        self.sink = sink
        self.timeout_ns = settings.limits.call_timeout_ms * MILLISECOND
        self._ttls: dict[str, int] = {}
        self.contexts = 0
        """How many questions were asked of groups."""
        self.again: set[ZonePartition] = set()
        """Partitions of which something may go to their groups now."""

    def lifetime(self, name: str) -> int:
        """The map's own time to live, in ms, by this member's settings: who leads says it, so that all replicas hear
        the same. There is no maximum idle time, for of uses only the leader knows.
        """
        ttl_ms = self._ttls.get(name)
        if ttl_ms is None:
            if len(self._ttls) >= NAMES_KEPT:
                self._ttls.clear()
            ttl_ms = self._ttls[name] = self.settings.map(name).ttl_ms
        return ttl_ms

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
        self.state = ZoneState(partition, zone.settings.replication.request_ids)
        self.term = 0
        """The term in which this member leads the group, and may be given requests; 0: it does not."""
        self._writes: list[_Waiting] = []
        self._reads: list[tuple[Request, Answered]] = []
        self._proposed: dict[int, _Proposed] = {}
        """By index."""
        self._asked: dict[bytes, _Asked] = {}
        """By context."""
        self.marks = MarkedCopies()

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

    def oldest_proposed(self) -> tuple[int, int] | None:
        """Of what has waited longest for a majority: how many requests, and since when; None: nothing waits."""
        one = next(iter(self._proposed.values()), None)
        return None if one is None else (len(one.told), one.deadline_ns - self._zone.timeout_ns)

    # -- requests

    def submit(self, request: Request, told: Answered) -> None:
        """A request; `told` is called once."""
        if request.op not in READS:
            if request.ttl_ms == DEFAULT_TTL and request.op in GROWING and request.op is not Op.SET_TTL:
                ttl_ms = self._zone.lifetime(request.map)
                if ttl_ms:
                    request = msgspec.structs.replace(request, ttl_ms=ttl_ms)
            self._writes.append((request, told))
        elif self._zone.settings.map(request.map).reads == "local":
            told(self._read(request))
        else:
            self._reads.append((request, told))

    def write(self, writes: list[ZoneWrite], told: Answered) -> None:
        """Writes of single entries; `told` is called once, with what the entries were."""
        self._writes.append((writes, told))

    def look(self, name: str, key: bytes) -> bytes | None:
        """The value of an entry as it is here, if it has not ended; to be answered when it is confirmed."""
        return self.state.look(name, key, self._out.wall_ms())

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

    def _propose(self, writes: Sequence[_Waiting]) -> None:
        parts: list[ZoneRequests | ZoneWrites] = []
        told: list[tuple[Answered, int]] = []
        for wanted, each in writes:
            last = parts[-1] if parts else None
            if isinstance(wanted, list):
                told.append((each, len(wanted)))
                if isinstance(last, ZoneWrites):
                    last.writes.extend(wanted)
                else:
                    parts.append(ZoneWrites(wanted.copy()))
            else:
                told.append((each, 0))
                if isinstance(last, ZoneRequests):
                    last.requests.append(wanted)
                else:
                    parts.append(ZoneRequests([wanted]))
        index = self._place(ZoneCommand(self._out.wall_ms(), tuple(parts)))
        if index is None:
            self._tell((each for each, _ in told), NOT_LEADING)
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

    def mark(self) -> tuple[int, int] | None:
        """Put a mark into the log; answers its term and index, at which it may stay or not. None: this member does not
        lead.
        """
        index = self._place(ZoneCommand(self._out.wall_ms(), (ZoneMark(),)))
        return None if index is None else (self.term, index)

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
                self._lose(first, LOST)  # An entry without a command is there.
            proposed = self._proposed.pop(entry.index, None)
            answers = self._carry_out(entry)
            if proposed is None:
                continue
            if proposed.term == entry.term:
                _answer(proposed.told, answers)
            else:
                self._tell((told for told, _ in proposed.told), LOST)  # raft_partition/Z-1
        self._go_on()

    def _carry_out(self, entry: RaftEntry) -> list[Value]:
        command, state = _commands.decode(entry.data), self.state
        state.time_ms = max(state.time_ms, command.time_ms)
        heard = self._hear if self.term and self._zone.sink.listening else None
        answers: list[Value] = []
        for part in command.parts:
            if isinstance(part, ZoneWrites):
                answers += [state.write(write, heard) for write in part.writes]
            elif isinstance(part, ZoneMark):
                self.marks.keep(entry.index, state.marked(entry.term, self._out.now_ns))
            else:
                answers += [state.carry_out(request, heard) for request in part.requests]
        if command.sweep:
            state.sweep(heard)
        return answers

    def _hear(self, event: EntryEvent, name: str) -> None:
        if name in self._zone.sink.listening:
            self._zone.sink.hear(event)

    def read_ready(self, context: bytes) -> None:
        """All that these reads must see is applied (raft_partition/Z-2)."""
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
        self.marks.clear()
        self._forget(STOPPED)

    def stop(self) -> None:
        """The replica ends."""
        self._lead_lost()
        self._forget(STOPPED)

    def _forget(self, outcome: Outcome) -> None:
        for index in list(self._proposed):
            self._lose(index, outcome)

    def _lose(self, index: int, outcome: Outcome) -> None:
        self._tell((told for told, _ in self._proposed.pop(index).told), outcome)

    def sweep(self) -> None:
        """Once in a while: who has waited long enough is told, lost questions are asked again, and entries end."""
        if self._proposed or self._asked or self.marks:
            self._expire(self._out.now_ns)
        if self.term and self.state.maps and self.state.has_ended(self._out.wall_ms()):
            self._place(ZoneCommand(self._out.wall_ms(), sweep=True))

    def _expire(self, now_ns: int) -> None:
        self.marks.expire(now_ns)
        for index in [index for index, one in self._proposed.items() if one.deadline_ns <= now_ns]:
            self._lose(index, LATE)
            writes, self._writes = self._writes, []
            self._tell([told for _, told in writes], NOT_LEADING)
        for context, one in list(self._asked.items()):
            if one.deadline_ns <= now_ns:
                self._tell([told for _, told in self._asked.pop(context).reads], NOT_CONFIRMED)
            elif now_ns - one.asked_ns >= READ_AGAIN_NS:
                self._ask(self._asked.pop(context))


def _answer(told: Iterable[tuple[Answered, int]], answers: list[Value]) -> None:
    """Tell who has asked what has come of it: `answers` has one for each request and write, in their order."""
    at = 0
    for each, writes in told:
        if writes:
            former = cast("list[None | int | bytes]", answers[at : at + writes])
            each(Outcome(Status.OK, former))
            at += writes
        else:
            each(Outcome(Status.OK, answers[at]))
            at += 1
    assert at == len(answers), "everybody is told of what was asked"


def _fitting(writes: Sequence[_Waiting]) -> int:
    """How many of the first of these go into one entry: one at least."""
    size = 0
    for count, (wanted, _) in enumerate(writes):
        if isinstance(wanted, list):
            size += sum([len(key) + len(value or b"") for _, key, value, _, _ in wanted])
        else:
            size += len(wanted.key) + len(wanted.value) + sum(map(len, wanted.items))
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

    def serve(self, delegate: ReplicationEngineDelegate) -> None:
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

    def write(self, partition: int, writes: list[ZoneWrite], told: Answered) -> None:
        """Writes of single entries of a partition that is led here: see `ZonePartition.write`."""
        self._dirty.add(partition)
        self.partitions[partition].write(writes, told)

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
