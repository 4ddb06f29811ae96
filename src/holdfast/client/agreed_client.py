"""Operator requests to the metastore, through any member."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from holdfast.client.connection import Broken, Connection, Credentials
from holdfast.core.model.ids import Address
from holdfast.core.model.metastore_questions import (
    MetastoreAnswer,
    MetastoreQuestion,
    PutAsked,
    RemoveAsked,
    ResetAsked,
)
from holdfast.errors import (
    Denied,
    NotReady,
    Refused,
    RequestError,
    TooLarge,
    Unknown,
    Unreachable,
    Unsupported,
)
from holdfast.wire import own

CONNECT_S = 5.0
ANSWER_S = 15.0
"""A member gives up on the metastore after ten seconds and reports that."""

_ERRORS: dict[str, type[RequestError]] = {
    kind.__name__: kind for kind in (Denied, NotReady, Refused, TooLarge, Unknown, Unsupported)
}
Says = TypeVar("Says", bound=own.MetastoreSays)


def ask_metastore(
    addresses: list[Address], credentials: Credentials, question: MetastoreQuestion
) -> MetastoreAnswer:
    """Read the metastore, or change a key in it. Raises Refused and its kinds (certainly not applied), or Unknown."""
    changes = isinstance(question, PutAsked | RemoveAsked | ResetAsked)
    says = _asked(
        addresses,
        credentials,
        lambda number: own.AskMetastore(number, question),
        own.MetastoreSays,
        changes=changes,
    )
    _raise_what_failed(says.answer)
    return says.answer


def _raise_what_failed(answer: MetastoreAnswer) -> None:
    if answer.failed:
        raise _ERRORS.get(answer.failed, Refused)(answer.why)


def _asked(
    addresses: list[Address],
    credentials: Credentials,
    question: Callable[[int], own.Question],
    kind: type[Says],
    *,
    changes: bool,
) -> Says:
    """The answer of the first member that can be asked. A change is sent only once."""
    failures: list[str] = []
    for address in addresses:
        try:
            connection = Connection(address, credentials, CONNECT_S)
        except Broken as broken:
            failures.append(str(broken))
            continue
        try:
            number = connection.next_number()
            connection.post(question(number))
            if connection.wait(number, ANSWER_S):
                return connection.collect(number, kind)
            failures.append(f"{address} has not answered for {ANSWER_S:g} s")
        except Broken as broken:
            failures.append(str(broken))
        finally:
            connection.close()
        if changes:
            raise Unknown(f"{failures[-1]}: it may have been done, or not; look before you do it again")
    raise Unreachable("no member answers: " + "; ".join(failures))
