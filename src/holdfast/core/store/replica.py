"""One object (a map, or a service) of one partition on one member: which updates it holds, and what they have made.

A *replica* has a *state*. The replica numbers and remembers: its update counter, of which primaries the updates are,
the tail of the last ones, and, on a primary, who gets them. What the updates do is the affair of the state alone, and
the state knows nothing of all this. So whatever is a state has all that replicas have.

- store/U-1: Unsent stores are the last updates of their map, in the order of the counter. Whoever makes another update
  takes them out first, so its number follows.
- store/R-1: A map that was forgotten begins again at a counter that its partition has not used in this term. Its term
  then begins elsewhere than before, so what anyone still holds of the former map is no prefix of it
  (state_transfer/C-1).
- store/U-2: What belongs to a read buffer that has not ended stays when the rest is taken: nobody waits for it yet.
"""

from __future__ import annotations

from typing import Generic, TypeVar

from holdfast.core.model.records import PAIR_BYTES, Change, JournalMode, Puts, Record, Recorded
from holdfast.core.model.update_counter import UpdateCounter
from holdfast.core.store.entry_mapping import NewEntries
from holdfast.core.store.map_state import MapState
from holdfast.core.store.state import HostedState, State
from holdfast.core.store.tail import Tail

S = TypeVar("S", bound=State)


