"""The data lane, as sessions see it: the one way into a member that is no event (`core.events`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from holdfast.core.model.records import Record
from holdfast.core.store.partition_copy import PartitionCopy
from holdfast.core.store.replica import AnyReplica, MapReplica


class EntryLane(Protocol):
    """The data lane of this member: reads and writes without an object per operation.

    For a request on partition `p`: `serving[p]` is this member's copy if it is the primary and may serve now, else None
    (then take the slow way, `Grid.execute`, which forwards, waits or refuses). With the copy in hand, read
    `copy.maps[name].state.entries` directly (mind `expiries`), or write through `set` / `remove`.

    A write must not be acknowledged before `close_batch` says so: collect the answers of one read buffer, and after the
    last message of the buffer call `close_batch(done)` once if any write was made; `done(True)` comes when every sync
    backup holds the whole batch (at once when there are none), `done(False)` when that can never be known (answer:
    unknown).
    """

    serving: list[PartitionCopy | None]
    leading: list[PartitionCopy | None]
    """The same, also while some writes are refused: for reading, and for what `Grid.rejection` lets pass."""
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

    @property
    def open_puts(self) -> list[MapReplica] | None:
        """The maps' shares to whose `unsent` was added since the last `close_batch`. Whoever stores an ordinary entry
        without `set`, as that does it, adds it there, and the share to these; or calls `record`. None: every write is
        to be made by `set` and `remove`.
        """

    def record(self, copy: PartitionCopy, held: AnyReplica, record: Record) -> None:
        """Queue the record of a write that was made and counted."""

    @property
    def now_ns(self) -> int:
        """What the member takes for the time, by which entries end."""

    def lifetimes(self, name: str) -> tuple[int, int]:
        """The map's own time to live and maximum idle time, in ms."""

    @property
    def settled(self) -> bool:
        """Whether `close_batch` would have nothing to wait for, and need not be called: what was written since the last
        one is held nowhere else.
        """

    def close_batch(self, done: Callable[[bool], None]) -> None:
        """End the batch begun by the writes since the last one."""

    def close_batch_for(self, done: Callable[[bool], None], client: bytes, correlations: list[int]) -> None:
        """The same for requests of a client that waits for the backups itself. If all of them can tell it, `done(True)`
        comes at once, while `acks` says how many it has to hear of.
        """

    def rest_on(self, copy: PartitionCopy, name: str) -> None:
        """An answer of this batch has changed nothing in this map, and rests on what is there: `close_batch` waits for
        that, too. `remove` says so by itself when it finds nothing.
        """

    locks_entries: bool
    """Whether there are maps whose entries transactions may lock."""

    def locked(self, copy: PartitionCopy, name: str, key: bytes) -> bool:
        """Whether a transaction has locked the entry: then it must not be written here, but through `Grid.execute`,
        which waits.
        """

    confirms_reads: bool
    """Whether there are maps whose reads are confirmed; which ones `confirmed` says."""

    def confirmed(self, name: str) -> bool:
        """Whether a read of this map must `rest_on` it before it is answered (`maps.*.reads`)."""

    @property
    def acks(self) -> int:
        """While `done(True)` is called by `close_batch_for`: how many backups tell the client."""

    @property
    def unknown_because(self) -> str:
        """While `done(False)` is called: why nobody can say, in words."""
