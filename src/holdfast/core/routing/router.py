"""How does a request find the member that serves it? Here, forwarded, or after waiting for its partition.

- routing/R-1: A request is answered exactly once.
- routing/R-2: What was sent to a member that then left the view is sent to the next primary. If it changes something it
  carries an id by which that one knows whether it was applied; without (`replication.on_unknown` = "fail") it is
  unknown.
- routing/R-3: A request waits while its partition has no serving primary, at most the call timeout; then it is
  refused: not applied. What was sent, and not answered by then, is unknown.
- routing/R-4: A request that may have been applied once already is never refused, only unknown.
- routing/R-5: A member that holds a backup reads it only for maps that want that, and never shows less than it has
  shown.
- routing/R-6: What waits here for others is bounded (`limits.waiting_requests`, `limits.waiting_bytes`): more is
  refused.
- routing/R-7: While the memory of a member is nearly full, nothing is stored that it would have to keep: refused before
  it is applied anywhere. Reads and removes go on.
- routing/R-8: Who does not take in what it was answered gets no more to read: while a member has not acknowledged
  `limits.answer_bytes`, reads that it forwards are sent back, and it asks again.
- routing/R-9: A read that meets an error in this member is refused. Only an error that leaves its own state in doubt
  stops it.
- routing/R-10: What a member has asked for, and what waits here when it leaves, is forgotten: it asks somebody again,
  and what was asked first must not be done after that was answered. An id does not help: of what changed nothing none
  is kept.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from hashlib import blake2b

import msgspec

from holdfast.config import Settings
from holdfast.config.schema import INTERNAL
from holdfast.core.machine import Outbox
from holdfast.core.messages import Answer, Forward
from holdfast.core.model.ids import MILLISECOND, SECOND, MemberId
from holdfast.core.model.operations import (
    GROWING,
    READS,
    WHOLE,
    Done,
    EventKind,
    Op,
    Outcome,
    Request,
    Status,
    Value,
    too_long,
)
from holdfast.core.model.partition_table import Row
from holdfast.core.model.views import Room
from holdfast.core.replication.lane import Lane
from holdfast.core.replication.perform import (
    FROM_BACKUPS,
    answers,
    can_read,
    merge,
    perform,
    perform_whole,
    read_backup,
)
from holdfast.core.routing.clearing import Cleared, Clearings
from holdfast.core.routing.positions import Positions
from holdfast.core.services.hosting import part_name
from holdfast.core.store.partition import PartitionCopy

RETRY_NS = 50 * MILLISECOND
LATE_NS = SECOND
"""How often it is looked whether what was sent has waited too long for its answer."""
SLICE_ENTRIES = 50_000
SLICE_BYTES = 8 << 20
"""An operation on whole partitions goes on to the next one until it has looked at so many entries, or answers so many
bytes of them: some 20 ms of work. The others follow in slices of their own."""
LISTED_SHARE = 2
"""So many times `limits.answer_bytes` may be gathered at a time."""
COUNT_ENTRIES = 20
"""Counting the entries of a partition takes as long as looking at so many, at about."""
PAUSE_NS = 1 * MILLISECOND
"""Between two slices the members do something else."""
REQUEST_BYTES = 500
"""What a request takes here besides its keys and values, at about."""

PASSIVE = Outcome(Status.PASSIVE, None, "the cluster is passive: entries can be read, but not changed")
NO_DATA_MEMBER = Outcome(
    Status.NO_DATA_MEMBER,
    None,
    "there are lite members alone, which hold no data; start one that is not lite",
)
CROWDED = Outcome(
    Status.NOT_READY,
    None,
    "the primary keeps more for its backups than limits.backlog_bytes allows; nothing was changed",
)
LISTED = Outcome(
    Status.NOT_READY, None, "other requests list more than this member can gather at a time; ask again"
)
UNREAD = Outcome(Status.NOT_READY, None, "the member that asks has too many answers on their way to it")
FULL = Outcome(
    Status.NOT_READY,
    None,
    "more requests wait here than limits.waiting_requests and limits.waiting_bytes allow; nothing was done",
)
NO_MEMORY = (
    "the memory of member {} is nearly full; remove entries, add a member, or raise limits.memory_bytes there"
)
PARTLY = "it was done in some partitions; others had no serving primary in time"


class Parked:
    """A request that is not answered yet."""

    __slots__ = ("asker", "deadline_ns", "done", "doubt", "request", "size", "why")

    def __init__(self, request: Request, done: Done, deadline_ns: int, asker: MemberId | None = None) -> None:
        self.request = request
        self.done = done
        self.deadline_ns = deadline_ns
        self.asker = asker
        """The member that has sent it; None: it came from a session of this one."""
        self.doubt = ""
        """Why it may have been applied already; empty: it has not been."""
        self.why = ""
        """Why the primary did not take it."""
        self.size = 0
        """Bytes that it counts for among those that wait; 0: it is not among them."""


class Gathering:
    """An operation on whole partitions, and what has been answered so far."""

    __slots__ = (
        "_done",
        "deadline_ns",
        "finished",
        "missing",
        "queued",
        "request",
        "size",
        "started",
        "value",
    )

    def __init__(self, request: Request, done: Done, deadline_ns: int) -> None:
        self.request = request
        self._done = done
        self.deadline_ns = deadline_ns
        self.missing = set(request.partitions)
        self.value: Value = None
        self.size = 0
        """Bytes of the entries that it lists."""
        self.started = False
        """Whether some share of it was sent or done."""
        self.finished = False
        self.queued = False
        """Whether its next slice waits for its turn."""

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
        held: Mapping[int, PartitionCopy],
        heard: Callable[[MemberId], bool],
    ) -> None:
        """`present`: whether a member is in the view. `coming`: whether a row that makes this member the primary of a
        partition is stored here and waits to be committed. `held`: the copies on this member. `heard`: whether this
        member is in the cluster, and hears of that one.
        """
        self._me = me
        self._settings = settings
        self._out = out
        self._rows = rows
        self._lane = lane
        self._present = present
        self._held = held
        self._heard = heard
        self._positions = Positions()
        self._prefix = blake2b(me.encode(), digest_size=16).digest()
        self._requests = 0
        """How many requests were given an id here."""
        replication = settings.replication
        self._retries = replication.on_unknown == "retry" and replication.request_ids > 0
        self._waiting = 0
        self._waiting_bytes = 0
        self._waiting_most = settings.limits.bounded(settings.limits.waiting_bytes)
        self._timeout_ns = settings.limits.call_timeout_ms * MILLISECOND
        self._answer_bytes = settings.limits.answer_bytes
        self._clearings = Clearings(out, lane, self._timeout_ns, refused=self.why_refused)
        self.passive = False
        """Whether the cluster is passive: then nothing may be changed."""
        self.dataless = False
        """Whether there are lite members alone, and nobody is awaited: then nothing can be read or changed."""
        self.full: dict[MemberId, str] = {}
        """Members whose disk is full, by name: nothing may be written to journalled maps in their partitions."""
        self.short: dict[MemberId, Room] = {}
        """Members that have not plenty of room in their memory: nothing more may be stored in what they hold."""
        self.names: dict[MemberId, str] = {}
        """The names of all members."""
        self.unread_by: Callable[[MemberId], int] = lambda member: 0
        """Bytes that were sent to a member, and that it has not acknowledged. Set by the driver."""
        self._coming = coming
        self._parked: dict[int, list[Parked]] = {}
        self._sent: dict[int, tuple[MemberId, Parked]] = {}
        self._gathered: dict[int, tuple[MemberId, Gathering, list[int]]] = {}
        self._again: list[Gathering] = []
        self._works: deque[tuple[MemberId | None, Callable[[], None]]] = deque()
        """Slices of operations on whole maps that wait for their turn, and who asks for them; None: this member."""
        self._spent = 0
        """Entries that such slices have looked at in this turn, at about."""
        self._listed = 0
        """Bytes of keys and values that were gathered for answers that are not whole yet."""
        """Of which a slice was done, and the next one is to follow."""
        self._ticket = 0
        self._timer_ns = 0
        """In how long the timer is due, by the last word; 0: it is not set."""

    @property
    def restricted(self) -> bool:
        """Whether there are requests that must be refused."""
        return self.dataless or self.passive or bool(self.full) or bool(self.short)

    def why_refused(self, request: Request) -> Outcome | None:
        """The answer to a request that must not be taken now."""
        if self.dataless:
            return NO_DATA_MEMBER
        if self.passive and _changes(request):
            return PASSIVE
        if self.full and request.op not in READS and self._settings.map(request.map).journal != "off":
            for partition in request.partitions:
                full = self.full.keys() & set(filter(None, self._rows[partition].holding))
                if full:
                    names = ", ".join(sorted(self.full[uuid] for uuid in full))
                    return Outcome(
                        Status.NO_ROOM, None, f"the disk of member {names} is full; make room there"
                    )
        if self.short and request.op in GROWING:
            return self._why_no_memory(request)
        return None

    def why_not_now(self, request: Request) -> Outcome | None:
        """The same, also of a write that this member would not take as primary: it keeps too much for backups."""
        crowded = self._lane.backlog.refusing and _changes(request)
        return self.why_refused(request) or (CROWDED if crowded else None)

    def _why_no_memory(self, request: Request) -> Outcome | None:
        """routing/R-7. What Holdfast keeps for itself may take the reserve: it is little, and clients cannot begin
        without it. So may updates of services, for they may be what makes room.
        """
        short = self.short
        if request.map.startswith(INTERNAL) or request.op is Op.CALL:
            short = {uuid: room for uuid, room in short.items() if room is Room.NONE}
        copies = self._settings.map(_target(request)).copies
        for partition in request.partitions:
            holders = set(filter(None, self._rows[partition].holding[:copies]))
            joining = self._lane.joining.get(partition)
            if joining is not None:
                holders.add(joining[0])
            if lacking := short.keys() & holders:
                names = ", ".join(sorted(self.names.get(uuid, uuid) for uuid in lacking))
                return Outcome(Status.NO_MEMORY, None, NO_MEMORY.format(names))
        return None

    # -- requests of sessions

    def execute(self, request: Request, done: Done) -> None:
        """Carry out a request wherever its partition lives; `done` is called once with the outcome."""
        problem = self._too_large(request)
        if problem:
            done(Outcome(Status.TOO_LARGE, None, problem))
            return
        deadline_ns = self._out.now_ns + self._timeout_ns
        if request.op not in WHOLE:
            self._dispatch(Parked(request, done, deadline_ns))
        elif self._waiting >= self._settings.limits.waiting_requests:
            done(FULL)
        else:
            self._waiting += 1

            def finished(outcome: Outcome) -> None:
                self._waiting -= 1
                self._listed -= gathering.size
                done(outcome)

            gathering = Gathering(request, finished, deadline_ns)
            self._take_turn(lambda: self._go_on(gathering))

    def _take_turn(self, work: Callable[[], None], asker: MemberId | None = None) -> None:
        """Make a slice of an operation on whole maps: now, or after others when these have taken long enough."""
        if self._works or self._spent >= SLICE_ENTRIES:
            self._works.append((asker, work))
        else:
            if not self._spent:
                self._out.timer("gather", PAUSE_NS)
            self._spent += 1
            work()

    def _take_turns(self) -> None:
        """A new turn: make slices that wait, until they have taken long enough."""
        self._spent = 0
        works = self._works
        while works and self._spent < SLICE_ENTRIES:
            self._spent += 1
            _, work = works.popleft()
            work()
        if self._spent:
            self._out.timer("gather", PAUSE_NS)

    def _go_on(self, gathering: Gathering) -> None:
        """Make the next slice, unless it is too late."""
        gathering.queued = False
        if gathering.deadline_ns <= self._out.now_ns:
            gathering.finish(self._gathered_too_late(gathering))
        elif not gathering.finished:
            self._gather(gathering)

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
        request = parked.request
        refused = self.why_refused(request)
        if refused is not None:
            self._answer(parked, refused)
            return
        partition = request.partitions[0]
        copy = self._lane.in_office[partition]
        if copy is not None:
            if self._lane.backlog.refusing and _changes(request):
                self._answer(parked, CROWDED)
            else:
                self._perform(copy, request, lambda outcome: self._answer(parked, outcome))
            return
        if parked.asker is None and request.op in FROM_BACKUPS:
            outcome = self._read_here(request)
            if outcome is not None:
                self._answer(parked, outcome)
                return
        owner = self._rows[partition].owner
        if owner is None or owner == self._me or not self._present(owner):
            self._park(partition, parked)
        elif self._keep(parked):
            if self._retries and not request.id and request.op not in READS:
                parked.request = msgspec.structs.replace(request, id=self.new_id())
            self._ticket += 1
            self._sent[self._ticket] = (owner, parked)
            self._out.send(owner, Forward(self._ticket, parked.request))
            self._wake(LATE_NS)

    def new_id(self) -> bytes:
        """An id for a request, which nobody else gives to another one."""
        self._requests += 1
        return self._prefix + self._requests.to_bytes(8, "big")

    def _park(self, partition: int, parked: Parked) -> None:
        if self._keep(parked):
            self._parked.setdefault(partition, []).append(parked)
            self._wake(RETRY_NS)

    def _keep(self, parked: Parked) -> bool:
        """Count the request among those that wait, or refuse it (routing/R-6)."""
        if not parked.size:
            limits = self._settings.limits
            size = _size(parked.request)
            if self._waiting >= limits.waiting_requests or self._waiting_bytes + size > self._waiting_most:
                self._answer(parked, FULL)
                return False
            parked.size = size
            self._waiting += 1
            self._waiting_bytes += size
        return True

    def _count_out(self, parked: Parked) -> None:
        """It waits no more."""
        if parked.size:
            self._waiting -= 1
            self._waiting_bytes -= parked.size
            parked.size = 0

    def _answer(self, parked: Parked, outcome: Outcome) -> None:
        """Answer the caller; what may have been applied before is not refused (routing/R-4)."""
        self._count_out(parked)
        if parked.doubt and outcome.status is not Status.OK:
            outcome = Outcome(Status.UNKNOWN, None, f"{parked.doubt}; {outcome.detail}".rstrip("; "))
        parked.done(outcome)

    def _perform(self, copy: PartitionCopy, request: Request, done: Done) -> None:
        lane = self._lane
        if request.op in READS:
            answer = self._read(request, lambda: perform(lane, copy, request, self._out.now_ns))
            position = self._position(copy, request.map)
            if request.op is Op.GET_ALL and _size_of(answer.value) > self._answer_bytes:
                answer = Outcome(Status.TOO_LARGE, None, too_long(self._answer_bytes))
            elif position != (0, 0):
                answer = msgspec.structs.replace(answer, position=position)
            if answer.status is Status.OK and lane.confirms_reads and lane.confirmed(_target(request)):
                lane.rest_on(copy, request.map)
                lane.seal(lambda known: done(answer if known else self._unconfirmed()))
            else:
                done(answer)
                lane.seal(lambda known: None)
            return
        partition = copy.partition
        if request.id and copy.requests.knows(request.id):
            known_value = copy.requests.answer(request.id)
            place = self._position(copy, request.map)
            lane.when_held(partition, request.id, lambda known: done(self._told(known, known_value, place)))
            return
        before, updates = lane.opened, _updates(copy, request)
        value = perform(lane, copy, request, self._out.now_ns)
        position = self._position(copy, request.map)
        if _updates(copy, request) == updates:
            lane.rest_on(copy, _target(request))
            answer = Outcome(Status.OK, value, position=position)
            lane.seal(lambda known: done(answer if known else self._unconfirmed()))
            return
        if request.id:
            lane.remember(copy, request.id, value, before)
        lane.seal(lambda known: done(self._told(known, value, position)))

    def _unconfirmed(self) -> Outcome:
        """Of a request that changed nothing, when nobody can say whether what it saw is still so."""
        return Outcome(
            Status.NOT_READY,
            None,
            f"nothing was changed, and what was found is not confirmed: {self._lane.unknown_because}",
        )

    def _read(
        self, request: Request, read: Callable[[], Value], position: tuple[int, int] = (0, 0)
    ) -> Outcome:
        """What a read answers; an error in it is an answer, too.

        Nothing was changed by a read, so this member's state is not in doubt and it goes on (routing/R-9). But a read
        may find that an entry is over and begin to take it out: after an error in that nobody knows what is half done.
        As of any error in a write, the member stops of it.
        """
        opened = self._lane.opened
        try:
            value = read()
        except Exception as error:
            if self._lane.opened != opened:
                raise
            why = f"{type(error).__name__}: {error}"
            self._out.note("a read failed", level="error", op=request.op.name, map=request.map, why=why)
            return Outcome(Status.FAILED, None, why)
        return Outcome(Status.OK, value, position=position)

    def _told(self, known: bool, value: Value, position: tuple[int, int] = (0, 0)) -> Outcome:
        if known:
            return Outcome(Status.OK, value, position=position)
        return Outcome(Status.UNKNOWN, None, self._lane.unknown_because)

    # -- reads of backups

    def _position(self, copy: PartitionCopy, name: str) -> tuple[int, int]:
        """Where the map stands in this copy, if that is of interest to anybody."""
        held = copy.maps.get(name)
        if held is None or not self._settings.map(name).read_backups:
            return (0, 0)
        return (held.term, held.counter)

    def _read_here(self, request: Request) -> Outcome | None:
        """What a backup on this member answers; None when the primary has to be asked (routing/R-5)."""
        chosen = self._settings.map(request.map)
        if not chosen.read_backups:
            return None
        partition = request.partitions[0]
        row = self._rows[partition]
        copy = self._held.get(partition)
        if copy is None or row.owner is None or not self._heard(row.owner):
            return None
        if not 0 < row.index_of(self._me) < chosen.copies or self._me in row.behind:
            return None
        held = copy.maps.get(request.map)
        position = self._position(copy, request.map)
        if not self._positions.allow(partition, request.map, position):
            return None
        if not can_read(held, request):
            return None
        self._positions.see(partition, request.map, position)
        return self._read(request, lambda: read_backup(held, request, self._out.now_ns), position)

    def step_down(self, partition: int, copy: PartitionCopy) -> None:
        """This member serves the partition no more; what its sessions have seen of it counts."""
        for name in copy.maps:
            self._positions.see(partition, name, self._position(copy, name))

    def _gather(self, gathering: Gathering) -> None:
        """Ask every owner for its share of what is missing."""
        refused = self.why_refused(gathering.request)
        if refused is not None:
            gathering.finish(Outcome(Status.UNKNOWN, None, PARTLY) if gathering.started else refused)
            return
        crowded = self._lane.backlog.refusing and _changes(gathering.request)
        shares: dict[MemberId, list[int]] = {}
        mine: list[int] = []
        late = False
        for partition in sorted(gathering.missing):
            owner = self._rows[partition].owner
            if self._lane.in_office[partition] is not None and not crowded:
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
            self._wake(LATE_NS)
            self._out.send(owner, Forward(self._ticket, self._share(gathering.request, partitions)))
        if mine:
            gathering.missing.difference_update(mine)
            self._ticket += 1
            ticket = self._ticket
            self._gathered[ticket] = (self._me, gathering, mine)

            def performed(outcome: Outcome, missed: list[int]) -> None:
                # Perhaps long after the others have answered: this share waits for its backups.
                del self._gathered[ticket]
                self._collect(gathering, mine, outcome, missed)

            self._perform_whole(self._share(gathering.request, mine), performed)
        elif not gathering.request.partitions:
            self._collect(gathering, [], Outcome(Status.OK, None), [])
        if late:
            self._again.append(gathering)
            self._wake(RETRY_NS)

    @staticmethod
    def _share(request: Request, partitions: list[int]) -> Request:
        return Request(request.op, request.map, partitions, value=request.value)

    def _perform_whole(self, request: Request, done: Cleared) -> None:
        if request.op not in READS and self._settings.map(request.map).changes_bytes:
            self._clearings.begin(request, done)
            return
        left: list[int] = []

        def work() -> Value:
            value, rest = self._slice(request)
            left.extend(rest)
            return value

        reads = request.op in READS
        answer = self._read(request, work) if reads else Outcome(Status.OK, work())
        if _size_of(answer.value) > self._answer_bytes:
            answer = Outcome(Status.TOO_LARGE, None, too_long(self._answer_bytes))
            left.clear()

        def sealed(known: bool) -> None:
            if reads:
                done(answer if known else self._unconfirmed(), left)
            else:
                done(self._told(known, answer.value), left)

        self._lane.seal(sealed)

    def _slice(self, request: Request) -> tuple[Value, list[int]]:
        """Do it in so many of the partitions as take some ms; answers what that gave, and the partitions that are left,
        for which who asked will ask again.
        """
        lane = self._lane
        rests = request.op not in READS or (lane.confirms_reads and lane.confirmed(request.map))
        value: Value = None
        entries = size = 0
        for at, partition in enumerate(request.partitions):
            if entries >= SLICE_ENTRIES or size >= SLICE_BYTES:
                self._spent += max(entries, SLICE_ENTRIES if size >= SLICE_BYTES else 0)
                return value, request.partitions[at:]
            copy = lane.in_office[partition]
            if copy is None:
                continue
            if rests:
                lane.rest_on(copy, request.map)
            held = copy.maps.get(request.map)
            if held is not None:
                share = perform_whole(lane, [copy], request, self._out.now_ns)
                counts = request.op in (Op.SIZE, Op.IS_EMPTY) and not held.state.expiries
                entries += COUNT_ENTRIES if counts else len(held.state.entries)
                size += _size_of(share)
                value = merge(request.op, value, share)
        self._spent += max(entries, size // (SLICE_BYTES // SLICE_ENTRIES))
        return perform_whole(lane, [], request, self._out.now_ns) if value is None else value, []

    def _collect(self, gathering: Gathering, asked: list[int], outcome: Outcome, missed: list[int]) -> None:
        if gathering.finished:
            return
        if outcome.status in (Status.FAILED, Status.TOO_LARGE):
            gathering.finish(outcome)
            return
        if outcome.status is Status.OK:
            size = _size_of(outcome.value)
            gathering.size += size
            self._listed += size
            if self._listed > LISTED_SHARE * self._answer_bytes and self._listed > gathering.size:
                gathering.value = None
                gathering.finish(LISTED)
                return
            if gathering.size > self._answer_bytes:
                gathering.value = None
                gathering.finish(Outcome(Status.TOO_LARGE, None, too_long(self._answer_bytes)))
                return
            gathering.value = merge(gathering.request.op, gathering.value, outcome.value)
        else:
            missed = asked
        if missed:
            gathering.missing.update(missed)
            if len(missed) < len(asked):
                # A slice of it was done: the next one soon, but not before others have had their turn.
                if not gathering.queued:
                    gathering.queued = True
                    self._works.append((None, lambda: self._go_on(gathering)))
                    self._out.timer("gather", PAUSE_NS)
            else:
                if gathering not in self._again:
                    self._again.append(gathering)
                self._wake(RETRY_NS)
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
        crowded = self._lane.backlog.crowded and _changes(request)
        if request.op in READS and self.unread_by(sender) > self._answer_bytes:
            missed = request.partitions if request.op in WHOLE else []
            self._out.send(sender, Answer(ticket, UNREAD, missed))
            return
        if request.op in WHOLE:
            if crowded:
                self._out.send(sender, Answer(ticket, Outcome(Status.OK, 0), request.partitions))
                return
            self._take_turn(lambda: self._perform_share(sender, forward), sender)
            return

        def done(outcome: Outcome) -> None:
            self._out.send(sender, Answer(ticket, outcome, []))

        partition = request.partitions[0]
        copy = self._lane.in_office[partition]
        if crowded:
            done(CROWDED)
        elif copy is not None:
            self._perform(copy, request, done)
        elif self._rows[partition].owner == self._me or self._coming(partition):
            # The sender may know of a commit that is still on its way here.
            self._park(partition, Parked(request, done, self._out.now_ns + self._timeout_ns, sender))
        else:
            done(Outcome(Status.MOVED, None, "this member is not the partition's primary"))

    def _perform_share(self, sender: MemberId, forward: Forward) -> None:
        """Another member gathers the shares of an operation on whole maps: a slice of this one's."""
        missed = [p for p in forward.request.partitions if self._lane.in_office[p] is None]

        def done(outcome: Outcome, left: list[int]) -> None:
            self._out.send(sender, Answer(forward.ticket, outcome, sorted({*missed, *left})))

        self._perform_whole(forward.request, done)

    def on_answer(self, sender: MemberId, answer: Answer) -> None:
        sent = self._sent.pop(answer.ticket, None)
        if sent is not None:
            asked, parked = sent
            outcome, request = answer.outcome, parked.request
            partition = request.partitions[0]
            if outcome.status is Status.MOVED and self._rows[partition].owner != asked:
                self._dispatch(parked)
            elif outcome.status in (Status.MOVED, Status.NOT_READY):
                # To be sent again when this member learns of another owner, or after a moment.
                parked.why = outcome.detail if outcome.status is Status.NOT_READY else ""
                self._park(partition, parked)
            else:
                if outcome.position != (0, 0):
                    self._positions.see(partition, request.map, outcome.position)
                self._answer(parked, outcome)
            return
        gathered = self._gathered.pop(answer.ticket, None)
        if gathered is not None:
            _, gathering, share = gathered
            outcome = answer.outcome
            if outcome.status is Status.OK and not answers(gathering.request.op, outcome.value):
                # Whoever it was, it is asked again.
                outcome = Outcome(Status.MOVED, None, f"member {sender} has answered what is no answer")
            self._collect(gathering, share, outcome, answer.missed)

    @property
    def leftovers(self) -> dict[str, int]:
        """What should be empty when nothing is under way, by name."""
        return {
            "parked requests": sum(len(parked) for parked in self._parked.values())
            + len(self._again)
            + len(self._works),
            "forwarded requests": len(self._sent) + len(self._gathered),
            "clearings": self._clearings.running,
        }

    # -- occasions

    def served(self, partition: int) -> None:
        """This member serves the partition now, or its row changed: look again at what waits for it."""
        for parked in self._parked.pop(partition, []):
            self._dispatch(parked)

    def restrict(self) -> None:
        """What must not be taken now is refused now, also what waits for its partition."""
        for partition, waiting in list(self._parked.items()):
            for parked in list(waiting):
                refused = self.why_refused(parked.request)
                if refused is not None:
                    waiting.remove(parked)
                    self._answer(parked, refused)
            if not waiting:
                del self._parked[partition]

    def askers_gone(self, gone: set[MemberId]) -> None:
        """routing/R-10. To be told before anything is served in the new view."""
        for partition, waiting in list(self._parked.items()):
            stay = [parked for parked in waiting if parked.asker not in gone]
            for parked in waiting:
                if parked.asker in gone:
                    self._count_out(parked)
            if stay:
                self._parked[partition] = stay
            else:
                del self._parked[partition]
        works = [(asker, work) for asker, work in self._works if asker not in gone]
        self._works.clear()
        self._works.extend(works)

    def members_gone(self, gone: set[MemberId]) -> None:
        """routing/R-2."""
        for ticket, (owner, parked) in list(self._sent.items()):
            if owner in gone:
                del self._sent[ticket]
                if parked.request.op not in READS:
                    parked.doubt = f"member {owner} left before it answered"
                if parked.request.op in READS or (self._retries and parked.request.id):
                    self._dispatch(parked)
                else:
                    self._answer(parked, Outcome(Status.UNKNOWN))
        for ticket, (owner, gathering, asked) in list(self._gathered.items()):
            if owner in gone:
                del self._gathered[ticket]
                self._collect(gathering, asked, Outcome(Status.MOVED), [])

    def _wake(self, after_ns: int) -> None:
        if not self._timer_ns or after_ns < self._timer_ns:
            self._timer_ns = after_ns
            self._out.timer("route", after_ns)

    def on_timer(self, name: str = "route") -> None:
        """Try again what could not be sent, and refuse what has waited too long; or go on with clearing."""
        if name == "clear":
            self._clearings.on_timer()
            return
        if name == "gather":
            self._take_turns()
            return
        self._timer_ns = 0
        again, self._again = self._again, []
        now_ns = self._out.now_ns
        for gathering in again:
            self._take_turn(lambda gathering=gathering: self._go_on(gathering))  # type: ignore[misc]
        for partition, parked in list(self._parked.items()):
            ended = [one for one in parked if one.deadline_ns <= now_ns]
            if ended:
                self._parked[partition] = [one for one in parked if one.deadline_ns > now_ns]
                for one in ended:
                    self._answer(one, self._timed_out(one.request, one.why))
        for partition in list(self._parked):
            owner = self._rows[partition].owner
            if owner is not None and owner != self._me and self._present(owner):
                # It has come back without a change of the row, or has by now heard that it is the owner.
                self.served(partition)
        self._give_up_sent(now_ns)
        self._parked = {partition: parked for partition, parked in self._parked.items() if parked}
        if self._parked or self._again:
            self._wake(RETRY_NS)
        elif self._sent or self._gathered:
            self._wake(LATE_NS)

    def _give_up_sent(self, now_ns: int) -> None:
        """What was sent and has waited too long for its answer (routing/R-3)."""
        seconds = self._timeout_ns // SECOND
        for ticket, (owner, parked) in list(self._sent.items()):
            if parked.deadline_ns <= now_ns:
                del self._sent[ticket]
                why = f"member {owner} did not answer for {seconds} s"
                reads = parked.request.op in READS
                self._answer(parked, Outcome(Status.NOT_READY if reads else Status.UNKNOWN, None, why))
        for ticket, (owner, gathering, _) in list(self._gathered.items()):
            if owner != self._me and gathering.deadline_ns <= now_ns:
                del self._gathered[ticket]
                gathering.finish(self._gathered_too_late(gathering))

    def _gathered_too_late(self, gathering: Gathering) -> Outcome:
        if gathering.request.op in READS or not gathering.started:
            return self._timed_out(gathering.request)
        return Outcome(Status.UNKNOWN, None, PARTLY)

    def _timed_out(self, request: Request, why: str = "") -> Outcome:
        seconds = self._timeout_ns // SECOND
        where = f"partition {request.partitions[0]}" if len(request.partitions) == 1 else "some partition"
        why = why or "nothing was changed there"
        return Outcome(Status.NOT_READY, None, f"{where} had no serving primary for {seconds} s; {why}")


def _changes(request: Request) -> bool:
    """Whether a passive cluster refuses this. What Holdfast keeps for itself may change: names of opened maps, schemas.

    Without that no client could begin to read while the cluster is passive.
    """
    return request.op not in READS and not request.map.startswith(INTERNAL)


def _target(request: Request) -> str:
    """Which map, or share of a service, the request is about."""
    return part_name(request.map) if request.op in (Op.CALL, Op.ASK) else request.map


def _updates(copy: PartitionCopy, request: Request) -> int:
    """How often what the request is about has changed."""
    held = (copy.services if request.op is Op.CALL else copy.maps).get(_target(request))
    return held.counter if held is not None else 0


def _size_of(value: Value) -> int:
    """Bytes of the keys and values that an answer lists."""
    return sum(map(len, value)) if isinstance(value, list) else 0  # type: ignore[arg-type]


def _size(request: Request) -> int:
    """Bytes that a request keeps while it waits, at about."""
    size = REQUEST_BYTES + len(request.key) + len(request.value) + len(request.expected)
    return size + sum(map(len, request.items))
