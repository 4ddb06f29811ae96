"""A recorded run: how each member was made, its events, and the calls of its data lane, in order.

A member is a function of its past, so `engine.replay` reproduces every step. Effects are not recorded, only a
hash chained from step to step, which shows whether a replay produced the same.

File: `MAGIC`, then pieces, each after its length and checksum. Piece numbers belong to this format alone.
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Callable, Iterator, Sequence
from hashlib import blake2b
from struct import Struct
from typing import Any, Protocol
from zlib import crc32

import msgspec

from holdfast.actions.operator_action import OperatorAction
from holdfast.actions.registry import read_action
from holdfast.config import Settings
from holdfast.core import events, messages
from holdfast.core.effects import Effect
from holdfast.core.events import ActionRequested, ActionWithdrawn, Event, Heard, Received
from holdfast.core.journal.recovery import Recovered, Recovery
from holdfast.core.membership.identity import Identity
from holdfast.core.model import (
    changes_since,
    forwarded_frames,
    ids,
    operations,
    processors,
    records,
    transaction_orders,
    views,
    zone_batches,
)
from holdfast.core.model.journal_entries import Entry, Snapshot
from holdfast.core.primary_backup.lane import Lane
from holdfast.core.store.partition_copy import PartitionCopy
from holdfast.errors import HoldfastError
from holdfast.wire import codec

MAGIC = b"holdfast run\n"
FORMAT = 2
_HEAD = Struct("<II")
PIECE_MAX = 1 << 30
OF_ACTIONS = (ActionRequested, ActionWithdrawn)
_OF_ACTIONS = frozenset(kind.__name__ for kind in OF_ACTIONS)
EVENTS: dict[str, type[Any]] = {kind.__name__: kind for kind in typing.get_args(events.Event)}
_NAMES = {
    name: value
    for module in (
        changes_since,
        forwarded_frames,
        ids,
        messages,
        operations,
        processors,
        records,
        transaction_orders,
        views,
        zone_batches,
    )
    for name, value in vars(module).items()
}


class RecordBroken(HoldfastError):
    """The file is not a recording, or is damaged."""


# -- the pieces


class Run(msgspec.Struct, frozen=True, array_like=True, tag=1):
    format: int
    told: dict[str, str]
    """For people: seed, version of Holdfast."""


class Restored(msgspec.Struct, frozen=True, array_like=True):
    found: bytes
    now_ns: int
    wall_ms: int
    calls: list[tuple[str, bytes]]
    copies: list[int]


class Begun(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """A member was made. A restarted process is another life, with another number."""

    life: int
    name: str
    at_ns: int
    settings: bytes
    identity: bytes
    services: list[str]
    restored: Restored | None


class Step(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """A member gets an event. Pieces up to its `Stepped` happened during the step."""

    life: int
    at_ns: int
    """By the clock of the world."""
    now_ns: int
    """By the member's own clock."""
    event: str
    fields: bytes


class Stepped(msgspec.Struct, frozen=True, array_like=True, tag=4):
    """A step ended: the hash of its effects, chained with all before."""

    life: int
    digest: bytes


class LaneCall(msgspec.Struct, frozen=True, array_like=True, tag=5):
    life: int
    at_ns: int
    now_ns: int
    call: str
    partition: int
    arguments: bytes


class Outside(msgspec.Struct, frozen=True, array_like=True, tag=8):
    """A change from outside the model: the simulator damaged the member's state."""

    life: int
    at_ns: int
    what: str
    arguments: bytes


class CallbackBegun(msgspec.Struct, frozen=True, array_like=True, tag=6):
    """The lane called a session's callback for this batch. Pieces up to `CallbackEnded` are the session's
    calls.
    """

    life: int
    seal: int
    known: bool


class CallbackEnded(msgspec.Struct, frozen=True, array_like=True, tag=7):
    life: int


Piece = Run | Begun | Step | Stepped | LaneCall | Outside | CallbackBegun | CallbackEnded

_encoder = msgspec.msgpack.Encoder()
_pieces: msgspec.msgpack.Decoder[Piece] = msgspec.msgpack.Decoder(Piece)


