"""One connection that speaks Holdfast's own protocol (`wire.own`): bytes in, answers out.

The session gets bytes and calls `send` and `close`; it knows no socket. Invalid input closes at most its own
connection. The session splits frames, checks rights, and passes each question to the part that answers its kind
(`Handshake`, `ColumnQuestions`, …); single operations on entries are its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import assert_never

import msgspec

from holdfast.actions.operator_action import OperatorQuery
from holdfast.actions.registry import read_action
from holdfast.config import LimitSettings
from holdfast.config.engine_features import KEY_RANGES
from holdfast.core.model.forwarded_frames import OutgoingFrames
from holdfast.core.model.operations import Outcome
from holdfast.errors import InvariantBroken, ProtocolError, TooLarge
from holdfast.server import action_requests
from holdfast.server.access import question_rejection
from holdfast.server.admin_questions import AdminQuestions
from holdfast.server.audit_events import AuditEvent, AuditKind
from holdfast.server.change_questions import ChangeQuestions
from holdfast.server.column_questions import ColumnQuestions
from holdfast.server.cut_questions import CutQuestions
from holdfast.server.digest_questions import DigestQuestions
from holdfast.server.flow import (
    EXPECTED_SHARE,
    NO_MEMORY_EVENT,
    NO_MEMORY_FOR_INPUT,
    REQUEST_UNITS,
    Flow,
    Work,
)
from holdfast.server.grid import Grid
from holdfast.server.handshake import Capabilities, Handshake
from holdfast.server.question_checks import request_rejection
from holdfast.server.reply_channel import BYTES_PER_UNIT, ReplyChannel
from holdfast.server.session_client import SessionClient
from holdfast.server.transaction_questions import TransactionQuestions
from holdfast.wire import own

ACTION_UNITS = 1000
"""Units of work that an action or a query takes: a status takes a ms to be made."""
LONG_BYTES = 64 * 1024
"""A question from this size on is scanned before it is decoded, and answered in its own turn."""

OPERATING = own.AskTable | own.Act | own.Watch
"""Questions that an operator's connection may ask."""


