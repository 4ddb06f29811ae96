"""Answers of one connection that speaks Holdfast's own protocol: sends them, and counts the questions that wait."""

from __future__ import annotations

from collections.abc import Callable

from holdfast.core.model.operations import Op, Request
from holdfast.server.flow import Flow, Work
from holdfast.server.grid import Grid
from holdfast.server.question_checks import partitions_problem
from holdfast.wire import own

WAITING_MAX = 1024
"""Questions of one connection that may wait for their answer at the same time."""
BYTES_PER_UNIT = 16
"""Bytes of a question or an answer that take one unit of work to read or make."""


class ReplyChannel:
    """What all kinds of questions need to be answered: the way back to the client, and the rules about errors."""

    __slots__ = ("_on_end", "_send", "flow", "gone", "grid", "handed_over", "waiting")

    def __init__(
        self, grid: Grid, flow: Flow, send: Callable[[bytes], None], on_end: Callable[[str], None]
    ) -> None:
        """`on_end` closes the session and its connection; it takes the reason for the log."""
        self.grid = grid
        self.flow = flow
        self.gone = False
        """The connection is closed; later answers are dropped."""
        self.waiting = 0
        """Questions that were accepted and are not answered yet."""
        self.handed_over = False
        """Whether the question at hand has reached the member's machines or the data lane: see `meet_error`."""
        self._send = send
        self._on_end = on_end

    def send(self, answer: own.Answer) -> None:
        """Send an answer, unless the connection is closed."""
        if not self.gone:
            data = own.frame(answer)
            self.flow.spent += len(data) // BYTES_PER_UNIT
            self._send(data)

    def fault(self, number: int, kind: own.FaultKind, detail: str) -> None:
        """Answer question `number` with an error."""
        self.send(own.Fault(number, kind, detail))

    def end(self, kind: own.FaultKind, detail: str, number: int = 0) -> None:
        """Send an error and close the connection."""
        self.fault(number, kind, detail)
        self._on_end(detail)

    def close(self) -> None:
        """The connection is closed. Without the reference back to the session no cycle is left to the collector."""
        self.gone = True
        self._on_end = _ignore

    # -- questions that wait

    def may_wait(self, number: int, *, count: bool = True) -> bool:
        """Whether one more question may wait; else it is answered with an error. `count`: it waits from now on."""
        if self.waiting >= WAITING_MAX:
            detail = f"{WAITING_MAX} questions of this connection wait for their answer already"
            self.fault(number, own.FaultKind.NOT_READY, detail)
            return False
        if count:
            self.waiting += 1
        return True

    def answered(self) -> None:
        """A question that waited has its answer."""
        assert self.waiting > 0, "each question is answered once"
        self.waiting -= 1

    # -- checks that answer for themselves

    def in_range(self, number: int, partitions: list[int], *, once: bool = True) -> bool:
        """Whether these are partitions, each of them `once`; else the question is answered with an error."""
        problem = partitions_problem(partitions, self.grid.partition_count, once=once)
        if problem:
            self.fault(number, own.FaultKind.MALFORMED, problem)
        return not problem

    def are_lost(self, number: int, maps: list[str], partitions: list[int]) -> bool:
        """Whether one of these maps has lost one of these partitions: then that is the answer (routing/R-12)."""
        for name in maps:
            rejection = self.grid.losses.rejection(Request(Op.ENTRIES, name, partitions))
            if rejection is not None:
                self.fault(number, own.FaultKind.LOST, rejection.detail)
                return True
        return False

    # -- errors of this member

    def meet_error(self, question: own.Question, error: Exception) -> None:
        """Answer with an error of this member (`FAILED`), or raise it again.

        The rule: while a question is read and checked, and while its answer is made, nothing of the member changes: a
        scan that fails halfway has only read. An `Execute` is different. Say it has stored key k as update 18 of the
        primary and then fails: the record of update 18 that the backups need may be missing. With an answer and
        business as usual, k would stay on the primary alone. So from `handed_over` on the error goes up, and the
        member stops.
        """
        if self.handed_over:
            raise error
        kind = type(question).__name__
        self.grid.faulty(kind, error)
        self.fault(question.id, own.FaultKind.FAILED, f"{kind}: {type(error).__name__}: {error}")

    def begin(self, question: own.Question, work: Work) -> None:
        """Begin work that changes nothing, slice by slice; an error in any slice is the answer."""
        self.flow.begin(self._guarded(question, work))

    def _guarded(self, question: own.Question, work: Work) -> Work:
        try:
            yield from work
        except Exception as error:  # noqa: BLE001  (see `meet_error`)
            self.meet_error(question, error)

    def on_done(self, kind: str, number: int, deliver: Callable[..., None]) -> Callable[..., None]:
        """`deliver` as a callback of the member, which makes the answer. An error in it is answered instead, because
        the member is in the middle of a step of its own.
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
