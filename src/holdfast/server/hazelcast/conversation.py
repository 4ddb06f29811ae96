"""The shared state of a connection's handlers: output, pending requests, and what ends with the connection."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass
from functools import partial

from msgspec.structs import replace

from holdfast.core.model.keys import partition_of
from holdfast.core.model.operations import READS, Op, Outcome, Request, Status, Value, too_long
from holdfast.core.model.transaction_orders import TransactionAnswer, TransactionOrder
from holdfast.server.flow import (
    EXPECTED_LIST_SHARE,
    EXPECTED_SHARE,
    REQUEST_UNITS,
    SLICE_BYTES,
    SLICE_ITEMS,
    Flow,
    Work,
)
from holdfast.server.grid import Grid
from holdfast.server.hazelcast.names import name_of
from holdfast.server.logins import Login, LoginAnswer, LoginDone
from holdfast.server.open_transactions import OpenTransactions
from holdfast.server.rights import EVERYTHING
from holdfast.wire.hazelcast.hazelcast_frames import UUID
from holdfast.wire.hazelcast.layouts import Call, RequestLayout
from holdfast.wire.hazelcast.refusals import (
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

JOIN = b"join"
"""Key of a pending join in `_undo`; ids of registrations are longer."""
LISTENERS_MAX = 1000

WAITING_MAX = 100_000
WAITING = "requests of this connection wait already"

ALONE_BYTES = 32 * 1024
"""A longer response is sent by itself; joining it with others would copy it."""

_EXPECTED = {
    **dict.fromkeys((Op.GET, Op.ENTRY_VIEW, Op.PUT, Op.PUT_IF_ABSENT, Op.REPLACE, Op.REMOVE), EXPECTED_SHARE),
    **dict.fromkeys((Op.GET_ALL, Op.KEYS, Op.VALUES, Op.ENTRIES), EXPECTED_LIST_SHARE),
}
"""Estimated size of pending responses with values, as fractions of `limits.output_buffer_bytes`."""

Made = bytes | Generator[None, None, bytes] | Generator[None, None, None]
"""A response, or a generator that makes it in slices; None in the end: another request was made instead."""


class Conversation:
    def __init__(
        self,
        grid: Grid,
        send: Callable[[bytes], None],
        close: Callable[[str], None],
        *,
        client_acks: bool = False,
        flow: Flow,
        answer_bytes: int,
        admit: Callable[[], str],
        peer: str = "",
    ) -> None:
        """`answer_bytes`: limit of one response. `admit` returns the reason why there is no place for this client.
        `peer`: its address.
        """
        self.peer = peer
        self.rights = EVERYTHING
        self.authenticating = False
        self.admit = admit
        self.grid = grid
        self.flow = flow
        self.answer_bytes = answer_bytes
        self.client_acks = client_acks
        """Whether clients may collect acknowledgements of backups themselves."""
        self.authenticated = False
        self.client = b""
        self.client_type = self.client_name = ""
        self.collects_acks = False
        """Whether the client collects acknowledgements itself: it has registered, and may."""
        self.gone = False
        self.out = bytearray()
        """Responses that leave together at the end of the buffer."""
        self.busy = False
        """Whether a buffer is being handled."""
        self.every_partition = list(range(grid.partition_count))
        self._send = send
        self._close = close
        self._undo: dict[bytes, Callable[[], object]] = {}
        self._leave: Callable[[], None] | None = None
        """Reports that this connection of the client has ended."""
        self.transactions = OpenTransactions(grid)
        self._registered = 0
        self._waiting = 0
        self._withdrawals: dict[int, Callable[[], None]] = {}
        """Functions that withdraw pending requests which may wait, by number."""
        self._withdrawn = 0
        self.handed_over = False
        """Whether the current request has changed anything in the member: see `handle_error`."""
        self.doubtful: tuple[bytes, str] | None = None
        """Id of the current request, which another member may have applied, and why; None: no member has."""

    # -- output

    def send(self, answer: bytes) -> None:
        if not self.gone:
            if len(answer) > ALONE_BYTES or not (self.busy or self.out):
                self.flush()
                self._send(answer)
                return
            self.out += answer
            if not self.busy:
                self.flush()

    def flush(self) -> None:
        out = self.out
        if out and not self.gone:
            whole = bytes(out)
            out.clear()
            self._send(whole)

    def reject(self, correlation: int, code: ErrorCode, reason: str) -> None:
        self.send(error(correlation, code, reason))

    def handle_error(self, what: str, correlation: int, error: Exception) -> None:
        """Handle an internal error during the request `what`.

        While a request is parsed and checked nothing of the member changes, so the client gets the error and
        the member continues. Once the request was handed on (`handed_over`) the member's state is in doubt:
        the error is raised, and stops the member. The own protocol has the same rule (`server.own_session`).
        """
        if self.handed_over:
            raise error
        self.grid.faulty(what, error)
        self.reject(
            correlation, BAD_STATE, f"{what}: an error inside the member; nothing was changed: {error}"
        )

    def callback(
        self, what: str, tell: Callable[..., None], correlation: int | None = None
    ) -> Callable[..., None]:
        """Wrap a callback that the member calls in the middle of a step. An error in it becomes the response
        to its request, or else closes this connection; the member is not affected.
        """

        def told(*words: object) -> None:
            try:
                tell(*words)
            except Exception as error:  # noqa: BLE001  (whatever it is)
                self.grid.faulty(what, error)
                if correlation is not None:
                    self.reject(
                        correlation, INDETERMINATE, f"{UNKNOWN_OUTCOME} ({what} could not be sent: {error})"
                    )
                    return
                self.close(f"{what} could not be sent: {error}")

        return told

    def close(self, reason: str) -> None:
        if not self.gone:
            self.flush()
            self.end()
            self._close(reason)

    def end(self) -> None:
        self.gone = True
        self.out.clear()
        self.flow.end()
        undo, self._undo = self._undo, {}
        for forget in undo.values():
            forget()
        leave, self._leave = self._leave, None
        if leave is not None:
            leave()
        withdrawals, self._withdrawals = self._withdrawals, {}
        for withdraw in withdrawals.values():
            withdraw()
        self.transactions.roll_back_all()

    def log_in(self, login: Login, done: LoginDone) -> None:
        """Authenticate; `done` is called at once or in a turn of this connection."""
        self.authenticating = True
        at_once = True

        def proven(answer: LoginAnswer) -> None:
            if at_once:
                self.authenticating = False
                done(answer)
            elif not self.gone:
                self.flow.begin(later(answer))

        def later(answer: LoginAnswer) -> Work:
            yield
            self.authenticating = False
            done(answer)

        self.grid.log_in(login, lambda: not self.gone, proven)
        at_once = False
        if self.authenticating:
            self.authenticated = False

    def wait_for_join(self, done: Callable[[], None]) -> None:
        """Handle no input until this member has joined its cluster; then call `done` in a turn of this
        connection.
        """
        self.authenticating, self.authenticated = True, False

        def changed() -> None:
            grid = self.grid
            if any(member.uuid == grid.member_uuid for member in grid.cluster().members):
                self.unregister(JOIN)
                self.flow.begin(joined())

        def joined() -> Work:
            yield
            self.authenticating = False
            done()

        self._undo[JOIN] = self.grid.watch(self.callback("that the member has joined", changed))

    def report_connected(self) -> None:
        """Report that this client is connected, until the connection ends: it keeps its locks as long as it is."""
        if self._leave is None:
            self._leave = self.grid.collections.connect(self.client)

    # -- listeners

    def register(self, listen: Callable[[], Callable[[], object]]) -> bytes:
        """Begin a registration, which ends with the connection; returns its id as a UUID of the protocol,
        unique on this connection.
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
        """Returns False if there is no such registration."""
        forget = self._undo.pop(registration, None)
        if forget is None:
            return False
        forget()
        return True

    # -- requests to the grid

    def partition_of(self, call: Call) -> int:
        count = self.grid.partition_count
        if 0 <= call.partition < count:
            return call.partition
        if call.partition == -1:
            return partition_of(call.key, call.key_hash, count)
        raise CallRefused(
            BAD_ARGUMENT, f"there is no partition {call.partition}; this cluster has {count}, numbered from 0"
        )

    def execute(self, call: Call, request: Request, answer: Callable[[Value], Made], share: int = 0) -> None:
        """`share`: the response is estimated as this fraction of `limits.output_buffer_bytes`; 0: by its operation."""
        if self._waiting >= WAITING_MAX:
            raise CallRefused(AGAIN, f"{self._waiting} {WAITING}; the request was not applied")
        share = share or _EXPECTED.get(request.op, 0)
        expected = self.flow.most // share if share else 0
        self._expect(1, expected)

        def done(outcome: Outcome) -> None:
            self._expect(-1, -expected)
            if outcome.status is Status.OK:
                self._answer(call, lambda: answer(outcome.value), _size_of(outcome.value))
            elif not self.gone:
                self.reject(call.correlation, *refusal(outcome))

        self.handed_over = True
        told = self.callback(f"the answer to {name_of(call.kind)}", done, call.correlation)
        self._hand_over(request, told, self.doubtful)

    def execute_waiting(self, call: Call, request: Request, answer: Callable[[Value], Made]) -> None:
        """Like `execute`, for a step of a collection that may wait. It is withdrawn when the connection ends."""
        if self._waiting >= WAITING_MAX:
            raise CallRefused(AGAIN, f"{self._waiting} {WAITING}; the request was not applied")
        self._expect(1, 0)
        self._withdrawn = number = self._withdrawn + 1
        ended = False

        def done(outcome: Outcome) -> None:
            nonlocal ended
            ended = True
            self._withdrawals.pop(number, None)
            self._expect(-1, 0)
            if outcome.status is Status.OK:
                self._answer(call, lambda: answer(outcome.value), _size_of(outcome.value))
            elif not self.gone:
                self.reject(call.correlation, *refusal(outcome))

        self.handed_over = True
        told = self.callback(f"the answer to {name_of(call.kind)}", done, call.correlation)
        withdraw = self.grid.collections.execute(request, told)
        if not ended:
            self._withdrawals[number] = withdraw

    def execute_part(self, call: Call, request: Request, done: Callable[[Outcome], None]) -> None:
        """Execute one of the requests of a call whose response the caller makes. `done` is called once, perhaps before
        this returns, also if the connection has ended.
        """
        self._expect(1, 0)

        def finished(outcome: Outcome) -> None:
            self._expect(-1, 0)
            done(outcome)

        self.handed_over = True
        told = self.callback(f"the answer to {name_of(call.kind)}", finished, call.correlation)
        self.grid.execute(request, told)

    def _hand_over(
        self, request: Request, done: Callable[[Outcome], None], doubtful: tuple[bytes, str] | None
    ) -> None:
        if doubtful is None:
            self.grid.execute(request, done)
        else:
            request_id, doubt = doubtful
            self.grid.execute(replace(request, id=request_id), done, doubt)

    def transact(
        self,
        call: Call,
        order: TransactionOrder,
        answer: Callable[[TransactionAnswer], Made],
        heard: Callable[[TransactionAnswer], None] = lambda told: None,
    ) -> None:
        """Execute a step of a transaction; `answer` makes the response or raises CallRefused. `heard` is
        called even if the connection has ended.
        """
        if self._waiting >= WAITING_MAX:
            raise CallRefused(AGAIN, f"{self._waiting} {WAITING}; nothing was done")
        expected = self.flow.most // EXPECTED_SHARE
        self._expect(1, expected)

        def done(told: TransactionAnswer) -> None:
            self._expect(-1, -expected)
            heard(told)
            self._answer(call, lambda: answer(told), _size_of(told.value))

        self.handed_over = True
        self.grid.order_transaction(
            order, self.callback(f"the answer to {name_of(call.kind)}", done, call.correlation)
        )

    def execute_all(
        self,
        call: Call,
        requests: Iterable[Request | None],
        answer: Callable[[list[Value]], Made],
        *,
        pardon: frozenset[Status] = frozenset(),
    ) -> None:
        """Execute several requests with one response, an error if any of them fails. They are started in
        slices, so each should be no more than a slice; None in the sequence ends one. `pardon`: failures to
        ignore. Without any, listed writes are all checked before the first is started, so that a rejected one
        leaves none applied.
        """
        if isinstance(requests, list) and len(requests) > 1 and not pardon and requests[0].op not in READS:
            for request in requests:
                self.require(request)
        self.flow.begin(self._executing(call, requests, answer, pardon))

    def require(self, request: Request, size: int = 0) -> None:
        """Raises CallRefused if the request must be rejected now. size: its bytes, if there may be many."""
        refused = self.grid.rejection(request, size)
        if refused is not None:
            raise CallRefused(*refusal(refused))

    def _executing(
        self,
        call: Call,
        requests: Iterable[Request | None],
        answer: Callable[[list[Value]], Made],
        pardon: frozenset[Status],
    ) -> Work:
        outcomes: list[Outcome | None] = []
        reads, begun = True, False
        missing = 1
        """One for the requests that are still to come."""
        expected = listed = 0

        def over() -> None:
            nonlocal missing
            missing -= 1
            if missing:
                return
            self._expect(0, -expected)
            complete = [each for each in outcomes if each is not None and each.status not in pardon]
            failed = worst(complete, may_repeat=reads)
            if failed is None:
                self._answer(call, lambda: answer([each.value for each in complete]), listed)
            elif not self.gone:
                self.reject(call.correlation, *refusal(failed))

        def done(place: int, outcome: Outcome) -> None:
            nonlocal expected, listed
            if isinstance(outcome.value, list):
                size = _size_of(outcome.value)
                listed += size
                expected += size
                self._expect(0, size)
                if listed > self.answer_bytes:
                    # Drop the results: the response would be too large.
                    outcome = Outcome(Status.TOO_LARGE, None, too_long(self.answer_bytes))
                    outcomes[:] = [each and outcome for each in outcomes]
            outcomes[place] = outcome
            self._expect(-1, 0)
            over()

        told = self.callback(f"the answer to {name_of(call.kind)}", done, call.correlation)
        # A later slice may run during another request.
        doubtful = self.doubtful
        items = taken = 0
        for request in requests:
            if request is None:
                yield
                continue
            if items >= SLICE_ITEMS or taken >= SLICE_BYTES:
                items = taken = 0
                yield
            items += REQUEST_UNITS + len(request.items)
            taken += sum(map(len, request.items))
            reads = reads and request.op in READS
            if not begun:
                begun = True
                expected = self.flow.most // _EXPECTED[request.op] if request.op in _EXPECTED else 0
                self._expect(0, expected)
            place = len(outcomes)
            outcomes.append(None)
            outcomes[place] = self._unstarted(place, doubtful)
            if outcomes[place] is not None:
                continue
            missing += 1
            self._expect(1, 0)
            self.handed_over = True
            self._hand_over(request, partial(told, place), doubtful)
        over()

    def _unstarted(self, place: int, doubtful: tuple[bytes, str] | None) -> Outcome | None:
        """Why the request at this place of several cannot be started; None: it can."""
        if doubtful is not None and place:
            # The id names the first alone.
            return Outcome(Status.UNKNOWN, None, doubtful[1])
        if self._waiting >= WAITING_MAX:
            return Outcome(Status.NOT_READY, None, f"{self._waiting} {WAITING}")
        return None

    @property
    def waits(self) -> bool:
        """Whether requests of the client have no response yet."""
        return self._waiting > 0

    def _expect(self, requests: int, size: int) -> None:
        self._waiting += requests
        self.flow.expected += size
        assert self._waiting >= 0, "each request is answered once"
        assert self.flow.expected >= 0, "no more is made than was expected"

    def answer(self, call: Call, make: Callable[[], Made]) -> None:
        self._answer(call, make)

    def _answer(self, call: Call, make: Callable[[], Made], size: int = 0) -> None:
        """Like `answer`, unless the connection has ended. size: bytes of the result that it is made from."""
        if self.gone:
            return
        try:
            made = make()
        except CallRefused as refused:
            self.reject(call.correlation, refused.code, str(refused))
            return
        if isinstance(made, bytes):
            self.send(made)
        else:
            self.flow.begin(self._saying(call, made, size))

    def _saying(self, call: Call, made: Generator[None, None, bytes | None], size: int) -> Work:
        what = f"the answer to {name_of(call.kind)}"
        self._expect(0, size)
        try:
            answer = yield from made
            if answer is not None:
                self.send(answer)
        except CallRefused as refused:
            self.reject(call.correlation, refused.code, str(refused))
        except Exception as error:  # noqa: BLE001  (see `callback`)
            self.grid.faulty(what, error)
            self.reject(
                call.correlation, INDETERMINATE, f"{UNKNOWN_OUTCOME} ({what} could not be made: {error})"
            )
        finally:
            self._expect(0, -size)


def _size_of(value: Value) -> int:
    return sum(len(part) for part in value if isinstance(part, bytes)) if isinstance(value, list) else 0


def worst(outcomes: list[Outcome], *, may_repeat: bool) -> Outcome | None:
    """The failure of a request in several parts, or None.

    "Certainly not applied" is reported only if no part was applied, or if the parts may be repeated.
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
class RequestKind:
    layout: RequestLayout
    handler: Handler


__all__ = ["Conversation", "Handler", "RequestKind", "worst"]
