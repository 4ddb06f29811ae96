"""Layouts of requests: parameters are declared by name, and the name determines the type.

A layout lists the fixed-size parameters, a bar, and the variable-size ones, in wire order: `"thread ttl_ms | name key
value"`. Unneeded parameters at the end of either part are left out, and so are fields of newer protocol versions. Every
parameter is stored in the attribute of `Call` of the same name.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from inspect import isgeneratorfunction
from struct import Struct
from typing import cast

from holdfast.core.model.operations import DEFAULT_TTL
from holdfast.errors import ProtocolError
from holdfast.wire.hazelcast.hazelcast_frames import IS_NULL, REQUEST, UUID, FrameReader
from holdfast.wire.hazelcast.packed_items import Items, PackedItems
from holdfast.wire.hazelcast.refusals import BAD_ARGUMENT, UNSUPPORTED, CallRefused

UUID_BYTES = UUID.size
LONGEST_TTL_MS = 100 * 365 * 24 * 3600 * 1000
"""Clients also use huge numbers for "for ever"; anything longer than this (100 years) is for ever."""


NAMES_MAX = 1000
ITEMS_MAX = 2_000
"""Items of a collection in one request, which is decided in one step."""
PROXIES_MAX = 50_000
"""Structures that one request may open."""
SCHEMAS_MAX = 10_000
SCHEMA_MAX = 32 * 1024
"""Characters of a schema; its id is computed byte by byte."""
FIELD_BYTES = 8
"""Size of a field of a schema besides its name."""
NAME_SHOWN = 100


@dataclass(frozen=True, slots=True)
class Schema:
    """Fields of one compact-serialised class: its type name, field names and kinds."""

    type_name: str
    fields: list[tuple[str, int]]


@dataclass(slots=True)
class Call:
    """One decoded request: the header and the parameters of its layout."""

    kind: int
    correlation: int
    partition: int
    name: str = ""
    key: bytes = b""
    key_hash: int = 0
    value: bytes = b""
    expected: bytes = b""
    keys: Items = field(default_factory=list)
    hashes: array[int] = field(default_factory=lambda: array("i"))
    values: Items = field(default_factory=list)
    collections: list[list[bytes]] = field(default_factory=list)
    """The values of each key."""
    size: int = 0
    predicate: bytes = b""
    ttl_ms: int = DEFAULT_TTL
    max_idle_ms: int = DEFAULT_TTL
    include_value: bool = False
    flags: int = 0
    local_only: bool = False
    registration: bytes = b""
    client: bytes = b""
    """The client's own UUID, in the form of the protocol."""
    serialization_version: int = 0
    cluster_name: str = ""
    username: str | None = None
    password: str | None = None
    credentials: bytes = b""
    client_type: str = ""
    """Type of the client library: `PYH`, `JVM`, …"""
    client_version: str = ""
    client_name: str = ""
    transaction: bytes = b""
    """The UUID of a transaction, in the form of the protocol."""
    timeout_ms: int = 0
    service: str = ""
    proxies: list[tuple[str, str]] = field(default_factory=list)
    """Name and service of each."""
    names: list[str] = field(default_factory=list)
    pointers: list[tuple[int, int]] = field(default_factory=list)
    """Position of a walk through a map."""
    batch: int = 0
    index: int = 0
    end: int = 0
    """End of a part of a list, or the largest number of items to take."""
    sequence: int = 0
    count: int = 0
    overflow: int = 0
    """The policy of a ringbuffer that is full."""
    number: int = 0
    """To be added to a counter, or a hash."""
    get_before: bool = False
    """Whether the response has the value of a counter before the change."""
    version: int = 0
    """The latest version of a counter that the client has seen."""
    thread: int | None = None
    reference: int = 0
    """Names a request for a lock also when it is repeated; 0: none does."""
    group: str = ""
    """Name of a CP group."""
    session: int = 0
    invocation: bytes = b""
    """Id of a call, in the form of the protocol."""
    expected_number: int = 0
    flag: bool = False
    value_or_null: bytes | None = None
    expected_or_null: bytes | None = None
    schema_id: int = 0
    schemas: list[Schema] = field(default_factory=list)


