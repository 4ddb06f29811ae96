"""Pending requests: receivers, and limits (routing/R-6)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from holdfast.config import Settings
from holdfast.core.effects import Complete
from holdfast.core.messages import Answer
from holdfast.core.model.decisions import Wait
from holdfast.core.model.ids import MemberId, Token
from holdfast.core.model.operations import Outcome, Request, Status
from holdfast.core.model.timer_name import TimerName
from holdfast.core.outbox import Outbox

REQUEST_BYTES = 500
FULL = Outcome(
    Status.NOT_READY,
    None,
    "more requests wait here than limits.waiting_requests and limits.waiting_bytes allow; nothing was done",
)


@dataclass(frozen=True, slots=True)
class Peer:
    """A member that has forwarded a request, and its ticket there."""

    member: MemberId
    ticket: int


@dataclass(frozen=True, slots=True)
class OwnShare:
    ticket: int


class OutcomeReceiver(Protocol):
    """A machine of this member that makes requests itself."""

    def answered(self, ticket: int, outcome: Outcome) -> None:
        """Called in the middle of other machines' steps: keep the outcome until they are done."""


@dataclass(frozen=True, slots=True)
class Within:
    """A machine of this member, and its ticket."""

    receiver: OutcomeReceiver
    ticket: int
    here: bool = False
    """It depends on what only this member knows, so no other one may carry it out: it is answered instead."""


Asker = Token | Peer | Within
"""A session (token of its request), another member, or a machine of this member."""


def asks_again(asker: Asker) -> bool:
    """Whether the asker decides itself where its request goes if it was not applied here."""
    return isinstance(asker, Peer) or (isinstance(asker, Within) and asker.here)


def answer(out: Outbox, asker: Asker, outcome: Outcome) -> None:
    if isinstance(asker, int):
        out.effects.append(Complete(asker, outcome))
    elif isinstance(asker, Within):
        asker.receiver.answered(asker.ticket, outcome)
    else:
        out.send(asker.member, Answer(asker.ticket, outcome, []))


class Parked:
    __slots__ = (
        "asker",
        "deadline_ns",
        "doubt",
        "in_decision",
        "number",
        "request",
        "since_ns",
        "size",
        "ticket",
        "until_ns",
        "wait",
        "why",
        "withdrawn",
    )

    def __init__(self, request: Request, asker: Asker, deadline_ns: int) -> None:
        self.request = request
        self.asker = asker
        self.deadline_ns = deadline_ns
        self.doubt = ""
        """Why it may have been applied already; empty: it has not been."""
        self.why = ""
        self.until_ns = 0
        """It waits for a change of its partition; 0: it does not."""
        self.wait: Wait | None = None
        self.since_ns = 0
        """Beginning of that wait."""
        self.size = 0
        """Bytes counted in `Waiting`; 0: not counted."""
        self.number = 0
        """Place in the line of those that wait for the same collection; 0: it has none."""
        self.in_decision = False
        """It was taken from its line, and is being decided."""
        self.ticket = 0
        """Under which a step of a collection was sent to another member; 0: it is not there."""
        self.withdrawn = False
        """Its client has gone (routing/R-21)."""

    def comes_from(self, members: set[MemberId]) -> bool:
        return isinstance(self.asker, Peer) and self.asker.member in members


class Waiting:
    """Limits of waiting requests; tickets for requests to other members; their common timer."""

    def __init__(self, settings: Settings, out: Outbox) -> None:
        self._out = out
        self._requests_most = settings.limits.waiting_requests
        self._bytes_most = settings.limits.bounded(settings.limits.waiting_bytes)
        self._requests = 0
        self._bytes = 0
        self.tickets = 0
        """Requests and shares that were sent to other members or done here under a ticket."""
        self._numbered = 0
        self._timer_ns = 0
        """Delay of the timer as it was set last; 0: not set."""

    @property
    def full(self) -> bool:
        return self._requests >= self._requests_most

    def enter(self, size: int, count: int = 1) -> bool:
        """Count `count` more waiting requests; returns False if there is no room."""
        if self._requests + count > self._requests_most or self._bytes + size > self._bytes_most:
            return False
        self._requests += count
        self._bytes += size
        assert self._requests <= self._requests_most, (
            "the number of waiting requests is bounded (routing/R-6)"
        )
        assert self._bytes <= self._bytes_most, "the bytes of waiting requests are bounded (routing/R-6)"
        return True

    def leave(self, size: int, count: int = 1) -> None:
        assert self._requests >= count and self._bytes >= size, "only a counted request leaves"
        self._requests -= count
        self._bytes -= size
        assert self._requests or not self._bytes, "without requests no bytes are counted"

    def ticket(self) -> int:
        self.tickets += 1
        return self.tickets

    def number(self, count: int = 1) -> int:
        """The number of the first of the next requests that get an id: unique among all routers (routing/R-13)."""
        first = self._numbered + 1
        self._numbered += count
        return first

    def look_in(self, after_ns: int) -> None:
        """Look at what waits after this time at the latest."""
        assert after_ns > 0, "a timer is set for a later moment"
        if not self._timer_ns or after_ns < self._timer_ns:
            self._timer_ns = after_ns
            self._out.timer(TimerName.ROUTE, after_ns)

    def looked(self) -> None:
        self._timer_ns = 0


def size_of(request: Request) -> int:
    size = REQUEST_BYTES + len(request.key) + len(request.value) + len(request.expected)
    return size + sum(map(len, request.items))
