"""A grid of one member without network, for tests of sessions alone: real stores, and nothing that moves.

What a test wants to see go wrong it sets: `away` partitions are not served by the data lane, `verdict` is
what the seal of a batch will say (None keeps it open until `settle`), `answer_with` is the outcome of every
request.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from tests import statuses
from tests.server.local_copies import LocalCopies

from holdfast.actions.operator_action import ActionDone, OperatorAction
from holdfast.actions.show_status import ShowStatus
from holdfast.config import CpSettings, MapSettings, ProcessorSettings, Settings, StructureSettings
from holdfast.core.collections.collection_steps import decide_step
from holdfast.core.model.collections import is_multimap
from holdfast.core.model.decisions import Decision, Wait
from holdfast.core.model.ids import MILLISECOND, MemberId
from holdfast.core.model.levels import HIGHEST
from holdfast.core.model.map_locks import guarded_map
from holdfast.core.model.member_status import MemberStatus
from holdfast.core.model.operations import (
    DEFAULT_TTL,
    READS,
    STRUCTURE_STEPS,
    WHOLE,
    Done,
    EntryEvent,
    EventKind,
    Op,
    Outcome,
    Request,
    Status,
    Value,
    WrittenEntries,
    WrittenRow,
)
from holdfast.core.model.partition_events import News, Number
from holdfast.core.model.partition_table import Assignment
from holdfast.core.model.processors import ProcessorCall, decode_call
from holdfast.core.model.records import Change, Record
from holdfast.core.model.transaction_orders import TransactionAnswer, TransactionFate
from holdfast.core.model.zone_batches import ZoneBatch, ZoneBatchDone, ZoneChanges, ZoneWrites
from holdfast.core.operations.lock_steps import decide_lock_step
from holdfast.core.operations.map_operations import decide_whole, merge, version_of
from holdfast.core.primary_backup.ack_batch import AckBatch
from holdfast.core.primary_backup.cuts import Cuts, Taken
from holdfast.core.raft_partition.map_homes import ZoneEntries
from holdfast.core.raft_partition.state_machine import StateMachine
from holdfast.core.routing.lane_access import LaneAccess
from holdfast.core.routing.lost_partitions import LostPartitions
from holdfast.core.store.partition_copy import PartitionCopy
from holdfast.core.store.replica import MapReplica
from holdfast.server.audit_events import AuditEvent
from holdfast.server.grid import ClusterCard, Debounced, MemberCard
from holdfast.server.logins import Login, LoginAnswer, LoginDone
from holdfast.server.rights import EVERYTHING
from holdfast.wire import own

ME = "0000000a-0000-000b-0000-00000000000c"
CLUSTER = "00000001-0002-0003-0004-000000000005"


class StepsOfOneRequest:
    """Each request has a step of its own, which has ended when it is looked at."""

    def __init__(self) -> None:
        self._count = 0

    @property
    def number(self) -> int:
        self._count += 1
        return self._count

    def end(self, number: int) -> None: ...


class OneLane:
    """Writes go into the stores at once; a seal says what the grid's `verdict` is."""

    def __init__(self, grid: OneMemberGrid) -> None:
        self.grid = grid
        self.serving: list[PartitionCopy | None] = list(grid.copies)
        self._in_office: list[PartitionCopy | None] | None = None
        self.listening: dict[str, int] = {}
        self.seals: list[Callable[[bool], None]] = []
        self.unknown_because = "the test says so"
        self.resting: list[tuple[int, str]] = []
        self.confirms_reads = False
        self.open_puts: None = None
        self.steps: Any = StepsOfOneRequest()
        self.settled = False
        self.batch: AckBatch | None = None
        """What ended buffers join, unless they are settled."""

    def settle(self) -> bool:
        return self.settled

    def end_buffer(self) -> AckBatch | bool:
        return self.settled or self.batch or False

    def locked(self, copy: PartitionCopy, name: str, key: bytes) -> bool:
        return False

    @property
    def leading(self) -> list[PartitionCopy | None]:
        return self.serving if self._in_office is None else self._in_office

    @leading.setter
    def leading(self, copies: list[PartitionCopy | None]) -> None:
        self._in_office = copies

    def read(self, copy: PartitionCopy, name: str, key: bytes) -> bytes | None:
        held = copy.open(name)
        if held.state.expired(key, self.grid.now):
            self.grid.take_out(held, key, EventKind.EXPIRED)
        return held.state.entries.get(key)

    def set(
        self,
        copy: PartitionCopy,
        name: str,
        key: bytes,
        value: bytes,
        ttl_ms: int,
        max_idle_ms: int,
        key_hash: int,
    ) -> bytes | None:
        held = copy.open(name)
        old = self.read(copy, name, key)
        held.state.store(key, value, max(ttl_ms, 0), max(max_idle_ms, 0), key_hash, self.grid.now)
        self.grid.tell(held, EventKind.ADDED if old is None else EventKind.UPDATED, key, value, old)
        return old

    def remove(self, copy: PartitionCopy, name: str, key: bytes) -> bytes | None:
        if self.read(copy, name, key) is None:
            self.rest_on(copy, name)
        return self.grid.take_out(copy.open(name), key, EventKind.REMOVED)

    def evict(self, copy: PartitionCopy, name: str, key: bytes) -> None:
        self.grid.take_out(copy.open(name), key, EventKind.EVICTED)

    def set_ttl(self, copy: PartitionCopy, name: str, key: bytes, ttl_ms: int) -> None:
        state = copy.open(name).state
        expiry = state.expiries.get(key)
        state.schedule(key, max(ttl_ms, 0), expiry.max_idle_ms if expiry is not None else 0, self.grid.now)

    def log(
        self, copy: PartitionCopy, held: MapReplica, change: Change, key: bytes = b"", *, ttl_ms: int = 0
    ) -> None:
        held.updates.next()

    def report(self, name: str, rows: list[WrittenRow]) -> None:
        raise AssertionError("every write is a call")

    @property
    def now_ns(self) -> int:
        return self.grid.now

    def wall_ms(self) -> int:
        return self.grid.wall_ms()

    def expire(self, copy: PartitionCopy, held: MapReplica, limit: int) -> int:
        ended, looked = held.state.endings.due(self.grid.now, limit)
        for key in ended:
            self.grid.take_out(held, key, EventKind.EXPIRED)
        return looked

    def rest_on(self, copy: PartitionCopy, name: str) -> None:
        self.resting.append((copy.partition, name))

    def confirmed(self, name: str) -> bool:
        return self.confirms_reads

    def close_batch(self, done: Callable[[bool], None]) -> None:
        if self.grid.verdict is None:
            self.seals.append(done)
        else:
            done(self.grid.verdict)


