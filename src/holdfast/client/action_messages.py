"""Actions and queries of operators on a connection (`holdfast.actions`)."""

from __future__ import annotations

import threading
from typing import Any

import msgspec

from holdfast.actions.operator_action import TIMEOUT_MS_MAX, OperatorAction
from holdfast.actions.show_status import ShowStatus
from holdfast.client.connection import Connection
from holdfast.core.model.member_status import MemberStatus
from holdfast.errors import Denied, NotReady, Refused, Standing, TooLarge, Unknown, Unsupported
from holdfast.wire import own

_REJECTIONS = {kind.__name__: kind for kind in (Denied, NotReady, TooLarge, Unsupported)}


def request_of(number: int, action: OperatorAction, timeout_s: float) -> own.Act:
    fields = msgspec.Raw(msgspec.msgpack.encode(action))
    return own.Act(number, action.declared.name, fields, min(round(timeout_s * 1000), TIMEOUT_MS_MAX))


# msgspec looks at the fields of a struct type when it is first decoded. Two threads that do so at once, as
# when all members are asked for their first status, would crash the process.
_DECODERS: dict[type[OperatorAction], msgspec.msgpack.Decoder[Any]] = {}
_lock = threading.Lock()


def _decoder(kind: type[OperatorAction]) -> msgspec.msgpack.Decoder[Any]:
    with _lock:
        if kind not in _DECODERS:
            _DECODERS[kind] = msgspec.msgpack.Decoder(kind.result)
        return _DECODERS[kind]


def value_of(action: OperatorAction, answer: own.Acted) -> Any:
    """None if the action has no answer. Raises as `check`; Unsupported if a member of another build answers
    other things.
    """
    check(answer)
    if action.result is None:
        return None
    try:
        return _decoder(type(action)).decode(answer.value)
    except msgspec.ValidationError as error:
        raise Unsupported(
            f"a member answers {action.declared.name} as another version of Holdfast does ({error}): ask it "
            "with the command of its version"
        ) from None


def check(answer: own.Acted) -> None:
    """Raises Refused or one of its kinds if the action has no effect, Standing if it was accepted but is not
    finished, Unknown if it may or may not have taken effect.
    """
    if answer.fate is own.Fate.REJECTED:
        raise _REJECTIONS.get(answer.error, Refused)(answer.message)
    if answer.fate is own.Fate.UNKNOWN:
        raise Unknown(answer.message)
    if answer.fate is own.Fate.ACCEPTED:
        raise Standing(
            f"{answer.message}. The command was accepted, and the cluster carries it out as soon as possible"
        )


def ask_on(connection: Connection, action: OperatorAction) -> Any:
    """Raises as `Connection.ask` and `check`."""
    request = request_of(connection.next_number(), action, action.declared.timeout_s)
    return value_of(action, connection.ask(request, own.Acted))


def ask_status(connection: Connection) -> MemberStatus:
    """Raises as `ask_on`."""
    status: MemberStatus = ask_on(connection, ShowStatus())
    return status
