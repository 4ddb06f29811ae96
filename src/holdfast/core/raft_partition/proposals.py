"""Changes of one partition on their way into its log, and who waits for them.

What came in one step is one entry of the log. While two entries are on their way, what comes meanwhile waits and shares
the next one: with many writers entries grow, not their number.

- raft_partition/Z-1: A change is answered when it is applied where it was proposed. Of one whose place in the log
  another entry has taken it is certain that it was not, and never will be, applied; of one whose place is not known
  to be taken by the time that callers wait, nothing is known.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import cast

import msgspec

from holdfast.core.model.ids import GroupNumber
from holdfast.core.model.operations import DEFAULT_TTL, GROWING, Op, Outcome, Request, Status, Value
from holdfast.core.model.zone_batches import ZoneWrite
from holdfast.core.raft.leader import ProposalRefused
from holdfast.core.raft.raft_messages import RaftEntry
from holdfast.core.raft_partition.partition_commands import (
    ZoneCommand,
    ZoneRequests,
    ZoneWrites,
    encode_command,
)
from holdfast.core.raft_partition.zone_replicas import NOT_LEADING, Answered, ZoneReplicas

COMMAND_BYTES = 1 << 20
"""Of the requests in one entry of the log, at about."""
PROPOSED_MOST = 2
"""Entries of a partition that are on their way: what comes meanwhile goes into the next one."""
LOST = Outcome(Status.MOVED, None, "another leader's entry has taken its place: it was not applied")
LATE = Outcome(Status.UNKNOWN, None, "the partition's group has not agreed on it in time")
STOPPED = Outcome(Status.UNKNOWN, None, "the partition's replica here has ended before it was known")

_Waiting = tuple[Request | list[ZoneWrite], Answered]
"""What waits for its place in the log, and the callback. A callback of writes gets the former values."""


@dataclass(slots=True)
class Proposed:
    """What has a place in the log, of which it is not known yet whether it stays its own."""

    term: int
    deadline_ns: int
    callbacks: list[tuple[Answered, int]]
    """Each with the number of its writes; 0: of a request."""


class Proposals:
    """The proposals of one partition on this member."""

    def __init__(self, number: GroupNumber, zone: ZoneReplicas) -> None:
        self._number = number
        self._zone = zone
        self._out = zone.out
        self.waiting: list[_Waiting] = []
        """What has no place in the log yet."""
        self.placed: dict[int, Proposed] = {}
        """What has one, by index."""

    @property
    def unanswered(self) -> int:
        """Requests and batches of writes whose callbacks were not called."""
        return len(self.waiting) + sum(len(one.callbacks) for one in self.placed.values())

    def oldest(self) -> tuple[int, int] | None:
        """Of what has waited longest for a majority: how many requests, and since when; None: nothing waits."""
        one = next(iter(self.placed.values()), None)
        return None if one is None else (len(one.callbacks), one.deadline_ns - self._zone.timeout_ns)

    def submit(self, request: Request, on_done: Answered) -> None:
        """A request that changes something; `on_done` is called once."""
        if request.ttl_ms == DEFAULT_TTL and request.op in GROWING and request.op is not Op.SET_TTL:
            ttl_ms = self._zone.lifetime(request.map)
            if ttl_ms:
                request = msgspec.structs.replace(request, ttl_ms=ttl_ms)
        self.waiting.append((request, on_done))

    def write(self, writes: list[ZoneWrite], on_done: Answered) -> None:
        """Writes of single entries; `on_done` is called once, with what the entries were."""
        self.waiting.append((writes, on_done))

    # -- into the log

    def flush(self, term: int) -> None:
        """The step ends: what has come goes to the group, unless so much is on its way there that it can wait for what
        comes next.
        """
        while self.waiting and len(self.placed) < PROPOSED_MOST:
            count = _fitting(self.waiting)
            some = self.waiting[:count]
            del self.waiting[:count]
            self._propose(some, term)

    def _propose(self, some: Sequence[_Waiting], term: int) -> None:
        parts: list[ZoneRequests | ZoneWrites] = []
        callbacks: list[tuple[Answered, int]] = []
        for wanted, each in some:
            last = parts[-1] if parts else None
            if isinstance(wanted, list):
                callbacks.append((each, len(wanted)))
                if isinstance(last, ZoneWrites):
                    last.writes.extend(wanted)
                else:
                    parts.append(ZoneWrites(wanted.copy()))
            else:
                callbacks.append((each, 0))
                if isinstance(last, ZoneRequests):
                    last.requests.append(wanted)
                else:
                    parts.append(ZoneRequests([wanted]))
        index = self.place(ZoneCommand(self._out.wall_ms(), tuple(parts)), term)
        if index is None:
            for each, _ in callbacks:
                each(NOT_LEADING)
        else:
            assert index not in self.placed, "each place of the log is proposed once in a term"
            self.placed[index] = Proposed(term, self._out.now_ns + self._zone.timeout_ns, callbacks)

    def place(self, command: ZoneCommand, term: int) -> int | None:
        """Give it a place in the log, as leader of `term`; None: it has none, and will not have one. No other leader is
        asked: it would be said that it was not applied.
        """
        groups = self._zone.groups
        if not term or groups.term(self._number) != term:
            return None
        try:
            return groups.propose(self._number, [encode_command(command)])
        except ProposalRefused:
            return None

    # -- what has become of it

    def take(self, index: int) -> Proposed | None:
        """What was proposed at this index, which is committed now."""
        while self.placed and (first := next(iter(self.placed))) < index:
            self._lose(first, LOST)  # An entry without a command is there.
        return self.placed.pop(index, None)

    def lose_placed(self, outcome: Outcome) -> None:
        """It will not be known here what becomes of what has a place in the log."""
        for index in list(self.placed):
            self._lose(index, outcome)

    def lose_waiting(self) -> None:
        """This member does not lead any more."""
        waiting, self.waiting = self.waiting, []
        for _, each in waiting:
            each(NOT_LEADING)

    def _lose(self, index: int, outcome: Outcome) -> None:
        for each, _ in self.placed.pop(index).callbacks:
            each(outcome)

    def expire(self, now_ns: int) -> None:
        """Answer what has waited long enough. What waits behind it would wait as long."""
        for index in [index for index, one in self.placed.items() if one.deadline_ns <= now_ns]:
            self._lose(index, LATE)
            self.lose_waiting()


def answer_proposed(proposed: Proposed, entry: RaftEntry, answers: list[Value]) -> None:
    """The entry at its place is applied. `answers` has one for each request and write of it, in their order."""
    if proposed.term == entry.term:
        _answer(proposed.callbacks, answers)
    else:
        for each, _ in proposed.callbacks:
            each(LOST)  # raft_partition/Z-1


def _answer(callbacks: Iterable[tuple[Answered, int]], answers: list[Value]) -> None:
    at = 0
    for each, writes in callbacks:
        if writes:
            former = cast("list[None | int | bytes]", answers[at : at + writes])
            each(Outcome(Status.OK, former))
            at += writes
        else:
            each(Outcome(Status.OK, answers[at]))
            at += 1
    assert at == len(answers), "everybody is told of what was asked"


def _fitting(waiting: Sequence[_Waiting]) -> int:
    """How many of the first of these go into one entry: one at least."""
    size = 0
    for count, (wanted, _) in enumerate(waiting):
        if isinstance(wanted, list):
            size += sum([len(key) + len(value or b"") for _, key, value, _, _ in wanted])
        else:
            size += len(wanted.key) + len(wanted.value) + sum(map(len, wanted.items))
        if count and size > COMMAND_BYTES:
            return count
    return len(waiting)
