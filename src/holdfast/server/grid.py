"""What a session sees of the member it runs in.

The member implements this; sessions of every protocol use nothing else. All calls happen on the member's one thread.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from holdfast.core.model.changes_since import Asked, ChangesSince
from holdfast.core.model.operations import Done, EntryEvent, Outcome, Request
from holdfast.core.model.partition_events import News, Number
from holdfast.core.model.partition_table import Assignment
from holdfast.core.replication.change_streams import ChangeStreams
from holdfast.core.replication.cuts import Cuts, Taken
from holdfast.core.store.partition import PartitionCopy
from holdfast.core.store.replica import MapReplica
from holdfast.wire import own


@dataclass(frozen=True, slots=True)
class MemberCard:
    """A member as clients learn of it."""

    uuid: str
    host: str
    client_port: int
    member_port: int
    lite: bool
    attributes: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ClusterCard:
    """Members (oldest first) and owners at one moment. Versions grow with every change."""

    members_version: int
    members: list[MemberCard]
    owners_version: int
    owners: dict[str, list[int]]
    """Member UUID -> partitions it is the primary of. Empty while any partition has no reachable owner."""


class EntryLane(Protocol):
    """The data lane of this member: reads and writes without an object per operation.

    For a request on partition `p`: `serving[p]` is this member's copy if it is the primary and may serve now, else None
    (then take the slow way, `Grid.execute`, which forwards, waits or refuses). With the copy in hand, read
    `copy.maps[name].state.entries` directly (mind `expiries`), or write through `set` / `remove`.

    A write must not be acknowledged before `seal` says so: collect the answers of one read buffer, and after the last
    message of the buffer call `seal(done)` once if any write was made; `done(True)` comes when every sync backup holds
    the whole batch (at once when there are none), `done(False)` when that can never be known (answer: unknown).
    """

    serving: list[PartitionCopy | None]
    leading: list[PartitionCopy | None]
    """The same, also while some writes are refused: for reading, and for what `Grid.why_refused` lets pass."""
    listening: dict[str, int]
    """Map name -> how many entry listeners want its events. Absent when none: then no event is built."""

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
        """Store an entry and queue its record for the backups; answers the old value (None if absent or expired)."""

    def read(self, copy: PartitionCopy, name: str, key: bytes) -> bytes | None:
        """The entry's value, or None; counts as a use of it."""

    def remove(self, copy: PartitionCopy, name: str, key: bytes) -> bytes | None:
        """Take an entry out and queue the record; answers the old value."""

    def close_batch(self, done: Callable[[bool], None]) -> None:
        """End the batch begun by the writes since the last seal."""

    def close_batch_for(self, done: Callable[[bool], None], client: bytes, correlations: list[int]) -> None:
        """The same for requests of a client that waits for the backups itself. If all of them can tell it, `done(True)`
        comes at once, while `acks` says how many it has to hear of.
        """

    def rest_on(self, copy: PartitionCopy, name: str) -> None:
        """An answer of this batch has changed nothing in this map, and rests on what is there: `seal` waits for that,
        too. `remove` says so by itself when it finds nothing.
        """

    confirms_reads: bool
    """Whether there are maps whose reads are confirmed; which ones `confirmed` says."""

    def confirmed(self, name: str) -> bool:
        """Whether a read of this map must `rest_on` it before it is answered (`maps.*.reads`)."""

    @property
    def acks(self) -> int:
        """While `done(True)` is called by `seal_for`: how many backups tell the client."""

    @property
    def unknown_because(self) -> str:
        """While `done(False)` is called: why nobody can say, in words."""


class Grid(Protocol):
    """This member, for its sessions."""

    member_uuid: str
    cluster_name: str
    partition_count: int

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

    def why_refused(self, request: Request, size: int = 0) -> Outcome | None:
        """The answer to a request that must not be taken now, whatever its keys: nothing of it was done. `size`: the
        bytes that it brings, if these are many.
        """

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
        self, name: str, *, key: bytes | None, local_only: bool, heard: Callable[[EntryEvent], None]
    ) -> Callable[[], None]:
        """Hear of each change of a map's entries: on this member alone, or on all; answers the function that
        ends it.
        """

    def collect(self, client: bytes, heard: Callable[[int], None]) -> Callable[[], None]:
        """A client wants to be told when this member, as a backup, holds what its requests have written: `heard` is
        given the correlation id of each. Answers the function that ends it.
        """

    def admit(self, username: str | None, password: str | None, token: bytes | None) -> bool:
        """Whether these credentials open this member's client door."""

    def map_names(self) -> list[str]:
        """Every map with at least one entry on this member, or configured."""

    def local_copy(self, partition: int) -> PartitionCopy | None:
        """Whatever copy this member holds of a partition, primary or backup; for audits."""

    @property
    def changes(self) -> ChangeStreams:
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

    def order(self, order: own.Order, done: Callable[[own.Fate, str], None]) -> None:
        """Let it become so; `done` is called once: when it is, or with the reason why not within the order's time."""

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

    def status(self) -> dict[str, object]:
        """What this member knows of itself and the cluster, as plain data (see observe.status)."""


__all__ = ["ClusterCard", "EntryLane", "Grid", "MapReplica", "MemberCard"]