class OwnSession:
    """One client's connection, from the bytes after the preamble on."""

    def __init__(
        self,
        grid: Grid,
        send: Callable[[bytes], None],
        close: Callable[[str], None],
        *,
        limits: LimitSettings | None = None,
        capabilities: Capabilities | None = None,
        flow: Flow | None = None,
        admit: Callable[[bool], str] = lambda operates: "",
        peer: str = "",
    ) -> None:
        """`close` ends the connection once what was sent is written, and takes the reason for the log. `flow` bounds
        the work and the answers under way. `admit`: see `Handshake`. `peer`: the client's address.
        """
        self._grid = grid
        self._close = close
        self._limits = limits or LimitSettings()
        self._flow = flow or Flow()
        self._frames = own.Frames(min(own.GREETING_BYTES_MAX, self._limits.auth_frame_bytes))
        self._buffers = 0
        self._buffers_seen = -1
        self._heard_ns = 0
        replies = self._replies = ReplyChannel(grid, self._flow, send, self._end)
        self._handshake = Handshake(
            replies, admit, limits=self._limits, capabilities=capabilities or Capabilities(), peer=peer
        )
        self._admin = AdminQuestions(replies)
        self._columns = ColumnQuestions(replies, self._limits)
        self._digests = DigestQuestions(replies)
        self._changes = ChangeQuestions(replies)
        self._cuts = CutQuestions(replies)
        self._transactions = TransactionQuestions(replies)

    def fast_path(self) -> None:
        """The data lane does not serve this protocol."""

    def served(self, data: bytes, at: int, out: bytes, unsealed: bytes) -> None:
        """Never called, like `forward` and `unknown`: see `fast_path`."""
        raise InvariantBroken("the data lane speaks another protocol")

    def forward(self, departing: list[OutgoingFrames]) -> None:
        raise InvariantBroken("the data lane speaks another protocol")

    def unknown(self, answers: bytes) -> None:
        raise InvariantBroken("the data lane speaks another protocol")

    def receive(self, data: bytes) -> None:
        """Take one read buffer. Never raises for its content."""
        replies, frames = self._replies, self._frames
        if replies.gone:
            return
        self._buffers += 1
        self._flow.spent = 0
        try:
            frames.feed(data)
        except MemoryError:
            self._end_without_memory()
            return
        if self._handshake.pending and frames.held > self._limits.auth_frame_bytes:
            replies.end(own.FaultKind.DENIED, "wait for the answer to hello")
            return
        if not self._flow.halted:
            self._take_all()
        self._flow.coming = self._frames.held

    def resume(self) -> None:
        """One slice of work, or the frames that wait."""
        if self._replies.gone:
            return
        self._flow.spent = 0
        if self._flow.works:
            self._flow.step()
        elif self._flow.rest:
            self._take_all()
        self._flow.coming = self._frames.held

    def _take_all(self) -> None:
        self._flow.rest = False
        while self._take():
            pass

    def _take(self) -> bool:
        """Answer the questions that have arrived, until one has to be continued later. Returns whether to call this
        again: a frame that was too large is skipped, and others may follow.
        """
        flow, replies, handshake = self._flow, self._replies, self._handshake
        try:
            while not replies.gone and not handshake.pending and (body := self._next_frame()) is not None:
                if len(body) < LONG_BYTES:
                    self._handle(body)
                else:
                    flow.begin(self._handle_long(body))
                if flow.must_halt and not replies.gone:
                    flow.rest = True
                    return False
        except TooLarge as large:
            refused, self._frames.refused = self._frames.refused, None
            if refused is None:
                replies.end(own.FaultKind.TOO_LARGE, str(large))
                return False
            replies.fault(refused, own.FaultKind.TOO_LARGE, f"{large} (limits.frame_bytes)")
            self._grid.report_client_event(
                "requests refused: too large",
                "a question of a client was refused: %s",
                large,
            )
            return True
        except ProtocolError as broken:
            replies.end(own.FaultKind.MALFORMED, str(broken))
        return False

    def _next_frame(self) -> bytes | None:
        """Raises TooLarge."""
        try:
            return self._frames.take()
        except MemoryError:
            self._end_without_memory()
            return None

    def _end_without_memory(self) -> None:
        """End the connection alone: nothing of the member has changed while its input is gathered."""
        self._grid.report_client_event(NO_MEMORY_EVENT, "a client was closed: %s", NO_MEMORY_FOR_INPUT)
        self._replies.end(own.FaultKind.NO_MEMORY, NO_MEMORY_FOR_INPUT)

    def _handle(self, body: bytes) -> None:
        """Answer one question. Raises ProtocolError, TooLarge."""
        self._flow.spent += REQUEST_UNITS + len(body) // BYTES_PER_UNIT
        question = own.read_question(body)
        try:
            self._answer(question)
        except (ProtocolError, TooLarge) as broken:
            if self._replies.handed_over:
                raise InvariantBroken(f"{type(question).__name__}: {broken}") from broken
            raise
        except Exception as error:  # noqa: BLE001  (see `ReplyChannel.handle_error`)
            self._replies.handle_error(question, error)

    def _handle_long(self, body: bytes) -> Work:
        try:
            yield from own.count_parts(body)
            yield
            self._handle(body)
        except ProtocolError as broken:
            self._replies.end(own.FaultKind.MALFORMED, str(broken))
        except TooLarge as large:
            self._replies.end(own.FaultKind.TOO_LARGE, str(large))

    def closed(self) -> None:
        self._replies.close()
        self._flow.end()
        self._columns.close()
        self._admin.close()
        self._transactions.close()
        self._frames = own.Frames(0)

    def _end(self, reason: str) -> None:
        self.closed()
        self._close(reason)

    @property
    def admitted(self) -> bool:
        """Whether the client has logged in and has a place."""
        return self._handshake.admitted

    def client(self) -> SessionClient:
        kind = "operator" if self._handshake.operates else "holdfast"
        return SessionClient(kind, self._handshake.rights.user, "", len(self._transactions.begun))

    @property
    def coming(self) -> int:
        """Bytes that have arrived and were not decoded."""
        return self._frames.held

    @property
    def unanswered(self) -> bool:
        """Whether the client waits for a response, or has sent a part of a request."""
        return bool(self._replies.waiting or self._flow.halted or self._frames.held)

    def silent_ns(self) -> int:
        """Time without input from the client, as far as calls of this function can tell. A client that waits for an
        answer is not silent.
        """
        now_ns = self._grid.now_ns()
        waits = self._replies.waiting or self._admin.is_watching or self._flow.works
        if self._buffers != self._buffers_seen or waits:
            self._buffers_seen = self._buffers
            self._heard_ns = now_ns
        return now_ns - self._heard_ns

    # -- questions

    def _answer(self, question: own.Question) -> None:
        replies = self._replies
        replies.handed_over = False
        if isinstance(question, own.Hello):
            self._handshake.answer(question, self._frames)
            return
        if not self._handshake.admitted:
            replies.end(own.FaultKind.DENIED, "say hello first")
            return
        if isinstance(question, own.Act):
            self._act(question)
            return
        if not self._permits(question):
            return
        match question:
            case own.Execute():
                self._execute(question)
            case own.Scan() | own.NextPage() | own.PutColumns():
                self._columns.answer(question)
            case own.AskDigests() | own.AskRanges():
                self._digests.answer(question)
            case own.Cut() | own.HoldCut():
                self._cuts.answer(question)
            case own.AskHeads():
                self._changes.heads(question)
            case own.AskChanges():
                self._changes.changes(question)
            case own.OrderTransaction():
                self._transactions.answer(question)
            case own.AskTable() | own.Watch():
                self._admin.answer(question)
            case _:
                assert_never(question)

    def _permits(self, question: own.Question) -> bool:
        """Whether the client may ask this; otherwise the response is the reason."""
        replies, handshake, begun = self._replies, self._handshake, self._transactions.begun
        if handshake.operates and not isinstance(question, OPERATING):
            detail = "this connection is an operator's: it may look and give orders, and not work with data"
            replies.fault(question.id, own.FaultKind.DENIED, detail)
            return False
        rights, peer, audit = handshake.rights, handshake.peer, self._grid.audit
        reason = question_rejection(rights, question, begun)
        if reason:
            replies.fault(question.id, own.FaultKind.DENIED, reason)
            audit(AuditEvent(AuditKind.REFUSED, rights.user, peer, type(question).__name__, reason))
            return False
        if problem := self._zone_problem(question):
            replies.fault(question.id, own.FaultKind.UNSUPPORTED, problem)
            return False
        return True

    def _act(self, question: own.Act) -> None:
        replies, handshake = self._replies, self._handshake
        self._flow.spent += ACTION_UNITS
        try:
            action = read_action(question.action, question.fields)
        except ProtocolError as error:
            replies.fault(question.id, own.FaultKind.MALFORMED, str(error))
            return
        if reason := action_requests.denial(self._grid, handshake.rights, handshake.peer, action):
            replies.fault(question.id, own.FaultKind.DENIED, reason)
            return
        if problem := action_requests.problem(self._grid, action, question.timeout_ms):
            replies.fault(question.id, own.FaultKind.MALFORMED, problem)
            return
        if not replies.may_wait(question.id):
            return

        def done(fate: own.Fate, message: str, value: msgspec.Struct | None = None, error: str = "") -> None:
            replies.answered()
            told = msgspec.Raw(msgspec.msgpack.encode(value))
            replies.send(own.Acted(question.id, fate, message, told, error))

        replies.handed_over = not isinstance(action, OperatorQuery)
        self._grid.act(action, question.timeout_ms, replies.on_done("Act", question.id, done))

    def _zone_problem(self, question: own.Question) -> str:
        """The reason why the question makes no sense for a map in a zone; empty for other maps and questions."""
        if not isinstance(question, own.AskRanges):
            return ""
        zone = self._grid.zone_of(question.map)
        return f"map {question.map!r} lives in zone {zone!r}: {KEY_RANGES.instead}" if zone else ""

    def _execute(self, question: own.Execute) -> None:
        replies, flow, request = self._replies, self._flow, question.request
        rejection = request_rejection(request, self._grid.partition_count, self._limits)
        if rejection is not None:
            replies.fault(question.id, *rejection)
            return
        if not replies.may_wait(question.id):
            return

        expected = flow.most // EXPECTED_SHARE
        flow.expected += expected

        def done(outcome: Outcome) -> None:
            replies.answered()
            flow.expected -= expected
            assert flow.expected >= 0, "no more is made than was expected"
            replies.send(own.Executed(question.id, outcome))

        replies.handed_over = True
        self._grid.execute(request, replies.on_done("Execute", question.id, done))
