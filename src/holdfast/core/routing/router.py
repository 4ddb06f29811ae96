"""The router: a request is carried out here, forwarded, or waits until its partition is served.

- routing/R-1: A request is answered exactly once.
- routing/R-2: A request that was sent to a member that then left the view is sent to the next primary. If it changes
  something it carries an id by which that primary knows whether it was applied; without an id
  (`replication.unknown_writes` = "fail") its outcome is unknown.
- routing/R-3: A request waits while its partition has no serving primary, at most the call timeout; then it is
  rejected: not applied. One that was sent and not answered by then has an unknown outcome.
- routing/R-4: A request that may have been applied already is never rejected, only unknown.
- routing/R-6: The requests that wait here are bounded (`limits.waiting_requests`, `limits.waiting_bytes`); more are
  rejected. Those that wait for a change of collections take at most half of the places. This member's own steps of a
  map that moves are not counted: there is one at a time for each partition, and the requests that wait for the end of
  the move may take all the room.
- routing/R-8: While a member has not acknowledged `limits.answer_bytes` of answers, reads that it forwards are sent
  back, and it asks again.
- routing/R-10: When a member leaves, the requests that it has forwarded and that wait here are forgotten. It sends them
  again to another member, and the first one must not be done after that was answered. An id does not help: a request
  that changed nothing leaves none.

- routing/R-11: A request that waits for a change of its partition (a take from an empty queue) waits at its primary,
  within the bounds of routing/R-6. It is submitted again after each change, in the order of arrival, and answered at
  the end of its wait: at most half the call timeout, because the member that forwarded it waits only for that timeout.
  When the partition moves, it is sent there. A step of a collection waits for half the call timeout after its arrival
  at the first member, also if it has waited for a primary before: it must not take an item for a client that has an
  error already.

- routing/R-13: When a map has moved to another engine (model/M-1), the requests that wait here go there. One that may
  have been applied is not sent there, because that engine does not know its id: its outcome is unknown.

Example for routing/R-2 and routing/R-4: member 3 forwards a put with id x to primary 1, which replicates it as update
18 to backup 2 and crashes before it answers. Member 3 sends the put again, to the new primary 2, which knows x from
update 18 and answers without applying it again. If member 2 had to reject it, say because its memory is full, member 3
would answer "unknown": the first try may be applied.

Other rules are in `backup_reads` (routing/R-5), `request_refusals` (routing/R-7) and `primary_backup.primary_copy`
(primary_backup/A-1).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Protocol

import msgspec

from holdfast.config import LimitSettings, Settings
from holdfast.core.messages import Answer, Forward, Withdrawals, ZoneForward
from holdfast.core.model.collections import is_set, with_start
from holdfast.core.model.decisions import Wait
from holdfast.core.model.ids import MILLISECOND, SECOND, MemberId
from holdfast.core.model.notices import LockAwaited
from holdfast.core.model.open_operations import OpenOperation
from holdfast.core.model.operations import (
    COLLECTION_CHANGES,
    MOVING,
    READS,
    STRUCTURE_WAITS,
    WHOLE,
    Op,
    Outcome,
    Request,
    Status,
)
from holdfast.core.model.partition_table import Assignment
from holdfast.core.model.processors import RunBegun, begin_run, is_finished, without_run
from holdfast.core.operations.map_operations import FROM_BACKUPS
from holdfast.core.outbox import Outbox
from holdfast.core.replication_engine import ReplicationEngine
from holdfast.core.routing.backup_reads import BackupReads, Neighbours
from holdfast.core.routing.collection_waits import WAIT_SHARE, CollectionWaits
from holdfast.core.routing.gatherings import LATE_NS, RETRY_NS, Departures, Gatherings, Rehoming, timed_out
from holdfast.core.routing.lane_access import LaneAccess
from holdfast.core.routing.pending import (
    FULL,
    Asker,
    Parked,
    Peer,
    Waiting,
    Within,
    answer,
    asks_again,
    size_of,
)
from holdfast.core.routing.processor_runs import ProcessorRuns
from holdfast.core.routing.request_refusals import CROWDED, RequestRefusals, changes
from holdfast.core.routing.slow_requests import parked_since
from holdfast.core.store.partition_copy import PartitionCopy

HAS_LEFT = Outcome(Status.CLOSING, None, "this member has left the cluster")
_OF_MANY_VALUES = frozenset({Op.TRANSACT, Op.SETTLE, Op.FILL})
NOT_IN_A_ZONE = Outcome(
    Status.FAILED, None, "the map does not live in a zone, by the settings of this member"
)
WITHDRAWN = Outcome(Status.NOT_READY, None, "its client has gone; nothing was done")
NOT_HERE = Outcome(Status.MOVED, None, "this member does not serve the partition")
UNREAD = Outcome(Status.NOT_READY, None, "the member that asks has too many answers on their way to it")


class Offers(Protocol):
    """The part of the table's replication that the router uses."""

    def stored_assignment(self, partition: int) -> Assignment | None: ...


