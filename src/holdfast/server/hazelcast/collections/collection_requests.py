"""Requests for collections of any kind: the step, its partition, and the response."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, cast

import msgspec

from holdfast.config import CollectionSettings
from holdfast.core.model.collections import (
    CollectionKind,
    CollectionStep,
    StepKind,
    encode_step,
    partition_of_name,
)
from holdfast.core.model.operations import Request, Value
from holdfast.server.flow import EXPECTED_LIST_SHARE, EXPECTED_SHARE
from holdfast.server.hazelcast.collections.waiting_requests import ask_until
from holdfast.server.hazelcast.conversation import Conversation, Handler, RequestKind
from holdfast.server.hazelcast.maps import Answering
from holdfast.wire.hazelcast.hazelcast_frames import message, response
from holdfast.wire.hazelcast.layouts import Call, RequestLayout
from holdfast.wire.hazelcast.refusals import BAD_ARGUMENT, BAD_STATE, OUT_OF_BOUNDS, CallRefused

_EXPECTED = {
    **dict.fromkeys((StepKind.PEEK, StepKind.GET, StepKind.REPLACE, StepKind.REMOVE_AT), EXPECTED_SHARE),
    **dict.fromkeys((StepKind.ITEMS, StepKind.SLICE, StepKind.DRAIN), EXPECTED_LIST_SHARE),
}
"""Estimated size of pending responses with items, as fractions of `limits.output_buffer_bytes`. Responses to requests
that wait count when they are made: estimates would stop a client that waits often from adding any item.
"""
ALL = -1
"""As the number of items to take, or as the end of a part of a list."""

StepOf = Callable[[Call], CollectionStep]


class Row(NamedTuple):
    """One kind of request."""

    kind: int
    layout: str
    step: StepKind | StepOf
    answer: Answering


def check_collection(talk: Conversation, kind: CollectionKind, name: str) -> None:
    """Raises CallRefused if there cannot be such a collection in this cluster."""
    if talk.grid.level < kind.level:
        raise CallRefused(
            BAD_STATE,
            f"{kind}s need feature level {kind.level} of the cluster, which has {talk.grid.level}: when all members "
            "run a build that can do it, an operator raises it with `holdfast cluster upgrade`",
        )
    if not 1 <= len(name) <= kind.name_max:
        raise CallRefused(BAD_ARGUMENT, f"the name of a {kind} has 1 to {kind.name_max} characters")


def step_request(
    talk: Conversation, kind: CollectionKind, name: str, step: CollectionStep, items: Sequence[bytes] = ()
) -> Request:
    check_collection(talk, kind, name)
    holder = kind.map_of(name)
    # Clients name the partition, too. Computed here, it is the same for all of them.
    partition = partition_of_name(name, talk.grid.partition_count)
    return Request(step.kind.op, holder, [partition], value=encode_step(step), items=list(items))


def max_size(talk: Conversation, kind: CollectionKind, name: str) -> int:
    """Largest number of items; 0: unlimited."""
    chosen = talk.grid.collections.settings(kind.map_of(name))
    return chosen.max_size if isinstance(chosen, CollectionSettings) else 0


def execute_waiting(
    talk: Conversation,
    call: Call,
    kind: CollectionKind,
    step: CollectionStep,
    items: Sequence[bytes],
    timeout_ms: int,
    answer: Answering,
) -> None:
    """Make a request until it succeeds, or `timeout_ms` are over (0: once; `FOREVER_MS`: without end)."""

    def request(wait_ms: int) -> Request:
        return step_request(talk, kind, call.name, msgspec.structs.replace(step, wait_ms=wait_ms), items)

    ask_until(talk, call, request, timeout_ms, answer)


def messages(kind: CollectionKind, rows: Sequence[Row]) -> dict[int, RequestKind]:
    """Requests that do not wait."""
    return {row.kind: RequestKind(RequestLayout(row.layout), _handler(kind, row)) for row in rows}


def _handler(kind: CollectionKind, row: Row) -> Handler:
    variable = row.layout.partition("|")[2].split()

    def handle(talk: Conversation, call: Call) -> None:
        step = CollectionStep(row.step) if isinstance(row.step, StepKind) else row.step(call)
        if step.kind in (StepKind.ADD, StepKind.INSERT):
            limit = max_size(talk, kind, call.name)
            step = CollectionStep(step.kind, step.index, max_size=limit)
        items = call.values if "items" in variable else [call.value] if "value" in variable else ()
        request = step_request(talk, kind, call.name, step, cast("list[bytes]", items))
        talk.execute(call, request, lambda value: row.answer(call, value), _EXPECTED.get(step.kind, 0))

    return handle


# -- responses


def is_zero(call: Call, value: Value) -> bytes:
    return message([response(call.kind + 1, call.correlation, bytes((value == 0,)))])


def in_bounds(answer: Answering) -> Answering:
    """Raises CallRefused for None: there is no such position."""

    def checked(call: Call, value: Value) -> object:
        if value is None:
            raise CallRefused(OUT_OF_BOUNDS, f"list {call.name[:64]!r} has no position {call.index}")
        return answer(call, value)

    return cast("Answering", checked)
