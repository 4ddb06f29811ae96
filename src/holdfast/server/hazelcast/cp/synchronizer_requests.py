"""Requests for locks, semaphores and latches. Those that acquire something may wait for it."""

from __future__ import annotations

from collections.abc import Generator
from fnmatch import fnmatchcase

from msgspec.structs import replace

from holdfast.core.model.collections import FOREVER_MS
from holdfast.core.model.cp import CpAnswer, CpFate, CpStep, CpStepKind, decode_answer
from holdfast.core.model.operations import Request, Value
from holdfast.server.hazelcast.collections.waiting_requests import ask_until
from holdfast.server.hazelcast.conversation import Conversation, RequestKind
from holdfast.server.hazelcast.cp.cp_requests import (
    CpRow,
    CpStepOf,
    Shown,
    answer_of,
    check_cp,
    done,
    group_of_name,
    long_number,
    messages,
    number,
    step_request,
    truth,
    uid_of,
)
from holdfast.wire.hazelcast.hazelcast_frames import INT, LONG, message, response
from holdfast.wire.hazelcast.layouts import Call, RequestLayout


def _wait(talk: Conversation, call: Call, step: CpStep, timeout_ms: int, answer: Shown) -> None:
    def request(wait_ms: int) -> Request:
        return step_request(talk, call, replace(step, wait_ms=wait_ms))

    ask_until(talk, call, request, timeout_ms, lambda _, value: answer(call, answer_of(call, value)), _lacks)


def _lacks(value: Value) -> bool:
    assert isinstance(value, bytes), "steps on CP groups have answers"
    answer = decode_answer(value)
    return answer.fate is CpFate.DONE and not answer.number


def _of_thread(kind: CpStepKind) -> CpStepOf:
    return lambda call: CpStep(
        kind, call.count, session=call.session, thread=call.thread or 0, uid=uid_of(call)
    )


def _timeout_of(call: Call) -> int:
    return min(max(0, call.timeout_ms), FOREVER_MS)


# -- locks


_LOCK = _of_thread(CpStepKind.LOCK)


def _lock(talk: Conversation, call: Call) -> None:
    _wait(talk, call, _LOCK(call), FOREVER_MS, long_number)


def _try_lock(talk: Conversation, call: Call) -> None:
    _wait(talk, call, _LOCK(call), _timeout_of(call), long_number)


def _ownership(call: Call, answer: CpAnswer) -> bytes:
    fence, count, session, thread = answer.numbers
    fixed = LONG.pack(fence) + INT.pack(count) + LONG.pack(session) + LONG.pack(thread)
    return message([response(call.kind + 1, call.correlation, fixed)])


# -- semaphores


def _acquire(talk: Conversation, call: Call) -> None:
    endless = call.timeout_ms < 0
    step = _of_thread(CpStepKind.ACQUIRE)(call)
    _wait(talk, call, step, FOREVER_MS if endless else _timeout_of(call), truth)


def _is_sessionless(talk: Conversation, call: Call) -> None:
    own, group = group_of_name(call.name)
    check_cp(talk, group, own)
    patterns = talk.grid.collections.cp_settings.sessionless_semaphores
    sessionless = any(fnmatchcase(own, pattern) for pattern in patterns)
    talk.send(truth(call, CpAnswer(number=int(sessionless))))


# -- latches


def _await(talk: Conversation, call: Call) -> None:
    """Ask for the round first: a later one ends the wait, too (cp/T-2)."""

    def counted(value: Value) -> Generator[None, None, None]:
        step = CpStep(CpStepKind.AWAIT, answer_of(call, value).number)
        yield
        _wait(talk, call, step, _timeout_of(call), truth)

    talk.execute(call, step_request(talk, call, CpStep(CpStepKind.GET_ROUND)), counted)


_OWNER = "session thread invocation"
_ROWS = [
    CpRow(0x070300, f"{_OWNER} | group name", _of_thread(CpStepKind.UNLOCK), truth),
    CpRow(0x070400, "| group name", lambda _: CpStep(CpStepKind.OWNERSHIP), _ownership),
    CpRow(0x0B0100, "count | group name", lambda call: CpStep(CpStepKind.TRY_SET_COUNT, call.count), truth),
    CpRow(
        0x0B0300,
        "invocation count | group name",
        lambda call: CpStep(CpStepKind.COUNT_DOWN, call.count, uid=uid_of(call)),
        done,
    ),
    CpRow(0x0B0400, "| group name", lambda _: CpStep(CpStepKind.GET_COUNT), number),
    CpRow(0x0B0500, "| group name", lambda _: CpStep(CpStepKind.GET_ROUND), number),
    CpRow(0x0C0100, "count | group name", lambda call: CpStep(CpStepKind.INIT_PERMITS, call.count), truth),
    CpRow(0x0C0300, f"{_OWNER} count | group name", _of_thread(CpStepKind.RELEASE), truth),
    CpRow(0x0C0400, f"{_OWNER} | group name", _of_thread(CpStepKind.DRAIN), number),
    CpRow(0x0C0500, f"{_OWNER} count | group name", _of_thread(CpStepKind.CHANGE_PERMITS), truth),
    CpRow(0x0C0600, "| group name", lambda _: CpStep(CpStepKind.AVAILABLE), number),
]
MESSAGES = {
    **messages(_ROWS),
    0x070100: RequestKind(RequestLayout(f"{_OWNER} | group name"), _lock),
    0x070200: RequestKind(RequestLayout(f"{_OWNER} timeout_ms | group name"), _try_lock),
    0x0B0200: RequestKind(RequestLayout("invocation timeout_ms | group name"), _await),
    0x0C0200: RequestKind(RequestLayout(f"{_OWNER} count timeout_ms | group name"), _acquire),
    0x0C0700: RequestKind(RequestLayout("| name"), _is_sessionless),
}
