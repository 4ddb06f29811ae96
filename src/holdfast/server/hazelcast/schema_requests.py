"""Schemas of Compact classes: clients send a schema before they write such objects, and fetch unknown ones.

Schemas are entries of an internal map, replicated like all others, so every member can serve each of them; the response
to "send schema" promises that.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

from holdfast.core.model.keys import partition_of
from holdfast.core.model.operations import Op, Request, Value
from holdfast.server.hazelcast.conversation import Conversation, RequestKind
from holdfast.wire.hazelcast.compact_schemas import (
    SCHEMAS_MAP,
    STORED_HEADER_BYTES,
    schema_entry,
    schema_key,
    schema_of_entry,
)
from holdfast.wire.hazelcast.hazelcast_frames import END, NULL, frame, message, response, uuid
from holdfast.wire.hazelcast.layouts import FIELD_BYTES, Call, RequestLayout, Schema

SCHEMA_BYTES_PER_SLICE = 8 * 1024
"""Bytes of schemas whose ids are computed per slice."""


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
    """Requests to store these; None ends a slice, because computing ids takes long."""
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
                talk.grid.report_client_event(
                    f"entries of {SCHEMAS_MAP} that are no schemas",
                    f"entry %s of {SCHEMAS_MAP} is passed over: %s",
                    call.schema_id,
                    broken,
                )
                stored = None
        schema = NULL if stored is None else stored[STORED_HEADER_BYTES:]
        first = response(call.kind + 1, call.correlation)
        # The stored value consists of several frames; only the last one, an end frame, may be flagged final.
        return message([first, NULL]) if stored is None else message([first + schema[: -len(END)], END])

    talk.execute(call, _on(talk, Op.GET, schema_key(call.schema_id)), found)


MESSAGES = {
    0x001300: RequestKind(RequestLayout("| schema"), _send_schema),
    0x001400: RequestKind(RequestLayout("schema_id |"), _fetch_schema),
    0x001500: RequestKind(RequestLayout("| schemas"), _send_all_schemas),
}
