"""Schemas of compact-serialised classes: stored once, found by every client."""

from __future__ import annotations

from uuid import UUID

from hazelcast.protocol.codec import (
    client_fetch_schema_codec,
    client_get_distributed_objects_codec,
    client_send_all_schemas_codec,
    client_send_schema_codec,
)
from hazelcast.serialization.api import FieldKind
from hazelcast.serialization.compact import FIELD_OPERATIONS, FieldDescriptor, Schema
from hypothesis import given
from hypothesis import strategies as st
from tests.server.hazelcast.one_member import ME, OneMemberGrid
from tests.server.hazelcast.wire import Wire

from holdfast.wire.hazelcast import layouts
from holdfast.wire.hazelcast.compact_schemas import schema_id

FLIGHT = Schema(
    "flight", [FieldDescriptor("tail", FieldKind.STRING), FieldDescriptor("delay", FieldKind.INT32)]
)
PLANE = Schema("plane ✈", [])
KINDS = [kind for kind in FieldKind if FIELD_OPERATIONS[kind] is not None]


@given(
    st.text(st.characters(codec="utf-8")),
    st.dictionaries(st.text(st.characters(codec="utf-8")), st.sampled_from(KINDS)),
)
def test_schema_ids_are_those_of_the_client(name: str, fields: dict[str, int]) -> None:
    theirs = Schema(name, [FieldDescriptor(field, FieldKind(kind)) for field, kind in fields.items()])
    assert schema_id(layouts.Schema(name, list(fields.items()))) == theirs.schema_id


def test_a_schema_is_known_to_all_members_once_sent(wire: Wire, grid: OneMemberGrid) -> None:
    assert wire.ask(client_fetch_schema_codec, FLIGHT.schema_id) is None
    assert wire.ask(client_send_schema_codec, FLIGHT) == {UUID(ME)}
    other = Wire(grid)
    other.login()
    found = other.ask(client_fetch_schema_codec, FLIGHT.schema_id)
    assert found.schema_id == FLIGHT.schema_id
    assert found.type_name == "flight"
    assert {(field.name, field.kind) for field in found.fields} == {
        ("tail", FieldKind.STRING),
        ("delay", FieldKind.INT32),
    }
    assert wire.ask(client_get_distributed_objects_codec) == []


def test_all_schemas_at_once(wire: Wire) -> None:
    wire.ask(client_send_all_schemas_codec, [])
    wire.ask(client_send_all_schemas_codec, [FLIGHT, PLANE])
    assert wire.ask(client_fetch_schema_codec, PLANE.schema_id).type_name == "plane ✈"
    assert wire.ask(client_fetch_schema_codec, FLIGHT.schema_id).schema_id == FLIGHT.schema_id
