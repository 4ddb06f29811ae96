"""What becomes of a request that got no answer of its kind: it is sent again, or the caller is told why not."""

from __future__ import annotations

from holdfast.aio.member_line import LineBroken, LineClosed
from holdfast.aio.member_views import MAYBE_APPLIED, NOT_APPLIED, NotAnswered, error_of
from holdfast.aio.request_forms import RequestForm
from holdfast.errors import HoldfastError, NotReady, ProtocolError, Unknown

MAYBE = "the request may or may not have been applied"
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.01, 1.0


def retry_reason(form: RequestForm, failed: HoldfastError) -> str:
    """Why a request is sent again. Raises Refused or Unknown if it must not be, and what is none of its failures."""
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
    """The error to raise for a request that is not sent again and has changed nothing."""
    if isinstance(failed, NotAnswered) and failed.code not in NOT_APPLIED:
        return error_of(failed.code, failed.reason)
    return NotReady(str(failed))


def pause_s(tries: int) -> float:
    """How long to wait after so many tries."""
    return min(FIRST_PAUSE_S * 2.0 ** min(tries, 7), LONGEST_PAUSE_S)
