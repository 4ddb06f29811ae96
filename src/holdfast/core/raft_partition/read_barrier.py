"""Read barrier of one partition: reads wait until a majority has confirmed the leader.

The reads of a step share one confirmation. Example: member 1 leads in term 4 and is cut off. Members 2 and 3 elect
member 2, which acknowledges `x = 2`. If member 1 answered a read at once, a client that has seen `x = 2` would read `x
= 1`. A majority never confirms term 4 again, because members 2 and 3 know term 5.

A read that must be in the log (raft_partition/Z-9) is a proposal like a change.

- raft_partition/Z-2: A read is answered when the replica has applied everything that was acknowledged, by any member,
  before the read arrived. A map with `reads = "local"` is read at once, and may return old values.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

from holdfast.core.model.ids import MILLISECOND, GroupNumber
from holdfast.core.model.map_moves import CLOSED
from holdfast.core.model.operations import Op, Outcome, Request, Status, Value, bytes_of, too_long
from holdfast.core.raft.leader import ProposalRefused
from holdfast.core.raft_partition.proposals import Proposals
from holdfast.core.raft_partition.state_machine import StateMachine
from holdfast.core.raft_partition.zone_replicas import NOT_LEADING, Answered, ZoneReplicas
from holdfast.core.store.move_marks import is_closed

READ_AGAIN_NS = 500 * MILLISECOND
"""Timeout for a confirmation, which is then requested again."""
NOT_CONFIRMED = Outcome(Status.NOT_READY, None, "no majority has confirmed the partition's leader in time")

_Reads = list[tuple[Request, Answered]]


@dataclass(slots=True)
class _Asked:
    asked_ns: int
    deadline_ns: int
    reads: _Reads = field(default_factory=list)


class ReadBarrier:
    def __init__(
        self, number: GroupNumber, zone: ZoneReplicas, state: StateMachine, proposals: Proposals
    ) -> None:
        self._number = number
        self._proposals = proposals
        self._zone = zone
        self._out = zone.out
        self._state = state
        self.waiting: _Reads = []
        """No confirmation was requested for them."""
        self.asked: dict[bytes, _Asked] = {}

    @property
    def unanswered(self) -> int:
        return len(self.waiting) + sum(len(one.reads) for one in self.asked.values())

    def submit(self, request: Request, on_done: Answered) -> None:
        """Read when the leader is confirmed; `on_done` is called once."""
        if self._state.must_log(request, self._out.wall_ms()):
            self._proposals.submit(request, partial(self._on_logged, request, on_done))
        elif self._zone.settings.map(request.map).reads == "local":
            on_done(self._read(request))
        else:
            self.waiting.append((request, on_done))

    def _read(self, request: Request) -> Outcome:
        if is_closed(self._state.copies[request.partitions[0]].maps, request.map):
            return CLOSED
        decision = self._state.read(request, self._out.wall_ms())
        if decision.refused:
            return Outcome(Status.TOO_LARGE, None, decision.refused)
        return self._answer(request, decision.answer)

    def _on_logged(self, request: Request, on_done: Answered, outcome: Outcome) -> None:
        if outcome.status is Status.OK:
            outcome = self._answer(request, outcome.value)
        elif outcome.status is Status.UNKNOWN:
            # Only whether it was a use is unknown.
            outcome = NOT_CONFIRMED
        on_done(outcome)

    def _answer(self, request: Request, value: Value) -> Outcome:
        most = self._zone.settings.limits.answer_bytes
        if request.op is not Op.ENTRY_VIEW and bytes_of(value) > most:
            return Outcome(Status.TOO_LARGE, None, too_long(most))
        return Outcome(Status.OK, value)

    def flush(self) -> None:
        """Request a confirmation. If one is outstanding, these reads share the next one."""
        if self.waiting and not self.asked:
            reads, self.waiting = self.waiting, []
            now_ns = self._out.now_ns
            self._ask(_Asked(now_ns, now_ns + self._zone.timeout_ns, reads))

    def _ask(self, asked: _Asked) -> None:
        context = self._zone.context()
        try:
            self._zone.groups.read(self._number, context)
        except ProposalRefused:
            _answer(asked.reads, NOT_LEADING)
            return
        asked.asked_ns = self._out.now_ns
        self.asked[context] = asked

    def on_confirmed(self, context: bytes) -> None:
        """Everything that these reads must see is applied (raft_partition/Z-2)."""
        asked = self.asked.pop(context, None)
        if asked is not None:
            for request, on_done in asked.reads:
                on_done(self._read(request))

    def lose_asked(self) -> None:
        """This member no longer leads: no confirmation will arrive."""
        asked, self.asked = self.asked, {}
        for one in asked.values():
            _answer(one.reads, NOT_LEADING)

    def lose_waiting(self) -> None:
        waiting, self.waiting = self.waiting, []
        _answer(waiting, NOT_LEADING)

    def expire(self, now_ns: int) -> None:
        """Answer reads that have timed out, and request lost confirmations again."""
        for context, one in list(self.asked.items()):
            if one.deadline_ns <= now_ns:
                _answer(self.asked.pop(context).reads, NOT_CONFIRMED)
            elif now_ns - one.asked_ns >= READ_AGAIN_NS:
                self._ask(self.asked.pop(context))


def _answer(reads: _Reads, outcome: Outcome) -> None:
    for _, on_done in reads:
        on_done(outcome)
