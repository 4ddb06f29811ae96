"""How does a request find the member that serves it? Here, forwarded, or after waiting for its partition.

- R-1: A request is answered exactly once.
- R-2: What was sent to a member that then left the view is sent again only if it changes nothing; else it is unknown.
- R-3: A request waits while its partition has no serving primary, at most the call timeout; then it is
  refused: not applied.
"""

from __future__ import annotations

from collections.abc import Callable

from holdfast.config import Settings
from holdfast.config.schema import INTERNAL
from holdfast.core.machine import MILLISECOND, SECOND, MemberId, Outbox
from holdfast.core.messages import Answer, Forward
from holdfast.core.placement.table import Row
from holdfast.core.replication.lane import Lane
from holdfast.core.replication.perform import merge, perform, perform_whole
from holdfast.core.store.operations import READS, WHOLE, Done, EventKind, Op, Outcome, Request, Status, Value
from holdfast.core.store.partition import PartitionCopy

RETRY_NS = 50 * MILLISECOND

PASSIVE = Outcome(Status.PASSIVE, None, "the cluster is passive: entries can be read, but not changed")
PARTLY = "it was done in some partitions; others had no serving primary in time"


class Parked:
    """A request that waits for its partition."""

    __slots__ = ("deadline_ns", "done", "request")

    def __init__(self, request: Request, done: Done, deadline_ns: int) -> None:
        self.request = request
        self.done = done
        self.deadline_ns = deadline_ns


class Gathering:
    """An operation on whole partitions, and what has been answered so far."""

    __slots__ = ("_done", "deadline_ns", "finished", "missing", "request", "started", "value")

    def __init__(self, request: Request, done: Done, deadline_ns: int) -> None:
        self.request = request
        self._done = done
        self.deadline_ns = deadline_ns
        self.missing = set(request.partitions)
        self.value: Value = None
        self.started = False
        """Whether some share of it was sent or done."""
        self.finished = False

    def finish(self, outcome: Outcome) -> None:
        """Answer the caller, once; what comes later of the shares is of no use any more."""
        if not self.finished:
            self.finished = True
            self._done(outcome)


