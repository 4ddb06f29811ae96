"""Requests for queues."""

from __future__ import annotations

from holdfast.core.model.collections import FOREVER_MS, CollectionKind, CollectionStep, StepKind
from holdfast.core.model.operations import Value
from holdfast.server.hazelcast.collections.collection_requests import (
    ALL,
    Row,
    execute_waiting,
    is_zero,
    max_size,
    messages,
    step_request,
)
from holdfast.server.hazelcast.collections.item_events import listener_messages
from holdfast.server.hazelcast.conversation import Conversation, RequestKind
from holdfast.server.hazelcast.maps import Answering, many, nothing, number, truth, value_or_null
from holdfast.wire.hazelcast.layouts import Call, RequestLayout

QUEUE = CollectionKind.QUEUE
UNLIMITED = 0x7FFF_FFFF


def _offer(talk: Conversation, call: Call) -> None:
    _add(talk, call, max(0, call.timeout_ms), truth)


def _put(talk: Conversation, call: Call) -> None:
    _add(talk, call, FOREVER_MS, nothing)


def _add(talk: Conversation, call: Call, timeout_ms: int, answer: Answering) -> None:
    step = CollectionStep(StepKind.ADD, max_size=max_size(talk, QUEUE, call.name))
    execute_waiting(talk, call, QUEUE, step, [call.value], timeout_ms, answer)


def _poll(talk: Conversation, call: Call) -> None:
    execute_waiting(
        talk, call, QUEUE, CollectionStep(StepKind.POLL), (), max(0, call.timeout_ms), value_or_null
    )


def _take(talk: Conversation, call: Call) -> None:
    execute_waiting(talk, call, QUEUE, CollectionStep(StepKind.POLL), (), FOREVER_MS, value_or_null)


def _remaining_capacity(talk: Conversation, call: Call) -> None:
    limit = max_size(talk, QUEUE, call.name)

    def answer(value: Value) -> bytes:
        assert isinstance(value, int), "a size is a number"
        return number(call, max(0, limit - value) if limit else UNLIMITED)

    talk.execute(call, step_request(talk, QUEUE, call.name, CollectionStep(StepKind.SIZE)), answer)


_ROWS = [
    Row(0x030300, "| name", StepKind.SIZE, number),
    Row(0x030400, "| name value", StepKind.REMOVE, truth),
    Row(0x030700, "| name", StepKind.PEEK, value_or_null),
    Row(0x030800, "| name", StepKind.ITEMS, many),
    Row(0x030900, "| name", lambda call: CollectionStep(StepKind.DRAIN, end=ALL), many),
    Row(0x030A00, "end | name", lambda call: CollectionStep(StepKind.DRAIN, end=max(ALL, call.end)), many),
    Row(0x030B00, "| name value", StepKind.CONTAINS, truth),
    Row(0x030C00, "| name items", StepKind.CONTAINS, truth),
    Row(0x030D00, "| name items", StepKind.REMOVE_ALL, truth),
    Row(0x030E00, "| name items", StepKind.RETAIN_ALL, truth),
    Row(0x030F00, "| name", StepKind.CLEAR, nothing),
    Row(0x031000, "| name items", StepKind.ADD, truth),
    Row(0x031400, "| name", StepKind.SIZE, is_zero),
]
LISTENERS = listener_messages(QUEUE, 0x031100, 0x031200)
MESSAGES = {
    **messages(QUEUE, _ROWS),
    0x030100: RequestKind(RequestLayout("timeout_ms | name value"), _offer),
    0x030200: RequestKind(RequestLayout("| name value"), _put),
    0x030500: RequestKind(RequestLayout("timeout_ms | name"), _poll),
    0x030600: RequestKind(RequestLayout("| name"), _take),
    0x031300: RequestKind(RequestLayout("| name"), _remaining_capacity),
}
