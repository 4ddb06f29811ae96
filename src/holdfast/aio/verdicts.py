"""Decisions about failed requests: retry, or raise an error that says whether the request may have been applied.

This protocol has no request ids, so a member cannot recognize a repeated write. Only these are retried:

| failure | read | write |
|---|---|---|
| LineClosed: the request was not sent | retry | retry |
| error in NOT_APPLIED: the member rejected the request, e.g. because the partition moved | retry | retry |
| error in MAYBE_APPLIED | retry | Unknown |
| LineBroken: the connection ended after the request was sent | retry | Unknown |

Example: `put_if_absent("seat", "ann")` is applied, and the connection breaks before the answer. A second try would
return "ann", and this client would conclude that another one took the seat.
"""

from __future__ import annotations

from holdfast.aio.member_line import LineBroken, LineClosed
from holdfast.aio.member_views import MAYBE_APPLIED, NOT_APPLIED, NotAnswered, error_of
from holdfast.aio.request_forms import RequestForm
from holdfast.errors import HoldfastError, NotReady, ProtocolError, Unknown

MAYBE = "the request may or may not have been applied"
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.01, 1.0


def retry_reason(form: RequestForm, failed: HoldfastError) -> str:
    """Why the request may be retried. Raises the error for the caller (Refused, Unknown) if it must not be."""
    match failed:
        case LineClosed():
            return str(failed)
        case NotAnswered(code=code, reason=reason):
            if code in NOT_APPLIED or (form.reads and code in MAYBE_APPLIED):
                return reason
            raise error_of(code, reason) from None
        case LineBroken() | ProtocolError():
            if form.reads:
                return str(failed)
            raise Unknown(f"{failed}: {MAYBE}") from failed
        case _:
            raise failed


def in_words(failed: HoldfastError) -> HoldfastError:
    """The error to raise for a request that was not applied and is not retried."""
    if isinstance(failed, NotAnswered) and failed.code not in NOT_APPLIED:
        return error_of(failed.code, failed.reason)
    return NotReady(str(failed))


def pause_s(tries: int) -> float:
    """Seconds to wait before the next try."""
    return min(FIRST_PAUSE_S * 2.0 ** min(tries, 7), LONGEST_PAUSE_S)
