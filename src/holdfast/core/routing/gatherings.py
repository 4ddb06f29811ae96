"""Operations on whole partitions: each primary is asked for its share, and the shares are merged.

Example: SIZE of a map. Member 1 counts its own partitions, forwards the operation to 2 and 3 with theirs, and adds up
the three numbers. A partition that moves meanwhile is reported as missed, and requested again from its new primary.
Primaries work on their shares in slices. routing/R-8 is in `router`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Protocol

from msgspec.structs import replace

from holdfast.config import Settings
from holdfast.core.messages import Answer, Forward
from holdfast.core.model.ids import MILLISECOND, SECOND, MemberId
from holdfast.core.model.levels import FORGETS
from holdfast.core.model.open_operations import OpenOperation
from holdfast.core.model.operations import (
    CLEARING,
    MOVING,
    READS,
    WHOLE,
    EntryEvent,
    EventKind,
    Op,
    Outcome,
    Request,
    Status,
    Value,
    bytes_of,
    too_long,
)
from holdfast.core.model.partition_table import Assignment
from holdfast.core.model.timer_name import TimerName
from holdfast.core.operations.map_operations import answers, merge
from holdfast.core.outbox import Outbox
from holdfast.core.primary_backup.primary_copy import SLICE_ENTRIES
from holdfast.core.replication_engine import ReplicationEngine
from holdfast.core.routing.backup_reads import Neighbours
from holdfast.core.routing.pending import FULL, Asker, OwnShare, Parked, Peer, Waiting, answer
from holdfast.core.routing.request_refusals import RequestRefusals, changes

RETRY_NS = 50 * MILLISECOND
LOOKED_AT = 300
"""Oldest shares, in the search for slow operations."""
LATE_NS = SECOND
"""Interval of checks for overdue answers."""
LISTED_SHARE = 2
"""Limit of the bytes gathered at a time, as a multiple of `limits.answer_bytes`."""
PAUSE_NS = 1 * MILLISECOND
"""Pause between two slices, for other work."""

STAYING = frozenset({Op.CALL, Op.ASK, *MOVING})
"""Operations that do not go where a map lives."""

LISTED = Outcome(
    Status.NOT_READY, None, "other requests list more than this member can gather at a time; ask again"
)
PARTLY = "it was done in some partitions; others had no serving primary in time"


class Gathering:
    __slots__ = (
        "asker",
        "deadline_ns",
        "finished",
        "missing",
        "queued",
        "request",
        "size",
        "started",
        "value",
    )

    def __init__(self, request: Request, asker: Asker, deadline_ns: int) -> None:
        self.request = request
        self.asker = asker
        self.deadline_ns = deadline_ns
        self.missing = set(request.partitions)
        self.value: Value = None
        self.size = 0
        self.started = False
        self.finished = False
        self.queued = False


class Rehoming(Protocol):
    def rehome(self, parked: Parked) -> None: ...

    def rehome_gathering(self, gathering: Gathering) -> None: ...


class Departures:
    """Maps that a router serves no more, because they have moved to another engine (routing/R-13)."""

    def __init__(self) -> None:
        self.names: frozenset[str] = frozenset()
        self.rehoming: Rehoming | None = None

    def concern(self, request: Request) -> bool:
        return request.map in self.names and request.op not in STAYING


Slice = Gathering | tuple[MemberId, Forward]
"""A part of a session's operation, or of a share for another member."""