Reader = Callable[[FrameReader, Call], object]
"""Reads one parameter; a reader with a second result puts it into the call itself. A reader of a possibly long list is
a generator that yields after each slice of some ms.
"""
Sliced = Generator[None, None, object]

FIXED: dict[str, str] = {
    "thread": "q",
    "timeout_ms": "q",
    "transaction": "17s",
    "member": "17x",
    "durability": "4x",
    "transaction_type": "4x",
    "client": "17s",
    "serialization_version": "b",
    "ttl_ms": "q",
    "max_idle_ms": "q",
    "include_value": "?",
    "flags": "i",
    "local_only": "?",
    "registration": "17s",
    "schema_id": "q",
    "batch": "i",
    "index": "i",
    "end": "i",
    "sequence": "q",
    "count": "i",
    "overflow": "i",
    "number": "q",
    "get_before": "?",
    "reference": "q",
    "session": "q",
    "invocation": "17s",
    "expected_number": "q",
    "flag": "?",
}
"""Fixed-size parameters: name and the code of `struct`. Those coded `x` are skipped as unneeded."""


UNNAMED = "(unnamed)"
"""The name of the map that clients call "". They may open it under either name; it is listed under this one."""


def _text(frames: FrameReader, _: Call) -> str:
    return _needed_text(frames)


def _object_name(frames: FrameReader, _: Call) -> str:
    return _needed_text(frames) or UNNAMED


def _needed_text(frames: FrameReader) -> str:
    found = _some_text(frames)
    if found is None:
        raise CallRefused(BAD_ARGUMENT, "a name or text that is needed is null")
    return found


def _shown_text(frames: FrameReader, _: Call) -> str:
    """A text that is only shown to operators: a client may leave it out."""
    try:
        return (_some_text(frames) or "")[:NAME_SHOWN]
    except ProtocolError:
        return ""


def _nullable_text(frames: FrameReader, _: Call) -> str | None:
    return _some_text(frames)


def _some_text(frames: FrameReader) -> str | None:
    flags, payload = frames.next()
    if flags & IS_NULL:
        return None
    try:
        return payload.decode()
    except UnicodeDecodeError as broken:
        raise ProtocolError("a text is not valid UTF-8") from broken


def _bytes(frames: FrameReader, _: Call) -> bytes:
    return frames.next()[1]


def read_data(frames: FrameReader) -> tuple[bytes, int]:
    """Type id and payload of a `Data`, and its partition-hash word. Raises CallRefused if it is null or cut short."""
    flags, payload = frames.next()
    if flags & IS_NULL or len(payload) < 8 or payload[4:8] == b"\0\0\0\0":
        raise CallRefused(BAD_ARGUMENT, "a key, value or other serialised object is null")
    return payload[4:], int.from_bytes(payload[:4], "big", signed=True)


def _data(frames: FrameReader, _: Call) -> bytes:
    return read_data(frames)[0]


def _nullable_data(frames: FrameReader, _: Call) -> bytes:
    """Empty: null, which some clients serialise."""
    flags, payload = frames.next()
    return b"" if flags & IS_NULL or payload[4:8] == b"\0\0\0\0" else payload[4:]


def _data_or_null(frames: FrameReader, _: Call) -> bytes | None:
    flags, payload = frames.next()
    if flags & IS_NULL:
        return None
    if len(payload) < 8:
        raise CallRefused(BAD_ARGUMENT, "a serialised object is cut short")
    return None if payload[4:8] == b"\0\0\0\0" else payload[4:]


def _cp_group(frames: FrameReader, _: Call) -> str:
    """A group is its name; its other two numbers are always the same here."""
    frames.begin()
    frames.next()
    name = _needed_text(frames)
    frames.skip_to_end()
    return name


def _key(frames: FrameReader, call: Call) -> bytes:
    key, call.key_hash = read_data(frames)
    return key


def _keys(frames: FrameReader, call: Call) -> Sliced:
    keys: Items = PackedItems() if frames.many else []
    for _ in frames.elements():
        if frames.due():
            yield
        key, key_hash = read_data(frames)
        keys.append(key)
        call.hashes.append(key_hash)
    return keys


