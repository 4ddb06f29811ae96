"""The interface of a member for its sessions, which use nothing else. All calls happen on the member's one thread."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from holdfast.actions.operator_action import ActionDone, OperatorAction
from holdfast.core.model.changes_since import Asked, ChangesSince
from holdfast.core.model.metastore_questions import MetastoreAnswer, MetastoreQuestion
from holdfast.core.model.operations import Done, EntryEvent, Outcome, Request
from holdfast.core.model.partition_events import News, Number
from holdfast.core.model.partition_table import Assignment
from holdfast.core.model.transaction_orders import TransactionAnswer, TransactionOrder
from holdfast.core.model.transactions import TransactionId
from holdfast.core.model.zone_batches import ZoneBatch, ZoneBatchDone
from holdfast.core.model.zone_questions import ZoneAnswer, ZoneOrder
from holdfast.core.primary_backup.cuts import Cuts, Taken
from holdfast.core.raft_partition.copy_lookup import FoundCopy
from holdfast.core.raft_partition.leader_routing import ZoneEntries
from holdfast.core.raft_partition.marked_copies import ReplicaAtMark
from holdfast.core.routing.lost_partitions import LostPartitions
from holdfast.core.store.partition_copy import PartitionCopy
from holdfast.core.store.replica import MapReplica
from holdfast.core.streams.change_streams import Reach
from holdfast.engine.entry_lane import EntryLane
from holdfast.observe.map_figures import MemberCount
from holdfast.observe.status import EntriesHeld
from holdfast.server.audit_events import AuditEvent
from holdfast.server.logins import Login, LoginDone


@dataclass(frozen=True, slots=True)
class MemberCard:
    """A member as clients learn of it."""

    uuid: str
    host: str
    client_port: int
    member_port: int
    lite: bool
    attributes: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class ClusterCard:
    """Members (oldest first) and owners at one moment. Versions grow with every change. One is given to all who ask
    while nothing changes, so what is made of it can be kept for it.
    """

    members_version: int
    members: list[MemberCard]
    owners_version: int
    owners: dict[str, list[int]]
    """Member UUID -> partitions it is the primary of. Empty while any partition has no reachable owner."""


class Gathered(Protocol):
    """Something that is done once for all that ask for it in one turn of the loop."""

    def ask(self) -> None:
        """It should be done."""

    def end(self) -> None:
        """Nobody wants it any more."""


class LocalCopies(Protocol):
    """The copies of a member, of both engines (`core.raft_partition.copy_lookup`)."""

    def led(self, name: str, partition: int) -> FoundCopy | None:
        """The copy that this member serves as primary or leader; None: another member does."""

    def held(self, name: str, partition: int) -> FoundCopy | None:
        """The copy of this member, whatever its role; None: it has none."""

    def outside_zones(self, partition: int) -> PartitionCopy | None:
        """The copy of all maps and services that live in no zone."""


class StreamHeads(Protocol):
    """How far change streams have gone, for looking."""

    def streams(self, name: str) -> bool:
        """Whether the map has a change stream."""

    def heads(self, name: str, partitions: Iterable[int]) -> tuple[dict[int, Reach], list[int]]:
        """The heads of the partitions that are served here, and which are not."""


class Grid(Protocol):
    """This member, for its sessions."""

    member_uuid: str
    cluster_name: str
    partition_count: int
    batch_invalidations: bool
    """Whether near caches are sent several keys in one event."""

    @property
    def cluster_id(self) -> str:
        """The cluster's UUID, the same on every member for the life of the cluster; empty before this one joined."""

    @property
    def lane(self) -> EntryLane:
        """This member's data lane."""

    @property
    def cuts(self) -> Cuts:
        """The cuts that this member keeps, for looking: they are taken and held by `take_cut` and `hold_cut`."""

    def now_ns(self) -> int:
        """This member's monotonic clock."""

    def wall_ms(self) -> int:
        """Milliseconds since 1970, for showing to people and clients only."""

    def execute(self, request: Request, done: Done) -> None:
        """Carry out a request wherever its partition lives: here, forwarded, or after waiting for it to arrive.

        For `WHOLE` operations `partitions` may be any list; the answers of all owners are merged.
        """

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
        """Keep these maps as they are now, in those of these partitions that are served here; `done` is called once.
        `passive`: nothing may be written, so nobody but this member keeps it.
        """

    def hold_cut(self, cut: bytes, lease_ms: int, done: Callable[[int], None]) -> None:
        """Go on with a cut for so long, or not (0); `done` is told how many maps in partitions are kept."""

    def ask_changes(self, asked: Asked, done: Callable[[ChangesSince], None]) -> None:
        """Tell what has changed; `done` is called once, now or when the journal was read."""

    def rejection(self, request: Request, size: int = 0) -> Outcome | None:
        """The answer to a request that must not be taken now, whatever its keys: nothing of it was done. `size`: the
        bytes that it brings, if these are many.
        """

    @property
    def losses(self) -> LostPartitions:
        """Partitions that are lost, for looking."""

    def cluster(self) -> ClusterCard:
        """Members and owners now."""

    def rows(self) -> list[list[str | None]]:
        """The partition table as this member knows it: for each partition the holders' UUIDs, owner first.

        A row is empty before the first assignment; None stands for a replica that nobody holds.
        """

    def row(self, partition: int) -> Assignment:
        """One row of it, with its version, and who is behind."""

    def table_version(self) -> int:
        """The version of that table; grows with every change."""

    def table_stamp(self) -> int:
        """64 bits over that table: equal on members whose tables are equal."""

    def unfinished(self, partition: int) -> bool:
        """Whether some write of a partition that is served here waits for a backup, sync or async."""

    def watch(self, changed: Callable[[], None]) -> Callable[[], None]:
        """Call `changed` after each change of members or owners; answers the function that ends it."""

    def listen(
        self,
        name: str,
        *,
        key: bytes | None,
        local_only: bool,
        heard: Callable[[EntryEvent], None],
        invalidations: bool = False,
    ) -> Callable[[], None]:
        """Hear of each change of a map's entries: on this member alone, or on all; answers the function that
        ends it. `invalidations`: also of what only near caches have to hear.
        """

    def end_listeners(self, name: str) -> None:
        """The map is being destroyed: nobody who listens to it now, on any member, hears of what comes."""

    def gather(self, tell: Callable[[], None]) -> Gathered:
        """`tell` is called once in the next turn of the loop after it was asked for, however often that was."""

    def collect(self, client: bytes, heard: Callable[[int], None]) -> Callable[[], None]:
        """A client wants to be told when this member, as a backup, holds what its requests have written: `heard` is
        given the correlation id of each. Answers the function that ends it.
        """

    def log_in(self, login: Login, needed: Callable[[], bool], done: LoginDone) -> None:
        """Whether these credentials open this member's client door, and what for; `done` is told, perhaps later.
        `needed`: whether anybody still waits for that.
        """

    def audit(self, event: AuditEvent) -> None:
        """This has happened, for whoever asks later."""

    def zone_of(self, name: str) -> str:
        """The zone in which this map lives; empty: it has a primary and backups."""

    def zone_entries(self, name: str) -> ZoneEntries | None:
        """The entries of the zone in which this map lives that sessions may use here; None: none are known."""

    def zone_map(self, name: str) -> tuple[bool, int]:
        """Whether this map, which lives in a zone, is read locally; and its own time to live in ms (0: for ever)."""

    def zone_batch(self, batch: ZoneBatch, done: Callable[[ZoneBatchDone], None]) -> None:
        """What a read buffer wants of a zone: carried out at the end of the turn; `done` is called once."""

    def read(self, name: str, count: int) -> None:
        """So many entries of this map were asked for."""

    def timing(self, operation: str) -> Callable[[], None]:
        """Something begins that is no `Request`, and counts as this operation; call what is answered at its end."""

    def map_names(self) -> list[str]:
        """Every map with at least one entry on this member, or configured."""

    @property
    def local_copies(self) -> LocalCopies:
        """The copies of this member, by map and client partition."""

    @property
    def node(self) -> str:
        """What this member is called in the assignments of zones."""

    def zone_replica(self, zone: int, partition: int, index: int) -> ReplicaAtMark | None:
        """How far this member's replica is, and what it has kept of this index of its log; None: it runs none."""

    @property
    def changes(self) -> StreamHeads:
        """What this member can tell of what has changed, for looking: it is asked by `ask_changes`."""

    @property
    def passive(self) -> bool:
        """Whether the operator has made the cluster passive: nothing may be changed."""

    @property
    def configured_maps(self) -> Container[str]:
        """Maps that have settings of their own."""

    @property
    def master(self) -> str:
        """UUID of the master; empty before this member is in a cluster."""

    def owner(self, partition: int) -> str | None:
        """UUID of the partition's primary by the table, if that is a member."""

    # -- what an operator wants, and hears

    def act(self, action: OperatorAction, timeout_ms: int, done: ActionDone) -> None:
        """Carry out an action of an operator; `done` is called once: when it is done, or with the reason why not
        within this time.
        """

    def ask_metastore(self, question: MetastoreQuestion, done: Callable[[MetastoreAnswer], None]) -> None:
        """Ask the metastore, or change a key of it; `done` is called once."""

    def order_zone(self, order: ZoneOrder, done: Callable[[ZoneAnswer], None]) -> None:
        """What an operator wants of zones; `done` is called once."""

    transactions_per_connection: int
    """How many transactions one connection may have open."""

    def runs_transaction(self, transaction: TransactionId) -> bool:
        """Whether this member runs it, and it is not over."""

    def order_transaction(self, order: TransactionOrder, done: Callable[[TransactionAnswer], None]) -> None:
        """What a session or an operator wants of a transaction of this member; `done` is called once."""

    @property
    def last_news(self) -> Number:
        """Number of the newest news that this member has told."""

    def news_since(self, number: Number) -> tuple[list[News], bool]:
        """News after this number; and whether these are all that there were."""

    def on_news(self, heard: Callable[[News], None]) -> Callable[[], bool]:
        """Call `heard` with news of partitions from now on; answers the function that ends it."""

    def faulty(self, kind: str, error: Exception) -> None:
        """An error inside this member that one request, or what was to be told to one client, has caused: count it, and
        say so in the log. The member's own state is not in doubt.
        """

    def knocked(self, kind: str, line: str, *said: object) -> None:
        """Count something that a client did, and tell it in the log unless there was enough of its kind; `said` is the
        client's.
        """

    def status(self, entries: EntriesHeld | None = None) -> dict[str, object]:
        """What this member knows of itself and the cluster, as plain data (see observe.status). `entries`: if
        they are counted already.
        """

    def count_maps(self, done: Callable[[MemberCount], None]) -> None:
        """Count the entries of all maps here, in turns of the loop; `done` is called once."""

    def running_migrations(self) -> list[dict[str, object]]:
        """Migrations that are under way, as far as this member knows; the master knows all."""


__all__ = ["ClusterCard", "EntryLane", "Grid", "MapReplica", "MemberCard"]