def read(data: Callable[[int], bytes]) -> Iterator[Piece]:
    """`data(n)` returns the next n bytes, fewer at the end. Raises RecordBroken for another kind of file,
    another format, or damage.
    """
    if data(len(MAGIC)) != MAGIC:
        raise RecordBroken(
            "this is no record of a run: `python -m holdfast_lab simulate --seed N --record FILE` writes one"
        )
    offset, first = len(MAGIC), True
    while head := data(_HEAD.size):
        where = f"the record is damaged at byte {offset}"
        if len(head) < _HEAD.size:
            raise RecordBroken(f"{where}: it ends within a piece")
        length, checksum = _HEAD.unpack(head)
        body = data(length) if length <= PIECE_MAX else b""
        if len(body) < length:
            raise RecordBroken(f"{where}: it ends within a piece")
        if crc32(body) != checksum:
            raise RecordBroken(f"{where}: a checksum does not fit")
        if first:
            _must_be_known(body, where)
        try:
            yield _pieces.decode(body)
        except msgspec.MsgspecError as error:
            raise RecordBroken(f"{where}: {error}") from error
        offset, first = offset + _HEAD.size + length, False
    if first:
        raise RecordBroken("the record is empty")


def _must_be_known(body: bytes, where: str) -> None:
    try:
        begin = msgspec.msgpack.decode(body)
    except msgspec.MsgspecError as error:
        raise RecordBroken(f"{where}: {error}") from error
    if not isinstance(begin, list) or len(begin) < 2 or begin[0] != 1:
        raise RecordBroken(f"{where}: it does not begin with what was run")
    if begin[1] != FORMAT:
        raise RecordBroken(f"the record is of format {begin[1]!r}; this Holdfast knows format {FORMAT}")


# -- encoding of events, effects and the parts of a member


def _types_of(kind: type[Any]) -> Any:
    hints = typing.get_type_hints(kind, localns=_NAMES)
    return tuple[tuple(hints[field.name] for field in dataclasses.fields(kind))]  # type: ignore[misc]


_FIELDS: dict[str, msgspec.msgpack.Decoder[Any]] = {
    name: msgspec.msgpack.Decoder(_types_of(kind))
    for name, kind in EVENTS.items()
    if kind not in (Received, Heard, *OF_ACTIONS) and dataclasses.fields(kind)
}
_ACTION = msgspec.msgpack.Decoder(tuple[ids.Token | None, str, msgspec.Raw])
_RECEIVED = msgspec.msgpack.Decoder(tuple[str, bytes, bool])
_HEARD = msgspec.msgpack.Decoder(tuple[ids.Address, bytes])


def fields_of(event: Event) -> bytes:
    if isinstance(event, Received):
        return _encoder.encode((event.sender, codec.encode(event.message), event.more))
    if isinstance(event, Heard):
        return _encoder.encode((event.address, codec.encode(event.message)))
    if isinstance(event, OF_ACTIONS):
        assert isinstance(event.action, OperatorAction), "a real member carries out declared actions"
        token = event.token if isinstance(event, ActionRequested) else None
        return _encoder.encode((token, event.action.declared.name, event.action))
    fields = dataclasses.fields(event)
    return _encoder.encode([getattr(event, field.name) for field in fields]) if fields else b""


def event_of(name: str, fields: bytes) -> Event:
    """Raises RecordBroken for an unknown or malformed event."""
    try:
        if name == "Received":
            sender, message, more = _RECEIVED.decode(fields)
            return Received(ids.MemberId(sender), codec.decode(message), more)
        if name == "Heard":
            address, message = _HEARD.decode(fields)
            return Heard(address, codec.decode(message))
        if name in _OF_ACTIONS:
            token, action, content = _ACTION.decode(fields)
            known = read_action(action, content)
            return ActionRequested(known, token) if name == "ActionRequested" else ActionWithdrawn(known)
        values = _FIELDS[name].decode(fields) if name in _FIELDS else ()
        event: Event = EVENTS[name](*values)
    except (KeyError, HoldfastError, msgspec.MsgspecError) as error:
        raise RecordBroken(f"{name} is not an event of this version of Holdfast: {error}") from error
    return event


def _plain(value: object) -> object:
    if hasattr(value, "holders"):  # A pin of a cut.
        return [value.partition, value.map, value.counter, value.term, value.entries, list(value.holders)]  # type: ignore[attr-defined]
    return str(value)


_hashed = msgspec.msgpack.Encoder(enc_hook=_plain, order="deterministic")


def digest_of(before: bytes, effects: Sequence[Effect]) -> bytes:
    """The hash of these effects, chained with `before`; independent of the order of sets."""
    told = blake2b(before, digest_size=16)
    for effect in effects:
        told.update(type(effect).__name__.encode())
        told.update(_hashed.encode(effect))
    return told.digest()


