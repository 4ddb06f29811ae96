"""Proposals of one partition.

All changes of one step share one log entry. While two entries are in flight, further changes wait and share the next
one.

- raft_partition/Z-1: A change is answered when it is applied where it was proposed. If an entry of another leader takes
  its index, the change was not applied and never will be. If neither is known before the timeout, the outcome is
  unknown. Example: member 1 proposes X at index 17 in term 4 and is deposed. If the entry 17 that is committed has term
  5, X is lost, and the caller may safely send it again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import cast

import msgspec

from holdfast.core.model.ids import GroupNumber
from holdfast.core.model.map_moves import CLOSED
from holdfast.core.model.operations import DEFAULT_TTL, GROWING, Op, Outcome, Request, Status
from holdfast.core.model.zone_batches import ZoneWrite
from holdfast.core.raft.leader import ProposalRefused
from holdfast.core.raft.raft_messages import RaftEntry
from holdfast.core.raft_partition.partition_commands import (
    ZoneCommand,
    ZoneRequests,
    ZoneWrites,
    encode_command,
)
from holdfast.core.raft_partition.state_machine import Applied, Unapplied
from holdfast.core.raft_partition.zone_replicas import NOT_LEADING, Answered, ZoneReplicas

COMMAND_BYTES = 1 << 20
"""Approximate, of the requests in one entry."""
PROPOSED_MOST = 2
LOST = Outcome(Status.MOVED, None, "another leader's entry has taken its place: it was not applied")
LATE = Outcome(Status.UNKNOWN, None, "the partition's group has not agreed on it in time")
STOPPED = Outcome(Status.UNKNOWN, None, "the partition's replica here has ended before it was known")

_OWN_TTL = frozenset({Op.SET_TTL, Op.FILL})
"""The time to live of the map does not apply to these."""

_Waiting = tuple[Request | ZoneWrites, Answered]
"""Without an index yet; a callback of writes gets the former values."""


@dataclass(slots=True)
class Proposed:
    """Changes at an index of the log that may still get another entry."""

    term: int
    deadline_ns: int
    callbacks: list[tuple[Answered, int]]
    """Each with its number of writes; 0: a request."""


class Proposals:
    def __init__(self, number: GroupNumber, zone: ZoneReplicas) -> None:
        self._number = number
        self._zone = zone
        self._out = zone.out
        self.waiting: list[_Waiting] = []
        self.placed: dict[int, Proposed] = {}

    @property
    def unanswered(self) -> int:
        return len(self.waiting) + sum(len(one.callbacks) for one in self.placed.values())

    def oldest(self) -> tuple[int, int] | None:
        """Number of requests in the oldest entry that waits for a majority, and start time; None: none waits."""
        one = next(iter(self.placed.values()), None)
        return None if one is None else (len(one.callbacks), one.deadline_ns - self._zone.timeout_ns)

    def submit(self, request: Request, on_done: Answered) -> None:
        """`on_done` is called once."""
        unset = DEFAULT_TTL in (request.ttl_ms, request.max_idle_ms)
        if unset and request.op in GROWING and request.op not in _OWN_TTL:
            ttl_ms, max_idle_ms = self._zone.lifetimes(request.map)
            if ttl_ms and request.ttl_ms == DEFAULT_TTL:
                request = msgspec.structs.replace(request, ttl_ms=ttl_ms)
            if max_idle_ms and request.max_idle_ms == DEFAULT_TTL:
                request = msgspec.structs.replace(request, max_idle_ms=max_idle_ms)
        self.waiting.append((request, on_done))

    def write(self, partition: int, writes: list[ZoneWrite], on_done: Answered) -> None:
        """`on_done` is called once, with the former values."""
        self.waiting.append((ZoneWrites(writes, partition), on_done))

    # -- into the log

    def flush(self, term: int) -> None:
        """Propose what waits, unless too many entries are in flight."""
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
            if isinstance(wanted, ZoneWrites):
                callbacks.append((each, len(wanted.writes)))
                if isinstance(last, ZoneWrites) and last.partition == wanted.partition:
                    last.writes.extend(wanted.writes)
                else:
                    parts.append(ZoneWrites(wanted.writes.copy(), wanted.partition))
            else:
                callbacks.append((each, 0))
                if isinstance(last, ZoneRequests):
                    last.requests.append(wanted)
                else:
                    parts.append(ZoneRequests([wanted]))
        index = self.place(self._zone.command(tuple(parts)), term)
        if index is None:
            for each, _ in callbacks:
                each(NOT_LEADING)
        else:
            assert index not in self.placed, "each place of the log is proposed once in a term"
            self.placed[index] = Proposed(term, self._out.now_ns + self._zone.timeout_ns, callbacks)

    def place(self, command: ZoneCommand, term: int) -> int | None:
        """As leader of `term`; returns the index, or None if this member does not lead in that term. Never forwarded to
        another leader: the caller is going to report that the command was not applied.
        """
        groups = self._zone.groups
        if not term or groups.term(self._number) != term:
            return None
        try:
            return groups.propose(self._number, [encode_command(command)])
        except ProposalRefused:
            return None

    # -- outcomes

    def take(self, index: int) -> Proposed | None:
        """The changes that were proposed at this index, which is committed now."""
        while self.placed and (first := next(iter(self.placed))) < index:
            self._lose(first, LOST)  # That index has an entry without a command.
        return self.placed.pop(index, None)

    def lose_placed(self, outcome: Outcome) -> None:
        """Answer proposed changes whose outcome will not be known here."""
        for index in list(self.placed):
            self._lose(index, outcome)

    def lose_waiting(self) -> None:
        waiting, self.waiting = self.waiting, []
        for _, each in waiting:
            each(NOT_LEADING)

    def _lose(self, index: int, outcome: Outcome) -> None:
        for each, _ in self.placed.pop(index).callbacks:
            each(outcome)

    def expire(self, now_ns: int) -> None:
        """Applied changes that have timed out, and those behind them, which would wait as long."""
        for index in [index for index, one in self.placed.items() if one.deadline_ns <= now_ns]:
            self._lose(index, LATE)
            self.lose_waiting()


def answer_proposed(proposed: Proposed, entry: RaftEntry, answers: list[Applied]) -> None:
    """`answers` has one item for each request and write of the applied entry, in order."""
    if proposed.term == entry.term:
        _answer(proposed.callbacks, answers)
    else:
        for each, _ in proposed.callbacks:
            each(LOST)  # raft_partition/Z-1


def _answer(callbacks: Iterable[tuple[Answered, int]], answers: list[Applied]) -> None:
    at = 0
    for each, writes in callbacks:
        first = answers[at]
        if isinstance(first, Unapplied):
            each(CLOSED)  # None of a batch is applied (raft_partition/Z-8).
        elif writes:
            each(Outcome(Status.OK, cast("list[None | int | bytes]", answers[at : at + writes])))
        else:
            each(Outcome(Status.OK, first))
        at += writes or 1
    assert at == len(answers), "everybody is told of what was asked"


def _fitting(waiting: Sequence[_Waiting]) -> int:
    """How many fit into one entry; at least one."""
    size = 0
    for count, (wanted, _) in enumerate(waiting):
        if isinstance(wanted, ZoneWrites):
            size += sum([len(key) + len(value or b"") for _, key, value, _, _ in wanted.writes])
        else:
            size += len(wanted.key) + len(wanted.value) + sum(map(len, wanted.items))
        if count and size > COMMAND_BYTES:
            return count
    return len(waiting)
