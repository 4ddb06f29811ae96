"""Requests for sets."""

from __future__ import annotations

from holdfast.core.model.collections import CollectionKind, StepKind
from holdfast.server.hazelcast.collections.collection_requests import Row, is_zero, messages
from holdfast.server.hazelcast.collections.item_events import listener_messages
from holdfast.server.hazelcast.maps import many, nothing, number, truth

_ROWS = [
    Row(0x060100, "| name", StepKind.SIZE, number),
    Row(0x060200, "| name value", StepKind.CONTAINS, truth),
    Row(0x060300, "| name items", StepKind.CONTAINS, truth),
    Row(0x060400, "| name value", StepKind.ADD, truth),
    Row(0x060500, "| name value", StepKind.REMOVE, truth),
    Row(0x060600, "| name items", StepKind.ADD, truth),
    Row(0x060700, "| name items", StepKind.REMOVE_ALL, truth),
    Row(0x060800, "| name items", StepKind.RETAIN_ALL, truth),
    Row(0x060900, "| name", StepKind.CLEAR, nothing),
    Row(0x060A00, "| name", StepKind.ITEMS, many),
    Row(0x060D00, "| name", StepKind.SIZE, is_zero),
]
LISTENERS = listener_messages(CollectionKind.SET, 0x060B00, 0x060C00)
MESSAGES = messages(CollectionKind.SET, _ROWS)
