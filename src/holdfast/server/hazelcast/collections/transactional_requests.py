"""Requests for queues, lists and sets in transactions."""

from __future__ import annotations

from holdfast.core.model.collections import FOREVER_MS, CollectionKind, CollectionStep, StepKind
from holdfast.core.model.transaction_orders import OperateIn, TransactionAnswer
from holdfast.server.hazelcast.collections.collection_requests import max_size, step_request
from holdfast.server.hazelcast.conversation import Conversation, Handler, Made, RequestKind
from holdfast.server.hazelcast.maps import Answering, number, truth, value_or_null
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
        request = step_request(
            talk, kind, call.name, CollectionStep(step, wait_ms=waits, max_size=limit), items
        )

        def made(told: TransactionAnswer) -> Made:
            check_done(told)
            return answer(call, told.value)

        talk.transact(call, OperateIn(transaction_of(talk, call), request), made)

    return handle


_ROWS: list[tuple[int, str, Handler]] = [
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
