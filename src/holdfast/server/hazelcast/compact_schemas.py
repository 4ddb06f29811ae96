"""Schemas of compact-serialised classes: clients register them here before they write such objects, and ask
for those that they meet and do not know.

They live as entries of a map that only members name, so they are replicated, moved and kept like everything
else, and every member of the cluster can answer for each of them: that is what the answer to "send schema"
promises.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from functools import cache
from typing import cast

from holdfast.core.model.keys import partition_of
from holdfast.core.model.operations import Op, Request, Value
from holdfast.errors import ProtocolError
from holdfast.server.hazelcast.conversation import Conversation, RequestKind
from holdfast.server.hazelcast.layouts import FIELD_BYTES, Call, RequestLayout, Schema, read_schema
from holdfast.server.hazelcast.refusals import CallRefused
from holdfast.wire.hazelcast_frames import (
    BEGIN,
    END,
    INT,
    NULL,
    FrameReader,
    frame,
    message,
    response,
    text,
    uuid,
)

SCHEMAS_MAP = "__schemas"
SCHEMA_BYTES_PER_SLICE = 8 * 1024
"""Of schemas whose ids are made in one go."""

_LONG_TYPE = (-8).to_bytes(4, "big", signed=True)
_BYTES_TYPE = (-12).to_bytes(4, "big", signed=True)
_STORED_HEADER_BYTES = 8
"""Type id and length in front of the bytes of a stored byte array."""

_EMPTY_FINGERPRINT = -4513414715797952619 & 0xFFFF_FFFF_FFFF_FFFF


@cache
def _fingerprint_steps() -> list[int]:
    steps = []
    for byte in range(256):
        value = byte
        for _ in range(8):
            value = (value >> 1) ^ (_EMPTY_FINGERPRINT if value & 1 else 0)
        steps.append(value)
    return steps


def fingerprint(content: bytes) -> int:
    """The 64-bit Rabin fingerprint that names schemas, signed."""
    steps = _fingerprint_steps()
    value = _EMPTY_FINGERPRINT
    for byte in content:
        value = (value >> 8) ^ steps[(value ^ byte) & 255]
    return value - (1 << 64) if value >> 63 else value


def schema_id(schema: Schema) -> int:
    """The id by which objects refer to their schema; it depends on content alone."""
    parts = [_counted(schema.type_name), INT.pack(len(schema.fields))]
    for name, kind in sorted(schema.fields):
        parts += (_counted(name), INT.pack(kind))
    return fingerprint(b"".join(parts))


def _counted(name: str) -> bytes:
    encoded = name.encode()
    return INT.pack(len(encoded)) + encoded


def _frames_of(schema: Schema) -> bytes:
    """The schema as the protocol writes it: also how it is stored."""
    frames = [BEGIN, text(schema.type_name), BEGIN]
    for name, kind in schema.fields:
        frames += (BEGIN, frame(INT.pack(kind)), text(name), END)
    frames += (END, END)
    return b"".join(frames)


def schema_key(number: int) -> bytes:
    """The key under which the schema with this id is kept in `SCHEMAS_MAP`."""
    return _LONG_TYPE + number.to_bytes(8, "big", signed=True)


def schema_entry(schema: Schema) -> tuple[bytes, bytes]:
    """Key and value of the entry in `SCHEMAS_MAP` that makes a schema known to every client."""
    content = _frames_of(schema)
    return schema_key(schema_id(schema)), _BYTES_TYPE + len(content).to_bytes(4, "big") + content


def schema_of_entry(value: bytes) -> Schema:
    """The schema in such a value. Raises ValueError when there is none: the map may hold what nobody looked at."""
    content = value[_STORED_HEADER_BYTES:]
    if value[:_STORED_HEADER_BYTES] != _BYTES_TYPE + len(content).to_bytes(4, "big"):
        raise ValueError("the value is no array of bytes")
    try:
        schema = read_schema(FrameReader(content, 0, len(content)))
        # A name that is empty, or a frame that is too short, may be read all the same; what is told is what was stored.
        whole = _frames_of(schema) == content
    except (CallRefused, ProtocolError, struct.error) as broken:
        raise ValueError(f"the value is no schema: {broken}") from broken
    if not whole:
        raise ValueError("the value is more than a schema")
    return schema


def _store(talk: Conversation, schema: Schema) -> Request:
    key, value = schema_entry(schema)
    return _on(talk, Op.SET, key, value)


def _on(talk: Conversation, op: Op, key: bytes, value: bytes = b"") -> Request:
    return Request(
        op,
        SCHEMAS_MAP,
        [partition_of(key, 0, talk.grid.partition_count)],
        key=key,
        value=value,
        ttl_ms=0,
        max_idle_ms=0,
    )


def _send_schema(talk: Conversation, call: Call) -> None:
    def stored(_: list[Value]) -> bytes:
        members = b"".join(uuid(member.uuid) for member in talk.grid.cluster().members)
        return message([response(call.kind + 1, call.correlation), frame(members)])

    talk.execute_all(call, [_store(talk, schema) for schema in call.schemas], stored)


def _storing(talk: Conversation, schemas: list[Schema]) -> Iterator[Request | None]:
    """Requests that store these. To make the ids takes long: None stands for a slice of that."""
    made = 0
    for schema in schemas:
        made += FIELD_BYTES * len(schema.fields) + sum(len(name) for name, _ in schema.fields)
        made += len(schema.type_name)
        if made > SCHEMA_BYTES_PER_SLICE:
            made = 0
            yield None
        yield _store(talk, schema)


def _send_all_schemas(talk: Conversation, call: Call) -> None:
    talk.require(_on(talk, Op.SET, b""))
    talk.execute_all(
        call, _storing(talk, call.schemas), lambda _: message([response(call.kind + 1, call.correlation)])
    )


def _fetch_schema(talk: Conversation, call: Call) -> None:
    def found(value: Value) -> bytes:
        stored = cast("bytes | None", value)
        if stored is not None:
            try:
                schema_of_entry(stored)
            except ValueError as broken:
                talk.grid.knocked(
                    f"entries of {SCHEMAS_MAP} that are no schemas",
                    f"entry %s of {SCHEMAS_MAP} is passed over: %s",
                    call.schema_id,
                    broken,
                )
                stored = None
        schema = NULL if stored is None else stored[_STORED_HEADER_BYTES:]
        first = response(call.kind + 1, call.correlation)
        # The stored frames are several; only the last of them, which is an end, may be flagged final.
        return message([first, NULL]) if stored is None else message([first + schema[: -len(END)], END])

    talk.execute(call, _on(talk, Op.GET, schema_key(call.schema_id)), found)


MESSAGES = {
    0x001300: RequestKind(RequestLayout("| schema"), _send_schema),
    0x001400: RequestKind(RequestLayout("schema_id |"), _fetch_schema),
    0x001500: RequestKind(RequestLayout("| schemas"), _send_all_schemas),
}
