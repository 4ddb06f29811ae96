"""Schemas of Compact classes: their ids, and their entries in the map `__schemas`."""

from __future__ import annotations

import struct
from functools import cache

from holdfast.errors import ProtocolError
from holdfast.wire.hazelcast.hazelcast_frames import (
    BEGIN,
    END,
    INT,
    FrameReader,
    frame,
    text,
)
from holdfast.wire.hazelcast.layouts import Schema, read_schema
from holdfast.wire.hazelcast.refusals import CallRefused

SCHEMAS_MAP = "__schemas"
_LONG_TYPE = (-8).to_bytes(4, "big", signed=True)
_BYTES_TYPE = (-12).to_bytes(4, "big", signed=True)
STORED_HEADER_BYTES = 8
"""Type id and length before the bytes of a stored byte array."""

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
    """The 64-bit Rabin fingerprint that identifies schemas, signed."""
    steps = _fingerprint_steps()
    value = _EMPTY_FINGERPRINT
    for byte in content:
        value = (value >> 8) ^ steps[(value ^ byte) & 255]
    return value - (1 << 64) if value >> 63 else value


def schema_id(schema: Schema) -> int:
    """The id by which objects refer to their schema; it depends on the content alone."""
    parts = [_counted(schema.type_name), INT.pack(len(schema.fields))]
    for name, kind in sorted(schema.fields):
        parts += (_counted(name), INT.pack(kind))
    return fingerprint(b"".join(parts))


def _counted(name: str) -> bytes:
    encoded = name.encode()
    return INT.pack(len(encoded)) + encoded


def _frames_of(schema: Schema) -> bytes:
    """The schema in the form of the protocol, which is also its stored form."""
    frames = [BEGIN, text(schema.type_name), BEGIN]
    for name, kind in schema.fields:
        frames += (BEGIN, frame(INT.pack(kind)), text(name), END)
    frames += (END, END)
    return b"".join(frames)


def schema_key(number: int) -> bytes:
    return _LONG_TYPE + number.to_bytes(8, "big", signed=True)


def schema_entry(schema: Schema) -> tuple[bytes, bytes]:
    """Key and value of the entry in `SCHEMAS_MAP` that publishes a schema to every client."""
    content = _frames_of(schema)
    return schema_key(schema_id(schema)), _BYTES_TYPE + len(content).to_bytes(4, "big") + content


def schema_of_entry(value: bytes) -> Schema:
    """The schema in such a value. Raises ValueError if there is none: the map may hold unchecked values."""
    content = value[STORED_HEADER_BYTES:]
    if value[:STORED_HEADER_BYTES] != _BYTES_TYPE + len(content).to_bytes(4, "big"):
        raise ValueError("the value is no array of bytes")
    try:
        schema = read_schema(FrameReader(content, 0, len(content)))
        # An empty name, or a short frame, may be readable too; accept only the exact stored form.
        whole = _frames_of(schema) == content
    except (CallRefused, ProtocolError, struct.error) as broken:
        raise ValueError(f"the value is no schema: {broken}") from broken
    if not whole:
        raise ValueError("the value is more than a schema")
    return schema


def schema_entry_problem(key: bytes, value: bytes) -> str:
    """Why this cannot be an entry of `__schemas`; empty if it can."""
    try:
        schema = schema_of_entry(value)
    except ValueError as broken:
        return str(broken)
    return "" if key == schema_key(schema_id(schema)) else "the key is not the id of the schema"