def _entries(frames: FrameReader, call: Call) -> Sliced:
    keys: Items = PackedItems() if frames.many else []
    values: Items = PackedItems() if frames.many else []
    for _ in frames.elements():
        if frames.due():
            yield
        key, key_hash = read_data(frames)
        value = read_data(frames)[0]
        call.size += len(key) + len(value)
        keys.append(key)
        values.append(value)
        call.hashes.append(key_hash)
    call.keys = keys
    return values


def _items(frames: FrameReader, _: Call) -> Sliced:
    found: list[bytes] = []
    for _element in frames.elements():
        if len(found) >= ITEMS_MAX:
            raise CallRefused(BAD_ARGUMENT, f"one request has at most {ITEMS_MAX} items: send several")
        if frames.due():
            yield
        found.append(read_data(frames)[0])
    return found


def _collections(frames: FrameReader, call: Call) -> Sliced:
    """Keys, each with a list of values."""
    found: list[list[bytes]] = []
    keys: list[bytes] = []
    count = 0
    for _element in frames.elements():
        key, key_hash = read_data(frames)
        values: list[bytes] = []
        for _value in frames.elements():
            if frames.due():
                yield
            values.append(read_data(frames)[0])
            if count + len(values) >= ITEMS_MAX:
                break
        count += 1 + len(values)
        if count > ITEMS_MAX:
            raise CallRefused(BAD_ARGUMENT, f"one request has at most {ITEMS_MAX} items: send several")
        if frames.due():
            yield
        keys.append(key)
        found.append(values)
        call.hashes.append(key_hash)
    call.keys = keys
    return found


def _names(frames: FrameReader, call: Call) -> Sliced:
    found: list[str] = []
    for _element in frames.elements():
        if len(found) >= NAMES_MAX:
            raise CallRefused(
                UNSUPPORTED, f"more than {NAMES_MAX} maps in one request are not supported by Holdfast"
            )
        if frames.due():
            yield
        found.append(_object_name(frames, call))
    return found


def _proxies(frames: FrameReader, call: Call) -> Sliced:
    found: list[tuple[str, str]] = []
    for _ in frames.elements():
        if len(found) >= PROXIES_MAX:
            raise CallRefused(
                BAD_ARGUMENT, f"one request opens at most {PROXIES_MAX} structures: send several"
            )
        if frames.due():
            yield
        found.append((_object_name(frames, call), _text(frames, call)))
    return found


_PAIR = Struct("<ii")
_PAIRS_MAX = 1000


def _pointers(frames: FrameReader, _: Call) -> list[tuple[int, int]]:
    """Clients usually send back one pair that a member has given them."""
    _flags, payload = frames.next()
    if len(payload) % _PAIR.size or len(payload) > _PAIRS_MAX * _PAIR.size:
        raise ProtocolError("the pointers of a walk are pairs of numbers")
    return list(_PAIR.iter_unpack(payload))


_TIMESTAMP = Struct("<17xq")


def _version(frames: FrameReader, _: Call) -> int:
    """The client knows a version for each replica of a counter; Holdfast's counters have one."""
    _flags, payload = frames.next()
    if len(payload) % _TIMESTAMP.size or len(payload) > _PAIRS_MAX * _TIMESTAMP.size:
        raise ProtocolError("the timestamps of a counter are pairs of a UUID and a number")
    return max((version for (version,) in _TIMESTAMP.iter_unpack(payload)), default=0)


def read_schema(frames: FrameReader) -> Schema:
    """The schema in the next frames. Raises ProtocolError, CallRefused."""
    work = reading_schema(frames)
    while True:
        try:
            next(work)
        except StopIteration as done:
            return cast("Schema", done.value)


def reading_schema(frames: FrameReader) -> Generator[None, None, Schema]:
    """Like `read_schema`, in slices."""
    fields = []
    frames.begin()
    type_name = _needed_text(frames)
    size = len(type_name)
    frames.begin()
    while not frames.at_end():
        if frames.due():
            yield
        frames.begin()
        _, payload = frames.next()
        if len(payload) < 4:
            raise ProtocolError("a field of a schema has no kind")
        kind = int.from_bytes(payload[:4], "little", signed=True)
        name = _needed_text(frames)
        fields.append((name, kind))
        size += FIELD_BYTES + len(name)
        if size > SCHEMA_MAX:
            break
        frames.skip_to_end()
    if size > SCHEMA_MAX:
        raise CallRefused(
            BAD_ARGUMENT,
            f"the schema of {type_name[:NAME_SHOWN]!r} is too large: its names, and {FIELD_BYTES} for each of its "
            f"fields, are at most {SCHEMA_MAX} characters",
        )
    frames.skip_to_end()
    return Schema(type_name, fields)