class Router:
    """Requests of this member's sessions and of other members."""

    def __init__(
        self,
        me: MemberId,
        settings: Settings,
        out: Outbox,
        rows: list[Row],
        lane: Lane,
        *,
        present: Callable[[MemberId], bool],
        coming: Callable[[int], bool],
    ) -> None:
        """`present`: whether a member is in the view. `coming`: whether a row that makes this member the primary of a
        partition is stored here and waits to be committed.
        """
        self._me = me
        self._settings = settings
        self._out = out
        self._rows = rows
        self._lane = lane
        self._present = present
        self._timeout_ns = settings.limits.call_timeout_ms * MILLISECOND
        self.passive = False
        """Whether the cluster is passive: then nothing may be changed."""
        self.full: frozenset[MemberId] = frozenset()
        """Members whose disk is full: then nothing may be written to journalled maps in their partitions."""
        self._coming = coming
        self._parked: dict[int, list[Parked]] = {}
        self._sent: dict[int, tuple[MemberId, Parked]] = {}
        self._gathered: dict[int, tuple[MemberId, Gathering, list[int]]] = {}
        self._again: list[Gathering] = []
        self._ticket = 0
        self._timer = False

    @property
    def restricted(self) -> bool:
        """Whether there are writes that must be refused."""
        return self.passive or bool(self.full)

    def why_refused(self, request: Request) -> Outcome | None:
        """The answer to a write that must not be taken now."""
        if self.passive and _changes(request):
            return PASSIVE
        if self.full and request.op not in READS and self._settings.map(request.map).journal != "off":
            for partition in request.partitions:
                full = self.full.intersection(filter(None, self._rows[partition].holding))
                if full:
                    return Outcome(
                        Status.NO_ROOM, None, f"the disk of member {min(full)} is full; make room there"
                    )
        return None

    # -- requests of sessions

    def execute(self, request: Request, done: Done) -> None:
        """Carry out a request wherever its partition lives; `done` is called once with the outcome."""
        problem = self._too_large(request)
        if problem:
            done(Outcome(Status.TOO_LARGE, None, problem))
            return
        deadline_ns = self._out.now_ns + self._timeout_ns
        if request.op in WHOLE:
            self._gather(Gathering(request, done, deadline_ns))
        else:
            self._dispatch(Parked(request, done, deadline_ns))

    def _too_large(self, request: Request) -> str:
        limits = self._settings.limits
        if len(request.key) > limits.key_bytes:
            return f"the key has {len(request.key)} bytes; limits.key_bytes is {limits.key_bytes}"
        if len(request.value) > limits.value_bytes:
            return f"the value has {len(request.value)} bytes; limits.value_bytes is {limits.value_bytes}"
        if request.op is Op.PUT_ALL:
            for index, item in enumerate(request.items):
                limit = limits.value_bytes if index % 2 else limits.key_bytes
                if len(item) > limit:
                    return f"an entry has a part of {len(item)} bytes; the limit is {limit}"
        return ""

    def _dispatch(self, parked: Parked) -> None:
        refused = self.why_refused(parked.request)
        if refused is not None:
            parked.done(refused)
            return
        partition = parked.request.partitions[0]
        copy = self._lane.in_office[partition]
        if copy is not None:
            self._perform(copy, parked.request, parked.done)
            return
        owner = self._rows[partition].owner
        if owner is None or owner == self._me or not self._present(owner):
            self._park(partition, parked)
            return
        self._ticket += 1
        self._sent[self._ticket] = (owner, parked)
        self._out.send(owner, Forward(self._ticket, parked.request))

    def _park(self, partition: int, parked: Parked) -> None:
        self._parked.setdefault(partition, []).append(parked)
        self._wake()

    def _perform(self, copy: PartitionCopy, request: Request, done: Done) -> None:
        value = perform(self._lane, copy, request, self._out.now_ns)
        if request.op in READS:
            done(Outcome(Status.OK, value))
        self._lane.seal(lambda known: None if request.op in READS else done(_told(known, value)))

    def _gather(self, gathering: Gathering) -> None:
        """Ask every owner for its share of what is missing."""
        refused = self.why_refused(gathering.request)
        if refused is not None:
            gathering.finish(Outcome(Status.UNKNOWN, None, PARTLY) if gathering.started else refused)
            return
        shares: dict[MemberId, list[int]] = {}
        mine: list[int] = []
        late = False
        for partition in sorted(gathering.missing):
            owner = self._rows[partition].owner
            if self._lane.in_office[partition] is not None:
                mine.append(partition)
            elif owner is None or owner == self._me or not self._present(owner):
                late = True
            else:
                shares.setdefault(owner, []).append(partition)
        gathering.started = gathering.started or bool(shares) or bool(mine)
        for owner, partitions in shares.items():
            self._ticket += 1
            self._gathered[self._ticket] = (owner, gathering, partitions)
            gathering.missing.difference_update(partitions)
            self._out.send(owner, Forward(self._ticket, self._share(gathering.request, partitions)))
        if mine:
            gathering.missing.difference_update(mine)
            self._ticket += 1
            ticket = self._ticket
            self._gathered[ticket] = (self._me, gathering, mine)

            def performed(outcome: Outcome) -> None:
                # Perhaps long after the others have answered: this share waits for its backups.
                del self._gathered[ticket]
                self._collect(gathering, mine, outcome, [])

            self._perform_whole(self._share(gathering.request, mine), performed)
        elif not gathering.request.partitions:
            self._collect(gathering, [], Outcome(Status.OK, None), [])
        if late:
            self._again.append(gathering)
            self._wake()

    @staticmethod
    def _share(request: Request, partitions: list[int]) -> Request:
        return Request(request.op, request.map, partitions, value=request.value)

    def _perform_whole(self, request: Request, done: Done) -> None:
        copies = [copy for p in request.partitions if (copy := self._lane.in_office[p]) is not None]
        value = perform_whole(self._lane, copies, request, self._out.now_ns)
        self._lane.seal(lambda known: done(_told(known, value)))

    def _collect(self, gathering: Gathering, asked: list[int], outcome: Outcome, missed: list[int]) -> None:
        if gathering.finished:
            return
        if outcome.status is Status.OK:
            gathering.value = merge(gathering.request.op, gathering.value, outcome.value)
        else:
            missed = asked
        if missed:
            gathering.missing.update(missed)
            if gathering not in self._again:
                self._again.append(gathering)
            self._wake()
        elif not gathering.missing and not self._under_way(gathering):
            if gathering.request.op in (Op.CLEAR, Op.EVICT_ALL):
                self._tell_cleared(gathering)
            gathering.finish(Outcome(Status.OK, gathering.value))

    def _tell_cleared(self, gathering: Gathering) -> None:
        request = gathering.request
        if request.map in self._lane.listening and isinstance(gathering.value, int):
            kind = EventKind.CLEAR_ALL if request.op is Op.CLEAR else EventKind.EVICT_ALL
            self.told_whole(kind, request.map, gathering.value)

    told_whole: Callable[[EventKind, str, int], None] = staticmethod(lambda kind, name, count: None)
    """Set by the member: tells the listeners of a map that it was cleared."""

    def _under_way(self, gathering: Gathering) -> bool:
        return any(entry[1] is gathering for entry in self._gathered.values())

    # -- requests and answers of other members

    def on_forward(self, sender: MemberId, forward: Forward) -> None:
        request = forward.request
        ticket = forward.ticket
        refused = self.why_refused(request)
        if refused is not None:
            self._out.send(sender, Answer(ticket, refused, []))
            return
        if request.op in WHOLE:
            missed = [p for p in request.partitions if self._lane.in_office[p] is None]
            self._perform_whole(
                request, lambda outcome: self._out.send(sender, Answer(ticket, outcome, missed))
            )
            return

        def done(outcome: Outcome) -> None:
            self._out.send(sender, Answer(ticket, outcome, []))

        partition = request.partitions[0]
        copy = self._lane.in_office[partition]
        if copy is not None:
            self._perform(copy, request, done)
        elif self._rows[partition].owner == self._me or self._coming(partition):
            # The sender may know of a commit that is still on its way here.
            self._park(partition, Parked(request, done, self._out.now_ns + self._timeout_ns))
        else:
            done(Outcome(Status.MOVED, None, "this member is not the partition's primary"))

    def on_answer(self, sender: MemberId, answer: Answer) -> None:
        sent = self._sent.pop(answer.ticket, None)
        if sent is not None:
            asked, parked = sent
            partition = parked.request.partitions[0]
            if answer.outcome.status is not Status.MOVED:
                parked.done(answer.outcome)
            elif self._rows[partition].owner != asked:
                self._dispatch(parked)
            else:
                # To be sent again when this member learns of another owner, or after a moment.
                self._park(partition, parked)
            return
        gathered = self._gathered.pop(answer.ticket, None)
        if gathered is not None:
            _, gathering, share = gathered
            self._collect(gathering, share, answer.outcome, answer.missed)

    @property
    def leftovers(self) -> dict[str, int]:
        """What should be empty when nothing is under way, by name."""
        return {
            "parked requests": sum(len(parked) for parked in self._parked.values()) + len(self._again),
            "forwarded requests": len(self._sent) + len(self._gathered),
        }

    # -- occasions

    def served(self, partition: int) -> None:
        """This member serves the partition now, or its row changed: look again at what waits for it."""
        for parked in self._parked.pop(partition, []):
            self._dispatch(parked)

    def members_gone(self, gone: set[MemberId]) -> None:
        """R-2."""
        for ticket, (owner, parked) in list(self._sent.items()):
            if owner in gone:
                del self._sent[ticket]
                if parked.request.op in READS:
                    self._dispatch(parked)
                else:
                    parked.done(Outcome(Status.UNKNOWN, None, f"member {owner} left before it answered"))
        for ticket, (owner, gathering, asked) in list(self._gathered.items()):
            if owner in gone:
                del self._gathered[ticket]
                self._collect(gathering, asked, Outcome(Status.MOVED), [])

    def _wake(self) -> None:
        if not self._timer:
            self._timer = True
            self._out.timer("route", RETRY_NS)

    def on_timer(self) -> None:
        """Try again what could not be sent, and refuse what has waited too long."""
        self._timer = False
        again, self._again = self._again, []
        now_ns = self._out.now_ns
        for gathering in again:
            if gathering.deadline_ns <= now_ns:
                gathering.finish(self._gathered_too_late(gathering))
            else:
                self._gather(gathering)
        for partition, parked in list(self._parked.items()):
            ended = [one for one in parked if one.deadline_ns <= now_ns]
            if ended:
                self._parked[partition] = [one for one in parked if one.deadline_ns > now_ns]
                for one in ended:
                    one.done(self._timed_out(one.request))
        for partition in list(self._parked):
            owner = self._rows[partition].owner
            if owner is not None and owner != self._me and self._present(owner):
                # It has come back without a change of the row, or has by now heard that it is the owner.
                self.served(partition)
        self._parked = {partition: parked for partition, parked in self._parked.items() if parked}
        if self._parked or self._again:
            self._wake()

    def _gathered_too_late(self, gathering: Gathering) -> Outcome:
        if gathering.request.op in READS or not gathering.started:
            return self._timed_out(gathering.request)
        return Outcome(Status.UNKNOWN, None, PARTLY)

    def _timed_out(self, request: Request) -> Outcome:
        seconds = self._timeout_ns // SECOND
        where = f"partition {request.partitions[0]}" if len(request.partitions) == 1 else "some partition"
        return Outcome(
            Status.NOT_READY,
            None,
            f"{where} had no serving primary for {seconds} s; nothing was changed there",
        )


def _changes(request: Request) -> bool:
    """Whether a passive cluster refuses this. What Holdfast keeps for itself may change: names of opened maps, schemas.

    Without that no client could begin to read while the cluster is passive.
    """
    return request.op not in READS and not request.map.startswith(INTERNAL)


def _told(known: bool, value: Value) -> Outcome:
    if known:
        return Outcome(Status.OK, value)
    return Outcome(Status.UNKNOWN, None, "this member lost the partition before its backups had acknowledged")
