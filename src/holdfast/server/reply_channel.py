"""Sends the responses of one connection of Holdfast's own protocol, and counts the requests that wait."""

from __future__ import annotations

from collections.abc import Callable

from holdfast.core.model.operations import Op, Request
from holdfast.server.flow import Flow, Work
from holdfast.server.grid import Grid
from holdfast.server.question_checks import partitions_problem
from holdfast.wire import own

WAITING_MAX = 1024
BYTES_PER_UNIT = 16
"""Bytes of a request or response that cost one unit of work."""


class ReplyChannel:
    """The way back to the client, and the rules about errors, shared by all kinds of requests."""

    __slots__ = ("_on_end", "_send", "flow", "gone", "grid", "handed_over", "waiting")

    def __init__(
        self, grid: Grid, flow: Flow, send: Callable[[bytes], None], on_end: Callable[[str], None]
    ) -> None:
        """`on_end` closes the session and its connection; it takes the reason for the log."""
        self.grid = grid
        self.flow = flow
        self.gone = False
        self.waiting = 0
        """Requests that were accepted and have no response yet."""
        self.handed_over = False
        """Whether the current request has reached the member's machines or the data lane: see `handle_error`."""
        self._send = send
        self._on_end = on_end

    def send(self, answer: own.Answer) -> None:
        if not self.gone:
            data = own.frame(answer)
            self.flow.spent += len(data) // BYTES_PER_UNIT
            self._send(data)

    def fault(self, number: int, kind: own.FaultKind, detail: str) -> None:
        self.send(own.Fault(number, kind, detail))

    def end(self, kind: own.FaultKind, detail: str, number: int = 0) -> None:
        self.fault(number, kind, detail)
        self._on_end(detail)

    def close(self) -> None:
        """Drop the reference to the session, so that no cycle is left to the garbage collector."""
        self.gone = True
        self._on_end = _ignore

    # -- questions that wait

    def may_wait(self, number: int, *, count: bool = True) -> bool:
        """Accept one more waiting request, or respond with an error and return False. `count`: it waits from
        now on.
        """
        if self.waiting >= WAITING_MAX:
            detail = f"{WAITING_MAX} questions of this connection wait for their answer already"
            self.fault(number, own.FaultKind.NOT_READY, detail)
            return False
        if count:
            self.waiting += 1
        return True

    def answered(self) -> None:
        assert self.waiting > 0, "each question is answered once"
        self.waiting -= 1

    # -- checks that answer for themselves

    def in_range(self, number: int, partitions: list[int], *, once: bool = True) -> bool:
        """Check the partition numbers (each at most `once`), or respond with an error and return False."""
        problem = partitions_problem(partitions, self.grid.partition_count, once=once)
        if problem:
            self.fault(number, own.FaultKind.MALFORMED, problem)
        return not problem

    def are_lost(self, number: int, maps: list[str], partitions: list[int]) -> bool:
        """Whether one of these maps has lost one of these partitions: then that is the response
        (routing/R-12).
        """
        for name in maps:
            rejection = self.grid.losses.rejection(Request(Op.ENTRIES, name, partitions))
            if rejection is not None:
                self.fault(number, own.FaultKind.LOST, rejection.detail)
                return True
        return False

    # -- errors of this member

    def handle_error(self, question: own.Question, error: Exception) -> None:
        """Respond with `FAILED`, or raise the error again.

        While a request is read and checked, and while its response is made, nothing of the member changes: a
        scan that fails halfway has only read. An `Execute` is different. Example: it has stored key k as
        update 18 of the primary and then fails, before the record of update 18 was sent to the backups. If
        the member responded and continued, k would stay on the primary alone. So after `handed_over` the
        error is raised, and the member stops.
        """
        if self.handed_over:
            raise error
        kind = type(question).__name__
        self.grid.faulty(kind, error)
        self.fault(question.id, own.FaultKind.FAILED, f"{kind}: {type(error).__name__}: {error}")

    def begin(self, question: own.Question, work: Work) -> None:
        """Begin work that changes nothing, in slices; an error in any slice is the response."""
        self.flow.begin(self._guarded(question, work))

    def _guarded(self, question: own.Question, work: Work) -> Work:
        try:
            yield from work
        except Exception as error:  # noqa: BLE001  (see `handle_error`)
            self.handle_error(question, error)

    def on_done(self, kind: str, number: int, deliver: Callable[..., None]) -> Callable[..., None]:
        """Wrap `deliver`, which makes the response, as a callback of the member. An error in it becomes the
        response, because the member is in the middle of a step of its own.
        """

        def done(*result: object) -> None:
            try:
                deliver(*result)
            except Exception as error:  # noqa: BLE001  (whatever it is)
                self.grid.faulty(kind, error)
                self.fault(number, own.FaultKind.UNKNOWN, f"the answer to {kind} could not be made: {error}")

        return done


def _ignore(_: str) -> None:
    pass
