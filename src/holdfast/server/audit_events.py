"""Events for the audit log: logins, rejections, operator commands."""

from __future__ import annotations

from enum import StrEnum, unique

import msgspec

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
