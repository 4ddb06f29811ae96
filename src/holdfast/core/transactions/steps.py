"""Steps of transactions: sent to their partitions as requests, and their answers.

- transactions/S-1: A step names its zone by number. Example: zones z and x exchange their names, and a coordinator that
  has not heard of it commits a branch in z. Where z is the other zone by now, the commit would find no branch, and be
  taken for done: the branch would stay, and be rolled back in the end.
"""

from __future__ import annotations

from collections import deque
from typing import Protocol

import msgspec

from holdfast.config import TRANSACTIONS_MAP
from holdfast.core.model.ids import MILLISECOND
from holdfast.core.model.operations import Op, Outcome, Request, Status
from holdfast.core.model.timer_name import TimerName
from holdfast.core.model.transactions import (
    BranchPlace,
    StepFate,
    StepResult,
    TransactionStep,
    begins,
    decode_result,
    encode,
    split_place,
    zone_engine,
)
from holdfast.core.outbox import Outbox
from holdfast.core.routing.pending import Within
from holdfast.core.transactions.branch_routing import BranchRouting

SOON_NS = 1
REMAP_NS = 5 * MILLISECOND
"""Pause before a newer topology is looked for."""


class StepReceiver(Protocol):
    def on_outcome(self, ticket: int, outcome: Outcome) -> None: ...


class Steps:
    """Open steps and requests of this member's transactions.

    Answers come in the middle of other machines' work. They are kept until `deliver`, so that a receiver may send its
    next step.
    """

    def __init__(self, out: Outbox, routing: BranchRouting) -> None:
        self._out = out
        self._routing = routing
        self._tickets = 0
        self._receivers: dict[int, StepReceiver] = {}
        self._outcomes: deque[tuple[int, Outcome]] = deque()
        self._due_ns = 0

    def ask(self, request: Request, receiver: StepReceiver) -> int:
        self._tickets += 1
        ticket = self._tickets
        self._receivers[ticket] = receiver
        self._routing.execute(request, Within(self, ticket))
        return ticket

    def send(
        self, step: TransactionStep, place: BranchPlace, receiver: StepReceiver, *, request_id: bytes = b""
    ) -> int:
        """To the leader of the partition. The outcome is `NOT_READY` as long as its zone is not known here, and the
        fate is `GONE` when it was dropped.
        """
        zone, partition = split_place(place)
        if zone and not self._routing.knows_zone(zone):
            self._tickets += 1
            self._receivers[self._tickets] = receiver
            outcome = Outcome(Status.NOT_READY, None, f"zone {zone} is not known here")
            if self._routing.is_dropped(zone):
                outcome = Outcome(Status.OK, encode(StepResult(StepFate.GONE, why="its zone was dropped")))
            self.answered(self._tickets, outcome)
            return self._tickets
        op = Op.TRANSACT if begins(step) else Op.SETTLE
        engine = zone_engine(zone)
        request = Request(
            op, TRANSACTIONS_MAP, [partition], value=encode(step), expected=engine, id=request_id
        )
        return self.ask(request, receiver)

    def rejection(self, request: Request) -> Outcome | None:
        """A rejection that holds outside of a transaction holds inside, too."""
        return self._routing.rejection(request)

    def drop(self, ticket: int) -> None:
        if self._receivers.pop(ticket, None) is not None:
            self._routing.withdraw(Within(self, ticket))

    def answered(self, ticket: int, outcome: Outcome) -> None:
        self._outcomes.append((ticket, outcome))

    def deliver(self) -> None:
        while self._outcomes:
            ticket, outcome = self._outcomes.popleft()
            receiver = self._receivers.pop(ticket, None)
            if receiver is not None:
                receiver.on_outcome(ticket, outcome)

    def wake_if_late(self) -> None:
        """Outcomes that came after `deliver` are handed over in the next step."""
        if self._outcomes:
            self.wake(SOON_NS)

    def wake(self, after_ns: int) -> None:
        due_ns = self._out.now_ns + after_ns
        if not self._due_ns or due_ns < self._due_ns:
            self._due_ns = due_ns
            self._out.timer(TimerName.TRANSACTIONS, after_ns)

    def on_timer(self) -> None:
        self._due_ns = 0

    @property
    def waiting(self) -> int:
        return len(self._receivers)


def result_of(outcome: Outcome) -> StepResult | None:
    """The result of the step; None: it was not taken, or its outcome is unknown."""
    if outcome.status is not Status.OK:
        return None
    if not isinstance(outcome.value, bytes):
        return StepResult(StepFate.REFUSED, why="this is no answer to a step")
    try:
        return decode_result(outcome.value)
    except msgspec.MsgspecError as error:
        return StepResult(StepFate.REFUSED, why=str(error))
