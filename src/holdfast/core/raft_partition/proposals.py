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

from holdfast.core.model.decisions import Wait
from holdfast.core.model.ids import GroupNumber
from holdfast.core.model.map_moves import CLOSED
from holdfast.core.model.operations import DEFAULT_TTL, GROWING, Op, Outcome, Request, Status, Value
from holdfast.core.model.zone_batches import ZoneChanges, ZoneRequests, ZoneWrites
from holdfast.core.raft.leader import ProposalRefused
from holdfast.core.raft.raft_messages import RaftEntry
from holdfast.core.raft_partition.partition_commands import ZoneCommand, encode_command
from holdfast.core.raft_partition.state_machine import Applied, Unapplied
from holdfast.core.raft_partition.zone_replicas import NOT_LEADING, Answered, ZoneReplicas
from holdfast.core.replication_engine import Decided

COMMAND_BYTES = 1 << 20
"""Approximate, of the requests in one entry."""
PROPOSED_MOST = 2
LOST = Outcome(Status.MOVED, None, "another leader's entry has taken its place: it was not applied")
LATE = Outcome(Status.UNKNOWN, None, "the partition's group has not agreed on it in time")
BEHIND = Outcome(Status.MOVED, None, "earlier changes have timed out, and are not applied yet")
STOPPED = Outcome(Status.UNKNOWN, None, "the partition's replica here has ended before it was known")

_OWN_TTL = frozenset({Op.SET_TTL, Op.FILL})
"""The time to live of the map does not apply to these."""

LOCKED = Outcome(Status.MOVED, None, "a transaction has locked an entry")
PARTLY = Outcome(Status.UNKNOWN, None, "a transaction had locked some of the entries")
REQUEST, BARRIER = 0, -1
"""Instead of the number of changes of a batch."""
DONE = Outcome(Status.OK)
_Waiting = tuple[list[ZoneChanges], int, Answered]
"""Without an index yet: a request or barrier, or the changes of a batch and their number. The callback of a batch gets
a list of answers.
"""


@dataclass(slots=True)
class Proposed:
    """Changes at an index of the log that may still get another entry."""

    term: int
    deadline_ns: int
    callbacks: list[tuple[Answered, int]]
    """Each with the number of changes of its batch, or `REQUEST` or `BARRIER`."""


class Proposals:
    def __init__(self, number: GroupNumber, zone: ZoneReplicas) -> None:
        self._number = number
        self._zone = zone
        self._out = zone.out
        self.waiting: list[_Waiting] = []
        self.placed: dict[int, Proposed] = {}
        self._late_to = 0
        """Newest place of the log whose changes have timed out; they may still be applied."""

    @property
    def unanswered(self) -> int:
        return len(self.waiting) + sum(len(one.callbacks) for one in self.placed.values())

    def oldest(self) -> tuple[int, int] | None:
        """Number of requests in the oldest entry that waits for a majority, and start time; None: none waits."""
        one = next(iter(self.placed.values()), None)
        return None if one is None else (len(one.callbacks), one.deadline_ns - self._zone.timeout_ns)

    def submit(self, request: Request, on_done: Answered) -> None:
        """`on_done` is called once."""
        self.waiting.append(([ZoneRequests([self._with_lifetimes(request)])], REQUEST, on_done))

    def after(self, on_done: Answered) -> None:
        """`on_done` is called once, when all changes that were submitted before are applied."""
        if self.waiting or self.placed:
            self.waiting.append(([], BARRIER, on_done))
        else:
            applied = self._zone.groups.hosted[self._number].group.log.applied
            on_done(DONE if applied >= self._late_to else BEHIND)

    def _with_lifetimes(self, request: Request) -> Request:
        """With those of the map where it names none."""
        unset = DEFAULT_TTL in (request.ttl_ms, request.max_idle_ms)
        if unset and request.op in GROWING and request.op not in _OWN_TTL:
            ttl_ms, max_idle_ms = self._zone.lifetimes(request.map)
            if ttl_ms and request.ttl_ms == DEFAULT_TTL:
                request = msgspec.structs.replace(request, ttl_ms=ttl_ms)
            if max_idle_ms and request.max_idle_ms == DEFAULT_TTL:
                request = msgspec.structs.replace(request, max_idle_ms=max_idle_ms)
        return request

    def change(self, changes: list[ZoneChanges], on_done: Answered) -> None:
        """Changes of one map in one partition. `on_done` is called once, with the former value of each write and the
        answer to each request, in order.
        """
        count = 0
        for part in changes:
            if isinstance(part, ZoneWrites):
                count += len(part.writes)
            else:
                count += len(part.requests)
                part.requests[:] = map(self._with_lifetimes, part.requests)
        assert count, "a batch changes something"
        self.waiting.append((changes, count, on_done))

    # -- into the log

    def flush(self, term: int) -> None:
        """Propose what waits, unless too many entries are in flight."""
        while self.waiting and len(self.placed) < PROPOSED_MOST:
            count = _fitting(self.waiting)
            some = self.waiting[:count]
            del self.waiting[:count]
            self._propose(some, term)

    def _propose(self, some: Sequence[_Waiting], term: int) -> None:
        parts: list[ZoneChanges] = []
        callbacks: list[tuple[Answered, int]] = []
        for changes, count, each in some:
            callbacks.append((each, count))
            for part in changes:
                _add(parts, part)
        if not parts:
            self._follow(callbacks)
            return
        index = self.place(self._zone.command(tuple(parts)), term)
        if index is None:
            for each, _ in callbacks:
                each(NOT_LEADING)
        else:
            assert index not in self.placed, "each place of the log is proposed once in a term"
            self.placed[index] = Proposed(term, self._out.now_ns + self._zone.timeout_ns, callbacks)

    def _follow(self, barriers: list[tuple[Answered, int]]) -> None:
        """Barriers alone need no entry of their own: they wait for the last one."""
        if self.placed:
            self.placed[next(reversed(self.placed))].callbacks.extend(barriers)
        else:
            for each, _ in barriers:
                each(DONE)

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

    def on_elected(self) -> None:
        """This member leads in a new term. Changes that it proposed in earlier terms behind the end of its log were
        lost, and keep no place any more. Example: it is cut off with changes at 17 and 19. Others elect member 2, which
        proposes 16 alone; then this member leads again, and proposes 17. Nothing of the earlier term can be committed
        at 19, where it is going to propose another change.
        """
        log = self._zone.groups.hosted[self._number].group.log
        for index in [index for index in self.placed if index > log.last]:
            self._lose(index, LOST)
        self._late_to = 0  # All that was committed before is applied before this leader is current.

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
        for _, _, each in waiting:
            each(NOT_LEADING)

    def _lose(self, index: int, outcome: Outcome) -> None:
        for each, _ in self.placed.pop(index).callbacks:
            each(outcome)

    def expire(self, now_ns: int) -> None:
        """Applied changes that have timed out, and those behind them, which would wait as long."""
        for index in [index for index, one in self.placed.items() if one.deadline_ns <= now_ns]:
            self._lose(index, LATE)
            self._late_to = max(self._late_to, index)
            self.lose_waiting()


