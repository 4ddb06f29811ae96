"""Decisions about failed requests: retry, or raise an error that says whether the request may have been applied.

This module is for both protocols: `Retries` counts pauses and patience of any request. The Hazelcast protocol has no
request ids, so a member cannot recognize a repeated write. Only these are retried (`retry_reason`):

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

from collections.abc import Callable

from holdfast.client_core.message_decoding import MAYBE_APPLIED, NOT_APPLIED, NotAnswered, error_of
from holdfast.client_core.request_forms import RequestForm
from holdfast.errors import HoldfastError, NotReady, ProtocolError, Unknown

MAYBE = "the request may or may not have been applied"
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.005, 0.5


class LineBroken(HoldfastError):
    """The connection ended while a request was in flight: the request may have been applied."""


class LineClosed(HoldfastError):
    """The connection had ended before the request was sent: the request was not applied."""


class WrongPort(LineBroken):
    """The address is not a client port, so a retry is useless."""


class Retries:
    """Pauses between the tries of one request: doubling up to `LONGEST_PAUSE_S`, until the patience is over.

    Example with a patience of 1 s: pauses of 5, 10, 20, 40, 80, 160 and 320 ms, then of 365 ms, and one last try.
    """

    __slots__ = ("_clock", "_deadline_s", "_patience_s", "_tries")

    def __init__(self, patience_s: float, clock: Callable[[], float]) -> None:
        self._patience_s = patience_s
        self._clock = clock
        self.progressed()

    def progressed(self) -> None:
        self._tries = 0
        self._deadline_s = self._clock() + self._patience_s

    def pause_s(self) -> float | None:
        """Before the next try; None: the patience is over."""
        left_s = self._deadline_s - self._clock()
        if left_s <= 0:
            return None
        pause_s: float = min(FIRST_PAUSE_S * 2.0 ** min(self._tries, 10), LONGEST_PAUSE_S)
        self._tries += 1
        return min(pause_s, left_s)


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