class RecordedRecovery:
    def __init__(self, now_ns: int, wall_ms: int) -> None:
        self._recovery = Recovery(now_ns, wall_ms)
        self.now_ns = now_ns
        self.wall_ms = wall_ms
        self.calls: list[tuple[str, bytes]] = []

    def base(self, snapshot: Snapshot, lsn: int, file: str) -> None:
        self.calls.append(("base", _encoder.encode((snapshot, lsn, file))))
        self._recovery.base(snapshot, lsn, file)

    def missing(self, partition: int, lsn: int, why: str) -> None:
        self.calls.append(("missing", _encoder.encode((partition, lsn, why))))
        self._recovery.missing(partition, lsn, why)

    def void(self, partition: int, lsn: int) -> None:
        self.calls.append(("void", _encoder.encode((partition, lsn))))
        self._recovery.void(partition, lsn)

    def block(self, lsn: int, entries: Sequence[Entry]) -> None:
        self.calls.append(("block", _encoder.encode((lsn, entries))))
        self._recovery.block(lsn, entries)

    def lost(self, until: int, why: str) -> None:
        self.calls.append(("lost", _encoder.encode((until, why))))
        self._recovery.lost(until, why)

    def finish(self, recovered: Recovered) -> None:
        self._recovery.finish(recovered)


_CALLS: dict[str, msgspec.msgpack.Decoder[Any]] = {
    "base": msgspec.msgpack.Decoder(tuple[Snapshot, int, str]),
    "missing": msgspec.msgpack.Decoder(tuple[int, int, str]),
    "void": msgspec.msgpack.Decoder(tuple[int, int]),
    "block": msgspec.msgpack.Decoder(tuple[int, list[Entry]]),
    "lost": msgspec.msgpack.Decoder(tuple[int, str]),
}
_FOUND: msgspec.msgpack.Decoder[dict[str, Any]] = msgspec.msgpack.Decoder(dict[str, Any])
_IDENTITY = msgspec.msgpack.Decoder(Identity)


def restored_of(recovered: Recovered, calls: RecordedRecovery) -> Restored:
    found = {
        field.name: getattr(recovered, field.name)
        for field in dataclasses.fields(recovered)
        if field.name != "copies"
    }
    return Restored(
        _encoder.encode(found), calls.now_ns, calls.wall_ms, calls.calls, sorted(recovered.copies)
    )


def recovered_of(restored: Restored) -> Recovered:
    """Raises RecordBroken."""
    try:
        return _recovered(restored)
    except (KeyError, msgspec.MsgspecError) as error:
        raise RecordBroken(f"the recovered state cannot be read: {error}") from error


def _recovered(restored: Restored) -> Recovered:
    hints = typing.get_type_hints(Recovered)
    found = _FOUND.decode(restored.found)
    known = {name: msgspec.convert(value, hints[name], strict=False) for name, value in found.items()}
    recovery = Recovery(restored.now_ns, restored.wall_ms)
    for name, arguments in restored.calls:
        getattr(recovery, name)(*_CALLS[name].decode(arguments))
    made = Recovered(known["store"], known["incarnation"], known["cluster_id"])
    recovery.finish(made)
    return Recovered(**known, copies={partition: made.copies[partition] for partition in restored.copies})


def settings_of(life: Begun) -> Settings:
    """Unchecked: simulated members use values below the limits of settings files."""
    settings = _unchecked(Settings, msgspec.msgpack.decode(life.settings))
    assert isinstance(settings, Settings)
    return settings


def _unchecked(kind: Any, value: Any) -> object:
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        hints = typing.get_type_hints(kind)
        names = dict(zip(kind.__struct_encode_fields__, kind.__struct_fields__, strict=True))
        return kind(**{names[key]: _unchecked(hints[names[key]], one) for key, one in value.items()})
    if origin is dict:
        return {key: _unchecked(inner[1], one) for key, one in value.items()}
    if origin in (tuple, frozenset):
        return origin(value)
    return value


def identity_of_life(life: Begun) -> Identity:
    return _IDENTITY.decode(life.identity)


# -- writing


class Clock(Protocol):
    now_ns: int


class Recorder:
    def __init__(self, write: Callable[[bytes], object], clock: Clock, told: dict[str, str]) -> None:
        self._write = write
        self.clock = clock
        self._lives = 0
        write(MAGIC)
        self.put(Run(FORMAT, told))

    def put(self, piece: Piece) -> None:
        body = _encoder.encode(piece)
        self._write(_HEAD.pack(len(body), crc32(body)) + body)

    def begin(
        self,
        name: str,
        settings: Settings,
        identity: Identity,
        services: Sequence[str],
        restored: Restored | None,
    ) -> LifeRecorder:
        self._lives += 1
        life = Begun(
            self._lives,
            name,
            self.clock.now_ns,
            _encoder.encode(settings),
            _encoder.encode(identity),
            list(services),
            restored,
        )
        self.put(life)
        return LifeRecorder(self, self._lives)


