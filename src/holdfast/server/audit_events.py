"""Events for the audit log: logins, rejections, operator commands."""

from __future__ import annotations

from collections.abc import Container
from enum import StrEnum, unique

import msgspec

from holdfast.core.model.transaction_orders import RollBackTransaction
from holdfast.core.model.transactions import TransactionId
from holdfast.wire import own

SHOWN_MAX = 500
"""Characters of one field; clients influence them."""


@unique
class AuditKind(StrEnum):
    LOGIN = "login"
    LOGIN_FAILED = "login failed"
    REFUSED = "refused"
    ORDER = "order"


class AuditEvent(msgspec.Struct, frozen=True, omit_defaults=True):
    event: AuditKind
    user: str
    address: str
    what: str = ""
    detail: str = ""

    def shortened(self) -> AuditEvent:
        cut = {
            name: text[:SHOWN_MAX] + "..."
            for name in ("user", "address", "what", "detail")
            if len(text := getattr(self, name)) > SHOWN_MAX
        }
        return msgspec.structs.replace(self, **cut) if cut else self


def order_of(question: own.Question, begun: Container[TransactionId]) -> str:
    """An operator command as text; empty for requests that only read, or change only entries. `begun`: transactions of
    this connection, whose end is not an operator command.
    """
    match question:
        case own.OrderTransaction(order=RollBackTransaction(transaction=transaction, why=why)) if (
            transaction not in begun
        ):
            return f"RollBackTransaction({transaction.hex()}, {why!r})"
        case _:
            return ""
