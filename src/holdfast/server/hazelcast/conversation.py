"""What the handlers of one connection share: the way out, the member behind it, and what to undo at last."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from holdfast.core.placement.key import partition_of
from holdfast.core.store.operations import READS, Outcome, Request, Status, Value
from holdfast.server.grid import Grid
from holdfast.server.hazelcast.frames import UUID
from holdfast.server.hazelcast.layouts import Call, Layout
from holdfast.server.hazelcast.names import name_of
from holdfast.server.hazelcast.refusals import (
    AGAIN,
    BAD_ARGUMENT,
    BAD_STATE,
    INDETERMINATE,
    UNKNOWN_OUTCOME,
    CallRefused,
    ErrorCode,
    error,
    refusal,
)

LISTENERS_MAX = 1000
"""Registrations of one connection at the same time."""

WAITING_MAX = 100_000
"""Requests of one connection that may wait for their answer at the same time."""


class Conversation:
    """The state of one connection, apart from bytes that are still coming in."""

    def __init__(
        self,
        grid: Grid,
        send: Callable[[bytes], None],
        close: Callable[[str], None],
        *,
        client_acks: bool = False,
    ) -> None:
        self.grid = grid
        self.client_acks = client_acks
        """Whether clients may wait for backups themselves."""
        self.known = False
        """Whether the client has authenticated."""
        self.client = b""
        """The client's UUID."""
        self.collects = False
        """Whether the client waits for backups itself: it has registered for what they tell, and that is allowed."""
        self.gone = False
        self.out: list[bytes] = []
        """Answers that leave together when the buffer that is being worked on is done."""
        self.busy = False
        """Whether a buffer is being worked on."""
        self.every_partition = list(range(grid.partition_count))
        self._send = send
        self._close = close
        self._undo: dict[bytes, Callable[[], object]] = {}
        self._registered = 0
        self._waiting = 0
        self.acts = False
        """Whether the request that is being answered has reached the member's own machinery: see `meet`."""

    # -- the way out

    def say(self, answer: bytes) -> None:
        """Send one message, together with the others of the same buffer."""
        if not self.gone:
            self.out.append(answer)
            if not self.busy:
                self.flush()

    def flush(self) -> None:
        """Send what has gathered, in one piece."""
        out = self.out
        if out and not self.gone:
            whole = out[0] if len(out) == 1 else b"".join(out)
            out.clear()
            self._send(whole)

    def refuse(self, correlation: int, code: ErrorCode, reason: str) -> None:
        """Answer a request with an error."""
        self.say(error(correlation, code, reason))

    def meet(self, what: str, correlation: int, error: Exception) -> None:
        """An error in this member, for which the request `what` is not answered.

        The rule is that of the own protocol (`server.session`): while a request is read and checked nothing of the
        member changes, so it is answered with the error and the member goes on. Once it was handed on (`acts`) the
        member's state is in doubt: the error goes on up, and the member stops.
        """
        if self.acts:
            raise error
        self.grid.faulty(what, error)
        self.refuse(
            correlation, BAD_STATE, f"{what}: an error inside the member; nothing was changed: {error}"
        )

    def telling(
        self, what: str, tell: Callable[..., None], correlation: int | None = None
    ) -> Callable[..., None]:
        """`tell`, which tells the client something when the member calls back, in the middle of a step of its own. An
        error in that is answered, if it is the answer to a request; else it ends this connection, and nothing else.
        """

        def told(*words: object) -> None:
            try:
                tell(*words)
            except Exception as error:  # noqa: BLE001  (whatever it is)
                self.grid.faulty(what, error)
                if correlation is not None:
                    self.refuse(
                        correlation, INDETERMINATE, f"{UNKNOWN_OUTCOME} ({what} could not be told: {error})"
                    )
                    return
                self.hang_up(f"{what} could not be told: {error}")

        return told

    def hang_up(self, reason: str) -> None:
        """Send what has gathered and close the connection."""
        if not self.gone:
            self.flush()
            self.end()
            self._close(reason)

    def end(self) -> None:
        """The connection is over: forget every listener of it."""
        self.gone = True
        self.out.clear()
        undo, self._undo = self._undo, {}
        for forget in undo.values():
            forget()

    # -- listeners

    def register(self, listen: Callable[[], Callable[[], object]]) -> bytes:
        """Begin a registration, undone when the connection ends; answers its id as the protocol writes UUIDs.

        Ids are unique on this connection, which is all that clients need.
        """
        if len(self._undo) >= LISTENERS_MAX:
            raise CallRefused(
                BAD_ARGUMENT,
                f"this connection has {LISTENERS_MAX} listeners, which is the limit; remove some",
            )
        self._registered += 1
        member = int(self.grid.member_uuid.replace("-", ""), 16)
        registration = UUID.pack(False, member >> 64, self._registered)
        self._undo[registration] = listen()
        return registration

    def unregister(self, registration: bytes) -> bool:
        """End a registration; False when there is none of this id."""
        forget = self._undo.pop(registration, None)
        if forget is None:
            return False
        forget()
        return True

    # -- work for the grid

    def partition_of(self, call: Call) -> int:
        """The partition of a request on one key: the one the client names, else the one of the key."""
        count = self.grid.partition_count
        if 0 <= call.partition < count:
            return call.partition
        if call.partition == -1:
            return partition_of(call.key, call.key_hash, count)
        raise CallRefused(
            BAD_ARGUMENT, f"there is no partition {call.partition}; this cluster has {count}, numbered from 0"
        )

    def execute(self, call: Call, request: Request, answer: Callable[[Value], bytes]) -> None:
        """Have the grid carry out a request; `answer` makes the message out of what it answers."""
        self.execute_all(call, [request], lambda values: answer(values[0]))

    def execute_all(
        self,
        call: Call,
        requests: list[Request],
        answer: Callable[[list[Value]], bytes],
        *,
        pardon: frozenset[Status] = frozenset(),
        size: int = 0,
    ) -> None:
        """The same with several requests and one answer, which is an error if one of them fails.

        pardon: failures that do not matter; the answer is made without them. Without any, nothing is begun of what must
        not be done as a whole. size: the bytes that all requests bring, if these may be many.
        """
        if self._waiting + len(requests) > WAITING_MAX:
            raise CallRefused(
                AGAIN,
                f"{self._waiting} requests of this connection wait already; the request was not applied",
            )
        if not requests:
            self.say(answer([]))
            return
        if (len(requests) > 1 or size) and not pardon and requests[0].op not in READS:
            for request in requests:
                if (refused := self.grid.why_refused(request, size)) is not None:
                    raise CallRefused(*refusal(refused))
                size = 0
        self._waiting += len(requests)
        outcomes: list[Outcome | None] = [None] * len(requests)
        missing = len(requests)

        def done(place: int, outcome: Outcome) -> None:
            nonlocal missing
            outcomes[place] = outcome
            missing -= 1
            self._waiting -= 1
            if missing == 0 and not self.gone:
                complete = [each for each in outcomes if each is not None and each.status not in pardon]
                failed = worst(complete, may_repeat=all(request.op in READS for request in requests))
                if failed is None:
                    self.say(answer([each.value for each in complete]))
                else:
                    self.refuse(call.correlation, *refusal(failed))

        told = self.telling(f"the answer to {name_of(call.kind)}", done, call.correlation)
        self.acts = True
        for place, request in enumerate(requests):
            self.grid.execute(request, partial(told, place))


def worst(outcomes: list[Outcome], *, may_repeat: bool) -> Outcome | None:
    """What to answer when not all parts of one request are OK; None when they are.

    "Certainly not applied" is said only when no part was, or when the parts may be repeated.
    """
    failed = [outcome for outcome in outcomes if outcome.status is not Status.OK]
    if not failed:
        return None
    if len(failed) < len(outcomes) and not may_repeat:
        return Outcome(Status.UNKNOWN, detail=f"only a part was applied: {failed[0].detail}".rstrip(": "))
    for outcome in failed:
        if outcome.status is Status.UNKNOWN:
            return outcome
    return failed[0]


Handler = Callable[[Conversation, Call], None]


@dataclass(frozen=True, slots=True)
class Message:
    """A kind of request that is answered: its layout and what answers it."""

    layout: Layout
    handler: Handler


__all__ = ["Conversation", "Handler", "Message", "worst"]