def answer_proposed(proposed: Proposed, entry: RaftEntry, answers: list[Applied]) -> None:
    """`answers` has one item for each change of the applied entry, in order."""
    if proposed.term == entry.term:
        _answer(proposed.callbacks, answers)
    else:
        for each, _ in proposed.callbacks:
            each(LOST)  # raft_partition/Z-1


def _answer(callbacks: Iterable[tuple[Answered, int]], answers: list[Applied]) -> None:
    at = 0
    for each, changes in callbacks:
        if changes == BARRIER:
            each(DONE)
            continue
        some = answers[at : at + (changes or 1)]
        if isinstance(some[0], Wait | Outcome):
            cast("Decided", each)(
                some[0]
            )  # Only a step of a collection has to wait, and its router knows of it.
        elif some[0] is Unapplied.CLOSED:
            each(CLOSED)  # None of a batch is applied (raft_partition/Z-8).
        elif Unapplied.LOCKED in some:
            each(LOCKED if some.count(Unapplied.LOCKED) == len(some) else PARTLY)
        elif changes:
            each(Outcome(Status.OK, cast("list[None | int | bytes]", some)))
        else:
            each(Outcome(Status.OK, cast("Value", some[0])))
        at += len(some)
    assert at == len(answers), "each change has an answer"


def _fitting(waiting: Sequence[_Waiting]) -> int:
    """How many fit into one entry; at least one."""
    size = 0
    for count, (changes, _, _) in enumerate(waiting):
        size += sum(map(_size_of, changes))
        if count and size > COMMAND_BYTES:
            return count
    return len(waiting)


def _size_of(part: ZoneChanges) -> int:
    if isinstance(part, ZoneWrites):
        return sum([len(key) + len(value or b"") for _, key, value, _, _ in part.writes])
    return sum([len(one.key) + len(one.value) + sum(map(len, one.items)) for one in part.requests])


def _add(parts: list[ZoneChanges], part: ZoneChanges) -> None:
    """To the last part, if that is of the same kind.

    Writes of a part are applied together or not at all, so they are of one map. Example: a batch sets a, and replaces b
    if it is there, both in map m; the next batch sets c in map n, which is closed. In one part with a, c would keep a
    from being applied, but not b.
    """
    last = parts[-1] if parts else None
    if isinstance(part, ZoneRequests):
        if isinstance(last, ZoneRequests):
            last.requests.extend(part.requests)
        else:
            parts.append(ZoneRequests(part.requests.copy()))
    elif (
        isinstance(last, ZoneWrites)
        and last.partition == part.partition
        and last.writes[0][0] == part.writes[0][0]
    ):
        last.writes.extend(part.writes)
    else:
        parts.append(ZoneWrites(part.writes.copy(), part.partition))