class Heartbeats(Protocol):
    def on_heartbeat(self, request: Request) -> None:
        """Called for each heartbeat of a session of a CP group that this member decides."""


class ForwardedFrames(Protocol):
    """See `frame_forwarding`."""

    @property
    def leftovers(self) -> dict[str, int]: ...

    def open_since(self, before_ns: int) -> Iterator[OpenOperation]: ...


class Router:
    def __init__(
        self,
        me: MemberId,
        settings: Settings,
        out: Outbox,
        rows: list[Assignment],
        replication: ReplicationEngine,
        *,
        held: Mapping[int, PartitionCopy],
        neighbours: Neighbours,
        offers: Offers,
        waiting: Waiting | None = None,
        of_terms: bool = False,
    ) -> None:
        """`held`: copies on this member. `waiting`: of another router, to share room, tickets and timer. `of_terms`:
        the version of an assignment is a term, in which alone its owner may take a request (raft_partition/R-2).
        """
        self._me = me
        self._limits = settings.limits
        self._out = out
        self._rows = rows
        self._replication = replication
        self._neighbours = neighbours
        self._offers = offers
        self._prefix = blake2b(me.encode(), digest_size=16).digest()
        chosen = settings.replication
        self._retries = chosen.unknown_writes == "retry" and chosen.request_ids > 0
        self._of_terms = of_terms
        self._timeout_ns = settings.limits.call_timeout_ms * MILLISECOND
        self.refusals = RequestRefusals(settings, rows, replication)
        self.access = LaneAccess(self.refusals.losses)
        self.waiting = self._waiting = waiting or Waiting(settings, out)
        self.runs = ProcessorRuns(out, self._waiting, settings.limits)
        """Those of all routers of a member."""
        self.backup_reads = BackupReads(me, settings, out, rows, held, neighbours)
        self.gatherings = Gatherings(
            me,
            settings,
            out,
            rows,
            replication,
            neighbours=neighbours,
            refusals=self.refusals,
            waiting=self._waiting,
        )
        self._departures = self.gatherings.departures = Departures()
        self._unread: set[MemberId] = set()
        """Members with too many unacknowledged answers (routing/R-8)."""
        self._parked: dict[int, list[Parked]] = {}
        self._sent: dict[int, tuple[MemberId, Parked]] = {}
        self._delayed: dict[int, list[Parked]] = {}
        """Requests that wait for a change of their partition, in the order of arrival (routing/R-11)."""
        self._collections = CollectionWaits(settings.limits)
        self.heartbeats: Heartbeats | None = None
        self.frames: ForwardedFrames | None = None
        """Requests that are forwarded without this router; None: there are none."""
        replication.serve(self)

    # -- requests of sessions

    def execute(self, request: Request, asker: Asker, doubt: str = "") -> None:
        """Wherever its partition lives; the asker is answered once. `doubt`: why it may have been applied already."""
        problem = size_problem(request, self._limits)
        parked = Parked(request, asker, self._out.now_ns + self._timeout_ns)
        parked.doubt = doubt
        if problem:
            self._answer(parked, Outcome(Status.TOO_LARGE, None, problem))
        elif request.op is Op.PIN and not self._of_terms:
            answer(self._out, asker, NOT_IN_A_ZONE)
        elif request.op in WHOLE:
            self.gatherings.begin(request, asker)
        else:
            self._dispatch(parked)

    def depart(self, names: frozenset[str], rehoming: Rehoming) -> None:
        """Another engine serves these maps from now on (routing/R-13). Call `pass_on` when all routers know."""
        self._departures.names, self._departures.rehoming = names, rehoming

    def pass_on(self) -> None:
        """Waiting requests for maps that have departed."""
        names = self._departures.names
        if not names:
            return
        for partition, waiting in [*self._parked.items(), *self._delayed.items()]:
            if any(parked.request.map in names for parked in waiting):
                self.served(partition)
                self.changed(partition)
        self.gatherings.try_again()

    def adopt(self, parked: Parked) -> None:
        self._dispatch(parked)

    def drop(self, parked: Parked, outcome: Outcome) -> None:
        """Answer a request for a map that has moved, and cannot be passed on."""
        self._answer(parked, outcome)

    def _dispatch(self, parked: Parked) -> None:
        request = parked.request
        if parked.withdrawn:
            self._answer(parked, WITHDRAWN)
            return
        if self._departures.names and self._departures.concern(request):
            assert self._departures.rehoming is not None, "maps depart to somewhere"
            if request.op is Op.PROCESS:
                self._replication.end_run(request)
                parked.request = without_run(request)
            self._departures.rehoming.rehome(parked)
            return
        refused = self.refusals.rejection(request)
        if refused is not None:
            self._answer(parked, refused)
            return
        partition = request.partitions[0]
        if self._replication.leads(partition):
            if self._replication.refusing and changes(request):
                self._answer(parked, CROWDED)
            else:
                self._submit(parked, late=bool(parked.until_ns) and parked.until_ns <= self._out.now_ns)
            return
        if not isinstance(parked.asker, Peer) and request.op in FROM_BACKUPS:
            outcome = self.backup_reads.answer(request)
            if outcome is not None:
                self._answer(parked, outcome)
                return
        if isinstance(parked.asker, Within) and parked.asker.here:
            self._answer(parked, NOT_HERE)
            return
        owner = self._rows[partition].owner
        if owner is None or owner == self._me or not self._neighbours.is_member(owner):
            self._park(partition, parked)
        elif self._keep(parked):
            if self._retries and not request.id and request.op not in READS:
                parked.request = msgspec.structs.replace(request, id=self.new_id())
            ticket = self._waiting.ticket()
            assert parked.size or not _is_counted(parked), (
                "a sent request is counted as waiting (routing/R-6)"
            )
            assert ticket not in self._sent, "a ticket names one request"
            self._sent[ticket] = (owner, parked)
            if request.op in STRUCTURE_WAITS:
                self._collections.elsewhere[parked.asker] = parked
                parked.ticket = ticket
                self._collections.limit_wait(parked, self._out.now_ns)
            if self._of_terms:
                self._out.send(owner, ZoneForward(ticket, parked.request, self._rows[partition].version))
            else:
                self._out.send(owner, Forward(ticket, parked.request))
            self._waiting.look_in(LATE_NS)

    def _submit(self, parked: Parked, *, late: bool = False) -> None:
        waits = self._collections
        if waits.elsewhere:
            waits.elsewhere.pop(parked.asker, None)
        if parked.request.op is Op.READ_CP and not parked.request.key and self.heartbeats is not None:
            self.heartbeats.on_heartbeat(parked.request)
        behind = len(waits) > 0 and not parked.number and waits.has_line(parked.request)
        if parked.number and self._replication.decides_later:
            waits.begin_decision(parked)
        if parked.request.op is Op.PROCESS and not is_finished(parked.request):
            parked.request = begin_run(parked.request, self._waiting.ticket())

        def decided(outcome: Outcome | Wait | RunBegun) -> None:
            if parked.in_decision:
                waits.end_decision(parked)
            if isinstance(outcome, Wait):
                self._wait_for_change(parked, outcome)
            elif isinstance(outcome, RunBegun):
                if self._keep(parked):
                    self.runs.begin(self, self._replication, parked, outcome)
            elif outcome.status is Status.MOVED and not asks_again(parked.asker):
                # It was not applied. Another member would ask again at once; for a client the request waits here.
                self._park(parked.request.partitions[0], parked)
            else:
                self._answer(parked, outcome)

        self._replication.submit(parked.request, decided, late=late, behind=behind)

    def _wait_for_change(self, parked: Parked, wait: Wait) -> None:
        """Submit it again when its partition has changed, or at the end of its wait (routing/R-11)."""
        if not self._keep(parked):
            return
        if not parked.until_ns:
            if parked.request.op in STRUCTURE_WAITS:
                parked.until_ns = self._collections.end_of_wait(parked, wait.ms)
            else:
                # It may have waited for its partition before.
                most_ns = min(wait.ms * MILLISECOND, self._timeout_ns // WAIT_SHARE)
                parked.until_ns = min(self._out.now_ns + most_ns, parked.deadline_ns)
            parked.since_ns = self._out.now_ns
            if wait.waiter:
                self._out.notify(LockAwaited())
        parked.wait = wait
        if wait.start is not None:
            parked.request = with_start(parked.request, wait.start)
        assert parked.until_ns <= parked.deadline_ns, (
            "a request waits no longer than its asker (routing/R-11)"
        )
        if parked.request.op in STRUCTURE_WAITS:
            self._collections.add(parked)
        else:
            self._delayed.setdefault(parked.request.partitions[0], []).append(parked)
        self._waiting.look_in(max(1, parked.until_ns - self._out.now_ns))

    def rejection(self, request: Request) -> Outcome | None:
        return self.refusals.rejection(request)

    def changed(self, partition: int) -> None:
        """Submit waiting requests again, in the order of arrival."""
        for parked in self._delayed.pop(partition, []):
            self._dispatch(parked)

    def collection_changed(self, partition: int, name: str, key: bytes) -> None:
        """See routing/R-20, routing/R-24."""
        lines = [(name, key)] if name else self._collections.lock_lines(partition)
        for line in lines:
            for parked in self._collections.woken(partition, *line):
                self._dispatch(parked)
        if self._collections.unfinished:
            self._waiting.look_in(MILLISECOND)

    def _wake_behind(self, ended: Sequence[Parked]) -> None:
        """These wait no longer: those that waited behind them may need less (cp/P-3)."""
        for partition, name, key in dict.fromkeys(
            (one.request.partitions[0], one.request.map, one.request.key)
            for one in ended
            if one.request.op is Op.CHANGE_CP
        ):
            if self._replication.leads(partition):
                self.collection_changed(partition, name, key)

    def withdraw(self, asker: Asker) -> None:
        """The client of this request has gone: if it waits, it waits no longer (routing/R-21)."""
        parked = self._collections.take(asker)
        if parked is not None:
            assert parked.wait is not None, "it waits for a change"
            self._answer(parked, Outcome(Status.OK, parked.wait.answer))
            self._wake_behind([parked])
        elif (parked := self._collections.elsewhere.get(asker)) is not None:
            # It is answered by the primary, or where the next one would be found.
            parked.withdrawn = True
            if parked.ticket in self._sent:
                self._out.send(self._sent[parked.ticket][0], Withdrawals([parked.ticket]))

    def on_withdrawals(self, sender: MemberId, message: Withdrawals) -> None:
        for ticket in message.tickets:
            self.withdraw(Peer(sender, ticket))

    def new_id(self) -> bytes:
        return self._prefix + self._waiting.number().to_bytes(8, "big")

    def _park(self, partition: int, parked: Parked) -> None:
        parked.number = parked.ticket = 0
        if parked.request.op is Op.PROCESS:
            parked.request = without_run(parked.request)
        if self._keep(parked):
            if parked.request.op in STRUCTURE_WAITS:
                self._collections.elsewhere[parked.asker] = parked
            self._parked.setdefault(partition, []).append(parked)
            self._waiting.look_in(RETRY_NS)

    def _keep(self, parked: Parked) -> bool:
        """Count it among those that wait, or reject it (routing/R-6)."""
        if not parked.size and _is_counted(parked):
            size = size_of(parked.request)
            waits = parked.request.op in STRUCTURE_WAITS and self._collections.are_many(parked.request)
            if waits or not self._waiting.enter(size):
                self._answer(parked, FULL)
                return False
            parked.size = size
        return True

    def _count_out(self, parked: Parked) -> None:
        if self._collections.elsewhere:
            self._collections.elsewhere.pop(parked.asker, None)
        if parked.size:
            self._waiting.leave(parked.size)
            parked.size = 0

    def _answer(self, parked: Parked, outcome: Outcome) -> None:
        """A request that may have been applied is not rejected (routing/R-4)."""
        self._count_out(parked)
        if parked.request.op is Op.PROCESS:
            self._replication.end_run(parked.request)
        assert not parked.size, "an answered request does not wait (routing/R-1)"
        answer(self._out, parked.asker, with_doubt(outcome, parked.doubt))

    # -- requests and answers of other members

    def on_forward(self, sender: MemberId, forward: Forward) -> None:
        """A request for the primary, or for this member's share of a gathering."""
        request = forward.request
        asker = Peer(sender, forward.ticket)
        refused = self.refusals.rejection(request)
        if request.op is Op.PIN and not self._of_terms:
            refused = NOT_IN_A_ZONE
        if refused is not None:
            answer(self._out, asker, refused)
            return
        crowded = self._replication.crowded and changes(request)
        if request.op in READS and sender in self._unread:
            missed = request.partitions if request.op in WHOLE else []
            self._out.send(sender, Answer(forward.ticket, UNREAD, missed))
            return
        if request.op in WHOLE:
            if crowded:
                self._out.send(sender, Answer(forward.ticket, Outcome(Status.OK, 0), request.partitions))
            else:
                self.gatherings.share_wanted(sender, forward)
            return
        partition = request.partitions[0]
        if crowded:
            answer(self._out, asker, CROWDED)
        elif self._replication.leads(partition):
            self._submit(Parked(request, asker, self._out.now_ns + self._timeout_ns))
        elif self._rows[partition].owner == self._me or self._coming(partition):
            # The sender may know of a commit that is still on its way here.
            self._park(partition, Parked(request, asker, self._out.now_ns + self._timeout_ns))
        else:
            answer(
                self._out, asker, Outcome(Status.MOVED, None, "this member is not the partition's primary")
            )

    def _coming(self, partition: int) -> bool:
        """Whether an assignment that makes this member primary is stored here and not committed yet."""
        stored = self._offers.stored_assignment(partition)
        return stored is not None and stored.owner == self._me

    def on_answer(self, sender: MemberId, message: Answer) -> None:
        sent = self._sent.pop(message.ticket, None)
        if sent is None:
            self.gatherings.on_answer(sender, message)
            return
        asked, parked = sent
        outcome, request = message.outcome, parked.request
        partition = request.partitions[0]
        if outcome.status is Status.MOVED and self._rows[partition].owner != asked:
            self._dispatch(parked)
        elif outcome.status in (Status.MOVED, Status.NOT_READY):
            # Send it again when this member learns of another owner, or after a moment.
            parked.why = outcome.detail if outcome.status is Status.NOT_READY else ""
            self._park(partition, parked)
        else:
            if outcome.position != (0, 0):
                self.backup_reads.positions.see(partition, request.map, outcome.position)
            self._answer(parked, outcome)

    def open_since(self, before_ns: int) -> Iterator[OpenOperation]:
        parked, delayed, now_ns = self._parked, self._delayed, self._out.now_ns
        sent = (
            each
            for each in self._sent.values()
            if each[1].until_ns <= now_ns or each[1].request.op not in STRUCTURE_WAITS
        )
        if parked or self._sent or delayed:
            yield from parked_since(before_ns, self._timeout_ns, parked.values(), sent, delayed.values())
        if self.frames is not None:
            yield from self.frames.open_since(before_ns)
        yield from self.gatherings.open_since(before_ns)

    def waits(self) -> Iterator[Parked]:
        for waiting in self._delayed.values():
            yield from waiting

    @property
    def leftovers(self) -> dict[str, int]:
        return {
            "parked requests": sum(len(parked) for parked in self._parked.values()) + self.gatherings.parked,
            "requests that wait for a change": sum(len(parked) for parked in self._delayed.values())
            + len(self._collections),
            "entry processors": len(self.runs),
            "forwarded requests": len(self._sent) + self.gatherings.asked,
            "clearings": self._replication.running,
            **(self.frames.leftovers if self.frames is not None else {}),
        }

    @property
    def tickets(self) -> int:
        """Requests and shares that were ever sent or done under a ticket."""
        return self._waiting.tickets

    def awaits(self, ticket: int) -> bool:
        return ticket in self._sent or self.gatherings.awaits(ticket)

    # -- events

    def unread(self, member: MemberId, *, too_many: bool) -> None:
        """A member has too many unacknowledged answers, or no longer (routing/R-8)."""
        if too_many:
            self._unread.add(member)
        else:
            self._unread.discard(member)

    def is_unread(self, member: MemberId) -> bool:
        """See routing/R-8."""
        return member in self._unread

    def served(self, partition: int) -> None:
        """The partition is served here, or its assignment changed: dispatch its waiting requests."""
        waiting = [*self._parked.pop(partition, []), *self._delayed.pop(partition, [])]
        for parked in [*waiting, *self._collections.take_all(partition)]:
            self._dispatch(parked)

    def restrict(self) -> None:
        """Reject waiting requests that must not be taken now."""
        for waits in (self._parked, self._delayed):
            for partition, waiting in list(waits.items()):
                for parked in list(waiting):
                    refused = self.refusals.rejection(parked.request)
                    if refused is not None:
                        waiting.remove(parked)
                        self._answer(parked, refused)
                if not waiting:
                    del waits[partition]
        refused_steps = [one for one in self._collections if self.refusals.rejection(one.request) is not None]
        for parked in self._collections.take_these(refused_steps):
            self._dispatch(parked)

    def askers_gone(self, gone: set[MemberId]) -> None:
        """routing/R-10. Call it before anything is served in the new view."""
        for waits in (self._parked, self._delayed):
            for partition, waiting in list(waits.items()):
                stay = [parked for parked in waiting if not parked.comes_from(gone)]
                for parked in waiting:
                    if parked.comes_from(gone):
                        self._count_out(parked)
                if stay:
                    waits[partition] = stay
                else:
                    del waits[partition]
        left = self._collections.take_these([one for one in self._collections if one.comes_from(gone)])
        for parked in left:
            self._count_out(parked)
        self._wake_behind(left)
        for parked in self.runs.take_from(self, gone):
            self._replication.end_run(parked.request)
            self._count_out(parked)
        for ticket, (_, sent) in list(self._sent.items()):
            if sent.comes_from(gone):
                # It was forwarded for a member that asks another one now.
                assert sent.size or not _is_counted(sent), (
                    "a sent request is counted as waiting (routing/R-6)"
                )
                del self._sent[ticket]
                self._count_out(sent)
        self.gatherings.askers_gone(gone)

    def members_gone(self, gone: set[MemberId]) -> None:
        for ticket, (owner, parked) in list(self._sent.items()):
            if owner in gone:
                del self._sent[ticket]
                if parked.request.op not in READS:
                    parked.doubt = f"member {owner} left before it answered"
                if parked.request.op in READS or (self._retries and parked.request.id):
                    self._dispatch(parked)
                else:
                    self._answer(parked, Outcome(Status.UNKNOWN))
        self.gatherings.members_gone(gone)

    def superseded(self, partition: int) -> None:
        assert self._of_terms, "only assignments that are terms are superseded"
        for ticket, (owner, parked) in list(self._sent.items()):
            request = parked.request
            if request.partitions[0] != partition:
                continue
            if request.op in READS or (self._retries and request.id):
                del self._sent[ticket]
                if request.op not in READS:
                    parked.doubt = f"member {owner} did not answer before another term began"
                self._dispatch(parked)
        self.gatherings.superseded(partition)

    def end(self, why: str) -> None:
        waits = [
            *self._parked.values(),
            *self._delayed.values(),
            self._collections.take_these(list(self._collections)),
        ]
        self._parked, self._delayed = {}, {}
        for parked in [each for waiting in waits for each in waiting]:
            self._answer(parked, Outcome(Status.NOT_READY, None, why))
        for parked in self.runs.take_from(self):
            self._answer(parked, Outcome(Status.NOT_READY, None, why))
        sent, self._sent = self._sent, {}
        for _, parked in sent.values():
            reads = parked.request.op in READS
            self._answer(parked, Outcome(Status.NOT_READY if reads else Status.UNKNOWN, None, why))
        self.gatherings.end(why)

    def unanswered(self, for_ns: int) -> set[int]:
        """Partitions with an unanswered request that was forwarded `for_ns` ago or earlier."""
        asked_by_ns = self._out.now_ns - for_ns + self._timeout_ns
        return {
            parked.request.partitions[0]
            for _, parked in self._sent.values()
            if parked.deadline_ns <= asked_by_ns
        }

    def on_timer(self) -> None:
        """Retry what could not be sent, and reject what has waited too long."""
        self._waiting.looked()
        now_ns = self._out.now_ns
        self._look_at_delayed(now_ns)
        self.gatherings.try_again()
        for partition, parked in list(self._parked.items()):
            ended = [one for one in parked if one.deadline_ns <= now_ns]
            if ended:
                self._parked[partition] = [one for one in parked if one.deadline_ns > now_ns]
                for one in ended:
                    self._answer(one, timed_out(one.request, self._timeout_ns, one.why))
        for partition in list(self._parked):
            owner = self._rows[partition].owner
            if self._replication.leads(partition) or (
                owner is not None and owner != self._me and self._neighbours.is_member(owner)
            ):
                # Its owner has come back without a change of the assignment, or knows by now that it is the owner, or
                # rejected requests only for a moment.
                self.served(partition)
        self._give_up_sent(now_ns)
        self._parked = {partition: parked for partition, parked in self._parked.items() if parked}
        if self._parked or self.gatherings.waits_for_owners:
            self._waiting.look_in(RETRY_NS)
        elif self._sent or self.gatherings.asked:
            self._waiting.look_in(LATE_NS)

    def _look_at_delayed(self, now_ns: int) -> None:
        for partition, name, key in self._collections.take_unfinished():
            if self._replication.leads(partition):
                self.collection_changed(partition, name, key)
        due = self._collections.take_due(now_ns)
        for parked in due:
            self._dispatch(parked)
        self._wake_behind(due)
        for partition, waiting in list(self._delayed.items()):
            late = [parked for parked in waiting if parked.until_ns <= now_ns]
            if late:
                self._delayed[partition] = [parked for parked in waiting if parked.until_ns > now_ns]
                for parked in late:
                    self._dispatch(parked)
        self._delayed = {partition: waiting for partition, waiting in self._delayed.items() if waiting}
        ends = [one.until_ns for waiting in self._delayed.values() for one in waiting]
        if self._collections:
            ends.append(self._collections.first_end_ns)
        if ends:
            self._waiting.look_in(max(1, min(ends) - now_ns))

    def _give_up_sent(self, now_ns: int) -> None:
        """End requests that have waited too long for an answer (routing/R-3)."""
        seconds = self._timeout_ns // SECOND
        for ticket, (owner, parked) in list(self._sent.items()):
            if parked.deadline_ns <= now_ns:
                del self._sent[ticket]
                why = f"member {owner} did not answer for {seconds} s"
                reads = parked.request.op in READS
                self._answer(parked, Outcome(Status.NOT_READY if reads else Status.UNKNOWN, None, why))
        self.gatherings.give_up(now_ns)


def size_problem(request: Request, limits: LimitSettings) -> str:
    """Why the request is too large; empty: it is not."""
    key, value = request.key, request.value
    if len(key) > limits.key_bytes:
        return f"the key has {len(key)} bytes; limits.key_bytes is {limits.key_bytes}"
    # A step of a transaction carries many values; its coordinator has checked them (transactions/C-6).
    if len(value) > limits.value_bytes and request.op not in _OF_MANY_VALUES:
        return f"the value has {len(value)} bytes; limits.value_bytes is {limits.value_bytes}"
    if request.op is Op.PUT_ALL:
        for index, item in enumerate(request.items):
            limit = limits.value_bytes if index % 2 else limits.key_bytes
            if len(item) > limit:
                return f"an entry has a part of {len(item)} bytes; the limit is {limit}"
    if request.op in COLLECTION_CHANGES:
        # The items of a set are keys.
        name = "key_bytes" if is_set(request.map) else "value_bytes"
        limit, largest = getattr(limits, name), max(map(len, request.items), default=0)
        if largest > limit:
            return f"an item has {largest} bytes; limits.{name} is {limit}"
    return ""


def with_doubt(outcome: Outcome, doubt: str) -> Outcome:
    """The outcome of a request that may have been applied before, if `doubt` is not empty (routing/R-4)."""
    if not doubt or outcome.status is Status.OK:
        return outcome
    return Outcome(Status.UNKNOWN, None, f"{doubt}; {outcome.detail}".rstrip("; "))


def _is_counted(parked: Parked) -> bool:
    """Whether it counts among the requests that wait (routing/R-6)."""
    return parked.request.op not in MOVING or not isinstance(parked.asker, Within)
