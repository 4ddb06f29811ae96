"""How the steps of transactions reach their partitions, and their answers come back: as requests like any other."""

from __future__ import annotations

from collections import deque
from typing import Protocol

import msgspec

from holdfast.config import TRANSACTIONS_MAP
from holdfast.core.machine import Outbox
from holdfast.core.model.ids import MILLISECOND
from holdfast.core.model.operations import Op, Outcome, Request, Status
from holdfast.core.model.timer_name import TimerName
from holdfast.core.model.transactions import (
    StepFate,
    StepResult,
    TransactionStep,
    begins,
    decode_result,
    encode,
)
from holdfast.core.routing.pending import Within
from holdfast.core.routing.router import Router

SOON_NS = 1
REMAP_NS = 5 * MILLISECOND
"""A newer topology is awaited for so long before it is looked at again."""


class StepHearer(Protocol):
    """Who has given a step, or asked for entries."""

    def on_outcome(self, ticket: int, outcome: Outcome) -> None:
        """This has come of it."""


class Steps:
    """What this member's transactions have asked of partitions, anywhere.

    Answers come in the middle of other machines' work. They are kept until that is done (`hear`): so whoever hears one
    may ask the next.
    """

    def __init__(self, out: Outbox, router: Router) -> None:
        self._out = out
        self._router = router
        self._tickets = 0
        self._hearers: dict[int, StepHearer] = {}
        self._heard: deque[tuple[int, Outcome]] = deque()
        self._due_ns = 0

    def ask(self, request: Request, hearer: StepHearer) -> int:
        """Have a request carried out; answers its ticket."""
        self._tickets += 1
        ticket = self._tickets
        self._hearers[ticket] = hearer
        self._router.execute(request, Within(self, ticket))
        return ticket

    def send(
        self, step: TransactionStep, partition: int, hearer: StepHearer, *, request_id: bytes = b""
    ) -> int:
        """Have a step done in this partition; answers its ticket."""
        op = Op.TRANSACT if begins(step) else Op.SETTLE
        request = Request(op, TRANSACTIONS_MAP, [partition], value=encode(step), id=request_id)
        return self.ask(request, hearer)

    def rejection(self, request: Request) -> Outcome | None:
        """Why this must not be done now outside of a transaction, and so not in one."""
        return self._router.refusals.rejection(request)

    def drop(self, ticket: int) -> None:
        """Nobody wants to hear what comes of it."""
        self._hearers.pop(ticket, None)

    def answered(self, ticket: int, outcome: Outcome) -> None:
        """The router says what has come of it."""
        self._heard.append((ticket, outcome))

    def hear(self) -> None:
        """Tell those who have asked."""
        while self._heard:
            ticket, outcome = self._heard.popleft()
            hearer = self._hearers.pop(ticket, None)
            if hearer is not None:
                hearer.on_outcome(ticket, outcome)

    def rest(self) -> None:
        """At the end of a step: what has come too late for it is told in the next one."""
        if self._heard:
            self.wake(SOON_NS)

    def wake(self, after_ns: int) -> None:
        """Transactions are to be looked at after this time at the latest."""
        due_ns = self._out.now_ns + after_ns
        if not self._due_ns or due_ns < self._due_ns:
            self._due_ns = due_ns
            self._out.timer(TimerName.TRANSACTIONS, after_ns)

    def woken(self) -> None:
        """They are looked at now: there is no timer any more."""
        self._due_ns = 0

    @property
    def waiting(self) -> int:
        """How many are not answered."""
        return len(self._hearers)


def result_of(outcome: Outcome) -> StepResult | None:
    """What a partition has answered to a step; None: it was not asked, or nobody knows what came of it."""
    if outcome.status is not Status.OK:
        return None
    if not isinstance(outcome.value, bytes):
        return StepResult(StepFate.REFUSED, why="this is no answer to a step")
    try:
        return decode_result(outcome.value)
    except msgspec.MsgspecError as error:
        return StepResult(StepFate.REFUSED, why=str(error))
