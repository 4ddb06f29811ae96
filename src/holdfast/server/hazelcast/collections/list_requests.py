"""Requests for lists."""

from __future__ import annotations

from holdfast.core.model.collections import CollectionKind, CollectionStep, StepKind
from holdfast.server.hazelcast.collections.collection_requests import (
    ALL,
    Row,
    StepOf,
    in_bounds,
    is_zero,
    messages,
)
from holdfast.server.hazelcast.collections.item_events import listener_messages
from holdfast.server.hazelcast.maps import many, nothing, number, truth, value_or_null
from holdfast.wire.hazelcast.layouts import Call


def _at_index(kind: StepKind) -> StepOf:
    return lambda call: CollectionStep(kind, call.index)


def _part(call: Call) -> CollectionStep:
    """Hazelcast writes the whole list as -1 to -1."""
    everything = call.index == ALL and call.end == ALL
    return CollectionStep(StepKind.SLICE, 0 if everything else call.index, max(ALL, call.end))


_ROWS = [
    Row(0x050100, "| name", StepKind.SIZE, number),
    Row(0x050200, "| name value", StepKind.CONTAINS, truth),
    Row(0x050300, "| name items", StepKind.CONTAINS, truth),
    Row(0x050400, "| name value", StepKind.ADD, truth),
    Row(0x050500, "| name value", StepKind.REMOVE, truth),
    Row(0x050600, "| name items", StepKind.ADD, truth),
    Row(0x050700, "| name items", StepKind.REMOVE_ALL, truth),
    Row(0x050800, "| name items", StepKind.RETAIN_ALL, truth),
    Row(0x050900, "| name", StepKind.CLEAR, nothing),
    Row(0x050A00, "| name", StepKind.ITEMS, many),
    Row(0x050D00, "| name", StepKind.SIZE, is_zero),
    Row(0x050E00, "index | name items", _at_index(StepKind.INSERT), in_bounds(truth)),
    Row(0x050F00, "index | name", _at_index(StepKind.GET), in_bounds(value_or_null)),
    Row(0x051000, "index | name value", _at_index(StepKind.REPLACE), in_bounds(value_or_null)),
    Row(0x051100, "index | name value", _at_index(StepKind.INSERT), in_bounds(nothing)),
    Row(0x051200, "index | name", _at_index(StepKind.REMOVE_AT), in_bounds(value_or_null)),
    Row(0x051300, "| name value", StepKind.LAST_INDEX_OF, number),
    Row(0x051400, "| name value", StepKind.INDEX_OF, number),
    Row(0x051500, "index end | name", _part, in_bounds(many)),
    Row(0x051600, "| name", StepKind.ITEMS, many),
    Row(0x051700, "index | name", lambda call: CollectionStep(StepKind.SLICE, call.index), in_bounds(many)),
]
LISTENERS = listener_messages(CollectionKind.LIST, 0x050B00, 0x050C00)
MESSAGES = messages(CollectionKind.LIST, _ROWS)