def _one_schema(frames: FrameReader, _: Call) -> Sliced:
    return [(yield from reading_schema(frames))]


def _all_schemas(frames: FrameReader, _: Call) -> Sliced:
    found: list[Schema] = []
    for _element in frames.elements():
        if len(found) >= SCHEMAS_MAX:
            raise CallRefused(BAD_ARGUMENT, f"one request brings at most {SCHEMAS_MAX} schemas: send several")
        if frames.due():
            yield
        found.append((yield from reading_schema(frames)))
    return found


VARIABLE: dict[str, tuple[str, Reader]] = {
    "name": ("name", _object_name),
    "key": ("key", _key),
    "value": ("value", _data),
    "expected": ("expected", _data),
    "processor": ("value", _data),
    "keys": ("keys", _keys),
    "entries": ("values", _entries),
    "items": ("values", _items),
    "collections": ("collections", _collections),
    "predicate": ("predicate", _data),
    "filter": ("predicate", _nullable_data),
    "cluster_name": ("cluster_name", _text),
    "username": ("username", _nullable_text),
    "password": ("password", _nullable_text),
    "credentials": ("credentials", _bytes),
    "client_type": ("client_type", _shown_text),
    "client_version": ("client_version", _shown_text),
    "client_name": ("client_name", _shown_text),
    "service": ("service", _text),
    "proxies": ("proxies", _proxies),
    "schema": ("schemas", _one_schema),
    "schemas": ("schemas", _all_schemas),
    "names": ("names", _names),
    "pointers": ("pointers", _pointers),
    "version": ("version", _version),
    "group": ("group", _cp_group),
    "value_or_null": ("value_or_null", _data_or_null),
    "expected_or_null": ("expected_or_null", _data_or_null),
}
"""Variable-size parameters: name, attribute of `Call`, and reader."""


class RequestLayout:
    __slots__ = ("_fixed", "_fixed_names", "_variable", "declaration")

    def __init__(self, declaration: str) -> None:
        self.declaration = declaration
        fixed, _, variable = declaration.partition("|")
        codes = [FIXED[name] for name in fixed.split()]
        self._fixed = Struct("<" + "".join(codes))
        self._fixed_names = [name for name in fixed.split() if not FIXED[name].endswith("x")]
        self._variable = [
            (attribute, reader, isgeneratorfunction(reader))
            for attribute, reader in (VARIABLE[name] for name in variable.split())
        ]

    def decode(self, data: bytes, start: int, end: int) -> Call:
        """The request in `data[start:end]`, which is one complete message.

        Raises ProtocolError for invalid bytes, CallRefused for a request that must be answered with an error.
        """
        work = self.decoding(data, start, end)
        while True:
            try:
                next(work)
            except StopIteration as done:
                return cast("Call", done.value)

    def decoding(self, data: bytes, start: int, end: int) -> Generator[None, None, Call]:
        """Like `decode`, in slices."""
        length, _, kind, correlation, partition = REQUEST.unpack_from(data, start)
        call = Call(kind, correlation, partition)
        if length < REQUEST.size + self._fixed.size:
            raise ProtocolError("the message has fewer parameters than its type asks for")
        for name, value in zip(
            self._fixed_names, self._fixed.unpack_from(data, start + REQUEST.size), strict=True
        ):
            setattr(call, name, value)
        frames = FrameReader(data, start + length, end)
        for name, reader, sliced in self._variable:
            found = reader(frames, call)
            setattr(call, name, (yield from cast("Sliced", found)) if sliced else found)
        call.ttl_ms = _duration_ms(call.ttl_ms)
        call.max_idle_ms = _duration_ms(call.max_idle_ms)
        return call


def _duration_ms(value: int) -> int:
    if value < 0:
        return DEFAULT_TTL
    return 0 if value > LONGEST_TTL_MS else value