class LifeRecorder:
    def __init__(self, recorder: Recorder, life: int) -> None:
        self._recorder = recorder
        self._life = life
        self._digest = b""

    def step(self, event: Event, now_ns: int) -> None:
        at_ns = self._recorder.clock.now_ns
        self._recorder.put(Step(self._life, at_ns, now_ns, type(event).__name__, fields_of(event)))

    def stepped(self, effects: Sequence[Effect]) -> None:
        self._digest = digest_of(self._digest, effects)
        self._recorder.put(Stepped(self._life, self._digest))

    def lane(self, lane: Lane, now_ns: Callable[[], int]) -> RecordedLane:
        return RecordedLane(lane, now_ns, self)

    def called(self, now_ns: int, call: str, copy: PartitionCopy | None, *arguments: object) -> None:
        partition = copy.partition if copy is not None else -1
        at_ns = self._recorder.clock.now_ns
        self._recorder.put(LaneCall(self._life, at_ns, now_ns, call, partition, _encoder.encode(arguments)))

    def outside(self, what: str, *arguments: object) -> None:
        at_ns = self._recorder.clock.now_ns
        self._recorder.put(Outside(self._life, at_ns, what, _encoder.encode(arguments)))

    def told(self, seal: int, done: Callable[[bool], None], *, known: bool) -> None:
        self._recorder.put(CallbackBegun(self._life, seal, known))
        done(known)
        self._recorder.put(CallbackEnded(self._life))


class RecordedLane:
    def __init__(self, lane: Lane, now_ns: Callable[[], int], record: LifeRecorder) -> None:
        self._lane = lane
        self._now_ns = now_ns
        self._record = record
        self._seals = 0
        self.serving = lane.serving
        self.leading = lane.leading
        self.listening = lane.listening
        self.backlog = lane.backlog
        self.confirms_reads = lane.confirms_reads
        self.steps = lane.steps
        self.locked = lane.locked
        self.record = lane.record
        self.report = lane.report
        self.lifetimes = lane.lifetimes
        self.wall_ms = lane.wall_ms
        self.open_puts: None = None
        """None, so that every write is a recorded call."""

    @property
    def acks(self) -> int:
        return self._lane.acks

    @property
    def unknown_because(self) -> str:
        return self._lane.unknown_because

    @property
    def now_ns(self) -> int:
        return self._lane.now_ns

    def confirmed(self, name: str) -> bool:
        return self._lane.confirmed(name)

    def read(self, copy: PartitionCopy, name: str, key: bytes) -> bytes | None:
        self._record.called(self._now_ns(), "read", copy, name, key)
        return self._lane.read(copy, name, key)

    def set(
        self,
        copy: PartitionCopy,
        name: str,
        key: bytes,
        value: bytes,
        ttl_ms: int,
        max_idle_ms: int,
        key_hash: int,
    ) -> bytes | None:
        self._record.called(self._now_ns(), "set", copy, name, key, value, ttl_ms, max_idle_ms, key_hash)
        return self._lane.set(copy, name, key, value, ttl_ms, max_idle_ms, key_hash)

    def remove(self, copy: PartitionCopy, name: str, key: bytes) -> bytes | None:
        self._record.called(self._now_ns(), "remove", copy, name, key)
        return self._lane.remove(copy, name, key)

    def evict(self, copy: PartitionCopy, name: str, key: bytes) -> None:
        self._record.called(self._now_ns(), "evict", copy, name, key)
        self._lane.evict(copy, name, key)

    def set_ttl(self, copy: PartitionCopy, name: str, key: bytes, ttl_ms: int) -> None:
        self._record.called(self._now_ns(), "set_ttl", copy, name, key, ttl_ms)
        self._lane.set_ttl(copy, name, key, ttl_ms)

    def rest_on(self, copy: PartitionCopy, name: str) -> None:
        self._record.called(self._now_ns(), "rest_on", copy, name)
        self._lane.rest_on(copy, name)

    def settle(self) -> bool:
        """False, so that every batch is closed by a recorded call."""
        return False

    def end_buffer(self) -> bool:
        """As `settle`."""
        return False

    def close_batch(self, done: Callable[[bool], None]) -> None:
        self._seals += 1
        seal = self._seals
        self._record.called(self._now_ns(), "close_batch", None, seal)
        self._lane.close_batch(lambda known: self._record.told(seal, done, known=known))

    def close_batch_for(self, done: Callable[[bool], None], client: bytes, correlations: list[int]) -> None:
        self._seals += 1
        seal = self._seals
        self._record.called(self._now_ns(), "close_batch_for", None, seal, client, correlations)
        self._lane.close_batch_for(
            lambda known: self._record.told(seal, done, known=known), client, correlations
        )
