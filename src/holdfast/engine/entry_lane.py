"""The interface of the data lane for sessions: the only way into a member that is not an event (`core.events`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from holdfast.core.model.operations import WrittenRow
from holdfast.core.model.records import Record
from holdfast.core.primary_backup.ack_batch import AckBatch
from holdfast.core.primary_backup.shared_steps import SharedSteps
from holdfast.core.store.partition_copy import PartitionCopy
from holdfast.core.store.replica import AnyReplica, MapReplica


class EntryLane(Protocol):
    """Reads and writes of single entries without an object per operation.

    `serving[p]` is this member's copy of partition `p` if it is the serving primary. If it is None, use
    `Grid.execute`, which forwards, waits or rejects. With the copy, read `copy.maps[name].state.entries`
    (respect `expiries`), or write with `set` and `remove`.

    Do not acknowledge a write before its batch is safe. Gather the responses to one read buffer, and if
    anything was written call `close_batch(done)` once after its last message. `done(True)` comes when every
    sync backup holds the whole batch; `done(False)` when the outcome will never be known, and the response
    must be "unknown".
    """

    serving: list[PartitionCopy | None]
    leading: list[PartitionCopy | None]
    """Like `serving`, also while some writes are rejected: for reads, and for writes that `Grid.rejection`
    allows.
    """
    listening: dict[str, int]
    """Number of entry listeners per map; maps without any are absent, and no events are made for them."""

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
        """Store an entry and queue its record for the backups. Returns the old value; None: absent or
        expired.
        """

    def read(self, copy: PartitionCopy, name: str, key: bytes) -> bytes | None:
        """The value or None; counts as a use of the entry."""

    def remove(self, copy: PartitionCopy, name: str, key: bytes) -> bytes | None: ...

    def evict(self, copy: PartitionCopy, name: str, key: bytes) -> None:
        """Remove an entry that `read` has just found."""

    def set_ttl(self, copy: PartitionCopy, name: str, key: bytes, ttl_ms: int) -> None:
        """Change the time to live of an entry that `read` has just found."""

    @property
    def open_puts(self) -> list[MapReplica] | None:
        """Replicas with records in `unsent` since the last `close_batch`. A session that stores an ordinary
        entry itself adds its record to `unsent` and the replica to this list, or calls `record`. None: write
        only with `set` and `remove`.
        """

    def record(self, copy: PartitionCopy, held: AnyReplica, record: Record) -> None: ...

    def report(self, name: str, rows: list[WrittenRow], /) -> None:
        """A session that writes entries itself reports those of a map in `listening`, in order: once for each read
        buffer, and before it calls `set`, `read` or `remove`. This makes events of listeners and invalidations of near
        caches. Updates for backups, the journal and change streams are packed into `unsent`.
        """

    @property
    def now_ns(self) -> int: ...

    def wall_ms(self) -> int:
        """The time of day, in ms since 1970."""

    def lifetimes(self, name: str) -> tuple[int, int]:
        """Default time to live and maximum idle time, in ms."""

    def settle(self) -> bool:
        """Close the batch if no response has to wait. Returns whether it is closed; otherwise call `close_batch`."""

    def end_buffer(self) -> AckBatch | bool:
        """Close the batch in the usual case. Returns the batch to whose callbacks the caller adds its own, so that the
        buffers of a turn can share one; True: no response has to wait; False: it is not closed, use `close_batch`.
        """

    def close_batch(self, done: Callable[[bool], None]) -> None: ...

    def close_batch_for(self, done: Callable[[bool], None], client: bytes, correlations: list[int]) -> None:
        """Like `close_batch`, for a client that counts acknowledgements of backups itself. If all backups can
        reach it, `done(True)` comes at once, and during that call `acks` is the number to wait for.
        """

    def rest_on(self, copy: PartitionCopy, name: str) -> None:
        """A response of this batch changed nothing, but depends on the map's present state: `close_batch`
        waits until that is safe too. `remove` calls this itself if it finds nothing.
        """

    steps: SharedSteps

    def locked(self, copy: PartitionCopy, name: str, key: bytes) -> bool:
        """Whether a transaction has locked the entry; then write with `Grid.execute`, which waits. Ask if
        `copy.locks.closed` is not empty.
        """

    confirms_reads: bool

    def confirmed(self, name: str) -> bool:
        """Whether reads of this map need `rest_on` before the response (`maps.*.reads`)."""

    @property
    def acks(self) -> int:
        """During `done(True)` of `close_batch_for`: backups that acknowledge to the client directly."""

    @property
    def unknown_because(self) -> str: ...