class Gatherings:
    def __init__(
        self,
        me: MemberId,
        settings: Settings,
        out: Outbox,
        rows: list[Assignment],
        replication: ReplicationEngine,
        *,
        neighbours: Neighbours,
        refusals: RequestRefusals,
        waiting: Waiting,
    ) -> None:
        self._me = me
        self._settings = settings
        self._out = out
        self._rows = rows
        self._replication = replication
        self._neighbours = neighbours
        self._refusals = refusals
        self._waiting = waiting
        self._timeout_ns = settings.limits.call_timeout_ms * MILLISECOND
        self._answer_bytes = settings.limits.answer_bytes

        self.departures = Departures()
        self._asked: dict[int, tuple[MemberId, Gathering, list[int]]] = {}
        """By ticket: the member that was asked, and the partitions."""
        self._again: list[Gathering] = []
        """Gatherings with a partition whose primary is unknown or absent."""
        self._works: deque[Slice] = deque()
        self._spent = 0
        """Approximate entries that slices have looked at in this turn."""
        self._listed = 0
        """Bytes of keys and values gathered for answers that are not complete yet."""

    def begin(self, request: Request, asker: Asker) -> None:
        assert request.op in WHOLE, "an operation on whole partitions"
        if not self._waiting.enter(0):
            answer(self._out, asker, FULL)
            return
        if request.op is Op.DESTROY and not self._out.does(FORGETS):
            # Members of an earlier build do not know DESTROY.
            request = replace(request, op=Op.CLEAR)
        self._take_turn(Gathering(request, asker, self._out.now_ns + self._timeout_ns))

    def _depart(self, gathering: Gathering) -> None:
        """When no share is under way: their answers come to this router."""
        if self._under_way(gathering):
            if gathering not in self._again:
                self._again.append(gathering)
            self._waiting.look_in(RETRY_NS)
            return
        assert self.departures.rehoming is not None, "maps depart to somewhere"
        self._listed -= gathering.size
        self.departures.rehoming.rehome_gathering(gathering)

    def adopt(self, gathering: Gathering) -> None:
        """Continue an operation on a map that has moved here, in the partitions that it misses."""
        self._listed += gathering.size
        self._take_turn(gathering)

    def reject(self, gathering: Gathering, outcome: Outcome) -> None:
        """The map has moved, and the operation cannot be passed on."""
        self._listed += gathering.size
        self._finish(gathering, Outcome(Status.UNKNOWN, None, PARTLY) if gathering.started else outcome)

    def share_wanted(self, sender: MemberId, forward: Forward) -> None:
        self._take_turn((sender, forward))

    # -- slices

    def _take_turn(self, work: Slice) -> None:
        """Queue it if the slices of this turn have taken long enough."""
        if self._works or self._spent >= SLICE_ENTRIES:
            self._works.append(work)
        else:
            if not self._spent:
                self._out.timer(TimerName.GATHER, PAUSE_NS)
            self._spent += 1
            self._work(work)

    def take_turns(self) -> None:
        self._spent = 0
        works = self._works
        while works and self._spent < SLICE_ENTRIES:
            self._spent += 1
            self._work(works.popleft())
        if self._spent:
            self._out.timer(TimerName.GATHER, PAUSE_NS)

    def _work(self, work: Slice) -> None:
        if isinstance(work, Gathering):
            self._go_on(work)
        else:
            sender, forward = work
            self._perform(forward.request, Peer(sender, forward.ticket))

    def _go_on(self, gathering: Gathering) -> None:
        """The next slice, unless it is too late."""
        assert self._listed >= 0, "only counted bytes are released"
        gathering.queued = False
        if gathering.deadline_ns <= self._out.now_ns:
            self._finish(gathering, self._too_late(gathering))
        elif not gathering.finished:
            self._gather(gathering)

    # -- gathering

    def _gather(self, gathering: Gathering) -> None:
        """Ask every primary for its share of the missing partitions."""
        if self.departures.names and self.departures.concern(gathering.request):
            self._depart(gathering)
            return
        refused = self._refusals.rejection(gathering.request)
        if refused is not None:
            partly = gathering.started and gathering.request.op not in READS
            self._finish(gathering, Outcome(Status.UNKNOWN, None, PARTLY) if partly else refused)
            return
        crowded = self._replication.refusing and changes(gathering.request)
        shares: dict[MemberId, list[int]] = {}
        mine: list[int] = []
        late = False
        for partition in sorted(gathering.missing):
            owner = self._rows[partition].owner
            if self._replication.leads(partition) and not crowded:
                mine.append(partition)
            elif owner is None or owner == self._me or not self._neighbours.is_member(owner):
                late = True
            else:
                shares.setdefault(owner, []).append(partition)
        gathering.started = gathering.started or bool(shares) or bool(mine)
        for owner, partitions in shares.items():
            ticket = self._waiting.ticket()
            assert owner != self._me, "the own share is not forwarded"
            self._asked[ticket] = (owner, gathering, partitions)
            gathering.missing.difference_update(partitions)
            self._waiting.look_in(LATE_NS)
            self._out.send(owner, Forward(ticket, _share(gathering.request, partitions)))
        if mine:
            gathering.missing.difference_update(mine)
            assert gathering.missing.isdisjoint(mine), "a requested partition is not missing"
            ticket = self._waiting.ticket()
            self._asked[ticket] = (self._me, gathering, mine)
            self._perform(_share(gathering.request, mine), OwnShare(ticket))
        elif not gathering.request.partitions:
            self._collect(gathering, [], Outcome(Status.OK, None), [])
        if late:
            self._again.append(gathering)
            self._waiting.look_in(RETRY_NS)

    def _perform(self, request: Request, asker: Peer | OwnShare) -> None:

        def done(outcome: Outcome, left: Sequence[int], missed: Sequence[int]) -> None:
            self.performed(asker, outcome, left, missed)

        effort = self._replication.submit_whole(request, done)
        self._spent += effort

    def performed(
        self, asker: Peer | OwnShare, outcome: Outcome, left: Sequence[int], missed: Sequence[int]
    ) -> None:
        """A share, or a slice of it. `left`: partitions that need another slice; `missed`: not served here."""
        if isinstance(asker, OwnShare):
            # The other shares may be answered: this one waits for its backups.
            _, gathering, mine = self._asked.pop(asker.ticket)
            self._collect(gathering, mine, outcome, list(left))
        else:
            self._out.send(asker.member, Answer(asker.ticket, outcome, sorted({*missed, *left})))

    def open_since(self, before_ns: int) -> Iterator[OpenOperation]:
        asked: dict[Gathering, list[MemberId]] = {gathering: [] for gathering in self._again}
        for owner, gathering, _ in islice(self._asked.values(), LOOKED_AT):
            asked.setdefault(gathering, []).append(owner)
        for gathering, members in asked.items():
            since_ns = gathering.deadline_ns - self._timeout_ns
            if since_ns > before_ns or gathering.finished:
                continue
            request = gathering.request
            yield OpenOperation(
                ("gathering", id(gathering)),
                request.op.name.lower(),
                1,
                {request.map: tuple(request.partitions)},
                since_ns,
                "the shares of members" if members else "a primary for some partition",
                tuple(sorted(set(members))),
            )

    def awaits(self, ticket: int) -> bool:
        return ticket in self._asked

    def on_answer(self, sender: MemberId, message: Answer) -> None:
        asked = self._asked.pop(message.ticket, None)
        if asked is not None:
            _, gathering, share = asked
            outcome = message.outcome
            if outcome.status is Status.OK and not answers(gathering.request.op, outcome.value):
                # Ask again, whichever member is primary by then.
                outcome = Outcome(Status.MOVED, None, f"member {sender} has answered what is no answer")
            self._collect(gathering, share, outcome, message.missed)

    def _collect(self, gathering: Gathering, asked: list[int], outcome: Outcome, missed: list[int]) -> None:
        if gathering.finished:
            return
        if outcome.status in (Status.FAILED, Status.TOO_LARGE):
            self._finish(gathering, outcome)
            return
        if outcome.status is Status.OK:
            size = bytes_of(outcome.value)
            gathering.size += size
            self._listed += size
            if self._listed > LISTED_SHARE * self._answer_bytes and self._listed > gathering.size:
                gathering.value = None
                self._finish(gathering, LISTED)
                return
            if gathering.size > self._answer_bytes:
                gathering.value = None
                self._finish(gathering, Outcome(Status.TOO_LARGE, None, too_long(self._answer_bytes)))
                return
            gathering.value = merge(gathering.request.op, gathering.value, outcome.value)
        else:
            missed = asked
        if missed:
            gathering.missing.update(missed)
            if len(missed) < len(asked):
                # The next slice comes soon, but after the slices of others.
                if not gathering.queued:
                    gathering.queued = True
                    self._works.append(gathering)
                    self._out.timer(TimerName.GATHER, PAUSE_NS)
            else:
                if gathering not in self._again:
                    self._again.append(gathering)
                self._waiting.look_in(RETRY_NS)
        elif not gathering.missing and not self._under_way(gathering):
            if gathering.request.op in CLEARING:
                self._tell_cleared(gathering)
            self._finish(gathering, Outcome(Status.OK, gathering.value))

    def _finish(self, gathering: Gathering, outcome: Outcome) -> None:
        """Answer once; later shares are ignored."""
        if not gathering.finished:
            gathering.finished = True
            self._waiting.leave(0)
            self._listed -= gathering.size
            assert self._listed >= 0, "only counted bytes are released"
            answer(self._out, gathering.asker, outcome)

    def _tell_cleared(self, gathering: Gathering) -> None:
        request = gathering.request
        if isinstance(gathering.value, int):
            kind = EventKind.EVICT_ALL if request.op is Op.EVICT_ALL else EventKind.CLEAR_ALL
            self._replication.publish(EntryEvent(kind, request.map, self._me, count=gathering.value))

    def _under_way(self, gathering: Gathering) -> bool:
        return any(entry[1] is gathering for entry in self._asked.values())

    # -- occasions

    def askers_gone(self, gone: set[MemberId]) -> None:
        """Drop the shares that these members have asked for (routing/R-10)."""
        stay = [work for work in self._works if isinstance(work, Gathering) or work[0] not in gone]
        self._works.clear()
        self._works.extend(stay)

    def members_gone(self, gone: set[MemberId]) -> None:
        """Ask other members for the missing shares of these."""
        for ticket, (owner, gathering, asked) in list(self._asked.items()):
            if owner in gone:
                del self._asked[ticket]
                self._collect(gathering, asked, Outcome(Status.MOVED), [])

    def superseded(self, partition: int) -> None:
        """Another member leads this partition: ask it for reads that the former leader has not answered."""
        for ticket, (owner, gathering, asked) in list(self._asked.items()):
            if owner != self._me and partition in asked and gathering.request.op in READS:
                del self._asked[ticket]
                self._collect(gathering, asked, Outcome(Status.MOVED), [])

    def try_again(self) -> None:
        again, self._again = self._again, []
        for gathering in again:
            self._take_turn(gathering)

    def give_up(self, now_ns: int) -> None:
        """Shares that have waited too long for an answer (routing/R-3)."""
        for ticket, (owner, gathering, _) in list(self._asked.items()):
            if owner != self._me and gathering.deadline_ns <= now_ns:
                del self._asked[ticket]
                self._finish(gathering, self._too_late(gathering))

    def end(self, why: str) -> None:
        """The routed partitions are gone: answer everything that is open."""
        waiting = [*self._again, *(one for one in self._works if isinstance(one, Gathering))]
        waiting += [gathering for _, gathering, _ in self._asked.values()]
        self._again, self._asked = [], {}
        self._works.clear()
        for gathering in waiting:
            reads = gathering.request.op in READS or not gathering.started
            self._finish(gathering, Outcome(Status.NOT_READY if reads else Status.UNKNOWN, None, why))

    def _too_late(self, gathering: Gathering) -> Outcome:
        if gathering.request.op in READS or not gathering.started:
            return timed_out(gathering.request, self._timeout_ns)
        return Outcome(Status.UNKNOWN, None, PARTLY)

    @property
    def waits_for_owners(self) -> bool:
        return bool(self._again)

    @property
    def asked(self) -> int:
        return len(self._asked)

    @property
    def parked(self) -> int:
        return len(self._again) + len(self._works)


def timed_out(request: Request, timeout_ns: int, why: str = "") -> Outcome:
    """No primary was found in time; `why`: of the last rejection, if there was one."""
    where = f"partition {request.partitions[0]}" if len(request.partitions) == 1 else "some partition"
    why = why or "nothing was changed there"
    return Outcome(
        Status.NOT_READY, None, f"{where} had no serving primary for {timeout_ns // SECOND} s; {why}"
    )


def _share(request: Request, partitions: list[int]) -> Request:
    return Request(request.op, request.map, partitions, value=request.value)
