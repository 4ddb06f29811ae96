"""The requests of one connection that other members serve: they leave as frames, and the session completes the rest.

The owner answers with the bytes for the client. It skips what its data lane cannot serve at once (routing/R-14), and
may leave before it answers (routing/R-15): then the session executes these requests outside the data lane, in order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from holdfast.core.model.forwarded_frames import ForwardedDone, ForwardedPart, OutgoingFrames
from holdfast.errors import TooLarge
from holdfast.server.flow import REQUEST_UNITS
from holdfast.server.frame_forwards import FrameForwards
from holdfast.server.hazelcast.conversation import Conversation, RequestKind
from holdfast.server.hazelcast.keyed_requests import READS_COUNTED, changed_nothing
from holdfast.server.hazelcast.lane_tally import LaneTally
from holdfast.server.hazelcast.names import name_of
from holdfast.wire.hazelcast.hazelcast_frames import REQUEST, RESPONSE, messages_in
from holdfast.wire.hazelcast.refusals import AGAIN, INDETERMINATE, UNKNOWN_OUTCOME, CallRefused, error


def unknown_response(answer: bytes, why: str) -> bytes:
    """The error instead of a withheld response. A request that changed nothing may be repeated."""
    correlation = RESPONSE.unpack_from(answer)[3]
    if changed_nothing(answer):
        return error(correlation, AGAIN, f"nothing was changed; ask again: {why}")
    return error(correlation, INDETERMINATE, f"{UNKNOWN_OUTCOME} ({why})")


class ForwardedRequests:
    def __init__(
        self,
        talk: Conversation,
        kinds: Mapping[int, RequestKind],
        forwards: FrameForwards | None,
        tally: LaneTally | None,
        execute: Callable[[bytes, int, int], None],
    ) -> None:
        """`kinds`: all requests of the protocol. `forwards`: None if none are forwarded. `execute`: the session's
        way for a request in these bytes.
        """
        self._talk = talk
        self._kinds = kinds
        self.forwards = forwards
        self._tally = tally
        self._execute = execute

    def send(self, departing: list[OutgoingFrames]) -> None:
        """Send these requests to their owners, before any later request of this connection. Empties the list."""
        forwards, talk = self.forwards, self._talk
        assert forwards is not None, "the lane forwards through it"
        for each in departing:
            part = each.take()
            talk.flow.expected += part.expected
            began_ns = talk.grid.now_ns() if self._tally is not None else 0
            forwards.forward(part, partial(self._on_done, part, began_ns))
        departing.clear()

    def _on_done(self, part: ForwardedPart, began_ns: int, done: ForwardedDone) -> None:
        talk = self._talk
        talk.flow.expected -= part.expected
        assert talk.flow.expected >= 0, "each part is settled once"
        if self._tally is not None:
            self._count(self._tally, part, talk.grid.now_ns() - began_ns, done)
        if talk.gone:
            return
        talk.out += done.answers
        for answer in messages_in(done.withheld):
            talk.out += unknown_response(answer, done.why)
        if done.failed:
            for place, whole in enumerate(messages_in(part.frames)):
                self._fail(whole, done.why, reads=part.kinds[place] < READS_COUNTED)
        if done.again:
            self._execute_again(part, done)
        if not talk.busy:
            talk.flush()

    def _count(self, tally: LaneTally, part: ForwardedPart, took_ns: int, done: ForwardedDone) -> None:
        """Count the requests that were served; those in `again` are counted where they are executed."""
        kinds = part.kinds
        if done.again:
            left = set(done.again)
            kinds = bytes(kind for place, kind in enumerate(kinds) if place not in left)
        unknown = 0
        if done.failed:
            unknown = sum(kind >= READS_COUNTED for kind in kinds)
        elif done.withheld:
            unknown = sum(not changed_nothing(each) for each in messages_in(done.withheld))
        tally.settle_forwarded(kinds, took_ns, unknown)

    def _execute_again(self, part: ForwardedPart, done: ForwardedDone) -> None:
        messages = list(messages_in(part.frames))
        for place in done.again:
            if self._talk.gone or not 0 <= place < len(messages):
                return
            whole = messages[place]
            if not done.doubtful or part.kinds[place] < READS_COUNTED:
                self._execute(whole, 0, len(whole))
            elif request_id := done.id_of(place):
                self._execute_in_doubt(whole, request_id, done.why)
            else:
                self._fail(whole, done.why, reads=False)

    def _execute_in_doubt(self, whole: bytes, request_id: bytes, why: str) -> None:
        """Execute a write that another member may have applied: its response is never a rejection (routing/R-4)."""
        talk = self._talk
        kind, correlation = REQUEST.unpack_from(whole)[2:4]
        known_kind = self._kinds[kind]
        talk.doubtful = (request_id, why)
        talk.handed_over = False
        talk.flow.spent += REQUEST_UNITS
        try:
            known_kind.handler(talk, known_kind.layout.decode(whole, 0, len(whole)))
        except (CallRefused, TooLarge) as refused:
            talk.reject(correlation, INDETERMINATE, f"{UNKNOWN_OUTCOME} ({why}; {refused})")
        except Exception as error:  # noqa: BLE001  (see `Conversation.handle_error`)
            talk.handle_error(name_of(kind), correlation, error)
        finally:
            talk.doubtful = None

    def _fail(self, whole: bytes, why: str, *, reads: bool) -> None:
        correlation = REQUEST.unpack_from(whole)[3]
        if reads:
            self._talk.out += error(correlation, AGAIN, why)
        else:
            self._talk.out += error(correlation, INDETERMINATE, f"{UNKNOWN_OUTCOME} ({why})")
