"""A replica: the updates of one map or service in one partition on one member, and the state that they have made.

The replica counts and remembers updates; the state only applies them, so every kind of state is replicated alike.

- store/U-1: Unsent puts are the last updates of their map, in the order of the counter. Another kind of update first
  takes them out, so that its number follows.
- store/R-1: A map that was forgotten begins again at a counter that its partition has not used in this term. Its
  lineage then begins elsewhere, so no remains of the former map are a prefix of it (state_transfer/C-1).
- store/U-2: Puts of a read buffer that has not ended stay when the others are taken: no batch waits for them yet.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, TypeVar

from holdfast.core.model.records import (
    NOTE_BYTES,
    PAIR_BYTES,
    Change,
    Changes,
    JournalMode,
    Puts,
    Record,
    Recorded,
)
from holdfast.core.model.update_counter import UpdateCounter
from holdfast.core.store.entry_mapping import NewEntries
from holdfast.core.store.map_state import MapState
from holdfast.core.store.state import HostedState, State
from holdfast.core.store.tail import Tail

S = TypeVar("S", bound=State)


class UnsentPuts:
    """Unsent puts in one map of one partition, packed by compiled code; they are sent together at the end of the turn
    (store/U-1, store/U-2). With a change stream they are its updates, with former values.
    """

    __slots__ = ("closed", "closed_bytes", "data", "notes", "opened", "partition", "parts", "sizes")

    def __init__(self, partition: int) -> None:
        self.partition = partition
        self.sizes = bytearray()
        """As in `Puts`."""
        self.data = bytearray()
        self.notes = bytearray()
        """As in `Changes`; empty: these are puts."""
        self.opened = False
        """Some puts belong to the read buffer in work."""
        self.closed = self.closed_bytes = 0
        """Puts of ended buffers, and their bytes."""
        self.parts: list[list[tuple[AnyReplica, Recorded]]] = []
        """Batches of these buffers for this partition; each list gets the puts when they are taken."""

    @property
    def count(self) -> int:
        return len(self.sizes) // PAIR_BYTES

    def pending(self, held: AnyReplica, end: int) -> Puts:
        """All of them; `end`: counter of the last one."""
        start, sizes, data = end - self.count, bytes(self.sizes), bytes(self.data)
        if self.notes:
            return Changes(held.name, start, sizes, data, bytes(self.notes))
        return Puts(held.name, start, sizes, data)

    def take(self, held: AnyReplica, end: int) -> Puts:
        puts = self.pending(held, end)
        self.sizes.clear()
        self.data.clear()
        self.notes.clear()
        self._hand_over(held, puts)
        return puts

    def take_closed(self, held: AnyReplica, end: int) -> Puts | None:
        """The puts of ended buffers, without those of a buffer that has not ended (store/U-2)."""
        if not self.opened:
            return self.take(held, end) if self.sizes else None
        closed = self.closed
        if not closed:
            return None
        puts = self.pending(held, end).cut(0, closed)
        del self.sizes[: closed * PAIR_BYTES], self.data[: self.closed_bytes]
        del self.notes[: closed * NOTE_BYTES]
        self._hand_over(held, puts)
        return puts

    def _hand_over(self, held: AnyReplica, puts: Puts) -> None:
        self.closed = self.closed_bytes = 0
        parts = self.parts
        for part in parts:
            part.append((held, puts))
        parts.clear()


class Replica(Generic[S]):
    __slots__ = (
        "changes",
        "evicts",
        "journal",
        "lineage",
        "name",
        "recorded",
        "state",
        "sync",
        "tail",
        "targets",
        "unsent",
        "updates",
    )

    def __init__(self, name: str, state: S) -> None:
        self.name = name
        self.state = state
        self.updates = UpdateCounter()
        """Gaps occur only in a copy that is being filled or was read from disk."""
        self.lineage: list[tuple[int, int]] = []
        """Terms of the updates, ascending. Example: [(4, 0), (9, 17)]: updates 1 to 17 are of term 4, later ones of
        term 9.
        """
        self.journal: JournalMode = "off"
        self.changes = 0
        """Bytes of updates that are kept for change streams; 0: none."""
        self.evicts = False
        """On a primary: entries go when the map exceeds its limit (primary_backup/V-1)."""
        self.recorded = False
        """On a primary: a backup, even a missing one, or the journal needs the updates."""
        self.targets: tuple[str, ...] = ()
        """On a primary: members that get each record."""
        self.sync: frozenset[str] = frozenset()
        """On a primary: they must hold a record before the caller is answered."""
        self.unsent: UnsentPuts | None = None
        """On a primary with compiled code."""
        self.tail: Tail | None = None

    @property
    def counter(self) -> int:
        return self.updates.lwm

    @property
    def term(self) -> int:
        """Term of the last update; 0 before the first."""
        proven = self.proven_lineage()
        return proven[-1][0] if proven else 0

    def proven_lineage(self) -> list[tuple[int, int]]:
        """The lineage up to the low watermark, without terms that have no update here yet."""
        return [(term, start) for term, start in self.lineage if start < self.updates.lwm]

    def enter(self, term: int) -> None:
        """Later updates are of this term. A term without updates leaves no trace."""
        lineage = self.lineage
        if lineage and lineage[-1][0] >= term:
            return
        reached = self.updates.hwm
        while lineage and lineage[-1][1] >= reached:
            lineage.pop()
        assert not lineage or lineage[-1][1] < reached, "a term without any update leaves no trace"
        lineage.append((term, reached))

    def is_before(self, term: int, record: Record) -> bool:
        """Whether everything that is held is of the map as it was before this BEGIN record.

        If the record comes twice, the replica already holds what it began, or something newer: the answer is False.
        """
        begun = self.lineage[0] if self.lineage else (0, -1)
        return record.change is Change.BEGIN and begun < (term, record.counter - 1)

    def begin_again(self, record: Record) -> None:
        """Drop everything from before this BEGIN record, which is applied next (store/R-1)."""
        self.updates = UpdateCounter(record.counter - 1)
        self.lineage = []
        self.tail = None

    def apply(self, record: Record, now_ns: int) -> None:
        self.state.apply(record, now_ns)
        self.updates.update(record.counter - 1)

    def apply_puts(self, term: int, puts: Puts, now_ns: int, limit: int) -> bool:
        """Apply and count packed puts, and add them to a tail of `limit` bytes. Returns whether they were the next
        updates; otherwise nothing was done.
        """
        updates, state = self.updates, self.state
        start = puts.start
        if updates.lwm != start or updates.hwm != start:
            return False
        assert isinstance(state, MapState), "only maps have entries"
        # A term begins at the counter before its first update.
        lineage = self.lineage
        if not lineage or lineage[-1][0] < term:
            self.enter(term)
        state.store_all(puts, now_ns)
        updates.lwm = updates.hwm = start + len(puts.sizes) // PAIR_BYTES
        if limit:
            tail = self.tail
            if tail is None:
                tail = self.tail = Tail(limit)
            tail.add_puts(term, puts)
        return True

    def keep(self, term: int, records: list[Record], limit: int) -> None:
        """Applied in the order of the counter; `limit`: bytes of the tail."""
        if limit:
            if self.tail is None:
                self.tail = Tail(limit)
            self.tail.add(term, records)

    def keep_puts(self, term: int, puts: Puts, limit: int) -> None:
        if limit:
            if self.tail is None:
                self.tail = Tail(limit)
            self.tail.add_puts(term, puts)

    def keep_earlier(self, earlier: list[tuple[int, Record]]) -> None:
        """Put those of these updates (with their terms) that directly precede the tail in front of it."""
        if self.changes and earlier:
            if self.tail is None:
                self.tail = Tail(self.changes)
            end = self.tail.start if self.tail.size else self.counter
            before = {record.counter: (term, record) for term, record in earlier if record.counter <= end}
            self.tail.precede([one for _, one in sorted(before.items())])

    @property
    def remembered_from(self) -> int:
        """The tail has every update after this number; the counter itself if it is empty."""
        tail = self.tail
        return tail.start if tail is not None and tail.end == self.counter else self.counter

    def start_from(self, base: Replica[S]) -> None:
        assert base is not self, "the base is another replica"
        self.state.start_from(base.state)
        self.updates = UpdateCounter(base.counter)
        self.lineage = base.proven_lineage()
        if base.tail is not None and base.tail.end == base.counter:
            self.tail = base.tail.copy()
        assert self.counter == base.counter, "the replica holds exactly what the base does"
        assert self.remembered_from <= self.counter, "the tail has held updates only"


def term_of(lineage: Sequence[tuple[int, int]], counter: int) -> int:
    """The term of an update; 0: there is none."""
    return next((term for term, start in reversed(lineage) if start < counter), 0)


MapReplica = Replica[MapState]
ServiceReplica = Replica[HostedState]
AnyReplica = MapReplica | ServiceReplica


def service_replica(name: str, state: HostedState) -> ServiceReplica:
    return Replica(name, state)


def map_replica(name: str, entries: NewEntries = dict) -> MapReplica:
    return Replica(name, MapState(name, entries))
