"""Requests for queues, lists, sets and multimaps in transactions."""

from __future__ import annotations

from holdfast.core.model.collections import FOREVER_MS, CollectionKind, CollectionStep, StepKind
from holdfast.core.model.operations import Request
from holdfast.core.model.transaction_orders import OperateIn, TransactionAnswer
from holdfast.server.hazelcast.collections.collection_requests import max_size, step_request
from holdfast.server.hazelcast.collections.multimap_requests import keyed_request, size_request
from holdfast.server.hazelcast.conversation import Conversation, Handler, Made, RequestKind
from holdfast.server.hazelcast.maps import Answering, many, number, truth, value_or_null
from holdfast.server.hazelcast.transactional_maps import check_done, transaction_of
from holdfast.wire.hazelcast.layouts import Call, RequestLayout

_TAKE_WAITS_MS = FOREVER_MS
"""Until the transaction ends."""


def _in(kind: CollectionKind, step: StepKind, answer: Answering, wait_ms: int = 0) -> Handler:
    """`wait_ms`: at least so long, or the timeout of the request."""

    def handle(talk: Conversation, call: Call) -> None:
        limit = max_size(talk, kind, call.name) if step is StepKind.ADD else 0
        waits = min(FOREVER_MS, max(wait_ms, call.timeout_ms, 0))
        items = [call.value] if step in (StepKind.ADD, StepKind.REMOVE) else []
        chosen = CollectionStep(step, wait_ms=waits, max_size=limit)
        _operate(talk, call, step_request(talk, kind, call.name, chosen, items), answer)

    return handle


def _operate(talk: Conversation, call: Call, request: Request, answer: Answering) -> None:
    def made(told: TransactionAnswer) -> Made:
        check_done(told)
        return answer(call, told.value)

    talk.transact(call, OperateIn(transaction_of(talk, call), request), made)


def _in_multimap(step: StepKind, answer: Answering) -> Handler:
    return lambda talk, call: _operate(talk, call, keyed_request(talk, call, step), answer)


def _multimap_size(talk: Conversation, call: Call) -> None:
    _operate(talk, call, size_request(talk, call), number)


_ROWS: list[tuple[int, str, Handler]] = [
    (0x0F0100, "transaction thread | name key value", _in_multimap(StepKind.ADD, truth)),
    (0x0F0200, "transaction thread | name key", _in_multimap(StepKind.ITEMS, many)),
    (0x0F0300, "transaction thread | name key", _in_multimap(StepKind.DRAIN, many)),
    (0x0F0400, "transaction thread | name key value", _in_multimap(StepKind.REMOVE, truth)),
    (0x0F0500, "transaction thread | name key", _in_multimap(StepKind.SIZE, number)),
    (0x0F0600, "transaction thread | name", _multimap_size),
    (0x100100, "transaction thread | name value", _in(CollectionKind.SET, StepKind.ADD, truth)),
    (0x100200, "transaction thread | name value", _in(CollectionKind.SET, StepKind.REMOVE, truth)),
    (0x100300, "transaction thread | name", _in(CollectionKind.SET, StepKind.SIZE, number)),
    (0x110100, "transaction thread | name value", _in(CollectionKind.LIST, StepKind.ADD, truth)),
    (0x110200, "transaction thread | name value", _in(CollectionKind.LIST, StepKind.REMOVE, truth)),
    (0x110300, "transaction thread | name", _in(CollectionKind.LIST, StepKind.SIZE, number)),
    (0x120100, "transaction thread timeout_ms | name value", _in(CollectionKind.QUEUE, StepKind.ADD, truth)),
    (
        0x120200,
        "transaction thread | name",
        _in(CollectionKind.QUEUE, StepKind.POLL, value_or_null, _TAKE_WAITS_MS),
    ),
    (
        0x120300,
        "transaction thread timeout_ms | name",
        _in(CollectionKind.QUEUE, StepKind.POLL, value_or_null),
    ),
    (
        0x120400,
        "transaction thread timeout_ms | name",
        _in(CollectionKind.QUEUE, StepKind.PEEK, value_or_null),
    ),
    (0x120500, "transaction thread | name", _in(CollectionKind.QUEUE, StepKind.SIZE, number)),
]
MESSAGES = {kind: RequestKind(RequestLayout(layout), handler) for kind, layout, handler in _ROWS}
