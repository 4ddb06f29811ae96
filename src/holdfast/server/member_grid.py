"""Implements `server.grid.Grid` for sessions, in the real world and in simulation."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence

import msgspec

from holdfast.config import CpSettings, ProcessorSettings, Settings, StructureSettings
from holdfast.core.member import Member
from holdfast.core.model.changes_since import Asked, ChangesSince
from holdfast.core.model.member_status import MemberCount
from holdfast.core.model.operations import Done, EntryEvent, Request, WrittenEntries
from holdfast.core.model.partition_events import News, Number
from holdfast.core.model.partition_table import Assignment
from holdfast.core.model.transaction_orders import TransactionAnswer, TransactionOrder
from holdfast.core.model.transactions import TransactionId
from holdfast.core.model.views import View
from holdfast.core.model.zone_batches import ZoneBatch, ZoneBatchDone
from holdfast.core.primary_backup.cuts import Cuts, Taken
from holdfast.core.raft_partition.copy_lookup import CopyLookup
from holdfast.core.raft_partition.map_homes import ZoneEntries
from holdfast.core.routing.lane_access import LaneAccess
from holdfast.core.routing.lost_partitions import LostPartitions
from holdfast.engine.driver import Driver
from holdfast.engine.entry_lane import EntryLane
from holdfast.observe.map_figures import SharedCounts, counting_maps
from holdfast.observe.status import Counted, counting
from holdfast.server.audit_events import AuditEvent, AuditKind
from holdfast.server.door import Loop, Timer
from holdfast.server.grid import ClusterCard, CollectionAccess, Debounced, MemberCard, StreamHeads
from holdfast.server.logins import Login, LoginAnswer, LoginDone, Logins, Prover
from holdfast.server.operation_times import OperationTimes

NOTIFY_S = 0.02
"""Minimum interval between two notifications of one client about members and owners. Clients decode the whole
table each time. Requests to a former owner are forwarded meanwhile.
"""
FULL_RATE_WATCHERS = 50
"""Up to this number of clients, each is notified every `NOTIFY_S`. With more clients the interval grows, and
notifications are spread over it; a member with a thousand clients would otherwise spend its time on them
during a rebalance.
"""
NOTIFY_MAX_S = 0.2
"""The longest interval. A member that leaves waits longer than that
(`core.migration.migration_master.PARTING_NS`), so that clients know it before.
"""
SPREAD = 0.618034
"""The golden ratio: the fractions of its multiples are spread evenly, for any number of clients."""


class Debouncer:
    """Calls a function soon after a request, at most once per `pause_s`."""

    def __init__(
        self,
        callback: Callable[[], None],
        pause_s: Callable[[], float],
        loop: Loop,
        delay_s: Callable[[], float] = lambda: 0.0,
    ) -> None:
        """`delay_s`: minimum delay after a request."""
        self._callback = callback
        self._pause_s = pause_s
        self._loop = loop
        self._delay_s = delay_s
        self._next_s = 0.0
        self._timer: Timer | None = None

    def request(self) -> None:
        if self._timer is None:
            earliest_s = self._loop.time() + self._delay_s()
            self._timer = self._loop.call_at(max(earliest_s, self._next_s), self.now)

    def now(self) -> None:
        if self._timer is not None:
            self.end()
            self._next_s = self._loop.time() + self._pause_s()
            self._callback()

    def end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class MemberGrid:
    """The part of `Grid` that both worlds share: all but the clock, the memory gauge, the logs, and operator
    actions.
    """

    settings: Settings
    driver: Driver
    member: Member
    lane: EntryLane

    def __init__(self, settings: Settings, member_uuid: str) -> None:
        """`driver`, `member` and `lane` must be set before sessions use it."""
        self.settings = settings
        self.member_uuid = member_uuid
        self.collections: CollectionAccess = MemberCollections(self)
        self.cluster_name = settings.cluster.name
        self.batch_invalidations = settings.member.batch_invalidations
        self.partition_count = settings.partitions.count
        self.transactions_per_connection = settings.transactions.per_connection
        self.logins = Logins(
            settings, self.now_ns, lambda: self.prover, lambda: self.clients_loop, member_uuid.encode()
        )
        self.http_logins = self.logins if not settings.http.token else self._logins_with(settings.http.token)
        self.times = OperationTimes(self.now_ns)
        self._card: ClusterCard | None = None
        """The cached result of `cluster`,"""
        self._card_of: tuple[View | None, int] = (None, -1)
        """and the view and the table version that it was made from."""
        self._watchers: dict[int, Debouncer] = {}
        self._watchers_made = 0
        self._idle: set[int] = set()
        self._owners_notified = (0, 0)
        """The table version of the latest notification, and the number by which clients know it."""
        self._counts = SharedCounts(lambda: counting_maps(self.member))
        self._entry_counts = SharedCounts(lambda: counting(self.member))

    def now_ns(self) -> int:
        raise NotImplementedError

    def report_client_event(self, kind: str, line: str, *args: object) -> None:
        raise NotImplementedError

    @property
    def clients_loop(self) -> Loop:
        raise NotImplementedError

    def notify_watchers(self) -> None:
        """Notify those with pending notifications, before the member stops."""
        for watcher in list(self._watchers.values()):
            watcher.now()

    @property
    def cluster_id(self) -> str:
        view = self.member.picture.view
        return view.cluster_id if view else ""

    @property
    def cuts(self) -> Cuts:
        return self.member.copies.cuts

    @property
    def lane_access(self) -> LaneAccess:
        return self.member.router.access

    @property
    def losses(self) -> LostPartitions:
        return self.member.picture.losses

    def execute(self, request: Request, done: Done, doubt: str = "") -> None:
        self.driver.execute(request, self.times.timed(request, done), doubt)

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
        self.driver.callers.take_cut(cut, tuple(maps), tuple(partitions), lease_ms, done, passive=passive)

    def hold_cut(self, cut: bytes, lease_ms: int, done: Callable[[int], None]) -> None:
        self.driver.callers.hold_cut(cut, lease_ms, done)

    def ask_changes(self, asked: Asked, done: Callable[[ChangesSince], None]) -> None:
        self.driver.callers.ask_changes(asked, done)

    def cluster(self) -> ClusterCard:
        picture = self.member.picture
        view, version = picture.view, picture.table_version
        if self._card is None or self._card_of[0] is not view or self._card_of[1] != version:
            self._card, self._card_of = self._new_card(), (view, version)
        return self._card

    def _new_card(self) -> ClusterCard:
        picture = self.member.picture
        view = picture.view
        cards = [
            MemberCard(
                info.uuid,
                info.client_host,
                info.client_port,
                info.port,
                info.lite,
                {**info.attributes, "name": info.name},
            )
            for info in picture.members()
        ]
        living = {card.uuid for card in cards}
        owners: dict[str, list[int]] = {}
        for partition, row in enumerate(self.member.picture.assignments):
            if row.owner is None or row.owner not in living:
                owners = {}
                break
            owners.setdefault(row.owner, []).append(partition)
        return ClusterCard(view.number if view else 0, cards, self._owners_version(), owners)

    def _owners_version(self) -> int:
        """The table's version for clients, which count in 32 bits. Clients compare it only within one
        connection.
        """
        version, number = self._owners_notified
        if self.member.picture.table_version != version:
            self._owners_notified = (self.member.picture.table_version, number + 1)
        return self._owners_notified[1]

    def rows(self) -> list[list[str | None]]:
        return [list(row.replicas) for row in self.member.picture.assignments]

    def row(self, partition: int) -> Assignment:
        return self.member.picture.assignment(partition)

    def table_version(self) -> int:
        return self.member.picture.table_version

    def table_stamp(self) -> int:
        return self.member.picture.table_stamp

    def unfinished(self, partition: int) -> bool:
        return self.member.picture.unfinished(partition)

    def _notify_pause_s(self) -> float:
        return min(NOTIFY_MAX_S, NOTIFY_S * max(1.0, len(self._watchers) / FULL_RATE_WATCHERS))

    def watch(self, changed: Callable[[], None]) -> Callable[[], None]:
        if not self._watchers_made:
            self.driver.callers.watch(self._schedule_watchers)
        number = self._watchers_made = self._watchers_made + 1

        def tell() -> None:
            self._idle.add(number)
            if not self.member.picture.has_left:
                # Clients disconnect at once from a member that is not listed, even while they wait for a response.
                changed()

        def delay_s() -> float:
            return number * SPREAD % 1 * (self._notify_pause_s() - NOTIFY_S)

        self._watchers[number] = Debouncer(tell, self._notify_pause_s, self.clients_loop, delay_s)
        self._idle.add(number)

        def end() -> None:
            self._idle.discard(number)
            if (watcher := self._watchers.pop(number, None)) is not None:
                watcher.end()

        return end

    def _schedule_watchers(self) -> None:
        """Members or owners have changed: schedule a notification of each idle watcher. Watchers with a
        pending one are skipped, because a migration has many steps and there may be thousands of clients.
        """
        idle, self._idle = sorted(self._idle), set()
        for number in idle:
            self._watchers[number].request()

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
        return self.driver.callers.listen(
            name,
            key=key,
            local_only=local_only,
            on_event=on_event,
            invalidations=invalidations,
            on_written=on_written,
        )

    def end_listeners(self, name: str) -> None:
        self.driver.callers.destroyed(name)

    def debounce(self, callback: Callable[[], None]) -> Debounced:
        return Debouncer(callback, lambda: 0.0, self.clients_loop)

    def watch_acks(self, client: bytes, on_ack: Callable[[int], None]) -> Callable[[], None]:
        return self.driver.callers.watch_acks(client, on_ack)

    def log_in(self, login: Login, needed: Callable[[], bool], done: LoginDone) -> None:
        self.log_in_by(self.logins, login, needed, done)

    def log_in_by(self, logins: Logins, login: Login, needed: Callable[[], bool], done: LoginDone) -> None:

        def answered(answer: LoginAnswer) -> None:
            if answer.rights is None:
                self.report_client_event(
                    "logins refused",
                    "login as %s from %s refused: %s",
                    login.named,
                    login.address,
                    answer.again or "the credentials are missing or wrong",
                )
                self.audit(
                    AuditEvent(AuditKind.LOGIN_FAILED, login.named, login.address, detail=answer.again)
                )
            else:
                self.audit(AuditEvent(AuditKind.LOGIN, answer.rights.user, login.address))
            done(answer)

        logins.ask(login, needed, answered)

    def _logins_with(self, token: str) -> Logins:
        """A login with this token has all permissions."""
        settings = self.settings
        security = msgspec.structs.replace(settings.security, token=token)
        return Logins(
            msgspec.structs.replace(settings, security=security),
            self.now_ns,
            lambda: self.prover,
            lambda: self.clients_loop,
            self.member_uuid.encode(),
        )

    @property
    def prover(self) -> Prover:
        raise NotImplementedError

    def audit(self, event: AuditEvent) -> None:
        """Record an event; without an audit log it is dropped."""

    @property
    def level(self) -> int:
        return self.member.picture.level

    def zone_of(self, name: str) -> str:
        return self.member.settings.map(name).raft_zone

    def zone_entries(self, name: str) -> ZoneEntries | None:
        return self.driver.zone_entries(name)

    def zone_map(self, name: str) -> tuple[bool, int, int]:
        chosen = self.member.settings.map(name)
        return chosen.reads == "local", *chosen.lifetimes

    def zone_batch(self, batch: ZoneBatch, done: Callable[[ZoneBatchDone], None]) -> None:
        self.driver.zone_batch(batch, self.times.timed_batch(done))

    def read(self, name: str, count: int) -> None:
        self.times.reads.add(name, count)

    def reads_by_map(self) -> Mapping[str, int]:
        return self.times.reads.by_map

    def timing(self, operation: str) -> Callable[[], None]:
        return self.times.timing(operation)

    def count_maps(self, done: Callable[[MemberCount], None]) -> None:
        def counted(count: MemberCount) -> None:
            count.reads = dict(self.reads_by_map())
            done(count)

        self._counts.ask(counted, self.clients_loop.call_soon)

    def count_entries(self, done: Callable[[Counted], None]) -> None:
        """Count the entries here, in turns of the loop; `done` is called once."""
        self._entry_counts.ask(done, self.clients_loop.call_soon)

    def map_names(self) -> list[str]:
        names = {
            name
            for copy in self.member.picture.held.values()
            for name, held in copy.maps.items()
            if held.state.entries
        }
        copies = self.local_copies
        configured = {
            name for name in self.settings.maps if name != "default" and not copies.lacks_zone(name)
        }
        for copy, _ in copies.in_zones():
            names |= {name for name, held in copy.maps.items() if held.state.entries}
        return sorted(names | configured)

    @property
    def local_copies(self) -> CopyLookup:
        return self.member.picture.copies

    @property
    def changes(self) -> StreamHeads:
        return self.member.picture.change_streams

    @property
    def passive(self) -> bool:
        return self.member.picture.passive

    @property
    def configured_maps(self) -> Container[str]:
        return self.settings.maps

    @property
    def master(self) -> str:
        return self.member.picture.master or ""

    def owner(self, partition: int) -> str | None:
        found = self.member.picture.assignment(partition).owner
        return found if self.member.picture.is_member(found) else None

    # -- actions of operators, and news for them

    def runs_transaction(self, transaction: TransactionId) -> bool:
        return self.member.picture.runs_transaction(transaction)

    def order_transaction(self, order: TransactionOrder, done: Callable[[TransactionAnswer], None]) -> None:
        self.driver.callers.order_transaction(order, done)

    @property
    def last_news(self) -> Number:
        return self.member.picture.last_news

    def news_since(self, number: Number) -> tuple[list[News], bool]:
        return self.member.picture.news_since(number)

    def on_news(self, on_event: Callable[[News], None]) -> Callable[[], bool]:
        return self.driver.callers.on_news(on_event)


class MemberCollections:
    """Implements `server.grid.CollectionAccess`."""

    def __init__(self, grid: MemberGrid) -> None:
        self._grid = grid

    def execute(self, request: Request, done: Done) -> Callable[[], None]:
        driver, timed = self._grid.driver, self._grid.times.timed(request, done)
        if driver.stopped:
            driver.execute(request, timed)
            return _withdraw_nothing
        return driver.callers.execute_waiting(request, timed)

    def connect(self, client: bytes) -> Callable[[], None]:
        return self._grid.driver.callers.connect(client)

    def settings(self, name: str) -> StructureSettings | None:
        return self._grid.member.settings.collection(name)

    @property
    def cp_settings(self) -> CpSettings:
        return self._grid.member.settings.cp

    @property
    def processors(self) -> Mapping[str, ProcessorSettings]:
        return self._grid.settings.processors


def _withdraw_nothing() -> None:
    """The request was answered at once."""
