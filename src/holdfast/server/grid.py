"""A member's interface to its sessions, which use nothing else. All calls are made on the member's one
thread.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from holdfast.actions.operator_action import ActionDone, OperatorAction
from holdfast.config import CpSettings, ProcessorSettings, StructureSettings
from holdfast.core.model.changes_since import Asked, ChangesSince
from holdfast.core.model.operations import Done, EntryEvent, Outcome, Request, WrittenEntries
from holdfast.core.model.partition_events import News, Number
from holdfast.core.model.partition_table import Assignment
from holdfast.core.model.transaction_orders import TransactionAnswer, TransactionOrder
from holdfast.core.model.transactions import TransactionId
from holdfast.core.model.zone_batches import ZoneBatch, ZoneBatchDone
from holdfast.core.primary_backup.cuts import Cuts, Taken
from holdfast.core.raft_partition.copy_lookup import FoundCopy
from holdfast.core.raft_partition.map_homes import ZoneEntries
from holdfast.core.routing.lane_access import LaneAccess
from holdfast.core.routing.lost_partitions import LostPartitions
from holdfast.core.store.partition_copy import PartitionCopy
from holdfast.core.store.replica import MapReplica
from holdfast.core.streams.change_streams import Reach
from holdfast.engine.entry_lane import EntryLane
from holdfast.server.audit_events import AuditEvent
from holdfast.server.logins import Login, LoginDone


@dataclass(frozen=True, slots=True)
class MemberCard:
    uuid: str
    host: str
    client_port: int
    member_port: int
    lite: bool
    attributes: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class ClusterCard:
    """Members (oldest first) and owners at one moment. Versions grow with every change. All callers get the
    same object until something changes, so results derived from it can be cached.
    """

    members_version: int
    members: list[MemberCard]
    owners_version: int
    owners: dict[str, list[int]]
    """Member UUID -> partitions whose primary it is. Empty while any partition has no reachable owner."""


class Debounced(Protocol):
    """A callback that runs once for all requests of one turn of the event loop."""

    def request(self) -> None: ...

    def end(self) -> None: ...


class LocalCopies(Protocol):
    """The copies of a member, of both engines (`core.raft_partition.copy_lookup`)."""

    def led(self, name: str, partition: int) -> FoundCopy | None:
        """The copy that this member serves as primary or leader; None: another member does."""

    def held(self, name: str, partition: int) -> FoundCopy | None:
        """The copy of this member, whatever its role; None: it has none."""

    def outside_zones(self, partition: int) -> PartitionCopy | None:
        """The copy of all maps and services that live in no zone."""

    def leaders(self, name: str) -> Sequence[Assignment] | None:
        """The leaders of the partitions of a map, with their terms as versions. None: it lives in no zone that is
        known here.
        """


class StreamHeads(Protocol):
    """Positions of change streams, read-only."""

    def streams(self, name: str) -> bool: ...

    def heads(self, name: str, partitions: Iterable[int]) -> tuple[dict[int, Reach], list[int]]:
        """The heads of the partitions that are served here, and the partitions that are not."""


class CollectionAccess(Protocol):
    """Queues, lists, sets, locks, CP objects, entry processors, and others whose steps are decided in one partition."""

    def execute(self, request: Request, done: Done) -> Callable[[], None]:
        """Like `Grid.execute`, for a step that may wait. Returns the function that withdraws it, because the client has
        gone.
        """

    def connect(self, client: bytes) -> Callable[[], None]:
        """A client has logged in on a connection. Returns the function that reports its end."""

    def settings(self, name: str) -> StructureSettings | None:
        """The settings of the collection whose items this map holds; None: of none."""

    @property
    def cp_settings(self) -> CpSettings: ...

    @property
    def processors(self) -> Mapping[str, ProcessorSettings]:
        """Settings of the entry processors, by name."""


class Grid(Protocol):
    member_uuid: str
    collections: CollectionAccess
    cluster_name: str
    partition_count: int
    batch_invalidations: bool
    """Whether one event may carry several keys to a near cache."""

    @property
    def cluster_id(self) -> str:
        """The cluster's UUID, constant for its life; empty before this member has joined."""

    @property
    def level(self) -> int: ...

    @property
    def lane(self) -> EntryLane: ...

    @property
    def cuts(self) -> Cuts:
        """The cuts that this member keeps, read-only: `take_cut` and `hold_cut` change them."""

    def now_ns(self) -> int:
        """This member's monotonic clock."""

    def wall_ms(self) -> int:
        """Milliseconds since 1970, for people and clients only."""

    def execute(self, request: Request, done: Done, doubt: str = "") -> None:
        """`doubt`: why it may have been applied already; empty: it has not been."""

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
        """Keep these maps as they are now, in those partitions that are served here; `done` is called once.
        `passive`: nothing may be written, so only this member keeps the cut.
        """

    def hold_cut(self, cut: bytes, lease_ms: int, done: Callable[[int], None]) -> None:
        """Extend the lease of a cut, or release the cut (0). `done` gets the number of (map, partition) pairs
        that are kept.
        """

    def ask_changes(self, asked: Asked, done: Callable[[ChangesSince], None]) -> None:
        """Read changes; `done` is called once, now or after the journal was read."""

    def rejection(self, request: Request, size: int = 0) -> Outcome | None:
        """The response to a request that must be rejected now, whatever its keys; it was not applied. `size`:
        bytes of the request, if it is large.
        """

    @property
    def losses(self) -> LostPartitions: ...

    @property
    def lane_access(self) -> LaneAccess: ...

    def cluster(self) -> ClusterCard: ...

    def rows(self) -> list[list[str | None]]:
        """The partition table: for each partition the UUIDs of the holders, owner first. A row is empty
        before the first assignment; None stands for a replica without a holder.
        """

    def row(self, partition: int) -> Assignment:
        """One line of the table, with its version and the replicas that are behind."""

    def table_version(self) -> int: ...

    def table_stamp(self) -> int:
        """A 64-bit checksum of the table: equal on members whose tables are equal."""

    def unfinished(self, partition: int) -> bool:
        """Whether a write of this partition, which is served here, waits for a backup, sync or async."""

    def watch(self, changed: Callable[[], None]) -> Callable[[], None]:
        """Call `changed` after each change of members or owners. Returns the function that unsubscribes."""

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
        """Subscribe to changes of a map's entries, on this member or on all. Returns the function that
        unsubscribes. `invalidations`: also events that only near caches need.
        """

    def end_listeners(self, name: str) -> None:
        """End all subscriptions of this map on all members, because it is being destroyed."""

    def debounce(self, callback: Callable[[], None]) -> Debounced:
        """Coalesce calls: `callback` runs once in the next turn of the loop, however often it was requested."""

    def watch_acks(self, client: bytes, on_ack: Callable[[int], None]) -> Callable[[], None]:
        """Subscribe a client to acknowledgements of this member as a backup: `on_ack` gets the correlation id
        of each of the client's requests whose writes are stored here. Returns the function that unsubscribes.
        """

    def log_in(self, login: Login, needed: Callable[[], bool], done: LoginDone) -> None:
        """Check credentials; `done` gets the rights or the rejection, perhaps later. `needed`: whether the
        client still waits.
        """

    def audit(self, event: AuditEvent) -> None: ...

    def zone_of(self, name: str) -> str:
        """The zone of this map; empty: it has a primary and backups."""

    def zone_entries(self, name: str) -> ZoneEntries | None:
        """The entries of this map's zone that sessions may use here; None: none are known."""

    def zone_map(self, name: str) -> tuple[bool, int, int]:
        """Whether this map of a zone is read locally; its time to live and maximum idle time in ms (0: no limit)."""

    def zone_batch(self, batch: ZoneBatch, done: Callable[[ZoneBatchDone], None]) -> None:
        """Run a read buffer's requests to a zone at the end of the turn; `done` is called once."""

    def read(self, name: str, count: int) -> None:
        """Count reads: `count` entries of this map were requested."""

    def timing(self, operation: str) -> Callable[[], None]:
        """Start timing an operation that is not a `Request`; call the result when it ends."""

    def map_names(self) -> list[str]:
        """The maps with entries on this member, and the configured ones, except those whose zone does not exist."""

    @property
    def local_copies(self) -> LocalCopies:
        """The copies of this member, by map and client partition."""

    @property
    def changes(self) -> StreamHeads:
        """Positions of change streams; `ask_changes` reads the changes themselves."""

    @property
    def passive(self) -> bool: ...

    @property
    def configured_maps(self) -> Container[str]: ...

    @property
    def master(self) -> str:
        """UUID of the master; empty before this member has joined a cluster."""

    def owner(self, partition: int) -> str | None:
        """UUID of the partition's primary according to the table, if that is a member."""

    # -- actions of operators, and news for them

    def act(self, action: OperatorAction, timeout_ms: int, done: ActionDone) -> None:
        """Carry out an operator's action. `done` is called once: when the action is done, or with the reason
        why it is not done within this time.
        """

    transactions_per_connection: int

    def runs_transaction(self, transaction: TransactionId) -> bool:
        """Whether this member coordinates the transaction, and it is still open."""

    def order_transaction(self, order: TransactionOrder, done: Callable[[TransactionAnswer], None]) -> None:
        """Carry out a session's or an operator's request about a transaction of this member; `done` is called
        once.
        """

    @property
    def last_news(self) -> Number:
        """Number of the latest news that this member has delivered."""

    def news_since(self, number: Number) -> tuple[list[News], bool]:
        """News after this number; and whether none in between is missing."""

    def on_news(self, on_event: Callable[[News], None]) -> Callable[[], bool]:
        """Call `on_event` with news of partitions from now on. Returns the function that unsubscribes."""

    def faulty(self, kind: str, error: Exception) -> None:
        """Count and log an internal error in one request or one notification. The member's own state is
        intact.
        """

    def report_client_event(self, kind: str, line: str, *args: object) -> None:
        """Count an event that a client caused, and log it, rate-limited. `args`: foreign text."""


__all__ = ["ClusterCard", "EntryLane", "Grid", "MapReplica", "MemberCard"]
