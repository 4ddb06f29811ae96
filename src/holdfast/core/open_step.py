"""A step of a member that several messages or requests share.

Those of one read buffer share the end of a step, so that what they cause leaves in one message to each member. Example:
of five forwarded requests, three write. Their records leave in one `Replicate`, and the journal gets one group.
"""

from __future__ import annotations

from holdfast.core.events import ClientRequest, Received, StepEnded, TransactionAsked
from holdfast.core.messages import (
    Answer,
    Forward,
    ForwardFrames,
    FramesAnswer,
    Replicate,
    Replicated,
    ZoneForward,
)

SHARING = frozenset(
    {
        Replicate,
        Replicated,
        Forward,
        Answer,
        ForwardFrames,
        FramesAnswer,
        ClientRequest,
        TransactionAsked,
    }
)
"""The frequent messages and requests. None of them changes an assignment or the view, so each may find the former ones
with their end still to come, as it finds the writes of sessions.
"""
SHARING_EVENTS = (Received, ClientRequest, TransactionAsked)
"""The events that have `more`."""
REQUESTS = frozenset({ClientRequest, Forward, ZoneForward})
"""They may wait for other events of the turn, so that their effects leave together."""


class OpenStep:
    def __init__(self) -> None:
        self._kind: type | None = None
        """The step is open, and ends like one of this kind."""

    @property
    def is_open(self) -> bool:
        return self._kind is not None

    def admits(self, kind: type) -> bool:
        return self._kind is None or kind in SHARING or kind is StepEnded

    def add(self, kind: type) -> None:
        assert kind in SHARING, "rare messages find all steps ended"
        self._kind = self._combined(kind)

    def end(self, kind: type) -> type:
        """End it with an event of this kind. Returns the kind for which the member ends it."""
        ends_as, self._kind = self._combined(kind), None
        return ends_as

    def _combined(self, kind: type) -> type:
        """A step of requests alone ends like one of a request."""
        before = self._kind
        if before is None or (before in REQUESTS and kind is not StepEnded):
            return kind
        return before
