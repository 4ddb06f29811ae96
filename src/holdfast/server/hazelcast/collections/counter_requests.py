"""Requests for PN counters, flake id generators and cardinality estimators: each is a few numbers in one partition."""

from __future__ import annotations

from struct import Struct
from typing import cast

from holdfast.core.collections.counter_steps import read_count
from holdfast.core.collections.id_steps import ID_STEP
from holdfast.core.model.collections import IDS_MAX, CollectionKind, CollectionStep, StepKind
from holdfast.core.model.operations import Value
from holdfast.server.hazelcast.collections.collection_requests import (
    Row,
    check_collection,
    messages,
    step_request,
)
from holdfast.server.hazelcast.conversation import Conversation, RequestKind
from holdfast.server.hazelcast.maps import long_number, nothing
from holdfast.wire.hazelcast.hazelcast_frames import INT, UUID, frame, message, response
from holdfast.wire.hazelcast.layouts import Call, RequestLayout
from holdfast.wire.hazelcast.refusals import BAD_ARGUMENT, CONSISTENCY_LOST, CallRefused

COUNTER, GENERATOR, ESTIMATOR = (
    CollectionKind.PN_COUNTER,
    CollectionKind.FLAKE_ID_GENERATOR,
    CollectionKind.CARDINALITY_ESTIMATOR,
)
REPLICAS = 0x7FFF_FFFF
"""Clients may send requests for a counter to any member."""
_REPLICA = UUID.pack(False, 0, 1)
"""Clients keep a version for each replica of a counter; here they know one replica, wherever the counter is."""
_COUNT = Struct("<qi")
_VERSION = Struct("<q")
_BATCH = Struct("<qqi")


def _counted(call: Call, value: Value) -> bytes:
    count, version = read_count(cast("bytes", value)) if value is not None else (0, -1)
    if version < call.version:
        raise CallRefused(
            CONSISTENCY_LOST,
            f"counter {call.name[:64]!r} has lost changes that this client has seen; nothing was changed",
        )
    if call.get_before:
        count = _wrapped(count - call.number)
    return message(
        [
            response(call.kind + 1, call.correlation, _COUNT.pack(count, REPLICAS)),
            frame(_REPLICA + _VERSION.pack(version)),
        ]
    )


def _wrapped(number: int) -> int:
    return (number + (1 << 63)) % (1 << 64) - (1 << 63)


def _replica_count(talk: Conversation, call: Call) -> None:
    check_collection(talk, COUNTER, call.name)
    talk.send(message([response(call.kind + 1, call.correlation, INT.pack(REPLICAS))]))


def _new_ids(talk: Conversation, call: Call) -> None:
    if not 1 <= call.count <= IDS_MAX:
        raise CallRefused(
            BAD_ARGUMENT, f"one request gets 1 to {IDS_MAX} ids, and this one wants {call.count}"
        )
    step = CollectionStep(StepKind.RESERVE_IDS, count=call.count)

    def answer(value: Value) -> bytes:
        batch = _BATCH.pack(cast("int", value), ID_STEP, call.count)
        return message([response(call.kind + 1, call.correlation, batch)])

    talk.execute(call, step_request(talk, GENERATOR, call.name, step), answer)


MESSAGES = {
    **messages(
        COUNTER,
        [
            Row(
                0x1D0100,
                "member | name version",
                lambda call: CollectionStep(StepKind.COUNT, end=call.version),
                _counted,
            ),
            Row(
                0x1D0200,
                "number get_before member | name version",
                lambda call: CollectionStep(StepKind.INCREASE, call.number, call.version),
                _counted,
            ),
        ],
    ),
    0x1D0300: RequestKind(RequestLayout("| name"), _replica_count),
    0x1C0100: RequestKind(RequestLayout("count | name"), _new_ids),
    **messages(
        ESTIMATOR,
        [
            Row(
                0x190100,
                "number | name",
                lambda call: CollectionStep(StepKind.OBSERVE, call.number),
                nothing,
            ),
            Row(0x190200, "| name", StepKind.ESTIMATE, long_number),
        ],
    ),
}
