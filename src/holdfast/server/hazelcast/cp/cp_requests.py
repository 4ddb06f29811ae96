"""Common parts of requests for CP objects: groups, steps, answers and errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from msgspec.structs import replace

from holdfast.core.model.cp import (
    DEFAULT_GROUP,
    HELD_OBJECTS_MAX,
    HOLDERS_MAX,
    NAME_MAX,
    SESSIONS_MAX,
    CpAnswer,
    CpFate,
    CpKind,
    CpStep,
    cp_request,
    decode_answer,
)
from holdfast.core.model.levels import STRUCTURES
from holdfast.core.model.operations import Request, Value
from holdfast.server.hazelcast.conversation import Conversation, Handler, RequestKind
from holdfast.wire.hazelcast.hazelcast_frames import (
    BEGIN,
    END,
    INT,
    LONG,
    data,
    frame,
    message,
    response,
    text,
)
from holdfast.wire.hazelcast.layouts import Call, RequestLayout
from holdfast.wire.hazelcast.refusals import (
    BAD_ARGUMENT,
    BAD_STATE,
    DESTROYED,
    LOCK_LIMIT,
    NOT_OWNER,
    SESSION_EXPIRED,
    WAIT_CANCELLED,
    CallRefused,
    ErrorCode,
)

RESERVED_GROUP = "metadata"
_GROUP_NUMBERS = LONG.pack(0) + LONG.pack(0)
"""Seed and id of a group, which Hazelcast numbers. Here its name is enough, because no group is ever destroyed."""

CpStepOf = Callable[[Call], CpStep]
Shown = Callable[[Call, CpAnswer], bytes]


class CpRow(NamedTuple):
    """One kind of request that does not wait."""

    kind: int
    layout: str
    step: CpStepOf
    answer: Shown


_TOO_MANY = (
    f"a group has at most {SESSIONS_MAX} sessions, a semaphore {HOLDERS_MAX} sessions that hold permits, and a "
    f"session holds at most {HELD_OBJECTS_MAX} objects"
)
_REFUSED: dict[CpFate, tuple[ErrorCode, str]] = {
    CpFate.DESTROYED: (DESTROYED, "the object was destroyed, and cannot be used again"),
    CpFate.NO_SESSION: (SESSION_EXPIRED, "the session is closed"),
    CpFate.CANCELLED: (WAIT_CANCELLED, "the call was done before, and what it acquired has been released"),
    CpFate.NOT_OWNER: (NOT_OWNER, "the thread does not own the lock"),
    CpFate.LACKS_PERMITS: (BAD_STATE, "the session does not hold so many permits"),
    CpFate.BAD_NUMBER: (BAD_ARGUMENT, "the number of permits or the count is out of bounds"),
    CpFate.TOO_MANY: (BAD_STATE, _TOO_MANY),
    CpFate.TOO_OFTEN: (LOCK_LIMIT, "the thread holds the lock as often as it may"),
}


def group_of_name(name: str) -> tuple[str, str]:
    """Name of the object and of the group in `OBJECT@GROUP`. Raises CallRefused."""
    own, at, group = (part.strip() for part in name.partition("@"))
    if "@" in group:
        raise CallRefused(BAD_ARGUMENT, "a CP object has one group: write NAME@GROUP")
    if at and not group:
        raise CallRefused(BAD_ARGUMENT, "the name of a CP group is not empty")
    return own, group or DEFAULT_GROUP


def check_cp(talk: Conversation, group: str, name: str | None = None) -> None:
    """Raises CallRefused if there cannot be such a group, or object, in this cluster."""
    if talk.grid.level < STRUCTURES:
        raise CallRefused(
            BAD_STATE,
            f"CP objects need feature level {STRUCTURES} of the cluster, which has {talk.grid.level}: when all members "
            "run a build that can do it, an operator raises it with `holdfast cluster upgrade`",
        )
    if group.lower() == RESERVED_GROUP:
        raise CallRefused(BAD_ARGUMENT, f"no object can be in the group {RESERVED_GROUP!r}")
    for what, given in (("group", group), ("object", name)):
        if given is not None and not 1 <= len(given) <= NAME_MAX:
            raise CallRefused(BAD_ARGUMENT, f"the name of a CP {what} has 1 to {NAME_MAX} characters")


def step_request(talk: Conversation, call: Call, step: CpStep, kind: CpKind | None = None) -> Request:
    """`kind`: of the object to destroy."""
    group = canonical(call.group)
    check_cp(talk, group, call.name or None)
    step = replace(step, client=talk.client)
    return cp_request(group, talk.grid.partition_count, step, call.name, kind)


def canonical(group: str) -> str:
    return DEFAULT_GROUP if group.lower() == DEFAULT_GROUP else group


def uid_of(call: Call) -> bytes:
    """Raises CallRefused."""
    if call.invocation[0]:
        raise CallRefused(BAD_ARGUMENT, "the call has no id")
    return call.invocation[1:]


def answer_of(call: Call, value: Value) -> CpAnswer:
    """Raises CallRefused if the step was not done."""
    assert isinstance(value, bytes), "steps on CP groups have answers"
    answer = decode_answer(value)
    if answer.fate is not CpFate.DONE:
        code, reason = _REFUSED[answer.fate]
        raise CallRefused(code, f"{reason}: {call.name[:64]!r} in CP group {call.group[:64]!r}")
    return answer


def messages(rows: list[CpRow]) -> dict[int, RequestKind]:
    return {row.kind: RequestKind(RequestLayout(row.layout), _handler(row)) for row in rows}


def _handler(row: CpRow) -> Handler:
    def handle(talk: Conversation, call: Call) -> None:
        request = step_request(talk, call, row.step(call))
        talk.execute(call, request, lambda value: row.answer(call, answer_of(call, value)))

    return handle


# -- responses


def done(call: Call, _: CpAnswer) -> bytes:
    return message([response(call.kind + 1, call.correlation)])


def truth(call: Call, answer: CpAnswer) -> bytes:
    return message([response(call.kind + 1, call.correlation, bytes((answer.number != 0,)))])


def number(call: Call, answer: CpAnswer) -> bytes:
    """32 bits."""
    return message([response(call.kind + 1, call.correlation, INT.pack(answer.number))])


def long_number(call: Call, answer: CpAnswer) -> bytes:
    return message([response(call.kind + 1, call.correlation, LONG.pack(answer.number))])


def value_or_null(call: Call, answer: CpAnswer) -> bytes:
    return message([response(call.kind + 1, call.correlation), data(answer.value)])


def group_frames(group: str) -> list[bytes]:
    return [BEGIN, frame(_GROUP_NUMBERS), text(group), END]