class OneReplica:
    """A replica of a zone's partition, over the same maps as the copy of that partition."""

    def __init__(self, grid: OneMemberGrid, copy: PartitionCopy) -> None:
        self._grid = grid
        self.state = StateMachine([copy.partition], Settings())
        self.state.copies[copy.partition] = copy

    def look(self, partition: int, name: str, key: bytes) -> bytes | None:
        return self.state.look(partition, name, key, self._grid.now // MILLISECOND)

    def must_log_use(self, held: MapReplica, key: bytes) -> bool:
        return self.state.must_log_use(held, key, self._grid.now // MILLISECOND)

    def now_ns(self) -> int:
        return self.state.now_ns(self._grid.now // MILLISECOND)


class Clock:
    """The outbox of a grid, as far as cuts need one: it carries the time."""

    def __init__(self, grid: OneMemberGrid) -> None:
        self._grid = grid

    @property
    def now_ns(self) -> int:
        return self._grid.now


class Rows:
    """The table, as a function says."""

    def __init__(self, row: Callable[[int], Assignment]) -> None:
        self._row = row

    def __getitem__(self, partition: int) -> Assignment:
        return self._row(partition)


class _Turn:
    """What is done once at the end of a turn."""

    def __init__(self, tell: Callable[[], None]) -> None:
        self.tell = tell
        self.asked = False

    def request(self) -> None:
        self.asked = True

    def end(self) -> None:
        self.asked = False

    def run(self) -> None:
        if self.asked:
            self.asked = False
            self.tell()


class OneMemberCollections:
    """Queues, lists and sets of a grid."""

    def __init__(self, grid: OneMemberGrid) -> None:
        self._grid = grid
        self.waiting: list[tuple[Request, Done]] = []
        self.withdrawn = 0
        self.connected: list[bytes] = []
        self.configured = Settings()

    def execute(self, request: Request, done: Done) -> Callable[[], None]:
        """It waits until an item comes or goes."""
        if self._grid.answer_with is not None:
            self._grid.execute(request, done)
            return lambda: None
        self._grid.requests.append(request)
        decided = self._grid.step(request)
        if isinstance(decided, Decision):
            done(Outcome(Status.OK, decided.answer))
            if decided.updates:
                self.wake()
            return lambda: None
        waits = (request, done)
        self.waiting.append(waits)

        def withdraw() -> None:
            self.withdrawn += 1
            if waits in self.waiting:
                self.waiting.remove(waits)
                done(Outcome(Status.OK))

        return withdraw

    def wake(self) -> None:
        progress = True
        while progress:
            progress = False
            for waits in list(self.waiting):
                if waits not in self.waiting:
                    continue
                decided = self._grid.step(waits[0])
                if isinstance(decided, Decision):
                    progress = True
                    self.waiting.remove(waits)
                    waits[1](Outcome(Status.OK, decided.answer))

    def connect(self, client: bytes) -> Callable[[], None]:
        self.connected.append(client)
        return lambda: self.connected.remove(client)

    def settings(self, name: str) -> StructureSettings | None:
        return self.configured.collection(name)

    @property
    def processors(self) -> dict[str, ProcessorSettings]:
        return {"sell": ProcessorSettings(function="shop:sell", factory_id=66, class_id=1)}

    @property
    def cp_settings(self) -> CpSettings:
        return self.configured.cp


class OneMemberGrid:
    """See the module."""

    def __init__(
        self, partition_count: int = 7, *, client_port: int = 5701, cluster_name: str = "dev"
    ) -> None:
        self.member_uuid = ME
        self.cluster_id = CLUSTER
        self.cluster_name = cluster_name
        self.batch_invalidations = True
        self.level = HIGHEST
        self.turns: list[_Turn] = []
        self.partition_count = partition_count
        self.copies = [PartitionCopy(partition, 0) for partition in range(partition_count)]
        self.now = 0
        self.verdict: bool | None = True
        self.answer_with: Outcome | None = None
        self.refuse_with: Outcome | None = None
        self.requests: list[Request] = []
        self.doubts: list[str] = []
        self.collections = OneMemberCollections(self)
        self.running: list[tuple[Request, Done]] = []
        """Entry processors, until `end_runs`,"""
        self.holds_runs = False
        """if they do not end at once."""
        self.calls: list[ProcessorCall] = []
        self.failing = b"fails"
        self.timed: list[str] = []
        """What has ended that is no request."""
        self.reads: Counter[str] = Counter()
        self.logins: list[tuple[str | None, str | None, bytes | None]] = []
        self.rights = EVERYTHING
        """Of whoever is let in."""
        self.proving: list[LoginDone] | None = None
        """With a list, nobody is let in before the test says so."""
        self.audited: list[AuditEvent] = []
        self.user: tuple[str | None, str | None, bytes | None] | None = None
        self.listeners: list[tuple[str, bytes | None, Callable[[EntryEvent], None]]] = []
        self.watchers: list[Callable[[], None]] = []
        self.card = ClusterCard(
            1,
            [MemberCard(ME, "127.0.0.1", client_port, 5751, lite=False, attributes={"zone": "a"})],
            1,
            {ME: list(range(partition_count))},
        )
        self.lane = OneLane(self)
        rows = Rows(lambda partition: Assignment(1, (MemberId(ME),)))
        self.cuts = Cuts(MemberId(ME), Settings(), Clock(self), rows, self.lane)  # type: ignore[arg-type]
        self.losses = LostPartitions(Settings(maps={"safe": MapSettings(loss_policy="read-write-safe")}))
        self.lane_access = LaneAccess(self.losses)
        self.zoned: set[str] = set()
        """Maps that live in a zone, which the member leads."""
        self.local = False
        self.own_ttl_ms = self.own_max_idle_ms = 0
        self.entries = ZoneEntries(1, partition_count)
        self.entries.serving[:] = [OneReplica(self, copy) for copy in self.copies]  # type: ignore[list-item]
        self.batches: list[tuple[ZoneBatch, Callable[[ZoneBatchDone], None]]] = []
        """Those that were asked for and, while `verdict` is None, are not carried out."""
        self.fails: Outcome | None = None
        """What becomes of batches instead."""
        self.passive = False
        self.configured_maps: set[str] = set()
        self.master = ME
        self.owners: dict[int, str | None] = {}
        """Partitions whose owner is not this member."""
        self.told: list[News] = []
        self.complete = True
        self.news_listeners: list[Callable[[News], None]] = []
        self.actions: list[tuple[OperatorAction, int, ActionDone]] = []
        """Actions of operators, with their timeouts and the functions that answer them."""
        """Questions to the metastore and orders about zones, with who is to be told."""
        self.faults: list[tuple[str, Exception]] = []
        """Errors inside the member that requests have caused."""
        self.knocks: list[str] = []

    def take_cut(
        self,
        cut: bytes,
        maps: Sequence[str],
        partitions: Sequence[int],
        lease_ms: int,
        done: Callable[[Taken], None],
        *,
        passive: bool,
    ) -> None:
        self.cuts.take(cut, maps, partitions, lease_ms, done, passive=passive)

    def hold_cut(self, cut: bytes, lease_ms: int, done: Callable[[int], None]) -> None:
        done(self.cuts.hold(cut, lease_ms))

    def faulty(self, kind: str, error: Exception) -> None:
        self.faults.append((kind, error))

    def report_client_event(self, kind: str, line: str, *said: object) -> None:
        self.knocks.append(line % said)

    def tell_news(self, news: News) -> None:
        """This has happened to a partition."""
        self.told.append(news)
        for on_event in list(self.news_listeners):
            on_event(news)

    def be_passive(self) -> None:
        """Let nothing be written any more, as the member does."""
        self.passive = True
        self.lane.leading = list(self.lane.serving)
        self.lane.serving = [None] * self.partition_count
        self.answer_with = self.refuse_with = Outcome(Status.PASSIVE, None, "the cluster is passive")

    def away(self, partition: int) -> None:
        """Let the data lane not serve this partition any more."""
        self.lane.serving[partition] = None

    def settle(self, *, safe: bool) -> None:
        """Say to the batches that wait whether they are safe."""
        seals, self.lane.seals = self.lane.seals, []
        for done in seals:
            done(safe)

    def change(self, card: ClusterCard) -> None:
        """Members or owners are others now."""
        self.card = card
        for changed in list(self.watchers):
            changed()

    # -- Grid

    def now_ns(self) -> int:
        return self.now

    def wall_ms(self) -> int:
        return 1_700_000_000_000

    def rejection(self, request: Request, size: int = 0) -> Outcome | None:
        return self.refuse_with

    def cluster(self) -> ClusterCard:
        return self.card

    def watch(self, changed: Callable[[], None]) -> Callable[[], None]:
        self.watchers.append(changed)
        return lambda: self.watchers.remove(changed)

    def listen(
        self,
        name: str,
        *,
        key: bytes | None,
        local_only: bool,
        on_event: Callable[[EntryEvent], None],
        invalidations: bool = False,
        on_written: Callable[[WrittenEntries], None] | None = None,
    ) -> Callable[[], None]:
        entry = (name, key, on_event)
        self.listeners.append(entry)
        return lambda: entry in self.listeners and self.listeners.remove(entry)

    def debounce(self, tell: Callable[[], None]) -> Debounced:
        gathered = _Turn(tell)
        self.turns.append(gathered)
        return gathered

    def end_turn(self) -> None:
        """Do what was gathered."""
        for gathered in self.turns:
            gathered.run()

    def end_listeners(self, name: str) -> None:
        self.listeners = [entry for entry in self.listeners if entry[0] != name]

    def log_in(self, login: Login, needed: Callable[[], bool], done: LoginDone) -> None:
        given = (login.username, login.password, login.token)
        self.logins.append(given)
        if self.proving is not None:
            self.proving.append(done)
            return
        done(LoginAnswer(self.rights if self.user is None or self.user == given else None))

    def audit(self, event: AuditEvent) -> None:
        self.audited.append(event)

    def zone_of(self, name: str) -> str:
        return "z" if name in self.zoned else ""

    def zone_entries(self, name: str) -> ZoneEntries | None:
        return self.entries if name in self.zoned else None

    def zone_map(self, name: str) -> tuple[bool, int, int]:
        return self.local, self.own_ttl_ms, self.own_max_idle_ms

    def read(self, name: str, count: int) -> None:
        self.reads[name] += count

    def timing(self, operation: str) -> Callable[[], None]:
        return lambda: self.timed.append(operation)

    def zone_batch(self, batch: ZoneBatch, done: Callable[[ZoneBatchDone], None]) -> None:
        self.batches.append((batch, done))
        if self.verdict is not None:
            self.carry_out()

    def carry_out(self) -> None:
        """Do what the batches want, or fail."""
        batches, self.batches = self.batches, []
        for batch, done in batches:
            result = ZoneBatchDone()
            for place, (partition, changes) in enumerate(batch.changes):
                replica = self.entries.serving[partition]
                assert replica is not None
                replica.state.time_ms = self.now // MILLISECOND
                if self.fails is not None:
                    result.failed.append((place, self.fails))
                else:
                    result.answers.append((place, self._apply(replica.state, partition, changes)))
            if batch.reads:
                result.unconfirmed = self.fails
            done(result)

    def _apply(self, state: StateMachine, partition: int, changes: list[ZoneChanges]) -> list[Value]:
        found: list[Any] = []
        for part in changes:
            if isinstance(part, ZoneWrites):
                found += state.write(part.writes, state.copies[partition], 1, self._hear)
                continue
            for request in part.requests:
                lifetimes = {
                    name: own
                    for name, own in (("ttl_ms", self.own_ttl_ms), ("max_idle_ms", self.own_max_idle_ms))
                    if getattr(request, name) == DEFAULT_TTL and request.op is not Op.SET_TTL
                }
                found.append(state.carry_out(msgspec.structs.replace(request, **lifetimes), 1, self._hear))
        return found

    def _hear(self, event: EntryEvent) -> None:
        for listened, wanted, on_event in list(self.listeners):
            if listened == event.map and (wanted is None or wanted == event.key):
                on_event(msgspec.structs.replace(event, member=ME))

    @property
    def local_copies(self) -> LocalCopies:
        return LocalCopies(dict(enumerate(self.copies)), self.lane.leading, self.now)

    def map_names(self) -> list[str]:
        return sorted(
            {name for copy in self.copies for name, held in copy.maps.items() if held.state.entries}
        )

    def status(self) -> MemberStatus:
        return statuses.status()

    def owner(self, partition: int) -> str | None:
        return self.owners.get(partition, ME)

    def row(self, partition: int) -> Assignment:
        owner = self.owner(partition)
        return Assignment(1, (MemberId(owner),) if owner is not None else (None,))

    def act(self, action: OperatorAction, timeout_ms: int, done: ActionDone) -> None:
        if isinstance(action, ShowStatus):
            done(own.Fate.DONE, "", self.status())
            return
        self.actions.append((action, timeout_ms, done))

    transactions_per_connection = 1000

    def runs_transaction(self, transaction: bytes) -> bool:
        return False

    def order_transaction(self, order: object, done: Callable[[Any], None]) -> None:
        done(TransactionAnswer(TransactionFate.NOT_ACTIVE, why="there are no transactions here"))

    @property
    def last_news(self) -> Number:
        return self.told[-1].number if self.told else (1, 0)

    def news_since(self, number: Number) -> tuple[list[News], bool]:
        return [news for news in self.told if news.number > number], self.complete

    def on_news(self, on_event: Callable[[News], None]) -> Callable[[], bool]:
        self.news_listeners.append(on_event)

        def remove() -> bool:
            if on_event in self.news_listeners:
                self.news_listeners.remove(on_event)
                return True
            return False

        return remove

    def execute(self, request: Request, done: Done, doubt: str = "") -> None:
        self.requests.append(request)
        self.doubts.append(doubt)
        if self.answer_with is not None:
            done(self.answer_with)
        elif request.op in WHOLE:
            done(Outcome(Status.OK, self._whole(request)))
        elif request.op in (Op.GET_ALL, Op.PUT_ALL):
            done(Outcome(Status.OK, self._many(request)))
        elif request.op is Op.PROCESS:
            self.running.append((request, done))
            if not self.holds_runs:
                self.end_runs()
        elif request.op in STRUCTURE_STEPS:
            decided = self.step(request)
            done(Outcome(Status.OK, decided.answer))
            self.collections.wake()
        else:
            done(Outcome(Status.OK, self._keyed(request)))

    def end_runs(self) -> None:
        """The processor stores its argument, and answers the former value."""
        while self.running:
            request, done = self.running.pop(0)
            call = decode_call(request.value)
            self.calls.append(call)
            copy = self.copies[request.partitions[0]]
            old = self.lane.read(copy, request.map, request.key)
            if call.only_present and old is None:
                done(Outcome(Status.OK))
            elif call.argument == self.failing:
                done(Outcome(Status.PROCESSOR_FAILED, None, "sold out"))
            else:
                argument = call.argument or call.payload or b""
                self.lane.set(copy, request.map, request.key, argument, 0, 0, request.key_hash)
                done(Outcome(Status.OK, old))

    def step(self, request: Request) -> Decision | Wait:
        held = self.copies[request.partitions[0]].open(request.map)
        if guarded := guarded_map(request.map):
            locks = self.copies[request.partitions[0]].locks
            locks.look_at(guarded)
            decided = decide_lock_step(locks, request, self.now)
        else:
            decided = decide_step(held.state, request, self.now, self.wall_ms())
        if isinstance(decided, Decision):
            for message in decided.published:
                self.tell(held, EventKind.ADDED, None, message, None)
            for update in decided.updates:
                old = held.state.entries.get(update.key)
                if update.change is Change.CLEAR:
                    for key, value in held.state.entries.items():
                        self.tell(held, EventKind.REMOVED, key, None, value)
                record = Record(
                    held.name, held.updates.next(), update.change, update.key, update.value, update.ttl_ms
                )
                held.state.apply(record, self.now)
                if update.kind is not None:
                    value = update.value if update.change is Change.SET else None
                    self.tell(held, update.kind, update.key, value, old)
        return decided

    # -- what the operations do

    def tell(
        self,
        held: MapReplica,
        kind: EventKind,
        key: bytes | None,
        value: bytes | None,
        old: bytes | None,
        count: int = 1,
    ) -> None:
        key_hash = held.state.hashes.get(key, 0) if key else 0
        event = EntryEvent(kind, held.name, ME, key, value, old, count, key_hash)
        for name, wanted, on_event in list(self.listeners):
            if name == held.name and (wanted is None or wanted == key):
                on_event(event)

    def take_out(self, held: MapReplica, key: bytes, kind: EventKind) -> bytes | None:
        if key not in held.state.entries:
            return None
        old = held.state.drop(key)
        self.tell(held, kind, key, None, old)
        return old

    def _many(self, request: Request) -> Value:
        copy = self.copies[request.partitions[0]]
        items = request.items
        if request.op is Op.PUT_ALL:
            for key, value in zip(items[::2], items[1::2], strict=True):
                self.lane.set(copy, request.map, key, value, -1, -1, 0)
            return None
        found: list[int | bytes | None] = []
        for key in items:
            value = self.lane.read(copy, request.map, key)
            if value is not None:
                found += (key, value)
        return found

    def _whole(self, request: Request) -> Value:
        shares = [self.copies[partition].open(request.map) for partition in request.partitions]
        entries = {key: value for held in shares for key, value in held.state.entries.items()}
        if is_multimap(request.map) and request.op in READS:
            found: Value = None
            for held in shares:
                found = merge(request.op, found, decide_whole(held.state, request, self.now).answer)
            return found
        match request.op:
            case Op.SIZE:
                return len(entries)
            case Op.IS_EMPTY:
                return not entries
            case Op.CONTAINS_VALUE:
                return request.value in entries.values()
            case Op.KEYS:
                return list(entries)
            case Op.VALUES:
                return list(entries.values())
            case Op.ENTRIES:
                return [each for entry in entries.items() for each in entry]
            case Op.CLEAR | Op.EVICT_ALL | Op.DESTROY:
                for held in shares:
                    held.state.wipe()
                kind = EventKind.EVICT_ALL if request.op is Op.EVICT_ALL else EventKind.CLEAR_ALL
                self.tell(shares[0], kind, None, None, None, len(entries))
                return len(entries)
        raise AssertionError(request.op)

    def _keyed(self, request: Request) -> Value:
        copy = self.copies[request.partitions[0]]
        name, key = request.map, request.key
        held = copy.open(name)
        old = self.lane.read(copy, name, key)

        def put() -> None:
            self.lane.set(
                copy, name, key, request.value, request.ttl_ms, request.max_idle_ms, request.key_hash
            )

        match request.op:
            case Op.GET:
                return old
            case Op.CONTAINS_KEY:
                return old is not None
            case Op.ENTRY_VIEW:
                expiry = held.state.expiries.get(key)
                if old is None or expiry is None:
                    return None if old is None else [old, 0, 0, -1, version_of(old)]
                left_ms = (expiry.deadline_ns() - self.now) // MILLISECOND
                return [old, expiry.ttl_ms, expiry.max_idle_ms, left_ms, version_of(old)]
            case Op.PUT | Op.SET | Op.TRY_PUT:
                put()
                return {Op.PUT: old, Op.SET: None, Op.TRY_PUT: True}[request.op]
            case Op.PUT_IF_ABSENT:
                if old is None:
                    put()
                return old
            case Op.REPLACE:
                if old is not None:
                    put()
                return old
            case Op.REPLACE_IF_SAME:
                if old is not None and old == request.expected:
                    put()
                    return True
                return False
            case Op.REMOVE:
                return self.take_out(held, key, EventKind.REMOVED)
            case Op.DELETE | Op.TRY_REMOVE:
                return self.take_out(held, key, EventKind.REMOVED) is not None
            case Op.REMOVE_IF_SAME:
                return old == request.expected and self.take_out(held, key, EventKind.REMOVED) is not None
            case Op.SET_TTL:
                if old is not None:
                    held.state.schedule(
                        key, 0 if request.ttl_ms == DEFAULT_TTL else request.ttl_ms, 0, self.now
                    )
                return old is not None
            case Op.EVICT:
                return self.take_out(held, key, EventKind.EVICTED) is not None
        raise AssertionError(request.op)


def text_data(value: str) -> bytes:
    """A string as it is stored: type id -11, length, UTF-8."""
    encoded = value.encode()
    return b"\xff\xff\xff\xf5" + len(encoded).to_bytes(4, "big") + encoded


def int_data(value: int) -> bytes:
    """A 32-bit integer as it is stored: type id -7."""
    return b"\xff\xff\xff\xf9" + value.to_bytes(4, "big", signed=True)


__all__ = ["CLUSTER", "ME", "OneLane", "OneMemberGrid", "int_data", "text_data"]
