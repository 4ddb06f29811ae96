"""Requests for CP groups, sessions and thread numbers, and the end of CP objects."""

from __future__ import annotations

from holdfast.core.model.cp import CpAnswer, CpKind, CpStep, CpStepKind
from holdfast.server.hazelcast.conversation import Conversation, RequestKind
from holdfast.server.hazelcast.cp.cp_requests import (
    CpRow,
    answer_of,
    canonical,
    check_cp,
    done,
    group_frames,
    group_of_name,
    long_number,
    messages,
    step_request,
    truth,
)
from holdfast.wire.hazelcast.hazelcast_frames import LONG, message, response
from holdfast.wire.hazelcast.layouts import Call, RequestLayout
from holdfast.wire.hazelcast.refusals import BAD_ARGUMENT, CallRefused

SERVICES = {
    "hz:raft:atomicLongService": CpKind.ATOMIC_LONG,
    "hz:raft:atomicRefService": CpKind.ATOMIC_REFERENCE,
    "hz:raft:countDownLatchService": CpKind.LATCH,
    "hz:raft:lockService": CpKind.LOCK,
    "hz:raft:semaphoreService": CpKind.SEMAPHORE,
}


def _create_group(talk: Conversation, call: Call) -> None:
    own, group = group_of_name(call.name)
    group = canonical(group)
    check_cp(talk, group, own)
    talk.send(message([response(call.kind + 1, call.correlation), *group_frames(group)]))


def _destroy(talk: Conversation, call: Call) -> None:
    kind = SERVICES.get(call.service)
    if kind is None:
        raise CallRefused(BAD_ARGUMENT, f"{call.service[:64]!r} is the service of no CP object")
    request = step_request(talk, call, CpStep(CpStepKind.DESTROY), kind)
    talk.execute(call, request, lambda value: done(call, answer_of(call, value)))


def _create_session(talk: Conversation, call: Call) -> None:
    chosen = talk.grid.collections.cp_settings
    step = CpStep(CpStepKind.CREATE_SESSION, chosen.session_ttl_ms, value=call.client_name.encode())

    def shown(call: Call, answer: CpAnswer) -> bytes:
        numbers = (answer.number, chosen.session_ttl_ms, chosen.heartbeat_ms)
        fixed = b"".join(map(LONG.pack, numbers))
        return message([response(call.kind + 1, call.correlation, fixed)])

    talk.execute(call, step_request(talk, call, step), lambda value: shown(call, answer_of(call, value)))


_ROWS = [
    CpRow(
        0x1F0200,
        "session | group",
        lambda call: CpStep(CpStepKind.CLOSE_SESSIONS, sessions=[call.session]),
        truth,
    ),
    CpRow(0x1F0300, "session | group", lambda call: CpStep(CpStepKind.HEARTBEAT, session=call.session), done),
    CpRow(0x1F0400, "| group", lambda _: CpStep(CpStepKind.NEW_THREAD), long_number),
]
MESSAGES = {
    **messages(_ROWS),
    0x1E0100: RequestKind(RequestLayout("| name"), _create_group),
    0x1E0200: RequestKind(RequestLayout("| group service name"), _destroy),
    0x1F0100: RequestKind(RequestLayout("| group client_name"), _create_session),
}
