"""A simulated client of the Hazelcast protocol. Like official clients it authenticates, listens to members
and owners, writes to the owner of a key, collects acknowledgements of backups, and retries where that is
allowed.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from struct import Struct
from typing import cast

from holdfast.client_core.answer_stream import AnswerStream
from holdfast.client_core.message_decoding import read_error, read_members, read_owners, reader_of
from holdfast.client_core.request_forms import STEP
from holdfast.core.model.operations import (
    DEFAULT_TTL,
    READS,
    EntryEvent,
    EventKind,
    Op,
    Outcome,
    Request,
    Status,
    Value,
)
from holdfast.server.access import MAP_SERVICE
from holdfast.server.hazelcast import authentication
from holdfast.server.hazelcast import cluster_views as views
from holdfast.server.hazelcast import entry_events as listeners
from holdfast.server.hazelcast.entry_views import NO_END
from holdfast.server.hazelcast.hazelcast_session import MESSAGES
from holdfast.server.hazelcast.maps import TRUE_PREDICATE
from holdfast.wire import doors as preambles
from holdfast.wire.hazelcast.hazelcast_frames import (
    BEGIN,
    END,
    EVENT,
    FRAME,
    INT,
    IS_BACKUP_EVENT,
    IS_NULL,
    LONG,
    REQUEST,
    RESPONSE,
    UNFRAGMENTED,
    UUID,
    FrameReader,
    data,
    message,
    text,
)
from holdfast.wire.hazelcast.refusals import AGAIN, BAD_ARGUMENT, INDETERMINATE, refusal
from holdfast_lab.sim.clients.client import Ask, Client, Line, Manners
from holdfast_lab.sim.clients.simulated_doors import Doors
from holdfast_lab.sim.world import World

BACKUP_AWARE = 0x0100
MESSAGE_BYTES_MAX = 1 << 30
PING, CREATE_PROXY, BACKUP_LISTENER = 0x000B00, 0x000400, 0x000F00
KEYS_WITH_PREDICATE = {0x012200: 0x012600, 0x012400: 0x012700, 0x012500: 0x012800, 0x012D00: 0x013E00}
"""The same requests with a predicate, which is always true."""
EVERY_EVENT = sum(EventKind)
THREAD = 1
EMPTY: Mapping[str, bytes] = {}

KINDS: dict[Op, tuple[int, int]] = {
    Op.GET: (0x010200, 0),
    Op.CONTAINS_KEY: (0x010600, 0),
    Op.ENTRY_VIEW: (0x011D00, 0),
    Op.PUT: (0x010100, 0x014400),
    Op.SET: (0x010F00, 0x014700),
    Op.PUT_IF_ABSENT: (0x010E00, 0x014600),
    Op.REPLACE: (0x010400, 0),
    Op.REPLACE_IF_SAME: (0x010500, 0),
    Op.REMOVE: (0x010300, 0),
    Op.DELETE: (0x010900, 0),
    Op.REMOVE_IF_SAME: (0x010800, 0),
    Op.SET_TTL: (0x014300, 0),
    Op.EVICT: (0x011E00, 0),
    Op.TRY_PUT: (0x010C00, 0),
    Op.TRY_REMOVE: (0x010B00, 0),
    Op.GET_ALL: (0x012300, 0),
    Op.PUT_ALL: (0x012C00, 0),
    Op.SIZE: (0x012A00, 0),
    Op.CONTAINS_VALUE: (0x010700, 0),
    Op.KEYS: (0x012200, 0),
    Op.VALUES: (0x012400, 0),
    Op.ENTRIES: (0x012500, 0),
    Op.CLEAR: (0x012D00, 0),
    Op.EVICT_ALL: (0x011F00, 0),
    Op.IS_EMPTY: (0x012B00, 0),
}
"""Request of each operation, and the request with a max idle time if there is one."""
TRUTHS = frozenset(
    {
        *(Op.CONTAINS_KEY, Op.REPLACE_IF_SAME, Op.DELETE, Op.REMOVE_IF_SAME, Op.SET_TTL, Op.EVICT),
        *(Op.TRY_PUT, Op.TRY_REMOVE, Op.CONTAINS_VALUE, Op.IS_EMPTY),
    }
)
LISTS = frozenset({Op.GET_ALL, Op.KEYS, Op.VALUES, Op.ENTRIES})
VALUES = frozenset({Op.GET, Op.PUT, Op.PUT_IF_ABSENT, Op.REPLACE, Op.REMOVE})

_WELCOME = Struct("<B17sBi17s?ii")
_VIEW = Struct("<10q")
_EVENT = Struct("<i17si")
_REFUSALS = [
    (*refusal(Outcome(status)), status) for status in Status if status not in (Status.OK, Status.UNKNOWN)
]


@dataclass(slots=True, eq=False)
class Attempt:
    ask: Ask
    line: Line
    acks: int = 0
    wanted: int = -1
    """Required acknowledgements; -1: the owner has not answered."""
    outcome: Outcome | None = None


@dataclass(slots=True, eq=False)
class HazelcastLine(Line):
    member: bytes = b""
    answers: AnswerStream = field(init=False)
    listening: dict[int, Listening] = field(default_factory=dict)
    views: bool = False


@dataclass(slots=True, eq=False)
class Waiter:
    line: HazelcastLine
    answered: Callable[[bytes], None]

    def done(self) -> bool:
        return self.line.lost_already

    def set_result(self, whole: object) -> None:
        assert isinstance(whole, bytes)
        self.answered(whole)

    def set_exception(self, error: BaseException) -> None:
        raise error


@dataclass(slots=True, eq=False)
class Listening:
    map: str
    heard: Callable[[EntryEvent], None]
    registered: dict[bytes, int] = field(default_factory=dict)
    interruptions: int = 0


def encode(
    kind: int,
    correlation: int,
    partition: int,
    request: Request | None = None,
    own: Mapping[str, bytes] = EMPTY,
    *,
    aware: bool = False,
    rest: Sequence[bytes] = (),
) -> bytes:
    """A request as bytes: the parameters of its layout, from a `request` or `own`, followed by `rest`.
    `aware`: the client can collect acknowledgements of backups.
    """
    fixed, _, variable = MESSAGES[kind].layout.declaration.partition("|")
    flags = BACKUP_AWARE if aware else 0
    written = dict(own)
    if request is not None:
        written |= {
            "thread": LONG.pack(THREAD),
            "timeout_ms": LONG.pack(0),
            "ttl_ms": LONG.pack(request.ttl_ms),
            "max_idle_ms": LONG.pack(request.max_idle_ms),
            "name": text(request.map),
            "key": data(request.key, request.key_hash),
            "value": data(request.value),
            "expected": data(request.expected),
            "keys": b"".join([BEGIN, *map(data, request.items), END]),
            "entries": b"".join([BEGIN, *map(data, request.items), END]),
            "predicate": data(TRUE_PREDICATE),
        }
    values = b"".join(written[name] for name in fixed.split())
    first = (
        REQUEST.pack(REQUEST.size + len(values), UNFRAGMENTED | flags, kind, correlation, partition) + values
    )
    frames = [first, *(written[name] for name in variable.split()), *rest]
    return _final(b"".join(frames))


def _final(frames: bytes) -> bytes:
    at = last = 0
    while at < len(frames):
        last = at
        at += FRAME.unpack_from(frames, at)[0]
    return frames[:last] + message([frames[last:]])


class HazelcastClient(Client):
    OPS = frozenset(KINDS)
    KIND = "hazelcast"

    def __init__(
        self, name: str, world: World, doors: Doors, draw: random.Random, manners: Manners | None = None
    ) -> None:
        super().__init__(name, world, doors, draw, manners)
        self.uuid = UUID.pack(False, draw.getrandbits(64), draw.getrandbits(64))
        self._correlation = 0
        self._attempts: dict[int, Attempt] = {}
        self._members: dict[bytes, tuple[str, int]] = {}
        self._members_version = -1
        self._owners: list[bytes] = []
        self._cluster = b""
        self._proxies: dict[str, None] = {}
        self._listening: list[Listening] = []

    # -- connections

    def make_line(self, host: str) -> HazelcastLine:
        line = HazelcastLine(self, host)
        line.answers = AnswerStream(MESSAGE_BYTES_MAX, partial(self._heard, line))
        return line

    def wanted(self) -> list[str]:
        if not self.lines:
            return [self.random.choice(self.doors.hosts())]
        if not self.manners.smart or not any(line.ready for line in self.lines.values()):
            return []
        return list(dict.fromkeys(host for host, _ in self._members.values()))

    def greet(self, line: Line) -> None:
        assert isinstance(line, HazelcastLine)
        cluster = self.doors.cluster.settings.cluster.name
        correlation = self._next(line, lambda answer: self._authenticated(line, answer))
        line.write(
            preambles.HAZELCAST_CLIENT
            + encode(
                authentication.AUTHENTICATE,
                correlation,
                -1,
                own={
                    "client": self.uuid,
                    "serialization_version": b"\x01",
                    "cluster_name": text(cluster),
                    "client_type": text("SIM"),
                    "client_version": text("5.7.0"),
                    "client_name": text(self.name),
                    "username": text(None),
                    "password": text(None),
                },
                aware=self._collects,
                rest=[BEGIN, text("simulated"), END],
            )
        )

    @property
    def _collects(self) -> bool:
        return self.manners.smart and self.manners.backup_acks

    def _next(self, line: HazelcastLine, answered: Callable[[bytes], None]) -> int:
        self._correlation += STEP
        line.answers.count = self._correlation
        line.answers.pending[self._correlation] = Waiter(line, answered)
        return self._correlation

    def _authenticated(self, line: HazelcastLine, answer: bytes) -> None:
        if answer_kind(answer) == 0:
            self.turned_away(line)
            return
        fixed = _WELCOME.unpack_from(answer, RESPONSE.size)
        status, member, _, partitions, cluster, _, members_version, _ = fixed
        twice = any(
            other is not line and isinstance(other, HazelcastLine) and other.member == member
            for other in self.lines.values()
        )
        if status != authentication.ADMITTED or twice:
            self.turned_away(line)
            return
        count = self.doors.cluster.settings.partitions.count
        if partitions != count:
            self.world.failures.append(f"{self.name} gets {partitions} partitions; there are {count}")
        if cluster != self._cluster:
            # Another cluster, or the same one without its history: forget what was known of it.
            self._cluster, self._members_version = cluster, -1
            self._proxies.clear()
        line.member = member
        self.on_admitted(line)
        reader = reader_of(answer)
        reader.begin()
        reader.skip_to_end()
        for _ in range(3):
            reader.next()
        self._take_members(members_version, read_members(reader))
        self._take_owners(read_owners(reader, count))
        if not any(isinstance(other, HazelcastLine) and other.views for other in self.lines.values()):
            line.views = True
            self._control(line, views.ADD_CLUSTER_VIEW_LISTENER)
        if self._collects:
            self._control(line, BACKUP_LISTENER)
        for listening in self._listening:
            self._register(line, listening)

    def _control(
        self,
        line: HazelcastLine,
        kind: int,
        done: Callable[[bytes], None] = lambda answer: None,
        own: Mapping[str, bytes] = EMPTY,
    ) -> int:
        correlation = self._next(line, done)
        line.write(encode(kind, correlation, -1, own=own, aware=self._collects))
        return correlation

    def heartbeat(self, line: Line) -> None:
        assert isinstance(line, HazelcastLine)
        self._control(line, PING)

    def expects(self, line: Line) -> bool:
        assert isinstance(line, HazelcastLine)
        return bool(line.answers.pending) or any(each.line is line for each in self._attempts.values())

    def forget(self, line: Line) -> None:
        assert isinstance(line, HazelcastLine)
        for listening in self._listening:
            if listening.registered.pop(line.member, None) is not None:
                listening.interruptions += 1
        lost = [
            (correlation, attempt)
            for correlation, attempt in self._attempts.items()
            if attempt.line is line and attempt.outcome is None
        ]
        for correlation, attempt in lost:
            del self._attempts[correlation]
            self.in_doubt(attempt.ask, f"the connection to {line.host} broke")
        if line.views:
            line.views = False
            other = next((found for found in self.lines.values() if found.ready), None)
            if isinstance(other, HazelcastLine):
                other.views = True
                self._members_version = -1
                self._control(other, views.ADD_CLUSTER_VIEW_LISTENER)

    # -- members and owners

    def _take_members(self, version: int, members: dict[bytes, tuple[str, int]]) -> None:
        if version <= self._members_version or not members:
            return
        self._members_version = version
        self._members = members
        for line in list(self.lines.values()):
            if isinstance(line, HazelcastLine) and line.ready and line.member not in members:
                # Official clients disconnect from a member that is not listed any more.
                self.counts["hung up on who left"] += 1
                line.stream.hang_up()
                line.lost()

    def _take_owners(self, owners: list[bytes]) -> None:
        if any(owners):
            self._owners = owners

    # -- requests

    def line_for(self, request: Request) -> Line | None:
        if len(request.partitions) == 1 and self.manners.smart:
            owner = self._owners[request.partitions[0]] if self._owners else b""
            for line in self.lines.values():
                if line.ready and isinstance(line, HazelcastLine) and line.member == owner:
                    return line
        return self.anyone()

    def post(self, line: Line, asks: list[Ask]) -> None:
        assert isinstance(line, HazelcastLine)
        pieces: list[bytes] = []
        for ask in asks:
            request = ask.request
            if request.map not in self._proxies:
                self._proxies[request.map] = None
                correlation = self._next(line, lambda answer: None)
                own = {"name": text(request.map), "service": text(MAP_SERVICE)}
                pieces.append(encode(CREATE_PROXY, correlation, -1, own=own, aware=self._collects))
            kind, idle = KINDS[request.op]
            if idle and request.max_idle_ms != DEFAULT_TTL:
                kind = idle
            elif kind in KEYS_WITH_PREDICATE and self.random.random() < 0.3:
                kind = KEYS_WITH_PREDICATE[kind]
            partition = request.partitions[0] if len(request.partitions) == 1 else -1
            correlation = self._next(line, self._answer)
            self._attempts[correlation] = Attempt(ask, line)
            pieces.append(encode(kind, correlation, partition, request, aware=self._collects))
        line.write(b"".join(pieces))

    def may_repeat(self, request: Request) -> bool:
        return request.op in READS or self.manners.redo

    # -- received messages

    def received(self, line: Line, data: bytes) -> None:
        assert isinstance(line, HazelcastLine)
        line.answers.feed(data)

    def _heard(self, line: HazelcastLine, kind: int, correlation: int, whole: bytes) -> None:
        if RESPONSE.unpack_from(whole)[1] & IS_BACKUP_EVENT:
            self._backup_told(LONG.unpack_from(whole, EVENT.size)[0])
        elif not line.lost_already:
            self._event(line, kind, correlation, whole)

    def _event(self, line: HazelcastLine, kind: int, correlation: int, whole: bytes) -> None:
        reader = reader_of(whole)
        if kind == views.MEMBERS_VIEW:
            self.counts["views of members"] += 1
            self._take_members(INT.unpack_from(whole, EVENT.size)[0], read_members(reader))
        elif kind == views.PARTITIONS_VIEW:
            self.counts["views of owners"] += 1
            self._take_owners(read_owners(reader, self.doors.cluster.settings.partitions.count))
        elif (listening := line.listening.get(correlation)) is not None:
            what, member, count = _EVENT.unpack_from(whole, EVENT.size)
            key, value, old = (read_data(reader) for _ in range(3))
            self.counts["entry events"] += 1
            listening.heard(
                EntryEvent(EventKind(what), listening.map, member_id(member), key, value, old, count)
            )

    def _answer(self, whole: bytes) -> None:
        correlation = RESPONSE.unpack_from(whole)[3]
        attempt = self._attempts.get(correlation)
        if attempt is None:
            return
        ask = attempt.ask
        if answer_kind(whole) == 0:
            del self._attempts[correlation]
            self._refused(ask, *read_error(whole))
            return
        acks = whole[RESPONSE.size - 1]
        outcome = Outcome(Status.OK, self._value(attempt, whole))
        if acks:
            self.counts["answers that expect backups"] += 1
        attempt.wanted, attempt.outcome = acks, outcome
        if not self._complete(correlation, attempt):
            self.world.after(self.manners.backup_timeout_ns, lambda: self._backups_late(correlation))

    def _refused(self, ask: Ask, code: int, reason: str) -> None:
        self.counts[f"hazelcast error {code}"] += 1
        if code == AGAIN.number:
            self.refused_for_now(ask, status_of(code, reason))
        elif code == INDETERMINATE.number:
            self.answered(ask, Outcome(Status.UNKNOWN, None, reason))
        else:
            self.answered(ask, Outcome(status_of(code, reason), None, reason))

    # -- backups

    def _backup_told(self, source: int) -> None:
        self.counts["backup acks"] += 1
        attempt = self._attempts.get(source)
        if attempt is not None:
            attempt.acks += 1
            self._complete(source, attempt)

    def _complete(self, correlation: int, attempt: Attempt) -> bool:
        if attempt.outcome is None or attempt.acks < attempt.wanted:
            return False
        del self._attempts[correlation]
        self.answered(attempt.ask, attempt.outcome)
        return True

    def _backups_late(self, correlation: int) -> None:
        attempt = self._attempts.pop(correlation, None)
        if attempt is not None and attempt.outcome is not None:
            self.counts["backup acks that never came"] += 1
            if self.manners.indeterminate_fails:
                self.answered(attempt.ask, Outcome(Status.UNKNOWN, None, "its backups keep silent"))
            else:
                self.answered(attempt.ask, attempt.outcome)

    # -- answers

    def _value(self, attempt: Attempt, whole: bytes) -> Value:
        op = attempt.ask.request.op
        reader = reader_of(whole)
        if op in TRUTHS:
            return bool(whole[RESPONSE.size])
        if op is Op.SIZE:
            return cast("int", INT.unpack_from(whole, RESPONSE.size)[0])
        if op in VALUES:
            return read_data(reader)
        if op in LISTS:
            return cast("Value", read_list(reader))
        if op is Op.ENTRY_VIEW:
            return self._entry_view(attempt, reader)
        return None

    def _entry_view(self, attempt: Attempt, reader: FrameReader) -> Value:
        """In the form of `Op.ENTRY_VIEW`; the remaining time is computed now, by the answering member's clock."""
        flags, _ = reader.next()
        if flags & IS_NULL:
            return None
        _, _, ends_ms, _, _, _, _, version, ttl_ms, max_idle_ms = _VIEW.unpack(reader.next()[1])
        read_data(reader)
        content = read_data(reader)
        process = self.doors.process(attempt.line.host)
        remaining_ms = -1
        if ends_ms != NO_END and process is not None:
            remaining_ms = max(0, ends_ms - process.wall_ms())
        ends = (0 if each == NO_END else each for each in (ttl_ms, max_idle_ms))
        return [content, *ends, remaining_ms, version]

    # -- listeners

    def listen(self, name: str, heard: Callable[[EntryEvent], None]) -> Listening:
        listening = Listening(name, heard)
        self._listening.append(listening)
        for line in self.lines.values():
            if line.ready and isinstance(line, HazelcastLine):
                self._register(line, listening)
        return listening

    def _register(self, line: HazelcastLine, listening: Listening) -> None:
        def done(answer: bytes) -> None:
            if answer_kind(answer):
                listening.registered[line.member] = self.world.now_ns

        correlation = self._control(
            line,
            listeners.ADD,
            done,
            {
                "include_value": b"\x01",
                "flags": INT.pack(EVERY_EVENT),
                "local_only": bytes((self.manners.smart,)),
                "name": text(listening.map),
            },
        )
        line.listening[correlation] = listening


def answer_kind(whole: bytes) -> int:
    return cast("int", RESPONSE.unpack_from(whole)[2])


def member_id(uuid: bytes) -> str:
    _, _, low = UUID.unpack(uuid)
    digits = f"{low:012x}"
    return f"{digits[:8]}-{digits[8:]}"


def status_of(code: int, reason: str) -> Status:
    """Errors of requests that cannot be carried out are FAILED, or TOO_LARGE."""
    for known, words, status in _REFUSALS:
        if known.number == code and reason.startswith(words):
            return status
    return Status.TOO_LARGE if code == BAD_ARGUMENT.number else Status.FAILED


def read_data(reader: FrameReader) -> bytes | None:
    flags, payload = reader.next()
    return None if flags & IS_NULL else payload[4:]


def read_list(reader: FrameReader) -> list[bytes | None]:
    return [read_data(reader) for _ in reader.elements()]


__all__ = ["HazelcastClient", "Listening", "encode"]