class UnsentPuts:
    """Ordinary stores in one map of one partition that nobody was told of yet, as compiled code packs them: they leave
    together when the turn ends (store/U-1, store/U-2).
    """

    __slots__ = ("closed", "closed_bytes", "data", "opened", "partition", "parts", "sizes")

    def __init__(self, partition: int) -> None:
        self.partition = partition
        self.sizes = bytearray()
        """As in `Puts`,"""
        self.data = bytearray()
        """and so is this. Who stores an entry adds to both."""
        self.opened = False
        """Whether some of it belongs to the read buffer that is being worked on."""
        self.closed = self.closed_bytes = 0
        """How many of the stores belong to buffers that have ended, and the bytes of these."""
        self.parts: list[list[tuple[AnyReplica, Recorded]]] = []
        """What the batches of these buffers have of the partition: each wants to have the stores when they are taken.
        """

    @property
    def count(self) -> int:
        """How many wait."""
        return len(self.sizes) // PAIR_BYTES

    def take(self, held: AnyReplica, end: int) -> Puts:
        """Take out all that waits of this replica, whose it is: the last is the update of this number."""
        sizes, data = self.sizes, self.data
        puts = Puts(held.name, end - len(sizes) // PAIR_BYTES, bytes(sizes), bytes(data))
        sizes.clear()
        data.clear()
        self._hand_over(held, puts)
        return puts

    def take_closed(self, held: AnyReplica, end: int) -> Puts | None:
        """The same, without what belongs to a buffer that has not ended (store/U-2)."""
        if not self.opened:
            return self.take(held, end) if self.sizes else None
        closed = self.closed
        if not closed:
            return None
        cut = closed * PAIR_BYTES
        start = end - len(self.sizes) // PAIR_BYTES
        puts = Puts(held.name, start, bytes(self.sizes[:cut]), bytes(self.data[: self.closed_bytes]))
        del self.sizes[:cut], self.data[: self.closed_bytes]
        self._hand_over(held, puts)
        return puts

    def _hand_over(self, held: AnyReplica, puts: Puts) -> None:
        self.closed = self.closed_bytes = 0
        parts = self.parts
        for part in parts:
            part.append((held, puts))
        parts.clear()


class Replica(Generic[S]):
    """The updates of one object in one partition, on one member, and the state that they have led to."""

    __slots__ = (
        "changes",
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
        """Which updates this copy holds. Gaps are only in a copy that is being filled, or was read from a disk."""
        self.lineage: list[tuple[int, int]] = []
        """Which history they are of: from the counter start + 1 on, those of the primary of this term; ascending."""
        self.journal: JournalMode = "off"
        """Whether its updates are written down on this member before they count as held."""
        self.changes = 0
        """Bytes of the last updates that are kept for change streams; 0: there are none."""
        self.recorded = False
        """On a primary: whether its updates are wanted by a backup, also one that is missing, or by the journal."""
        self.targets: tuple[str, ...] = ()
        """On a primary: the members that each record goes to."""
        self.sync: frozenset[str] = frozenset()
        """On a primary: those of them that must have it before the caller is answered."""
        self.unsent: UnsentPuts | None = None
        """On a primary whose entries compiled code stores: what it has stored and nobody was told of."""
        self.tail: Tail | None = None
        """The last updates, if they are kept."""

    @property
    def counter(self) -> int:
        """The low watermark of the updates."""
        return self.updates.lwm

    @property
    def term(self) -> int:
        """The term of the last update; 0 before the first."""
        proven = self.proven_lineage()
        return proven[-1][0] if proven else 0

    def proven_lineage(self) -> list[tuple[int, int]]:
        """The lineage up to the low watermark: without terms of which nothing is held yet."""
        return [(term, start) for term, start in self.lineage if start < self.updates.lwm]

    def enter(self, term: int) -> None:
        """What comes now is of this term. A term without any update leaves no trace."""
        lineage = self.lineage
        if lineage and lineage[-1][0] >= term:
            return
        reached = self.updates.highest_applied
        while lineage and lineage[-1][1] >= reached:
            lineage.pop()
        assert not lineage or lineage[-1][1] < reached, "a term without any update leaves no trace"
        lineage.append((term, reached))

    def is_before(self, term: int, record: Record) -> bool:
        """Whether all that is held is of the map as it was before it began again by this record.

        A record that comes twice finds what it has begun itself, or something newer, and changes nothing then.
        """
        begun = self.lineage[0] if self.lineage else (0, -1)
        return record.change is Change.BEGIN and begun < (term, record.counter - 1)

    def begin_again(self, record: Record) -> None:
        """Hold nothing of what was before this record, which is to be applied next (store/R-1)."""
        self.updates = UpdateCounter(record.counter - 1)
        self.lineage = []
        self.tail = None

    def apply(self, record: Record, now_ns: int) -> None:
        """Do as a primary's record says, and note that its update is held."""
        self.state.apply(record, now_ns)
        self.updates.update(record.counter - 1)

    def apply_puts(self, term: int, puts: Puts, now_ns: int, limit: int) -> bool:
        """Do as a primary of this term says, note that these updates are held, and remember them in a tail of so many
        bytes. Answers whether they were the next ones; else nothing was done.
        """
        updates, state = self.updates, self.state
        start = puts.start
        if updates.lwm != start or updates.hwm != start:
            return False
        assert isinstance(state, MapState), "only maps have entries"
        # A term begins where its first update does, so before that is counted.
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
        """Remember these updates, which were applied in the order of the counter, in a tail of so many bytes."""
        if limit:
            if self.tail is None:
                self.tail = Tail(limit)
            self.tail.add(term, records)

    def keep_puts(self, term: int, puts: Puts, limit: int) -> None:
        """The same of packed stores."""
        if limit:
            if self.tail is None:
                self.tail = Tail(limit)
            self.tail.add_puts(term, puts)

    def keep_earlier(self, earlier: list[tuple[int, Record]]) -> None:
        """Remember these updates, too, with their terms: those of them that were before all that is in the tail."""
        if self.changes and earlier:
            if self.tail is None:
                self.tail = Tail(self.changes)
            end = self.tail.start if self.tail.size else self.counter
            before = {record.counter: (term, record) for term, record in earlier if record.counter <= end}
            self.tail.precede([one for _, one in sorted(before.items())])

    @property
    def remembered_from(self) -> int:
        """Every update after this number is in the tail; the counter itself when nothing is."""
        tail = self.tail
        return tail.start if tail is not None and tail.end == self.counter else self.counter

    def start_from(self, base: Replica[S]) -> None:
        """Hold what `base` holds, on the way to something newer; both go their own ways from now on."""
        assert base is not self, "it is filled from another one"
        self.state.start_from(base.state)
        self.updates = UpdateCounter(base.counter)
        self.lineage = base.proven_lineage()
        if base.tail is not None and base.tail.end == base.counter:
            self.tail = base.tail.copy()
        assert self.counter == base.counter, "it holds what the base does, and no more"
        assert self.remembered_from <= self.counter, "what is remembered is held"


MapReplica = Replica[MapState]
ServiceReplica = Replica[HostedState]
AnyReplica = MapReplica | ServiceReplica


def service_replica(name: str, state: HostedState) -> ServiceReplica:
    """A service's replica with this state, which is new."""
    return Replica(name, state)


def map_replica(name: str, entries: NewEntries = dict) -> MapReplica:
    """A map's replica, with no entries."""
    return Replica(name, MapState(name, entries))
